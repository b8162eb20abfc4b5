#include <errno.h>
#include <event2/buffer.h>
#include <string.h>

#include "egress/http-internal.h"
#include "egress/secrets.h"

enum { CODED_AT_ONCE = 16 * 1024 };

void response_reset(struct session *s)
{
	struct http_response *r = &s->response;

	redact_free(r->redact);
	inflate_free(r->inflate);
	if (r->coded != NULL)
		evbuffer_free(r->coded);
	if (r->plain != NULL)
		evbuffer_free(r->plain);
	*r = (struct http_response){0};
}

/* ---- What is done to the body. ---- */

static bool starts_with(struct slice s, const char *lower)
{
	size_t n = strlen(lower);

	return s.size >= n && slice_is((struct slice){.data = s.data, .size = n}, lower);
}

static bool holds(struct slice s, const char *lower)
{
	for (size_t n = strlen(lower); s.size >= n; s.data++, s.size--)
		if (starts_with(s, lower))
			return true;
	return false;
}

/* Something that a program reads as text. What does not say what it is counts as well. */
static bool is_text(const struct head *h)
{
	static const char *const words[] = {"json", "xml",     "javascript", "ecmascript",  "form",
					    "yaml", "graphql", "csv",        "event-stream"};
	size_t count;
	const struct head_field *type = head_field(h, "content-type", &count);

	if (type == NULL || starts_with(type->value, "text/") || starts_with(type->value, "message/"))
		return true;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (holds(type->value, words[i]))
			return true;
	return false;
}

struct gathering {
	struct redact *redact;
	bool full;
};

static void add_value(void *ctx, const char *value, size_t size)
{
	struct gathering *g = ctx;

	if (!redact_add(g->redact, value, size))
		g->full = true;
}

/* Every value that was ever in use, of whatever rule: this server may have heard it through another one. False when there are too
 * many. */
static bool gather_values(struct session *s)
{
	struct gathering g = {.redact = redact_new()};

	s->response.redact = g.redact;
	if (s->broker->secrets != NULL)
		secrets_each(s->broker->secrets, add_value, &g);
	return !g.full;
}

/* A large body that is not text is passed as it is, with its length. */
static bool passes_unread(const struct session *s, const struct head *h)
{
	return s->response.body.kind == BODY_LENGTH && h->length > HTTP_REDACT_MAX && !is_text(h);
}

/* The encoding must be one that can be looked into. Accept-Encoding did not ask for any. */
static bool choose_decoder(struct session *s, const struct head *h)
{
	size_t count;
	const struct head_field *coding = head_field(h, "content-encoding", &count);

	if (count == 0 || (coding != NULL && (coding->value.size == 0 || slice_is(coding->value, "identity"))))
		return true;
	if (coding == NULL ||
	    !(slice_is(coding->value, "gzip") || slice_is(coding->value, "x-gzip") || slice_is(coding->value, "deflate")))
		return false;
	s->response.inflate = inflate_new();
	s->response.coded = evbuffer_new();
	return s->response.inflate != NULL;
}

/* ---- The head. ---- */

static enum body_kind framing_in(const struct session *s, const struct head *h)
{
	if (s->request.head || h->status < 200 || h->status == 204 || h->status == 304)
		return BODY_NONE;
	if (h->chunked)
		return BODY_CHUNKED;
	return h->has_length ? BODY_LENGTH : BODY_UNTIL_CLOSE;
}

static enum body_kind framing_out(const struct session *s, const struct head *h)
{
	enum body_kind in = s->response.body.kind;

	/* A body that ends with the connection does so here as well: whether an end without TLS's closing alert is one, the
	 * client decides as it would without a broker between. */
	if (in == BODY_NONE || in == BODY_UNTIL_CLOSE || (in == BODY_LENGTH && (s->response.redact == NULL || h->length == 0)))
		return in;
	return s->request.minor > 0 ? BODY_CHUNKED : BODY_UNTIL_CLOSE;
}

static void put_text(struct session *s, struct slice text, struct evbuffer *out)
{
	if (s->response.redact != NULL)
		redact_text(s->response.redact, text.data, text.size, out);
	else
		(void) evbuffer_add(out, text.data, text.size);
}

static void put_fields(struct session *s, const struct head *h, struct evbuffer *out)
{
	for (size_t i = 0; i < h->field_count; i++) {
		const struct head_field *f = &h->fields[i];

		/* Alt-Svc leads to where no rule leads: a client would lose time there. */
		if (head_hop_by_hop(h, f) || slice_is(f->name, "alt-svc"))
			continue;
		if (s->response.inflate != NULL && slice_is(f->name, "content-encoding"))
			continue;
		if (s->response.redact != NULL && redact_finds(s->response.redact, f->name.data, f->name.size))
			continue;
		(void) evbuffer_add(out, f->name.data, f->name.size);
		(void) evbuffer_add(out, ": ", 2);
		put_text(s, f->value, out);
		(void) evbuffer_add(out, "\r\n", 2);
	}
}

static void put_status(struct session *s, const struct head *h, struct evbuffer *out)
{
	(void) evbuffer_add_printf(out, "HTTP/1.1 %u ", h->status);
	put_text(s, h->reason, out);
	(void) evbuffer_add(out, "\r\n", 2);
}

static void put_head(struct session *s, const struct head *h, struct evbuffer *out)
{
	const struct http_response *r = &s->response;
	/* A length without a body is what the body of GET would have (RFC 9110, 8.6). */
	bool length = h->has_length && (r->out == BODY_LENGTH || (r->out == BODY_NONE && h->status >= 200 && h->status != 204));

	put_status(s, h, out);
	put_fields(s, h, out);
	if (r->out == BODY_CHUNKED)
		(void) evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
	else if (length)
		(void) evbuffer_add_printf(out, "Content-Length: %llu\r\n", (unsigned long long) h->length);
	if (!s->request.keep)
		(void) evbuffer_add_printf(out, "Connection: close\r\n");
	else if (s->request.minor == 0)
		(void) evbuffer_add_printf(out, "Connection: keep-alive\r\n");
	(void) evbuffer_add(out, "\r\n", 2);
}

/* An answer that cannot be passed on. The origin has been heard, so the client gets a status and not a reset. */
static void refuse_response(struct session *s, const char *line)
{
	if (s->request.record != NULL)
		s->request.record->status = 502;
	session_answer(s, 502, false, line);
}

static void final_head(struct session *s, const struct head *h)
{
	struct http_response *r = &s->response;

	body_begin(&r->body, framing_in(s, h), h->length, ZW_UNLIMITED);
	r->keep_origin = r->body.kind != BODY_UNTIL_CLOSE && !h->close && (h->minor == 1 || h->keep_alive);
	if (flow_has_secret(s->f)) {
		if (!gather_values(s)) {
			refuse_response(s, "zwinger: the response was refused: too many secrets to look for");
			return;
		}
		if (!r->body.done && !passes_unread(s, h) && !choose_decoder(s, h)) {
			refuse_response(s, "zwinger: the response was refused: its content encoding was not asked for and cannot "
					   "be searched for secrets");
			return;
		}
	}
	/* The head is searched in any case. */
	r->out = framing_out(s, h);
	if (r->redact != NULL && passes_unread(s, h))
		r->out = r->body.kind;
	if (!s->request.done || r->out == BODY_UNTIL_CLOSE)
		s->request.keep = false;
	put_head(s, h, side_output(&s->client));
	if (r->redact != NULL && passes_unread(s, h)) {
		redact_free(r->redact);
		r->redact = NULL;
	}
	r->plain = evbuffer_new();
	r->began = true;
	if (s->request.record != NULL)
		s->request.record->status = (int) h->status;
}

static void upgraded(struct session *s, const struct head *h)
{
	struct evbuffer *out = side_output(&s->client);
	const struct head_field *upgrade = head_field(h, "upgrade", NULL);

	if (!s->request.websocket || upgrade == NULL || !slice_is(upgrade->value, "websocket")) {
		session_abort(s, "the server changed to a protocol that was not asked for");
		return;
	}
	if (flow_has_secret(s->f) && !gather_values(s)) {
		refuse_response(s, "zwinger: the response was refused: too many secrets to look for");
		return;
	}
	put_status(s, h, out);
	put_fields(s, h, out);
	(void) evbuffer_add_printf(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
	if (s->request.record != NULL)
		s->request.record->status = 101;
	response_reset(s);
	session_enter(s, HTTP_TUNNEL);
}

static void pass_continue(struct session *s)
{
	(void) evbuffer_add_printf(side_output(&s->client), "HTTP/1.1 100 Continue\r\n\r\n");
	s->request.expect = false;
}

static void take_head(struct session *s, const char *data, size_t size)
{
	struct head h;
	struct head_fault fault;

	if (head_parse_response(data, size, &h, &fault) < 0)
		session_abort(s, fault.why);
	else if (h.status == 101)
		upgraded(s, &h);
	else if (h.status >= 200)
		final_head(s, &h);
	else if (h.status == 100 && s->request.expect)
		pass_continue(s);
	/* Other interim answers are nothing that a client must have. */
}

static bool pump_head(struct session *s)
{
	struct evbuffer *in = side_input(&s->origin);
	size_t size = evbuffer_get_length(in);
	struct head_fault fault;
	const char *data;
	ssize_t end;

	if (size > HEAD_SIZE_MAX)
		size = HEAD_SIZE_MAX;
	data = size > 0 ? (const char *) evbuffer_pullup(in, (ev_ssize_t) size) : NULL;
	end = size > 0 ? head_find(data, size, &s->scanned, &fault) : 0;
	if (end == 0 && s->origin.ended)
		session_abort(s, "the server closed the connection before it answered");
	else if (end < 0)
		session_abort(s, fault.why);
	if (end <= 0)
		return false;
	s->scanned = 0;
	take_head(s, data, (size_t) end);
	if (s->over || s->origin.bev == NULL)
		return true;
	(void) evbuffer_drain(in, (size_t) end);
	return session_count_received(s, (uint64_t) end);
}

/* ---- The body. ---- */

static const char *complaint(int r)
{
	switch (r) {
	case -E2BIG:
		return "the response expands too far";
	case -EPIPE:
		return "the server closed the connection within its response";
	default:
		return "the body of the response is not in its coding";
	}
}

/* Takes off the encoding. 1: that was all of it; 0; negative: it is broken. */
static int decode(struct http_response *r, size_t room)
{
	size_t before = evbuffer_get_length(r->plain);
	int result = inflate_take(r->inflate, r->coded, r->plain, room);
	bool rest = evbuffer_get_length(r->coded) > 0;

	if (result == 1)
		return rest ? -EBADMSG : r->body.done;
	if (result == 0 && r->body.done && !rest && evbuffer_get_length(r->plain) == before)
		return r->body.total == 0 ? 1 : -EPIPE; /* the framing is whole, the encoded stream is not */
	return result;
}

/* Takes content off the framing and the encoding, into r->plain. 1: that was all; 0; negative: it is broken. */
static int take_content(struct session *s, size_t room)
{
	struct http_response *r = &s->response;
	struct evbuffer *in = side_input(&s->origin);
	int result = 0;

	if (r->inflate == NULL)
		result = body_take(&r->body, in, r->plain, room);
	else if (evbuffer_get_length(r->coded) == 0)
		result = body_take(&r->body, in, r->coded, CODED_AT_ONCE);
	if (result < 0)
		return result;
	/* The end of the connection is the end of the body only where nothing else could be, and only in order. */
	if (s->origin.ended && evbuffer_get_length(in) == 0 && !r->body.done && (s->origin.failed || body_end(&r->body) < 0))
		return -EPIPE;
	s->ragged = s->origin.ragged && r->body.kind == BODY_UNTIL_CLOSE;
	return r->inflate != NULL ? decode(r, room) : r->body.done;
}

/* Hands on what has been taken. */
static void hand_on(struct session *s, bool whole)
{
	struct http_response *r = &s->response;
	struct evbuffer *out = side_output(&s->client);

	if (r->redact != NULL)
		redact_stream(r->redact, r->plain, s->scratch, whole);
	else
		(void) evbuffer_add_buffer(s->scratch, r->plain);
	body_put(r->out, s->scratch, out);
	if (whole)
		body_put_end(r->out, out);
	r->done = whole;
}

static bool pump_body(struct session *s)
{
	struct http_response *r = &s->response;
	struct evbuffer *in = side_input(&s->origin);
	size_t had = side_unsent(&s->client), size = evbuffer_get_length(in), plain, room;
	bool moved;
	int whole;

	if (had >= HTTP_BUFFER_MAX)
		return false;
	room = session_allowance(s, HTTP_BUFFER_MAX - had);
	if (room == 0)
		return false;
	plain = evbuffer_get_length(r->plain);
	whole = take_content(s, room);
	moved = evbuffer_get_length(in) != size || evbuffer_get_length(r->plain) != plain;
	if (!session_count_received(s, size - evbuffer_get_length(in)))
		return false;
	if (whole < 0) {
		session_abort(s, complaint(whole));
		return false;
	}
	hand_on(s, whole > 0);
	return moved;
}

bool response_pump(struct session *s)
{
	if (!s->response.began)
		return pump_head(s);
	return !s->response.done && pump_body(s);
}
