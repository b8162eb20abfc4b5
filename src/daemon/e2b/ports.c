/* Ports of a sandbox from outside: a request is passed to the server that listens inside, its answer back. The framing on both
 * sides is written anew (egress/body.h); what the server inside says is hostile. One connection inside a request. An upgrade
 * makes both connections one pipe.
 *
 * proxy: CONNECTING (the supervisor connects inside) -> HEAD (of the answer) -> BODY -> over; or HEAD -> TUNNEL. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/http.h"
#include "daemon/sandbox.h"
#include "daemon/tls-context.h"

enum { RETRIES = 5, HEAD_OUT_MAX = 96 * 1024 };

/* A server that is about to listen is waited for this long, five times: nothing inside tells of it. */
static const struct timeval retry_after = {.tv_usec = 100000};

enum stage { STAGE_CONNECTING, STAGE_HEAD, STAGE_BODY, STAGE_TUNNEL };

struct proxy {
	struct request *request; /* NULL in a tunnel */
	struct sandbox_cut cut;
	struct daemon *daemon;
	char sandbox_id[SANDBOX_ID_SIZE];
	unsigned port, tries;
	enum stage stage;
	bool asked;               /* the supervisor has to answer yet, and keeps us */
	bool over;                /* to be freed by its answer */
	bool wanted;              /* the client's body waits for room */
	struct bufferevent *last; /* of a tunnel that ends once this one has written all */
	struct event *timer;
	struct bufferevent *inner;
	size_t scanned;
	struct body body;
	bool sends_body, upgrade;
	struct tunnel *tunnel;
};

static void proxy_free(struct proxy *p)
{
	sandbox_cut_remove(&p->cut);
	if (p->timer != NULL)
		event_free(p->timer);
	p->timer = NULL;
	if (p->inner != NULL)
		bufferevent_free(p->inner);
	p->inner = NULL;
	p->over = true;
	p->request = NULL;
	if (!p->asked)
		free(p);
}

/* ---- Endings. ---- */

static void cut_off(struct proxy *p)
{
	struct request *r = p->request;
	struct tunnel *t = p->tunnel;

	proxy_free(p);
	if (t != NULL)
		tunnel_close(t);
	else if (r != NULL)
		request_reset(r);
}

static void on_cut(struct sandbox_cut *c)
{
	cut_off((struct proxy *) ((char *) c - offsetof(struct proxy, cut)));
}

static void tunnel_cut(void *arg)
{
	cut_off(arg);
}

static void on_gone(struct request *r)
{
	cut_off(r->data);
}

static void refuse_port(struct proxy *p, const char *message)
{
	struct request *r = p->request;
	json_t *o =
	    json_pack("{ss ss si si}", "sandboxId", p->sandbox_id, "message", message, "port", (int) p->port, "code", 502);

	proxy_free(p);
	respond_json(r, 502, o);
}

/* The server inside has closed, or was no HTTP server. */
static void broken(struct proxy *p)
{
	if (p->stage == STAGE_BODY || p->stage == STAGE_TUNNEL)
		cut_off(p);
	else
		refuse_port(p, "The server on that port gave no answer in HTTP");
}

/* ---- The head that goes in. ---- */

static bool is_ours(bool has_key, const char *name)
{
	static const char *const dropped[] = {"host",           "expect",           "content-length",
					      "e2b-sandbox-id", "e2b-sandbox-port", "e2b-traffic-access-token"};

	for (size_t i = 0; i < ARRAY_SIZE(dropped); i++)
		if (strcasecmp(name, dropped[i]) == 0)
			return true;
	/* A key of this service is not for code inside. */
	return has_key && (strcasecmp(name, "authorization") == 0 || strcasecmp(name, "x-api-key") == 0);
}

/* The policy's mask, in which ${PORT} is the port, else what the client has sent. */
static void add_host(const struct proxy *p, const struct sandbox *s, struct buf *out)
{
	const char *mask = json_string_value(json_object_get(json_object_get(s->extras, "network"), "maskRequestHost"));
	const char *host = request_header(p->request, "host"), *at = mask != NULL ? strstr(mask, "${PORT}") : NULL;

	if (at != NULL)
		(void) buf_addf(out, "Host: %.*s%u%s\r\n", (int) (at - mask), mask, p->port, at + 7);
	else
		(void) buf_addf(out, "Host: %s\r\n", mask != NULL ? mask : host != NULL ? host : "localhost");
}

static int write_head(struct proxy *p, const struct sandbox *s)
{
	struct request *r = p->request;
	cleanup_buf struct buf out = buf_new(HEAD_OUT_MAX);
	const char *name, *value, *upgrade = request_header(r, "upgrade");
	bool has_key = request_authenticate(r) && r->caller.key_id[0] != '\0';
	uint64_t length;
	bool known = request_length(r, &length);
	int error = buf_addf(&out, "%s %s%s%s HTTP/1.1\r\n", r->method, r->path, r->query != NULL ? "?" : "",
			     r->query != NULL ? r->query : "");

	r->caller = (struct caller){0}; /* the answer does not depend on a key */
	p->upgrade = upgrade != NULL && r->x->head.upgrade;
	p->sends_body = r->x->body.kind != BODY_NONE;
	add_host(p, s, &out);
	for (size_t i = 0; request_header_at(r, i, &name, &value); i++)
		if (!request_header_hop_by_hop(r, i) && !is_ours(has_key, name))
			error |= buf_addf(&out, "%s: %s\r\n", name, value);
	if (p->sends_body && known)
		error |= buf_addf(&out, "Content-Length: %llu\r\n", (unsigned long long) length);
	else if (p->sends_body)
		error |= buf_adds(&out, "Transfer-Encoding: chunked\r\n");
	else if (request_header(r, "content-length") != NULL)
		error |= buf_adds(&out, "Content-Length: 0\r\n");
	error |= p->upgrade ? buf_addf(&out, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade)
			    : buf_adds(&out, "Connection: close\r\n\r\n");
	return error != 0 ? -E2BIG : bufferevent_write(p->inner, out.data, out.size);
}

/* ---- The body that goes in. ---- */

static void take(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct proxy *p = r->data;
	struct evbuffer *out = bufferevent_get_output(p->inner);
	uint64_t length;
	enum body_kind kind = request_length(r, &length) ? BODY_LENGTH : BODY_CHUNKED;

	if (event == BODY_BROKEN) {
		proxy_free(p);
		refuse_body(r);
		return;
	}
	if (event != BODY_WHOLE && evbuffer_get_length(out) > STREAM_ROOM) {
		p->wanted = true; /* what is left is taken when there is room */
		return;
	}
	if (evbuffer_get_length(content) > 0)
		body_put(kind, content, out);
	if (event == BODY_WHOLE)
		body_put_end(kind, out);
}

/* ---- A tunnel. ---- */

static void pass(struct bufferevent *from, struct bufferevent *to)
{
	struct evbuffer *out = bufferevent_get_output(to);

	(void) bufferevent_write_buffer(to, bufferevent_get_input(from));
	if (evbuffer_get_length(out) > STREAM_ROOM)
		(void) bufferevent_disable(from, EV_READ);
}

static void tunnel_read(struct bufferevent *bev, void *arg)
{
	struct proxy *p = arg;

	pass(bev, bev == p->inner ? tunnel_bev(p->tunnel) : p->inner);
}

/* All is written (the low-water mark is 0). */
static void tunnel_written(struct bufferevent *bev, void *arg)
{
	struct proxy *p = arg;

	(void) bufferevent_enable(bev == p->inner ? tunnel_bev(p->tunnel) : p->inner, EV_READ);
	if (p->last == bev)
		cut_off(p);
}

static void tunnel_event(struct bufferevent *bev, short what, void *arg)
{
	struct proxy *p = arg;
	struct bufferevent *other = bev == p->inner ? tunnel_bev(p->tunnel) : p->inner;

	pass(bev, other);
	if ((what & BEV_EVENT_EOF) == 0 || evbuffer_get_length(bufferevent_get_output(other)) == 0)
		cut_off(p);
	else
		p->last = other;
}

static void begin_tunnel(struct proxy *p, const char *head)
{
	struct request *r = p->request;

	p->request = NULL;
	p->tunnel = request_take_over(r, head, tunnel_cut, p);
	if (p->tunnel == NULL) {
		proxy_free(p);
		return;
	}
	p->stage = STAGE_TUNNEL;
	bufferevent_setcb(p->inner, tunnel_read, tunnel_written, tunnel_event, p);
	bufferevent_setcb(tunnel_bev(p->tunnel), tunnel_read, tunnel_written, tunnel_event, p);
	(void) bufferevent_enable(tunnel_bev(p->tunnel), EV_READ | EV_WRITE);
	pass(p->inner, tunnel_bev(p->tunnel));
	pass(tunnel_bev(p->tunnel), p->inner);
}

/* ---- The answer. ---- */

static void switch_protocols(struct proxy *p, const struct head *h)
{
	cleanup_buf struct buf out = buf_new(HEAD_OUT_MAX);
	const struct head_field *upgrade = head_field(h, "upgrade", NULL);
	int error = buf_adds(&out, "HTTP/1.1 101 Switching Protocols\r\n");

	for (size_t i = 0; i < h->field_count; i++) {
		const struct head_field *f = &h->fields[i];

		if (!head_hop_by_hop(h, f))
			error |= buf_addf(&out, "%.*s: %.*s\r\n", (int) f->name.size, f->name.data, (int) f->value.size,
					  f->value.data);
	}
	if (upgrade != NULL)
		error |= buf_addf(&out, "Upgrade: %.*s\r\n", (int) upgrade->value.size, upgrade->value.data);
	error |= buf_adds(&out, "Connection: Upgrade\r\n\r\n");
	if (error != 0)
		broken(p);
	else
		begin_tunnel(p, out.data);
}

static void inner_room(struct request *r)
{
	struct proxy *p = r->data;

	(void) bufferevent_enable(p->inner, EV_READ);
}

static void begin_answer(struct proxy *p, const struct head *h)
{
	struct request *r = p->request;
	const struct head_field *type = head_field(h, "content-type", NULL);
	cleanup_free char *type_text = type != NULL ? xstrndup(type->value.data, type->value.size) : NULL;
	bool none = h->status == 204 || h->status == 304 || strcmp(r->method, "HEAD") == 0;
	enum body_kind kind = none ? BODY_NONE : h->chunked ? BODY_CHUNKED : h->has_length ? BODY_LENGTH : BODY_UNTIL_CLOSE;

	respond_bare(r);
	for (size_t i = 0; i < h->field_count; i++) {
		const struct head_field *f = &h->fields[i];
		cleanup_free char *name = xstrndup(f->name.data, f->name.size);

		if (!head_hop_by_hop(h, f) && !slice_is(f->name, "content-length") && f != type)
			respond_header(r, name, "%.*s", (int) f->value.size, f->value.data);
	}
	body_begin(&p->body, kind, h->length, ZW_UNLIMITED);
	p->stage = STAGE_BODY;
	stream_begin(r, h->status, type_text, h->has_length ? h->length : none ? 0 : ZW_UNLIMITED);
	stream_on_room(r, inner_room);
}

/* 1: go on; 0: more is needed; -1: the proxy is a tunnel, or gone. */
static int take_head(struct proxy *p)
{
	struct evbuffer *in = bufferevent_get_input(p->inner);
	size_t have = evbuffer_get_length(in);
	const char *data = have > 0 ? (const char *) evbuffer_pullup(in, -1) : NULL;
	cleanup_free char *copy = NULL;
	struct head_fault fault = {0};
	struct head head;
	ssize_t n = data != NULL ? head_find(data, have, &p->scanned, &fault) : 0;

	if (n == 0)
		return 0;
	copy = n > 0 ? xstrndup(data, (size_t) n) : NULL;
	if (n < 0 || strlen(copy) != (size_t) n || head_parse_response(copy, (size_t) n, &head, &fault) < 0 ||
	    (head.status == 101 && !p->upgrade)) {
		broken(p);
		return -1;
	}
	(void) evbuffer_drain(in, (size_t) n);
	p->scanned = 0;
	if (head.status == 101) {
		switch_protocols(p, &head);
		return -1;
	}
	if (head.status >= 200)
		begin_answer(p, &head);
	return 1;
}

static void finish(struct proxy *p)
{
	struct request *r = p->request;

	proxy_free(p);
	stream_end(r);
}

static void take_body(struct proxy *p)
{
	struct request *r = p->request;
	struct evbuffer *content = evbuffer_new();
	int error = content != NULL ? body_take(&p->body, bufferevent_get_input(p->inner), content, SIZE_MAX) : -ENOMEM;

	if (error == 0)
		stream_write_buffer(r, content);
	if (content != NULL)
		evbuffer_free(content);
	if (error < 0)
		cut_off(p);
	else if (p->body.done)
		finish(p);
	else if (stream_queued(r) > STREAM_ROOM)
		(void) bufferevent_disable(p->inner, EV_READ);
}

static void inner_read(struct bufferevent *bev, void *arg)
{
	struct proxy *p = arg;

	(void) bev;
	while (p->stage == STAGE_HEAD)
		if (take_head(p) <= 0)
			return;
	if (p->stage == STAGE_BODY)
		take_body(p);
}

static void inner_written(struct bufferevent *bev, void *arg)
{
	struct proxy *p = arg;

	(void) bev;
	if (!p->wanted)
		return;
	p->wanted = false;
	request_read_more(p->request);
}

/* What has come before was read: callbacks are deferred, and reading goes first. */
static void inner_event(struct bufferevent *bev, short what, void *arg)
{
	struct proxy *p = arg;

	(void) bev;
	if ((what & BEV_EVENT_CONNECTED) != 0)
		return; /* TLS has begun */
	if ((what & BEV_EVENT_WRITING) != 0)
		return; /* it may have answered before it closed: reading tells */
	if (p->stage == STAGE_BODY && (what & BEV_EVENT_EOF) != 0 && body_end(&p->body) == 0)
		finish(p);
	else
		broken(p);
}

/* ---- The connection. ---- */

static void ask(struct proxy *p);

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	ask(arg);
}

static void refused(struct proxy *p)
{
	if (p->tries++ < RETRIES && event_add(p->timer, &retry_after) == 0)
		return;
	refuse_port(p, "The sandbox is running but port is not open");
}

static bool speaks_tls(const struct proxy *p, const struct sandbox *s)
{
	const json_t *ports = json_object_get(json_object_get(s->extras, "network"), "httpsPorts");

	for (size_t i = 0; i < json_array_size(ports); i++)
		if (json_integer_value(json_array_get(ports, i)) == (json_int_t) p->port)
			return true;
	return false;
}

static struct bufferevent *make_inner(const struct proxy *p, const struct sandbox *s, int fd)
{
	const int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
	struct bufferevent *bev;
	SSL *ssl;

	if (fd_nonblock(fd) < 0)
		return NULL;
	if (!speaks_tls(p, s))
		return bufferevent_socket_new(p->daemon->base, fd, options);
	ssl = tls_to_inside();
	bev = ssl != NULL ? bufferevent_openssl_socket_new(p->daemon->base, fd, ssl, BUFFEREVENT_SSL_CONNECTING, options) : NULL;
	if (bev == NULL)
		SSL_free(ssl);
	else
		bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	return bev;
}

static void connected(struct proxy *p, const struct sandbox *s, int fd)
{
	p->inner = make_inner(p, s, fd);
	if (p->inner == NULL) {
		fd_close(&fd);
		refuse_port(p, "There is not enough memory for the connection");
		return;
	}
	p->stage = STAGE_HEAD;
	bufferevent_setcb(p->inner, inner_read, inner_written, inner_event, p);
	if (bufferevent_enable(p->inner, EV_READ | EV_WRITE) < 0 || write_head(p, s) < 0) {
		refuse_port(p, "The head of the request is too large");
		return;
	}
	if (p->sends_body)
		request_read(p->request, take);
}

static void answered(void *arg, const json_t *m, int *fd)
{
	struct proxy *p = arg;
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;
	const struct sandbox *s;

	p->asked = false;
	if (p->over) {
		free(p);
		return;
	}
	s = sandbox_find(p->daemon, p->sandbox_id);
	if (error == 0 && *fd >= 0 && s != NULL)
		connected(p, s, take_fd(fd));
	else if (error == ECONNREFUSED || error == EAGAIN)
		refused(p);
	else
		refuse_port(p, "The sandbox could not be connected to");
}

static void ask(struct proxy *p)
{
	struct sandbox *s = sandbox_find(p->daemon, p->sandbox_id);

	p->asked =
	    s != NULL && s->state == SANDBOX_RUNNING &&
	    session_ask(s->session, json_pack("{ss si}", "t", "connect", "port", (int) p->port), NULL, 0, answered, p, NULL) == 0;
	if (!p->asked)
		refuse_port(p, "The sandbox could not be connected to");
}

void e2b_port_request(struct request *r, struct sandbox *s)
{
	struct proxy *p = xcalloc(1, sizeof *p);

	*p = (struct proxy){.request = r, .daemon = r->daemon, .port = (unsigned) (uintptr_t) r->data};
	memcpy(p->sandbox_id, s->id, sizeof p->sandbox_id);
	p->cut.call = on_cut;
	sandbox_cut_add(s, &p->cut);
	r->data = p;
	request_on_gone(r, on_gone);
	p->timer = event_new(r->daemon->base, -1, 0, on_retry, p);
	if (p->timer == NULL)
		refuse_port(p, "There is not enough memory for the connection");
	else
		ask(p);
}
