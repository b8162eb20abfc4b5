#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "egress/control.h"
#include "egress/dial.h"
#include "egress/http-internal.h"
#include "egress/http.h"
#include "egress/quota.h"
#include "egress/tls.h"

enum {
	HEAD_SECONDS = 30,     /* from the first byte of a head, or from the beginning, to its end */
	IDLE_SECONDS = 300,    /* between requests, and without a byte where one is owed */
	CONNECT_SECONDS = 120, /* dialling has a limit of its own; this one holds for TLS as well */
	LINGER_SECONDS = 5,
};

static void session_step(struct session *s);

/* ---- The session. ---- */

static void session_free(struct session *s)
{
	if (s->dial != NULL)
		dial_cancel(s->dial);
	session_drop_origin(s, false);
	side_free(&s->client, false);
	response_reset(s);
	evbuffer_free(s->to_send);
	evbuffer_free(s->scratch);
	event_free(s->timer);
	event_free(s->pace);
	if (s->f != NULL)
		flow_close(s->f);
	if (s->proxied)
		connections_count(s->broker, -1);
	free(s);
}

void session_drop_origin(struct session *s, bool reset)
{
	if (s->dial != NULL)
		dial_cancel(s->dial);
	s->dial = NULL;
	side_free(&s->origin, reset);
}

void session_abort(struct session *s, const char *error)
{
	if (s->f != NULL && s->f->error[0] == '\0' && error != NULL)
		(void) snprintf(s->f->error, sizeof s->f->error, "%s", error);
	session_drop_origin(s, true);
	side_free(&s->client, true);
	s->over = true;
}

void session_enter(struct session *s, enum http_state state)
{
	s->state = state;
	s->timed = -1;
	if (state == HTTP_HEAD || state == HTTP_EXCHANGE)
		s->scanned = 0; /* another head is awaited */
	if (state != HTTP_CLOSE)
		return;
	session_drop_origin(s, s->request.body.kind != BODY_NONE && !s->request.done);
	bufferevent_setwatermark(s->client.bev, EV_WRITE, SIZE_MAX, 0); /* tell of every byte that goes */
	s->unsent = SIZE_MAX;
}

void session_answer(struct session *s, unsigned status, bool keep, const char *line)
{
	const struct answer a = {.status = status, .close = !keep, .head_only = s->request.head, .line = line};

	answer_put(&a, side_output(&s->client));
	session_enter(s, keep ? HTTP_DRAIN : HTTP_CLOSE);
}

size_t session_allowance(struct session *s, size_t wanted)
{
	usec_t wait = 0;
	size_t n = quota_allowance(s->broker->quota, wanted, &wait);
	struct timeval t = {.tv_sec = (time_t) (wait / USEC_PER_SEC), .tv_usec = (suseconds_t) (wait % USEC_PER_SEC)};

	if (n == 0 && wait > 0)
		(void) evtimer_add(s->pace, &t);
	return n;
}

bool session_count_sent(struct session *s, uint64_t bytes)
{
	if (bytes == 0 || quota_sent(s->f, bytes))
		return true;
	session_abort(s, "the limit of bytes to send is used up");
	return false;
}

bool session_count_received(struct session *s, uint64_t bytes)
{
	if (bytes == 0 || quota_received(s->f, bytes))
		return true;
	session_abort(s, "the limit of bytes to receive is used up");
	return false;
}

/* ---- The states. Each returns true when it moved something and should be asked again. ---- */

static bool step_handshake(struct session *s)
{
	if (s->client.connected)
		session_enter(s, HTTP_HEAD);
	return s->client.connected;
}

/* An origin that ended while no request was under way: the client hears so, as it would without a broker between, and does not
 * send its next request into a void. One that speaks unasked cannot be trusted with the order of its answers. */
static bool idle_origin_gone(struct session *s)
{
	if (s->origin.bev == NULL || (!s->origin.ended && !s->origin.deaf && evbuffer_get_length(side_input(&s->origin)) == 0))
		return false;
	session_drop_origin(s, false);
	if (evbuffer_get_length(side_input(&s->client)) == 0)
		session_enter(s, HTTP_CLOSE);
	return true;
}

static bool step_head(struct session *s)
{
	struct evbuffer *in = side_input(&s->client);
	struct head_fault fault;
	size_t size;
	ssize_t end;
	const char *data;

	if (idle_origin_gone(s))
		return true;
	size = evbuffer_get_length(in);
	if (size > HEAD_SIZE_MAX)
		size = HEAD_SIZE_MAX;
	if (side_unsent(&s->client) >= HTTP_BUFFER_MAX)
		return false; /* requests come faster than answers are read */
	data = size > 0 ? (const char *) evbuffer_pullup(in, (ev_ssize_t) size) : NULL;
	end = size > 0 ? head_find(data, size, &s->scanned, &fault) : 0;
	if (end == 0 && s->client.ended)
		session_enter(s, HTTP_CLOSE);
	if (end == 0)
		return s->client.ended;
	s->request = (struct http_request){.minor = 1};
	if (end < 0)
		request_malformed(s, &fault);
	else
		request_head(s, data, (size_t) end);
	s->served = true;
	if (end > 0 && !s->over)
		(void) evbuffer_drain(in, (size_t) end);
	return true;
}

static bool step_drain(struct session *s)
{
	struct evbuffer *in = side_input(&s->client);
	size_t before = evbuffer_get_length(in);
	int r = body_take(&s->request.body, in, s->scratch, SIZE_MAX);

	(void) evbuffer_drain(s->scratch, evbuffer_get_length(s->scratch));
	if (s->request.body.done && r == 0)
		session_enter(s, HTTP_HEAD);
	else if (r < 0 || (s->client.ended && evbuffer_get_length(in) == 0))
		session_enter(s, HTTP_CLOSE);
	return s->state != HTTP_DRAIN || evbuffer_get_length(in) != before;
}

static bool step_connect(struct session *s)
{
	if (s->origin.bev == NULL)
		return false;
	if (s->origin.connected) {
		(void) evbuffer_add_buffer(side_output(&s->origin), s->to_send);
		session_enter(s, HTTP_EXCHANGE);
	}
	return s->origin.connected;
}

/* Request and response are both over: on to the next, or the end. */
static void finish_exchange(struct session *s)
{
	bool keep = s->request.keep && s->request.done;

	if (!keep || !s->response.keep_origin || evbuffer_get_length(side_input(&s->origin)) > 0)
		session_drop_origin(s, !s->request.done);
	response_reset(s);
	side_rest(&s->origin);
	session_enter(s, keep ? HTTP_HEAD : HTTP_CLOSE);
}

static bool step_exchange(struct session *s)
{
	bool moved = request_pump(s);

	if (!s->over && s->state == HTTP_EXCHANGE && response_pump(s))
		moved = true;
	if (!s->over && s->state == HTTP_EXCHANGE && s->response.done) {
		finish_exchange(s);
		return true;
	}
	return moved;
}

/* Moves what may move from one side to the other; passes the end on. */
static bool tunnel(struct session *s, struct side *from, struct side *to, bool (*count)(struct session *s, uint64_t bytes))
{
	struct evbuffer *in = side_input(from), *out = side_output(to);
	size_t room = side_unsent(to) < HTTP_BUFFER_MAX ? HTTP_BUFFER_MAX - side_unsent(to) : 0;
	size_t n = evbuffer_get_length(in) < room ? evbuffer_get_length(in) : room;

	if (to->deaf) {
		(void) evbuffer_drain(in, evbuffer_get_length(in)); /* nobody takes it */
		n = 0;
	}
	n = n > 0 ? session_allowance(s, n) : 0;
	if (n > 0) {
		if (count(s, n))
			(void) evbuffer_remove_buffer(in, out, n);
		return true;
	}
	if (from->ended && !to->shut && evbuffer_get_length(in) == 0 && (to->deaf || side_unsent(to) == 0)) {
		side_shut(to, from->ragged);
		return true;
	}
	return false;
}

static bool step_tunnel(struct session *s)
{
	bool moved;

	if (s->origin.failed && evbuffer_get_length(side_input(&s->origin)) == 0) {
		session_abort(s, "the connection was reset after the upgrade");
		return true;
	}
	moved = tunnel(s, &s->client, &s->origin, session_count_sent);
	if (!s->over && tunnel(s, &s->origin, &s->client, session_count_received))
		moved = true;
	if (!s->over && s->client.shut && s->origin.shut)
		s->over = true;
	return moved;
}

static bool step_close(struct session *s)
{
	struct evbuffer *in = side_input(&s->client);
	size_t unsent = side_unsent(&s->client);
	bool moved = unsent < s->unsent;

	s->unsent = unsent;
	(void) evbuffer_drain(in, evbuffer_get_length(in));
	if (unsent == 0 && !s->client.shut)
		side_shut(&s->client, s->ragged);
	s->over = s->client.shut && s->client.ended;
	return moved && !s->over;
}

static bool step_once(struct session *s)
{
	switch (s->state) {
	case HTTP_HANDSHAKE:
		return step_handshake(s);
	case HTTP_HEAD:
		return step_head(s);
	case HTTP_DRAIN:
		return step_drain(s);
	case HTTP_CONNECT:
		return step_connect(s);
	case HTTP_EXCHANGE:
		return step_exchange(s);
	case HTTP_TUNNEL:
		return step_tunnel(s);
	case HTTP_CLOSE:
		return step_close(s);
	}
	return false;
}

/* ---- Time. ---- */

static unsigned patience(const struct session *s, bool head_began)
{
	switch (s->state) {
	case HTTP_HEAD:
		return s->served && !head_began ? IDLE_SECONDS : HEAD_SECONDS;
	case HTTP_HANDSHAKE:
	case HTTP_DRAIN:
		return HEAD_SECONDS;
	case HTTP_CONNECT:
		return CONNECT_SECONDS;
	case HTTP_EXCHANGE: /* an origin may take its time to answer, as long as the client waits */
		return s->request.done && !s->client.ended ? 0 : IDLE_SECONDS;
	case HTTP_TUNNEL:
		return s->client.ended || s->origin.ended ? IDLE_SECONDS : 0;
	case HTTP_CLOSE:
		return s->client.shut ? LINGER_SECONDS : IDLE_SECONDS;
	}
	return HEAD_SECONDS;
}

/* Where a byte now and then shows life, each one begins the time anew; for a head and a refused body it runs on. */
static void keep_time(struct session *s, bool moved)
{
	bool began = s->state == HTTP_HEAD && evbuffer_get_length(side_input(&s->client)) > 0;
	struct timeval t = {.tv_sec = patience(s, began)};
	int wanted = (int) s->state * 1024 + (int) t.tv_sec;
	bool anew = moved && (s->state == HTTP_EXCHANGE || s->state == HTTP_TUNNEL || s->state == HTTP_CLOSE);

	if (s->timed == wanted && !(anew && t.tv_sec > 0))
		return;
	s->timed = wanted;
	if (t.tv_sec > 0)
		(void) evtimer_add(s->timer, &t);
	else
		(void) evtimer_del(s->timer);
}

static void timed_out(evutil_socket_t fd, short what, void *ctx)
{
	struct session *s = ctx;

	(void) fd, (void) what;
	if (s->state == HTTP_HEAD && evbuffer_get_length(side_input(&s->client)) == 0)
		session_enter(s, HTTP_CLOSE);
	else if (s->state == HTTP_CLOSE && s->client.shut)
		s->over = true;
	else
		session_abort(s, s->state == HTTP_CONNECT ? "the server took too long to connect"
							  : "a time limit for the client passed");
	session_step(s);
}

static bool flush(struct session *s)
{
	bool client = side_flush(&s->client), origin = side_flush(&s->origin);

	return client || origin;
}

static void session_step(struct session *s)
{
	bool moved = false;

	if (!s->over && s->client.failed && (s->state == HTTP_HEAD || s->state == HTTP_CLOSE))
		s->over = true; /* gone between two requests, or behind the last */
	if (!s->over && s->client.failed)
		session_abort(s, NULL);
	do {
		while (!s->over && step_once(s))
			moved = true;
	} while (!s->over && flush(s));
	if (s->over) {
		session_free(s);
		return;
	}
	side_hold(&s->client);
	side_hold(&s->origin);
	keep_time(s, moved);
}

/* ---- Events. ---- */

static void data_moved(struct bufferevent *bev, void *ctx)
{
	(void) bev;
	session_step(ctx);
}

static void paced(evutil_socket_t fd, short what, void *ctx)
{
	(void) fd, (void) what;
	session_step(ctx);
}

/* Why TLS failed, for the record of the connection. After the handshake this is about the end of it, which is judged where it
 * matters. */
static void note_tls_error(struct session *s, const struct side *side)
{
	if (side->failed && !side->connected && s->f->error[0] == '\0' && s->f->protocol == NET_HTTPS)
		tls_error(side->bev, s->f->error, sizeof s->f->error);
}

/* A ClientHello that asks for another name is an attempt to get somewhere else. */
static void record_objection(struct session *s)
{
	const char *why = tls_objection(s->client.bev);
	char host[AUTHORITY_TEXT];
	struct refusal r = {.kind = "network",
			    .host = target_host(&s->f->target, false, host),
			    .port = s->f->target.port,
			    .rule = s->f->rule_count > 0 ? (int) s->f->rules[0] : -1,
			    .why = why};

	if (why != NULL)
		control_refusal(s->broker->control, &r);
}

static void client_event(struct bufferevent *bev, short what, void *ctx)
{
	struct session *s = ctx;

	(void) bev;
	side_note(&s->client, what);
	if (s->state == HTTP_HANDSHAKE) {
		s->client.failed = s->client.failed || s->client.ended;
		note_tls_error(s, &s->client);
		if (s->client.failed)
			record_objection(s);
	}
	if (s->client.deaf)
		s->client.failed = true; /* nobody is there to answer to */
	session_step(s);
}

static void origin_event(struct bufferevent *bev, short what, void *ctx)
{
	struct session *s = ctx;

	(void) bev;
	side_note(&s->origin, what);
	if (s->state == HTTP_CONNECT && s->origin.ended) {
		s->origin.failed = true;
		note_tls_error(s, &s->origin);
		session_abort(s, "the server closed the connection");
	}
	session_step(s);
}

static void dialled(void *ctx, int fd)
{
	struct session *s = ctx;
	bool tls = s->f->protocol == NET_HTTPS;
	char host[AUTHORITY_TEXT];

	s->dial = NULL;
	if (fd >= 0)
		s->origin.bev = tls ? tls_connect(s->broker->tls, fd, target_host(&s->f->target, false, host))
				    : side_plain(s->broker->base, fd);
	if (s->origin.bev == NULL) {
		session_abort(s, "the connection could not be made");
	} else {
		s->origin.connected = !tls;
		side_set_up(&s->origin, data_moved, origin_event, s);
	}
	session_step(s);
}

/* http-request.c: a request was allowed and its head lies in to_send. */
void session_connect(struct session *s)
{
	session_enter(s, HTTP_CONNECT);
	if (s->origin.bev == NULL)
		s->dial = dial_start(s->f, false, dialled, s);
}

static void cut(void *owner)
{
	session_abort(owner, NULL);
	session_step(owner);
}

void session_hold(struct session *s)
{
	s->f->cut = cut;
	s->f->owner = s;
}

static void session_start(struct broker *b, struct flow *f, int fd)
{
	struct session *s = xcalloc(1, sizeof *s);
	bool tls = f != NULL && f->protocol == NET_HTTPS;
	char host[AUTHORITY_TEXT];

	*s = (struct session){.broker = b, .f = f, .proxied = f == NULL, .timed = -1, .state = tls ? HTTP_HANDSHAKE : HTTP_HEAD};
	s->to_send = evbuffer_new();
	s->scratch = evbuffer_new();
	s->timer = evtimer_new(b->base, timed_out, s);
	s->pace = evtimer_new(b->base, paced, s);
	s->client.bev = tls ? tls_accept(b->tls, fd, target_host(&f->target, false, host)) : side_plain(s->broker->base, fd);
	if (s->proxied)
		connections_count(b, 1);
	else
		session_hold(s);
	if (s->client.bev == NULL) {
		session_abort(s, "TLS could not be begun");
		session_free(s);
		return;
	}
	s->client.connected = !tls;
	side_set_up(&s->client, data_moved, client_event, s);
	keep_time(s, false);
}

void http_start(struct flow *f, int fd)
{
	session_start(f->broker, f, fd);
}

void http_start_proxied(struct broker *b, int fd)
{
	session_start(b, NULL, fd);
}
