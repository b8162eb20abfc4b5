/* Times programs from start to exit, with as little of its own in between as can be.
 *
 *	spawn-loop ROUNDS COMMAND [ARG...] [';;' COMMAND [ARG...]]...
 *		each round runs each command once, so that what else the machine does hits all alike; prints one line a run:
 *		number of the command, microseconds, exit status as wait(2) gives it
 *	spawn-loop -p LOOPS SECONDS COMMAND [ARG...]
 *		so many loops at once, each starting the command again when it has ended; prints runs, failed runs, seconds
 *
 * Programs get /dev/null as their three streams. posix_spawn(3) shares memory until exec, so the size of this process does not
 *count. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMANDS_MAX = 32, LOOPS_MAX = 64 };

extern char **environ;

struct tally {
	uint64_t runs, failed;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t) t.tv_sec * 1000000000U + (uint64_t) t.tv_nsec;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || n == 0) {
		fprintf(stderr, "spawn-loop: %s is not a number above 0\n", text);
		exit(2);
	}
	return n;
}

/* Runs a command; its wait status, nanoseconds in *ret_ns. */
static int run(char **argv, posix_spawn_file_actions_t *streams, uint64_t *ret_ns)
{
	uint64_t start = now_ns();
	int status, r;
	pid_t pid;

	r = posix_spawn(&pid, argv[0], streams, NULL, argv, environ);
	if (r != 0) {
		errno = r;
		die(argv[0]);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid");
	*ret_ns = now_ns() - start;
	return status;
}

static size_t split(char **argv, char ***commands)
{
	size_t n = 0;

	commands[n++] = argv;
	for (; *argv != NULL; argv++) {
		if (strcmp(*argv, ";;") != 0)
			continue;
		if (n == COMMANDS_MAX)
			exit(2); /* bench/run never asks for so many */
		*argv = NULL;
		commands[n++] = argv + 1;
	}
	return n;
}

static void in_turn(unsigned long rounds, char **argv, posix_spawn_file_actions_t *streams)
{
	char **commands[COMMANDS_MAX];
	size_t n = split(argv, commands);

	for (unsigned long i = 0; i < rounds; i++) {
		for (size_t k = 0; k < n; k++) {
			uint64_t ns;
			int status = run(commands[k], streams, &ns);

			printf("%zu %" PRIu64 ".%03u %d\n", k, ns / 1000, (unsigned) (ns % 1000), status);
		}
	}
}

static void at_once(unsigned long loops, unsigned long seconds, char **argv, posix_spawn_file_actions_t *streams)
{
	struct tally *tallies =
	    mmap(NULL, LOOPS_MAX * sizeof *tallies, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t start = now_ns(), runs = 0, failed = 0;

	if (tallies == MAP_FAILED || loops > LOOPS_MAX)
		die("loops");
	for (unsigned long i = 0; i < loops; i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid > 0)
			continue;
		while (now_ns() - start < seconds * 1000000000U) {
			uint64_t ns;

			tallies[i].failed += run(argv, streams, &ns) != 0;
			tallies[i].runs++;
		}
		_exit(0);
	}
	for (unsigned long i = 0; i < loops; i++)
		(void) wait(NULL);
	for (unsigned long i = 0; i < loops; i++) {
		runs += tallies[i].runs;
		failed += tallies[i].failed;
	}
	printf("%" PRIu64 " %" PRIu64 " %.6f\n", runs, failed, (double) (now_ns() - start) / 1e9);
}

int main(int argc, char **argv)
{
	posix_spawn_file_actions_t streams;

	if (posix_spawn_file_actions_init(&streams) != 0 ||
	    posix_spawn_file_actions_addopen(&streams, 0, "/dev/null", O_RDONLY, 0) != 0 ||
	    posix_spawn_file_actions_addopen(&streams, 1, "/dev/null", O_WRONLY, 0) != 0 ||
	    posix_spawn_file_actions_addopen(&streams, 2, "/dev/null", O_WRONLY, 0) != 0)
		die("spawn-loop");
	if (argc >= 5 && strcmp(argv[1], "-p") == 0) {
		at_once(number(argv[2]), number(argv[3]), argv + 4, &streams);
	} else if (argc >= 3) {
		in_turn(number(argv[1]), argv + 2, &streams);
	} else {
		fputs("usage: spawn-loop ROUNDS COMMAND... [';;' COMMAND...]... | spawn-loop -p LOOPS SECONDS COMMAND...\n",
		      stderr);
		return 2;
	}
	return 0;
}
