/* Landlock with real enforcement: every try happens in a child of its own. Where the kernel has no Landlock, all is skipped. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/landlock.h"

/* A small tree: /tmp/X/{in,out,other}/file, and a script in each. */
struct tree {
	char path[64];
	int dir;
};

static void make_file(int dir, const char *path, mode_t mode)
{
	cleanup_fd int fd = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, "#!/bin/sh\n", 10), 0);
}

static const char *const folders[] = {"in", "out", "other"};

static int set_up(void **state)
{
	struct tree *t = xcalloc(1, sizeof *t);

	(void) snprintf(t->path, sizeof t->path, "/tmp/zwinger-test-XXXXXX");
	assert_non_null(mkdtemp(t->path));
	t->dir = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->dir >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		char name[32];

		assert_int_equal(mkdirat(t->dir, folders[i], 0700), 0);
		(void) snprintf(name, sizeof name, "%s/file", folders[i]);
		make_file(t->dir, name, 0600);
		(void) snprintf(name, sizeof name, "%s/run", folders[i]);
		make_file(t->dir, name, 0700);
	}
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	struct tree *t = *state;
	static const char *const names[] = {"file", "run", "new", "moved", "fifo", "link", "sym"};

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		char name[32];

		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			(void) snprintf(name, sizeof name, "%s/%s", folders[i], names[k]);
			(void) unlinkat(t->dir, name, 0);
		}
		(void) snprintf(name, sizeof name, "%s/sub", folders[i]);
		(void) unlinkat(t->dir, name, AT_REMOVEDIR);
		assert_int_equal(unlinkat(t->dir, folders[i], AT_REMOVEDIR), 0);
	}
	assert_int_equal(rmdir(t->path), 0);
	fd_close(&t->dir);
	free(t);
	return 0;
}

static int needed_abi(int abi)
{
	int have = landlock_abi();

	if (have < abi)
		skip();
	return have;
}

static void allow(int ruleset, int dir, const char *path, enum landlock_access what)
{
	cleanup_fd int fd = openat(dir, path, O_PATH | O_CLOEXEC);

	if (fd < 0 || landlock_allow(ruleset, fd, what) < 0)
		_exit(90);
}

/* Runs `inside` in a child under: in readable, out writable, the system readable. Each check that fails there ends it with its
 * number. */
static void enforced_with(struct tree *t, unsigned abi, enum landlock_access in, enum landlock_access out,
			  int (*inside)(struct tree *t))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		cleanup_fd int ruleset = landlock_ruleset(abi, true);

		if (ruleset < 0)
			_exit(91);
		allow(ruleset, t->dir, "in", in);
		allow(ruleset, t->dir, "out", out);
		allow(ruleset, AT_FDCWD, "/usr", LANDLOCK_READ);
		allow(ruleset, AT_FDCWD, "/bin", LANDLOCK_READ);
		allow(ruleset, AT_FDCWD, "/lib", LANDLOCK_READ);
		if (faccessat(AT_FDCWD, "/lib64", F_OK, 0) == 0)
			allow(ruleset, AT_FDCWD, "/lib64", LANDLOCK_READ);
		allow(ruleset, AT_FDCWD, "/dev/null", LANDLOCK_DEVICES);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || landlock_enforce(ruleset) < 0)
			_exit(92);
		_exit(inside(t));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool opens(struct tree *t, const char *path, int flags)
{
	cleanup_fd int fd = openat(t->dir, path, flags | O_CLOEXEC, 0600);

	return fd >= 0;
}

/* Exit status of running it: 0, or 126 when refused. */
static int runs(struct tree *t, const char *path)
{
	const char *const argv[] = {"run", NULL}, *const env[] = {NULL};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		char name[128];

		(void) snprintf(name, sizeof name, "%s/%s", t->path, path);
		(void) execve(name, (char *const *) (uintptr_t) argv, (char *const *) (uintptr_t) env);
		_exit(errno == EACCES ? 126 : 99);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

#define CHECK(n, condition)                                                                                                      \
	do {                                                                                                                     \
		if (!(condition))                                                                                                \
			return n;                                                                                                \
	} while (0)

static int reading(struct tree *t)
{
	CHECK(1, opens(t, "in/file", O_RDONLY));
	CHECK(2, opens(t, "in", O_RDONLY | O_DIRECTORY));
	CHECK(3, !opens(t, "in/file", O_WRONLY) && errno == EACCES);
	CHECK(4, !opens(t, "in/new", O_WRONLY | O_CREAT));
	CHECK(5, unlinkat(t->dir, "in/file", 0) < 0);
	CHECK(6, renameat(t->dir, "in/file", t->dir, "out/moved") < 0);
	CHECK(7, !opens(t, "other/file", O_RDONLY) && errno == EACCES);
	CHECK(8, !opens(t, "other", O_RDONLY | O_DIRECTORY));
	CHECK(9, !opens(t, "in/../other/file", O_RDONLY));
	CHECK(10, runs(t, "in/run") == 0);
	CHECK(11, runs(t, "other/run") == 126);
	CHECK(12, linkat(t->dir, "other/file", t->dir, "out/link", 0) < 0);
	CHECK(13, symlinkat("../other/file", t->dir, "out/sym") == 0);
	CHECK(14, !opens(t, "out/sym", O_RDONLY));
	return 0;
}

static void what_is_readable_is_just_that(void **state)
{
	struct tree *t = *state;

	enforced_with(t, (unsigned) needed_abi(1), LANDLOCK_READ, LANDLOCK_WRITE, reading);
}

static int writing(struct tree *t)
{
	cleanup_fd int fd = openat(t->dir, "out/new", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK(1, fd >= 0 && ftruncate(fd, 10) == 0);
	CHECK(2, opens(t, "out/file", O_WRONLY | O_TRUNC));
	CHECK(3, mkdirat(t->dir, "out/sub", 0700) == 0);
	CHECK(4, renameat(t->dir, "out/file", t->dir, "out/sub/file") == 0);
	CHECK(5, linkat(t->dir, "out/sub/file", t->dir, "out/file", 0) == 0);
	CHECK(6, unlinkat(t->dir, "out/sub/file", 0) == 0);
	CHECK(7, unlinkat(t->dir, "out/sub", AT_REMOVEDIR) == 0);
	CHECK(8, mkfifoat(t->dir, "out/fifo", 0600) == 0);
	CHECK(9, mknodat(t->dir, "out/null", S_IFCHR | 0600, 0x103) < 0);
	CHECK(10, runs(t, "out/run") == 0);
	CHECK(11, opens(t, "/dev/null", O_RDWR));
	CHECK(12, !opens(t, "/dev/zero", O_RDONLY));
	return 0;
}

static void what_is_writable_takes_all_but_devices(void **state)
{
	struct tree *t = *state;

	/* Moving between folders needs the right that ABI 2 brought. */
	enforced_with(t, (unsigned) needed_abi(LANDLOCK_ABI_REFER), LANDLOCK_READ, LANDLOCK_WRITE, writing);
}

static int no_executing(struct tree *t)
{
	CHECK(1, runs(t, "in/run") == 126);
	CHECK(2, runs(t, "out/run") == 126);
	CHECK(3, opens(t, "in/run", O_RDONLY));
	CHECK(4, opens(t, "out/run", O_RDWR));
	return 0;
}

static void executing_can_be_left_out(void **state)
{
	struct tree *t = *state;

	enforced_with(t, (unsigned) needed_abi(1), LANDLOCK_READ_NOEXEC, LANDLOCK_WRITE_NOEXEC, no_executing);
}

static int truncating(struct tree *t)
{
	char name[128];

	(void) snprintf(name, sizeof name, "%s/in/file", t->path);
	CHECK(1, truncate(name, 0) < 0 && errno == EACCES);
	(void) snprintf(name, sizeof name, "%s/other/file", t->path);
	CHECK(2, truncate(name, 0) < 0 && errno == EACCES);
	(void) snprintf(name, sizeof name, "%s/out/file", t->path);
	CHECK(3, truncate(name, 0) == 0);
	return 0;
}

static void truncating_is_writing(void **state)
{
	struct tree *t = *state;

	enforced_with(t, (unsigned) needed_abi(LANDLOCK_ABI_TRUNCATE), LANDLOCK_READ, LANDLOCK_WRITE, truncating);
}

/* Rules for a ruleset of an older ABI than the kernel's. */
static void every_older_abi_can_be_had(void **state)
{
	struct tree *t = *state;
	int newest = needed_abi(1);

	for (int abi = 1; abi <= newest; abi++) {
		enforced_with(t, (unsigned) abi, LANDLOCK_READ, LANDLOCK_WRITE, reading);
		(void) unlinkat(t->dir, "out/sym", 0);
	}
}

static void bind_name(struct sockaddr_un *a, socklen_t *size, const char *name)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(a->sun_path + 1, name, strlen(name));
	*size = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static int reach(const char *name)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	socklen_t size;

	bind_name(&a, &size, name);
	return connect(fd, (struct sockaddr *) &a, size) < 0 ? -errno : 0;
}

static int scoped(struct tree *t)
{
	pid_t child;

	CHECK(1, reach(strrchr(t->path, '/') + 1) == -EPERM);
	CHECK(2, kill(getppid(), 0) < 0 && errno == EPERM);
	CHECK(3, ptrace(PTRACE_ATTACH, getppid(), 0, 0) < 0);
	child = fork();
	if (child == 0) {
		for (;;)
			(void) pause();
	}
	CHECK(4, kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	return 0;
}

static void signals_and_abstract_sockets_stay_inside(void **state)
{
	struct tree *t = *state;
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *name = strrchr(t->path, '/') + 1;
	int abi = needed_abi(LANDLOCK_ABI_SCOPE);
	struct sockaddr_un a;
	socklen_t size;

	bind_name(&a, &size, name);
	assert_int_equal(bind(fd, (struct sockaddr *) &a, size), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(reach(name), 0);
	enforced_with(t, (unsigned) abi, LANDLOCK_READ, LANDLOCK_WRITE, scoped);
}

/* kill(-1) within a scoped domain ends the domain and nothing else: what the agent relies on at process level. A second domain
 * inside protects its outer one. */
static int inner_domain(struct tree *t)
{
	cleanup_fd int inner = landlock_ruleset((unsigned) landlock_abi(), true);
	int ready[2];
	pid_t outer = getpid(), child;
	char c;
	int status;

	(void) t;
	CHECK(1, inner >= 0 && pipe2(ready, O_CLOEXEC) == 0);
	child = fork();
	if (child == 0) {
		bool held = landlock_enforce(inner) == 0 && kill(outer, 0) < 0 && errno == EPERM && kill(-1, SIGKILL) <= 0;

		(void) !write(ready[1], held ? "y" : "n", 1);
		for (;;)
			(void) pause();
	}
	CHECK(2, read(ready[0], &c, 1) == 1 && c == 'y');
	CHECK(3, kill(-1, SIGKILL) == 0);
	CHECK(4, waitpid(child, &status, 0) == child && status == SIGKILL);
	return 0;
}

static void a_domain_can_end_what_is_within_and_only_that(void **state)
{
	struct tree *t = *state;
	int abi = needed_abi(LANDLOCK_ABI_SCOPE), status;
	pid_t bystander = fork();

	if (bystander == 0) {
		for (;;)
			(void) pause();
	}
	enforced_with(t, (unsigned) abi, LANDLOCK_READ, LANDLOCK_WRITE, inner_domain);
	assert_int_equal(waitpid(bystander, &status, WNOHANG), 0);
	assert_int_equal(kill(bystander, SIGKILL), 0);
	assert_int_equal(waitpid(bystander, &status, 0), bystander);
}

static int ioctls(struct tree *t)
{
	cleanup_fd int null = openat(t->dir, "/dev/null", O_RDWR | O_CLOEXEC);
	cleanup_fd int full = openat(t->dir, "/dev/full", O_RDWR | O_CLOEXEC);
	int n;

	/* ENOTTY: allowed, but the device has no such call. */
	CHECK(1, ioctl(null, TIOCGETD, &n) < 0 && errno == ENOTTY);
	CHECK(2, full < 0);
	return 0;
}

static void devices_can_be_talked_to_where_allowed(void **state)
{
	struct tree *t = *state;

	enforced_with(t, (unsigned) needed_abi(LANDLOCK_ABI_IOCTL), LANDLOCK_READ, LANDLOCK_WRITE, ioctls);
}

static void nothing_is_silently_weaker(void **state)
{
	cleanup_fd int ruleset = -EBADF;
	cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	pid_t pid;
	int status;

	(void) state;
	ruleset = landlock_ruleset((unsigned) needed_abi(1), false);
	assert_true(ruleset >= 0);
	assert_int_equal(landlock_ruleset(0, false), -EINVAL);
	assert_int_equal(landlock_allow(ruleset, -1, LANDLOCK_READ), -EBADF);
	assert_int_equal(landlock_allow(null, null, LANDLOCK_READ), -EBADFD);
	assert_int_equal(landlock_enforce(null), geteuid() == 0 ? -EBADFD : -EPERM); /* the privilege is looked at first */
	pid = fork();
	if (pid == 0) /* without no_new_privs only an administrator may */
		_exit(geteuid() == 0 ? 1 : -landlock_enforce(ruleset) == EPERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 1 << 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_readable_is_just_that, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_writable_takes_all_but_devices, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(executing_can_be_left_out, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(truncating_is_writing, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(every_older_abi_can_be_had, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(signals_and_abstract_sockets_stay_inside, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_domain_can_end_what_is_within_and_only_that, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(devices_can_be_talked_to_where_allowed, set_up, tear_down),
	    cmocka_unit_test(nothing_is_silently_weaker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
