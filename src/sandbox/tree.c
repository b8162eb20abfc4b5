#include "sandbox/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/statx.h"
#include "kernel/uapi.h"

enum { TREE_OPEN_MAX = 64, READ_SIZE = 64 * 1024 };

/* A subdirectory still to be visited. */
struct pending {
	uint64_t ino;
	size_t name; /* into walk.names */
	uint32_t cookie;
};

struct frame {
	int fd; /* -EBADF: closed for the time being, or lost */
	uint32_t cookie;
	uint64_t ino;
	size_t path_size;
	size_t name;              /* its own, into walk.names */
	size_t first, next, last; /* into walk.pending */
	size_t names_base;        /* where its subdirectories' names begin */
	gid_t gid;
	uint16_t mode;
	uint16_t restore; /* the mode to give back on leaving */
	bool forced, read_all, shown, path_cut;
};

/* Both stacks of names grow and shrink with the frames, so that a level of depth costs no allocation of its own. */
struct walk {
	const struct tree_visitor *visitor;
	struct tree_gaps *gaps;
	bool force;
	uint64_t place;
	struct frame *frames;
	size_t depth, frame_room;
	struct pending *pending;
	size_t pending_count, pending_room;
	char *names;
	size_t names_size, names_room;
	struct tree_node *nodes; /* of the directory being read */
	size_t node_count, node_room;
	char *batch; /* their names */
	size_t batch_size, batch_room;
	char *path;
	size_t path_room;
	char *buffer;
};

static void grow(void **p, size_t *room, size_t need, size_t size)
{
	size_t want = *room == 0 ? 64 : *room;

	if (need <= *room)
		return;
	while (want < need)
		want *= 2;
	*p = xrealloc(*p, want, size);
	*room = want;
}

static int stat_node(int fd, const char *name, unsigned flags, struct statx *ret)
{
	unsigned mask = STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME | STATX_CTIME | STATX_NLINK | STATX_UID |
			STATX_GID | STATX_MNT_ID;

	return statx(fd, name, (int) flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, mask, ret) < 0 ? -errno : 0;
}

/* The mount tells more than the device: a btrfs subvolume has a device of its own and can be made by anybody, and a bind mount
 * has none. */
static uint64_t place_of(const struct statx *st)
{
	if ((st->stx_mask & STATX_MNT_ID) != 0)
		return st->stx_mnt_id;
	return (uint64_t) st->stx_dev_major << 32 | st->stx_dev_minor;
}

int tree_identify(int fd, struct tree_id *ret)
{
	struct statx st;
	int r = stat_node(fd, "", AT_EMPTY_PATH, &st);

	if (r < 0)
		return r;
	*ret = (struct tree_id){.ino = st.stx_ino, .place = place_of(&st)};
	return 0;
}

bool tree_same(const struct tree_id *a, const struct tree_id *b)
{
	return a->ino == b->ino && a->place == b->place;
}

static int check_fd(int fd, const struct tree_id *want)
{
	struct tree_id is;
	int r = tree_identify(fd, &is);

	if (r < 0)
		return r;
	return tree_same(&is, want) ? 0 : -ESTALE;
}

int tree_open_parent(int fd, const struct tree_id *want, int flags)
{
	cleanup_fd int parent = openat(fd, "..", flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (parent < 0)
		return -errno;
	r = check_fd(parent, want);
	return r < 0 ? r : take_fd(&parent);
}

int tree_open_node(int dirfd, const char *name, const struct tree_id *want)
{
	cleanup_fd int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = check_fd(fd, want);
	return r < 0 ? r : take_fd(&fd);
}

/* fchmod(2) refuses O_PATH descriptors, and what may not be read cannot be opened otherwise. */
int tree_chmod(int fd, mode_t mode)
{
	char path[32];

	if (syscall(__NR_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOSYS)
		return -errno;
	/* Before 6.6: through the link of our own descriptor in procfs, as the C library does it. */
	(void) snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return chmod(path, mode) < 0 ? -errno : 0; /* lint: by-name; the link is ours */
}

static struct frame *top(struct walk *w)
{
	return &w->frames[w->depth - 1];
}

static void describe(const struct walk *w, const struct frame *f, struct tree_dir *ret)
{
	*ret = (struct tree_dir){
	    .fd = f->fd,
	    .path = w->path,
	    .name = w->names + f->name,
	    .path_size = f->path_size,
	    .path_cut = f->path_cut,
	    .depth = (uint64_t) (f - w->frames),
	    .ino = f->ino,
	    .cookie = f->cookie,
	    .gid = f->gid,
	    .mode = f->mode,
	};
	w->path[f->path_size] = '\0';
}

static void note_gap(struct walk *w, const struct frame *f, const char *name, int err)
{
	if (w->gaps->count++ > 0)
		return;
	w->gaps->err = err;
	(void) snprintf(w->gaps->path, sizeof w->gaps->path, "%.*s%s%s", (int) f->path_size, w->path, f->path_size > 0 ? "/" : "",
			name);
}

/* Appends the name to the path of the parent, up to the longest path told. */
static void extend_path(struct walk *w, const struct frame *parent, const char *name, struct frame *f)
{
	size_t n = strlen(name), at = parent->path_size, slash = at > 0;

	f->path_size = at;
	f->path_cut = parent->path_cut || at + slash + n > TREE_PATH_MAX;
	if (f->path_cut)
		return;
	grow((void **) &w->path, &w->path_room, at + slash + n + 1, 1);
	if (slash)
		w->path[at] = '/';
	memcpy(w->path + at + slash, name, n + 1);
	f->path_size = at + slash + n;
}

static size_t keep_name(struct walk *w, const char *name)
{
	size_t n = strlen(name) + 1, at = w->names_size;

	grow((void **) &w->names, &w->names_room, at + n, 1);
	memcpy(w->names + at, name, n);
	w->names_size += n;
	return at;
}

static void push(struct walk *w, struct frame f)
{
	grow((void **) &w->frames, &w->frame_room, w->depth + 1, sizeof f);
	f.first = f.next = f.last = w->pending_count;
	f.names_base = w->names_size;
	w->frames[w->depth++] = f;
	/* The root stays open: whatever is moved meanwhile, there is a place to go on from. A directory that is not read to its
	 * end would lose its position. */
	if (w->depth > TREE_OPEN_MAX) {
		struct frame *old = &w->frames[w->depth - TREE_OPEN_MAX];

		if (old->read_all)
			fd_close(&old->fd);
	}
}

/* Back to the parent. Its fd is open again afterwards, unless somebody moved our directory. */
static void pop(struct walk *w)
{
	struct frame *f = top(w), *parent = w->depth > 1 ? f - 1 : NULL;
	struct tree_dir d;

	if (parent != NULL && parent->fd < 0 && f->fd >= 0) {
		struct tree_id want = {.ino = parent->ino, .place = w->place};
		int fd = tree_open_parent(f->fd, &want, O_RDONLY);

		if (fd >= 0)
			parent->fd = fd;
		else
			note_gap(w, parent, "", -fd);
	}
	if (w->visitor->leave != NULL) {
		describe(w, f, &d);
		w->visitor->leave(w->visitor->ctx, &d, parent != NULL ? parent->fd : -EBADF);
	}
	if (f->forced && f->fd >= 0)
		(void) fchmod(f->fd, f->restore); /* ours until now; the visitor may have removed it */
	fd_close(&f->fd);
	w->pending_count = f->first;
	w->names_size = f->names_base;
	w->depth--;
}

static void add_node(struct walk *w, const struct dirent64 *entry)
{
	size_t n = strlen(entry->d_name) + 1;

	grow((void **) &w->batch, &w->batch_room, w->batch_size + n, 1);
	memcpy(w->batch + w->batch_size, entry->d_name, n);
	grow((void **) &w->nodes, &w->node_room, w->node_count + 1, sizeof *w->nodes);
	w->nodes[w->node_count++] = (struct tree_node){.size = w->batch_size}; /* an offset until all are there */
	w->batch_size += n;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int read_names(struct walk *w, struct frame *f)
{
	w->node_count = w->batch_size = 0;
	while (w->node_count < TREE_BATCH) {
		ssize_t n = getdents64(f->fd, (void *) w->buffer, READ_SIZE);

		if (n < 0)
			return -errno;
		if (n == 0) {
			f->read_all = true;
			break;
		}
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *entry = (const void *) (w->buffer + at);

			if (!is_dots(entry->d_name))
				add_node(w, entry);
			at += entry->d_reclen;
		}
	}
	for (size_t i = 0; i < w->node_count; i++)
		w->nodes[i].name = w->batch + w->nodes[i].size;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct tree_node *) a)->name, ((const struct tree_node *) b)->name);
}

static int64_t nanoseconds(const struct statx_timestamp *t)
{
	return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

static void fill_node(struct walk *w, struct tree_node *n, const struct statx *st)
{
	n->ino = st->stx_ino;
	n->size = st->stx_size;
	n->mtime = nanoseconds(&st->stx_mtime);
	n->ctime = nanoseconds(&st->stx_ctime);
	n->uid = st->stx_uid;
	n->gid = st->stx_gid;
	n->links = st->stx_nlink;
	n->rdev = (dev_t) st->stx_rdev_major << 32 | st->stx_rdev_minor;
	n->mode = st->stx_mode;
	n->foreign = place_of(st) != w->place;
	n->descend = S_ISDIR(st->stx_mode) && !n->foreign;
}

static void stat_nodes(struct walk *w, struct frame *f)
{
	size_t kept = 0;

	for (size_t i = 0; i < w->node_count; i++) {
		struct statx st;
		int r = stat_node(f->fd, w->nodes[i].name, 0, &st);

		if (r < 0) {
			if (r != -ENOENT)
				note_gap(w, f, w->nodes[i].name, -r);
			continue;
		}
		w->nodes[kept].name = w->nodes[i].name;
		fill_node(w, &w->nodes[kept++], &st);
	}
	w->node_count = kept;
}

/* Reads the next batch of the top directory, shows it, and keeps what is to be descended into. */
static int load(struct walk *w)
{
	struct frame *f = top(w);
	struct tree_dir d;
	int r = read_names(w, f);

	if (r < 0) {
		note_gap(w, f, "", -r);
		f->read_all = f->shown = true;
		return 0;
	}
	describe(w, f, &d);
	d.whole = f->read_all && !f->shown;
	if (d.whole && w->node_count > 1)
		qsort(w->nodes, w->node_count, sizeof *w->nodes, compare_names);
	f->shown = true;
	stat_nodes(w, f);
	r = w->visitor->dir(w->visitor->ctx, &d, w->nodes, w->node_count);
	if (r < 0)
		return r;
	w->pending_count = f->next = f->first; /* what the batch before left has been visited */
	w->names_size = f->names_base;
	for (size_t i = 0; i < w->node_count; i++) {
		const struct tree_node *n = &w->nodes[i];

		if (!n->descend)
			continue;
		grow((void **) &w->pending, &w->pending_room, w->pending_count + 1, sizeof *w->pending);
		w->pending[w->pending_count++] =
		    (struct pending){.ino = n->ino, .name = keep_name(w, n->name), .cookie = n->cookie};
	}
	f->last = w->pending_count;
	return 0;
}

/* A directory of our own whose mode keeps us out: opened up, its mode given back by pop(). */
static int open_denied(int dirfd, const char *name, mode_t *ret_restore)
{
	cleanup_fd int path = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r, fd;

	if (path < 0 || fstat(path, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EACCES;
	r = tree_chmod(path, (st.st_mode & 07777) | 0700);
	if (r < 0)
		return r;
	fd = openat(path, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_restore = st.st_mode & 07777;
	return fd;
}

static int open_dir(struct walk *w, int dirfd, const char *name, struct frame *f)
{
	mode_t restore = 0;

	f->fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (f->fd >= 0)
		return 0;
	if (errno != EACCES || !w->force)
		return -errno;
	f->fd = open_denied(dirfd, name, &restore);
	if (f->fd < 0)
		return f->fd;
	f->forced = true;
	f->restore = (uint16_t) restore;
	return 0;
}

static int enter(struct walk *w, int dirfd, const char *name, struct frame *f)
{
	struct statx st;
	int r = open_dir(w, dirfd, name, f);

	if (r == 0)
		r = stat_node(f->fd, "", AT_EMPTY_PATH, &st);
	if (r < 0)
		return r;
	f->ino = st.stx_ino;
	f->gid = st.stx_gid;
	f->mode = f->forced ? (uint16_t) (S_IFDIR | f->restore) : st.stx_mode;
	if (w->depth == 0)
		w->place = place_of(&st);
	if (place_of(&st) != w->place)
		return -EXDEV;
	/* Readable without being searchable: the names can be had, but nothing of what they name. */
	if (w->force && !f->forced && (st.stx_mode & 0500) != 0500 && st.stx_uid == geteuid()) {
		f->restore = st.stx_mode & 07777;
		f->forced = fchmod(f->fd, f->restore | 0700) == 0;
	}
	return 0;
}

static void descend(struct walk *w)
{
	struct frame *parent = top(w), f = {.fd = -EBADF};
	const struct pending *p = &w->pending[parent->next++];
	const char *name = w->names + p->name;
	int r;

	f.cookie = p->cookie;
	f.name = p->name;
	if (parent->fd < 0)
		return; /* lost, and noted */
	r = enter(w, parent->fd, name, &f);
	if (r == 0 && f.ino != p->ino)
		r = -ESTALE;
	if (r < 0) {
		if (f.forced && f.fd >= 0)
			(void) fchmod(f.fd, f.restore);
		fd_close(&f.fd);
		if (r != -ENOENT)
			note_gap(w, parent, name, -r);
		return;
	}
	extend_path(w, parent, name, &f);
	push(w, f);
}

static int run(struct walk *w)
{
	while (w->depth > 0) {
		struct frame *f = top(w);
		int r = 0;

		if (f->next < f->last)
			descend(w);
		else if (!f->read_all)
			r = load(w);
		else
			pop(w);
		if (r < 0)
			return r;
	}
	return 0;
}

int tree_walk(int fd, const struct tree_visitor *visitor, uint32_t cookie, bool force, struct tree_gaps *ret_gaps)
{
	struct walk w = {.visitor = visitor, .gaps = ret_gaps, .force = force};
	struct frame root = {.fd = -EBADF, .cookie = cookie};
	int r;

	*ret_gaps = (struct tree_gaps){0};
	grow((void **) &w.path, &w.path_room, 1, 1);
	w.path[0] = '\0';
	w.buffer = xcalloc(1, READ_SIZE);
	root.name = keep_name(&w, "");
	r = enter(&w, fd, ".", &root);
	if (r == 0) {
		push(&w, root);
		r = run(&w);
	} else {
		note_gap(&w, &root, "", -r);
		fd_close(&root.fd);
		r = 0;
	}
	while (w.depth > 0) { /* ended early by the visitor */
		if (top(&w)->forced && top(&w)->fd >= 0)
			(void) fchmod(top(&w)->fd, top(&w)->restore);
		fd_close(&top(&w)->fd);
		w.depth--;
	}
	free(w.frames);
	free(w.pending);
	free(w.names);
	free(w.nodes);
	free(w.batch);
	free(w.path);
	free(w.buffer);
	return r;
}

int tree_unlink(int dirfd, const char *name, int flags)
{
	struct stat st;
	int r;

	if (unlinkat(dirfd, name, flags) == 0)
		return 0;
	if (errno != EACCES || fstat(dirfd, &st) < 0 || st.st_uid != geteuid())
		return -errno;
	/* A directory of our own that was made read-only. */
	if (fchmod(dirfd, (st.st_mode & 07777) | 0700) < 0)
		return -EACCES;
	r = unlinkat(dirfd, name, flags) < 0 ? -errno : 0;
	(void) fchmod(dirfd, st.st_mode & 07777);
	return r;
}

static void note_failure(int *err, int r)
{
	if (r < 0 && r != -ENOENT && *err == 0)
		*err = -r;
}

static int remove_dir(void *ctx, const struct tree_dir *d, struct tree_node *nodes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!nodes[i].descend)
			note_failure(ctx, tree_unlink(d->fd, nodes[i].name, 0));
	return 0;
}

static void remove_left(void *ctx, const struct tree_dir *d, int parent)
{
	if (d->depth > 0 && parent >= 0)
		note_failure(ctx, tree_unlink(parent, d->name, AT_REMOVEDIR));
}

int tree_empty(int fd)
{
	int err = 0;
	struct tree_visitor visitor = {.ctx = &err, .dir = remove_dir, .leave = remove_left};
	struct tree_gaps gaps;
	int r = tree_walk(fd, &visitor, 0, true, &gaps);

	if (r < 0)
		return r;
	if (err == 0 && gaps.count > 0)
		err = gaps.err;
	return -err;
}

int tree_remove(int dirfd, const char *name)
{
	cleanup_fd int fd = -EBADF;
	mode_t restore = 0;
	int r = tree_unlink(dirfd, name, 0);

	if (r != -EISDIR)
		return r;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != EACCES)
		return -errno;
	if (fd < 0)
		fd = open_denied(dirfd, name, &restore);
	if (fd < 0)
		return fd;
	r = tree_empty(fd);
	return r < 0 ? r : tree_unlink(dirfd, name, AT_REMOVEDIR);
}
