#include "sandbox/link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/tree.h"

enum { LINKS_MAX = 40 }; /* as many as the kernel follows, path_resolution(7) */

/* The next name of a path: its length, 0 at the end. *p moves behind it. */
static size_t next_name(const char **p, const char **ret_name)
{
	size_t n;

	*p += strspn(*p, "/");
	n = strcspn(*p, "/");
	*ret_name = *p;
	*p += n;
	return n;
}

static bool is_dot(const char *name, size_t n)
{
	return n == 1 && name[0] == '.';
}

static bool is_dot_dot(const char *name, size_t n)
{
	return n == 2 && name[0] == '.' && name[1] == '.';
}

/* The same, past every "." */
static size_t next_real_name(const char **p, const char **ret_name)
{
	size_t n = next_name(p, ret_name);

	while (is_dot(*ret_name, n))
		n = next_name(p, ret_name);
	return n;
}

/* What is left of an absolute `path` below the folder `source`, NULL when it is not below it. A ".." on the way there is no
 * match: what it means depends on links of the host. */
static const char *below(const char *source, const char *path)
{
	for (;;) {
		const char *want, *have, *behind = path;
		size_t n = next_real_name(&source, &want), m;

		if (n == 0)
			return path;
		m = next_real_name(&behind, &have);
		if (m != n || memcmp(want, have, n) != 0 || is_dot_dot(have, m))
			return NULL;
		path = behind;
	}
}

/* Does the path, taken by its names alone, stay at or below the directory `depth` levels above its start? */
static bool stays(const char *path, uint64_t depth)
{
	const char *name;

	for (;;) {
		size_t n = next_real_name(&path, &name);

		if (n == 0)
			return true;
		if (!is_dot_dot(name, n))
			depth++;
		else if (depth-- == 0)
			return false;
	}
}

static bool is_system_name(const char *name, size_t n)
{
	if (n >= 3 && memcmp(name, "lib", 3) == 0) {
		for (size_t i = 3; i < n; i++)
			if ((name[i] < '0' || name[i] > '9') && name[i] != 'x')
				return false;
		return true; /* lib, lib32, lib64, libx32 */
	}
	return (n == 3 && (memcmp(name, "usr", 3) == 0 || memcmp(name, "bin", 3) == 0)) ||
	       (n == 4 && memcmp(name, "sbin", 4) == 0);
}

static enum link_verdict judge_absolute(const char *path)
{
	const char *name;
	size_t n = next_real_name(&path, &name);

	return n > 0 && is_system_name(name, n) && stays(path, 0) ? LINK_SYSTEM : LINK_OUTSIDE;
}

struct resolver {
	const struct link_place *place;
	struct tree_id root;
	int at;            /* the directory reached */
	uint64_t missing;  /* levels of names below it that do not exist */
	unsigned followed; /* links */
	char *path;        /* owned; what is still to be walked is `rest` in it */
	const char *rest;
};

static int restart(struct resolver *r)
{
	fd_close(&r->at);
	r->at = openat(r->place->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return r->at < 0 ? -errno : 0;
}

/* "..": -EXDEV when that is out of the folder. */
static int climb(struct resolver *r)
{
	struct tree_id here, above;
	cleanup_fd int up = -EBADF;
	int e;

	if (r->missing > 0) {
		r->missing--;
		return 0;
	}
	e = tree_identify(r->at, &here);
	if (e < 0)
		return e;
	if (tree_same(&here, &r->root))
		return -EXDEV;
	up = openat(r->at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (up < 0)
		return -errno;
	e = tree_identify(up, &above);
	if (e < 0)
		return e;
	if (above.place != r->root.place)
		return -EXDEV;
	fd_close(&r->at);
	r->at = take_fd(&up);
	return 0;
}

/* Puts the text of a link in front of what is still to be walked. `ret` is the verdict when the return value is 1. */
static int follow(struct resolver *r, int link, enum link_verdict *ret)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(link, "", target, sizeof target - 1);
	char *joined;

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (++r->followed > LINKS_MAX) {
		*ret = LINK_INSIDE; /* ELOOP: it leads nowhere */
		return 1;
	}
	joined = xasprintf("%s/%s", target, r->rest);
	free(r->path);
	r->path = joined;
	r->rest = joined;
	if (target[0] != '/')
		return 0;
	r->rest = below(r->place->source, joined);
	if (r->rest == NULL) {
		*ret = judge_absolute(joined);
		return 1;
	}
	return restart(r);
}

static int step(struct resolver *r, const char *name, size_t n, enum link_verdict *ret)
{
	char text[NAME_MAX + 1];
	cleanup_fd int fd = -EBADF;
	struct tree_id id;
	struct stat st;
	int e;

	if (n > NAME_MAX) {
		*ret = LINK_INSIDE; /* ENAMETOOLONG, today and for ever */
		return 1;
	}
	if (r->missing > 0) {
		r->missing++;
		return 0;
	}
	memcpy(text, name, n);
	text[n] = '\0';
	fd = openat(r->at, text, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == EACCES)) {
		r->missing = 1;
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	e = tree_identify(fd, &id);
	if (e < 0)
		return e;
	if (id.place != r->root.place)
		return -EXDEV;
	if (S_ISLNK(st.st_mode))
		return follow(r, fd, ret);
	if (!S_ISDIR(st.st_mode)) {
		r->missing = 1; /* the end, or ENOTDIR for now */
		return 0;
	}
	fd_close(&r->at);
	r->at = take_fd(&fd);
	return 0;
}

/* path_resolution(7) in user space, confined to the folder. What cannot be looked at counts as outside. */
static enum link_verdict resolve(const struct link_place *place, const char *target)
{
	struct resolver r = {.place = place, .at = -EBADF};
	enum link_verdict verdict = LINK_INSIDE;
	int e = tree_identify(place->root, &r.root);

	r.path = xstrdup(target);
	r.rest = r.path;
	if (target[0] == '/') {
		r.rest = below(place->source, r.path); /* not NULL: the caller has looked */
		e = e < 0 ? e : restart(&r);
	} else {
		r.at = openat(place->dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
		e = r.at < 0 ? -errno : e;
	}
	while (e == 0) {
		const char *name;
		size_t n = next_real_name(&r.rest, &name);

		if (n == 0)
			break;
		e = is_dot_dot(name, n) ? climb(&r) : step(&r, name, n, &verdict);
	}
	free(r.path);
	fd_close(&r.at);
	return e < 0 ? LINK_OUTSIDE : verdict;
}

/* One call settles what exists and is reached by relative links only, which is nearly everything. */
static bool beneath(const struct link_place *place, const char *target)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
	char path[PATH_MAX];
	size_t n = place->path != NULL ? strlen(place->path) : sizeof path, m = strlen(target);
	cleanup_fd int fd = -EBADF;

	if (n + 1 + m >= sizeof path)
		return false;
	memcpy(path, place->path, n);
	path[n] = '/';
	memcpy(path + n + 1, target, m + 1);
	fd = (int) syscall(SYS_openat2, place->root, n > 0 ? path : path + 1, &how, sizeof how);
	return fd >= 0;
}

enum link_verdict link_judge(const struct link_place *place, const char *target)
{
	const char *rest = target;
	bool absolute = target[0] == '/';

	if (absolute) {
		rest = below(place->source, target);
		if (rest == NULL)
			return judge_absolute(target);
	}
	if (!stays(rest, absolute ? 0 : place->depth))
		return LINK_OUTSIDE;
	if (!absolute && beneath(place, target))
		return LINK_INSIDE;
	return resolve(place, target);
}
