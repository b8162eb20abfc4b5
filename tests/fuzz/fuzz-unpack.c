/* What UNPACK of zwinger-files does with a stream of records that says anything. The system calls are replaced: what a hostile
 * path leads to is nobody's here. The first byte says how many bytes come at a time, and whether calls fail now and then. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/archive.h"
#include "agent/files/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FOLDER = 100, FIRST_FD };

static const uint8_t *input;
static size_t input_size, input_at, input_step;
static unsigned calls, open_fds;
static bool fails, answered;

static int result(int good)
{
	static const int errors[] = {EEXIST, EACCES, ENOSPC, ENOENT};

	if (!fails || ++calls % 5 != 0)
		return good;
	errno = errors[calls / 5 % 4];
	return -1;
}

/* The text of a path as the kernel would read it, at most as long as one may be. */
static void check_path(const char *path)
{
	size_t size = strlen(path);

	if (size == 0 || size >= FILES_PATH_MAX || path[0] == '/')
		abort();
}

static int new_fd(void)
{
	int fd = result(FIRST_FD);

	open_fds += fd >= 0;
	return fd;
}

static int fake_open(const char *path, int flags)
{
	(void) path;
	(void) flags;
	return FOLDER;
}

static int fake_openat(int folder, const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	if ((flags & O_CREAT) != 0 && (va_arg(ap, unsigned) & ~0777U) != 0)
		abort();
	va_end(ap);
	if (folder != FOLDER || (flags & O_NOFOLLOW) == 0)
		abort();
	check_path(path);
	return new_fd();
}

static ssize_t fake_read(int fd, void *to, size_t size)
{
	size_t left = input_size - input_at, n = left < input_step ? left : input_step;

	(void) fd;
	if (size == 0)
		abort(); /* it would never go on */
	n = n < size ? n : size;
	memcpy(to, input + input_at, n);
	input_at += n;
	return (ssize_t) n;
}

static ssize_t fake_pwrite(int fd, const void *data, size_t size, off_t offset)
{
	volatile char sum = 0;

	if (fd != FIRST_FD || size > ARCHIVE_DATA_MAX || offset < 0 || offset > INT64_MAX - (off_t) size)
		abort();
	for (size_t i = 0; i < size; i++)
		sum = (char) (sum + ((const char *) data)[i]); /* all of it is there */
	return result(0) < 0 ? -1 : (ssize_t) size;
}

static int fake_ftruncate(int fd, off_t size)
{
	if (fd != FIRST_FD || size < 0)
		abort();
	return result(0);
}

static int fake_mkdirat(int folder, const char *path, mode_t mode)
{
	if (folder != FOLDER || (mode & ~(mode_t) ARCHIVE_MODE) != 0)
		abort();
	check_path(path);
	return result(0);
}

static int fake_unlinkat(int folder, const char *path, int flags)
{
	if (folder != FOLDER || flags != 0)
		abort();
	check_path(path);
	return result(0);
}

static int fake_symlinkat(const char *text, int folder, const char *path)
{
	if (folder != FOLDER || strlen(text) >= FILES_PATH_MAX)
		abort();
	check_path(path);
	return result(0);
}

static int fake_linkat(int from, const char *text, int folder, const char *path, int flags)
{
	if (from != FOLDER || flags != 0 || strlen(text) >= FILES_PATH_MAX)
		abort();
	return fake_unlinkat(folder, path, 0);
}

static int fake_fchmod(int fd, mode_t mode)
{
	if (fd != FIRST_FD || (mode & ~(mode_t) ARCHIVE_MODE) != 0)
		abort();
	return result(0);
}

static int fake_utimensat(int fd, const char *path, const struct timespec times[2], int flags)
{
	if (fd != FIRST_FD || path[0] != '\0' || flags != AT_EMPTY_PATH || times[1].tv_nsec >= 1000000000)
		abort();
	return result(0);
}

static int fake_futimens(int fd, const struct timespec times[2])
{
	return fake_utimensat(fd, "", times, AT_EMPTY_PATH);
}

/* ---- What the rest of the program gives. ---- */

void *job_state(struct job *j, size_t size)
{
	j->state_map = calloc(1, size);
	return j->state_map;
}

enum step wait_for(struct job *j, int fd, short events)
{
	(void) j;
	(void) fd;
	(void) events;
	return STEP_WAIT;
}

void close_fd(int *fd)
{
	if (*fd == FIRST_FD && open_fds-- == 0)
		abort();
	*fd = -1;
}

enum step done(struct files *f, const struct job *j, int error)
{
	(void) f;
	if (answered || error < 0 || (error == 0 && (!j->ended || j->count != input_size)))
		abort();
	answered = true;
	return STEP_DONE;
}

void answer_opened(struct files *f, const struct job *j, uint64_t offset, uint64_t length, const struct described *d)
{
	(void) f;
	(void) j;
	(void) offset;
	(void) length;
	(void) d;
}

int metadata_write(int fd, const char *set, size_t size)
{
	volatile char last = size > 0 ? set[size - 1] : '\0';

	(void) last;
	if (fd != FIRST_FD || size > FILES_METADATA_MAX)
		abort();
	return result(0) < 0 ? errno : 0;
}

#define open fake_open
#define openat fake_openat
#define read fake_read
#define pwrite fake_pwrite
#define ftruncate fake_ftruncate
#define mkdirat fake_mkdirat
#define mkfifoat fake_mkdirat
#define unlinkat fake_unlinkat
#define symlinkat fake_symlinkat
#define linkat fake_linkat
#define fchmod fake_fchmod
#define utimensat fake_utimensat
#define futimens fake_futimens
#include "../../src/agent/files/pipe.c"
#include "../../src/agent/files/unpack.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t steps[] = {1, 7, 100, 4096, 65536, 1 << 20};
	struct job *j = calloc(1, sizeof *j);

	if (j == NULL || size == 0) {
		free(j);
		return 0;
	}
	input = data + 1;
	input_size = size - 1;
	input_at = calls = open_fds = 0;
	input_step = steps[(data[0] & 0x7f) % 6];
	fails = (data[0] & 0x80) != 0;
	answered = false;
	j->fresh = true;
	j->pipe = j->file = j->folder = -1;
	for (enum step s = STEP_AGAIN; s != STEP_DONE;) {
		s = unpack_step(NULL, j);
		j->fresh = false;
		if (s == STEP_WAIT && j->ended) { /* as main.c takes a COMMIT */
			j->committed = true;
			j->length = input_size;
		}
	}
	close_fd(&j->file);
	if (!answered || open_fds != 0)
		abort();
	free(j->state_map);
	free(j);
	return 0;
}
