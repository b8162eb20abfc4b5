/* zwinger mcp --url: MCP on standard input and output, whose sandboxes are a daemon's. Messages go through one by one
 * (mcp-relay.c); standard output carries them alone, one a line.
 *
 * The descriptors may be shared with other programs, so they are not made non-blocking: they are read and written when that does
 * not block (a pipe that is ready has room for PIPE_BUF bytes). */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/mcp-relay.h"
#include "client/show.h"
#include "client/verbs.h"

enum {
	LINE_MAX_BYTES = 16 * 1024 * 1024,
	READ_SIZE = 64 * 1024,
	OUT_HIGH = 1024 * 1024,
	OUT_MAX = 256 * 1024 * 1024, /* what answers that were under way may come to */
	WAIT_MSEC = 60 * 1000,
	FLUSH_MSEC = 2000,
	MCP_FAILED = 1,
};

struct mcp {
	struct relay relay;
	struct buf in, out;
	size_t scanned, written; /* of `in` without an end of line; of `out` */
	int signals;
	bool skipping;        /* a line that is too long */
	bool over;            /* nothing is read any more */
	bool broken, overrun; /* broken: nobody reads what we write */
	bool stop;
};

/* ---- Output. ---- */

static bool is_ready(int fd, short events, int wait)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, wait) > 0;
}

static void write_some(struct mcp *m, int wait)
{
	while (!m->broken && m->written < m->out.size && is_ready(STDOUT_FILENO, POLLOUT, wait)) {
		size_t left = m->out.size - m->written;
		ssize_t n = write(STDOUT_FILENO, m->out.data + m->written, left < PIPE_BUF ? left : PIPE_BUF);

		if (n > 0)
			m->written += (size_t) n;
		else if (n < 0 && errno != EINTR && errno != EAGAIN)
			m->broken = true;
	}
	if (m->written == m->out.size || m->broken) {
		m->written = m->out.size = 0;
	} else if (m->written > OUT_HIGH) {
		m->out.size -= m->written;
		memmove(m->out.data, m->out.data + m->written, m->out.size);
		m->written = 0;
	}
}

static bool is_full(void *ctx)
{
	const struct mcp *m = ctx;

	return m->out.size - m->written > OUT_HIGH;
}

/* It may be called by libcurl: what it leads to is left to the loop. */
static void send_message(void *ctx, json_t *message)
{
	struct mcp *m = ctx;
	cleanup_free char *text = json_dumps(message, JSON_COMPACT);

	json_decref(message);
	if (text == NULL || m->broken)
		return;
	if (buf_adds(&m->out, text) < 0 || buf_add(&m->out, "\n", 1) < 0)
		m->overrun = true;
}

/* ---- Input. ---- */

static void take_message(struct mcp *m, const char *line, size_t size)
{
	struct mcp_message message;
	json_t *wrong = NULL;

	while (size > 0 && memchr(" \t\r", line[size - 1], 3) != NULL)
		size--;
	if (size == 0)
		return;
	if (mcp_message_read(line, size, &message, &wrong) < 0) {
		send_message(m, wrong);
		return;
	}
	relay_take(&m->relay, &message);
	mcp_message_done(&message);
}

static void too_long(struct mcp *m)
{
	if (!m->skipping)
		send_message(m,
			     mcp_error(NULL, MCP_INVALID_REQUEST, NULL, "the message is longer than %d bytes", LINE_MAX_BYTES));
	m->skipping = true;
	m->in.size = m->scanned = 0;
}

static void take_lines(struct mcp *m)
{
	size_t begin = 0;

	for (;;) {
		const char *end = memchr(m->in.data + m->scanned, '\n', m->in.size - m->scanned);
		size_t at = end != NULL ? (size_t) (end - m->in.data) : 0;

		if (end == NULL)
			break;
		if (!m->skipping)
			take_message(m, m->in.data + begin, at - begin);
		m->skipping = false;
		begin = m->scanned = at + 1;
	}
	m->in.size -= begin;
	memmove(m->in.data, m->in.data + begin, m->in.size);
	m->scanned = m->in.size;
	if (m->in.size > LINE_MAX_BYTES || (m->skipping && m->in.size > 0))
		too_long(m);
}

static void read_some(struct mcp *m)
{
	char data[READ_SIZE];
	ssize_t n = read(STDIN_FILENO, data, sizeof data);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		m->over = true;
		relay_leave(&m->relay, false);
	} else {
		(void) buf_add(&m->in, data, (size_t) n); /* take_lines leaves room */
		take_lines(m);
	}
}

/* ---- The loop. ---- */

static bool goes_on(const struct mcp *m)
{
	return !m->stop && !m->broken && !m->overrun && (!m->over || m->relay.count > 0);
}

/* What curl_multi_poll(3) reports lacks POLLHUP: the descriptors are looked at again. */
static void wait_for_it(struct mcp *m)
{
	struct curl_waitfd fds[3] = {{.fd = m->signals, .events = CURL_WAIT_POLLIN}};
	unsigned count = 1;
	bool read = !m->over && !is_full(m);

	if (read)
		fds[count++] = (struct curl_waitfd){.fd = STDIN_FILENO, .events = CURL_WAIT_POLLIN};
	if (m->written < m->out.size)
		fds[count++] = (struct curl_waitfd){.fd = STDOUT_FILENO, .events = CURL_WAIT_POLLOUT};
	(void) curl_multi_poll(m->relay.multi, fds, count, WAIT_MSEC, NULL);
	m->stop = is_ready(m->signals, POLLIN, 0);
	if (read && !m->stop && is_ready(STDIN_FILENO, POLLIN, 0))
		read_some(m);
}

static void converse(struct mcp *m)
{
	int running;

	while (goes_on(m)) {
		(void) curl_multi_perform(m->relay.multi, &running);
		relay_take_results(&m->relay);
		write_some(m, 0);
		if (!is_full(m))
			relay_go_on(&m->relay);
		if (goes_on(m))
			wait_for_it(m);
	}
}

/* ---- Beginning and end. ---- */

/* The first one ends it in order; while it does, the next ones do what they do. */
static int catch_signals(struct mcp *m)
{
	sigset_t set;

	(void) sigemptyset(&set);
	(void) sigaddset(&set, SIGINT);
	(void) sigaddset(&set, SIGTERM);
	(void) sigaddset(&set, SIGHUP);
	m->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (m->signals < 0) {
		log_error("cannot watch signals: %s", strerror(errno));
		return MCP_FAILED;
	}
	(void) sigprocmask(SIG_BLOCK, &set, NULL);
	return 0;
}

static void release_signals(const struct mcp *m)
{
	struct signalfd_siginfo info;
	sigset_t none;

	if (m->stop)
		(void) !read(m->signals, &info, sizeof info); /* it has been obeyed */
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
}

int verb_mcp(const struct client_options *o)
{
	struct remote remote;
	struct mcp m = {.in = buf_new(LINE_MAX_BYTES + READ_SIZE + 1), .out = buf_new(OUT_MAX), .signals = -EBADF};
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	m.relay =
	    (struct relay){.remote = &remote, .multi = curl_multi_init(), .send = send_message, .is_full = is_full, .ctx = &m};
	if (m.relay.multi == NULL) {
		log_error("libcurl cannot be started");
		r = MCP_FAILED;
	}
	if (r == 0)
		r = catch_signals(&m);
	if (r == 0) {
		converse(&m);
		release_signals(&m);
		relay_end(&m.relay);
		write_some(&m, FLUSH_MSEC);
	}
	if (m.overrun) {
		log_error("nobody reads what the sandboxes answer");
		r = MCP_FAILED;
	}
	(void) curl_multi_cleanup(m.relay.multi);
	buf_done(&m.in);
	buf_done(&m.out);
	fd_close(&m.signals);
	remote_done(&remote);
	return r;
}
