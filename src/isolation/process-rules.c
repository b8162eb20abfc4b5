#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "isolation/process.h"
#include "kernel/landlock.h"

struct allowed_path {
	const char *path;
	enum landlock_access what;
};

/* Not /dev/pts: the terminals of the same user lie there. A terminal of its own comes by ioctl from /dev/ptmx, and /dev/tty is
 * the one of the program's own session. Not /dev/shm: it is the host's. */
static const struct allowed_path devices[] = {
    {"/dev/null", LANDLOCK_DEVICES}, {"/dev/zero", LANDLOCK_DEVICES},    {"/dev/full", LANDLOCK_DEVICES},
    {"/dev/tty", LANDLOCK_DEVICES},  {"/dev/urandom", LANDLOCK_DEVICES}, {"/dev/random", LANDLOCK_DEVICES},
    {"/dev/ptmx", LANDLOCK_DEVICES},
};

/* About the machine, nothing about its processes. /proc/self cannot be allowed: a rule is for one process's folder, not for
 * "one's own". */
static const struct allowed_path machine[] = {
    {"/proc/cpuinfo", LANDLOCK_READ_NOEXEC},
    {"/proc/filesystems", LANDLOCK_READ_NOEXEC},
    {"/proc/loadavg", LANDLOCK_READ_NOEXEC},
    {"/proc/meminfo", LANDLOCK_READ_NOEXEC},
    {"/proc/stat", LANDLOCK_READ_NOEXEC},
    {"/proc/uptime", LANDLOCK_READ_NOEXEC},
    {"/proc/version", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/fs/file-max", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/fs/nr_open", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/fs/pipe-max-size", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/kernel/cap_last_cap", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/kernel/ngroups_max", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/kernel/osrelease", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/kernel/pid_max", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/kernel/threads-max", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/vm/max_map_count", LANDLOCK_READ_NOEXEC},
    {"/proc/sys/vm/overcommit_memory", LANDLOCK_READ_NOEXEC},
};

static bool is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int check_mount(const struct plan *plan, const struct plan_mount *m, struct zw_error *e)
{
	if (strcmp(m->source, m->target) != 0)
		return zw_error(e, ENOTSUP,
				"%s cannot be shown as %s without a mount namespace: give it the same path inside (%s:%s), or "
				"use --isolation container",
				m->source, m->target, m->source, m->source);
	if (m->size != ZW_UNLIMITED)
		return zw_error(
		    e, ENOTSUP,
		    "%s has a size of its own, which only --isolation container can hold: leave it out and set limits.disk",
		    m->source);
	if (m->writable)
		return 0;
	/* Landlock's rules only add. */
	for (size_t i = 0; i < plan->mount_count; i++)
		if (plan->mounts[i].writable && is_below(m->source, plan->mounts[i].source))
			return zw_error(
			    e, ENOTSUP,
			    "%s lies in %s, which is writable, and cannot be kept read-only there without a mount namespace: use "
			    "--isolation container",
			    m->source, plan->mounts[i].source);
	return 0;
}

/* May `id` go through every folder on the way to `path`? By mode bits alone: who relies on more has set it up knowingly. */
static bool can_reach(const struct identity *id, const char *path)
{
	cleanup_free char *part = xstrdup(path);

	for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		struct stat st;
		bool closed;

		*slash = '\0';
		closed = stat(part, &st) < 0 || (st.st_mode & (st.st_uid == id->uid   ? S_IXUSR
							       : st.st_gid == id->gid ? S_IXGRP
										      : S_IXOTH)) == 0;
		*slash = '/';
		if (closed)
			return false;
	}
	return true;
}

/* Root gives the program another uid, which is kept out where everybody is. */
static int check_reach(const struct plan *plan, const struct identity *id, struct zw_error *e)
{
	if (id->kind != IDENTITY_FRESH && id->kind != IDENTITY_OWNER)
		return 0;
	for (size_t i = 0; i < plan->mount_count; i++)
		if (!can_reach(id, plan->mounts[i].source))
			return zw_error(e, EACCES,
					"%s cannot be reached by the program, which does not run as root here: a folder on the "
					"way is closed to "
					"others; open it (chmod o+x), move the data, or use --isolation container",
					plan->mounts[i].source);
	return 0;
}

int process_check_paths(const struct plan *plan, const struct identity *id, struct zw_error *e)
{
	if (plan->root != NULL)
		return zw_error(
		    e, ENOTSUP,
		    "the root folder %s cannot be entered without a mount namespace: use root: host, or --isolation container",
		    plan->root);
	for (size_t i = 0; i < plan->mount_count; i++) {
		int r = check_mount(plan, &plan->mounts[i], e);

		if (r < 0)
			return r;
	}
	return check_reach(plan, id, e);
}

static int allow_fd(const struct rulesets *to, int fd, const char *path, enum landlock_access what, struct zw_error *e)
{
	int r = landlock_allow(to->outer, fd, what);

	if (r == 0 && to->inner >= 0)
		r = landlock_allow(to->inner, fd, what);
	return r < 0 ? zw_errno(e, -r, "cannot add a Landlock rule for %s", path) : 0;
}

/* What this host does not have need not be allowed. */
static int allow_path(const struct rulesets *to, const char *path, enum landlock_access what, struct zw_error *e)
{
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT || errno == EACCES || errno == ENOTDIR || errno == ENXIO
			   ? 0
			   : zw_errno(e, errno, "cannot open %s", path);
	return allow_fd(to, fd, path, what, e);
}

static int allow_list(const struct rulesets *to, const struct allowed_path *list, size_t count, struct zw_error *e)
{
	for (size_t i = 0; i < count; i++) {
		int r = allow_path(to, list[i].path, list[i].what, e);

		if (r < 0)
			return r;
	}
	return 0;
}

/* The plan has texts of its own for some files of /etc, which cannot be put in place here: the host's own are shown, if everybody
 * may read them. */
static int allow_host_file(const struct rulesets *to, const char *path, struct zw_error *e)
{
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (strncmp(path, "/etc/", 5) != 0 || fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & S_IROTH) == 0)
		return 0;
	return allow_fd(to, fd, path, LANDLOCK_READ_NOEXEC, e);
}

static int allow_plan(const struct plan *plan, const struct rulesets *to, struct zw_error *e)
{
	int r;

	for (size_t i = 0; i < plan->bind_count; i++) {
		r = allow_path(to, plan->binds[i].source, LANDLOCK_READ, e);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < plan->file_count; i++) {
		r = allow_host_file(to, plan->files[i].path, e);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < plan->mount_count; i++) {
		const struct plan_mount *m = &plan->mounts[i];

		r = allow_fd(to, m->fd, m->source, m->writable ? LANDLOCK_WRITE : LANDLOCK_READ, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* For the agent alone: procfs as a whole, so that a domain within its own can be allowed parts of it. */
static int allow_agent(const struct rulesets *to, struct zw_error *e)
{
	const struct rulesets outer = {.outer = to->outer, .inner = -EBADF};

	return to->inner >= 0 ? allow_path(&outer, "/proc", LANDLOCK_READ_NOEXEC, e) : 0;
}

static int fill(const struct plan *plan, const struct identity *id, int scratch, const struct rulesets *to, struct zw_error *e)
{
	int r = allow_list(to, devices, ARRAY_SIZE(devices), e);

	if (r == 0)
		r = allow_list(to, machine, ARRAY_SIZE(machine), e);
	if (r == 0)
		r = allow_agent(to, e);
	/* With a uid of its own, the modes of the terminals there keep it from those of others. */
	if (r == 0 && id->kind == IDENTITY_FRESH)
		r = allow_path(to, "/dev/pts", LANDLOCK_DEVICES, e);
	if (r == 0)
		r = allow_plan(plan, to, e);
	if (r == 0)
		r = allow_fd(to, scratch, plan->home, plan->scratch_exec ? LANDLOCK_WRITE : LANDLOCK_WRITE_NOEXEC, e);
	return r;
}

int process_rulesets(const struct plan *plan, const struct identity *id, int scratch, struct rulesets *ret, struct zw_error *e)
{
	int abi = landlock_abi();
	cleanup_fd int outer = abi > 0 ? landlock_ruleset((unsigned) abi, true) : abi;
	cleanup_fd int inner = -EBADF;
	int r;

	if (outer < 0)
		return zw_errno(e, -outer, "cannot make a Landlock ruleset");
	if (abi >= LANDLOCK_ABI_SCOPE) {
		inner = landlock_ruleset((unsigned) abi, true);
		if (inner < 0)
			return zw_errno(e, -inner, "cannot make a Landlock ruleset");
	}
	r = fill(plan, id, scratch, &(struct rulesets){.outer = outer, .inner = inner}, e);
	if (r == 0)
		*ret = (struct rulesets){.outer = take_fd(&outer), .inner = take_fd(&inner)};
	return r;
}
