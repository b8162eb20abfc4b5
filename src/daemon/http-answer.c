/* Answers: whole ones, streams, and the cut. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "daemon/http.h"
#include "daemon/idempotency.h"

static const struct {
	unsigned status;
	const char *reason;
} reasons[] = {
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {409, "Conflict"},
    {410, "Gone"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http_reason(unsigned status)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Other";
}

void respond_header(struct request *r, const char *name, const char *fmt, ...)
{
	cleanup_free char *value = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&value, fmt, ap);
	va_end(ap);
	if (n < 0) {
		value = NULL;
		return;
	}
	if (head_is_token(name, strlen(name)) && head_is_value(value, (size_t) n))
		(void) buf_addf(&r->x->fields, "%s: %s\r\n", name, value); /* beyond ANSWER_HEAD_MAX it is left out */
}

void respond_bare(struct request *r)
{
	r->x->bare = true;
}

/* ---- The head. ---- */

static const char *date(struct http_server *s)
{
	time_t now = time(NULL);
	struct tm tm;

	if (now != s->date_second && gmtime_r(&now, &tm) != NULL) {
		(void) strftime(s->date, sizeof s->date, "%a, %d %b %Y %H:%M:%S GMT", &tm); /* no locale is ever set */
		s->date_second = now;
	}
	return s->date;
}

/* What has come of a body that nobody reads is dropped, so that the connection can go on behind it. */
static void settle_body(struct exchange *x)
{
	struct evbuffer *drop;

	if (x->body.done || x->reading || x->expects)
		return;
	drop = evbuffer_new();
	if (drop == NULL)
		return;
	if (body_take(&x->body, bufferevent_get_input(x->conn->bev), drop, INPUT_MAX) < 0)
		x->body.done = false;
	evbuffer_free(drop);
}

static void begin_answer(struct exchange *x, unsigned status, const char *type, enum body_kind framing, uint64_t length)
{
	struct http_conn *c = x->conn;
	struct evbuffer *out;

	x->answer = ANSWER_BEGUN;
	x->status = status;
	x->framing = framing;
	x->length_left = length;
	x->bodyless = status == 204 || status == 304 || strcmp(x->r.method, "HEAD") == 0;
	if (c == NULL || c->dead)
		return;
	settle_body(x);
	if (!x->body.done || framing == BODY_UNTIL_CLOSE || x->server->ending)
		c->closing = true;
	out = bufferevent_get_output(c->bev);
	(void) evbuffer_add_printf(out, "HTTP/1.1 %u %s\r\n", status, http_reason(status));
	if (!x->bare)
		(void) evbuffer_add_printf(out, "Date: %s\r\nX-Request-Id: %s\r\nX-Content-Type-Options: nosniff\r\n",
					   date(x->server), x->r.id);
	if (x->fields.size > 0)
		(void) evbuffer_add(out, x->fields.data, x->fields.size);
	if (type != NULL)
		(void) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
	if (framing == BODY_CHUNKED)
		(void) evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
	else if (framing == BODY_LENGTH && status != 204)
		(void) evbuffer_add_printf(out, "Content-Length: %llu\r\n", (unsigned long long) length);
	(void) evbuffer_add_printf(out, c->closing ? "Connection: close\r\n\r\n" : "\r\n");
}

/* ---- Whole answers. ---- */

/* Large answers wait as a whole for clients that read slowly or not at all (until nothing has moved for a while): together they
 * have a bound. It is looked at, not counted, since large ones are rare. */
static bool has_room(const struct exchange *x, size_t size)
{
	size_t sum = size;

	if (size < LARGE_ANSWER)
		return true;
	for (struct http_conn *c = LIST_FIRST(&x->server->conns); c != NULL; c = LIST_NEXT(c, entry)) {
		size_t left = evbuffer_get_length(bufferevent_get_output(c->bev));

		if (left > 0)
			sum += left > c->large ? left : c->large; /* one piece, which is there until its last byte is gone */
	}
	if (sum > x->server->limits.answer_bytes_max)
		return false;
	if (x->conn != NULL)
		x->conn->large = size;
	return true;
}

static void refuse_large(struct exchange *x)
{
	request_forget(&x->r);
	refuse(&x->r, PROBLEM_UNAVAILABLE, "read answers as they come, or ask for less output",
	       "the large answers that wait for their clients leave no room for this one");
}

void answer_whole(struct exchange *x, unsigned status, const char *type, const void *body, size_t size)
{
	begin_answer(x, status, type, BODY_LENGTH, size);
	x->sent = x->bodyless ? 0 : size;
	if (x->conn != NULL && !x->conn->dead && x->sent > 0)
		(void) bufferevent_write(x->conn->bev, body, size);
	x->answer = ANSWER_ENDED;
	exchange_end(x);
}

static void finish_whole(struct exchange *x, unsigned status, const char *type, const void *body, size_t size)
{
	if (!has_room(x, size)) {
		refuse_large(x);
		return;
	}
	if (x->idempotent != NULL)
		idempotency_keep(x, status, type, body, size);
	answer_whole(x, status, type, body, size);
}

void respond_text(struct request *r, unsigned status, const char *type, const char *text, size_t size)
{
	finish_whole(r->x, status, type, text, size);
}

void respond_empty(struct request *r, unsigned status)
{
	finish_whole(r->x, status, NULL, "", 0);
}

void respond_json(struct request *r, unsigned status, json_t *body)
{
	cleanup_free char *text = body != NULL ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	json_decref(body);
	if (text == NULL) {
		request_forget(r);
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the answer");
		return;
	}
	finish_whole(r->x, status, "application/json", text, strlen(text));
}

void respond_buffer(struct request *r, unsigned status, const char *type, struct evbuffer *body)
{
	struct exchange *x = r->x;
	size_t size = evbuffer_get_length(body);

	if (x->idempotent != NULL) {
		const void *data = evbuffer_pullup(body, -1);

		finish_whole(x, status, type, data != NULL ? data : "", data != NULL ? size : 0);
		(void) evbuffer_drain(body, size);
		return;
	}
	if (!has_room(x, size)) {
		(void) evbuffer_drain(body, size);
		refuse_large(x);
		return;
	}
	begin_answer(x, status, type, BODY_LENGTH, size);
	x->sent = x->bodyless ? 0 : size;
	if (x->conn != NULL && !x->conn->dead && x->sent > 0)
		(void) bufferevent_write_buffer(x->conn->bev, body);
	(void) evbuffer_drain(body, evbuffer_get_length(body));
	x->answer = ANSWER_ENDED;
	exchange_end(x);
}

/* ---- Problems. ---- */

void refuse_with(struct request *r, const struct problem *p)
{
	cleanup_free char *text = NULL;

	if (problem_status(p) == 401)
		respond_header(r, "WWW-Authenticate", "Bearer");
	if (p->retry_after > 0 || p->code == PROBLEM_BUSY || p->code == PROBLEM_UNAVAILABLE)
		respond_header(r, "Retry-After", "%u", p->retry_after > 0 ? p->retry_after : 1);
	if (r->route != NULL && r->route->write_problem != NULL) {
		r->route->write_problem(r, p);
		return;
	}
	text = problem_json(p, r->id);
	finish_whole(r->x, problem_status(p), "application/problem+json", text != NULL ? text : "{}",
		     text != NULL ? strlen(text) : 2);
}

void refuse(struct request *r, enum problem_code code, const char *hint, const char *fmt, ...)
{
	struct problem p = {.code = code, .hint = hint};
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(p.message, sizeof p.message, fmt, ap);
	va_end(ap);
	refuse_with(r, &p);
}

void refuse_faults(struct request *r, enum problem_code code, const struct json_faults *f)
{
	struct problem p = {.code = code, .errors = json_faults_list(f)};

	if (f->count > 0 && f->items[0].path[0] != '\0')
		(void) snprintf(p.message, sizeof p.message, "%s: %s", f->items[0].path, f->items[0].message);
	else
		(void) snprintf(p.message, sizeof p.message, "%s",
				f->count > 0 ? f->items[0].message : "the request is not good");
	refuse_with(r, &p);
	json_decref(p.errors);
}

char *answer_refusal(struct http_server *s, unsigned status, const char *message)
{
	struct problem p = {.code = PROBLEM_UNAVAILABLE, .status = status, .hint = "try again soon"};
	char id[REQUEST_ID_SIZE];
	cleanup_free char *body = NULL;

	http_next_id(s, id);
	(void) snprintf(p.message, sizeof p.message, "%s", message);
	body = problem_json(&p, id);
	if (body == NULL)
		return NULL;
	return xasprintf(
	    "HTTP/1.1 %u %s\r\nDate: %s\r\nX-Request-Id: %s\r\nRetry-After: 1\r\nContent-Type: application/problem+json\r\n"
	    "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
	    status, http_reason(status), date(s), id, strlen(body), body);
}

/* ---- Streams. ---- */

void stream_begin(struct request *r, unsigned status, const char *type, uint64_t length)
{
	struct exchange *x = r->x;

	if (length != ZW_UNLIMITED)
		begin_answer(x, status, type, BODY_LENGTH, length);
	else
		begin_answer(x, status, type, x->head.minor == 0 ? BODY_UNTIL_CLOSE : BODY_CHUNKED, 0);
}

void stream_write_buffer(struct request *r, struct evbuffer *content)
{
	struct exchange *x = r->x;
	size_t size = evbuffer_get_length(content);

	if (x->conn == NULL || x->conn->dead || x->bodyless || size == 0 ||
	    (x->framing == BODY_LENGTH && size > x->length_left)) {
		(void) evbuffer_drain(content, size);
		return;
	}
	if (x->framing == BODY_LENGTH)
		x->length_left -= size;
	x->sent += size;
	body_put(x->framing, content, bufferevent_get_output(x->conn->bev));
}

void stream_write(struct request *r, const void *data, size_t size)
{
	struct evbuffer *content = evbuffer_new();

	if (content == NULL || evbuffer_add(content, data, size) < 0) {
		/* A stream that has lost a part must not look whole. */
		if (r->x->conn != NULL)
			conn_cut_soon(r->x->conn);
	} else {
		stream_write_buffer(r, content);
	}
	if (content != NULL)
		evbuffer_free(content);
}

size_t stream_queued(const struct request *r)
{
	const struct http_conn *c = r->x->conn;

	return c != NULL && !c->dead ? evbuffer_get_length(bufferevent_get_output(c->bev)) : 0;
}

void stream_on_room(struct request *r, void (*room)(struct request *r))
{
	r->x->room = room;
}

void stream_end(struct request *r)
{
	struct exchange *x = r->x;

	if (x->framing == BODY_LENGTH && x->length_left > 0 && !x->bodyless) {
		request_reset(r);
		return;
	}
	if (x->conn != NULL && !x->conn->dead && !x->bodyless)
		body_put_end(x->framing, bufferevent_get_output(x->conn->bev));
	x->answer = ANSWER_ENDED;
	exchange_end(x);
}

void request_reset(struct request *r)
{
	struct exchange *x = r->x;
	struct http_conn *c = x->conn;

	x->conn = NULL;
	x->forget = true;
	if (c != NULL)
		c->x = NULL;
	exchange_end(x);
	if (c != NULL)
		conn_cut(c, true);
}
