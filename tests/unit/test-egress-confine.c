/* The walls of the network broker. A child puts them up as the broker does; what it tries then decides how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/confine.h"
#include "kernel/landlock.h"

enum { BROKEN = 99, RETURNED = 42 };

struct child {
	pid_t pid;
	int sock; /* the supervisor's end */
	struct confinement confinement;
};

static void in_child(int sock, int (*attempt)(void))
{
	struct zw_error e = {0};
	struct confinement c;
	char go;

	if (confine(sock, &c, &e) < 0) {
		(void) !write(sock, e.text, strlen(e.text));
		_exit(BROKEN);
	}
	if (write(sock, &c, sizeof c) != sizeof c || read(sock, &go, 1) != 1)
		_exit(BROKEN);
	_exit(attempt());
}

static struct child begin(int (*attempt)(void))
{
	struct child child;
	char answer[512];
	ssize_t n;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		(void) close(pair[0]);
		in_child(pair[1], attempt);
	}
	(void) close(pair[1]);
	child.sock = pair[0];
	n = read(child.sock, answer, sizeof answer - 1);
	if (n != sizeof child.confinement)
		fail_msg("no walls: %.*s", (int) (n > 0 ? n : 0), answer);
	memcpy(&child.confinement, answer, sizeof child.confinement);
	return child;
}

static int finish(struct child *child)
{
	int status;

	assert_int_equal(write(child->sock, "x", 1), 1);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	(void) close(child->sock);
	return status;
}

static void assert_dies_of(int (*attempt)(void))
{
	struct child child = begin(attempt);
	int status = finish(&child);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
	assert_false(WCOREDUMP(status));
}

static int does_nothing(void)
{
	return RETURNED;
}

static int opens_a_file(void)
{
	return open("/etc/hostname", O_RDONLY | O_CLOEXEC);
}

static int looks_at_a_file(void)
{
	char buf[64];

	return (int) syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", buf, sizeof buf);
}

static int starts_a_program(void)
{
	char *const argv[] = {(char[]){"true"}, NULL};

	return execv("/bin/true", argv);
}

static int forks(void)
{
	return (int) syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int makes_a_unix_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int makes_a_raw_socket(void)
{
	return socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
}

static int takes_a_port(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return listen(fd, 1);
}

static int signals_another(void)
{
	return kill(getppid(), 0);
}

static int makes_memory_executable(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static int lifts_a_wall(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static int does_its_work(void)
{
	char buf[16];
	int p[2], fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	void *memory = malloc((size_t) 8 << 20);

	if (fd < 0 || memory == NULL || pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
		return 1;
	(void) recv(fd, buf, sizeof buf, MSG_DONTWAIT);
	free(memory);
	return RETURNED;
}

/* The value of a line of /proc/PID/status. */
static unsigned long long status_of(pid_t pid, const char *key)
{
	char path[64], line[256];
	unsigned long long value = 12345;
	FILE *f;

	(void) snprintf(path, sizeof path, "/proc/%d/status", (int) pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
			value = strtoull(line + strlen(key) + 1, NULL, strncmp(key, "Cap", 3) == 0 ? 16 : 10);
	}
	(void) fclose(f);
	return value;
}

static void test_the_kernel_says_that_the_walls_stand(void **state)
{
	static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapAmb"};
	struct child child = begin(does_nothing);
	int status;

	(void) state;
	assert_int_equal(status_of(child.pid, "Seccomp"), 2);
	assert_int_equal(status_of(child.pid, "NoNewPrivs"), 1);
	for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
		assert_int_equal(status_of(child.pid, sets[i]), 0);
	if (geteuid() == 0) {
		assert_int_equal(status_of(child.pid, "CapBnd"), 0);
		assert_int_not_equal(status_of(child.pid, "Uid"), 0);
		assert_int_not_equal(status_of(child.pid, "Gid"), 0);
	}
	assert_true(child.confinement.descriptors >= 256);
	assert_true((child.confinement.landlock_abi > 0) == (landlock_abi() > 0));
	status = finish(&child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), RETURNED);
}

static void test_its_work_goes_on(void **state)
{
	struct child child = begin(does_its_work);
	int status = finish(&child);

	(void) state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), RETURNED);
}

static void test_it_dies_of_whatever_is_not_its_work(void **state)
{
	static int (*const attempts[])(void) = {
	    opens_a_file, looks_at_a_file, starts_a_program,        forks,        makes_a_unix_socket, makes_a_raw_socket,
	    takes_a_port, signals_another, makes_memory_executable, lifts_a_wall,
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++)
		assert_dies_of(attempts[i]);
}

/* Another process of its user, here its parent, can neither read its memory nor attach to it. */
static void test_others_of_its_user_cannot_look_into_it(void **state)
{
	struct child child;
	char path[64];

	(void) state;
	if (geteuid() == 0)
		skip(); /* root may */
	child = begin(does_nothing);
	(void) snprintf(path, sizeof path, "/proc/%d/mem", (int) child.pid);
	assert_int_equal(open(path, O_RDONLY | O_CLOEXEC), -1);
	assert_int_equal(errno, EACCES);
	assert_int_equal(ptrace(PTRACE_ATTACH, child.pid, NULL, NULL), -1);
	(void) finish(&child);
}

static int waits(void)
{
	return poll(NULL, 0, 20000);
}

/* parent <- middle (makes the socket pair) <- child, and the middle dies. */
static void test_it_ends_with_its_parent(void **state)
{
	struct child grandchild = {.pid = 0};
	int pair[2], status;
	pid_t middle;
	usec_t killed;
	char end;

	(void) state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	middle = fork();
	assert_true(middle >= 0);
	if (middle == 0) {
		grandchild = begin(waits);
		(void) !write(grandchild.sock, "x", 1);
		(void) !write(pair[1], "x", 1);
		(void) pause();
	}
	(void) close(pair[1]);
	assert_int_equal(read(pair[0], &end, 1), 1);
	killed = now_monotonic();
	assert_int_equal(kill(middle, SIGKILL), 0);
	assert_int_equal(waitpid(middle, &status, 0), middle);
	assert_int_equal(read(pair[0], &end, 1), 0); /* the child held the last copy of the other end */
	assert_true(now_monotonic() - killed < 10 * USEC_PER_SEC);
	(void) close(pair[0]);
}

static void test_a_stranger_for_a_parent_is_noticed(void **state)
{
	struct zw_error e = {0};
	int pair[2];

	(void) state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	/* This process made the pair, and is not its own parent. */
	assert_int_equal(confine_to_parent(pair[0], &e), -ESRCH);
	assert_int_equal(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0), 0);
	(void) close(pair[0]);
	(void) close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_kernel_says_that_the_walls_stand),
	    cmocka_unit_test(test_its_work_goes_on),
	    cmocka_unit_test(test_it_dies_of_whatever_is_not_its_work),
	    cmocka_unit_test(test_others_of_its_user_cannot_look_into_it),
	    cmocka_unit_test(test_it_ends_with_its_parent),
	    cmocka_unit_test(test_a_stranger_for_a_parent_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
