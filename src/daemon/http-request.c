/* Requests: taking a head apart, the body on its way to who reads it, and the end. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/http.h"
#include "daemon/idempotency.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "policy/policy.h"
#include "policy/text.h"

/* ---- The head. ---- */

void http_next_id(struct http_server *s, char ret[REQUEST_ID_SIZE])
{
	(void) snprintf(ret, REQUEST_ID_SIZE, "%012llx%012llx", (unsigned long long) (s->id_prefix & 0xffffffffffff),
			(unsigned long long) (s->id_next++ & 0xffffffffffff));
}

/* The slices lie in x->text, each followed by a byte that the parser is done with: a space, a colon, CR. */
static const char *terminated(struct exchange *x, struct slice s)
{
	if (s.data == NULL)
		return "";
	x->text[s.data - x->text + (ptrdiff_t) s.size] = '\0';
	return s.data;
}

static int refuse_head(struct exchange *x, unsigned status, const char *why)
{
	x->fault = (struct head_fault){.status = status, .why = why};
	return -1;
}

/* Exactly one Host, also with an absolute target, whose authority must be the same. */
static int read_host(struct exchange *x, struct slice authority)
{
	size_t count;
	const struct head_field *f = head_field(&x->head, "host", &count);
	char other[HOST_SIZE];

	if (count != 1)
		return refuse_head(x, 400, count == 0 ? "the request has no Host" : "Host is there more than once");
	if (!host_parse(f->value.data, f->value.size, x->r.host))
		return refuse_head(x, 400, "Host is neither a name nor an address");
	if (authority.size > 0 && (!host_parse(authority.data, authority.size, other) || strcmp(other, x->r.host) != 0))
		return refuse_head(x, 400, "the target names another host than Host does");
	return 0;
}

static struct slice after(struct slice s, size_t n)
{
	return (struct slice){.data = s.data + n, .size = s.size - n};
}

/* "/path?query", or "http://authority/path?query", of which the authority is cut off. */
static int split_target(struct exchange *x, struct slice *target, struct slice *ret_authority)
{
	struct slice t = *target;
	size_t scheme = t.size > 7 && slice_is((struct slice){t.data, 7}, "http://")    ? 7
			: t.size > 8 && slice_is((struct slice){t.data, 8}, "https://") ? 8
											: 0;
	const char *slash;

	*ret_authority = (struct slice){0};
	if (scheme > 0) {
		t = after(t, scheme);
		slash = memchr(t.data, '/', t.size);
		if (slash == NULL)
			return refuse_head(x, 400, "the target has no path");
		*ret_authority = (struct slice){.data = t.data, .size = (size_t) (slash - t.data)};
		t = after(t, ret_authority->size);
		if (ret_authority->size == 0)
			return refuse_head(x, 400, "the target names no host");
	}
	if (t.data[0] != '/' || memchr(t.data, '#', t.size) != NULL)
		return refuse_head(x, 400, "the target is not a path");
	*target = t;
	return 0;
}

static void terminate_fields(struct exchange *x)
{
	for (size_t i = 0; i < x->head.field_count; i++) {
		(void) terminated(x, x->head.fields[i].name);
		(void) terminated(x, x->head.fields[i].value);
	}
}

static void begin_body(struct exchange *x)
{
	enum body_kind kind = x->head.chunked ? BODY_CHUNKED : x->head.has_length ? BODY_LENGTH : BODY_NONE;

	body_begin(&x->body, kind, x->head.length, ZW_UNLIMITED);
	x->expects = x->head.minor == 1 && head_has_word(&x->head, "expect", "100-continue");
}

static int read_request(struct exchange *x, size_t size)
{
	struct slice target, authority;
	char *query;
	int r = head_parse_request(x->text, size, &x->head, &x->fault);

	if (r < 0) {
		/* An unknown coding makes it unknown where the request ends, as a bad length does. */
		x->fault.status = x->fault.status == 501 ? 400 : x->fault.status;
		return r;
	}
	target = x->head.target;
	r = split_target(x, &target, &authority);
	if (r == 0)
		r = read_host(x, authority);
	if (r < 0)
		return r;
	begin_body(x); /* before the fields lose what stands behind them */
	x->r.method = terminated(x, x->head.method);
	x->r.path = terminated(x, target);
	query = strchr(x->text + (x->r.path - x->text), '?');
	if (query != NULL) {
		*query = '\0';
		x->r.query = query + 1;
	}
	terminate_fields(x);
	return 0;
}

struct exchange *exchange_new(struct http_conn *c, size_t size, const struct head_fault *fault)
{
	struct exchange *x = xcalloc(1, sizeof *x);

	*x = (struct exchange){.server = c->server, .conn = c, .fault = *fault, .began = now_monotonic(), .peer = c->peer};
	x->r = (struct request){.daemon = c->server->daemon, .x = x, .method = "", .path = ""};
	x->fields = buf_new(ANSWER_HEAD_MAX);
	http_next_id(c->server, x->r.id);
	LIST_INSERT_HEAD(&c->server->exchanges, x, entry);
	if (size > 0) {
		x->text = xcalloc(size + 1, 1);
		(void) evbuffer_remove(bufferevent_get_input(c->bev), x->text, size); /* it was found there */
	}
	if (size > 0 && x->fault.status == 0 && read_request(x, size) == 0)
		c->closing = x->head.close || x->head.minor == 0 || c->server->ending;
	else
		c->closing = true;
	return x;
}

/* ---- What handlers ask of a head. ---- */

const char *request_header(const struct request *r, const char *name)
{
	const struct head_field *f = head_field(&r->x->head, name, NULL);

	return f != NULL ? f->value.data : NULL;
}

size_t request_header_count(const struct request *r, const char *name)
{
	size_t count;

	(void) head_field(&r->x->head, name, &count);
	return count;
}

bool request_header_at(const struct request *r, size_t index, const char **ret_name, const char **ret_value)
{
	if (index >= r->x->head.field_count)
		return false;
	*ret_name = r->x->head.fields[index].name.data;
	*ret_value = r->x->head.fields[index].value.data;
	return true;
}

bool request_header_hop_by_hop(const struct request *r, size_t index)
{
	return head_hop_by_hop(&r->x->head, &r->x->head.fields[index]);
}

const char *request_query(const struct request *r, const char *name)
{
	for (size_t i = 0; i < r->target.pair_count; i++)
		if (strcmp(r->target.pairs[i].name, name) == 0)
			return r->target.pairs[i].value;
	return NULL;
}

bool request_query_bool(struct request *r, const char *name, bool missing, bool *ret)
{
	const char *value = request_query(r, name);

	*ret = value == NULL ? missing : strcmp(value, "true") == 0 || value[0] == '\0';
	if (value == NULL || *ret || strcmp(value, "false") == 0)
		return true;
	refuse(r, PROBLEM_BAD_REQUEST, "write true or false", "%s: expected true or false", name);
	return false;
}

bool request_page(struct request *r, size_t *ret_limit, const char **ret_cursor)
{
	const char *text = request_query(r, "limit");
	uint64_t limit = 100;

	if (text != NULL && (parse_whole(text, &limit) < 0 || limit < 1 || limit > 1000)) {
		refuse(r, PROBLEM_BAD_REQUEST, "write a number from 1 to 1000", "limit: expected a whole number from 1 to 1000");
		return false;
	}
	*ret_limit = (size_t) limit;
	*ret_cursor = request_query(r, "cursor");
	return true;
}

bool request_length(const struct request *r, uint64_t *ret)
{
	*ret = r->x->head.length;
	return r->x->head.has_length || r->x->body.kind == BODY_NONE;
}

void request_patience(struct request *r, usec_t t)
{
	r->x->patience = t;
}

/* ---- The body. ---- */

static usec_t patience(const struct exchange *x)
{
	return x->patience > 0 ? x->patience : x->server->limits.times.progress;
}

/* No content comes any more. */
static void broken(struct exchange *x)
{
	x->reading = false;
	x->gone_told = true;
	x->take(&x->r, x->content, BODY_BROKEN);
}

static void break_off(struct exchange *x, unsigned fault)
{
	x->body_fault = fault;
	x->conn->closing = true;
	broken(x);
}

/* One helping. True when something came and more may be there. The handler may have ended the request. */
static bool take_some(struct exchange *x)
{
	struct http_conn *c = x->conn;
	struct evbuffer *input = bufferevent_get_input(c->bev);
	size_t held = evbuffer_get_length(x->content), before = evbuffer_get_length(input);
	bool again = x->again;
	int r;

	if (x->told_whole || x->waiting || !x->reading)
		return false;
	r = held < STREAM_ROOM ? body_take(&x->body, input, x->content, STREAM_ROOM - held) : 0;
	if (r < 0) {
		break_off(x, r == -E2BIG ? 413 : 400);
		return false;
	}
	if (!x->body.done && !again && evbuffer_get_length(input) == before) {
		if (c->eof)
			break_off(x, 0);
		return false;
	}
	x->again = false;
	x->told_whole = x->body.done;
	x->reading = !x->body.done;
	conn_want_input_by(c, x->body.done ? 0 : now_monotonic() + patience(x));
	x->take(&x->r, x->content, x->body.done ? BODY_WHOLE : BODY_MORE);
	if (c->x != x || c->dead || !x->reading)
		return false;
	x->waiting = evbuffer_get_length(x->content) > 0 && !x->again;
	return true;
}

void exchange_take_body(struct exchange *x)
{
	struct http_conn *c = x->conn;

	while (take_some(x)) {
	}
	if (c->x != x || c->dead || !x->reading)
		return;
	/* While the handler has no room the peer can do nothing, and is not hurried. */
	if (x->waiting)
		c->in_by = 0;
	else if (c->in_by == 0)
		conn_want_input_by(c, now_monotonic() + patience(x));
}

void request_read(struct request *r, void (*take)(struct request *r, struct evbuffer *content, enum body_event event))
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct exchange *x = r->x;

	x->take = take;
	x->reading = true;
	if (x->content == NULL)
		x->content = evbuffer_new();
	if (x->conn == NULL) {
		broken(x);
		return;
	}
	if (x->content == NULL) {
		conn_cut_soon(x->conn);
		return;
	}
	if (r->route != NULL && r->route->takes == TAKES_STREAM && r->route->body_max > 0)
		x->body.max = r->route->body_max;
	if (x->expects && !x->body.done && x->answer == ANSWER_NONE &&
	    evbuffer_get_length(bufferevent_get_input(x->conn->bev)) == 0)
		(void) bufferevent_write(x->conn->bev, go_on, sizeof go_on - 1);
	x->expects = false;
	conn_want_input_by(x->conn, now_monotonic() + patience(x));
	conn_work_soon(x->conn);
}

void request_read_more(struct request *r)
{
	struct exchange *x = r->x;

	x->waiting = false;
	x->again = evbuffer_get_length(x->content) > 0;
	if (x->conn != NULL && x->reading)
		conn_work_soon(x->conn);
}

struct evbuffer *request_content(struct request *r)
{
	return r->x->content;
}

void refuse_body(struct request *r)
{
	unsigned status = r->x->body_fault;

	if (status == 413)
		refuse(r, PROBLEM_TOO_LARGE, "send less", "the body is larger than %llu bytes",
		       (unsigned long long) r->x->body.max);
	else if (status != 0)
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "the body is not in the chunked coding that its head announces");
	else
		request_reset(r);
}

/* ---- The end. ---- */

void request_on_gone(struct request *r, void (*gone)(struct request *r))
{
	struct exchange *x = r->x;

	x->gone = gone;
	if (x->conn != NULL && x->conn->eof)
		conn_work_soon(x->conn);
}

bool request_is_gone(const struct request *r)
{
	return r->x->conn == NULL || r->x->conn->dead;
}

void request_forget(struct request *r)
{
	r->x->forget = true;
}

void exchange_tell_gone(struct exchange *x)
{
	if (x->gone_told || x->gone == NULL)
		return;
	x->gone_told = true;
	x->gone(&x->r);
}

void exchange_detach(struct exchange *x)
{
	x->conn = NULL;
	if (x->gone_told)
		return;
	if (x->reading)
		broken(x);
	else
		exchange_tell_gone(x);
}

static const char *known_method(const char *method)
{
	static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], method) == 0)
			return known[i];
	return "other";
}

static void record(const struct exchange *x)
{
	const struct daemon *d = x->server->daemon;
	const char *route = x->r.route != NULL ? x->r.route->pattern : "none", *method = known_method(x->r.method);
	usec_t took = now_monotonic() - x->began;
	char code[16] = "cut", path[200];

	if (x->status != 0)
		(void) snprintf(code, sizeof code, "%u", x->status);
	metrics_add(d->metrics, METRIC_HTTP_REQUESTS, METRIC_LABELS(route, method, code), 1);
	metrics_observe(d->metrics, METRIC_HTTP_REQUEST_SECONDS, METRIC_LABELS(route, method), took);
	(void) snprintf(path, sizeof path, "%s", x->r.path);
	dlog(d->log, DLOG_INFO, "request", dlog_text("request_id", x->r.id), dlog_text("peer", x->peer.text),
	     dlog_text("key", x->r.caller.key_id), dlog_text("method", method), dlog_text("path", path), dlog_text("code", code),
	     dlog_number("bytes", x->sent), dlog_seconds("seconds", took));
}

void request_hold_drain(struct request *r)
{
	struct exchange *x = r->x;

	if (!x->counted)
		x->server->pending++;
	x->counted = true;
}

/* Copied, since the pieces that come from a socket have as much room again behind them as they hold. A length that is known is
 * one piece, which need not be copied again when it is read as a text. */
static int copy_content(const struct exchange *x, struct evbuffer *to, struct evbuffer *content)
{
	char piece[16 * 1024];
	int n, r = 0;

	if (x->body.kind == BODY_LENGTH && evbuffer_get_length(to) == 0 && x->head.length <= JSON_BODY_MAX)
		r = evbuffer_expand(to, (size_t) x->head.length);
	while (r == 0 && (n = evbuffer_remove(content, piece, sizeof piece)) > 0)
		r = evbuffer_add(to, piece, (size_t) n);
	return r;
}

bool request_count_body(struct request *r, size_t more)
{
	struct exchange *x = r->x;

	if (more > x->server->limits.json_bytes_max - x->server->json_bytes)
		return false;
	x->server->json_bytes += more;
	x->json_counted += more;
	return true;
}

bool request_collect(struct request *r, struct evbuffer *to, struct evbuffer *content)
{
	return request_count_body(r, evbuffer_get_length(content)) && copy_content(r->x, to, content) == 0;
}

void request_drop_body(struct request *r)
{
	r->x->server->json_bytes -= r->x->json_counted;
	r->x->json_counted = 0;
}

static void release(struct exchange *x)
{
	struct http_server *s = x->server;

	LIST_REMOVE(x, entry);
	json_decref(x->r.json);
	target_parts_done(&x->r.target);
	if (x->content != NULL)
		evbuffer_free(x->content);
	if (x->collected != NULL)
		evbuffer_free(x->collected);
	buf_done(&x->fields);
	free(x->text);
	request_drop_body(&x->r);
	if (x->counted && --s->pending == 0 && s->on_quiet != NULL)
		s->on_quiet(s);
	free(x);
}

void exchange_end(struct exchange *x)
{
	struct http_conn *c = x->conn;

	record(x);
	if (x->idempotent != NULL)
		idempotency_end(x);
	if (c != NULL) {
		if (!x->body.done)
			c->closing = true; /* what is left of it would be read as a request */
		conn_answered(c);
	}
	release(x);
}
