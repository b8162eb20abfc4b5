/* A whole connection of the daemon against any bytes, cut anywhere: heads, bodies, pipelined requests, with handlers that answer
 * at once, later, in pieces, or by a reset. What comes back must be answers that a strict reader understands, one for each
 * request, and in the end nothing may be left. The first byte of the input chooses the cut and whether the client closes. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/idempotency.h"
#include "daemon/router.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REQUESTS_MAX = 4096, KEY_SIZE = KEY_TEXT_SIZE };

static struct daemon d;
static bool heads[REQUESTS_MAX]; /* was the request a HEAD? */
static size_t requests;
static bool cut; /* by a handler, or for a reason that allows half an answer */

static void echo_path(struct request *r)
{
	for (size_t i = 0; i < ROUTE_PARAMS_MAX && r->params[i] != NULL; i++)
		if (r->params[i][0] == '\0' || strchr(r->params[i], '/') != NULL || strcmp(r->params[i], "..") == 0)
			abort();
	respond_text(r, 200, "text/plain", r->path, strlen(r->path));
}

static void echo_json(struct request *r)
{
	respond_json(r, 200, json_incref(r->json));
}

static void echo_some(struct request *r, struct evbuffer *content, enum body_event event)
{
	if (event == BODY_BROKEN) {
		cut = true;
		request_reset(r);
		return;
	}
	stream_write_buffer(r, content);
	if (event == BODY_WHOLE)
		stream_end(r);
}

static void echo_stream(struct request *r)
{
	stream_begin(r, 200, "application/octet-stream", ZW_UNLIMITED);
	request_read(r, echo_some);
}

static void drop_some(struct request *r, struct evbuffer *content, enum body_event event)
{
	(void) evbuffer_drain(content, evbuffer_get_length(content));
	if (event == BODY_BROKEN)
		refuse_body(r);
	else if (event == BODY_WHOLE)
		respond_empty(r, 204);
}

static void drop(struct request *r)
{
	request_read(r, drop_some);
}

static void later(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	respond_empty(arg, 200);
}

static void answer_later(struct request *r)
{
	static const struct timeval now = {0};

	(void) event_base_once(d.base, -1, EV_TIMEOUT, later, r, &now);
}

static void reset(struct request *r)
{
	cut = true;
	request_reset(r);
}

static const struct json_field fields[] = {
    {"a", JSON_IN_TEXT | JSON_IN_NUL}, {"b", JSON_IN_LIST | JSON_IN_TEXTS}, {"c", 127}, {NULL, 0}};

static const struct route routes[] = {
    {"GET", "/a", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, echo_path, NULL, 0},
    {"GET", "/s/{x}/{y}", SCOPE_USE, TAKES_NOTHING, 0, NULL, echo_path, NULL, 0},
    {"POST", "/j", SCOPE_NONE, TAKES_JSON, ROUTE_OPEN | ROUTE_IDEMPOTENT, fields, echo_json, NULL, 0},
    {"POST", "/k", SCOPE_ADMIN, TAKES_JSON_OR_NOTHING, 0, NULL, echo_json, NULL, 0},
    {"POST", "/e", SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL, echo_stream, NULL, 0},
    {"PUT", "/d", SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL, drop, NULL, 1000},
    {"GET", "/l", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, answer_later, NULL, 0},
    {"GET", "/r", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, reset, NULL, 0},
};

static void dispatch(struct request *r)
{
	if (requests < REQUESTS_MAX)
		heads[requests++] = strcmp(r->method, "HEAD") == 0;
	router_dispatch(r);
}

static void start(void)
{
	const struct http_limits limits = {
	    .times = {1u << 30, 1u << 30, 1u << 30, 1u << 30}, .connections_max = 8, .json_bytes_max = 1u << 24};
	struct zw_error e = {0};

	d.base = event_base_new();
	d.router = router_new();
	router_add(d.router, routes, ARRAY_SIZE(routes));
	if (store_open_memory(&d.store, &e) < 0 || keys_open(&d.store, &d.keys, &e) < 0)
		abort();
	d.idempotency = idempotency_new(&d.store);
	http_server_init(&d.http, &d, d.base, &limits);
	d.http.dispatch = dispatch;
}

static void turn(void)
{
	for (unsigned i = 0; i < 8; i++)
		(void) event_base_loop(d.base, EVLOOP_NONBLOCK);
}

/* One answer at the start of `in`: 1: taken away; 0: there is none that is whole. */
static int take_answer(struct evbuffer *in, bool head, bool *ret_interim)
{
	size_t size = evbuffer_get_length(in), scanned = 0;
	char *text = (char *) evbuffer_pullup(in, -1);
	struct head_fault fault = {0};
	struct evbuffer *content;
	struct head h;
	struct body b;
	ssize_t n;

	if (size == 0)
		return 0;
	n = head_find(text, size, &scanned, &fault);
	if (n < 0 || (n > 0 && head_parse_response(text, (size_t) n, &h, &fault) < 0))
		abort();
	if (n == 0)
		return 0;
	*ret_interim = h.status == 100;
	if (!*ret_interim && head_field(&h, "x-request-id", NULL) == NULL)
		abort();
	(void) evbuffer_drain(in, (size_t) n);
	if (head || h.status == 100 || h.status == 204)
		return 1;
	body_begin(&b, h.chunked ? BODY_CHUNKED : h.has_length ? BODY_LENGTH : BODY_UNTIL_CLOSE, h.length, ZW_UNLIMITED);
	content = evbuffer_new();
	if (body_take(&b, in, content, SIZE_MAX) < 0)
		abort();
	evbuffer_free(content);
	return b.done || b.kind == BODY_UNTIL_CLOSE;
}

static void check_answers(struct evbuffer *in)
{
	size_t answers = 0;
	bool interim = false;

	while (answers < requests && answers < REQUESTS_MAX && take_answer(in, heads[answers], &interim) == 1)
		answers += !interim;
	if (evbuffer_get_length(in) > 0 && !cut)
		abort();
}

static void feed(struct bufferevent *client, const uint8_t *data, size_t size, size_t step)
{
	for (size_t at = 0; at < size; at += step) {
		(void) bufferevent_write(client, data + at, size - at < step ? size - at : step);
		turn();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct http_peer peer = {.local = (size & 1) != 0, .here = "127.0.0.1", .text = "fuzz"};
	struct bufferevent *pair[2];
	struct evbuffer *answers;
	size_t step;

	if (size < 2)
		return 0;
	if (d.base == NULL)
		start();
	requests = 0;
	cut = false;
	step = (data[0] >> 1) < 100 ? (size_t) (data[0] >> 1) + 1 : size;
	if (size / step > 2000)
		step = size / 2000;
	if (bufferevent_pair_new(d.base, BEV_OPT_DEFER_CALLBACKS, pair) < 0)
		abort();
	(void) bufferevent_enable(pair[1], EV_READ | EV_WRITE);
	answers = bufferevent_get_input(pair[1]);
	if (http_conn_new(&d.http, pair[0], &peer) < 0)
		abort();
	feed(pair[1], data + 1, size - 1, step);
	if ((data[0] & 1) != 0)
		(void) bufferevent_flush(pair[1], EV_WRITE, BEV_FINISHED);
	turn();
	/* A stream whose request never becomes whole has half an answer. */
	cut = cut || !LIST_EMPTY(&d.http.exchanges);
	check_answers(answers);
	http_server_done(&d.http);
	bufferevent_free(pair[1]);
	turn();
	if (!LIST_EMPTY(&d.http.exchanges) || d.http.count != 0 || d.http.pending != 0 || d.http.json_bytes != 0)
		abort();
	return 0;
}
