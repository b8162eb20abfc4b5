/* The explicit proxy on 198.18.0.1:3128, for programs that insist on one (network.proxy_env). CONNECT opens a flow, which then
 * goes on as if the client had connected to the target itself; a request with an absolute target goes to http-session.c.
 *
 * The head of CONNECT is looked at in the socket's buffer (MSG_PEEK) and only then taken out, to the byte: what the client sent
 * behind it belongs to the protocol of the rule and is read there. */
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/answer.h"
#include "egress/authority.h"
#include "egress/broker.h"
#include "egress/control.h"
#include "egress/http.h"
#include "egress/narrow.h"

enum { PROXY_HEAD_MAX = 8192, PROXY_SECONDS = 30, PROXY_LINGER_SECONDS = 5, THROW_AWAY_MAX = 64 };

struct proxy {
	struct broker *broker;
	int fd;
	struct event *readable, *timer;
	size_t scanned;
	bool refused; /* answered; the client's end is awaited */
};

/* Hands the socket over: whoever takes it may watch it in another way. */
static int give_fd(struct proxy *p)
{
	(void) event_del(p->readable);
	return take_fd(&p->fd);
}

static void proxy_free(struct proxy *p)
{
	event_free(p->readable);
	event_free(p->timer);
	fd_close(&p->fd);
	connections_count(p->broker, -1);
	free(p);
}

static void timed_out(evutil_socket_t fd, short what, void *ctx)
{
	struct proxy *p = ctx;

	(void) fd, (void) what;
	if (!p->refused)
		reset_close(give_fd(p));
	proxy_free(p);
}

static bool send_all(int fd, struct evbuffer *text)
{
	size_t size = evbuffer_get_length(text);
	const unsigned char *data = evbuffer_pullup(text, -1);

	/* Nothing was sent before: it fits, or something is wrong. */
	return send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t) size;
}

/* Throws away what the client sent. The last result of recv(2). */
static ssize_t throw_away(int fd)
{
	char data[PROXY_HEAD_MAX];
	ssize_t n = 1;

	for (size_t i = 0; i < THROW_AWAY_MAX && n > 0; i++)
		n = recv(fd, data, sizeof data, MSG_DONTWAIT);
	return n;
}

/* Answers and waits a moment for the client's end, so that no reset overtakes the answer. */
static void refuse(struct proxy *p, unsigned status, const char *line)
{
	static const struct timeval linger = {.tv_sec = PROXY_LINGER_SECONDS};
	const struct answer a = {.status = status, .close = true, .line = line};
	struct evbuffer *text = evbuffer_new();

	(void) throw_away(p->fd);
	answer_put(&a, text);
	(void) send_all(p->fd, text); /* who does not take it goes without */
	evbuffer_free(text);
	(void) shutdown(p->fd, SHUT_WR);
	p->refused = true;
	(void) evtimer_add(p->timer, &linger);
}

/* `target`: what was asked for, as it was written; NULL when that could not be read. */
static void refuse_fault(struct proxy *p, const struct head_fault *fault, const struct slice *target)
{
	char line[ANSWER_LINE], asked[NETWORK_NAME_SIZE] = "";
	struct refusal r = {.kind = "http", .method = "CONNECT", .rule = -1, .host = asked, .why = fault->why};

	if (target != NULL)
		(void) snprintf(asked, sizeof asked, "%.*s", (int) target->size, target->data);
	control_refusal(p->broker->control, &r);
	(void) snprintf(line, sizeof line, "zwinger: the request was refused: %s", fault->why);
	refuse(p, fault->status, line);
}

static void refuse_target(struct proxy *p, const struct target *t)
{
	char why[ANSWER_LINE], line[ANSWER_LINE];
	bool covered = narrow_rules(p->broker, t, false, NULL, 0) > 0;

	if (covered)
		(void) snprintf(why, sizeof why, "a limit of network.limits is used up");
	else if (!narrow_why(p->broker, t, false, why, sizeof why))
		answer_denied_target(p->broker->network, t, why);
	answer_how_to_ask(why, line);
	refuse(p, covered ? 429 : 403, line);
}

/* Takes the head out of the socket's buffer; it was seen to be there. */
static bool consume(int fd, size_t size)
{
	char head[PROXY_HEAD_MAX];

	return recv(fd, head, size, MSG_DONTWAIT) == (ssize_t) size;
}

static void tunnel(struct proxy *p, const struct target *t, size_t head_size)
{
	struct flow *f = flow_open(p->broker, t, false);
	struct evbuffer *text;
	bool sent;

	if (f == NULL) {
		refuse_target(p, t);
		return;
	}
	text = evbuffer_new();
	(void) evbuffer_add_printf(text, "HTTP/1.1 200 Connection established\r\n\r\n");
	sent = consume(p->fd, head_size) && send_all(p->fd, text);
	evbuffer_free(text);
	if (sent) {
		flow_start(f, give_fd(p));
	} else {
		(void) snprintf(f->error, sizeof f->error, "the client went away before its tunnel was open");
		reset_close(give_fd(p));
		flow_close(f);
	}
	proxy_free(p);
}

/* CONNECT names its target twice; both must say the same. */
static void connect_to(struct proxy *p, const char *data, size_t size)
{
	struct head h;
	struct request_target r;
	struct head_fault fault;
	struct target t, said;
	size_t hosts = 0;

	if (head_parse_request(data, size, &h, &fault) < 0) {
		refuse_fault(p, &fault, NULL);
		return;
	}
	if (request_target_parse(&h, &r, &fault) < 0) {
		refuse_fault(p, &fault, &h.target);
		return;
	}
	authority_target(NULL, &r.authority, 0, &said);
	if (h.has_length || h.chunked)
		fault = (struct head_fault){.status = 400, .why = "CONNECT has no body"};
	else if ((head_field(&h, "host", &hosts) == NULL && hosts == 0) || request_check_host(&h, &r, &said, &fault) == 0)
		fault.status = 0; /* some clients leave Host out here */
	if (fault.status != 0) {
		refuse_fault(p, &fault, &h.target);
		return;
	}
	authority_target(p->broker->names, &r.authority, 0, &t);
	tunnel(p, &t, size);
}

static void consider(struct proxy *p, const char *data, size_t size)
{
	static const char method[] = "CONNECT ";
	size_t n = size < sizeof method - 1 ? size : sizeof method - 1;
	struct head_fault fault;
	ssize_t end;

	if (memcmp(data, method, n) != 0) {
		http_start_proxied(p->broker, give_fd(p));
		proxy_free(p);
		return;
	}
	end = head_find(data, size, &p->scanned, &fault);
	if (end == 0 && size == PROXY_HEAD_MAX) {
		fault = (struct head_fault){.status = 431, .why = "the head of CONNECT is longer than 8 KiB"};
		end = -E2BIG;
	}
	if (end < 0)
		refuse_fault(p, &fault, NULL);
	else if (end > 0)
		connect_to(p, data, (size_t) end);
}

/* Edge-triggered: what has been looked at stays in the socket, and only more of it is news. */
static void readable(evutil_socket_t fd, short what, void *ctx)
{
	struct proxy *p = ctx;
	char data[PROXY_HEAD_MAX];
	ssize_t n = p->refused ? throw_away(fd) : recv(fd, data, sizeof data, MSG_DONTWAIT | MSG_PEEK);

	(void) what;
	if (n > 0 && p->refused)
		return; /* there is more than is worth reading: the timer ends it */
	if (n > 0)
		consider(p, data, (size_t) n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		proxy_free(p);
}

void proxy_start(struct broker *b, int fd)
{
	static const struct timeval patience = {.tv_sec = PROXY_SECONDS};
	struct proxy *p = xcalloc(1, sizeof *p);

	*p = (struct proxy){.broker = b, .fd = fd};
	connections_count(b, 1);
	p->readable = event_new(b->base, fd, EV_READ | EV_PERSIST | EV_ET, readable, p);
	p->timer = evtimer_new(b->base, timed_out, p);
	(void) event_add(p->readable, NULL);
	(void) evtimer_add(p->timer, &patience);
}
