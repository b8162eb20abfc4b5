/* Connections: reading heads, keeping time, closing. http.h has the theory of operation. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/ssl.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "daemon/http.h"

enum { WORK_AT_ONCE = 16, READ_AT_ONCE = 128 * 1024 };
/* A connection that has been idle for less may be about to be used: closing it could take a request with it. */
#define IDLE_ENOUGH (5 * USEC_PER_SEC)

struct tunnel {
	struct http_conn *conn;
	void (*cut)(void *arg);
	void *arg;
	char key_id[KEY_ID_SIZE];
};

/* ---- Time. ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg);

static void arm(struct http_conn *c)
{
	usec_t by = c->in_by, now;
	struct timeval wait;

	if (by == 0 || (c->out_by != 0 && c->out_by < by))
		by = c->out_by;
	if (by == 0 || (c->timer_at != 0 && c->timer_at <= by))
		return;
	now = now_monotonic();
	now = by > now ? by - now : 0;
	wait = (struct timeval){.tv_sec = (time_t) (now / USEC_PER_SEC), .tv_usec = (suseconds_t) (now % USEC_PER_SEC)};
	c->timer_at = event_add(c->timer, &wait) == 0 ? by : 0;
}

void conn_want_input_by(struct http_conn *c, usec_t at)
{
	c->in_by = at;
	arm(c);
}

static usec_t progress_by(const struct http_conn *c)
{
	return now_monotonic() + (c->x != NULL && c->x->patience > 0 ? c->x->patience : c->server->limits.times.progress);
}

static void on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
{
	struct http_conn *c = arg;

	if (evbuffer_get_length(output) == 0)
		c->out_by = 0;
	else if (info->n_deleted > 0 || info->orig_size == 0)
		c->out_by = progress_by(c);
	arm(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *c = arg;
	usec_t now = now_monotonic();

	(void) fd;
	(void) what;
	c->timer_at = 0;
	if (c->out_by != 0 && now >= c->out_by)
		conn_cut(c, true);
	else if (c->in_by != 0 && now >= c->in_by)
		conn_cut(c, c->state == CONN_EXCHANGE);
	else
		arm(c);
}

/* ---- The idle ones. ---- */

static void leave_idle(struct http_conn *c)
{
	if (c->in_idle)
		TAILQ_REMOVE(&c->server->idle, c, idle_entry);
	c->in_idle = false;
}

static void enter_idle(struct http_conn *c)
{
	leave_idle(c);
	c->idle_since = now_monotonic();
	TAILQ_INSERT_TAIL(&c->server->idle, c, idle_entry);
	c->in_idle = true;
}

bool http_make_room(struct http_server *s)
{
	struct http_conn *c = TAILQ_FIRST(&s->idle);

	if (c == NULL || now_monotonic() - c->idle_since < IDLE_ENOUGH)
		return false;
	conn_cut(c, false);
	return true;
}

/* ---- The end of a connection. ---- */

static void close_notify(struct http_conn *c)
{
	SSL *ssl = c->peer.tls ? bufferevent_openssl_get_ssl(c->bev) : NULL;

	if (ssl != NULL && SSL_is_init_finished(ssl) == 1)
		(void) SSL_shutdown(
		    ssl); /* the one record fits the socket, whose output has just been drained; if not, so be it */
}

static void conn_free(struct http_conn *c)
{
	const struct linger at_once = {.l_onoff = 1};
	struct http_server *s = c->server;
	struct exchange *x = c->x;
	int fd = bufferevent_getfd(c->bev);

	c->x = NULL;
	leave_idle(c);
	LIST_REMOVE(c, entry);
	s->count--;
	if (c->reset && fd >= 0)
		(void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* else it is a plain close */
	if (c->state != CONN_TUNNEL)
		(void) evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
	bufferevent_free(c->bev);
	event_free(c->timer);
	free(c->tunnel);
	free(c);
	if (x != NULL)
		exchange_detach(x);
	if (s->ending && s->count == 0 && s->on_empty != NULL)
		s->on_empty(s);
}

void conn_cut(struct http_conn *c, bool reset)
{
	c->dead = true;
	c->reset = c->reset || reset;
	if (c->working == 0)
		conn_free(c);
}

void conn_cut_soon(struct http_conn *c)
{
	c->dead = c->reset = true;
	conn_work_soon(c);
}

static void leave(struct http_conn *c)
{
	if (--c->working == 0 && c->dead)
		conn_free(c);
}

/* Everything is said and on its way to the kernel. */
static void begin_linger(struct http_conn *c)
{
	if (c->eof || c->server->ending) {
		close_notify(c);
		conn_cut(c, false);
		return;
	}
	close_notify(c);
	(void) shutdown(bufferevent_getfd(c->bev), SHUT_WR); /* a peer that has left is seen by the next read */
	c->state = CONN_LINGER;
	enter_idle(c);
	conn_want_input_by(c, now_monotonic() + c->server->limits.times.linger);
}

static bool linger(struct http_conn *c)
{
	struct evbuffer *input = bufferevent_get_input(c->bev);

	c->lingered += evbuffer_get_length(input);
	(void) evbuffer_drain(input, evbuffer_get_length(input)); /* all of it is there */
	if (c->eof || c->server->ending || c->lingered > LINGER_BYTES_MAX)
		conn_cut(c, false);
	return false;
}

/* ---- Heads. ---- */

/* Is the first line longer than it may be? `size` bytes have come. */
static bool line_too_long(const char *data, size_t size)
{
	size_t n = size < REQUEST_LINE_MAX + 2 ? size : REQUEST_LINE_MAX + 2;

	return n > REQUEST_LINE_MAX && memchr(data, '\n', n) == NULL;
}

/* The size of a whole head in the input; 0: not yet; negative: never, see `fault`. */
static ssize_t find_head(struct http_conn *c, struct head_fault *fault)
{
	struct evbuffer *input = bufferevent_get_input(c->bev);
	size_t size = evbuffer_get_length(input);
	const char *data;
	ssize_t r;

	if (size > REQUEST_HEAD_MAX)
		size = REQUEST_HEAD_MAX;
	data = (const char *) evbuffer_pullup(input, (ev_ssize_t) size);
	if (data == NULL)
		return -ENOMEM;
	r = head_find_within(data, size, REQUEST_HEAD_MAX, &c->scanned, fault);
	if (r != -EBADMSG && line_too_long(data, r > 0 ? (size_t) r : size)) {
		*fault = (struct head_fault){.status = 414, .why = "the first line is longer than 16 KiB"};
		return -E2BIG;
	}
	return r;
}

static bool nothing_came(struct http_conn *c)
{
	if (c->eof)
		c->closing = true;
	return c->eof;
}

/* True when something was done and more may be to do. */
static bool read_head(struct http_conn *c)
{
	struct head_fault fault = {0};
	ssize_t size;

	if (evbuffer_get_length(bufferevent_get_output(c->bev)) > OUTPUT_MAX)
		return false;
	if (evbuffer_get_length(bufferevent_get_input(c->bev)) == 0)
		return nothing_came(c);
	if (!c->begun) {
		c->begun = true;
		leave_idle(c);
		/* The first one has been waited for since the connection began. */
		if (c->answered)
			conn_want_input_by(c, now_monotonic() + c->server->limits.times.head);
	}
	size = find_head(c, &fault);
	if (size == 0)
		return nothing_came(c);
	if (size == -ENOMEM) {
		conn_cut(c, false);
		return false;
	}
	c->state = CONN_EXCHANGE;
	c->in_by = 0;
	c->x = exchange_new(c, size > 0 ? (size_t) size : 0, &fault);
	c->server->dispatch(&c->x->r);
	return true;
}

static bool close_up(struct http_conn *c)
{
	if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0)
		begin_linger(c);
	return false;
}

static bool serve(struct http_conn *c)
{
	struct exchange *x = c->x;

	if (x->reading)
		exchange_take_body(x);
	if (c->x == x && c->eof && !c->dead && (x->body.done || !x->reading))
		exchange_tell_gone(x);
	return c->x == NULL;
}

static bool work_once(struct http_conn *c)
{
	if (c->dead)
		return false;
	switch (c->state) {
	case CONN_HEAD:
		return c->closing || c->server->ending ? close_up(c) : read_head(c);
	case CONN_EXCHANGE:
		return serve(c);
	case CONN_LINGER:
		return linger(c);
	case CONN_TUNNEL:
		break;
	}
	return false;
}

/* What nobody takes stops the peer. Not by libevent's watermark: it calls back again and again while the input is above it. */
static void regulate(struct http_conn *c)
{
	size_t size = evbuffer_get_length(bufferevent_get_input(c->bev));

	if (!c->stopped && size >= INPUT_MAX)
		c->stopped = bufferevent_disable(c->bev, EV_READ) == 0;
	else if (c->stopped && size < INPUT_MAX / 2)
		c->stopped = bufferevent_enable(c->bev, EV_READ) < 0;
}

void conn_work(struct http_conn *c)
{
	unsigned turns = 0;

	if (c->working > 0)
		return;
	c->working++;
	while (turns < WORK_AT_ONCE && work_once(c))
		turns++;
	if (turns == WORK_AT_ONCE && !c->dead)
		conn_work_soon(c); /* others get their turn */
	if (!c->dead && c->state != CONN_TUNNEL)
		regulate(c);
	leave(c);
}

void conn_work_soon(struct http_conn *c)
{
	bufferevent_trigger(c->bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

/* The answer to the request of this connection is written. */
void conn_answered(struct http_conn *c)
{
	c->x = NULL;
	c->state = CONN_HEAD;
	c->answered = true;
	c->begun = false;
	c->scanned = 0;
	enter_idle(c);
	conn_want_input_by(c, now_monotonic() + c->server->limits.times.idle);
	if (c->working == 0 && !c->dead)
		conn_work_soon(c);
}

/* ---- Callbacks. ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
	(void) bev;
	conn_work(arg);
}

static void on_write(struct bufferevent *bev, void *arg)
{
	struct http_conn *c = arg;
	struct exchange *x = c->x;

	c->working++;
	if (!c->dead && x != NULL && x->room != NULL && evbuffer_get_length(bufferevent_get_output(bev)) < STREAM_ROOM / 4)
		x->room(&x->r);
	c->working--;
	conn_work(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct http_conn *c = arg;

	(void) bev;
	/* A deferred callback may bring both. */
	if ((what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT)) != 0) {
		conn_cut(c, false);
	} else if ((what & BEV_EVENT_EOF) != 0) {
		c->eof = true;
		conn_work(c);
	}
}

int http_conn_new(struct http_server *s, struct bufferevent *bev, const struct http_peer *peer)
{
	struct http_conn *c = xcalloc(1, sizeof *c);

	*c = (struct http_conn){.server = s, .bev = bev, .peer = *peer, .state = CONN_HEAD};
	c->timer = event_new(s->base, -1, 0, on_timer, c);
	if (c->timer == NULL || evbuffer_add_cb(bufferevent_get_output(bev), on_output, c) == NULL) {
		if (c->timer != NULL)
			event_free(c->timer);
		free(c);
		bufferevent_free(bev);
		return -ENOMEM;
	}
	LIST_INSERT_HEAD(&s->conns, c, entry);
	s->count++;
	enter_idle(c);
	bufferevent_setcb(bev, on_read, on_write, on_event, c);
	/* Never reached; without it TLS is read in small pieces. */
	bufferevent_setwatermark(bev, EV_READ, 0, 2 * INPUT_MAX);
	bufferevent_setwatermark(bev, EV_WRITE, STREAM_ROOM / 4, 0);
	(void) bufferevent_set_max_single_read(bev, READ_AT_ONCE);
	(void) bufferevent_set_max_single_write(bev, READ_AT_ONCE);
	conn_want_input_by(c, now_monotonic() + s->limits.times.head);
	if (bufferevent_enable(bev, EV_READ | EV_WRITE) < 0) {
		conn_cut(c, false);
		return -ENOMEM;
	}
	return 0;
}

/* ---- Other protocols. ---- */

struct tunnel *request_take_over(struct request *r, const char *head, void (*cut)(void *arg), void *arg)
{
	struct exchange *x = r->x;
	struct http_conn *c = x->conn;
	struct tunnel *t;

	if (c == NULL || c->dead) {
		exchange_end(x);
		return NULL;
	}
	t = xcalloc(1, sizeof *t);
	*t = (struct tunnel){.conn = c, .cut = cut, .arg = arg};
	memcpy(t->key_id, r->caller.key_id, sizeof t->key_id);
	if (head != NULL)
		(void) bufferevent_write(c->bev, head, strlen(head));
	x->status = head != NULL ? 101 : 0;
	x->conn = NULL;
	exchange_end(x);
	c->x = NULL;
	c->state = CONN_TUNNEL;
	c->tunnel = t;
	c->in_by = c->out_by = 0;
	(void) evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
	bufferevent_setcb(c->bev, NULL, NULL, NULL, NULL);
	bufferevent_setwatermark(c->bev, EV_READ | EV_WRITE, 0, 0);
	(void) bufferevent_enable(c->bev, EV_READ); /* what fails here is seen by who reads */
	return t;
}

struct bufferevent *tunnel_bev(struct tunnel *t)
{
	return t->conn->bev;
}

void tunnel_close(struct tunnel *t)
{
	t->cut = NULL;
	conn_cut(t->conn, false);
}

/* For the server's own reasons. */
static void end_by_server(struct http_conn *c)
{
	void (*cut)(void *arg) = c->tunnel != NULL ? c->tunnel->cut : NULL;

	if (cut == NULL) {
		conn_cut(c, c->state == CONN_EXCHANGE);
		return;
	}
	c->tunnel->cut = NULL; /* only once */
	cut(c->tunnel->arg);   /* calls tunnel_close() */
}

/* ---- The server. ---- */

void http_server_init(struct http_server *s, struct daemon *d, struct event_base *base, const struct http_limits *limits)
{
	*s = (struct http_server){.daemon = d, .base = base, .limits = *limits};
	LIST_INIT(&s->conns);
	LIST_INIT(&s->exchanges);
	TAILQ_INIT(&s->idle);
	randombytes_buf(&s->id_prefix, sizeof s->id_prefix);
}

void http_server_done(struct http_server *s)
{
	while (!LIST_EMPTY(&s->conns))
		end_by_server(LIST_FIRST(&s->conns));
}

static bool holds_still(struct http_conn *c, bool (*holds)(struct daemon *d, const char *key_id))
{
	const char *id = c->x != NULL ? c->x->r.caller.key_id : c->tunnel != NULL ? c->tunnel->key_id : "";

	return id[0] == '\0' || holds(c->server->daemon, id);
}

void http_cut_keys(struct http_server *s, bool (*holds)(struct daemon *d, const char *key_id))
{
	struct http_conn *c = LIST_FIRST(&s->conns);

	/* What a handler does about the end of one may end others: begin again. */
	while (c != NULL) {
		if (!c->dead && !holds_still(c, holds)) {
			end_by_server(c);
			c = LIST_FIRST(&s->conns);
		} else {
			c = LIST_NEXT(c, entry);
		}
	}
}

void http_server_end(struct http_server *s)
{
	struct http_conn *c = LIST_FIRST(&s->conns);

	s->ending = true;
	while (c != NULL) {
		if (!c->dead && (c->state == CONN_EXCHANGE || c->state == CONN_TUNNEL)) {
			end_by_server(c);
			c = LIST_FIRST(&s->conns);
		} else {
			c = LIST_NEXT(c, entry);
		}
	}
	LIST_FOREACH(c, &s->conns, entry)
	conn_work_soon(c); /* sees that the server ends */
	if (LIST_EMPTY(&s->conns) && s->on_empty != NULL)
		s->on_empty(s);
}
