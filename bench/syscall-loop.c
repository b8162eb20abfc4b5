/* syscall-loop CHUNKS [walls]: what a system call costs where this runs. Prints one line a chunk: name of the call, nanoseconds
 * each.
 *
 * The calls take turns, chunk by chunk, so that a disturbance does not fall on one of them alone. Static and without a libc's
 * caches in the way (raw calls), so that the same bytes run natively and in a sandbox; with `walls`, under the least seccomp
 * filter and Landlock ruleset. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 4000 };

static const char path[] = "/usr/bin/env"; /* there natively and in every sandbox */

static void call_getppid(void)
{
	(void) syscall(SYS_getppid);
}

static void call_open(void)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || syscall(SYS_close, fd) != 0) {
		perror("openat");
		exit(1);
	}
}

static void call_stat(void)
{
	struct stat st;

	if (syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) != 0) {
		perror("newfstatat");
		exit(1);
	}
}

static const struct {
	const char *name;
	void (*call)(void);
} calls[] = {
    {"getppid", call_getppid},
    {"openat+close", call_open},
    {"stat", call_stat},
};

/* By the thread's own clock, so that time in which others have the processor does not count. */
static double ns_each(void (*call)(void))
{
	struct timespec a, b;

	(void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
	for (int i = 0; i < CALLS; i++)
		call();
	(void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
	return ((double) (b.tv_sec - a.tv_sec) * 1e9 + (double) (b.tv_nsec - a.tv_nsec)) / CALLS;
}

/* The least walls that there can be: a filter of one instruction and a Landlock ruleset of one rule, both of which allow all.
 * What they cost is the price of having any: the kernel leaves its fast way in, and walks up the path of each file that is
 * opened. */
static void install_walls(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &allow};
	struct landlock_ruleset_attr handled = {.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
	struct landlock_path_beneath_attr all = {.allowed_access = handled.handled_access_fs,
						 .parent_fd = open("/", O_PATH | O_CLOEXEC)};
	long rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || rules < 0 ||
	    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &all, 0) != 0 ||
	    syscall(SYS_landlock_restrict_self, rules, 0) != 0 ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
		perror("walls");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	bool walls = argc == 3 && strcmp(argv[2], "walls") == 0;
	unsigned long chunks = argc == 2 || walls ? strtoul(argv[1], NULL, 10) : 0;

	if (chunks == 0) {
		fputs("usage: syscall-loop CHUNKS [walls]\n", stderr);
		return 2;
	}
	if (walls)
		install_walls();
	for (unsigned long i = 0; i < chunks; i++)
		for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++)
			printf("%s %.2f\n", calls[k].name, ns_each(calls[k].call));
	return 0;
}
