/* Groups within a sandbox's, for one process and what it starts, on the host's real hierarchies: by version 2, and by version 1
 * alone. What this user may not make is skipped. */
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
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum { LEAVES = 3, PATIENCE_MSEC = 10000 };

/* A sandbox's groups, as far as children lie in them. */
struct fixture {
	struct cgroup_places places;
	struct cgroup_part parts[2];
	size_t count;
};

static void make_part(struct fixture *f, enum cgroup_version version, enum cgroup_controller controller)
{
	struct cgroup_place *place = cgroup_place_of(&f->places, version, controller);
	struct cgroup_part *part = &f->parts[f->count];
	char name[CGROUP_NAME_SIZE];
	struct zw_error e = {0};
	int r = -ENOENT;

	assert_int_equal(cgroup_new_name(name), 0);
	if (place != NULL && cgroup_place_open(&f->places, place) == 0)
		r = version == CGROUP_V2 ? cgroup_v2_make(place, name, 0, part, &e) : cgroup_v1_make(place, name, part, &e);
	if (r < 0)
		return;
	memcpy(part->name, name, sizeof name);
	f->count++;
}

static void fixture_done(struct fixture *f)
{
	while (f->count > 0) {
		struct cgroup_part *p = &f->parts[--f->count];

		fd_close(&p->tasks);
		assert_int_equal(cgroup_rmdir(p->base, p->name, 2 * USEC_PER_SEC), 0);
		fd_close(&p->group);
		fd_close(&p->base);
	}
	cgroup_places_done(&f->places);
}

static void set_up(struct fixture *f, enum cgroup_version version)
{
	*f = (struct fixture){.count = 0};
	assert_int_equal(cgroup_places_find(&f->places, NULL), 0);
	make_part(f, version, CGROUP_PIDS);
	if (version == CGROUP_V1)
		make_part(f, version, CGROUP_CPUACCT);
	if (f->count == 0) {
		fixture_done(f);
		skip();
	}
}

static _Noreturn void sleep_on(void)
{
	for (;;)
		(void) pause();
}

static void move_to_own(const struct fixture *f, pid_t pid)
{
	char text[24];

	(void) snprintf(text, sizeof text, "%d", (int) pid);
	for (size_t i = 0; i < f->count; i++)
		assert_int_equal(fd_write_file_at(f->parts[i].group, "cgroup.procs", text), 0);
}

/* Joins, then leaves as daemons do: sessions of their own, no parent. Writes a byte when all are there. */
static _Noreturn void leave(const struct cgroup_child *g, int ready)
{
	int fds[CGROUP_CHILD_FDS];
	size_t count = g != NULL ? cgroup_child_join_fds(g, fds) : 0;

	for (size_t i = 0; i < count; i++)
		if (write(fds[i], "0", 1) != 1)
			_exit(1);
	for (int i = 0; i < LEAVES; i++) {
		if (fork() != 0)
			continue;
		(void) setsid();
		if (fork() != 0)
			_exit(0);
		(void) !write(ready, "x", 1);
		sleep_on();
	}
	(void) !write(ready, "x", 1);
	sleep_on();
}

/* In a group of its own, or (NULL) in the sandbox's. */
static pid_t start(const struct cgroup_child *g, const struct fixture *f)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0 && g == NULL)
		move_to_own(f, getpid());
	if (pid == 0)
		leave(g, ready[1]);
	assert_true(pid > 0);
	(void) close(ready[1]);
	for (int i = 0; i < LEAVES + 1; i++)
		assert_int_equal(read(ready[0], &byte, 1), 1);
	(void) close(ready[0]);
	return pid;
}

static void wait_until_empty(struct cgroup_child *g)
{
	for (;;) {
		short events = 0;
		int fd = cgroup_child_wait_fd(g, &events);
		struct pollfd p = {.fd = fd, .events = events};

		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (fd == -ENOENT)
			return;
		assert_true(fd >= 0);
		assert_int_equal(poll(&p, 1, PATIENCE_MSEC), 1);
	}
}

static void all_that_left_is_ended(enum cgroup_version version)
{
	struct fixture f;
	struct cgroup_child *g = NULL;
	short events;
	pid_t pid;

	set_up(&f, version);
	assert_int_equal(cgroup_child_kind_at(f.parts, f.count), version);
	assert_int_equal(cgroup_child_make_at(f.parts, f.count, 7, &g), 0);
	assert_int_equal(cgroup_child_wait_fd(g, &events), -ENOENT);
	assert_int_equal(cgroup_child_of(getpid()), 0);
	pid = start(g, &f);
	assert_int_equal(cgroup_child_of(pid), 7);
	cgroup_child_joined(g);
	assert_true(cgroup_child_wait_fd(g, &events) >= 0);
	assert_false(cgroup_child_remove(&g));
	assert_non_null(g);
	assert_int_equal(cgroup_child_kill(g), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	wait_until_empty(g);
	for (int i = 0; i < 1000 && !cgroup_child_remove(&g); i++)
		(void) usleep(1000); /* the kernel takes a moment after the last one has gone */
	assert_null(g);
	fixture_done(&f);
}

static void daemons_of_a_process_end_with_its_v2_group(void **state)
{
	(void) state;
	all_that_left_is_ended(CGROUP_V2);
}

static void daemons_of_a_process_end_with_its_v1_groups(void **state)
{
	(void) state;
	all_that_left_is_ended(CGROUP_V1);
}

static void a_signal_reaches_all_and_cpu_time_is_counted(enum cgroup_version version)
{
	struct fixture f;
	struct cgroup_child *g = NULL;
	usec_t cpu;
	pid_t pid;

	set_up(&f, version);
	assert_int_equal(cgroup_child_make_at(f.parts, f.count, 8, &g), 0);
	pid = start(g, &f);
	cgroup_child_joined(g);
	cpu = cgroup_child_cpu(g);
	assert_true(cpu != ZW_UNLIMITED && cpu > 0 && cpu < 10 * USEC_PER_SEC);
	assert_int_equal(cgroup_child_signal(g, SIGTERM), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	wait_until_empty(g);
	cgroup_child_forget(&g);
	assert_null(g);
	fixture_done(&f); /* takes what is empty below along */
}

static void signals_and_cpu_time_by_v2(void **state)
{
	(void) state;
	a_signal_reaches_all_and_cpu_time_is_counted(CGROUP_V2);
}

static void signals_and_cpu_time_by_v1(void **state)
{
	(void) state;
	a_signal_reaches_all_and_cpu_time_is_counted(CGROUP_V1);
}

/* In the sandbox's own group: an agent, and one that becomes many. */
static void the_own_group_without_the_agent_can_be_ended(enum cgroup_version version)
{
	struct cgroup_child *g = NULL, *other = NULL;
	struct fixture f;
	pid_t agent, pid;
	short events;
	usec_t cpu;

	set_up(&f, version);
	agent = fork();
	if (agent == 0)
		sleep_on();
	assert_true(agent > 0);
	move_to_own(&f, agent);
	assert_int_equal(cgroup_child_own_at(f.parts, f.count, agent, &g), 0);
	assert_int_equal(cgroup_child_wait_fd(g, &events), -ENOENT);
	pid = start(NULL, &f);
	assert_int_equal(cgroup_child_of(pid), 0);
	assert_true(cgroup_child_wait_fd(g, &events) >= 0);
	assert_int_equal(cgroup_child_own_at(f.parts, f.count, agent, &other), -EBUSY);
	cpu = cgroup_child_cpu(g);
	assert_true(cpu != ZW_UNLIMITED && cpu < 10 * USEC_PER_SEC);
	assert_int_equal(cgroup_child_kill(g), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	wait_until_empty(g);
	assert_int_equal(waitpid(agent, NULL, WNOHANG), 0); /* it lives */
	assert_true(cgroup_child_remove(&g));
	assert_int_equal(kill(agent, SIGKILL), 0);
	assert_int_equal(waitpid(agent, NULL, 0), agent);
	fixture_done(&f);
}

static void all_but_the_agent_end_with_the_own_v2_group(void **state)
{
	(void) state;
	the_own_group_without_the_agent_can_be_ended(CGROUP_V2);
}

static void all_but_the_agent_end_with_the_own_v1_groups(void **state)
{
	(void) state;
	the_own_group_without_the_agent_can_be_ended(CGROUP_V1);
}

static void without_any_group_there_is_none_for_a_process(void **state)
{
	struct cgroup_child *g = NULL;

	(void) state;
	assert_int_equal(cgroup_child_kind_at(NULL, 0), CGROUP_ABSENT);
	assert_int_equal(cgroup_child_make_at(NULL, 0, 1, &g), -ENOTSUP);
	assert_null(g);
	assert_true(cgroup_child_remove(&g));
	cgroup_child_forget(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(daemons_of_a_process_end_with_its_v2_group),
	    cmocka_unit_test(daemons_of_a_process_end_with_its_v1_groups),
	    cmocka_unit_test(signals_and_cpu_time_by_v2),
	    cmocka_unit_test(signals_and_cpu_time_by_v1),
	    cmocka_unit_test(all_but_the_agent_end_with_the_own_v2_group),
	    cmocka_unit_test(all_but_the_agent_end_with_the_own_v1_groups),
	    cmocka_unit_test(without_any_group_there_is_none_for_a_process),
	};

	/* So that those that left are ours to wait for. */
	(void) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
