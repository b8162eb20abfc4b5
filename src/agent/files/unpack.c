/* UNPACK: makes the tree that a stream of records (archive.h) describes. What is there already stays, but for files of the same
 * name. Times are a wish: at process level nobody may set them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/archive.h"
#include "agent/files/files.h"

enum { RECORD_MAX = sizeof(struct archive_head) + 2 * FILES_PATH_MAX + ARCHIVE_DATA_MAX };

struct unpack {
	bool complete;
	struct archive_head file; /* record of the file at hand, in j->file */
	char path[FILES_PATH_MAX], text[FILES_PATH_MAX];
	size_t begin, have; /* of what is left in `in` */
	char in[2 * RECORD_MAX];
};

static struct timespec time_of(const struct archive_head *h)
{
	return (struct timespec){.tv_sec = h->mtime, .tv_nsec = (long) h->mtime_nsec};
}

/* ---- One record. ---- */

static uint64_t data_size(const struct archive_head *h)
{
	return h->type == ARCHIVE_DATA || h->type == ARCHIVE_METADATA ? h->size : 0;
}

/* Of a head whose data have been found to be few enough. */
static size_t record_size(const struct archive_head *h)
{
	return sizeof *h + h->path_size + h->text_size + (size_t) data_size(h);
}

/* EAGAIN: it is not whole yet. EINVAL: it is none. */
static int take_record(struct unpack *u, struct archive_head *h, const char **ret_data)
{
	const char *at = u->in + u->begin + sizeof *h;

	if (u->have < sizeof *h)
		return EAGAIN;
	memcpy(h, u->in + u->begin, sizeof *h);
	if (h->path_size >= FILES_PATH_MAX || h->text_size >= FILES_PATH_MAX || h->reserved != 0 || h->mtime_nsec >= 1000000000 ||
	    h->size > INT64_MAX || h->offset > INT64_MAX - ARCHIVE_DATA_MAX || (h->mode & ~ARCHIVE_MODE) != 0)
		return EINVAL;
	if (data_size(h) > (h->type == ARCHIVE_DATA ? ARCHIVE_DATA_MAX : FILES_METADATA_MAX))
		return EINVAL;
	if (u->have < record_size(h))
		return EAGAIN;
	if (memchr(at, '\0', (size_t) h->path_size + h->text_size) != NULL)
		return EINVAL;
	memcpy(u->path, at, h->path_size);
	u->path[h->path_size] = '\0';
	memcpy(u->text, at + h->path_size, h->text_size);
	u->text[h->text_size] = '\0';
	*ret_data = at + h->path_size + h->text_size;
	return 0;
}

static void finish_file(struct unpack *u, struct job *j)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(&u->file)};

	if (j->file < 0)
		return;
	(void) futimens(j->file, times);
	close_fd(&j->file);
}

static int make_file(struct unpack *u, struct job *j, const struct archive_head *h)
{
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	j->file = openat(j->folder, u->path, flags, h->mode & 0777);
	if (j->file < 0 && errno == EEXIST && unlinkat(j->folder, u->path, 0) == 0)
		j->file = openat(j->folder, u->path, flags, h->mode & 0777);
	if (j->file < 0)
		return errno;
	u->file = *h;
	return h->size > 0 && ftruncate(j->file, (off_t) h->size) < 0 ? errno : 0;
}

static int write_data(struct job *j, const struct archive_head *h, const char *data)
{
	uint64_t at = 0;

	if (j->file < 0)
		return EINVAL;
	while (at < h->size) {
		ssize_t n = pwrite(j->file, data + at, (size_t) (h->size - at), (off_t) (h->offset + at));

		if (n < 0 && errno != EINTR)
			return errno;
		at += n > 0 ? (uint64_t) n : 0;
	}
	return 0;
}

/* Of what a name is now, link or not. */
static void set_times(int folder, const char *path, const struct archive_head *h)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(h)};
	int fd = openat(folder, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		(void) utimensat(fd, "", times, AT_EMPTY_PATH);
	close_fd(&fd);
}

/* A folder that its owner could not fill gets its mode when it is full. */
static int make_folder(struct unpack *u, struct job *j, const struct archive_head *h)
{
	mode_t mode = (h->mode & 0700) == 0700 ? h->mode : 0700;

	return mkdirat(j->folder, u->path, mode) < 0 && errno != EEXIST ? errno : 0;
}

static int end_folder(struct unpack *u, struct job *j, const struct archive_head *h)
{
	int fd, error = 0;

	set_times(j->folder, u->path, h);
	if ((h->mode & 0700) == 0700)
		return 0;
	fd = openat(j->folder, u->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, h->mode) < 0)
		error = errno;
	close_fd(&fd);
	return error;
}

static int make_other(struct unpack *u, struct job *j, const struct archive_head *h)
{
	int r = -1;

	for (int again = 0; again < 2; again++) {
		if (h->type == ARCHIVE_LINK)
			r = symlinkat(u->text, j->folder, u->path);
		else if (h->type == ARCHIVE_SAME)
			r = linkat(j->folder, u->text, j->folder, u->path, 0);
		else
			r = mkfifoat(j->folder, u->path, h->mode & 0777);
		if (r == 0 || errno != EEXIST || unlinkat(j->folder, u->path, 0) < 0)
			break;
	}
	if (r < 0)
		return errno;
	if (h->type != ARCHIVE_SAME)
		set_times(j->folder, u->path, h);
	return 0;
}

static int set_metadata(const struct unpack *u, const struct job *j, const struct archive_head *h, const char *data)
{
	int fd, error;

	if (j->file >= 0)
		return metadata_write(j->file, data, (size_t) h->size);
	if (h->path_size == 0 || u->path[0] == '/')
		return EINVAL;
	fd = openat(j->folder, u->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno;
	error = metadata_write(fd, data, (size_t) h->size);
	close_fd(&fd);
	return error;
}

static int take(struct unpack *u, struct job *j, const struct archive_head *h, const char *data)
{
	if (u->complete)
		return EINVAL;
	if (h->type == ARCHIVE_DATA)
		return write_data(j, h, data);
	if (h->type == ARCHIVE_METADATA)
		return set_metadata(u, j, h, data);
	finish_file(u, j);
	if (h->type == ARCHIVE_END) {
		u->complete = true;
		return 0;
	}
	if (h->path_size == 0 || u->path[0] == '/')
		return EINVAL;
	switch (h->type) {
	case ARCHIVE_FOLDER:
		return make_folder(u, j, h);
	case ARCHIVE_FOLDER_END:
		return end_folder(u, j, h);
	case ARCHIVE_FILE:
		return make_file(u, j, h);
	case ARCHIVE_LINK:
	case ARCHIVE_SAME:
	case ARCHIVE_FIFO:
		return make_other(u, j, h);
	default:
		return EINVAL;
	}
}

/* ---- Steps. ---- */

static enum step start(struct files *f, struct job *j)
{
	if (job_state(j, sizeof(struct unpack)) == NULL)
		return done(f, j, ENOMEM);
	j->folder = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (j->folder < 0)
		return done(f, j, errno);
	answer_opened(f, j, 0, 0, NULL);
	return wait_for(j, j->pipe, POLLIN);
}

/* The records that are whole. */
static int take_all(struct unpack *u, struct job *j)
{
	struct archive_head h;
	const char *data;
	int error;

	for (;;) {
		size_t size;

		error = take_record(u, &h, &data);
		if (error == 0)
			error = take(u, j, &h, data);
		if (error != 0)
			break;
		size = record_size(&h);
		u->begin += size;
		u->have -= size;
	}
	memmove(u->in, u->in + u->begin, u->have);
	u->begin = 0;
	return error == EAGAIN ? 0 : error;
}

enum step unpack_step(struct files *f, struct job *j)
{
	struct unpack *u = j->state_map;
	enum step step;
	size_t n;
	int error;

	if (j->fresh)
		return start(f, j);
	if (all_has_come(j))
		return done(f, j, j->count == j->length && u->complete && u->have == 0 ? 0 : FILES_SHORT);
	n = take_piece(f, j, u->in + u->have, sizeof u->in - u->have, &step);
	if (n == 0)
		return step;
	j->count += n;
	u->have += n;
	error = take_all(u, j);
	return error != 0 ? done(f, j, error) : STEP_AGAIN;
}
