/* What an owner may do to his files and Landlock does not know: change modes, times and owners. The filter sends all of it here;
 * where the file lies in a folder that is writable inside, the supervisor does it, elsewhere it stays refused. Also: scheduling
 * parameters, which the kernel lets a user set for all his processes, for threads of the calling process alone.
 *
 * Nothing is decided on memory that the caller can change meanwhile: the path is copied once and opened once, and what is judged
 * and changed is the fd. Magic links are refused, so "/proc/self" cannot come to mean us. The supervisor does it with the file
 * system identity of the program, so that root's rights never come into it.
 *
 * With a uid that nobody else has all of this is held by the plain rules of Unix, and the calls just go on. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "base/fd.h"
#include "base/mem.h"
#include "isolation/process.h"
#include "kernel/uapi.h"
#include "sandbox/tree.h"

/* Besides results and negative errno: let it be recorded and refused as any other call. */
enum { REFUSE = -4096 };

/* What one of the calls means. */
struct request {
	enum { CHANGE_MODE, CHANGE_TIMES, CHANGE_OWNER, WATCH } what;
	int dirfd;
	uint64_t path; /* address; 0: the fd itself */
	bool nofollow;
	mode_t mode;
	uint64_t times; /* address, 0: now */
	enum { TIMES_NANO, TIMES_MICRO, TIMES_SECONDS } unit;
	uid_t uid;
	gid_t gid;
	int inotify; /* WATCH */
	uint32_t events;
};

/* ---- Reading the caller. ---- */

/* Copies memory of the caller, by /proc and not process_vm_readv(2): that looks at the real uid, which we do not change. */
static ssize_t peek(const struct sandbox *s, const struct seccomp_notif *n, uint64_t addr, void *buf, size_t size)
{
	cleanup_fd int fd = -EBADF;
	char path[32];
	ssize_t count;
	int r;

	(void) snprintf(path, sizeof path, "/proc/%u/mem", n->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -EPERM;
	count = pread(fd, buf, size, (off_t) addr);
	r = seccomp_alive(s->listener, n->id);
	if (r < 0)
		return r;
	return count < 0 ? -EFAULT : count;
}

static int peek_path(const struct sandbox *s, const struct seccomp_notif *n, uint64_t addr, char buf[PATH_MAX])
{
	size_t have = 0;

	while (have < PATH_MAX) {
		size_t step = 4096 - (size_t) ((addr + have) % 4096);
		ssize_t count;

		step = step < PATH_MAX - have ? step : PATH_MAX - have;
		count = peek(s, n, addr + have, buf + have, step);
		if (count <= 0)
			return count < 0 ? (int) count : -EFAULT;
		if (memchr(buf + have, '\0', (size_t) count) != NULL)
			return 0;
		have += (size_t) count;
	}
	return -ENAMETOOLONG;
}

/* The caller's own working directory or descriptor. */
static int open_base(const struct seccomp_notif *n, int dirfd)
{
	char path[48];
	int fd;

	if (dirfd == AT_FDCWD)
		(void) snprintf(path, sizeof path, "/proc/%u/cwd", n->pid);
	else
		(void) snprintf(path, sizeof path, "/proc/%u/fd/%d", n->pid, dirfd);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -EBADF : -errno;
	return fd;
}

/* ---- Judging the file. ---- */

static int path_of_fd(int fd, char buf[PATH_MAX])
{
	char link[32];
	ssize_t n;

	(void) snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, buf, PATH_MAX - 1);
	if (n <= 0 || n == PATH_MAX - 1 || buf[0] != '/')
		return -ENOENT;
	buf[n] = '\0';
	return 0;
}

static bool lies_in(const char *path, int folder)
{
	char root[PATH_MAX];
	size_t n;

	if (path_of_fd(folder, root) < 0)
		return false;
	n = strlen(root);
	return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

enum place { PLACE_OUTSIDE, PLACE_READABLE, PLACE_WRITABLE };

/* By the kernel's own idea of where the file is now. The program can move files about within its writable folders, but neither
 * into them nor out of them, so this does not change between the look and the deed. */
static enum place place_of(const struct sandbox *s, int fd)
{
	enum place place = PLACE_OUTSIDE;
	char path[PATH_MAX];

	if (path_of_fd(fd, path) < 0)
		return PLACE_OUTSIDE;
	if (lies_in(path, s->scratch))
		return PLACE_WRITABLE;
	for (size_t i = 0; i < s->plan->mount_count; i++) {
		if (!lies_in(path, s->plan->mounts[i].fd))
			continue;
		if (s->plan->mounts[i].writable)
			return PLACE_WRITABLE;
		place = PLACE_READABLE;
	}
	return place;
}

/* ---- Finding the file. ---- */

/* `path` below `folder`: what follows its name there, or NULL. */
static const char *rest_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	if (strncmp(path, folder, n) != 0 || (path[n] != '/' && path[n] != '\0'))
		return NULL;
	path += n;
	while (*path == '/')
		path++;
	return *path != '\0' ? path : ".";
}

static const char *rest_below_fd(const char *path, int folder)
{
	char root[PATH_MAX];

	return path_of_fd(folder, root) == 0 ? rest_below(path, root) : NULL;
}

/* The folder of ours that a path leads into by its name, so that the look-up begins there: it must not wander through the host,
 * where a dead network mount could hold us up. */
static const char *find_root(const struct sandbox *s, const char *path, int *ret_root)
{
	const char *rest = rest_below(path, s->plan->home);

	*ret_root = s->scratch;
	if (rest == NULL)
		rest = rest_below_fd(path, s->scratch);
	for (size_t i = 0; i < s->plan->mount_count && rest == NULL; i++) {
		*ret_root = s->plan->mounts[i].fd;
		rest = rest_below(path, s->plan->mounts[i].source);
		if (rest == NULL)
			rest = rest_below_fd(path, *ret_root);
	}
	return rest;
}

static int open_below(int root, const char *path, bool nofollow)
{
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC | (nofollow ? O_NOFOLLOW : 0U),
				     .resolve = RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
	int fd = (int) syscall(SYS_openat2, root, path, &how, sizeof how);

	return fd < 0 ? -errno : fd;
}

/* An fd of what is meant; REFUSE for what lies in none of our folders. */
static int open_target(const struct sandbox *s, const struct seccomp_notif *n, const struct request *q, int *ret_fd)
{
	cleanup_fd int base = -EBADF;
	cleanup_free char *whole = NULL;
	char path[PATH_MAX], cwd[PATH_MAX];
	const char *rest;
	int root, fd, r = q->path != 0 ? peek_path(s, n, q->path, path) : 0;

	if (r < 0)
		return r;
	if (q->path != 0 && path[0] == '\0')
		return -ENOENT;
	if (q->path == 0 || path[0] != '/') {
		base = open_base(n, q->dirfd);
		if (base < 0)
			return base;
	}
	r = seccomp_alive(s->listener, n->id);
	if (r < 0)
		return r;
	if (q->path == 0) {
		*ret_fd = take_fd(&base);
		return 0;
	}
	if (base >= 0 && place_of(s, base) != PLACE_OUTSIDE) {
		fd = open_below(base, path, q->nofollow);
	} else {
		if (base >= 0 && path_of_fd(base, cwd) < 0)
			return REFUSE;
		whole = base >= 0 ? xasprintf("%s/%s", cwd, path) : xstrdup(path);
		rest = find_root(s, whole, &root);
		if (rest == NULL)
			return REFUSE;
		fd = open_below(root, rest, q->nofollow);
	}
	if (fd < 0)
		return fd == -EXDEV ? REFUSE : fd;
	*ret_fd = fd;
	return 0;
}

/* ---- Doing it. ---- */

static int change_mode(int fd, const struct request *q)
{
	struct stat st;

	if ((q->mode & (S_ISUID | S_ISGID)) != 0)
		return REFUSE;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -EOPNOTSUPP;
	return tree_chmod(fd, q->mode & 07777);
}

static int read_times(const struct sandbox *s, const struct seccomp_notif *n, const struct request *q, struct timespec ret[2])
{
	struct timeval micro[2];
	struct utimbuf seconds;
	ssize_t got;

	switch (q->unit) {
	case TIMES_NANO:
		got = peek(s, n, q->times, ret, 2 * sizeof ret[0]);
		return got == 2 * sizeof ret[0] ? 0 : -EFAULT;
	case TIMES_MICRO:
		got = peek(s, n, q->times, micro, sizeof micro);
		if (got != sizeof micro)
			return -EFAULT;
		for (int i = 0; i < 2; i++) {
			if (micro[i].tv_usec < 0 || micro[i].tv_usec >= 1000000)
				return -EINVAL;
			ret[i] = (struct timespec){.tv_sec = micro[i].tv_sec, .tv_nsec = micro[i].tv_usec * 1000};
		}
		return 0;
	case TIMES_SECONDS:
		got = peek(s, n, q->times, &seconds, sizeof seconds);
		if (got != sizeof seconds)
			return -EFAULT;
		ret[0] = (struct timespec){.tv_sec = seconds.actime};
		ret[1] = (struct timespec){.tv_sec = seconds.modtime};
		return 0;
	}
	return -EINVAL;
}

static int change_times(const struct sandbox *s, const struct seccomp_notif *n, int fd, const struct request *q)
{
	struct timespec times[2];

	if (q->times != 0) {
		int r = read_times(s, n, q, times);

		if (r < 0)
			return r;
	}
	return syscall(SYS_utimensat, fd, "", q->times != 0 ? times : NULL, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* To whom it belongs already it can be given; anything else needs a privilege that nothing inside has, here or anywhere. */
static int change_owner(const struct identity *id, const struct request *q)
{
	return (q->uid == (uid_t) -1 || q->uid == id->uid) && (q->gid == (gid_t) -1 || q->gid == id->gid) ? 0 : -EPERM;
}

static long thread_group(unsigned pid)
{
	char path[32], text[4096];
	const char *field;

	(void) snprintf(path, sizeof path, "/proc/%u/status", pid);
	if (fd_read_file_at(AT_FDCWD, path, text, sizeof text) <= 0)
		return -1;
	field = strstr(text, "\nTgid:");
	return field != NULL ? (long) strtoul(field + strlen("\nTgid:"), NULL, 10) : -1;
}

/* On the caller's own inotify instance. Returns the watch descriptor. */
static int add_watch(const struct seccomp_notif *n, int fd, const struct request *q)
{
	cleanup_fd int process = (int) syscall(SYS_pidfd_open, thread_group(n->pid), 0);
	cleanup_fd int inotify = process >= 0 ? (int) syscall(SYS_pidfd_getfd, process, q->inotify, 0) : -1;
	char path[32];
	int wd;

	if (inotify < 0)
		return process >= 0 && errno == EBADF ? -EBADF : REFUSE;
	(void) snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(inotify, path, q->events & ~(uint32_t) IN_DONT_FOLLOW);
	return wd < 0 ? -errno : wd;
}

static int carry_out(const struct sandbox *s, const struct seccomp_notif *n, const struct request *q)
{
	const struct process_level *l = s->level;
	cleanup_fd int fd = -EBADF;
	int r = open_target(s, n, q, &fd);

	if (r != 0)
		return r;
	if (place_of(s, fd) < (q->what == WATCH ? PLACE_READABLE : PLACE_WRITABLE))
		return REFUSE;
	switch (q->what) {
	case CHANGE_MODE:
		return change_mode(fd, q);
	case CHANGE_TIMES:
		return change_times(s, n, fd, q);
	case CHANGE_OWNER:
		return change_owner(&l->identity, q);
	case WATCH:
		return add_watch(n, fd, q);
	}
	return REFUSE;
}

/* ---- Which call is it? ---- */

static struct request mode_request(int dirfd, uint64_t path, uint64_t mode, bool nofollow)
{
	return (struct request){.what = CHANGE_MODE, .dirfd = dirfd, .path = path, .mode = (mode_t) mode, .nofollow = nofollow};
}

static struct request owner_request(int dirfd, uint64_t path, uint64_t uid, uint64_t gid, bool nofollow)
{
	return (struct request){
	    .what = CHANGE_OWNER, .dirfd = dirfd, .path = path, .uid = (uid_t) uid, .gid = (gid_t) gid, .nofollow = nofollow};
}

/* With AT_EMPTY_PATH and an empty path the fd itself is meant; programs say so, and the kernel tells it apart only by looking.
 * Those that give the flag mean the fd. */
static void apply_flags(struct request *q, uint64_t flags)
{
	q->nofollow = (flags & AT_SYMLINK_NOFOLLOW) != 0;
	if ((flags & AT_EMPTY_PATH) != 0)
		q->path = 0;
}

static bool understand(const struct seccomp_data *d, struct request *q)
{
	const __u64 *a = d->args;

	switch (d->nr) {
#ifdef SYS_chmod
	case SYS_chmod:
		*q = mode_request(AT_FDCWD, a[0], a[1], false);
		return a[0] != 0;
	case SYS_chown:
	case SYS_lchown:
		*q = owner_request(AT_FDCWD, a[0], a[1], a[2], d->nr == SYS_lchown);
		return a[0] != 0;
	case SYS_utime:
	case SYS_utimes:
		*q = (struct request){.what = CHANGE_TIMES, .dirfd = AT_FDCWD, .path = a[0], .times = a[1]};
		q->unit = d->nr == SYS_utime ? TIMES_SECONDS : TIMES_MICRO;
		return a[0] != 0;
	case SYS_futimesat:
		*q =
		    (struct request){.what = CHANGE_TIMES, .dirfd = (int) a[0], .path = a[1], .times = a[2], .unit = TIMES_MICRO};
		return true;
#endif
	case SYS_fchmod:
		*q = mode_request((int) a[0], 0, a[1], false);
		return true;
	case SYS_fchmodat:
		*q = mode_request((int) a[0], a[1], a[2], false);
		return a[1] != 0;
	case __NR_fchmodat2:
		*q = mode_request((int) a[0], a[1], a[2], false);
		apply_flags(q, a[3]);
		return true;
	case SYS_fchown:
		*q = owner_request((int) a[0], 0, a[1], a[2], false);
		return true;
	case SYS_fchownat:
		*q = owner_request((int) a[0], a[1], a[2], a[3], false);
		apply_flags(q, a[4]);
		return true;
	case SYS_inotify_add_watch:
		*q = (struct request){
		    .what = WATCH, .dirfd = AT_FDCWD, .path = a[1], .inotify = (int) a[0], .events = (uint32_t) a[2]};
		q->nofollow = (q->events & IN_DONT_FOLLOW) != 0;
		return a[1] != 0;
	case SYS_utimensat:
		*q = (struct request){.what = CHANGE_TIMES, .dirfd = (int) a[0], .path = a[1], .times = a[2]};
		apply_flags(q, a[3]);
		return true;
	default:
		return false;
	}
}

/* ---- Scheduling. ---- */

static bool is_scheduling(int nr)
{
	return nr == SYS_sched_setaffinity || nr == SYS_sched_setparam || nr == SYS_sched_setscheduler;
}

/* The pid is a register, which no thread can change behind our back. */
static bool is_own_thread(const struct seccomp_notif *n)
{
	long group = thread_group(n->pid);
	uint32_t policy = (uint32_t) n->data.args[1] & ~(uint32_t) SCHED_RESET_ON_FORK;

	if (n->data.nr == SYS_sched_setscheduler && policy != SCHED_OTHER && policy != SCHED_BATCH && policy != SCHED_IDLE)
		return false;

	return group > 0 && thread_group((unsigned) n->data.args[0]) == group;
}

/* ---- The door. ---- */

static bool answer_scheduling(const struct sandbox *s, const struct seccomp_notif *n)
{
	if (!is_own_thread(n))
		return false;
	(void) seccomp_continue(s->listener, n->id);
	return true;
}

bool process_answer(struct sandbox *s, const struct seccomp_notif *n)
{
	const struct process_level *l = s->level;
	bool scheduling = is_scheduling(n->data.nr);
	struct request q;
	uid_t old_uid;
	gid_t old_gid;
	int r;

	if (l == NULL || (!scheduling && !understand(&n->data, &q)))
		return false;
	if (scheduling)
		return l->identity.kind == IDENTITY_FRESH ? (void) seccomp_continue(s->listener, n->id),
		       true                               : answer_scheduling(s, n);
	if (l->identity.kind == IDENTITY_FRESH && !(q.what == CHANGE_MODE && (q.mode & (S_ISUID | S_ISGID)) != 0)) {
		(void) seccomp_continue(s->listener, n->id);
		return true;
	}
	old_gid = (gid_t) setfsgid(l->identity.gid);
	old_uid = (uid_t) setfsuid(l->identity.uid);
	r = carry_out(s, n, &q);
	(void) setfsuid(old_uid);
	(void) setfsgid(old_gid);
	if (r == REFUSE)
		return false;
	if (r < 0)
		(void) seccomp_deny(s->listener, n->id, -r);
	else
		(void) seccomp_return(s->listener, n->id, r);
	return true;
}
