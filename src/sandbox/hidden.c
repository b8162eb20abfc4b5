#include "sandbox/hidden.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/statx.h"

enum { LINKS_MAX = 40 }; /* as many as the kernel follows, path_resolution(7) */

static int look(int dir_fd, const char *path, uint64_t resolve)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = resolve | RESOLVE_NO_MAGICLINKS};
	cleanup_fd int fd = (int) syscall(SYS_openat2, dir_fd, path, &how, sizeof how);

	return fd >= 0 ? 0 : -errno;
}

static bool is_far_type(const char *type, size_t n)
{
	static const char *const far[] = {"autofs", "nfs", "nfs4", "cifs", "smb3",  "9p",
					  "ceph",   "afs", "coda", "gfs2", "ocfs2", "lustre"};

	for (size_t i = 0; i < ARRAY_SIZE(far); i++)
		if (strlen(far[i]) == n && memcmp(far[i], type, n) == 0)
			return true;
	return n >= 4 && memcmp(type, "fuse", 4) == 0;
}

/* proc_pid_mountinfo(5): the id comes first, the type behind " - ". What cannot be found out counts as far. */
static bool is_far_mount(uint64_t id)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool far = true, found = false;

	if (f == NULL)
		return true;
	while (!found && getline(&line, &room, f) > 0) {
		const char *type = strstr(line, " - ");

		if (strtoull(line, NULL, 10) != id || type == NULL)
			continue;
		found = true;
		type += 3;
		far = is_far_type(type, strcspn(type, " \n"));
	}
	free(line);
	(void) fclose(f);
	return far;
}

/* A walk over the host's names that is safe although the program has chosen the path: a look-up in an automounter's folder makes
 * the host resolve names and mount from servers, which is a way out of an empty network, and one in a dead network file system
 * holds the supervisor up. So every name is looked up by itself, in a folder whose mount has been looked at. */
struct host_walk {
	int at;
	uint64_t mount; /* that `at` lies on, known to be near */
	unsigned links;
	char *path; /* owned; what is still to be walked is `rest` in it */
	const char *rest;
};

/* Does not ask a server. */
static int arrive(struct host_walk *w, int fd, mode_t *ret_mode)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st) < 0)
		return -errno;
	if ((st.stx_mask & STATX_MNT_ID) == 0)
		return -EOPNOTSUPP;
	if (st.stx_mnt_id != w->mount && is_far_mount(st.stx_mnt_id))
		return -EREMOTE;
	w->mount = st.stx_mnt_id;
	*ret_mode = st.stx_mode;
	return 0;
}

static int back_to_root(struct host_walk *w)
{
	mode_t mode;

	fd_close(&w->at);
	w->at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->at < 0 ? -errno : arrive(w, w->at, &mode);
}

static int follow(struct host_walk *w, int link)
{
	char target[PATH_MAX], *joined;
	ssize_t n = readlinkat(link, "", target, sizeof target - 1);

	if (n <= 0)
		return n < 0 ? -errno : -ENOENT;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	target[n] = '\0';
	joined = xasprintf("%s/%s", target, w->rest);
	free(w->path);
	w->path = joined;
	w->rest = joined;
	return target[0] == '/' ? back_to_root(w) : 0;
}

static int step(struct host_walk *w, const char *name, size_t size)
{
	char text[NAME_MAX + 1];
	cleanup_fd int fd = -EBADF;
	mode_t mode;
	int r;

	if (size > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(text, name, size);
	text[size] = '\0';
	fd = openat(w->at, text, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = arrive(w, fd, &mode);
	if (r < 0)
		return r;
	if (S_ISLNK(mode))
		return follow(w, fd);
	fd_close(&w->at);
	w->at = take_fd(&fd);
	return 0;
}

static int look_on_host(const char *path)
{
	struct host_walk w = {.at = -EBADF, .path = xstrdup(path)};
	int r = back_to_root(&w);

	w.rest = w.path;
	while (r == 0) {
		const char *name = w.rest + strspn(w.rest, "/");
		size_t n = strcspn(name, "/");

		if (n == 0)
			break;
		w.rest = name + n;
		r = step(&w, name, n);
	}
	free(w.path);
	fd_close(&w.at);
	return r;
}

static bool make_absolute(pid_t pid, int dirfd, char *path, size_t size)
{
	char link[64], base[PATH_MAX];
	size_t n = strlen(path);
	ssize_t length;

	if (path[0] == '/')
		return true;
	if (dirfd == AT_FDCWD)
		(void) snprintf(link, sizeof link, "/proc/%d/cwd", (int) pid);
	else
		(void) snprintf(link, sizeof link, "/proc/%d/fd/%d", (int) pid, dirfd);
	length = readlink(link, base, sizeof base - 1);
	if (length <= 0 || base[0] != '/' || (size_t) length + 1 + n >= size)
		return false;
	memmove(path + length + 1, path, n + 1);
	memcpy(path, base, (size_t) length);
	path[length] = '/';
	return true;
}

bool hidden_from_inside(pid_t agent, pid_t pid, int dirfd, char *path, size_t size)
{
	cleanup_fd int root = -EBADF;
	char name[32];
	int inside;

	if (!make_absolute(pid, dirfd, path, size))
		return false;
	/* Pids name other processes there than here. */
	if (strncmp(path, "/proc/", 6) == 0 && isdigit((unsigned char) path[6]))
		return false;
	if (look_on_host(path) < 0)
		return false; /* not on the host either, not to be seen by whoever runs us, or too far away to look */
	(void) snprintf(name, sizeof name, "/proc/%d/root", (int) agent);
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return false;
	inside = look(root, path, RESOLVE_IN_ROOT);
	return inside == -ENOENT || inside == -EACCES || inside == -ENOTDIR;
}
