#include "daemon/process-journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

enum { PAGE = 4096, RECORD_MAX = 256 * 1024, ONE_MAX = 64 * 1024, GIVE_BACK = 64 * 1024, STREAMS_MAX = 2 };

#define MAGIC UINT64_C(0x6c6e726a7a77)

struct head {
	uint64_t magic;
	uint64_t first; /* offset in the file */
	uint64_t before[STREAMS_MAX];
	struct journal_mark mark;
};

struct record {
	uint32_t stream, size;
};

struct journal {
	int fd;
	struct head head;
	bool open; /* a record is: the last one, of `stream`, with `size` bytes so far, at `at` */
	unsigned stream;
	uint64_t at, size;
	uint64_t given_back; /* until there */
};

static bool write_record(const struct journal *j, const struct record *r, uint64_t at)
{
	return pwrite(j->fd, r, sizeof *r, (off_t) at) == (ssize_t) sizeof *r;
}

static bool read_at(const struct journal *j, void *data, size_t size, uint64_t at)
{
	return pread(j->fd, data, size, (off_t) at) == (ssize_t) size;
}

static bool write_head(const struct journal *j)
{
	struct head h = j->head;

	return pwrite(j->fd, &h, sizeof h, 0) == sizeof h;
}

static struct journal *make(int fd)
{
	struct journal *j = xcalloc(1, sizeof *j);

	*j = (struct journal){.fd = fd, .head = {.magic = MAGIC, .first = PAGE}, .given_back = PAGE};
	return j;
}

struct journal *journal_new(void)
{
	int fd = memfd_create("zwinger-output", MFD_CLOEXEC);
	struct journal *j;

	if (fd < 0)
		return NULL;
	j = make(fd);
	if (write_head(j) && lseek(fd, PAGE, SEEK_SET) == PAGE)
		return j;
	return journal_free(j);
}

struct journal *journal_open(int fd)
{
	struct journal *j = make(fd);
	struct head h;
	struct stat st;

	/* Only memory files have seals; anything else could keep us waiting. */
	if (fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read_at(j, &h, sizeof h, 0) &&
	    h.magic == MAGIC && h.first >= PAGE) {
		j->head = h;
		return j;
	}
	return journal_free(j);
}

struct journal *journal_free(struct journal *j)
{
	if (j == NULL)
		return NULL;
	fd_close(&j->fd);
	free(j);
	return NULL;
}

int journal_fd(const struct journal *j)
{
	return j->fd;
}

/* ---- Writing. ---- */

/* The record that takes bytes of this stream: the last one, or a new one. */
static bool begin(struct journal *j, unsigned stream)
{
	const struct record next = {.stream = stream};
	struct record last = {.stream = j->stream, .size = (uint32_t) j->size};
	off_t at;

	if (j->open && j->stream == stream && j->size < RECORD_MAX)
		return true;
	if (j->open && j->size == 0) {
		last.stream = j->stream = stream;
		return write_record(j, &last, j->at);
	}
	if (j->open && !write_record(j, &last, j->at))
		return false;
	at = lseek(j->fd, 0, SEEK_CUR);
	if (at < 0 || write(j->fd, &next, sizeof next) != (ssize_t) sizeof next)
		return false;
	j->open = true;
	j->stream = stream;
	j->at = (uint64_t) at;
	j->size = 0;
	return true;
}

ssize_t journal_read(struct journal *j, unsigned stream, int fd, char *data, size_t size)
{
	uint64_t at;
	ssize_t n;

	if (!begin(j, stream))
		return -EIO;
	at = j->at + sizeof(struct record) + j->size;
	n = splice(fd, NULL, j->fd, NULL, size, SPLICE_F_NONBLOCK);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EIO;
	j->size += (uint64_t) n;
	return n == 0 || read_at(j, data, (size_t) n, at) ? n : -EIO;
}

int journal_add(struct journal *j, unsigned stream, const char *data, size_t size)
{
	ssize_t n = begin(j, stream) ? write(j->fd, data, size) : -1;

	if (n > 0)
		j->size += (uint64_t) n;
	return n == (ssize_t) size ? 0 : -EIO;
}

/* ---- What goes. ---- */

/* Records that end before `from`; the open one stays. */
static void skip(struct journal *j, uint64_t from)
{
	struct head *h = &j->head;
	struct record r;

	while (j->open && h->first < j->at && read_at(j, &r, sizeof r, h->first) && r.stream < STREAMS_MAX && r.size > 0 &&
	       h->before[0] + h->before[1] + r.size <= from) {
		h->before[r.stream] += r.size;
		h->first += sizeof r + r.size;
	}
}

static void give_back(struct journal *j)
{
	uint64_t until = j->head.first / PAGE * PAGE;

	if (until <= j->given_back)
		return;
	(void) fallocate(j->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t) j->given_back,
			 (off_t) (until - j->given_back)); /* else it stays until the end */
	j->given_back = until;
}

void journal_mark(struct journal *j, const struct journal_mark *mark)
{
	struct head *h = &j->head;
	uint64_t first = h->first;

	if (mark->from == h->mark.from && mark->dropped == h->mark.dropped && mark->passed == h->mark.passed)
		return;
	h->mark = *mark;
	if (mark->from > h->before[0] + h->before[1] + GIVE_BACK)
		skip(j, mark->from);
	(void) write_head(j); /* a page that is there already */
	if (h->first != first)
		give_back(j);
}

/* ---- The next daemon. ---- */

static bool tell(const struct journal *j, unsigned stream, uint64_t at, uint64_t size,
		 void (*add)(void *arg, unsigned stream, const char *data, size_t size), void *arg)
{
	char data[32 * 1024];

	while (size > 0) {
		size_t part = size < sizeof data ? (size_t) size : sizeof data;

		if (!read_at(j, data, part, at))
			return false;
		add(arg, stream, data, part);
		at += part;
		size -= part;
	}
	return true;
}

/* A record that was being begun when the daemon was killed is none; the one before may be closed already, and is open again. */
static bool settle(struct journal *j, uint64_t end)
{
	const struct record last = {.stream = j->stream};

	if (j->open && !write_record(j, &last, j->at))
		return false;
	return lseek(j->fd, (off_t) end, SEEK_SET) == (off_t) end;
}

void journal_marked(const struct journal *j, struct journal_mark *ret)
{
	*ret = j->head.mark;
}

uint64_t journal_before(const struct journal *j, unsigned stream)
{
	return j->head.before[stream];
}

bool journal_replay(struct journal *j, void (*add)(void *arg, unsigned stream, const char *data, size_t size), void *arg)
{
	off_t position = lseek(j->fd, 0, SEEK_CUR);
	uint64_t at = j->head.first, end = position > 0 ? (uint64_t) position : 0;
	struct record r;

	j->given_back = at / PAGE * PAGE;
	while (at + sizeof r <= end) {
		uint64_t data = at + sizeof r;

		if (!read_at(j, &r, sizeof r, at) || r.stream >= STREAMS_MAX || r.size > RECORD_MAX + ONE_MAX)
			return false;
		j->open = true;
		j->at = at;
		j->stream = r.stream;
		j->size = r.size > 0 ? r.size : end - data;
		if (j->size > end - data || j->size > RECORD_MAX + ONE_MAX || !tell(j, r.stream, data, j->size, add, arg))
			return false;
		at = data + j->size;
	}
	return settle(j, at);
}
