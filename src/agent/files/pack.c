/* PACK: a tree as a stream of records (archive.h), up to where another file system is mounted. Sockets and devices are left out,
 * and what is gone by the time that its turn comes. A step writes what is ready, or makes one more record. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/archive.h"
#include "agent/files/files.h"

enum { LEVELS = 128, SAME_MAX = 8192, SAME_TEXT = 1 << 20 };

struct level {
	int fd;
	bool widened;
	off_t next; /* where reading goes on when the level below is done */
	size_t path_size;
	struct stat st;
};

struct pack {
	size_t depth;
	dev_t device;
	struct level levels[LEVELS];
	size_t piece_size, piece_at; /* of the top level's entries */
	uint64_t size, at;           /* of the file at hand, in j->file */
	char path[FILES_PATH_MAX];   /* below the root, without a leading slash */
	/* Files with further names. What does not fit is packed as separate files. */
	size_t same_count, same_used;
	struct {
		ino_t inode;
		uint32_t text;
	} same[SAME_MAX];
	bool ended;
	size_t out_size, out_at;
	char same_text[SAME_TEXT];
	char piece[8192];
	char out[sizeof(struct archive_head) + 2 * FILES_PATH_MAX + ARCHIVE_DATA_MAX];
};

/* ---- Records. ---- */

static void put(struct pack *p, const void *data, size_t size)
{
	memcpy(p->out + p->out_size, data, size);
	p->out_size += size;
}

static struct archive_head head_of(enum archive_type type, const struct stat *st)
{
	return (struct archive_head){.type = (uint16_t) type,
				     .mode = (uint16_t) (st->st_mode & ARCHIVE_MODE),
				     .mtime = st->st_mtim.tv_sec,
				     .mtime_nsec = (uint32_t) st->st_mtim.tv_nsec};
}

static void put_record(struct pack *p, struct archive_head *h, const char *text)
{
	h->path_size = (uint16_t) strlen(p->path);
	h->text_size = (uint16_t) strlen(text);
	put(p, h, sizeof *h);
	put(p, p->path, h->path_size);
	put(p, text, h->text_size);
}

/* Of what was put last. */
static void put_metadata(struct pack *p, int fd)
{
	struct archive_head h = {.type = ARCHIVE_METADATA};
	char set[FILES_METADATA_MAX];

	h.size = metadata_read(NULL, fd, set);
	if (h.size == 0)
		return;
	put_record(p, &h, "");
	put(p, set, (size_t) h.size);
}

/* ---- Opening. What its owner may not read is packed all the same, as its owner could do: its mode is wider meanwhile. ---- */

static int open_once(int parent, const char *name, int flags, int *ret)
{
	*ret = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
	return *ret >= 0 ? 0 : errno;
}

/* Where no descriptor can be had: what cannot be read cannot be opened but with O_PATH, which fchmod(2) does not take. A link
 * that has taken the place of the file leads to what this user may change anyhow. */
static int set_mode(int parent, const char *name, mode_t mode)
{
	return fchmodat(parent, name, mode & 07777, 0); /* lint: by-name; see above */
}

/* Adds `wanted` to the mode if it is not there. */
static bool widen(int parent, const char *name, const struct stat *st, mode_t wanted)
{
	return (st->st_mode & wanted) != wanted && st->st_uid == geteuid() && set_mode(parent, name, st->st_mode | wanted) == 0;
}

static int open_file(int parent, const char *name, const struct stat *st, int *ret)
{
	bool widened = widen(parent, name, st, 0400);
	int error = open_once(parent, name, 0, ret);

	if (widened)
		(void) (error == 0 ? fchmod(*ret, st->st_mode & 07777) : set_mode(parent, name, st->st_mode));
	return error;
}

static void close_level(struct level *v)
{
	if (v->widened)
		(void) fchmod(v->fd, v->st.st_mode & 07777);
	close_fd(&v->fd);
}

/* ---- Entries. ---- */

/* Returns the first path of the same file, or NULL with this one remembered. */
static const char *same_as(struct pack *p, const struct stat *st)
{
	size_t size = strlen(p->path) + 1;

	for (size_t i = 0; i < p->same_count; i++)
		if (p->same[i].inode == st->st_ino)
			return p->same_text + p->same[i].text;
	if (p->same_count < SAME_MAX && p->same_used + size <= sizeof p->same_text) {
		memcpy(p->same_text + p->same_used, p->path, size);
		p->same[p->same_count].inode = st->st_ino;
		p->same[p->same_count++].text = (uint32_t) p->same_used;
		p->same_used += size;
	}
	return NULL;
}

static int add_file(struct pack *p, struct job *j, int parent, const char *name, struct stat *st)
{
	struct archive_head h;
	const char *first;
	int error = open_file(parent, name, st, &j->file);
	mode_t mode = st->st_mode;

	if (error != 0)
		return error;
	if (fstat(j->file, st) < 0 || !S_ISREG(st->st_mode) || st->st_dev != p->device) {
		close_fd(&j->file); /* it is another one by now: its turn is over */
		return ENOENT;
	}
	st->st_mode = mode;
	first = st->st_nlink > 1 ? same_as(p, st) : NULL;
	h = head_of(first != NULL ? ARCHIVE_SAME : ARCHIVE_FILE, st);
	h.size = (uint64_t) st->st_size;
	put_record(p, &h, first != NULL ? first : "");
	if (first == NULL)
		put_metadata(p, j->file);
	p->size = h.size;
	p->at = 0;
	if (first != NULL)
		close_fd(&j->file);
	return 0;
}

static int add_link(struct pack *p, int parent, const char *name, const struct stat *st)
{
	struct archive_head h = head_of(ARCHIVE_LINK, st);
	char target[FILES_PATH_MAX];
	ssize_t n = readlinkat(parent, name, target, sizeof target - 1);

	if (n < 0)
		return errno == EINVAL ? ENOENT : errno;
	target[n] = '\0';
	put_record(p, &h, target);
	return 0;
}

static int enter(struct pack *p, int parent, const char *name, const struct stat *st)
{
	struct level *v = &p->levels[p->depth];
	struct archive_head h;
	struct stat now;
	int error;

	if (p->depth == LEVELS)
		return E2BIG;
	if (st->st_dev != p->device)
		return 0; /* a mount point */
	v->widened = widen(parent, name, st, 0500);
	v->st = *st;
	error = open_once(parent, name, O_DIRECTORY, &v->fd);
	if (error != 0) {
		if (v->widened)
			(void) set_mode(parent, name, st->st_mode);
		return error == ENOTDIR || error == ELOOP ? ENOENT : error;
	}
	if (fstat(v->fd, &now) < 0 || now.st_ino != st->st_ino || now.st_dev != p->device) {
		close_level(v); /* it is another one by now */
		return ENOENT;
	}
	h = head_of(ARCHIVE_FOLDER, &v->st);
	put_record(p, &h, "");
	put_metadata(p, v->fd);
	v->path_size = strlen(p->path);
	v->next = 0;
	p->depth++;
	p->piece_size = p->piece_at = 0;
	return 0;
}

static int add_entry(struct pack *p, struct job *j, const struct entry_head *e)
{
	struct level *v = &p->levels[p->depth - 1];
	struct stat st;
	size_t size = strlen(e->name) + 1, slash = v->path_size > 0 ? 1 : 0;
	int error = 0;

	if (is_temp_name(e->name))
		return 0; /* half an upload */
	if (fstatat(v->fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : errno;
	if (v->path_size + slash + size > FILES_PATH_MAX)
		return ENAMETOOLONG;
	if (slash != 0)
		p->path[v->path_size] = '/';
	memcpy(p->path + v->path_size + slash, e->name, size);
	v->next = (off_t) e->off;
	if (S_ISREG(st.st_mode)) {
		error = add_file(p, j, v->fd, e->name, &st);
	} else if (S_ISDIR(st.st_mode)) {
		error = enter(p, v->fd, e->name, &st);
	} else if (S_ISLNK(st.st_mode)) {
		error = add_link(p, v->fd, e->name, &st);
	} else if (S_ISFIFO(st.st_mode)) {
		struct archive_head h = head_of(ARCHIVE_FIFO, &st);

		put_record(p, &h, "");
	}
	return error == ENOENT ? 0 : error;
}

/* The top level is done. */
static int leave(struct pack *p)
{
	struct level *v = &p->levels[--p->depth];
	struct archive_head h = head_of(p->depth > 0 ? ARCHIVE_FOLDER_END : ARCHIVE_END, &v->st);

	p->path[v->path_size] = '\0';
	put_record(p, &h, "");
	close_level(v);
	p->piece_size = p->piece_at = 0;
	p->ended = p->depth == 0;
	if (p->ended)
		return 0;
	v--;
	return lseek(v->fd, v->next, SEEK_SET) < 0 ? errno : 0;
}

static int next_entries(struct pack *p, struct job *j)
{
	const struct entry_head *e;
	ssize_t n;

	if (p->piece_at >= p->piece_size) {
		n = read_folder(p->levels[p->depth - 1].fd, p->piece, sizeof p->piece);
		if (n <= 0)
			return n == 0 || n == -ENOENT ? leave(p) : (int) -n;
		p->piece_size = (size_t) n;
		p->piece_at = 0;
	}
	e = next_entry(p->piece, p->piece_size, &p->piece_at);
	return e != NULL ? add_entry(p, j, e) : 0;
}

/* ---- Contents. ---- */

static int next_data(struct pack *p, struct job *j)
{
	struct archive_head h = {.type = ARCHIVE_DATA};
	off_t from = lseek(j->file, (off_t) p->at, SEEK_DATA), hole;
	uint64_t most;
	ssize_t n;

	if (from < 0 && errno == EINVAL)
		from = (off_t) p->at; /* a file system without holes */
	if (from < 0 || (uint64_t) from >= p->size) {
		close_fd(&j->file); /* ENXIO: only a hole is left */
		return 0;
	}
	hole = lseek(j->file, from, SEEK_HOLE);
	most = (hole > from && (uint64_t) hole < p->size ? (uint64_t) hole : p->size) - (uint64_t) from;
	n = pread(j->file, p->out + sizeof h, most < ARCHIVE_DATA_MAX ? (size_t) most : ARCHIVE_DATA_MAX, from);
	if (n < 0)
		return errno == EINTR ? 0 : errno;
	if (n == 0) { /* it has become shorter: the rest is a hole */
		close_fd(&j->file);
		return 0;
	}
	h.size = (uint64_t) n;
	h.offset = (uint64_t) from;
	memcpy(p->out, &h, sizeof h);
	p->out_size = sizeof h + (size_t) n;
	p->at = (uint64_t) from + (uint64_t) n;
	return 0;
}

/* ---- Steps. ---- */

static enum step start(struct files *f, struct job *j)
{
	struct pack *p = job_state(j, sizeof *p);
	struct level *v;

	if (p == NULL)
		return done(f, j, ENOMEM);
	v = &p->levels[0];
	v->fd = open(j->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (v->fd < 0)
		return done(f, j, errno);
	p->depth = 1;
	if (fstat(v->fd, &v->st) < 0)
		return done(f, j, errno);
	p->device = v->st.st_dev;
	answer_opened(f, j, 0, UINT64_MAX, NULL);
	return STEP_AGAIN;
}

/* 0: all is out; EAGAIN: the pipe is full. */
static int write_out(struct pack *p, struct job *j)
{
	while (p->out_at < p->out_size) {
		ssize_t n = write(j->pipe, p->out + p->out_at, p->out_size - p->out_at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		p->out_at += (size_t) n;
		j->count += (uint64_t) n;
	}
	p->out_at = p->out_size = 0;
	return 0;
}

enum step pack_step(struct files *f, struct job *j)
{
	struct pack *p = j->state_map;
	int error;

	if (j->fresh)
		return start(f, j);
	error = write_out(p, j);
	if (error == EAGAIN)
		return wait_for(j, j->pipe, POLLOUT);
	if (error == 0 && p->ended)
		return done(f, j, 0);
	/* Many small records to one write: the largest one has to fit behind those that are there. */
	while (error == 0 && !p->ended && j->file < 0 && p->out_size < ARCHIVE_DATA_MAX / 2)
		error = next_entries(p, j);
	if (error == 0 && j->file >= 0 && p->out_size == 0)
		error = next_data(p, j);
	return error != 0 ? done(f, j, error) : STEP_AGAIN;
}

void pack_release(struct files *f, struct job *j)
{
	struct pack *p = j->state_map;

	(void) f;
	while (p != NULL && p->depth > 0)
		close_level(&p->levels[--p->depth]);
}
