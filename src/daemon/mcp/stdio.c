/* The stdio transport: one message a line. Standard input and output may be shared with other programs, so they are not made
 * non-blocking: they are read and written only when that does not block (a pipe that is ready has room for PIPE_BUF bytes).
 * Files, which are always ready, are read and written at once. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/mcp/mcp.h"

enum { LINE_MAX_BYTES = JSON_BODY_MAX, READ_SIZE = 64 * 1024, OUTPUT_HIGH = 1024 * 1024, FLUSH_MSEC = 2000 };

struct mcp_stdio {
	struct mcp_owner owner;
	enum mcp_revision revision; /* agreed on by initialize */
	struct event *readable, *writable;
	struct evbuffer *in, *out;
	size_t scanned; /* of `in`, without an end of line */
	bool skipping;  /* a line that is too long */
	bool stopped;   /* nothing is read: the client is behind */
	bool over, broken;
};

/* ---- Output. ---- */

static void end(struct mcp_stdio *s)
{
	if (s->over)
		return;
	s->over = true;
	if (s->readable != NULL)
		(void) event_del(s->readable);
	mcp_owner_end(&s->owner, "the input has ended");
	if (!s->owner.daemon->draining)
		daemon_drain(s->owner.daemon);
}

static void write_some(struct mcp_stdio *s, int wait)
{
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

	while (!s->broken && evbuffer_get_length(s->out) > 0) {
		ssize_t n;
		char data[PIPE_BUF];

		if (poll(&p, 1, wait) <= 0)
			return;
		n = evbuffer_copyout(s->out, data, sizeof data);
		n = write(STDOUT_FILENO, data, (size_t) n);
		if (n > 0)
			(void) evbuffer_drain(s->out, (size_t) n);
		else if (n < 0 && errno != EINTR && errno != EAGAIN)
			s->broken = true; /* nobody reads */
	}
}

static void pump(struct mcp_stdio *s)
{
	write_some(s, 0);
	if (s->broken) {
		end(s);
		return;
	}
	if (evbuffer_get_length(s->out) > 0)
		(void) event_add(s->writable, NULL); /* it was added before, or output waits for the next message */
	if (s->stopped && !s->over && evbuffer_get_length(s->out) < OUTPUT_HIGH / 4) {
		s->stopped = false;
		(void) event_add(s->readable, NULL);
	}
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	pump(arg);
}

static void send_message(void *to, json_t *message, bool last)
{
	struct mcp_stdio *s = to;
	cleanup_free char *text = NULL;

	/* Progress that nobody reads is not kept: the result has all of it. */
	if (message != NULL && !s->broken && (last || evbuffer_get_length(s->out) < OUTPUT_HIGH))
		text = json_dumps(message, JSON_COMPACT);
	json_decref(message);
	if (text == NULL)
		return;
	(void) evbuffer_add(s->out, text, strlen(text));
	(void) evbuffer_add(s->out, "\n", 1);
	pump(s);
}

/* ---- Input. ---- */

static void take_message(struct mcp_stdio *s, const char *line, size_t size)
{
	const struct mcp_line to = {.send = send_message, .to = s};
	struct mcp_message m;
	enum mcp_revision revision = s->revision;
	json_t *answer = NULL;

	if (mcp_message_read(line, size, &m, &answer) < 0) {
		send_message(s, answer, true);
		return;
	}
	if (m.kind == MCP_REQUEST && mcp_revision_of(&m, &revision, &answer) == -EINVAL) {
		send_message(s, answer, true);
		mcp_message_done(&m);
		return;
	}
	if (m.kind == MCP_REQUEST && strcmp(m.method, "initialize") == 0 && revision != MCP_2026_07_28)
		s->revision = mcp_negotiate(&m);
	if (mcp_handle(&s->owner, revision, &m, &to, &answer) == MCP_ANSWERED)
		send_message(s, answer, true);
	mcp_message_done(&m);
}

static bool is_blank(const char *line, size_t size)
{
	while (size > 0 && memchr(" \t\r", line[size - 1], 3) != NULL)
		size--;
	return size == 0;
}

static void take_line(struct mcp_stdio *s, size_t size)
{
	const char *line = (const char *) evbuffer_pullup(s->in, (ev_ssize_t) size + 1);

	if (line != NULL && !s->skipping && !is_blank(line, size))
		take_message(s, line, size);
	(void) evbuffer_drain(s->in, size + 1);
	s->skipping = false;
}

static void too_long(struct mcp_stdio *s)
{
	if (!s->skipping)
		send_message(s, mcp_error(NULL, MCP_INVALID_REQUEST, NULL, "the message is longer than %d bytes", LINE_MAX_BYTES),
			     true);
	s->skipping = true;
	(void) evbuffer_drain(s->in, evbuffer_get_length(s->in));
	s->scanned = 0;
}

static void take_lines(struct mcp_stdio *s)
{
	struct evbuffer_ptr from, at;

	while (!s->over) {
		if (evbuffer_ptr_set(s->in, &from, s->scanned, EVBUFFER_PTR_SET) < 0)
			return;
		at = evbuffer_search(s->in, "\n", 1, &from);
		if (at.pos < 0)
			break;
		s->scanned = 0;
		take_line(s, (size_t) at.pos);
	}
	s->scanned = evbuffer_get_length(s->in);
	if (s->scanned > LINE_MAX_BYTES || s->skipping)
		too_long(s);
}

/* False: there is no more. */
static bool read_some(struct mcp_stdio *s)
{
	char data[READ_SIZE];
	ssize_t n = read(STDIN_FILENO, data, sizeof data);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n <= 0)
		return false;
	(void) evbuffer_add(s->in, data, (size_t) n);
	take_lines(s);
	return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct mcp_stdio *s = arg;

	(void) fd;
	(void) what;
	if (!read_some(s)) {
		end(s);
	} else if (evbuffer_get_length(s->out) > OUTPUT_HIGH && !s->over) {
		s->stopped = true;
		(void) event_del(s->readable);
	}
}

/* ---- Life. ---- */

static void stop(void *arg)
{
	struct mcp_stdio *s = arg;

	end(s);
	daemon_stopped(s->owner.daemon);
}

int mcp_stdio_start(struct daemon *d, struct zw_error *e)
{
	struct mcp_stdio *s = xcalloc(1, sizeof *s);
	struct stat st;

	*s = (struct mcp_stdio){
	    .owner = {.daemon = d, .label = "process"}, .revision = MCP_2025_11_25, .in = evbuffer_new(), .out = evbuffer_new()};
	d->mcp_stdio = s;
	s->readable = event_new(d->base, STDIN_FILENO, EV_READ | EV_PERSIST, on_readable, s);
	s->writable = event_new(d->base, STDOUT_FILENO, EV_WRITE, on_writable, s);
	if (s->in == NULL || s->out == NULL || s->readable == NULL || s->writable == NULL)
		return zw_error(e, ENOMEM, "there is not enough memory for standard input and output");
	daemon_on_stop(d, stop, s);
	if (fstat(STDIN_FILENO, &st) < 0)
		return zw_errno(e, errno, "cannot look at standard input");
	/* The event loop takes no files (epoll_ctl(2), EPERM). */
	if (S_ISREG(st.st_mode) || event_add(s->readable, NULL) < 0) {
		while (read_some(s))
			;
		end(s);
	}
	return 0;
}

struct mcp_stdio *mcp_stdio_free(struct mcp_stdio *s)
{
	if (s == NULL)
		return NULL;
	if (s->out != NULL)
		write_some(s, FLUSH_MSEC);
	mcp_owner_done(&s->owner);
	if (s->readable != NULL)
		event_free(s->readable);
	if (s->writable != NULL)
		event_free(s->writable);
	if (s->in != NULL)
		evbuffer_free(s->in);
	if (s->out != NULL)
		evbuffer_free(s->out);
	free(s);
	return NULL;
}
