/* The groups of a sandbox on the host's real hierarchies. What this user may not make is skipped; the lack itself is tested. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"
#include "kernel/clone.h"

#define NO_LIMITS                                                                                                                \
	{                                                                                                                        \
		.memory = ZW_UNLIMITED, .swap = ZW_UNLIMITED, .processes = ZW_UNLIMITED, .cpu_quota = ZW_UNLIMITED,              \
		.io_read_bps = ZW_UNLIMITED, .io_write_bps = ZW_UNLIMITED                                                        \
	}

enum { MIB = 1 << 20, OTHER_USER = 54321 };

static struct cgroup_limits usual_limits(void)
{
	struct cgroup_limits l = NO_LIMITS;

	l.memory = 32 * MIB;
	l.swap = 0;
	l.processes = 8;
	return l;
}

static struct cgroup *create(const struct cgroup_limits *limits)
{
	struct cgroup *c = NULL;
	struct zw_error e = {0};

	assert_int_equal(cgroup_create(limits, &c, &e), 0);
	assert_non_null(c);
	return c;
}

/* A group that holds the controller, or the test is skipped. */
static struct cgroup *create_holding(const struct cgroup_limits *limits, enum cgroup_controller controller)
{
	struct cgroup *c = create(limits);

	if (cgroup_holds(c, controller) == CGROUP_ABSENT) {
		print_message("skipped: %s\n", cgroup_lack(c, controller));
		c = cgroup_remove(c);
		skip();
	}
	return c;
}

/* Forks a child into the group as a supervisor does; 0 in the child. */
static pid_t fork_into(const struct cgroup *c)
{
	int fds[CGROUP_CONTROLLER_MAX], pidfd = -EBADF;
	size_t count = cgroup_join_fds(c, fds);
	pid_t child = clone_namespaces(0, cgroup_clone_fd(c), &pidfd);

	if (child != 0) {
		assert_true(child > 0);
		fd_close(&pidfd);
		return child;
	}
	(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; i < count; i++)
		if (write(fds[i], "0", 1) != 1)
			_exit(99);
	return 0;
}

static int wait_for(pid_t child)
{
	int status = -1;

	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

/* How many groups of that prefix lie below any of the caller's own groups or the bases used. */
static size_t count_groups(const char *prefix)
{
	struct cgroup_places places;
	size_t count = 0;

	assert_int_equal(cgroup_places_find(&places, NULL), 0);
	for (size_t i = 0; i < places.count; i++) {
		cleanup_fd int own = -EBADF;
		char list[65536];
		ssize_t n;

		if (cgroup_place_open(&places, &places.at[i]) < 0)
			continue;
		own = openat(places.at[i].root, *places.at[i].rel != '\0' ? places.at[i].rel : ".",
			     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		for (n = getdents64(own, list, sizeof list); n > 0; n = getdents64(own, list, sizeof list))
			for (ssize_t at = 0; at < n;) {
				const struct dirent64 *d = (const struct dirent64 *) (const void *) (list + at);

				at += d->d_reclen;
				if (strncmp(d->d_name, prefix, strlen(prefix)) == 0)
					count++;
			}
	}
	cgroup_places_done(&places);
	return count;
}

static size_t groups_of(pid_t supervisor)
{
	char prefix[64];

	(void) snprintf(prefix, sizeof prefix, "zwinger-%d-", (int) supervisor);
	return count_groups(prefix);
}

/* Another start on this host may be at the same left-overs: what one does not finish the other does. */
static bool is_reaped(pid_t supervisor, struct cgroup *c)
{
	for (usec_t start = now_monotonic(); now_monotonic() - start < 5 * USEC_PER_SEC; cgroup_reap(c))
		if (groups_of(supervisor) == 0)
			return true;
	return false;
}

static size_t own_groups(void)
{
	return groups_of(getpid());
}

/* Uses up so much CPU time, or with `wall` as much as can be had in that time. */
static void burn(usec_t t, bool wall)
{
	clockid_t clock = wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
	struct timespec start, now;

	(void) clock_gettime(clock, &start);
	do
		(void) clock_gettime(clock, &now);
	while ((usec_t) (now.tv_sec - start.tv_sec) * USEC_PER_SEC + (usec_t) (now.tv_nsec / 1000) <
	       (usec_t) (start.tv_nsec / 1000) + t);
}

static void a_child_is_in_every_group_that_was_made(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup *c = create_holding(&l, CGROUP_MEMORY);
	int pipes[2];
	char text[8192];
	pid_t child;
	size_t found = 0;
	ssize_t n;

	(void) state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	child = fork_into(c);
	if (child == 0) {
		n = fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof text);
		_exit(n > 0 && write(pipes[1], text, (size_t) n) == n ? 0 : 1);
	}
	assert_int_equal(wait_for(child), 0);
	n = read(pipes[0], text, sizeof text - 1);
	assert_true(n > 0);
	text[n] = '\0';
	for (const char *p = strstr(text, "/zwinger-"); p != NULL; p = strstr(p + 1, "/zwinger-"))
		found++;
	assert_true(found >= own_groups());
	assert_true(found > 0);
	assert_string_equal(cgroup_lack(c, CGROUP_MEMORY), "");
	assert_string_not_equal(cgroup_lack(c, CGROUP_CPU), ""); /* no limit asked for it */
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
}

static void memory_limit_kills_and_is_counted(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup *c = create_holding(&l, CGROUP_MEMORY);
	struct cgroup_stats stats;
	short events = 0;
	int fd = cgroup_oom_fd(c, &events), status;
	struct pollfd p = {.fd = fd, .events = events};
	pid_t child;

	(void) state;
	assert_true(fd >= 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	child = fork_into(c);
	if (child == 0) {
		char *block = mmap(NULL, 128 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (block == MAP_FAILED)
			_exit(1);
		for (size_t i = 0; i < 128 * MIB; i += 4096)
			((volatile char *) block)[i] = 1;
		_exit(0);
	}
	status = wait_for(child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(cgroup_oom_fd(c, &events), fd);
	cgroup_read_final_stats(c, &stats);
	assert_int_equal(stats.oom_kills, 1);
	if (stats.memory_peak != ZW_UNLIMITED) {
		assert_true(stats.memory_peak <= 32 * MIB);
		assert_true(stats.memory_peak > 16 * MIB);
	}
	assert_true(stats.memory_current == ZW_UNLIMITED);
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
}

static void process_limit_leaves_one_task_for_the_agent(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup *c = create_holding(&l, CGROUP_PIDS);
	struct cgroup_stats stats;
	pid_t child;

	(void) state;
	child = fork_into(c); /* plays the agent */
	if (child == 0) {
		pid_t agent = getpid();
		size_t made = 0;

		for (;;) {
			pid_t p = fork();

			if (p < 0)
				_exit(errno == EAGAIN ? (int) made : 77);
			if (p == 0) {
				(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
				while (getppid() == agent)
					(void) pause();
				_exit(0);
			}
			if (++made > 50)
				_exit(78);
		}
	}
	assert_int_equal(WEXITSTATUS(wait_for(child)), 8);
	cgroup_read_stats(c, &stats);
	assert_true(stats.process_limit_hits > 0 && stats.process_limit_hits != ZW_UNLIMITED);
	if (stats.processes_peak != ZW_UNLIMITED)
		assert_int_equal(stats.processes_peak, 8);
	c = cgroup_remove(c); /* waits for those on their way out */
	assert_int_equal(own_groups(), 0);
}

static void cpu_time_counts_processes_that_were_left_by_their_parents(void **state)
{
	struct cgroup_limits l = NO_LIMITS;
	struct cgroup *c = create_holding(&l, CGROUP_CPUACCT);
	int pipes[2];
	char byte;
	pid_t child;

	(void) state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	child = fork_into(c);
	if (child == 0) {
		if (fork() == 0) {
			burn(60 * USEC_PER_MSEC, false);
			_exit(0);
		}
		_exit(0);
	}
	fd_close(&pipes[1]);
	assert_int_equal(wait_for(child), 0);
	assert_int_equal(read(pipes[0], &byte, 1), 0); /* the grandchild has gone */
	assert_true(cgroup_cpu(c) != ZW_UNLIMITED);
	assert_true(cgroup_cpu(c) >= 60 * USEC_PER_MSEC);
	fd_close(&pipes[0]);
	c = cgroup_remove(c);
}

static void cpu_quota_slows(void **state)
{
	struct cgroup_limits l = NO_LIMITS;
	struct cgroup *c;
	pid_t child;

	(void) state;
	l.cpu_quota = 20000; /* a fifth of one */
	c = create_holding(&l, CGROUP_CPU);
	child = fork_into(c);
	if (child == 0) {
		burn(500 * USEC_PER_MSEC, true);
		_exit(0);
	}
	assert_int_equal(wait_for(child), 0);
	assert_true(cgroup_cpu(c) <= 200 * USEC_PER_MSEC);
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
}

static void a_quota_of_nearly_nothing_and_huge_limits_are_taken(void **state)
{
	struct cgroup_limits l = {.memory = UINT64_MAX - 1, .swap = UINT64_MAX - 1, .processes = UINT64_MAX - 1, .cpu_quota = 1};
	struct cgroup *c;

	(void) state;
	l.io_read_bps = ZW_UNLIMITED;
	l.io_write_bps = ZW_UNLIMITED;
	c = create_holding(&l, CGROUP_MEMORY);
	assert_string_equal(cgroup_lack(c, CGROUP_MEMORY), "");
	assert_string_equal(cgroup_lack(c, CGROUP_PIDS), "");
	assert_string_equal(cgroup_lack(c, CGROUP_CPU), "");
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
}

static void io_limits_are_set_or_their_lack_is_told(void **state)
{
	struct cgroup_limits l = NO_LIMITS;
	struct cgroup *c;

	(void) state;
	l.io_read_bps = 10 * MIB;
	c = create_holding(&l, CGROUP_IO);
	c = cgroup_remove(c);
	l.io_write_bps = 10 * MIB;
	c = create(&l);
	/* v1 cannot slow what goes through the page cache, and says so. */
	if (cgroup_holds(c, CGROUP_IO) == CGROUP_ABSENT)
		assert_non_null(strstr(cgroup_lack(c, CGROUP_IO), "page cache"));
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
}

static void kill_and_freeze_reach_all(void **state)
{
	struct cgroup_limits l = NO_LIMITS;
	struct cgroup *c = create(&l);
	usec_t before, after;
	int status;
	pid_t child;

	(void) state;
	if (cgroup_clone_fd(c) < 0) {
		assert_int_equal(cgroup_kill(c), -ENOTSUP);
		assert_int_equal(cgroup_freeze(c, true), -ENOTSUP);
		c = cgroup_remove(c);
		skip();
	}
	child = fork_into(c);
	if (child == 0) {
		(void) fork();
		for (;;)
			burn(USEC_PER_SEC, false);
	}
	assert_int_equal(cgroup_freeze(c, true), 0);
	/* Frozen is told by the event file; until then a little may still run. */
	for (before = cgroup_cpu(c), after = before + 1; before != after; after = cgroup_cpu(c)) {
		before = after;
		(void) poll(NULL, 0, 50);
	}
	assert_int_equal(cgroup_kill(c), 0); /* also in the frozen */
	status = wait_for(child);
	assert_true(WIFSIGNALED(status));
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
}

static void without_the_v2_tree_version_1_does_what_it_can(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup_places places;
	struct cgroup *c = NULL;
	struct cgroup_place *v2;
	pid_t child;

	(void) state;
	assert_int_equal(cgroup_places_find(&places, NULL), 0);
	v2 = cgroup_place_of(&places, CGROUP_V2, CGROUP_MEMORY);
	if (v2 != NULL) {
		free(v2->path);
		free(v2->names);
		*v2 = places.at[--places.count];
	}
	assert_int_equal(cgroup_create_at(&places, &l, &c, NULL), 0);
	if (cgroup_holds(c, CGROUP_CPUACCT) == CGROUP_ABSENT) {
		c = cgroup_remove(c);
		skip();
	}
	assert_int_equal(cgroup_holds(c, CGROUP_CPUACCT), CGROUP_V1);
	assert_int_equal(cgroup_clone_fd(c), -EBADF);
	assert_int_equal(cgroup_kill(c), -ENOTSUP);
	assert_int_equal(cgroup_freeze(c, true), -ENOTSUP);
	child = fork_into(c);
	if (child == 0) {
		burn(50 * USEC_PER_MSEC, false);
		_exit(0);
	}
	assert_int_equal(wait_for(child), 0);
	assert_true(cgroup_cpu(c) >= 40 * USEC_PER_MSEC && cgroup_cpu(c) < 10 * USEC_PER_SEC);
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
}

static void nothing_that_can_be_held_is_told_with_a_remedy(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup_places none = {.count = 0};
	struct cgroup *c = NULL;
	struct zw_error e = {0};
	struct cgroup_stats stats;
	int fds[CGROUP_CONTROLLER_MAX];
	short events;

	(void) state;
	assert_int_equal(cgroup_create_at(&none, &l, &c, &e), 0);
	assert_int_equal(cgroup_holds(c, CGROUP_MEMORY), CGROUP_ABSENT);
	assert_non_null(strstr(cgroup_lack(c, CGROUP_MEMORY), "mount"));
	assert_non_null(strstr(e.text, "memory: "));
	assert_int_equal(cgroup_clone_fd(c), -EBADF);
	assert_int_equal(cgroup_join_fds(c, fds), 0);
	assert_int_equal(cgroup_oom_fd(c, &events), -EBADF);
	assert_int_equal(cgroup_kill(c), -ENOTSUP);
	cgroup_read_stats(c, &stats);
	assert_true(stats.memory_peak == ZW_UNLIMITED && stats.cpu == ZW_UNLIMITED && stats.oom_kills == ZW_UNLIMITED);
	cgroup_reap(c);
	assert_null(cgroup_remove(c));
	assert_null(cgroup_remove(NULL));
}

/* A supervisor that dies with a process in its groups. Returns that process, or -1 when no group could be made. */
static pid_t leave_behind(const struct cgroup_limits *limits, pid_t *ret_supervisor)
{
	pid_t supervisor, left = -1;
	int pipes[2];

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	supervisor = fork();
	assert_true(supervisor >= 0);
	if (supervisor == 0) {
		struct cgroup *c = NULL;
		pid_t child;

		if (cgroup_create(limits, &c, NULL) < 0 || cgroup_holds(c, CGROUP_MEMORY) == CGROUP_ABSENT) {
			(void) cgroup_remove(c);
			_exit(1);
		}
		child = fork_into(c);
		if (child == 0) {
			child = getpid();
			(void) prctl(PR_SET_PDEATHSIG, 0);
			/* As an exec would: the lock goes with the last descriptor. */
			(void) close_range(0, (unsigned) pipes[1] - 1, 0);
			(void) close_range((unsigned) pipes[1] + 1, ~0U, 0);
			(void) !write(pipes[1], &child, sizeof child);
			(void) close_range(0, ~0U, 0);
			for (;;)
				(void) pause();
		}
		for (;;)
			(void) pause();
	}
	fd_close(&pipes[1]);
	(void) !read(pipes[0], &left, sizeof left);
	fd_close(&pipes[0]);
	(void) kill(supervisor, SIGKILL);
	(void) wait_for(supervisor);
	*ret_supervisor = supervisor;
	return left;
}

static void groups_of_a_dead_supervisor_are_emptied_and_removed(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup *c;
	pid_t left, supervisor;

	(void) state;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	left = leave_behind(&l, &supervisor);
	if (left < 0)
		skip();
	assert_int_equal(kill(left, 0), 0);
	c = create(&l);
	cgroup_reap(c);
	assert_int_equal(WTERMSIG(wait_for(left)), SIGKILL);
	assert_true(is_reaped(supervisor, c));
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

static void a_reaper_that_needs_less_finds_the_groups_of_one_that_needed_more(void **state)
{
	struct cgroup_limits more = usual_limits(), less = NO_LIMITS;
	pid_t left, supervisor;
	struct cgroup *c;

	(void) state;
	more.cpu_quota = 50000;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	left = leave_behind(&more, &supervisor);
	if (left < 0)
		skip();
	c = create(&less);
	cgroup_reap(c);
	(void) wait_for(left);
	assert_true(is_reaped(supervisor, c));
	c = cgroup_remove(c);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

static void groups_of_living_supervisors_and_strangers_stay(void **state)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup *mine = create_holding(&l, CGROUP_MEMORY), *other;
	size_t made = own_groups();

	(void) state;
	for (size_t i = 0; i < 20; i++) {
		other = create(&l);
		cgroup_reap(other);
		other = cgroup_remove(other);
	}
	assert_int_equal(own_groups(), made);
	mine = cgroup_remove(mine);
	assert_int_equal(own_groups(), 0);
}

static void a_number_given_out_anew_does_not_keep_a_group(void **state)
{
	struct cgroup_limits l = NO_LIMITS;
	struct cgroup *c = create(&l);
	struct cgroup_places places;
	struct cgroup_place *place;
	cleanup_fd int own = -EBADF;
	struct stat st;
	bool gone = false;
	char name[64];

	(void) state;
	if (cgroup_clone_fd(c) < 0) {
		c = cgroup_remove(c);
		skip();
	}
	c = cgroup_remove(c);
	assert_int_equal(cgroup_places_find(&places, NULL), 0);
	place = cgroup_place_of(&places, CGROUP_V2, CGROUP_MEMORY);
	assert_int_equal(cgroup_place_open(&places, place), 0);
	own = cgroup_open_dir(place->root, place->rel);
	(void) snprintf(name, sizeof name, "zwinger-%d-00000000000000aa", (int) getpid()); /* nobody holds its lock */
	if (mkdirat(own, name, 0755) < 0) {
		cgroup_places_done(&places);
		skip();
	}
	for (size_t i = 0; i < 500 && !gone; i++) {
		c = create(&l);
		cgroup_reap(c);
		c = cgroup_remove(c);
		gone = fstatat(own, name, &st, 0) < 0 && errno == ENOENT;
	}
	(void) unlinkat(own, name, AT_REMOVEDIR);
	cgroup_places_done(&places);
	assert_true(gone);
}

/* Directories as of dead supervisors: no process can have the number. */
static size_t make_dead(int base, size_t count)
{
	size_t made = 0;
	char name[64];

	for (size_t i = 0; i < count; i++) {
		(void) snprintf(name, sizeof name, "zwinger-%d-%016zx", INT32_MAX, i);
		made += mkdirat(base, name, 0755) == 0;
	}
	return made;
}

static size_t count_dead(int base, size_t count, bool clear)
{
	size_t there = 0;
	struct stat st;
	char name[64];

	for (size_t i = 0; i < count; i++) {
		(void) snprintf(name, sizeof name, "zwinger-%d-%016zx", INT32_MAX, i);
		there += fstatat(base, name, &st, 0) == 0;
		if (clear)
			(void) unlinkat(base, name, AT_REMOVEDIR);
	}
	return there;
}

static void many_dead_groups_are_removed_by_the_starts_that_follow(void **state)
{
	enum { MANY = 200, STARTS = 400 };
	struct cgroup_limits l = NO_LIMITS;
	struct cgroup *c = create(&l);
	struct cgroup_places places;
	struct cgroup_place *place;
	cleanup_fd int base = -EBADF;
	size_t made, left;

	(void) state;
	if (cgroup_clone_fd(c) < 0) {
		c = cgroup_remove(c);
		skip();
	}
	c = cgroup_remove(c);
	assert_int_equal(cgroup_places_find(&places, NULL), 0);
	place = cgroup_place_of(&places, CGROUP_V2, CGROUP_MEMORY);
	assert_int_equal(cgroup_place_open(&places, place), 0);
	base = cgroup_open_dir(place->root, place->rel);
	cgroup_places_done(&places);
	made = left = make_dead(base, MANY);
	for (size_t i = 0; i < STARTS && left > 0; i++) {
		c = create(&l);
		cgroup_reap(c);
		c = cgroup_remove(c);
		left = count_dead(base, MANY, false);
	}
	(void) count_dead(base, MANY, true);
	if (made < MANY)
		skip();
	assert_int_equal(left, 0);
}

static void starts_at_the_same_time_do_not_disturb_each_other(void **state)
{
	enum { PROCESSES = 12, ROUNDS = 25 };
	struct cgroup_limits l = usual_limits();
	struct cgroup *mine = create_holding(&l, CGROUP_MEMORY);
	pid_t children[PROCESSES];

	(void) state;
	for (size_t i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] > 0)
			continue;
		for (size_t j = 0; j < ROUNDS; j++) {
			struct cgroup *c = NULL;
			int status = -1;
			pid_t child;

			if (cgroup_create(&l, &c, NULL) < 0 || cgroup_holds(c, CGROUP_MEMORY) == CGROUP_ABSENT)
				_exit(1);
			child = fork_into(c);
			if (child == 0)
				_exit(0);
			cgroup_reap(c);
			if (waitpid(child, &status, 0) != child || status != 0)
				_exit(2);
			c = cgroup_remove(c);
			if (j == ROUNDS - 1 && own_groups() != 0)
				_exit(3);
		}
		_exit(0);
	}
	for (size_t i = 0; i < PROCESSES; i++)
		assert_int_equal(wait_for(children[i]), 0);
	mine = cgroup_remove(mine);
	assert_int_equal(own_groups(), 0);
}

/* What a user does in groups that were given to it. Exit code 0 when all is held. */
static int try_as_user(uid_t user)
{
	struct cgroup_limits l = usual_limits();
	struct cgroup *c = NULL;
	pid_t child;
	int r;

	if (setresgid(user, user, user) < 0 || setresuid(user, user, user) < 0)
		return 11;
	l.processes = 4;
	if (cgroup_create(&l, &c, NULL) < 0)
		return 12;
	r = cgroup_holds(c, CGROUP_MEMORY) != CGROUP_ABSENT && cgroup_holds(c, CGROUP_PIDS) != CGROUP_ABSENT ? 0 : 13;
	if (r == 0) {
		child = fork_into(c);
		if (child == 0)
			_exit(0);
		r = wait_for(child) == 0 ? 0 : 15;
	}
	(void) cgroup_remove(c);
	return r == 0 && own_groups() > 0 ? 16 : r;
}

/* Gives the directory to the user as delegation does: it, and in version 2 the two files that let its owner arrange what is
 * below. */
static void give(int dir, uid_t user)
{
	static const char *const names[] = {"cgroup.procs", "cgroup.subtree_control"};

	assert_true(dir >= 0);
	assert_int_equal(fchownat(dir, "", user, user, AT_EMPTY_PATH), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_true(fchownat(dir, names[i], user, user, 0) == 0 || errno == ENOENT);
}

static void a_group_that_was_given_to_a_user_is_enough(void **state)
{
	struct cgroup_limits l = usual_limits();
	int fds[CGROUP_CONTROLLER_MAX], status;
	struct cgroup *c;
	size_t count;
	pid_t child;

	(void) state;
	if (geteuid() != 0)
		skip();
	l.memory *= 2;
	c = create_holding(&l, CGROUP_MEMORY);
	count = cgroup_join_fds(c, fds);
	for (size_t i = 0; i < count; i++) {
		char link[64], path[4096];
		cleanup_fd int dir = -EBADF;
		ssize_t n;

		(void) snprintf(link, sizeof link, "/proc/self/fd/%d", fds[i]);
		n = readlink(link, path, sizeof path - 1);
		assert_true(n > 0);
		path[n] = '\0';
		*strrchr(path, '/') = '\0';
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		give(dir, OTHER_USER);
	}
	if (cgroup_clone_fd(c) >= 0)
		give(cgroup_clone_fd(c), OTHER_USER);
	child = fork_into(c);
	if (child == 0)
		_exit(try_as_user(OTHER_USER));
	status = wait_for(child);
	c = cgroup_remove(c);
	assert_int_equal(own_groups(), 0);
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_user_without_a_group_is_told_what_to_do(void **state)
{
	struct cgroup_limits l = usual_limits();
	pid_t child;

	(void) state;
	if (geteuid() != 0)
		skip();
	child = fork();
	if (child == 0) {
		struct cgroup *c = NULL;
		struct zw_error e = {0};

		if (setresgid(OTHER_USER, OTHER_USER, OTHER_USER) < 0 || setresuid(OTHER_USER, OTHER_USER, OTHER_USER) < 0)
			_exit(10);
		if (cgroup_create(&l, &c, &e) < 0)
			_exit(11);
		if (cgroup_holds(c, CGROUP_MEMORY) != CGROUP_ABSENT)
			_exit(12);
		if (strstr(cgroup_lack(c, CGROUP_MEMORY), "as root") == NULL || strstr(e.text, "memory: ") == NULL)
			_exit(13);
		cgroup_reap(c);
		(void) cgroup_remove(c);
		_exit(0);
	}
	assert_int_equal(WEXITSTATUS(wait_for(child)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_child_is_in_every_group_that_was_made),
	    cmocka_unit_test(memory_limit_kills_and_is_counted),
	    cmocka_unit_test(process_limit_leaves_one_task_for_the_agent),
	    cmocka_unit_test(cpu_time_counts_processes_that_were_left_by_their_parents),
	    cmocka_unit_test(cpu_quota_slows),
	    cmocka_unit_test(a_quota_of_nearly_nothing_and_huge_limits_are_taken),
	    cmocka_unit_test(io_limits_are_set_or_their_lack_is_told),
	    cmocka_unit_test(kill_and_freeze_reach_all),
	    cmocka_unit_test(without_the_v2_tree_version_1_does_what_it_can),
	    cmocka_unit_test(nothing_that_can_be_held_is_told_with_a_remedy),
	    cmocka_unit_test(groups_of_a_dead_supervisor_are_emptied_and_removed),
	    cmocka_unit_test(a_reaper_that_needs_less_finds_the_groups_of_one_that_needed_more),
	    cmocka_unit_test(groups_of_living_supervisors_and_strangers_stay),
	    cmocka_unit_test(a_number_given_out_anew_does_not_keep_a_group),
	    cmocka_unit_test(many_dead_groups_are_removed_by_the_starts_that_follow),
	    cmocka_unit_test(starts_at_the_same_time_do_not_disturb_each_other),
	    cmocka_unit_test(a_group_that_was_given_to_a_user_is_enough),
	    cmocka_unit_test(a_user_without_a_group_is_told_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
