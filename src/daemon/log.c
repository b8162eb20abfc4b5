#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "policy/text.h"

enum { LINE_MAX_SIZE = 4096 };

struct dlog {
	char *path; /* NULL: standard error */
	int fd;
	bool json;
	uint64_t dropped;
};

/* A line that is being made. What does not fit is cut; the end is kept free for what closes it. */
struct line {
	char text[LINE_MAX_SIZE];
	size_t size;
	bool json;
};

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static int open_file(const char *path, struct zw_error *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);

	return fd >= 0 ? fd : zw_errno(e, errno, "cannot open the log file %s", path);
}

struct dlog *dlog_new(const char *path, bool json, struct zw_error *e)
{
	struct dlog *l = xcalloc(1, sizeof *l);

	*l = (struct dlog){.fd = STDERR_FILENO, .json = json};
	if (path == NULL)
		return l;
	l->path = xstrdup(path);
	l->fd = open_file(path, e);
	return l->fd >= 0 ? l : dlog_free(l);
}

struct dlog *dlog_free(struct dlog *l)
{
	if (l == NULL)
		return NULL;
	if (l->path != NULL)
		fd_close(&l->fd);
	free(l->path);
	free(l);
	return NULL;
}

int dlog_reopen(struct dlog *l, struct zw_error *e)
{
	int fd;

	if (l->path == NULL)
		return 0;
	fd = open_file(l->path, e);
	if (fd < 0)
		return fd;
	fd_close(&l->fd);
	l->fd = fd;
	return 0;
}

static void put(struct line *l, const char *data, size_t size)
{
	size_t room = sizeof l->text - 4 - l->size; /* `"}`, newline, and an end */

	if (size > room)
		size = room;
	memcpy(l->text + l->size, data, size);
	l->size += size;
}

static void puts_(struct line *l, const char *s)
{
	put(l, s, strlen(s));
}

static void put_quoted(struct line *l, const char *s)
{
	bool utf8 = text_is_utf8(s, strlen(s), &(size_t){0});
	char escape[8];

	put(l, "\"", 1);
	for (; *s != '\0' && l->size + 12 < sizeof l->text; s++) {
		unsigned char c = (unsigned char) *s;

		if (c == '"' || c == '\\') {
			put(l, (const char[]){'\\', *s}, 2);
		} else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8)) {
			(void) snprintf(escape, sizeof escape, "\\u%04x", c);
			puts_(l, escape);
		} else {
			put(l, s, 1);
		}
	}
	put(l, "\"", 1);
}

static bool is_plain(const char *s)
{
	for (const char *p = s; *p != '\0'; p++)
		if (*p <= ' ' || *p >= 0x7f || *p == '"' || *p == '=' || *p == '\\')
			return false;
	return *s != '\0';
}

static void put_text(struct line *l, const char *s)
{
	if (l->json || !is_plain(s))
		put_quoted(l, s);
	else
		puts_(l, s);
}

static void put_field(struct line *l, const struct dlog_field *f)
{
	char number[32];

	puts_(l, l->json ? ",\"" : " ");
	puts_(l, f->name);
	puts_(l, l->json ? "\":" : "=");
	if (f->text != NULL) {
		put_text(l, f->text);
		return;
	}
	if (f->micro)
		(void) snprintf(number, sizeof number, "%llu.%06llu", (unsigned long long) (f->number / USEC_PER_SEC),
				(unsigned long long) (f->number % USEC_PER_SEC));
	else
		(void) snprintf(number, sizeof number, "%llu", (unsigned long long) f->number);
	puts_(l, number);
}

/* A line goes out whole or not at all. */
static bool write_line(const struct dlog *l, const struct line *line)
{
	struct pollfd p = {.fd = l->fd, .events = POLLOUT};
	ssize_t n;

	if (poll(&p, 1, 0) != 1 || (p.revents & POLLOUT) == 0)
		return false;
	do
		n = write(l->fd, line->text, line->size);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t) line->size;
}

void dlog_write(struct dlog *l, enum dlog_level level, const char *event, const struct dlog_field *fields)
{
	struct dlog_field dropped;
	struct line line;
	char time[TIMESTAMP_SIZE];

	if (l == NULL)
		return;
	line.size = 0;
	line.json = l->json;
	format_timestamp(now_realtime(), time);
	puts_(&line, l->json ? "{\"time\":\"" : "");
	puts_(&line, time);
	puts_(&line, l->json ? "\",\"level\":\"" : " ");
	puts_(&line, level_names[level]);
	puts_(&line, l->json ? "\",\"event\":" : " ");
	put_text(&line, event);
	for (const struct dlog_field *f = fields; f->name != NULL && line.size + 256 < sizeof line.text; f++)
		put_field(&line, f);
	dropped = dlog_number("lines_dropped_before", l->dropped);
	if (l->dropped > 0)
		put_field(&line, &dropped);
	if (l->json)
		line.text[line.size++] = '}';
	line.text[line.size++] = '\n';
	l->dropped = write_line(l, &line) ? 0 : l->dropped + 1;
}
