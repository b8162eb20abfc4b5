/* WRITE: from a pipe, or from the message, into a file of another name beside the one that is meant, which takes its place at
 * once when everything is there. Whoever looks meanwhile sees the old file or the new one, whole. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/files.h"

/* A file that could not be written to must not be replaced either, though its folder would let us. */
static int check_writable(struct job *j)
{
	int fd = openat(j->folder, path_name(j->final), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return errno == ETXTBSY || errno == ENOENT ? 0 : errno; /* a running program stays what it is */
	close_fd(&fd);
	return 0;
}

/* What is there: nothing, or a regular file that may be replaced. */
static int look(struct job *j)
{
	struct stat st;

	if (fstatat(j->folder, path_name(j->final), &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : errno;
	if (S_ISDIR(st.st_mode))
		return EISDIR;
	if (!S_ISREG(st.st_mode))
		return FILES_NOT_REGULAR;
	j->exists = true;
	j->old_mode = st.st_mode & 0777;
	return check_writable(j);
}

static int open_temp(struct job *j)
{
	mode_t mode = (j->flags & FILES_MODE) != 0 ? j->mode : j->exists ? j->old_mode : 0644;
	int error = temp_name(j->temp);

	if (error != 0)
		return error;
	j->file = openat(j->folder, j->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (j->file >= 0)
		return 0;
	j->temp[0] = '\0';
	return errno;
}

static int prepare(struct job *j)
{
	struct stat st;
	bool linked;
	int error;

	if ((j->flags & FILES_IF_ABSENT) != 0 && lstat(j->path, &st) == 0)
		return EEXIST;
	error = path_follow(j->path, j->final);
	if (error != 0)
		return error;
	if (path_name(j->final)[0] == '\0')
		return EISDIR;
	/* Folders are made for the path that was asked for, not for where a link in it leads. */
	linked = strcmp(j->final, j->path) != 0;
	error = path_open_parent(j->final, !linked, &j->folder);
	if (error == 0)
		error = look(j);
	return error == 0 ? open_temp(j) : error;
}

/* For file systems whose rename cannot refuse to replace. */
static int place_without_flags(struct job *j, const char *name, bool *ret_created)
{
	if ((j->flags & FILES_IF_ABSENT) == 0) {
		*ret_created = !j->exists;
		return renameat(j->folder, j->temp, j->folder, name) < 0 ? errno : 0;
	}
	*ret_created = true;
	return linkat(j->folder, j->temp, j->folder, name, 0) < 0 ? errno : 0; /* the other name goes when the job does */
}

static int place(struct job *j, bool *ret_created)
{
	const char *name = path_name(j->final);

	*ret_created = true;
	if (rename_new(j->folder, j->temp, j->folder, name) == 0)
		return 0;
	if (errno == EINVAL || errno == ENOSYS)
		return place_without_flags(j, name, ret_created);
	if (errno != EEXIST || (j->flags & FILES_IF_ABSENT) != 0)
		return errno;
	*ret_created = false;
	return renameat(j->folder, j->temp, j->folder, name) < 0 ? errno : 0;
}

static enum step commit(struct files *f, struct job *j)
{
	struct described d = {.path = j->path};
	size_t slot = f->commit_count % COMMITS_KEPT;
	bool created;
	int error;

	if (fstat(j->file, &d.st) < 0)
		return done(f, j, errno);
	memcpy(f->commits[slot].temp, j->temp, sizeof j->temp);
	error = place(j, &created);
	if (error != 0)
		return done(f, j, error);
	f->commits[slot].created = created;
	f->commit_count++;
	if (created && (j->flags & FILES_IF_ABSENT) != 0)
		(void) unlinkat(j->folder, j->temp, 0); /* is there only where the link was made */
	j->temp[0] = '\0';
	return done_with(f, j, 0, created ? FILES_DONE_CREATED : 0, &d);
}

/* 0 or an errno: ENOSPC, EDQUOT, EFBIG. */
static int write_piece(struct job *j, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = write(j->file, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		data += n;
		size -= (size_t) n;
		j->count += (uint64_t) n;
	}
	return 0;
}

static enum step start(struct files *f, struct job *j)
{
	int error = prepare(j);

	if (error == 0 && (j->flags & FILES_METADATA) != 0)
		error = metadata_write(j->file, j->metadata, j->metadata_size);
	if (error == 0 && (j->flags & FILES_WHOLE) != 0)
		error = write_piece(j, j->data, j->data_size);
	if (error != 0)
		return done(f, j, error);
	if ((j->flags & FILES_WHOLE) != 0)
		return commit(f, j);
	answer_opened(f, j, 0, 0, NULL);
	return wait_for(j, j->pipe, POLLIN);
}

enum step write_step(struct files *f, struct job *j)
{
	enum step step;
	size_t n;
	int error;

	if (j->fresh)
		return start(f, j);
	if (all_has_come(j))
		return j->count == j->length ? commit(f, j) : done(f, j, FILES_SHORT);
	n = take_piece(f, j, f->piece, sizeof f->piece, &step);
	if (n == 0)
		return step;
	error = write_piece(j, f->piece, n);
	return error != 0 ? done(f, j, error) : STEP_AGAIN;
}

void write_release(struct files *f, struct job *j)
{
	(void) f;
	if (j->temp[0] != '\0' && j->folder >= 0)
		(void) unlinkat(j->folder, j->temp, 0);
}
