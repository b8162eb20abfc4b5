/* REMOVE, and the removal of trees that moving needs. The way down is a stack of descriptors of few levels, so that nothing is
 * looked up by a long name; a tree that is deeper has its deep folders moved up into the first level, where their turn comes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/files.h"

enum { LEVELS = 32 };

struct removal {
	int parent; /* borrowed; `path` is looked up from it */
	char path[FILES_PATH_MAX];
	size_t depth;
	struct {
		int fd;
		char name[256]; /* in the level above */
		bool progress;  /* something has gone since the folder was read from its start */
	} levels[LEVELS];
};

size_t removal_size(void)
{
	return sizeof(struct removal);
}

/* Goes down into `name` of the folder `fd`. */
static int enter(struct removal *r, int fd, const char *name)
{
	size_t size = strlen(name) + 1;
	int child;

	if (r->depth > 0 && size > sizeof r->levels[0].name)
		return ENAMETOOLONG;
	child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (child < 0)
		return errno;
	if (r->depth > 0)
		memcpy(r->levels[r->depth].name, name, size);
	r->levels[r->depth].fd = child;
	r->levels[r->depth].progress = false;
	r->depth++;
	return 0;
}

/* A file or an empty folder. ENOTEMPTY for others. */
static int remove_one(int parent, const char *name)
{
	if (unlinkat(parent, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return errno;
	if (unlinkat(parent, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno == EEXIST)
		return ENOTEMPTY;
	return errno == ENOTDIR ? EPERM : errno; /* what unlink said of a file */
}

int removal_start(struct removal *r, int parent, const char *path)
{
	int error = remove_one(parent, path);

	r->depth = 0;
	r->parent = parent;
	memcpy(r->path, path, strlen(path) + 1);
	return error == ENOTEMPTY ? EAGAIN : error;
}

/* Up to the first level, under a name that is free. */
static int lift(struct removal *r, int fd, const char *name)
{
	char temp[TEMP_NAME_SIZE];
	int error = temp_name(temp);

	if (error != 0)
		return error;
	return rename_new(fd, name, r->levels[0].fd, temp) < 0 ? errno : 0;
}

/* 0: gone; EAGAIN: gone down into it. */
static int remove_child(struct removal *r, const char *name)
{
	int fd = r->levels[r->depth - 1].fd, error = remove_one(fd, name);

	if (error == ENOTEMPTY && r->depth == LEVELS)
		return lift(r, fd, name);
	if (error == ENOTEMPTY) {
		error = enter(r, fd, name);
		if (error == 0)
			return EAGAIN;
	}
	return error == ENOENT ? 0 : error; /* somebody else was faster */
}

/* The top level has been read to its end. */
static int leave(struct removal *r)
{
	size_t at = r->depth - 1;
	int parent = at > 0 ? r->levels[at - 1].fd : r->parent;
	const char *name = at > 0 ? r->levels[at].name : r->path;

	if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
		/* Names may have been passed over while others went, or come newly. */
		if ((errno != ENOTEMPTY && errno != EEXIST) || !r->levels[at].progress)
			return errno;
		r->levels[at].progress = false;
		return lseek(r->levels[at].fd, 0, SEEK_SET) < 0 ? errno : EAGAIN;
	}
	close_fd(&r->levels[at].fd);
	r->depth--;
	if (at == 0)
		return 0;
	/* What was read of the level above is forgotten. */
	r->levels[at - 1].progress = true;
	return lseek(r->levels[at - 1].fd, 0, SEEK_SET) < 0 ? errno : EAGAIN;
}

int removal_step(struct removal *r, char *piece, size_t size)
{
	size_t at = 0, depth;
	const struct entry_head *e;
	ssize_t n;
	int error;

	if (r->depth == 0) {
		error = enter(r, r->parent, r->path);
		return error == 0 ? EAGAIN : error;
	}
	depth = r->depth;
	n = read_folder(r->levels[depth - 1].fd, piece, size < 8192 ? size : 8192);
	if (n < 0)
		return (int) -n;
	if (n == 0)
		return leave(r);
	while ((e = next_entry(piece, (size_t) n, &at)) != NULL) {
		error = remove_child(r, e->name);
		if (error != 0)
			return error; /* EAGAIN too: the rest of the piece is read again later */
		r->levels[depth - 1].progress = true;
	}
	return EAGAIN;
}

void removal_end(struct removal *r)
{
	while (r->depth > 0)
		close_fd(&r->levels[--r->depth].fd);
}

enum step remove_step(struct files *f, struct job *j)
{
	struct removal *r = j->state_map;
	int error;

	if (path_name(j->path)[0] == '\0')
		return done(f, j, EBUSY);
	if ((j->flags & FILES_RECURSIVE) == 0)
		return done(f, j, remove_one(AT_FDCWD, j->path));
	if (j->fresh) {
		r = job_state(j, sizeof *r);
		error = r == NULL ? ENOMEM : removal_start(r, AT_FDCWD, j->path);
	} else {
		error = removal_step(r, f->piece, sizeof f->piece);
	}
	return error == EAGAIN ? STEP_AGAIN : done(f, j, error);
}

void remove_release(struct files *f, struct job *j)
{
	(void) f;
	if (j->state_map != NULL)
		removal_end(j->state_map);
}
