/* MOVE: rename(2), or across file systems a copy beside the destination, which takes its place when it is whole, and the removal
 * of the source. A copy keeps kinds, modes, times and metadata; of files that have several names inside it makes several. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/files.h"

enum { LEVELS = 64, NAMES_A_STEP = 32 };

enum phase { COPYING, CLEARING_SOURCE, CLEARING_COPY };

struct move {
	enum phase phase;
	int fault; /* CLEARING_COPY: what is told in the end */
	size_t depth;
	struct {
		int from, to;
		int64_t next; /* where reading goes on, d_off */
		struct stat st;
	} levels[LEVELS];
	int from, to; /* the file that is being copied, -1 */
	struct stat st;
	uint64_t removal[]; /* a struct removal */
};

static struct removal *removal_of(struct move *m)
{
	return (struct removal *) (void *) m->removal;
}

/* ---- The rename. ---- */

static int rename_plainly(const struct job *j, int from, int to, const char *source, const char *destination)
{
	struct stat st;

	if ((j->flags & FILES_REPLACE) != 0)
		return renameat(from, source, to, destination) < 0 ? errno : 0;
	if (rename_new(from, source, to, destination) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return errno;
	/* The file system cannot refuse, or it is a folder moved into itself, which the next call says again. */
	if (fstatat(to, destination, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return EEXIST;
	return renameat(from, source, to, destination) < 0 ? errno : 0;
}

/* ---- One thing into another folder. ---- */

/* The times, and of a folder that its owner may not write to the mode. At process level neither may be changed, and stays as it
 * is. */
static int keep_times(int fd, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (S_ISDIR(st->st_mode) && (st->st_mode & 0700) != 0700 && fchmod(fd, st->st_mode & 0777) < 0 && errno != EPERM)
		return errno;
	return futimens(fd, times) < 0 && errno != EPERM ? errno : 0;
}

static int copy_link(int from, const char *name, int to, const char *as)
{
	char target[FILES_PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof target - 1);

	if (n < 0)
		return errno;
	target[n] = '\0';
	return symlinkat(target, to, as) < 0 ? errno : 0;
}

static int begin_file(struct move *m, int from, const char *name, int to, const char *as)
{
	m->from = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (m->from < 0 || fstat(m->from, &m->st) < 0)
		return errno;
	if (!S_ISREG(m->st.st_mode))
		return FILES_NOT_REGULAR;
	m->to = openat(to, as, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, m->st.st_mode & 0777);
	return m->to < 0 ? errno : 0;
}

static int begin_folder(struct move *m, int from, const char *name, int to, const char *as, mode_t mode)
{
	if (m->depth == LEVELS)
		return ELOOP;
	if (mkdirat(to, as, (mode & 0777) | 0700) < 0)
		return errno;
	m->levels[m->depth].from = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	m->levels[m->depth].to = openat(to, as, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	m->levels[m->depth].next = 0;
	m->depth++; /* so that both are closed in the end */
	if (m->levels[m->depth - 1].from < 0 || m->levels[m->depth - 1].to < 0 ||
	    fstat(m->levels[m->depth - 1].from, &m->levels[m->depth - 1].st) < 0)
		return errno;
	return 0;
}

/* Copies what is small at once; of files and folders it begins. */
static int copy_one(struct move *m, int from, const char *name, int to, const char *as)
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno;
	if (S_ISREG(st.st_mode))
		return begin_file(m, from, name, to, as);
	if (S_ISDIR(st.st_mode))
		return begin_folder(m, from, name, to, as, st.st_mode);
	if (S_ISLNK(st.st_mode))
		return copy_link(from, name, to, as);
	if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
		return mknodat(to, as, (st.st_mode & S_IFMT) | (st.st_mode & 0777), 0) < 0 ? errno : 0;
	return FILES_NOT_REGULAR;
}

/* ---- Steps of the copy. Each returns 0 when what it works on is complete, EAGAIN, or the fault. ---- */

static int end_file(struct move *m)
{
	/* The size last: the file may end in a hole. */
	int error = ftruncate(m->to, lseek(m->to, 0, SEEK_CUR)) < 0 ? errno : metadata_copy(m->from, m->to);

	if (error == 0)
		error = keep_times(m->to, &m->st);
	close_fd(&m->from);
	close_fd(&m->to);
	return error;
}

static int write_all(int fd, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno != EINTR)
			return errno;
		if (n > 0) {
			data += n;
			size -= (size_t) n;
		}
	}
	return 0;
}

/* Passes over a hole: the same distance in both. */
static int skip_hole(struct move *m)
{
	off_t at = lseek(m->from, 0, SEEK_CUR), data = lseek(m->from, at, SEEK_DATA);

	if (data < 0 && errno == ENXIO) /* nothing but hole to the end */
		data = lseek(m->from, 0, SEEK_END);
	else if (data < 0)
		data = lseek(m->from, at, SEEK_SET);
	return at < 0 || data < 0 || lseek(m->to, data, SEEK_SET) < 0 ? errno : 0;
}

static int copy_piece(struct files *f, struct move *m)
{
	for (int i = 0; i < 16; i++) {
		int error = skip_hole(m);
		ssize_t n = error == 0 ? read(m->from, f->piece, sizeof f->piece) : -1;

		if (n == 0)
			return end_file(m);
		if (n < 0)
			return error != 0 ? error : errno;
		error = write_all(m->to, f->piece, (size_t) n);
		if (error != 0)
			return error;
	}
	return EAGAIN;
}

static int leave_folder(struct move *m)
{
	size_t at = --m->depth;
	int error = metadata_copy(m->levels[at].from, m->levels[at].to);

	if (error == 0)
		error = keep_times(m->levels[at].to, &m->levels[at].st);
	close_fd(&m->levels[at].from);
	close_fd(&m->levels[at].to);
	return error;
}

static int copy_folder(struct files *f, struct move *m)
{
	size_t at = m->depth - 1, place = 0;
	const struct entry_head *e;
	ssize_t n;

	if (lseek(m->levels[at].from, m->levels[at].next, SEEK_SET) < 0)
		return errno;
	n = read_folder(m->levels[at].from, f->piece, 4096);
	if (n <= 0)
		return n < 0 ? (int) -n : leave_folder(m);
	while ((e = next_entry(f->piece, (size_t) n, &place)) != NULL) {
		int error = copy_one(m, m->levels[at].from, e->name, m->levels[at].to, e->name);

		if (error != 0)
			return error;
		m->levels[at].next = e->off;
		if (m->from >= 0 || m->depth > at + 1)
			return EAGAIN; /* that one first */
	}
	/* Also past "." and "..", which may have been all. */
	m->levels[at].next = lseek(m->levels[at].from, 0, SEEK_CUR);
	return EAGAIN;
}

static int copy_step(struct files *f, struct move *m)
{
	int error = 0;

	if (m->from >= 0)
		error = copy_piece(f, m);
	else if (m->depth > 0)
		error = copy_folder(f, m);
	if (error != 0)
		return error;
	return m->from >= 0 || m->depth > 0 ? EAGAIN : 0;
}

/* ---- The whole. ---- */

static int begin_copy(struct job *j, const char *source_name)
{
	struct move *m = job_state(j, sizeof *m + removal_size());
	int error;

	if (m == NULL)
		return ENOMEM;
	m->from = m->to = -1;
	error = temp_name(j->temp);
	if (error == 0)
		error = copy_one(m, j->file, source_name, j->folder, j->temp);
	return error;
}

static enum step told(struct files *f, struct job *j, int error)
{
	struct described d;

	if (error == 0)
		error = describe(j->other, j->flags, &d);
	return error != 0 ? done(f, j, error) : done_with(f, j, 0, 0, &d);
}

static enum step start(struct files *f, struct job *j)
{
	const char *source = path_name(j->path), *destination = path_name(j->other);
	struct stat st;
	int error;

	if (source[0] == '\0' || destination[0] == '\0')
		return done(f, j, j->other[0] == '\0' ? EINVAL : EBUSY);
	if (lstat(j->path, &st) < 0)
		return done(f, j, errno);
	error = path_open_parent(j->path, false, &j->file);
	if (error == 0)
		error = path_open_parent(j->other, true, &j->folder);
	if (error == 0)
		error = rename_plainly(j, j->file, j->folder, source, destination);
	if (error != EXDEV)
		return told(f, j, error);
	if ((j->flags & FILES_REPLACE) == 0 && fstatat(j->folder, destination, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return done(f, j, EEXIST);
	error = begin_copy(j, source);
	if (error == 0)
		return STEP_AGAIN;
	return done(f, j, error); /* and what was begun goes with the job */
}

/* The copy takes its place, and the source begins to go. */
static int place(struct job *j, struct move *m)
{
	int error = rename_plainly(j, j->folder, j->folder, j->temp, path_name(j->other));

	if (error != 0)
		return error;
	j->temp[0] = '\0';
	m->phase = CLEARING_SOURCE;
	return removal_start(removal_of(m), j->file, path_name(j->path));
}

static void close_all(struct move *m)
{
	close_fd(&m->from);
	close_fd(&m->to);
	while (m->depth > 0) {
		m->depth--;
		close_fd(&m->levels[m->depth].from);
		close_fd(&m->levels[m->depth].to);
	}
}

/* What was copied goes away again before the fault is told. */
static int give_up(struct job *j, struct move *m, int fault)
{
	close_all(m);
	m->phase = CLEARING_COPY;
	m->fault = fault;
	return removal_start(removal_of(m), j->folder, j->temp);
}

enum step move_step(struct files *f, struct job *j)
{
	struct move *m = j->state_map;
	int error;

	if (j->fresh)
		return start(f, j);
	if (m->phase == COPYING) {
		error = j->ended ? ECANCELED : copy_step(f, m);
		if (error == 0)
			error = place(j, m);
		if (error != 0 && error != EAGAIN && m->phase == COPYING)
			error = give_up(j, m, error);
	} else {
		error = removal_step(removal_of(m), f->piece, sizeof f->piece);
	}
	if (error == EAGAIN)
		return STEP_AGAIN;
	if (m->phase == CLEARING_COPY)
		j->temp[0] = '\0'; /* it is gone, or will not go */
	return m->phase == CLEARING_COPY ? done(f, j, m->fault) : told(f, j, error);
}

/* Only the end of the daemon comes in the middle of a copy. */
void move_release(struct files *f, struct job *j)
{
	struct move *m = j->state_map;

	if (m == NULL)
		return;
	close_all(m);
	removal_end(removal_of(m));
	if (j->temp[0] == '\0')
		return;
	for (int error = removal_start(removal_of(m), j->folder, j->temp); error == EAGAIN;)
		error = removal_step(removal_of(m), f->piece, sizeof f->piece);
	removal_end(removal_of(m));
}
