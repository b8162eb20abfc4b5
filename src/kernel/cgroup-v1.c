/* Version 1: one hierarchy a controller, and each group where its controller is. A child joins by writing "0" to `tasks` itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

/* The scheduler takes nothing below 1 ms, and overflows far above this (sched/core.c, tg_set_cfs_bandwidth). */
#define QUOTA_MIN UINT64_C(1000)
#define QUOTA_MAX UINT64_C(1000000000000)

/* A directory of this name that an administrator gave to us: also looked for where we may not write ourselves. */
#define DELEGATED "zwinger"

/* What lies in the buffers of TCP is no part of the memory here, but has a limit of its own (v2 counts it with the rest). Without
 * one a few processes that send to each other and read nothing take all that the kernel gives to the TCP of the whole host. */
enum { TCP_SHARE = 4, TCP_LEAST = 4 << 20 };

static int limit_tcp(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	uint64_t share = l->memory / TCP_SHARE > TCP_LEAST ? l->memory / TCP_SHARE : TCP_LEAST;
	int r = cgroup_write_u64(group, "memory.kmem.tcp.limit_in_bytes", share);

	if (r == 0 || r == -ENOENT || r == -EOPNOTSUPP) /* a kernel without it */
		return 0;
	return zw_errno(why, -r, "cannot set memory.kmem.tcp.limit_in_bytes to %llu", (unsigned long long) share);
}

static int limit_memory(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	uint64_t total = l->memory > UINT64_MAX - l->swap ? UINT64_MAX - 1 : l->memory + l->swap;
	int r = cgroup_write_u64(group, "memory.limit_in_bytes", l->memory);

	if (r < 0)
		return zw_errno(why, -r, "cannot set memory.limit_in_bytes to %llu", (unsigned long long) l->memory);
	r = limit_tcp(group, l, why);
	if (r < 0)
		return r;
	if (l->swap == ZW_UNLIMITED)
		return 0;
	/* memsw is memory plus swap and may never be below memory: from "unlimited" the memory limit has to come first. */
	r = cgroup_write_u64(group, "memory.memsw.limit_in_bytes", total);
	if (r == 0)
		return 0;
	if (r != -ENOENT)
		return zw_errno(why, -r, "cannot set memory.memsw.limit_in_bytes to %llu", (unsigned long long) total);
	/* No swap accounting (swapaccount=0). With swappiness 0 the kernel promises that reclaim for this group's own limit never
	 * swaps (admin-guide/cgroup-v1/memory.rst, 5.3), so a program cannot grow past the limit into swap. That holds any limit
	 * of swap; pages that a shortage of the whole host swaps out are not counted then. */
	r = cgroup_write_u64(group, "memory.swappiness", 0);
	if (r < 0 && !cgroup_host_has_no_swap())
		return zw_error(why, -r,
				"this kernel does not count swap, so a memory limit would only slow things down; "
				"boot with swapaccount=1 or turn swap off");
	return 0;
}

static int limit_cpu(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	uint64_t quota = l->cpu_quota < QUOTA_MIN ? QUOTA_MIN : l->cpu_quota > QUOTA_MAX ? QUOTA_MAX : l->cpu_quota;
	int r = cgroup_write_u64(group, "cpu.cfs_quota_us", quota); /* the period of a new group is 100 ms */

	/* Within these bounds the one reason for EINVAL is an ancestor that has less: v1 refuses a group more than the groups
	 * above it have. Left without a quota of its own, the group then shares that smaller one. */
	if (r < 0 && r != -EINVAL)
		return zw_errno(why, -r, "cannot set cpu.cfs_quota_us");
	return 0;
}

struct rate {
	int group;
	const char *file;
	uint64_t bps;
};

static int limit_disk(void *arg, const char *device)
{
	const struct rate *rate = arg;
	char text[64];

	(void) snprintf(text, sizeof text, "%s %llu", device, (unsigned long long) rate->bps);
	return fd_write_file_at(rate->group, rate->file, text);
}

static int limit_io(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	struct rate read = {group, "blkio.throttle.read_bps_device", l->io_read_bps};
	struct rate write = {group, "blkio.throttle.write_bps_device", l->io_write_bps};
	int r = 0;

	if (l->io_read_bps != ZW_UNLIMITED)
		r = cgroup_each_disk(limit_disk, &read);
	if (r == 0 && l->io_write_bps != ZW_UNLIMITED)
		r = cgroup_each_disk(limit_disk, &write);
	if (r < 0)
		return zw_errno(why, -r, "cannot set blkio.throttle limits");
	/* What was written through the page cache reaches the disk from a kernel thread that v1 does not charge to the writer
	 * (admin-guide/cgroup-v1/blkio-controller.rst). The limit above slows direct writes, but it is not a limit. */
	if (l->io_write_bps != ZW_UNLIMITED)
		return zw_error(why, ENOTSUP,
				"cgroup v1 does not slow writes that go through the page cache; "
				"use a host with cgroup v2 or drop io_write_bps");
	return 0;
}

#define FIGURE(field) offsetof(struct cgroup_stats, field)

static const struct cgroup_figure figures[] = {
    {CGROUP_MEMORY, "memory.max_usage_in_bytes", .offset = FIGURE(memory_peak)},
    {CGROUP_MEMORY, "memory.usage_in_bytes", .offset = FIGURE(memory_current), .passing = true},
    {CGROUP_MEMORY, "memory.oom_control", "oom_kill", CGROUP_FIGURE_KEYED, .offset = FIGURE(oom_kills)}, /* 4.13 */
    {CGROUP_PIDS, "pids.peak", .less = 1, .offset = FIGURE(processes_peak)},                             /* 6.1 */
    {CGROUP_PIDS, "pids.current", .less = 1, .offset = FIGURE(processes_current), .passing = true},
    {CGROUP_PIDS, "pids.events", "max", CGROUP_FIGURE_KEYED, .offset = FIGURE(process_limit_hits)},
    {CGROUP_CPUACCT, "cpuacct.usage", .divisor = 1000, .offset = FIGURE(cpu)},
    {CGROUP_IO, "blkio.throttle.io_service_bytes", "Read ", CGROUP_FIGURE_DEVICES, .offset = FIGURE(io_read_bytes)},
    {CGROUP_IO, "blkio.throttle.io_service_bytes", "Write ", CGROUP_FIGURE_DEVICES, .offset = FIGURE(io_write_bytes)},
};
_Static_assert(ARRAY_SIZE(figures) <= CGROUP_FIGURES_MAX, "room for the fds");

const struct cgroup_ops cgroup_v1_ops = {
    .limit = {[CGROUP_MEMORY] = limit_memory,
	      [CGROUP_PIDS] = cgroup_limit_processes,
	      [CGROUP_CPU] = limit_cpu,
	      [CGROUP_IO] = limit_io},
    .figures = {figures, ARRAY_SIZE(figures)},
};

/* Makes the group below base, or below base/zwinger. */
static int make_at(int root, const char *rel, const char *name, struct cgroup_part *ret)
{
	cleanup_fd int base = cgroup_open_dir(root, rel);
	int r;

	if (base < 0)
		return base;
	r = cgroup_mkdir(base, name, &ret->group);
	if (r == -EACCES || r == -EPERM) {
		int delegated = cgroup_open_dir(base, DELEGATED);

		if (delegated < 0)
			return r;
		fd_close(&base);
		base = delegated;
		r = cgroup_mkdir(base, name, &ret->group);
	}
	if (r == 0)
		ret->base = take_fd(&base);
	return r;
}

int cgroup_v1_make(const struct cgroup_place *place, const char *name, struct cgroup_part *ret, struct zw_error *why)
{
	struct cgroup_part part = {
	    .place = place, .controllers = place->controllers, .base = -EBADF, .group = -EBADF, .tasks = -EBADF, .leaf = -EBADF};
	cleanup_free char *rel = xstrdup(place->rel);
	int r = -ENOENT, first = 0;

	/* Below our own group if we may, so that the limits above us hold for the sandbox as well; else what an ancestor offers.
	 */
	for (size_t depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
		r = make_at(place->root, rel, name, &part);
		if (first == 0)
			first = r;
		if ((r != -EACCES && r != -EPERM) || !cgroup_parent(rel))
			break;
	}
	if (r < 0) {
		const char *remedy = first == -EROFS ? "the tree is mounted read-only; mount it writable"
						     : "run as root, or let the administrator make a group \"" DELEGATED
						       "\" there and chown it to this user";

		return zw_errno(why, -first, "no group can be made below %s of the %s hierarchy (%s)", place->path, place->names,
				remedy);
	}
	part.tasks = openat(part.group, "tasks", O_WRONLY | O_CLOEXEC);
	if (part.tasks < 0) {
		r = errno == ENOENT ? -ESTALE : zw_errno(why, errno, "cannot open tasks of a new %s group", place->names);
		(void) cgroup_rmdir(part.base, name, 0);
		fd_close(&part.group);
		fd_close(&part.base);
		return r;
	}
	*ret = part;
	return 0;
}

int cgroup_v1_oom_fd(int group)
{
	cleanup_fd int control = openat(group, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	cleanup_fd int event = -EBADF;
	char text[32];
	int r;

	if (control < 0)
		return -EBADF;
	event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (event < 0)
		return -EBADF;
	(void) snprintf(text, sizeof text, "%d %d", event, control);
	r = fd_write_file_at(group, "cgroup.event_control", text);
	/* The registration lives as long as the group or the eventfd; oom_control itself may be closed. */
	return r < 0 ? -EBADF : take_fd(&event);
}
