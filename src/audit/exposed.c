#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "base/fd.h"
#include "base/mem.h"

enum { LINKS_MAX = 40, LEVELS_MAX = PATH_MAX };

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_source(const struct plan *plan, const struct stat *st)
{
	for (size_t i = 0; i < plan->mount_count; i++) {
		struct stat source;

		if (plan->mounts[i].writable && (fstat(plan->mounts[i].fd, &source) < 0 || same(&source, st)))
			return true;
	}
	return false;
}

/* From the folder, which is closed, up to the root: is one of them the source of a writable mount? */
static bool is_below_source(const struct plan *plan, int *at)
{
	struct stat here, above;

	if (fstat(*at, &here) < 0)
		return true;
	for (int i = 0; i < LEVELS_MAX; i++) {
		int up;

		if (is_source(plan, &here))
			return true;
		up = openat(*at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0 || fstat(up, &above) < 0) {
			fd_close(&up);
			return true;
		}
		fd_close(at);
		*at = up;
		if (same(&here, &above))
			return false; /* the root is its own parent */
		here = above;
	}
	return true;
}

/* path_resolution(7) name by name, so that every folder and every link on the way is seen. */
struct way {
	const struct plan *plan;
	int at;
	bool inside; /* `at` lies in a folder that the code can write to */
	bool led;    /* a link that lies in one was followed */
	int links;
	char *path; /* owned; what is still to be walked is `rest` in it */
	const char *rest;
};

static int begin(struct way *w, const char *path)
{
	int up;

	fd_close(&w->at);
	w->at = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	up = w->at < 0 ? -1 : fcntl(w->at, F_DUPFD_CLOEXEC, 0);
	if (up < 0)
		return -errno;
	w->inside = is_below_source(w->plan, &up);
	fd_close(&up);
	return 0;
}

static int follow(struct way *w, int link)
{
	char target[PATH_MAX], *joined;
	ssize_t n = readlinkat(link, "", target, sizeof target - 1);

	if (n <= 0)
		return n < 0 ? -errno : -ENOENT;
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	target[n] = '\0';
	w->led |= w->inside;
	joined = xasprintf("%s/%s", target, w->rest);
	if (w->rest[0] == '\0')
		joined[n] = '\0'; /* the last name: what it leads to need not be a folder */
	free(w->path);
	w->path = joined;
	w->rest = joined;
	return target[0] == '/' ? begin(w, "/") : 0;
}

/* 1: there is nothing of that name, or it is no folder: the end of the way. */
static int enter(struct way *w, const char *name, size_t size)
{
	char text[NAME_MAX + 1];
	cleanup_fd int fd = -EBADF;
	struct stat st;
	int up;

	if (size > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(text, name, size);
	text[size] = '\0';
	fd = openat(w->at, text, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return w->rest[strspn(w->rest, "/")] == '\0' ? 1 : -ENOENT;
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return follow(w, fd);
	w->inside |= is_source(w->plan, &st);
	if (!S_ISDIR(st.st_mode))
		return 1;
	fd_close(&w->at);
	w->at = take_fd(&fd);
	if (size != 2 || memcmp(name, "..", 2) != 0)
		return 0;
	up = fcntl(w->at, F_DUPFD_CLOEXEC, 0); /* out again, perhaps */
	w->inside = up < 0 || is_below_source(w->plan, &up);
	fd_close(&up);
	return 0;
}

static bool can_write(const struct plan *plan)
{
	for (size_t i = 0; i < plan->mount_count; i++)
		if (plan->mounts[i].writable)
			return true;
	return false;
}

static int walk(struct way *w, const char *path)
{
	int r;

	w->path = xstrdup(path);
	w->rest = w->path;
	r = begin(w, path);
	while (r == 0) {
		const char *name = w->rest + strspn(w->rest, "/");
		size_t n = strcspn(name, "/");

		if (n == 0)
			break;
		w->rest = name + n;
		r = enter(w, name, n);
	}
	free(w->path);
	fd_close(&w->at);
	return r < 0 ? r : 0;
}

bool audit_path_is_exposed(const struct plan *plan, const char *path)
{
	struct way w = {.plan = plan, .at = -EBADF};

	return can_write(plan) && (walk(&w, path) < 0 || w.inside || w.led);
}

bool audit_path_is_led(const struct plan *plan, const char *path)
{
	struct way w = {.plan = plan, .at = -EBADF};

	return can_write(plan) && (walk(&w, path) < 0 || w.led);
}
