/* Version 2: one tree. The sandbox has one group in it, born into by CLONE_INTO_CGROUP.
 *
 * Where that group may lie (admin-guide/cgroup-v2.rst):
 * - A group has the files of the controllers that its parent lists in cgroup.subtree_control.
 * - A group other than the top of the whole hierarchy cannot both hold processes and list controllers there. Our own group holds
 * us, so as a rule the place is an ancestor: the nearest one that hands out the controllers or lets itself be told to.
 * - Cloning into a group needs write permission for cgroup.procs of the common ancestor, which here is that same ancestor.
 * Controllers that were switched on stay on: switching one off would take the limits of other sandboxes below the same ancestor.
 *
 * memory.oom.group stays 0: when the kernel kills a process other than the main one, the run goes on and says so. Ending the
 * whole sandbox is the supervisor's decision. memory.high is not used: it throttles without an end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

/* The rest is threaded. */
#define DOMAIN_CONTROLLERS (CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_IO))
#define QUOTA_MIN UINT64_C(1000)
#define QUOTA_MAX UINT64_C(1000000000000)

static int limit_memory(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	int r = cgroup_write_u64(group, "memory.max", l->memory);

	if (r < 0)
		return zw_errno(why, -r, "cannot set memory.max to %llu", (unsigned long long) l->memory);
	if (l->swap == ZW_UNLIMITED)
		return 0;
	r = cgroup_write_u64(group, "memory.swap.max", l->swap); /* swap alone, other than v1 */
	/* The file is missing without CONFIG_SWAP and with swapaccount=0. */
	if (r < 0 && !(r == -ENOENT && cgroup_host_has_no_swap()))
		return zw_errno(why, -r,
				"cannot set memory.swap.max, so a memory limit would only slow things down (boot with "
				"swapaccount=1 or turn swap off)");
	return 0;
}

static int limit_cpu(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	uint64_t quota = l->cpu_quota < QUOTA_MIN ? QUOTA_MIN : l->cpu_quota > QUOTA_MAX ? QUOTA_MAX : l->cpu_quota;
	char text[64];
	int r;

	(void) snprintf(text, sizeof text, "%llu 100000", (unsigned long long) quota);
	r = fd_write_file_at(group, "cpu.max", text);
	return r < 0 ? zw_errno(why, -r, "cannot set cpu.max") : 0;
}

struct rates {
	int group;
	char text[96]; /* what follows the device */
};

static int limit_disk(void *arg, const char *device)
{
	const struct rates *rates = arg;
	char text[128];

	(void) snprintf(text, sizeof text, "%s%s", device, rates->text);
	return fd_write_file_at(rates->group, "io.max", text);
}

static int limit_io(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	struct rates rates = {.group = group};
	int n = 0, r;

	if (l->io_read_bps != ZW_UNLIMITED)
		n = snprintf(rates.text, sizeof rates.text, " rbps=%llu", (unsigned long long) l->io_read_bps);
	if (l->io_write_bps != ZW_UNLIMITED)
		(void) snprintf(rates.text + n, sizeof rates.text - (size_t) n, " wbps=%llu",
				(unsigned long long) l->io_write_bps);
	r = cgroup_each_disk(limit_disk, &rates);
	return r < 0 ? zw_errno(why, -r, "cannot set io.max") : 0;
}

#define FIGURE(field) offsetof(struct cgroup_stats, field)

static const struct cgroup_figure figures[] = {
    {CGROUP_MEMORY, "memory.peak", .offset = FIGURE(memory_peak)}, /* 5.19 */
    {CGROUP_MEMORY, "memory.current", .offset = FIGURE(memory_current), .passing = true},
    /* Not "oom": with equal limits that is counted above. */
    {CGROUP_MEMORY, "memory.events", "oom_kill", CGROUP_FIGURE_KEYED, .offset = FIGURE(oom_kills)},
    {CGROUP_PIDS, "pids.peak", .less = 1, .offset = FIGURE(processes_peak)}, /* 6.1 */
    {CGROUP_PIDS, "pids.current", .less = 1, .offset = FIGURE(processes_current), .passing = true},
    {CGROUP_PIDS, "pids.events", "max", CGROUP_FIGURE_KEYED, .offset = FIGURE(process_limit_hits)},
    {CGROUP_CPUACCT, "cpu.stat", "usage_usec", CGROUP_FIGURE_KEYED, .offset = FIGURE(cpu)}, /* without any controller, 4.15 */
    {CGROUP_IO, "io.stat", "rbytes=", CGROUP_FIGURE_DEVICES, .offset = FIGURE(io_read_bytes)},
    {CGROUP_IO, "io.stat", "wbytes=", CGROUP_FIGURE_DEVICES, .offset = FIGURE(io_write_bytes)},
};
_Static_assert(ARRAY_SIZE(figures) <= CGROUP_FIGURES_MAX, "room for the fds");

const struct cgroup_ops cgroup_v2_ops = {
    .limit = {[CGROUP_MEMORY] = limit_memory,
	      [CGROUP_PIDS] = cgroup_limit_processes,
	      [CGROUP_CPU] = limit_cpu,
	      [CGROUP_IO] = limit_io},
    .figures = {figures, ARRAY_SIZE(figures)},
};

static unsigned read_controllers(int dir, const char *file)
{
	char text[512], *rest = text;
	unsigned mask = 0;

	if (fd_read_file_at(dir, file, text, sizeof text) < 0)
		return 0;
	for (char *word = cgroup_word(&rest, " \n"); word != NULL; word = cgroup_word(&rest, " \n"))
		for (size_t i = 0; i < CGROUP_CONTROLLER_MAX; i++)
			if (i != CGROUP_CPUACCT && strcmp(word, cgroup_names[i]) == 0)
				mask |= CGROUP_BIT(i);
	return mask;
}

/* Adds ('+') to or takes ('-') from cgroup.subtree_control. */
static int set_controllers(int dir, char sign, unsigned controllers)
{
	char text[64] = "";
	size_t n = 0;

	for (size_t i = 0; i < CGROUP_CONTROLLER_MAX; i++)
		if ((controllers & CGROUP_BIT(i)) != 0)
			n += (size_t) snprintf(text + n, sizeof text - n, "%c%s ", sign, cgroup_names[i]);
	return fd_write_file_at(dir, "cgroup.subtree_control", text);
}

static bool has_members(int dir)
{
	char text[16];

	return fd_read_file_at(dir, "cgroup.procs", text, sizeof text) != 0;
}

static bool is_top(const struct cgroup_place *place, const char *rel)
{
	return place->whole && *rel == '\0';
}

/* Makes groups below `dir` have the controllers. 0 or negative errno: -ENOENT when they are not its to give, -EBUSY when it holds
 * processes. */
static int hand_out(int dir, unsigned wanted, bool top)
{
	unsigned missing = wanted & ~read_controllers(dir, "cgroup.subtree_control");

	if (missing == 0)
		return 0;
	if ((missing & ~read_controllers(dir, "cgroup.controllers")) != 0)
		return -ENOENT;
	/* The kernel refuses the domain controllers then (EBUSY), but takes the threaded ones: that turns the group into a thread
	 * root, and groups below it into "domain invalid", which nobody can be born into. */
	if (!top && (missing & DOMAIN_CONTROLLERS) == 0 && has_members(dir))
		return -EBUSY;
	return set_controllers(dir, '+', missing);
}

/* False below a thread root, which somebody may have made of a group that holds processes. */
static bool can_have_members(int group)
{
	char text[32];

	return fd_read_file_at(group, "cgroup.type", text, sizeof text) < 0 || strcmp(text, "domain\n") == 0;
}

/* Tries the kernel's rule for cloning below `dir` by asking for what it asks for. The host's root needs no test. */
static int may_clone_below(const struct cgroup_place *place, int dir)
{
	cleanup_fd int fd = -EBADF;

	if (place->whole && geteuid() == 0)
		return 0;
	fd = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : 0;
}

static int make_at(const struct cgroup_place *place, const char *rel, const char *name, unsigned wanted, struct cgroup_part *ret)
{
	cleanup_fd int base = cgroup_open_dir(place->root, rel);
	struct stat st;
	int r;

	if (base < 0)
		return base;
	r = may_clone_below(place, base);
	if (r == 0 && wanted != 0)
		r = hand_out(base, wanted, is_top(place, rel));
	if (r < 0)
		return r;
	r = cgroup_mkdir(base, name, &ret->group);
	if (r < 0)
		return r;
	/* Nothing else is opened in it before the clone. */
	if (fstatat(base, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		fd_close(&ret->group);
		return -ESTALE;
	}
	/* A group that hands out domain controllers is no thread root. */
	if ((wanted & DOMAIN_CONTROLLERS) == 0 && !is_top(place, rel) && !can_have_members(ret->group)) {
		(void) cgroup_rmdir(base, name, 0);
		fd_close(&ret->group);
		return -EOPNOTSUPP;
	}
	ret->base = take_fd(&base);
	return 0;
}

/* The nearest ancestor-or-self with all of `wanted`. On failure the reason of the nearest one that has the controllers at all. */
static int make_near(const struct cgroup_place *place, const char *name, unsigned wanted, struct cgroup_part *ret)
{
	cleanup_free char *rel = xstrdup(place->rel);
	int r, reason = -ENOENT;

	for (size_t depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
		r = make_at(place, rel, name, wanted, ret);
		if (r == 0 || r == -ESTALE)
			return r;
		if (reason == -ENOENT)
			reason = r;
		if (!cgroup_parent(rel))
			break;
	}
	return reason;
}

static bool only_member(int dir)
{
	char text[64], own[16];

	(void) snprintf(own, sizeof own, "%d\n", (int) getpid());
	return fd_read_file_at(dir, "cgroup.procs", text, sizeof text) > 0 && strcmp(text, own) == 0;
}

/* When nobody but us is in our own group (a scope of our own, a container whose first process we are), we can make room: move
 * into a leaf below it, after which the group may hand out controllers. The leaf is locked like a sandbox's group. */
static int make_room(const struct cgroup_place *place, unsigned wanted, struct cgroup_part *part)
{
	cleanup_fd int own = cgroup_open_dir(place->root, place->rel), leaf = -EBADF;
	int r;

	if (own < 0)
		return own;
	if (wanted == 0 || (wanted & ~read_controllers(own, "cgroup.controllers")) != 0)
		return -ENOENT;
	if (!only_member(own))
		return -EBUSY;
	r = cgroup_new_name(part->leaf_name);
	if (r < 0)
		return r;
	r = cgroup_mkdir(own, part->leaf_name, &leaf);
	if (r < 0)
		return r;
	r = fd_write_file_at(leaf, "cgroup.procs", "0");
	if (r == 0)
		r = set_controllers(own, '+', wanted);
	if (r < 0) {
		(void) fd_write_file_at(own, "cgroup.procs", "0");
		(void) cgroup_rmdir(own, part->leaf_name, 0);
		return r;
	}
	part->leaf = take_fd(&leaf);
	return 0;
}

void cgroup_v2_leave(struct cgroup_part *part)
{
	struct stat st;
	int r;

	/* With another sandbox there the controllers must stay, and so must we. The lock then stays held for the life of this
	 * process, or a reaper in another pid namespace would take the leaf for a left-over; so the descriptor is not closed. */
	if (fstat(part->base, &st) < 0 || st.st_nlink != 3)
		return;
	r = set_controllers(part->base, '-', read_controllers(part->base, "cgroup.subtree_control"));
	if (r == 0)
		r = fd_write_file_at(part->base, "cgroup.procs", "0");
	if (r < 0)
		return;
	(void) cgroup_rmdir(part->base, part->leaf_name, 0);
	fd_close(&part->leaf);
}

static int make_in_room(const struct cgroup_place *place, const char *name, unsigned wanted, struct cgroup_part *part)
{
	int r = make_at(place, place->rel, name, wanted, part);

	if (r < 0) {
		part->base = cgroup_open_dir(place->root, place->rel);
		cgroup_v2_leave(part);
		fd_close(&part->base);
	}
	return r;
}

static void explain(const struct cgroup_place *place, int reason, unsigned wanted, struct zw_error *why)
{
	if (reason == -EBUSY)
		(void) zw_error(
		    why, EBUSY,
		    "the group %s cannot hand out controllers while processes are in it, and no group above can; "
		    "start the container with its processes in a group of their own, or run below a systemd scope with "
		    "Delegate=yes",
		    place->path);
	else if (reason == -EROFS)
		(void) zw_error(why, EROFS, "the cgroup tree is mounted read-only; mount it writable");
	else if (reason == -ENOENT && wanted != 0)
		(void) zw_error(why, ENOENT,
				"neither the group %s nor one above it has the controllers; let the administrator add them "
				"to cgroup.subtree_control above it",
				place->path);
	else
		(void) zw_errno(why, -reason,
				"no group can be made at or above %s (run as root, or below a delegated group: "
				"systemd-run --user --scope -p Delegate=yes)",
				place->path);
}

int cgroup_v2_make(const struct cgroup_place *place, const char *name, unsigned wanted, struct cgroup_part *ret,
		   struct zw_error *why)
{
	/* When not all can be had, the best choice of them: what a controller is worth is its bit. */
	static const enum cgroup_controller worth[] = {CGROUP_IO, CGROUP_CPU, CGROUP_PIDS, CGROUP_MEMORY};
	struct cgroup_part part = {.place = place, .base = -EBADF, .group = -EBADF, .tasks = -EBADF, .leaf = -EBADF};
	unsigned all = wanted;
	int r = make_near(place, name, wanted, &part);

	if (r < 0 && r != -ESTALE && make_room(place, wanted, &part) == 0)
		r = make_in_room(place, name, wanted, &part);
	if (r < 0 && r != -ESTALE)
		explain(place, r, wanted, why);
	for (unsigned choice = (1U << ARRAY_SIZE(worth)); choice-- > 0 && r < 0 && r != -ESTALE;) {
		unsigned mask = 0;

		for (size_t i = 0; i < ARRAY_SIZE(worth); i++)
			if ((choice & (1U << i)) != 0)
				mask |= CGROUP_BIT(worth[i]);
		if (mask == all || (mask & ~all) != 0)
			continue;
		wanted = mask;
		r = make_near(place, name, wanted, &part);
	}
	if (r < 0)
		return r;
	/* Others that come for free bring their figures. When no controller of ours is on this tree it is not worth a look. */
	part.controllers = CGROUP_BIT(CGROUP_CPUACCT) | wanted;
	if (all != 0)
		part.controllers |= read_controllers(part.group, "cgroup.controllers");
	*ret = part;
	return 0;
}

int cgroup_v2_oom_fd(int group)
{
	int fd = openat(group, "memory.events", O_RDONLY | O_CLOEXEC);
	char text[512];

	if (fd < 0)
		return -EBADF;
	/* kernfs tells a poller of changes since the last read (kernfs_generic_poll). */
	(void) !read(fd, text, sizeof text);
	return fd;
}
