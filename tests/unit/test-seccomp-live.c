/* The filters in the kernel: a child installs one and tries calls, this process is its supervisor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/seccomp.h"

enum { CALLS_MAX = 64, CHILD_BROKEN = 99 };

/* What the supervisor saw. */
struct seen {
	int status;
	size_t count;
	int calls[CALLS_MAX];
	char path[256]; /* first argument of the last refused mount, as a string */
	char label[32];
};

typedef int (*body)(void);

static void child(const struct seccomp_filter *f, int sock, body run)
{
	int listener;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(CHILD_BROKEN);
	listener = seccomp_install(f);
	if (listener < 0 || fd_send(sock, "x", 1, &listener, 1) < 0)
		_exit(CHILD_BROKEN);
	(void) close(listener);
	(void) close(sock);
	_exit(run());
}

static void serve(const struct seccomp_spec *spec, int listener, struct seen *seen)
{
	struct seccomp_notif n;
	int err = EPERM;

	if (seccomp_receive(listener, &n) < 0)
		return;
	assert_int_equal(seccomp_alive(listener, n.id), 0);
	if (seen->count < CALLS_MAX)
		seen->calls[seen->count++] = n.data.nr;
	if (seccomp_judge(spec, &n.data, &err) == SECCOMP_VERDICT_CONTINUE) {
		(void) seccomp_continue(listener, n.id);
		return;
	}
	seccomp_label(&n.data, seen->label, sizeof(seen->label));
	if (n.data.nr == SYS_mount && n.data.args[0])
		assert_true(seccomp_peek_string(listener, &n, n.data.args[0], seen->path, sizeof(seen->path)) >= 0);
	(void) seccomp_deny(listener, n.id, err);
}

static int supervise(const struct seccomp_spec *spec, int listener, pid_t pid, struct seen *seen)
{
	cleanup_fd int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
	struct pollfd fds[] = {{.fd = listener, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
	int status = 0;

	assert_true(pidfd >= 0);
	while (poll(fds, 2, -1) > 0) {
		if (fds[0].revents & POLLIN)
			serve(spec, listener, seen);
		else if (fds[1].revents)
			break;
		else
			fds[0].fd = -1; /* hung up */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static struct seen try_spec(const struct seccomp_spec *spec, body run)
{
	struct seen seen = {0};
	struct seccomp_filter f = {0};
	struct zw_error e = {0};
	int pair[2];
	cleanup_fd int listener = -EBADF;
	size_t one = 1;
	char byte;
	pid_t pid;

	assert_int_equal(seccomp_filter_make(spec, &f, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(&f, pair[1], run);
	(void) close(pair[1]);
	assert_true(fd_recv(pair[0], &byte, 1, &listener, &one) > 0);
	assert_int_equal(one, 1);
	(void) close(pair[0]);
	assert_true(fcntl(listener, F_GETFD) & FD_CLOEXEC);
	seccomp_tune_listener(listener);
	seen.status = supervise(spec, listener, pid, &seen);
	seccomp_filter_done(&f);
	return seen;
}

static const struct seccomp_spec default_spec = {.profile = SECCOMP_DEFAULT};

#define assert_exit(seen, code)                                                                                                  \
	do {                                                                                                                     \
		assert_true(WIFEXITED((seen).status));                                                                           \
		assert_int_equal(WEXITSTATUS((seen).status), (code));                                                            \
	} while (0)

/* Runs in children: the number of the line that failed is too much for an exit status, so each has few checks. */
static int result(long r)
{
	return r >= 0 ? 0 : errno;
}

static int body_mount(void)
{
	return result(syscall(SYS_mount, "/a/source", "/", "tmpfs", 0, NULL));
}

static void test_a_refused_call_is_seen_with_its_arguments_and_fails(void **state)
{
	struct seen seen = try_spec(&default_spec, body_mount);

	(void) state;
	assert_exit(seen, EPERM);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.calls[0], SYS_mount);
	assert_string_equal(seen.path, "/a/source");
	assert_string_equal(seen.label, "mount");
}

static int body_mount_page_end(void)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || munmap(pages + 4096, 4096) < 0)
		return CHILD_BROKEN;
	memcpy(pages + 4096 - 4, "end", 4);
	return result(syscall(SYS_mount, pages + 4096 - 4, "/", "tmpfs", 0, NULL));
}

static int body_mount_unterminated(void)
{
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED || munmap(pages + 4096, 4096) < 0)
		return CHILD_BROKEN;
	memset(pages, 'a', 4096);
	return result(syscall(SYS_mount, pages + 4096 - 3, "/", "tmpfs", 0, NULL));
}

static void test_strings_at_the_end_of_memory_are_read(void **state)
{
	struct seen seen = try_spec(&default_spec, body_mount_page_end);

	(void) state;
	assert_exit(seen, EPERM);
	assert_string_equal(seen.path, "end");
	seen = try_spec(&default_spec, body_mount_unterminated);
	assert_exit(seen, EPERM);
	assert_string_equal(seen.path, "aaa");
}

static int body_probes(void)
{
	char room[128] = {0};

	if (syscall(SYS_clone3, room, 88) != -1 || errno != ENOSYS)
		return 1;
	if (syscall(SYS_io_uring_setup, 1, room) != -1 || errno != ENOSYS)
		return 2;
	if (syscall(SYS_openat2, AT_FDCWD, "/", room, 24) != -1 || errno != ENOSYS)
		return 3;
	if (syscall(511) != -1 || errno != ENOSYS)
		return 4;
	return 0;
}

static void test_probes_are_answered_without_a_notification(void **state)
{
	struct seen seen = try_spec(&default_spec, body_probes);

	(void) state;
	assert_exit(seen, 0);
	assert_int_equal(seen.count, 0);
}

static void *thread_body(void *arg)
{
	*(int *) arg = 7;
	return NULL;
}

static int body_thread(void)
{
	pthread_t t;
	int value = 0;

	if (pthread_create(&t, NULL, thread_body, &value) != 0)
		return 1;
	(void) pthread_join(t, NULL);
	return value == 7 ? 0 : 2;
}

static void test_threads_start(void **state)
{
	struct seen seen = try_spec(&default_spec, body_thread);

	(void) state;
	assert_exit(seen, 0);
	assert_int_equal(seen.count, 0);
}

static int body_core(void)
{
	struct rlimit before, after, zero = {0};

	if (getrlimit(RLIMIT_CORE, &before) < 0 || setrlimit(RLIMIT_CORE, &zero) < 0 || getrlimit(RLIMIT_CORE, &after) < 0)
		return 1;
	if (before.rlim_cur != after.rlim_cur || before.rlim_max != after.rlim_max)
		return 2;
	if (syscall(SYS_setrlimit, RLIMIT_CORE, &zero) < 0 || getrlimit(RLIMIT_CORE, &after) < 0)
		return 3;
	return before.rlim_max == after.rlim_max ? 0 : 4;
}

static void test_the_core_limit_stays_and_nobody_minds(void **state)
{
	struct seen seen = try_spec(&default_spec, body_core);

	(void) state;
	assert_exit(seen, 0);
}

static int body_setid(void)
{
	char path[] = "/tmp/zwinger-test-XXXXXX";
	int fd = mkstemp(path), r = 0;
	struct stat st;

	if (fd < 0)
		return CHILD_BROKEN;
	if (fchmod(fd, 04755) == 0 || chmod(path, 02755) == 0 || fchmodat(AT_FDCWD, path, 06755, 0) == 0 ||
	    syscall(452, AT_FDCWD, path, 04755, 0) == 0 || syscall(SYS_chmod, path, 0xffff0000ffff0000U | 04755) == 0)
		r = 1;
	if (fchmod(fd, 01755) < 0 || fstat(fd, &st) < 0 || (st.st_mode & 07777) != 01755)
		r = 2;
	(void) unlink(path);
	(void) close(fd);
	fd = (int) syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_CLOEXEC, 04755);
	if (fd >= 0 || errno != EPERM)
		r = 3;
	fd = (int) syscall(SYS_openat, AT_FDCWD, "/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 04755);
	if (fd >= 0 || errno != EPERM)
		r = 4;
	/* The kernel drops the bits from the mode of mkdir, which is why that passes unchecked. */
	if (mkdir(path, 06755) < 0 || stat(path, &st) < 0 || (st.st_mode & S_ISUID))
		r = 5;
	(void) rmdir(path);
	return r;
}

static void test_no_set_id_bits_come_to_be(void **state)
{
	struct seen seen = try_spec(&default_spec, body_setid);

	(void) state;
	assert_exit(seen, 0);
	assert_int_equal(seen.count, 7);
}

#ifdef __x86_64__
static int body_ia32(void)
{
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "cc", "r8", "r9", "r10", "r11"); /* getpid */
	return (int) r == -ENOSYS ? 0 : 1;
}

static void test_the_32_bit_entry_is_refused(void **state)
{
	struct seen seen = try_spec(&default_spec, body_ia32);

	(void) state;
	if (WIFSIGNALED(seen.status))
		skip(); /* a kernel without the 32-bit entry ends the process */
	assert_exit(seen, 0);
	assert_string_equal(seen.label, "i386_20");
}

static int body_x32(void)
{
	return syscall(0x40000000L + SYS_getpid) == -1 && errno == ENOSYS ? 0 : 1;
}

static void test_the_x32_table_is_refused(void **state)
{
	struct seen seen = try_spec(&default_spec, body_x32);

	(void) state;
	assert_exit(seen, 0);
	assert_string_equal(seen.label, "x32_39");
}
#endif

static int body_nested(void)
{
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, allow};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
		return 1;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) >= 0 || errno != EBUSY)
		return 2;
	return 0;
}

static void test_a_program_may_confine_itself_further_but_not_listen(void **state)
{
	struct seen seen = try_spec(&default_spec, body_nested);

	(void) state;
	assert_exit(seen, 0);
	assert_int_equal(seen.count, 1);
}

/* A filter of its own that asks a tracer or a notifier must not weaken ours. */
static int body_outvote(void)
{
	static const uint32_t answers[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_LOG, SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF};

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		struct sock_filter insns[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
					      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 1),
					      BPF_STMT(BPF_RET | BPF_K, answers[i]),
					      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
		struct sock_fprog program = {ARRAY_SIZE(insns), insns};

		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
			return CHILD_BROKEN;
		if (syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL) >= 0 || (errno != EPERM && errno != ENOSYS))
			return 1;
	}
	return 0;
}

static void test_filters_of_the_program_do_not_outvote_ours(void **state)
{
	struct seen seen = try_spec(&default_spec, body_outvote);

	(void) state;
	assert_exit(seen, 0);
}

static int body_exec(void)
{
	(void) execl("/bin/true", "true", (char *) NULL);
	return CHILD_BROKEN;
}

static void test_reported_calls_go_on(void **state)
{
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT, .notify_exec = true, .notify_open = true};
	struct seen seen = try_spec(&spec, body_exec);

	(void) state;
	assert_exit(seen, 0);
	assert_true(seen.count >= 1);
	assert_int_equal(seen.calls[0], SYS_execve);
}

static int body_without_listener(void)
{
	return syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL) == -1 ? errno : 0;
}

static void test_without_a_listener_the_kernel_refuses_itself(void **state)
{
	struct seccomp_filter f = {0};
	struct zw_error e = {0};
	int status = 0;
	pid_t pid;

	(void) state;
	assert_int_equal(seccomp_filter_make(&default_spec, &f, &e), 0);
	seccomp_filter_without_notify(&f);
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_install(&f) != 0)
			_exit(CHILD_BROKEN);
		_exit(body_without_listener());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EPERM);
	seccomp_filter_done(&f);
}

static int body_after_the_listener(void)
{
	struct sock_filter notify[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, notify};

	/* The parent has closed the listener when standard input ends. */
	if (read(STDIN_FILENO, &(char){0}, 1) != 0)
		return CHILD_BROKEN;
	if (syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL) >= 0)
		return 1;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) >= 0)
		return 2;
	return 0;
}

/* With our listener gone the kernel would give the program one, and with it the last word on all that we refuse. */
static void test_walls_hold_without_their_supervisor(void **state)
{
	struct seccomp_filter f = {0};
	struct zw_error e = {0};
	int pair[2], gate[2], status = 0, listener = -EBADF;
	size_t one = 1;
	char byte;
	pid_t pid;

	(void) state;
	assert_int_equal(seccomp_filter_make(&default_spec, &f, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void) close(gate[1]);
		if (dup2(gate[0], STDIN_FILENO) < 0)
			_exit(CHILD_BROKEN);
		child(&f, pair[1], body_after_the_listener);
	}
	(void) close(pair[1]);
	(void) close(gate[0]);
	assert_true(fd_recv(pair[0], &byte, 1, &listener, &one) > 0);
	fd_close(&listener);
	(void) close(pair[0]);
	(void) close(gate[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	seccomp_filter_done(&f);
}

static int body_install_again(void)
{
	struct seccomp_filter f = {0};
	struct sock_filter notify[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)};

	f = (struct seccomp_filter){.insns = notify, .count = 1};
	return -seccomp_install(&f);
}

static void test_a_second_listener_is_reported_as_busy(void **state)
{
	struct seen seen = try_spec(&default_spec, body_install_again);

	(void) state;
	assert_exit(seen, EBUSY);
}

static void test_without_no_new_privs_or_rights_nothing_is_installed(void **state)
{
	struct seccomp_filter f = {0};
	struct zw_error e = {0};
	int status = 0;
	pid_t pid;

	(void) state;
	assert_int_equal(seccomp_filter_make(&default_spec, &f, &e), 0);
	pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (setgid(54321) < 0 || setuid(54321) < 0))
			_exit(CHILD_BROKEN);
		_exit(-seccomp_install(&f));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_BROKEN)
		skip();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EACCES);
	seccomp_filter_done(&f);
}

/* A caller that is killed while it waits must not confuse the supervisor. */
static void test_a_caller_that_dies_is_no_error(void **state)
{
	struct seccomp_filter f = {0};
	struct seccomp_notif n;
	struct zw_error e = {0};
	cleanup_fd int listener = -EBADF;
	int pair[2], status;
	size_t one = 1;
	char byte, buf[16];
	pid_t pid;

	(void) state;
	assert_int_equal(seccomp_filter_make(&default_spec, &f, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	if (pid == 0)
		child(&f, pair[1], body_mount);
	(void) close(pair[1]);
	assert_true(fd_recv(pair[0], &byte, 1, &listener, &one) > 0);
	(void) close(pair[0]);
	assert_int_equal(seccomp_receive(listener, &n), 0);
	assert_int_equal(n.pid, pid);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(seccomp_alive(listener, n.id), -ENOENT);
	assert_true(seccomp_peek(listener, &n, n.data.args[0], buf, sizeof(buf)) < 0);
	assert_int_equal(seccomp_continue(listener, n.id), -ENOENT);
	assert_int_equal(seccomp_deny(listener, n.id, EPERM), -ENOENT);
	seccomp_filter_done(&f);
}

static int body_programs(void)
{
	(void) execl("/bin/sh", "sh", "-c",
		     "set -e; test \"$(echo b a | tr ' ' '\\n' | sort | head -1)\" = a; (exit 3) || test $? = 3;"
		     "f=$(mktemp); chmod 600 $f; echo x >$f; mv $f $f.2; rm $f.2;"
		     "if test -x /usr/bin/python3; then /usr/bin/python3 -c '\n"
		     "import subprocess, threading, socket, tempfile, multiprocessing\n"
		     "t = threading.Thread(target=print); t.start(); t.join()\n"
		     "assert subprocess.check_output([\"echo\", \"hi\"]) == b\"hi\\n\"\n"
		     "a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1) == b\"x\"\n"
		     "with multiprocessing.get_context(\"fork\").Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]\n"
		     "'; fi >/dev/null",
		     (char *) NULL);
	return CHILD_BROKEN;
}

static void test_programs_run_without_a_single_refusal(void **state)
{
	(void) state;
	for (int profile = SECCOMP_STRICT; profile <= SECCOMP_DEBUG; profile++) {
		const struct seccomp_spec spec = {.profile = (enum seccomp_profile) profile};
		struct seen seen = try_spec(&spec, body_programs);

		assert_exit(seen, 0);
		assert_int_equal(seen.count, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_refused_call_is_seen_with_its_arguments_and_fails),
	    cmocka_unit_test(test_strings_at_the_end_of_memory_are_read),
	    cmocka_unit_test(test_probes_are_answered_without_a_notification),
	    cmocka_unit_test(test_threads_start),
	    cmocka_unit_test(test_the_core_limit_stays_and_nobody_minds),
	    cmocka_unit_test(test_no_set_id_bits_come_to_be),
#ifdef __x86_64__
	    cmocka_unit_test(test_the_32_bit_entry_is_refused),
	    cmocka_unit_test(test_the_x32_table_is_refused),
#endif
	    cmocka_unit_test(test_a_program_may_confine_itself_further_but_not_listen),
	    cmocka_unit_test(test_filters_of_the_program_do_not_outvote_ours),
	    cmocka_unit_test(test_reported_calls_go_on),
	    cmocka_unit_test(test_without_a_listener_the_kernel_refuses_itself),
	    cmocka_unit_test(test_walls_hold_without_their_supervisor),
	    cmocka_unit_test(test_a_second_listener_is_reported_as_busy),
	    cmocka_unit_test(test_without_no_new_privs_or_rights_nothing_is_installed),
	    cmocka_unit_test(test_a_caller_that_dies_is_no_error),
	    cmocka_unit_test(test_programs_run_without_a_single_refusal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
