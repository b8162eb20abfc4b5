/* READ: a file, or a part of it, into a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/files/files.h"

enum { ATOMIC = 4096 /* PIPE_BUF: a pipe that is ready takes so much whole */, SPLICE_MAX = 1 << 20 };

/* Files whose size says nothing about what they hold (linux/magic.h). */
static bool is_generated(int fd, const struct stat *st)
{
	static const uint32_t kinds[] = {0x9fa0 /* proc */,
					 0x62656572 /* sysfs */,
					 0x27e0eb /* cgroup */,
					 0x63677270 /* cgroup2 */,
					 0x64626720 /* debugfs */,
					 0x74726163 /* tracefs */,
					 0x73636673 /* securityfs */};
	struct statfs fs;

	if (st->st_size == 0)
		return true;
	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if ((uint32_t) fs.f_type == kinds[i])
			return true;
	return false;
}

static int kind_fault(mode_t mode)
{
	if (S_ISDIR(mode))
		return EISDIR;
	return S_ISREG(mode) ? 0 : FILES_NOT_REGULAR;
}

/* A FIFO must not even be opened: its writers would wake. What is put in its place between the two looks blocks nobody. */
static int open_regular(const char *path, int *ret_fd, struct stat *ret)
{
	int error = stat(path, ret) < 0 ? errno : kind_fault(ret->st_mode), fd;

	if (error != 0)
		return error;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	error = fstat(fd, ret) < 0 ? errno : kind_fault(ret->st_mode);
	if (error != 0)
		close_fd(&fd);
	*ret_fd = fd;
	return error;
}

/* Sets offset and length (UINT64_MAX: to the end, wherever that is) to what there is. */
static int fit_range(struct job *j, uint64_t size, bool generated)
{
	if ((j->flags & FILES_FROM_END) != 0 && !generated)
		j->offset = j->offset < size ? size - j->offset : 0;
	else if ((j->flags & FILES_FROM_END) != 0)
		return FILES_BAD_RANGE;
	if (generated)
		return j->offset <= INT64_MAX ? 0 : FILES_BAD_RANGE;
	if (j->offset > size)
		return FILES_BAD_RANGE;
	if (j->length > size - j->offset)
		j->length = size - j->offset;
	return 0;
}

static enum step start(struct files *f, struct job *j)
{
	struct described d = {.path = j->path};
	int error = open_regular(j->path, &j->file, &d.st);
	bool generated;

	if (error != 0)
		return done(f, j, error);
	generated = is_generated(j->file, &d.st);
	error = fit_range(j, (uint64_t) d.st.st_size, generated);
	j->plain = generated;
	j->ended = generated; /* the end of the file is then no fault */
	answer_opened(f, j, error != 0 ? 0 : j->offset, error != 0 ? 0 : generated ? UINT64_MAX : j->length, &d);
	if (error == 0 && generated && j->offset > 0 && lseek(j->file, (off_t) j->offset, SEEK_SET) < 0)
		error = errno;
	return error != 0 ? done(f, j, error) : STEP_AGAIN;
}

/* The bytes that went, 0 at the end of the file, or negative errno. */
static ssize_t move_plainly(struct files *f, struct job *j, size_t most)
{
	ssize_t n = read(j->file, f->piece, most < ATOMIC ? most : ATOMIC), sent;
	int error;

	if (n <= 0)
		return n < 0 ? -errno : 0;
	sent = write(j->pipe, f->piece, (size_t) n);
	error = errno;
	if (sent == n)
		return n;
	if (lseek(j->file, (sent > 0 ? sent : 0) - n, SEEK_CUR) < 0)
		return -EIO;
	return sent > 0 ? sent : -error;
}

static ssize_t move_piece(struct files *f, struct job *j)
{
	size_t most = j->length < SPLICE_MAX ? (size_t) j->length : SPLICE_MAX;
	loff_t offset = (loff_t) j->offset;
	ssize_t n;

	if (j->plain)
		return move_plainly(f, j, most);
	n = splice(j->file, &offset, j->pipe, NULL, most, SPLICE_F_NONBLOCK);
	if (n >= 0)
		return n;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	j->plain = true; /* this file system has no splice */
	if (lseek(j->file, (off_t) j->offset, SEEK_SET) < 0)
		return -errno;
	return move_plainly(f, j, most);
}

enum step read_step(struct files *f, struct job *j)
{
	ssize_t n;

	if (j->fresh)
		return start(f, j);
	if (j->length == 0)
		return done(f, j, 0);
	n = move_piece(f, j);
	if (n == -EINTR)
		return STEP_AGAIN;
	if (n == -EAGAIN)
		return wait_for(j, j->pipe, POLLOUT);
	if (n < 0)
		return done(f, j, (int) -n);
	if (n == 0)
		return done(f, j, j->ended || j->length == UINT64_MAX ? 0 : FILES_SHORT);
	j->count += (uint64_t) n;
	j->offset += (uint64_t) n;
	if (j->length != UINT64_MAX)
		j->length -= (uint64_t) n;
	return STEP_AGAIN;
}
