/* The server and its handlers' interface over socket pairs: streams in both directions, clients that stop, leave or are slow,
 * resets, other protocols, events, repeated requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/idempotency.h"
#include "daemon/router.h"
#include "daemon/sse.h"

#define HOST "Host: localhost\r\n"

enum { ANSWER_MAX = 8 * 1024 * 1024 };

/* One server, one client, and what the handlers have seen. */
struct world {
	struct daemon d;
	int client;
	struct request *held; /* of "hold" */
	size_t taken;         /* by "take" */
	bool paused;          /* "take" leaves everything */
	unsigned runs, gone, broken;
	struct tunnel *tunnel;
	bool tunnel_cut;
	size_t written;
};

static struct world *w;

/* ---- Handlers. ---- */

static void hello(struct request *r)
{
	w->runs++;
	respond_header(r, "X-Bad", "a\r\nb");
	respond_text(r, 200, "text/plain", "hello", 5);
}

static void on_gone(struct request *r)
{
	w->gone++;
	w->held = NULL;
	respond_empty(r, 204);
}

static void hold(struct request *r)
{
	w->held = r;
	request_on_gone(r, on_gone);
}

static void hold_long(struct request *r)
{
	w->held = r;
}

static void take_some(struct request *r, struct evbuffer *content, enum body_event event)
{
	if (event == BODY_BROKEN) {
		w->broken++;
		refuse_body(r);
		return;
	}
	w->held = r;
	if (w->paused)
		return;
	w->taken += evbuffer_get_length(content);
	(void) evbuffer_drain(content, evbuffer_get_length(content));
	if (event == BODY_WHOLE)
		respond_json(r, 200, json_integer((json_int_t) w->taken));
}

static void take(struct request *r)
{
	request_read(r, take_some);
}

/* Four mebibytes, as the client takes them. */
static void pour(struct request *r)
{
	static const char block[16 * 1024];

	while (stream_queued(r) < STREAM_ROOM && w->written < 4 * 1024 * 1024) {
		stream_write(r, block, sizeof block);
		w->written += sizeof block;
	}
	if (w->written == 4 * 1024 * 1024)
		stream_end(r);
}

static void big(struct request *r)
{
	stream_begin(r, 200, "application/octet-stream", ZW_UNLIMITED);
	stream_on_room(r, pour);
	pour(r);
}

static void half(struct request *r)
{
	stream_begin(r, 200, "text/plain", ZW_UNLIMITED);
	stream_write(r, "part", 4);
	w->held = r;
}

static void too_short(struct request *r)
{
	stream_begin(r, 200, "text/plain", 10);
	stream_write(r, "part", 4);
	stream_end(r);
}

static void tunnel_was_cut(void *arg)
{
	(void) arg;
	w->tunnel_cut = true;
	tunnel_close(w->tunnel);
}

static void upgrade(struct request *r)
{
	static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";

	w->tunnel = request_take_over(r, head, tunnel_was_cut, NULL);
}

static void events(struct request *r)
{
	struct sse *s = sse_begin(r);

	sse_send(s, sse_last_id(r, 0) + 1, "created", json_pack("{s:s}", "a", "b\nc"));
	sse_send_text(s, UINT64_MAX, "ended", "{}");
	sse_end(s);
}

static void count_runs(struct request *r)
{
	const char *status = request_query(r, "status");

	w->runs++;
	respond_header(r, "Location", "/x/%u", w->runs);
	if (status != NULL)
		refuse(r, PROBLEM_CONFLICT, NULL, "run %u", w->runs);
	else
		respond_json(r, 201, json_pack("{s:i}", "run", (int) w->runs));
}

static void hold_run(struct request *r)
{
	w->runs++;
	w->held = r;
}

static const struct route routes[] = {
    {"GET", "/hello", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, hello, NULL, 0},
    {"GET", "/hold", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, hold, NULL, 0},
    {"GET", "/hold-long", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, hold_long, NULL, 0},
    {"PUT", "/take", SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL, take, NULL, 0},
    {"PUT", "/little", SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL, take, NULL, 10},
    {"GET", "/big", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, big, NULL, 0},
    {"GET", "/half", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN | ROUTE_LASTING, NULL, half, NULL, 0},
    {"GET", "/too-short", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, too_short, NULL, 0},
    {"GET", "/upgrade", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN, NULL, upgrade, NULL, 0},
    {"GET", "/events", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN | ROUTE_LASTING, NULL, events, NULL, 0},
    {"POST", "/once", SCOPE_NONE, TAKES_JSON_OR_NOTHING, ROUTE_OPEN | ROUTE_IDEMPOTENT, NULL, count_runs, NULL, 0},
    {"POST", "/once-held", SCOPE_NONE, TAKES_JSON_OR_NOTHING, ROUTE_OPEN | ROUTE_IDEMPOTENT, NULL, hold_run, NULL, 0},
    {"POST", "/work", SCOPE_NONE, TAKES_JSON_OR_NOTHING, ROUTE_OPEN | ROUTE_WORK, NULL, count_runs, NULL, 0},
};

/* ---- The world. ---- */

static void connect_tcp(int pair[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	cleanup_fd int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(listener, (struct sockaddr *) &address, sizeof address), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *) &address, &size), 0);
	pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(pair[0], (struct sockaddr *) &address, sizeof address), 0);
	pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(pair[1] >= 0);
}

static int connect_client(void)
{
	const struct http_peer peer = {.here = "127.0.0.1", .text = "test"};
	struct bufferevent *bev;
	int pair[2];

	connect_tcp(pair);
	bev = bufferevent_socket_new(w->d.base, pair[1], BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	assert_int_equal(http_conn_new(&w->d.http, bev, &peer), 0);
	return pair[0];
}

static int make_world(void **state)
{
	const struct http_limits limits = {.times = {.head = 200000, .idle = 300000, .progress = 300000, .linger = 200000},
					   .connections_max = 8,
					   .json_bytes_max = 1000};
	struct zw_error e = {0};

	w = xcalloc(1, sizeof *w);
	w->d.base = event_base_new();
	w->d.router = router_new();
	router_add(w->d.router, routes, ARRAY_SIZE(routes));
	assert_int_equal(store_open_memory(&w->d.store, &e), 0);
	assert_int_equal(keys_open(&w->d.store, &w->d.keys, &e), 0);
	w->d.idempotency = idempotency_new(&w->d.store);
	http_server_init(&w->d.http, &w->d, w->d.base, &limits);
	w->d.http.dispatch = router_dispatch;
	w->client = connect_client();
	*state = w;
	return 0;
}

static int remove_world(void **state)
{
	(void) state;
	http_server_done(&w->d.http);
	if (w->held != NULL)
		respond_empty(w->held, 204); /* a handler has to */
	assert_true(LIST_EMPTY(&w->d.http.exchanges));
	assert_int_equal(w->d.http.pending, 0);
	assert_int_equal(w->d.http.json_bytes, 0);
	fd_close(&w->client);
	keys_done(&w->d.keys);
	(void) idempotency_free(w->d.idempotency);
	store_done(&w->d.store);
	(void) router_free(w->d.router);
	(void) event_base_loop(w->d.base, EVLOOP_NONBLOCK);
	event_base_free(w->d.base);
	free(w);
	return 0;
}

/* Lets the server work until it has nothing to do for `msec`. */
static void turn(unsigned msec)
{
	usec_t end = now_monotonic() + msec * USEC_PER_MSEC;

	do {
		struct timeval wait = {.tv_usec = 2000};

		(void) event_base_loopexit(w->d.base, &wait);
		(void) event_base_loop(w->d.base, EVLOOP_NO_EXIT_ON_EMPTY);
	} while (now_monotonic() < end);
}

static void say(const char *text)
{
	assert_int_equal(fd_write_all(w->client, text, strlen(text)), 0);
}

enum end { OPEN, CLOSED, RESET };

/* What comes within a time, into `buf`; how the connection stands then. */
static enum end hear(char *buf, size_t size, unsigned msec)
{
	usec_t end = now_monotonic() + msec * USEC_PER_MSEC;
	size_t n = 0;

	buf[0] = '\0';
	while (now_monotonic() < end) {
		ssize_t got;

		turn(1);
		got = recv(w->client, buf + n, size - 1 - n, MSG_DONTWAIT);
		if (got == 0)
			return CLOSED;
		if (got < 0 && errno == ECONNRESET)
			return RESET;
		if (got > 0)
			n += (size_t) got;
		buf[n] = '\0';
	}
	return OPEN;
}

static void ask(const char *text, const char *want)
{
	char buf[8192];

	say(text);
	(void) hear(buf, sizeof buf, 30);
	if (strstr(buf, want) == NULL)
		fail_msg("no \"%s\" in: %s", want, buf);
}

/* ---- Tests. ---- */

static void requests_follow_each_other(void **state)
{
	char buf[8192];
	const char *second;

	(void) state;
	say("GET /hello HTTP/1.1\r\n" HOST "\r\nHEAD /hello HTTP/1.1\r\n" HOST "\r\nGET /nope HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(buf, sizeof buf, 30), OPEN);
	assert_non_null(strstr(buf, "\r\n\r\nhelloHTTP/1.1 200 OK\r\n"));
	second = strstr(buf, "helloHTTP/1.1 200");
	assert_non_null(strstr(second, "Content-Length: 5\r\n\r\nHTTP/1.1 401 Unauthorized"));
	assert_null(strstr(buf, "X-Bad"));
	assert_int_equal(w->runs, 2);
}

static void the_next_request_waits_for_the_answer(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /hold HTTP/1.1\r\n" HOST "\r\nGET /hello HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(buf, sizeof buf, 20), OPEN);
	assert_string_equal(buf, "");
	assert_int_equal(w->runs, 0);
	respond_text(w->held, 200, "text/plain", "first", 5);
	w->held = NULL;
	(void) hear(buf, sizeof buf, 20);
	assert_non_null(strstr(buf, "firstHTTP/1.1 200 OK"));
}

static void a_client_that_leaves_is_told_once(void **state)
{
	(void) state;
	say("GET /hold HTTP/1.1\r\n" HOST "\r\n");
	turn(10);
	assert_non_null(w->held);
	assert_int_equal(w->gone, 0);
	fd_close(&w->client);
	turn(20);
	assert_int_equal(w->gone, 1);
	assert_int_equal(w->d.http.pending, 0);
}

static void a_client_that_half_closes_gets_its_answer(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /hold-long HTTP/1.1\r\n" HOST "\r\n");
	(void) shutdown(w->client, SHUT_WR);
	turn(10);
	assert_false(request_is_gone(w->held));
	respond_text(w->held, 200, "text/plain", "late", 4);
	w->held = NULL;
	assert_int_equal(hear(buf, sizeof buf, 50), CLOSED);
	assert_non_null(strstr(buf, "\r\n\r\nlate"));
}

static void a_request_outlives_its_client(void **state)
{
	(void) state;
	say("GET /hold-long HTTP/1.1\r\n" HOST "\r\n");
	turn(10);
	http_server_done(&w->d.http);
	assert_true(request_is_gone(w->held));
	assert_int_equal(stream_queued(w->held), 0);
	respond_text(w->held, 200, "text/plain", "late", 4);
	w->held = NULL;
}

static void fill(int fd, size_t *sent)
{
	static const char block[64 * 1024];

	for (;;) {
		ssize_t n = send(fd, block, sizeof block, MSG_DONTWAIT);

		if (n <= 0)
			return;
		*sent += (size_t) n;
	}
}

static void a_handler_that_takes_nothing_stops_the_client(void **state)
{
	size_t sent = 0, before;
	char buf[4096];

	(void) state;
	w->paused = true;
	say("PUT /take HTTP/1.1\r\n" HOST "Content-Length: 100000000\r\n\r\n");
	for (unsigned i = 0; i < 40; i++) {
		fill(w->client, &sent);
		turn(2);
	}
	before = sent;
	/* Longer than the time for progress: the client is not to blame. */
	turn(500);
	fill(w->client, &sent);
	assert_true(before < 100000000 && sent - before < 1024 * 1024);
	assert_true(evbuffer_get_length(request_content(w->held)) <= STREAM_ROOM);
	w->paused = false;
	request_read_more(w->held);
	while (sent < 100000000) {
		size_t now = sent;
		static const char block[64 * 1024];
		size_t size = 100000000 - sent < sizeof block ? 100000000 - sent : sizeof block;
		ssize_t n = send(w->client, block, size, MSG_DONTWAIT);

		sent += n > 0 ? (size_t) n : 0;
		if (sent == now)
			turn(1);
	}
	(void) hear(buf, sizeof buf, 100);
	w->held = NULL;
	assert_int_equal(w->taken, 100000000);
	assert_non_null(strstr(buf, "\r\n\r\n100000000"));
}

static void a_body_without_progress_is_cut(void **state)
{
	char buf[4096];

	(void) state;
	say("PUT /take HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc");
	assert_int_not_equal(hear(buf, sizeof buf, 200), CLOSED);
	assert_int_not_equal(hear(buf, sizeof buf, 400), OPEN);
	assert_int_equal(w->broken, 1);
	w->held = NULL;
}

static void bodies_that_are_none_are_refused(void **state)
{
	(void) state;
	ask("PUT /take HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "400 Bad Request");
	assert_int_equal(w->broken, 1);
	w->held = NULL;
}

static void a_stream_may_have_a_ceiling(void **state)
{
	(void) state;
	ask("PUT /little HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\n01234567890", "413 Content Too Large");
	w->held = NULL;
}

static void a_client_that_waits_is_told_to_go_on(void **state)
{
	(void) state;
	ask("PUT /take HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n");
	ask("abc", "\r\n\r\n3");
	w->held = NULL;
	/* Not when it is refused anyway. */
	ask("POST /nope HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 401");
}

static void a_large_answer_waits_for_its_reader(void **state)
{
	cleanup_free char *buf = xcalloc(ANSWER_MAX, 1);
	size_t total = 0;

	(void) state;
	say("GET /big HTTP/1.1\r\n" HOST "\r\n");
	turn(50);
	/* Two ceilings: ours, and what the kernel holds. */
	assert_true(w->written < 4 * 1024 * 1024);
	for (unsigned i = 0; i < 400 && total < 4 * 1024 * 1024; i++) {
		ssize_t n = recv(w->client, buf, ANSWER_MAX, MSG_DONTWAIT);

		total += n > 0 ? (size_t) n : 0;
		turn(1);
	}
	assert_true(total > 4 * 1024 * 1024);
	assert_int_equal(w->written, 4 * 1024 * 1024);
	ask("GET /hello HTTP/1.1\r\n" HOST "\r\n", "hello");
}

static void an_answer_that_nobody_reads_is_cut(void **state)
{
	const int small = 4096;

	(void) state;
	(void) setsockopt(w->client, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	say("GET /big HTTP/1.1\r\n" HOST "\r\n");
	turn(50);
	assert_int_equal(w->d.http.count, 1);
	turn(700);
	assert_int_equal(w->d.http.count, 0);
	/* The handler's request is still there, as it did not ask to be told. */
	assert_int_equal(w->d.http.pending, 1);
	stream_end(&LIST_FIRST(&w->d.http.exchanges)->r);
}

static void a_reset_cuts_an_answer_in_its_middle(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /half HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(buf, sizeof buf, 20), OPEN);
	assert_non_null(strstr(buf, "4\r\npart\r\n"));
	request_reset(w->held);
	w->held = NULL;
	assert_int_equal(hear(buf, sizeof buf, 20), RESET);
}

static void an_answer_shorter_than_announced_is_a_reset(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /too-short HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(buf, sizeof buf, 30), RESET);
}

static void the_old_version_gets_the_end_of_the_connection(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /half HTTP/1.0\r\n" HOST "\r\n");
	(void) hear(buf, sizeof buf, 20);
	assert_non_null(strstr(buf, "\r\n\r\npart"));
	assert_null(strstr(buf, "chunked"));
	stream_end(w->held);
	w->held = NULL;
	assert_int_equal(hear(buf, sizeof buf, 50), CLOSED);
}

static void another_protocol_has_the_connection(void **state)
{
	char buf[4096];
	struct evbuffer *input;

	(void) state;
	say("GET /upgrade HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: echo\r\n\r\nbytes");
	(void) hear(buf, sizeof buf, 20);
	assert_non_null(strstr(buf, "101 Switching Protocols"));
	assert_non_null(w->tunnel);
	input = bufferevent_get_input(tunnel_bev(w->tunnel));
	assert_int_equal(evbuffer_get_length(input), 5);
	(void) bufferevent_write_buffer(tunnel_bev(w->tunnel), input);
	(void) hear(buf, sizeof buf, 20);
	assert_string_equal(buf, "bytes");
	turn(700); /* no time-out of ours any more */
	assert_int_equal(w->d.http.count, 1);
	http_server_done(&w->d.http);
	assert_true(w->tunnel_cut);
	assert_int_equal(w->d.http.count, 0);
}

static void slow_and_silent_clients_are_cut(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /hello HT");
	assert_int_equal(hear(buf, sizeof buf, 100), OPEN);
	say("TP/1.1\r\nA: b\r\n");
	assert_int_equal(hear(buf, sizeof buf, 250), CLOSED); /* bytes do not buy time */
	fd_close(&w->client);
	w->client = connect_client();
	ask("GET /hello HTTP/1.1\r\n" HOST "\r\n", "hello");
	assert_int_equal(hear(buf, sizeof buf, 150), OPEN);
	assert_int_equal(hear(buf, sizeof buf, 400), CLOSED); /* idle */
}

static void a_slow_handler_is_not_cut(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /hold-long HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(buf, sizeof buf, 700), OPEN);
	respond_text(w->held, 200, "text/plain", "late", 4);
	w->held = NULL;
	(void) hear(buf, sizeof buf, 20);
	assert_non_null(strstr(buf, "late"));
}

static void events_have_ids_and_one_line(void **state)
{
	char buf[4096];

	(void) state;
	say("GET /events HTTP/1.1\r\n" HOST "Last-Event-ID: 41\r\n\r\n");
	(void) hear(buf, sizeof buf, 20);
	assert_non_null(strstr(buf, "Content-Type: text/event-stream\r\n"));
	assert_non_null(strstr(buf, "id: 42\nevent: created\ndata: {\"a\":\"b\\nc\"}\n\n"));
	assert_non_null(strstr(buf, "event: ended\ndata: {}\n\n"));
	assert_non_null(strstr(buf, "0\r\n\r\n"));
}

#define ONCE(path, key, body) "POST " path " HTTP/1.1\r\n" HOST "Idempotency-Key: " key "\r\nContent-Length: 2\r\n\r\n" body

static void a_repeated_request_is_done_once(void **state)
{
	(void) state;
	ask(ONCE("/once", "k1", "{}"), "{\"run\":1}");
	ask(ONCE("/once", "k1", "{}"), "Location: /x/1\r\nIdempotency-Replayed: true\r\n");
	ask(ONCE("/once", "k1", "{}"), "{\"run\":1}");
	ask(ONCE("/once", "k2", "{}"), "{\"run\":2}");
	ask("POST /once HTTP/1.1\r\n" HOST "Idempotency-Key: k1\r\nContent-Length: 3\r\n\r\n{ }", "idempotency_key_reused");
	ask("POST /once?a=b HTTP/1.1\r\n" HOST "Idempotency-Key: k1\r\nContent-Length: 2\r\n\r\n{}", "422 ");
	assert_int_equal(w->runs, 2);
	/* What may be otherwise the next time is not kept. */
	ask(ONCE("/once?status=409", "k3", "{}"), "run 3");
	ask(ONCE("/once?status=409", "k3", "{}"), "run 4");
	ask("POST /once HTTP/1.1\r\n" HOST "Idempotency-Key:\r\n\r\n", "400 ");
	ask("POST /once HTTP/1.1\r\n" HOST "Idempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n", "400 ");
}

static void a_request_under_way_is_a_conflict(void **state)
{
	struct request *first;

	(void) state;
	say(ONCE("/once-held", "k", "{}"));
	turn(20);
	first = w->held;
	assert_non_null(first);
	fd_close(&w->client);
	turn(20);
	/* The client is gone, its work goes on. */
	w->client = connect_client();
	ask(ONCE("/once-held", "k", "{}"), "409 Conflict");
	respond_json(first, 201, json_pack("{s:i}", "run", 1));
	w->held = NULL;
	ask(ONCE("/once-held", "k", "{}"), "{\"run\":1}");
	assert_int_equal(w->runs, 1);
}

static void an_answer_that_is_forgotten_is_not_repeated(void **state)
{
	(void) state;
	say(ONCE("/once-held", "k", "{}"));
	turn(20);
	request_forget(w->held);
	respond_empty(w->held, 204);
	w->held = NULL;
	turn(10);
	say(ONCE("/once-held", "k", "{}"));
	turn(20);
	assert_int_equal(w->runs, 2);
	assert_non_null(w->held);
}

static void large_bodies_together_have_a_ceiling(void **state)
{
	char body[1100];

	(void) state;
	memset(body, ' ', sizeof body);
	(void) snprintf(body, sizeof body, "POST /once HTTP/1.1\r\n" HOST "Content-Length: 1010\r\n\r\n%1008s{}", "");
	ask(body, "503 Service Unavailable");
}

static void new_work_is_refused_while_draining(void **state)
{
	(void) state;
	w->d.draining = true;
	ask("POST /work HTTP/1.1\r\n" HOST "\r\n", "503 Service Unavailable");
	ask("POST /once HTTP/1.1\r\n" HOST "\r\n", "201 Created");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, make_world, remove_world)
	const struct CMUnitTest tests[] = {
	    T(requests_follow_each_other),
	    T(the_next_request_waits_for_the_answer),
	    T(a_client_that_leaves_is_told_once),
	    T(a_client_that_half_closes_gets_its_answer),
	    T(a_request_outlives_its_client),
	    T(a_handler_that_takes_nothing_stops_the_client),
	    T(a_body_without_progress_is_cut),
	    T(bodies_that_are_none_are_refused),
	    T(a_stream_may_have_a_ceiling),
	    T(a_client_that_waits_is_told_to_go_on),
	    T(a_large_answer_waits_for_its_reader),
	    T(an_answer_that_nobody_reads_is_cut),
	    T(a_reset_cuts_an_answer_in_its_middle),
	    T(an_answer_shorter_than_announced_is_a_reset),
	    T(the_old_version_gets_the_end_of_the_connection),
	    T(another_protocol_has_the_connection),
	    T(slow_and_silent_clients_are_cut),
	    T(a_slow_handler_is_not_cut),
	    T(events_have_ids_and_one_line),
	    T(a_repeated_request_is_done_once),
	    T(a_request_under_way_is_a_conflict),
	    T(an_answer_that_is_forgotten_is_not_repeated),
	    T(large_bodies_together_have_a_ceiling),
	    T(new_work_is_refused_while_draining),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
