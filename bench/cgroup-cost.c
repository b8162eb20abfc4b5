/* What the control groups of one start cost, in microseconds (medians), and what looking for left-over groups costs beside many
 * live ones. Run it on a quiet host, as a user who may make groups: build/bench/cgroup-cost [live groups]. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup.h"
#include "kernel/clone.h"

enum { ROUNDS = 200, STEPS = 8, LIVE = 500 };

static const char *const step_names[STEPS] = {"create", "clone", "join", "prepare", "reap", "stats", "remove", "all but clone"};

struct times {
	double at[STEPS][ROUNDS];
};

static double now(void)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec * 1e6 + (double) t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof values[0], compare);
	return values[ROUNDS / 2];
}

static double child_joins(const int *fds, size_t count)
{
	double start = now();

	for (size_t i = 0; i < count; i++)
		if (write(fds[i], "0", 1) != 1)
			return -1;
	return now() - start;
}

static int one_round(const struct cgroup_limits *limits, struct times *times, size_t round)
{
	struct cgroup *c = NULL;
	struct cgroup_stats stats;
	struct zw_error e = {0};
	int fds[CGROUP_CONTROLLER_MAX], pipes[2];
	double t[STEPS + 1], join = -1;
	int pidfd = -EBADF;
	pid_t child;
	size_t count;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	t[0] = now();
	if (cgroup_create(limits, &c, &e) < 0) {
		(void) fprintf(stderr, "%s\n", e.text);
		return e.code;
	}
	count = cgroup_join_fds(c, fds);
	t[1] = now();
	child = clone_namespaces(0, cgroup_clone_fd(c), &pidfd);
	if (child == 0) {
		join = child_joins(fds, count);
		(void) !write(pipes[1], &join, sizeof join);
		_exit(0);
	}
	if (child < 0)
		return (int) child;
	t[2] = now();
	(void) !read(pipes[0], &join, sizeof join);
	(void) waitpid(child, NULL, 0);
	fd_close(&pidfd);
	t[3] = now();
	cgroup_prepare(c);
	t[4] = now();
	cgroup_reap(c);
	t[5] = now();
	cgroup_read_final_stats(c, &stats);
	t[6] = now();
	c = cgroup_remove(c);
	t[7] = now();
	for (size_t i = 0; i < STEPS - 1; i++)
		times->at[i][round] = t[i + 1] - t[i];
	times->at[2][round] = join;
	times->at[7][round] = t[7] - t[0] - (t[3] - t[1]) + join;
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
	return join < 0 ? -EIO : 0;
}

static int measure(const char *title, const struct cgroup_limits *limits)
{
	struct times *times = xcalloc(1, sizeof *times);
	int r = 0;

	for (size_t i = 0; i < ROUNDS && r == 0; i++)
		r = one_round(limits, times, i);
	if (r == 0) {
		(void) printf("%-28s", title);
		for (size_t i = 0; i < STEPS; i++)
			(void) printf("  %s %.0f", step_names[i], median(times->at[i]));
		(void) printf("\n");
	}
	free(times);
	return r;
}

int main(int argc, char **argv)
{
	const struct cgroup_limits usual = {
	    .memory = 512 << 20,
	    .swap = 0,
	    .processes = 256,
	    .cpu_quota = ZW_UNLIMITED,
	    .io_read_bps = ZW_UNLIMITED,
	    .io_write_bps = ZW_UNLIMITED,
	};
	struct cgroup_limits quota = usual;
	size_t live = argc > 1 ? (size_t) strtoul(argv[1], NULL, 10) : LIVE, made = 0;
	struct cgroup **held = xcalloc(live, sizeof(struct cgroup *));
	int r;

	quota.cpu_quota = 50000;
	r = measure("memory, processes", &usual);
	if (r == 0)
		r = measure("memory, processes, cpu", &quota);
	while (r == 0 && made < live) {
		struct zw_error e = {0};

		r = cgroup_create(&usual, &held[made], &e);
		if (r == 0)
			made++;
		else
			(void) fprintf(stderr, "%s\n", e.text);
	}
	if (r == 0)
		r = measure("beside live groups", &usual);
	while (made > 0)
		(void) cgroup_remove(held[--made]);
	free(held);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
