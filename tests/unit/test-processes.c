/* Trees of processes without control groups: this test is their agent. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "sandbox/processes.h"

enum { PATIENCE_MSEC = 10000 };

static _Noreturn void sleep_on(int ready)
{
	(void) !write(ready, "x", 1);
	for (;;)
		(void) pause();
}

/* A leader of a session with a child, a grandchild in a session of its own, and one in the leader's session whose parent died. */
static _Noreturn void lead(int ready)
{
	(void) setsid();
	if (fork() == 0) {
		if (fork() == 0) {
			(void) setsid();
			sleep_on(ready);
		}
		sleep_on(ready);
	}
	if (fork() == 0) {
		if (fork() == 0)
			sleep_on(ready);
		_exit(0);
	}
	sleep_on(ready);
}

static pid_t start(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0)
		lead(ready[1]);
	(void) close(ready[1]);
	for (int i = 0; i < 4; i++)
		assert_int_equal(read(ready[0], &byte, 1), 1);
	(void) close(ready[0]);
	return pid;
}

static void wait_for_all(pid_t root)
{
	for (;;) {
		int fd = processes_tree_open(getpid(), root);
		struct pollfd p = {.fd = fd, .events = POLLIN};

		if (fd == -ENOENT)
			break;
		assert_true(fd >= 0);
		assert_int_equal(poll(&p, 1, PATIENCE_MSEC), 1);
		fd_close(&fd);
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void a_tree_ends_as_a_whole(void **state)
{
	pid_t root = start(), other = fork();
	int status;

	(void) state;
	if (other == 0)
		for (;;)
			(void) pause();
	assert_int_equal(processes_find(getpid(), root, NULL), root);
	assert_true(processes_signal_tree(getpid(), root, SIGKILL) >= 4);
	wait_for_all(root);
	assert_int_equal(waitpid(other, &status, WNOHANG), 0); /* no other is touched */
	assert_int_equal(kill(other, SIGKILL), 0);
	assert_int_equal(waitpid(other, &status, 0), other);
}

static void what_a_dead_leader_left_in_its_session_is_found(void **state)
{
	pid_t root = start();

	(void) state;
	assert_int_equal(kill(root, SIGKILL), 0);
	assert_int_equal(waitpid(root, NULL, 0), root);
	/* The child and the orphan; the one with a session of its own hangs below the child. */
	assert_int_equal(processes_signal_tree(getpid(), root, SIGKILL), 3);
	wait_for_all(root);
	assert_int_equal(processes_find(getpid(), root, NULL), 0);
}

static bool all_stopped(void *ctx, const struct process *p)
{
	char path[64], text[512];
	const char *state;

	if (p->zombie)
		return true;
	(void) snprintf(path, sizeof path, "/proc/%d/status", (int) p->pid);
	if (fd_read_file_at(-1, path, text, sizeof text) <= 0)
		return true;
	state = strstr(text, "State:\t");
	*(bool *) ctx &= state != NULL && state[7] == 'T';
	return true;
}

static void everything_stops_and_goes_on(void **state)
{
	pid_t root = start();
	bool stopped = false;

	(void) state;
	assert_true(processes_stop(getpid()));
	for (int i = 0; i < 1000 && !stopped; i++) {
		stopped = true;
		processes_walk(getpid(), false, all_stopped, &stopped);
		(void) usleep(1000);
	}
	assert_true(stopped);
	processes_continue(getpid());
	(void) processes_signal_tree(getpid(), root, SIGTERM); /* which a stopped one would not notice */
	wait_for_all(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_tree_ends_as_a_whole),
	    cmocka_unit_test(what_a_dead_leader_left_in_its_session_is_found),
	    cmocka_unit_test(everything_stops_and_goes_on),
	};

	(void) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
