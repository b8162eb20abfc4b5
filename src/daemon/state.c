#include "daemon/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

char *state_default(struct zw_error *e)
{
	const char *base = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return xstrdup("/var/lib/zwinger");
	if (base != NULL && base[0] == '/')
		return xasprintf("%s/zwinger", base);
	if (home != NULL && home[0] == '/')
		return xasprintf("%s/.local/state/zwinger", home);
	(void) zw_error(e, ENOENT, "neither XDG_STATE_HOME nor HOME says where the state belongs; name a directory with --state");
	return NULL;
}

/* Parents as others make them, the directory itself for its owner alone; the umask is that of the program. */
static int make_directories(const char *path, struct zw_error *e)
{
	cleanup_free char *copy = xstrdup(path);

	for (char *slash = copy + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			return zw_errno(e, errno, "cannot make the directory %s", copy);
		*slash = '/';
	}
	if (mkdir(copy, 0700) < 0 && errno != EEXIST)
		return zw_errno(e, errno, "cannot make the state directory %s", copy);
	return 0;
}

static int judge(int fd, const char *path, struct zw_error *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return zw_errno(e, errno, "cannot look at the state directory %s", path);
	if (st.st_uid != geteuid())
		return zw_error(e, EPERM, "the state directory %s belongs to user %u, not to the one who starts the daemon (%u)",
				path, (unsigned) st.st_uid, (unsigned) geteuid());
	if ((st.st_mode & 022) != 0)
		return zw_error(e, EPERM, "others may write to the state directory %s; take that away with chmod go-w", path);
	return 0;
}

int state_open(const char *path, struct state *ret, struct zw_error *e)
{
	cleanup_fd int fd = -EBADF;
	char real[PATH_MAX];
	int r;

	if (path[0] == '\0')
		return zw_error(e, EINVAL, "the state directory has an empty name");
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		r = make_directories(path, e);
		if (r < 0)
			return r;
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return zw_errno(e, errno, "cannot open the state directory %s", path);
	r = judge(fd, path, e);
	if (r < 0)
		return r;
	if (realpath(path, real) == NULL)
		return zw_errno(e, errno, "cannot resolve the state directory %s", path);
	*ret = (struct state){.path = xstrdup(real), .fd = take_fd(&fd), .lock_fd = -EBADF};
	return 0;
}

int state_lock(struct state *s, struct zw_error *e)
{
	cleanup_fd int fd = openat(s->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	char pid[24];
	ssize_t n;

	if (fd < 0)
		return zw_errno(e, errno, "cannot open %s/lock", s->path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno != EWOULDBLOCK)
		return zw_errno(e, errno, "cannot lock %s/lock", s->path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		n = pread(fd, pid, sizeof pid - 1, 0);
		pid[n > 0 ? n : 0] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		return zw_error(e, EBUSY,
				"another daemon (process %s) works in %s; end it, or give this one a --state of its own",
				pid[0] != '\0' ? pid : "unknown", s->path);
	}
	n = snprintf(pid, sizeof pid, "%d\n", (int) getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t) n, 0) != n)
		return zw_errno(e, errno != 0 ? errno : EIO, "cannot write to %s/lock", s->path);
	s->lock_fd = take_fd(&fd);
	return 0;
}

void state_done(struct state *s)
{
	fd_close(&s->lock_fd);
	fd_close(&s->fd);
	free(s->path);
	s->path = NULL;
}

int state_write_file(int dirfd, const char *path, const void *data, size_t size, struct zw_error *e)
{
	cleanup_free char *temporary = xasprintf("%s.%d.new", path, (int) getpid());
	cleanup_fd int fd = -EBADF;
	int r;

	(void) unlinkat(dirfd, temporary, 0); /* of a process of that id that was killed */
	fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return zw_errno(e, errno, "cannot make %s", path);
	r = fd_write_all(fd, data, size);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dirfd, temporary, dirfd, path) < 0)
		r = -errno;
	if (r == 0)
		return 0;
	(void) unlinkat(dirfd, temporary, 0);
	return zw_errno(e, -r, "cannot write %s", path);
}
