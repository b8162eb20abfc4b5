/* The way out of a sized write mount. Two trees are walked side by side: the upper folder by tree_walk, the host's folder by a
 * ladder of O_PATH descriptors that goes down and up with it. A name is only ever used in a directory that is open, and nothing
 * is followed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/link.h"
#include "sandbox/sweep.h"
#include "sandbox/tree.h"
#include "sandbox/upper.h"

enum { OPEN_MAX_LEVELS = 64, COPY_SIZE = 256 * 1024, TEMP_SIZE = sizeof ".zwinger-0123456789abcdef", FIRSTS_MAX = 65536 };

/* A directory of the host's folder that corresponds to the one being walked. */
struct level {
	int fd;        /* O_PATH; -EBADF: closed for the time being, or could not be had */
	bool usable;   /* it could be had */
	bool set_mode; /* give it `mode` when all is in it */
	bool hands_group_down;
	mode_t mode;
	uint64_t ino;
};

/* The first name a file with several names was written to. */
struct first {
	uint64_t ino;     /* in the upper folder; 0: free */
	uint64_t written; /* on the host */
	char *path;
};

struct commit {
	const struct plan_mount *m;
	uid_t uid;
	gid_t gid;
	struct changes *changes;
	struct zw_error *e;
	uint64_t failures;
	uint64_t budget; /* bytes that may still be written: never more than the mount's size, whatever links there are */
	uint64_t place;  /* of the host's folder */
	int root;
	struct level *levels;
	size_t depth, room;
	struct first *firsts; /* hashed by inode, open addressing */
	size_t first_count, first_room;
	char *buffer;
};

static char *inside_path(const struct commit *c, const struct tree_dir *d, const char *name)
{
	return sweep_path(c->m->target, d->path, d->path_cut ? "..." : name);
}

static void note(struct commit *c, const struct tree_dir *d, const char *name, const char *what, const char *target)
{
	cleanup_free char *path = inside_path(c, d, name);

	changes_note_removed(c->changes, path, what, target);
}

static void fail(struct commit *c, const struct tree_dir *d, const char *name, int r)
{
	cleanup_free char *path = inside_path(c, d, name);

	changes_note_removed(c->changes, path, "could not be written back", NULL);
	if (c->failures++ == 0)
		(void) zw_errno(c->e, -r, "cannot write %s back to %s", path, c->m->source);
}

static int temp_name(char buf[TEMP_SIZE])
{
	uint64_t n;

	if (getrandom(&n, sizeof n, 0) != sizeof n)
		return -EIO;
	(void) snprintf(buf, TEMP_SIZE, ".zwinger-%016llx", (unsigned long long) n);
	return 0;
}

static int own(const struct commit *c, const struct level *l, int fd)
{
	if (c->uid == (uid_t) -1)
		return 0;
	return fchownat(fd, "", c->uid, l->hands_group_down ? (gid_t) -1 : c->gid, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Puts a thing that has the name `temp` in its place. A directory of the host that the run replaced by it goes first. */
static int move_in(const struct level *l, const char *temp, const char *name)
{
	int r = renameat(l->fd, temp, l->fd, name) < 0 ? -errno : 0;

	if (r == -EISDIR || r == -EEXIST || r == -ENOTEMPTY) {
		r = tree_remove(l->fd, name);
		if (r == 0 || r == -ENOENT)
			r = renameat(l->fd, temp, l->fd, name) < 0 ? -errno : 0;
	}
	if (r < 0)
		(void) unlinkat(l->fd, temp, 0);
	return r;
}

/* ---- regular files ---- */

static int open_source(int dirfd, const struct tree_node *n)
{
	cleanup_fd int fd = openat(dirfd, n->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	cleanup_fd int path = -EBADF;
	struct stat st;

	if (fd < 0 && errno == EACCES) { /* ours, but made unreadable */
		path = openat(dirfd, n->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (path >= 0 && tree_chmod(path, 0600) == 0)
			fd = openat(dirfd, n->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_ino == n->ino ? take_fd(&fd) : -ESTALE;
}

static int copy_range(struct commit *c, int in, int out, off_t at, off_t end)
{
	while (at < end) {
		size_t want = end - at < COPY_SIZE ? (size_t) (end - at) : COPY_SIZE;
		ssize_t n = pread(in, c->buffer, want, at), written = 0;

		if (n <= 0)
			return n < 0 ? -errno : 0;
		if ((uint64_t) n > c->budget)
			return -EFBIG;
		c->budget -= (uint64_t) n;
		while (written < n) {
			ssize_t w = pwrite(out, c->buffer + written, (size_t) (n - written), at + written);

			if (w < 0 && errno != EINTR)
				return -errno;
			written += w > 0 ? w : 0;
		}
		at += n;
	}
	return 0;
}

/* Holes stay holes: a sparse file may be far larger than the mount. */
static int copy_data(struct commit *c, int in, int out, uint64_t size)
{
	off_t at = 0;

	for (;;) {
		off_t data = lseek(in, at, SEEK_DATA), hole;
		int r;

		if (data < 0)
			break; /* ENXIO: no more */
		hole = lseek(in, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		r = copy_range(c, in, out, data, hole);
		if (r < 0)
			return r;
		at = hole;
	}
	return ftruncate(out, (off_t) size) < 0 ? -errno : 0;
}

static int link_anonymous(int fd, int dirfd, const char *name)
{
	char path[32];

	if (linkat(fd, "", dirfd, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOENT)
		return -errno;
	/* Before 6.10 that takes a capability; open(2), O_TMPFILE, gives this way for all others. */
	(void) snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, dirfd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* A file without a name where the file system has that (nothing of it is left if we are killed half-way); else under a temporary
 * one. */
static int new_file(const struct level *l, char temp[TEMP_SIZE], bool *ret_named)
{
	int fd = openat(l->fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	*ret_named = fd < 0;
	if (fd >= 0)
		return fd;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
		return -errno;
	fd = openat(l->fd, temp, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static int place_file(const struct level *l, int fd, bool named, const char *temp, const char *name)
{
	int r;

	if (!named) {
		r = link_anonymous(fd, l->fd, name);
		if (r != -EEXIST)
			return r;
		r = link_anonymous(fd, l->fd, temp);
		if (r < 0)
			return r;
	}
	return move_in(l, temp, name);
}

static int write_file(struct commit *c, const struct level *l, const struct tree_dir *d, const struct tree_node *n,
		      uint64_t *ret_ino)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
					  {.tv_sec = n->mtime / 1000000000, .tv_nsec = n->mtime % 1000000000}};
	cleanup_fd int in = open_source(d->fd, n);
	cleanup_fd int out = -EBADF;
	char temp[TEMP_SIZE];
	bool named = false;
	struct stat st;
	int r = in < 0 ? in : temp_name(temp);

	if (r < 0)
		return r;
	out = new_file(l, temp, &named);
	if (out < 0)
		return out;
	r = copy_data(c, in, out, n->size);
	if (r == 0)
		r = own(c, l, out);
	if (r == 0 && (fchmod(out, n->mode & 0777) < 0 || fstat(out, &st) < 0))
		r = -errno;
	(void) futimens(out, times); /* only a nicety */
	if (r == 0)
		r = place_file(l, out, named, temp, n->name);
	else if (named)
		(void) unlinkat(l->fd, temp, 0);
	if (r == 0)
		*ret_ino = st.st_ino;
	return r;
}

static struct first *first_slot(struct first *table, size_t room, uint64_t ino)
{
	size_t at = (size_t) (ino * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);

	while (table[at].ino != 0 && table[at].ino != ino)
		at = (at + 1) & (room - 1);
	return &table[at];
}

static void remember(struct commit *c, const struct tree_dir *d, const struct tree_node *n, uint64_t written)
{
	struct first *slot;

	if (c->first_count == FIRSTS_MAX || d->path_cut || d->path_size + strlen(n->name) + 2 > PATH_MAX)
		return; /* further names become copies, within the budget */
	if (c->first_count * 2 >= c->first_room) {
		size_t room = c->first_room == 0 ? 64 : c->first_room * 2;
		struct first *table = xcalloc(room, sizeof *table);

		for (size_t i = 0; i < c->first_room; i++)
			if (c->firsts[i].ino != 0)
				*first_slot(table, room, c->firsts[i].ino) = c->firsts[i];
		free(c->firsts);
		c->firsts = table;
		c->first_room = room;
	}
	slot = first_slot(c->firsts, c->first_room, n->ino);
	if (slot->ino != 0)
		return;
	*slot = (struct first){.ino = n->ino, .written = written, .path = sweep_path("", d->path, n->name)};
	c->first_count++;
}

/* Walks to the directory that holds `path`, name by name. *ret_name points into path. */
static int open_holder(const struct commit *c, char *path, const char **ret_name)
{
	cleanup_fd int dir = openat(c->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *name = path + 1, *slash = strchr(name, '/');

	while (dir >= 0 && slash != NULL) {
		int next;

		*slash = '\0';
		next = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		fd_close(&dir);
		dir = next;
		name = slash + 1;
		slash = strchr(name, '/');
	}
	if (dir < 0)
		return -errno;
	*ret_name = name;
	return take_fd(&dir);
}

/* Another name of a file that is written already. -ENOENT: it has to be copied. */
static int link_again(struct commit *c, const struct level *l, const struct tree_node *n)
{
	const struct first *first = c->first_room > 0 ? first_slot(c->firsts, c->first_room, n->ino) : NULL;
	cleanup_free char *path = NULL;
	cleanup_fd int holder = -EBADF;
	const char *name = NULL;
	char temp[TEMP_SIZE];
	struct stat st;
	int r;

	if (first == NULL || first->ino == 0)
		return -ENOENT;
	path = xstrdup(first->path);
	holder = open_holder(c, path, &name);
	r = holder < 0 ? holder : temp_name(temp);
	if (r < 0)
		return -ENOENT;
	if (linkat(holder, name, l->fd, temp, 0) < 0)
		return -ENOENT;
	if (fstatat(l->fd, temp, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != first->written) {
		(void) unlinkat(l->fd, temp, 0); /* another file has come there */
		return -ENOENT;
	}
	return move_in(l, temp, n->name);
}

static int commit_file(struct commit *c, const struct level *l, const struct tree_dir *d, const struct tree_node *n)
{
	uint64_t written = 0;
	int r = n->links > 1 ? link_again(c, l, n) : -ENOENT;

	if (r == -ENOENT) {
		r = write_file(c, l, d, n, &written);
		if (r == 0 && n->links > 1)
			remember(c, d, n, written);
	}
	if (r == 0 && (n->mode & (S_ISUID | S_ISGID)) != 0)
		note(c, d, n->name, (n->mode & S_ISUID) != 0 ? "set-user-ID bit" : "set-group-ID bit", NULL);
	return r;
}

/* ---- everything else ---- */

static int remove_old(const struct level *l, const char *name)
{
	int r = tree_remove(l->fd, name);

	return r == -ENOENT ? 0 : r;
}

static int commit_link(struct commit *c, const struct level *l, const struct tree_dir *d, const struct tree_node *n)
{
	struct link_place place = {
	    .root = c->root, .source = c->m->source, .dir = l->fd, .path = d->path_cut ? NULL : d->path, .depth = d->depth};
	char target[PATH_MAX], old[PATH_MAX], temp[TEMP_SIZE];
	ssize_t size = readlinkat(d->fd, n->name, target, sizeof target - 1), old_size;
	cleanup_fd int fd = -EBADF;
	int r;

	if (size < 0)
		return -errno;
	target[size] = '\0';
	old_size = readlinkat(l->fd, n->name, old, sizeof old);
	if (old_size == size && memcmp(old, target, (size_t) size) == 0)
		return 0; /* the owner's own link, only touched */
	if (link_judge(&place, target) != LINK_INSIDE) {
		note(c, d, n->name, "link that leads out", target);
		return remove_old(l, n->name);
	}
	r = temp_name(temp);
	if (r < 0)
		return r;
	if (symlinkat(target, l->fd, temp) < 0)
		return -errno;
	fd = openat(l->fd, temp, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : own(c, l, fd);
	if (r < 0) {
		(void) unlinkat(l->fd, temp, 0);
		return r;
	}
	return move_in(l, temp, n->name);
}

static int commit_dir(struct commit *c, const struct level *l, const struct tree_node *n)
{
	cleanup_fd int fd = openat(l->fd, n->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd >= 0) {
		if (fstat(fd, &st) < 0)
			return -errno;
		if (S_ISDIR(st.st_mode))
			return 0;
		r = remove_old(l, n->name);
		if (r < 0)
			return r;
		fd_close(&fd);
	}
	if (mkdirat(l->fd, n->name, 0700) < 0)
		return -errno;
	fd = openat(l->fd, n->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : own(c, l, fd);
}

/* A character device 0:0 is the overlay's mark for a name that was deleted; inside, nobody can make one in an overlay. */
static int commit_special(struct commit *c, const struct level *l, const struct tree_dir *d, const struct tree_node *n)
{
	bool whiteout = S_ISCHR(n->mode) && n->rdev == 0;

	if (!whiteout)
		note(c, d, n->name, S_ISFIFO(n->mode) ? "named pipe" : S_ISSOCK(n->mode) ? "socket" : "device", NULL);
	return remove_old(l, n->name);
}

static int commit_node(struct commit *c, const struct level *l, const struct tree_dir *d, const struct tree_node *n)
{
	if (S_ISDIR(n->mode))
		return commit_dir(c, l, n);
	if (S_ISREG(n->mode))
		return commit_file(c, l, d, n);
	if (S_ISLNK(n->mode))
		return commit_link(c, l, d, n);
	return commit_special(c, l, d, n);
}

/* ---- the ladder ---- */

/* Which attribute the overlay uses depends on who mounted it, and the other one is the program's to set: as root, whose overlay
 * has "trusted", it could have folders emptied that it may not empty itself. */
static bool is_opaque(const struct commit *c, int fd)
{
	const char *name = c->uid == (uid_t) -1 ? "user.overlay.opaque" : "trusted.overlay.opaque";
	char value[2];

	return fgetxattr(fd, name, value, sizeof value) == 1 && value[0] == 'y';
}

/* Makes sure that we can work in a directory, and finds out which mode it is to have in the end. */
static int prepare(struct level *l, const struct tree_dir *d)
{
	struct tree_id id;
	struct stat st;
	int r = tree_identify(l->fd, &id);

	if (r < 0)
		return r;
	if (fstat(l->fd, &st) < 0)
		return -errno;
	l->ino = id.ino;
	l->hands_group_down = (st.st_mode & S_ISGID) != 0;
	l->mode = d->depth == 0 ? st.st_mode & 07777 : (st.st_mode & 07000) | (d->mode & 0777);
	l->set_mode = l->mode != (st.st_mode & 07777);
	if ((st.st_mode & 0700) != 0700 && st.st_uid == geteuid()) {
		r = tree_chmod(l->fd, (st.st_mode & 07777) | 0700);
		l->set_mode = true;
	}
	return r;
}

static struct level *step_down(struct commit *c, const struct tree_dir *d)
{
	struct level l = {.fd = -EBADF};
	int r = -ESTALE;

	if (c->depth > d->depth)
		return &c->levels[d->depth]; /* a further batch of the same directory */
	if (d->depth == 0)
		l.fd = openat(c->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	else if (c->levels[d->depth - 1].fd >= 0)
		l.fd = openat(c->levels[d->depth - 1].fd, d->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (l.fd >= 0)
		r = prepare(&l, d);
	if (r == 0 && is_opaque(c, d->fd))
		r = tree_empty(l.fd);
	l.usable = r == 0;
	if (r < 0)
		fail(c, d, "", r);
	if (c->depth == c->room) {
		c->room = c->room == 0 ? 64 : c->room * 2;
		c->levels = xrealloc(c->levels, c->room, sizeof *c->levels);
	}
	c->levels[c->depth++] = l;
	if (c->depth > OPEN_MAX_LEVELS)
		fd_close(&c->levels[c->depth - OPEN_MAX_LEVELS].fd);
	return &c->levels[c->depth - 1];
}

static void step_up(void *ctx, const struct tree_dir *d, int parent_of_upper)
{
	struct commit *c = ctx;
	struct level *l, *parent;

	(void) parent_of_upper;
	if (c->depth != d->depth + 1)
		return; /* it could not be read, and was never shown */
	l = &c->levels[c->depth - 1];
	parent = c->depth > 1 ? l - 1 : NULL;
	if (parent != NULL && parent->fd < 0 && l->fd >= 0) {
		int fd = tree_open_parent(l->fd, &(struct tree_id){.ino = parent->ino, .place = c->place}, O_PATH);

		if (fd >= 0)
			parent->fd = fd;
	}
	if (l->fd >= 0 && l->usable && l->set_mode) {
		int r = tree_chmod(l->fd, l->mode);

		if (r < 0)
			fail(c, d, "", r);
	}
	fd_close(&l->fd);
	c->depth--;
}

static int commit_level(void *ctx, const struct tree_dir *d, struct tree_node *nodes, size_t count)
{
	struct commit *c = ctx;
	const struct level *l = step_down(c, d);

	for (size_t i = 0; i < count; i++) {
		int r = !l->usable || l->fd < 0 ? -ESTALE : commit_node(c, l, d, &nodes[i]);

		if (r < 0) {
			fail(c, d, nodes[i].name, r);
			nodes[i].descend = false;
		}
	}
	return 0;
}

static void commit_done(struct commit *c)
{
	while (c->depth > 0)
		fd_close(&c->levels[--c->depth].fd);
	for (size_t i = 0; i < c->first_room; i++)
		free(c->firsts[i].path);
	free(c->levels);
	free(c->firsts);
	free(c->buffer);
}

int upper_commit(int upper, const struct plan_mount *m, uid_t uid, gid_t gid, struct changes *changes, struct zw_error *e)
{
	struct commit c = {.m = m, .uid = uid, .gid = gid, .changes = changes, .e = e, .budget = m->size};
	struct tree_visitor visitor = {.ctx = &c, .dir = commit_level, .leave = step_up};
	cleanup_fd int root = openat(m->fd, ".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct tree_gaps gaps;
	struct tree_id id;
	int r;

	if (root < 0)
		return zw_errno(e, errno, "cannot open %s to write back to it", m->source);
	r = tree_identify(root, &id);
	if (r < 0)
		return zw_errno(e, -r, "cannot look at %s", m->source);
	if (c.budget <= UINT64_MAX - 4095)
		c.budget = (c.budget + 4095) & ~UINT64_C(4095); /* tmpfs counts pages */
	c.root = root;
	c.place = id.place;
	c.buffer = xcalloc(1, COPY_SIZE);
	r = tree_walk(upper, &visitor, 0, true, &gaps);
	commit_done(&c);
	if (r == 0 && gaps.count > 0 && c.failures == 0)
		r = zw_errno(e, gaps.err, "cannot read %s/%s to write it back", m->target, gaps.path);
	if (r == 0 && c.failures > 0)
		r = e != NULL && e->code < 0 ? e->code : -EIO;
	if (r < 0 && c.failures > 1)
		(void) zw_context(e, "%llu files could not be written back; the first", (unsigned long long) c.failures);
	return r;
}
