/* HTTP through the broker: which bytes reach the origin, which answers the client gets, and how connections end. The broker's
 * session runs in this process between two TCP connections of loopback; dialling and the supervisor are the test's own. */
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/control.h"
#include "egress/dial.h"
#include "egress/http.h"
#include "egress/names.h"
#include "egress/narrow.h"
#include "egress/pipes.h"
#include "egress/quota.h"
#include "egress/secrets.h"

enum { ORIGINS = 8, TEXT = 1024 * 1024, PATIENCE_MSEC = 5000 };

static const char SECRET[] = "s3cr3t-T0ken/with+signs";

struct peer {
	int fd;
	char *text; /* all that it received; "<end>" or "<reset>" behind the end */
	size_t size;
	bool over;
};

struct world {
	struct event_base *base;
	struct network network;
	struct broker broker;
	int listener;
	uint16_t port;
	struct peer client, origins[ORIGINS];
	size_t dials;
	bool dial_fails;
};

/* What the supervisor would have been told. */
static struct {
	char refused[400]; /* the last refusal: "kind host:port method path rule: why" */
	size_t refusals;
	char connections[4000]; /* "host:port rule method path status, ...; error\n" */
	const char *limit;
	struct world *world;
} seen;

/* ---- What the session calls. ---- */

struct dial {
	struct event *later;
	void (*done)(void *ctx, int fd);
	void *ctx;
	struct flow *flow;
};

static void send_at_once(int fd)
{
	const int yes = 1;

	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), 0);
}

static int connected_to(uint16_t port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *) &at, sizeof at), 0);
	assert_int_equal(fd_nonblock(fd), 0);
	send_at_once(fd);
	return fd;
}

static int accepted(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	int fd;

	assert_int_equal(poll(&p, 1, PATIENCE_MSEC), 1);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(fd >= 0);
	send_at_once(fd);
	return fd;
}

static void dial_later(evutil_socket_t unused, short what, void *ctx)
{
	struct dial d = *(struct dial *) ctx;
	struct world *w = seen.world;
	int fd = -1;

	(void) unused, (void) what;
	event_free(d.later);
	free(ctx);
	if (w->dial_fails) {
		(void) snprintf(d.flow->error, sizeof d.flow->error, "connection refused");
	} else {
		assert_true(w->dials < ORIGINS);
		fd = connected_to(w->port);
		w->origins[w->dials++].fd = accepted(w->listener);
	}
	d.done(d.ctx, fd);
}

struct dial *dial_start(struct flow *f, bool udp, void (*done)(void *ctx, int fd), void *ctx)
{
	struct dial *d = xcalloc(1, sizeof *d);
	const struct timeval now = {0};

	assert_false(udp);
	*d = (struct dial){.done = done, .ctx = ctx, .flow = f};
	d->later = evtimer_new(f->broker->base, dial_later, d);
	assert_int_equal(evtimer_add(d->later, &now), 0);
	return d;
}

void dial_cancel(struct dial *d)
{
	event_free(d->later);
	free(d);
}

void control_refusal(struct control *c, const struct refusal *r)
{
	(void) c;
	seen.refusals++;
	(void) snprintf(seen.refused, sizeof seen.refused, "%s %s:%u %s %s %d: %s", r->kind, r->host, r->port,
			r->method != NULL ? r->method : "-", r->path != NULL ? r->path : "-", r->rule, r->why);
}

void control_flow_gone(struct control *c)
{
	(void) c;
}

void control_connection(struct control *c, const struct flow *f)
{
	size_t at = strlen(seen.connections);

	(void) c;
	at += (size_t) snprintf(seen.connections + at, sizeof seen.connections - at, "%s:%u %d", f->target.name, f->target.port,
				f->rule);
	for (size_t i = 0; i < f->request_count && i < FLOW_REQUESTS_MAX && at < sizeof seen.connections; i++)
		at += (size_t) snprintf(seen.connections + at, sizeof seen.connections - at, " %s %s %d,", f->requests[i].method,
					f->requests[i].path, f->requests[i].status);
	(void) snprintf(seen.connections + at, sizeof seen.connections - at, "; %s\n", f->error);
}

void control_limit(struct control *c, const char *which, bool kill_it)
{
	(void) c, (void) kill_it;
	seen.limit = which;
}

void control_usage(struct control *c, uint64_t sent, uint64_t received)
{
	(void) c, (void) sent, (void) received;
}

void control_name(struct control *c, const char *name, uint32_t address)
{
	(void) c, (void) name, (void) address;
}

void control_inbound(struct control *c, uint16_t port, void (*done)(void *ctx, int fd), void *ctx)
{
	(void) c, (void) port, (void) done, (void) ctx;
}

void connections_count(struct broker *b, int change)
{
	b->connections += (size_t) change;
}

/* ---- The world. ---- */

struct rule {
	const char *host;
	uint16_t port;
	enum net_protocol protocol;
	const char *method, *path; /* NULL: all */
	uint64_t request_max;
	const char *secret, *header, *format, *placeholder;
};

static char *text_of(const char *s)
{
	return (char *) (uintptr_t) s;
}

static void add_rule(struct world *w, const struct rule *r)
{
	struct port_range ports = {.first = r->port, .last = r->port};
	char *method = text_of(r->method), *path = text_of(r->path), label[32];
	struct policy_rule rule = {
	    .host = text_of(r->host),
	    .ports = &ports,
	    .port_count = 1,
	    .protocol = r->protocol,
	    .methods = {.items = &method, .count = r->method != NULL},
	    .paths = {.items = &path, .count = r->path != NULL},
	    .has_methods = r->method != NULL,
	    .has_paths = r->path != NULL,
	    .request_max = r->request_max > 0 ? r->request_max : ZW_UNLIMITED,
	    .secret = {.name = text_of(r->secret),
		       .header = text_of(r->header),
		       .format = text_of(r->format),
		       .placeholder = text_of(r->placeholder)},
	};
	struct zw_error e = {0};

	(void) snprintf(label, sizeof label, "network.allow[%zu]", w->network.rule_count);
	if (network_add_rule(&w->network, &rule, label, &e) < 0)
		fail_msg("%s", e.text);
}

static void add_rules(struct world *w)
{
	static const struct rule rules[] = {
	    {.host = "a.test", .port = 80, .protocol = NET_HTTP, .method = "GET", .path = "/v1/**"},
	    {.host = "a.test", .port = 80, .protocol = NET_HTTP, .method = "POST", .path = "/up", .request_max = 10},
	    {.host = "b.test", .port = 8080, .protocol = NET_HTTP},
	    {.host = "s.test",
	     .port = 80,
	     .protocol = NET_HTTP,
	     .path = "/s/**",
	     .secret = "token",
	     .header = "Authorization",
	     .format = "Bearer {}"},
	    {.host = "s.test", .port = 80, .protocol = NET_HTTP, .path = "/open"},
	    {.host = "p.test", .port = 80, .protocol = NET_HTTP, .secret = "token", .placeholder = "@TOKEN-TOKEN@"},
	    {.host = "tcp.test", .port = 80, .protocol = NET_TCP},
	    {.host = "tls.test", .port = 443, .protocol = NET_TLS},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		add_rule(w, &rules[i]);
}

static void listen_somewhere(struct world *w)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;

	w->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(w->listener, (struct sockaddr *) &at, size), 0);
	assert_int_equal(listen(w->listener, 8), 0);
	assert_int_equal(getsockname(w->listener, (struct sockaddr *) &at, &size), 0);
	w->port = ntohs(at.sin_port);
}

static void peer_init(struct peer *p)
{
	*p = (struct peer){.fd = -EBADF, .text = xcalloc(TEXT, 1)};
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void) signal(SIGPIPE, SIG_IGN);
	memset(&seen, 0, sizeof seen);
	seen.world = w;
	w->base = event_base_new();
	w->network.limits.bytes_out = w->network.limits.bytes_in = w->network.limits.requests = ZW_UNLIMITED;
	w->network.limits.connections = w->network.limits.rate = ZW_UNLIMITED;
	add_rules(w);
	w->broker = (struct broker){.base = w->base, .network = &w->network, .names = names_new(), .secrets = secrets_new()};
	w->broker.quota = quota_new(&w->broker);
	w->broker.pipes = pipes_new();
	assert_int_equal(secrets_set(w->broker.secrets, "token", SECRET, strlen(SECRET)), 0);
	listen_somewhere(w);
	peer_init(&w->client);
	for (size_t i = 0; i < ORIGINS; i++)
		peer_init(&w->origins[i]);
	*state = w;
	return 0;
}

static void turn(struct world *w)
{
	struct timespec nap = {.tv_nsec = 200000};

	(void) event_base_loop(w->base, EVLOOP_NONBLOCK);
	(void) nanosleep(&nap, NULL);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	fd_close(&w->client.fd);
	for (size_t i = 0; i < ORIGINS; i++)
		fd_close(&w->origins[i].fd);
	for (size_t i = 0; i < 100 && !LIST_EMPTY(&w->broker.flows); i++)
		turn(w);
	assert_true(LIST_EMPTY(&w->broker.flows)); /* no session stays when both its ends are gone */
	for (size_t i = 0; i < 20; i++)
		turn(w);
	free(w->client.text);
	for (size_t i = 0; i < ORIGINS; i++)
		free(w->origins[i].text);
	fd_close(&w->listener);
	quota_free(w->broker.quota);
	pipes_free(w->broker.pipes);
	secrets_free(w->broker.secrets);
	names_free(w->broker.names);
	network_done(&w->network);
	event_base_free(w->base);
	free(w);
	return 0;
}

/* ---- Talking. ---- */

static void peer_read(struct peer *p)
{
	ssize_t n;

	if (p->fd < 0 || p->over)
		return;
	n = recv(p->fd, p->text + p->size, TEXT - 16 - p->size, MSG_DONTWAIT);
	if (n > 0)
		p->size += (size_t) n;
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		p->over = true;
		p->size += (size_t) snprintf(p->text + p->size, 16, "%s", n == 0 ? "<end>" : "<reset>");
	}
}

static bool peer_has(struct peer *p, const char *what)
{
	peer_read(p);
	return memmem(p->text, p->size, what, strlen(what)) != NULL;
}

/* Lets everything run until the peer has received `what`. */
static void expect(struct world *w, struct peer *p, const char *what)
{
	for (size_t i = 0; i < PATIENCE_MSEC * 4; i++) {
		if (peer_has(p, what))
			return;
		turn(w);
	}
	fail_msg("no \"%s\" in \"%s\"", what, p->text);
}

static void rest(struct world *w)
{
	for (size_t i = 0; i < 15; i++)
		turn(w);
}

static void forget(struct peer *p)
{
	memset(p->text, 0, p->size);
	p->size = 0;
}

static void say(struct world *w, struct peer *p, const char *data, size_t size)
{
	for (size_t at = 0, tries = 0; at < size; tries++) {
		ssize_t n = send(p->fd, data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			at += (size_t) n;
		else
			turn(w);
		if (n < 0 && (errno != EAGAIN || tries > 100000))
			return; /* the other end is gone; the test sees by what it reads */
	}
	turn(w);
}

static void says(struct world *w, struct peer *p, const char *text)
{
	say(w, p, text, strlen(text));
}

static int connected_pair(struct world *w)
{
	w->client.fd = connected_to(w->port);
	return accepted(w->listener);
}

static void connect_client(struct world *w, const char *name, uint16_t port)
{
	struct target t = {.port = port};
	struct flow *f;

	(void) snprintf(t.name, sizeof t.name, "%s", name);
	f = flow_open(&w->broker, &t, false);
	assert_non_null(f);
	http_start(f, connected_pair(w));
}

static void reconnect_client(struct world *w, const char *name, uint16_t port)
{
	fd_close(&w->client.fd);
	rest(w);
	forget(&w->client);
	w->client.over = false;
	connect_client(w, name, port);
}

static void assert_exactly(struct peer *p, const char *text)
{
	peer_read(p);
	assert_string_equal(p->text, text);
}

/* ---- Requests. ---- */

static void an_allowed_request_is_passed_in_our_words(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client,
	     "GET http://A.test/v1/x?q=1 HTTP/1.1\r\nhost: A.TEST:80\r\nAccept:  */*  \r\nConnection: keep-alive, "
	     "X-Hop\r\nX-Hop: 1\r\n"
	     "Proxy-Authorization: x\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(&w->origins[0], "GET /v1/x?q=1 HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n\r\n");
	says(w, &w->origins[0],
	     "HTTP/1.1 200 Fine\r\nServer: x\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nAlt-Svc: "
	     "h3=\":443\"\r\ncontent-length: 5\r\n\r\nhello");
	expect(w, &w->client, "hello");
	assert_exactly(&w->client, "HTTP/1.1 200 Fine\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello");
}

static void a_kept_connection_is_used_again(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	for (int i = 0; i < 3; i++) {
		says(w, &w->client, "GET / HTTP/1.1\r\nHost: b.test:8080\r\n\r\n");
		expect(w, &w->origins[0], "\r\n\r\n");
		assert_exactly(&w->origins[0], "GET / HTTP/1.1\r\nHost: b.test:8080\r\n\r\n");
		says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\nT: r\r\n\r\n");
		expect(w, &w->client, "0\r\n\r\n");
		assert_exactly(&w->client, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
		forget(&w->client);
		forget(&w->origins[0]);
	}
	assert_int_equal(w->dials, 1);
}

static void heads_may_come_in_pieces(void **state)
{
	static const char request[] =
	    "GET / HTTP/1.1\r\nHost: b.test:8080\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
	static const char response[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	for (size_t i = 0; request[i] != '\0'; i++)
		say(w, &w->client, request + i, 1);
	expect(w, &w->origins[0], "\r\n\r\n");
	for (size_t i = 0; response[i] != '\0'; i++)
		say(w, &w->origins[0], response + i, 1);
	expect(w, &w->client, "\r\n\r\nx");
	assert_exactly(&w->client, response);
	/* One in pieces, the other at once and longer. */
	forget(&w->origins[0]);
	for (size_t i = 0; request[i] != '\0'; i++)
		say(w, &w->client, request + i, 1);
	expect(w, &w->origins[0], "\r\n\r\n");
	says(
	    w, &w->origins[0],
	    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789012345678901234567890123456789012345678901234567890123456789"
	    "012345678901234567890123456789");
	expect(w, &w->client, "Content-Length: 100\r\n\r\n01");
}

static void pipelined_requests_are_answered_in_order_and_judged_each(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client,
	     "GET /v1/1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /v2/2 HTTP/1.1\r\nHost: a.test\r\n\r\nGET /v1/3 HTTP/1.1\r\nHost: "
	     "a.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	rest(w);
	assert_exactly(&w->origins[0], "GET /v1/1 HTTP/1.1\r\nHost: a.test\r\n\r\n");
	forget(&w->origins[0]);
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(&w->origins[0], "GET /v1/3 HTTP/1.1\r\nHost: a.test\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthree");
	expect(w, &w->client, "three");
	assert_true(strstr(w->client.text, "one") < strstr(w->client.text, "403 Forbidden"));
	assert_true(strstr(w->client.text, "403 Forbidden") < strstr(w->client.text, "three"));
	assert_string_equal(seen.refused, "http a.test:80 GET /v2/2 0: GET a.test/v2/2 is not allowed: the nearest rule, "
					  "network.allow[0], has only the paths /v1/**");
}

static void a_denied_request_says_what_why_and_how(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client, "DELETE /v1/x?secret=query HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->client, "policy\n");
	assert_true(peer_has(&w->client, "HTTP/1.1 403 Forbidden\r\n"));
	assert_true(
	    peer_has(&w->client,
		     "zwinger: DELETE a.test/v1/x is not allowed: network.allow[0] has that path, but only for the methods GET; "
		     "to ask for it, have the owner of this sandbox extend network.allow in its policy\n"));
	assert_false(peer_has(&w->client, "Connection: close"));
	assert_null(strstr(seen.refused, "query"));
	assert_non_null(strstr(seen.refused, "http a.test:80 DELETE /v1/x 0: "));
	/* HEAD is what GET allows, and its denial has no body. */
	forget(&w->client);
	says(w, &w->client, "HEAD /v2 HTTP/1.1\r\nHost: a.test\r\n\r\nHEAD /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->origins[0], "HEAD /v1/x HTTP/1.1\r\n");
	assert_true(peer_has(&w->client, "403"));
	assert_false(peer_has(&w->client, "zwinger:"));
	assert_int_equal(w->dials, 1);
}

static void the_body_of_a_denied_request_is_no_request(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client,
	     "POST /no HTTP/1.1\r\nHost: a.test\r\nContent-Length: 39\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nHost: a.test");
	expect(w, &w->client, "policy\n");
	says(w, &w->client, "GET /v1/next HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(&w->origins[0], "GET /v1/next HTTP/1.1\r\nHost: a.test\r\n\r\n");
	reconnect_client(w, "a.test", 80);
	says(w, &w->client,
	     "POST /no HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/x HTTP/1.1\r\nHost: "
	     "a.test\r\n\r\n");
	expect(w, &w->client, "<end>");
	assert_true(peer_has(&w->client, "Connection: close"));
	assert_int_equal(w->dials, 1);
}

/* Each line is sent on a connection of its own. What reaches the origin is listed; NULL: no connection is even made. */
static void nothing_is_smuggled(void **state)
{
#define A "Host: a.test\r\n"
	static const struct {
		const char *sent, *status, *passed;
	} table[] = {
	    {"POST /up HTTP/1.1\r\n" A "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/x HTTP/1.1\r\n" A
	     "\r\n",
	     "400", NULL},
	    {"POST /up HTTP/1.1\r\n" A "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "400", NULL},
	    {"POST /up HTTP/1.1\r\n" A "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", "400", NULL},
	    {"POST /up HTTP/1.1\r\n" A "Transfer-Encoding: xchunked\r\n\r\n", "501", NULL},
	    {"POST /up HTTP/1.1\r\n" A "Transfer-Encoding: chunked, identity\r\n\r\n", "501", NULL},
	    {"POST /up HTTP/1.1\r\n" A "Transfer-Encoding\t: chunked\r\n\r\n", "400", NULL},
	    {"POST /up HTTP/1.1\r\n" A "X: y\r\n Transfer-Encoding: chunked\r\n\r\n", "400", NULL},
	    {"POST /up HTTP/1.1\r\n" A "X: y\nTransfer-Encoding: chunked\r\n\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\n\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\n" A A "\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\n" A "Host: b.test\r\n\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\nHost: b.test\r\n\r\n", "421", NULL},
	    {"GET /v1/x HTTP/1.1\r\nHost: a.test:8080\r\n\r\n", "421", NULL},
	    {"GET /v1/x HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\nHost: b.test#.a.test\r\n\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\nHost: a.test%00b.test\r\n\r\n", "400", NULL},
	    {"GET http://b.test/v1/x HTTP/1.1\r\n" A "\r\n", "421", NULL},
	    {"GET http://a.test/v1/x HTTP/1.1\r\nHost: b.test\r\n\r\n", "421", NULL},
	    {"GET http://a.test@b.test/v1/x HTTP/1.1\r\n" A "\r\n", "400", NULL},
	    {"GET https://a.test/v1/x HTTP/1.1\r\n" A "\r\n", "400", NULL},
	    {"GET //b.test/v1/x HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"CONNECT a.test:80 HTTP/1.1\r\n" A "\r\n", "400", NULL},
	    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", NULL},
	    {"GET /v1/x HTTP/3.0\r\n" A "\r\n", "505", NULL},
	    {"get /v1/x HTTP/1.1\r\n" A "\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1 \r\n" A "\r\n", "505", NULL},
	    {"GET /v1%2f..%2fv2 HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1%2Fx HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1/../v2 HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1/%2e%2e/v2 HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1\\..\\v2 HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1/%00 HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1/%zz HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v2?/v1/x HTTP/1.1\r\n" A "\r\n", "403", NULL},
	    {"GET /v1/x#/../v2 HTTP/1.1\r\n" A "\r\n", "400", NULL},
	    {"GET /v1/x HTTP/1.1\r\n" A "X-HTTP-Method-Override: DELETE\r\n\r\n", "403", NULL},
	    {"GET /v1/x HTTP/1.1\r\n" A "X-Original-URL: /admin\r\n\r\n", "403", NULL},
	    {"GET /v1/x HTTP/1.1\r\n" A "Expect: 200-ok\r\n\r\n", "417", NULL},
	    {"POST /up HTTP/1.1\r\n" A "Content-Length: 11\r\n\r\n", "413", NULL},
	    /* Passed, but without what would make it another thing there. */
	    {"GET /v1/x HTTP/1.1\r\n" A
	     "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n",
	     NULL, "GET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n"},
	    {"GET /v1/x HTTP/1.1\r\n" A "Connection: Host, Content-Length\r\nContent-Length: 3\r\n\r\nabc", NULL,
	     "GET /v1/x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc"},
	    {"GET /v1/x HTTP/1.0\r\n\r\n", NULL, "GET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n"},
	    {"POST /up HTTP/1.1\r\n" A "Transfer-Encoding: CHUNKED\r\n\r\n2;a=b\r\nab\r\n00\r\nX: y\r\n\r\n", NULL,
	     "POST /up HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		size_t before = seen.refusals;

		reconnect_client(w, "a.test", 80);
		w->dials = 0;
		says(w, &w->client, table[i].sent);
		if (table[i].status != NULL) {
			expect(w, &w->client, "\r\n\r\n");
			rest(w);
			if (strncmp(w->client.text + 9, table[i].status, 3) != 0)
				fail_msg("%s\nwas answered %s", table[i].sent, w->client.text);
			if (w->dials != 0)
				fail_msg("%s\nled to a connection", table[i].sent);
			assert_int_equal(seen.refusals, before + 1);
		} else {
			for (size_t k = 0; k < 1000 && w->dials == 0; k++)
				turn(w);
			expect(w, &w->origins[0], table[i].passed);
			rest(w);
			assert_exactly(&w->origins[0], table[i].passed);
			fd_close(&w->origins[0].fd);
			forget(&w->origins[0]);
		}
	}
}

static void a_body_is_passed_up_to_its_maximum(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client, "POST /up HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
	expect(w, &w->origins[0], "5\r\nhello\r\n");
	says(w, &w->client, "6\r\nworld!\r\n0\r\n\r\n");
	expect(w, &w->client, "413");
	expect(w, &w->origins[0], "<reset>");
	assert_false(peer_has(&w->origins[0], "0\r\n\r\n"));
	assert_non_null(strstr(seen.refused, "request_max"));
}

static void a_broken_chunk_ends_the_request(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "POST /up HTTP/1.1\r\nHost: b.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naX0\r\n\r\n");
	expect(w, &w->client, "400");
	expect(w, &w->origins[0], "<reset>");
	assert_false(peer_has(&w->origins[0], "0\r\n\r\n"));
}

static void expectation_is_passed_and_fulfilled(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "PUT /x HTTP/1.1\r\nHost: b.test\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n");
	expect(w, &w->origins[0], "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\nX: y\r\n\r\n");
	expect(w, &w->client, "\r\n\r\n");
	assert_exactly(&w->client, "HTTP/1.1 100 Continue\r\n\r\n");
	says(w, &w->client, "abc");
	expect(w, &w->origins[0], "abc");
	says(w, &w->origins[0], "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
	expect(w, &w->client, "HTTP/1.1 204 No Content\r\n\r\n");
}

static void an_early_answer_closes_behind_it(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "PUT /x HTTP/1.1\r\nHost: b.test\r\nContent-Length: 300\r\n\r\npart");
	expect(w, &w->origins[0], "part");
	says(w, &w->origins[0], "HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno");
	expect(w, &w->client, "<end>");
	assert_exactly(&w->client, "HTTP/1.1 401 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno<end>");
}

static void limits_are_answered(void **state)
{
	struct world *w = *state;

	w->network.limits.requests = 1;
	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET /1 HTTP/1.1\r\nHost: b.test\r\n\r\nGET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "GET /1");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	expect(w, &w->client, "429");
	assert_string_equal(seen.limit, "requests");
	assert_false(peer_has(&w->origins[0], "GET /2"));
}

static void a_passed_limit_of_bytes_resets(void **state)
{
	struct world *w = *state;

	w->network.limits.bytes_out = 100;
	connect_client(w, "b.test", 8080);
	says(w, &w->client, "PUT /1 HTTP/1.1\r\nHost: b.test\r\nContent-Length: 80\r\n\r\n");
	expect(w, &w->origins[0], "PUT /1");
	says(w, &w->client, "0123456789012345678901234567890123456789012345678901234567890123456789012345678");
	expect(w, &w->client, "<reset>");
	assert_false(peer_has(&w->origins[0], "01234"));
}

/* ---- Responses. ---- */

static void a_body_that_ends_with_the_connection_arrives_whole(void **state)
{
	struct world *w = *state;
	size_t size = 700 * 1024;
	cleanup_free char *body = xcalloc(size, 1);

	memset(body, 'x', size);
	memcpy(body + size - 9, "THE TAIL!", 9);
	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET / HTTP/1.0\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.0 200 OK\r\n\r\n");
	say(w, &w->origins[0], body, size);
	fd_close(&w->origins[0].fd); /* at once behind the last byte */
	expect(w, &w->client, "THE TAIL!<end>");
	assert_int_equal(w->client.size, strlen("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<end>") + size);
}

static void a_body_that_was_cut_off_is_not_passed_as_whole(void **state)
{
	static const char *const table[] = {
	    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
	    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
	    "HTTP/1.1 200 OK\r\n",
	    "",
	    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
	    "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
	    "SSH-2.0-OpenSSH\r\n\r\n",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		reconnect_client(w, "b.test", 8080);
		w->dials = 0;
		w->origins[0].over = false;
		forget(&w->origins[0]);
		says(w, &w->client, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
		expect(w, &w->origins[0], "\r\n\r\n");
		says(w, &w->origins[0], table[i]);
		fd_close(&w->origins[0].fd);
		expect(w, &w->client, "<reset>");
	}
	assert_non_null(strstr(seen.connections, "; the server closed the connection within its response\n"));
	assert_non_null(strstr(seen.connections, "; the server closed the connection before it answered\n"));
}

static void a_connection_that_cannot_be_made_is_a_reset(void **state)
{
	struct world *w = *state;

	w->dial_fails = true;
	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->client, "<reset>");
	assert_exactly(&w->client, "<reset>");
	assert_string_equal(seen.connections, "b.test:8080 2 GET / 0,; connection refused\n");
}

static void responses_without_body_are_known(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "HEAD / HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "HEAD");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n");
	expect(w, &w->client, "Content-Length: 50\r\n\r\n");
	says(w, &w->client, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "GET");
	says(w, &w->origins[0], "HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\nETag: x\r\n\r\n");
	expect(w, &w->client, "ETag: x\r\nContent-Length: 50\r\n\r\n");
	says(w, &w->client, "DELETE /last HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "/last");
	says(w, &w->origins[0], "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n");
	expect(w, &w->client, "HTTP/1.1 204 No\r\n\r\n");
	fd_close(&w->client.fd);
	rest(w);
	assert_string_equal(seen.connections, "b.test:8080 2 HEAD / 200, GET / 304, DELETE /last 204,; \n");
}

static void an_origin_that_speaks_unasked_is_left(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET /1 HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "GET /1");
	says(w, &w->origins[0],
	     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 Poisoned\r\nContent-Length: 1\r\n\r\nb");
	expect(w, &w->client, "\r\n\r\na");
	says(w, &w->client, "GET /2 HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[1], "GET /2");
	says(w, &w->origins[1], "HTTP/1.1 200 Good\r\nContent-Length: 0\r\n\r\n");
	expect(w, &w->client, "Good");
	assert_false(peer_has(&w->client, "Poisoned"));
}

static void the_origins_end_between_requests_is_passed_on(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET /1 HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "GET /1");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	expect(w, &w->client, "200 OK");
	fd_close(&w->origins[0].fd);
	expect(w, &w->client, "<end>");
}

static void both_sides_are_held_back(void **state)
{
	struct world *w = *state;
	static char block[64 * 1024];
	size_t sent = 0, stalled = 0;

	memset(block, 'x', sizeof block);
	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
	/* The client does not read: what the origin can send is what the sockets and the two buffers take. */
	while (stalled < 50) {
		ssize_t n = send(w->origins[0].fd, block, sizeof block, MSG_NOSIGNAL | MSG_DONTWAIT);

		sent += n > 0 ? (size_t) n : 0;
		stalled = n > 0 ? 0 : stalled + 1;
		turn(w);
		assert_true(sent < 64 * 1024 * 1024);
	}
}

/* ---- Secrets. ---- */

static void the_secret_is_set_where_the_rule_says(void **state)
{
	struct world *w = *state;

	connect_client(w, "s.test", 80);
	says(
	    w, &w->client,
	    "GET /s/1 HTTP/1.1\r\nHost: s.test\r\nAuthorization: mine\r\nAUTHORIZATION: mine too\r\nConnection: Authorization\r\n"
	    "Accept-Encoding: gzip, br\r\nRange: bytes=0-4\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(&w->origins[0], "GET /s/1 HTTP/1.1\r\nHost: s.test\r\nAuthorization: Bearer "
				       "s3cr3t-T0ken/with+signs\r\nAccept-Encoding: identity\r\n\r\n");
	forget(&w->origins[0]);
	says(w, &w->origins[0],
	     "HTTP/1.1 302 Found\r\nLocation: http://b.test/?t=s3cr3t-T0ken%2Fwith%2Bsigns\r\nContent-Length: 0\r\n\r\n");
	expect(w, &w->client, "\r\n\r\n");
	assert_true(peer_has(&w->client, "Location: http://b.test/?t=[redacted]\r\n"));
	/* Not for another path of the same host. */
	says(w, &w->client, "GET /open HTTP/1.1\r\nHost: s.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(&w->origins[0], "GET /open HTTP/1.1\r\nHost: s.test\r\nAccept-Encoding: identity\r\n\r\n");
}

static void the_placeholder_is_replaced_in_headers(void **state)
{
	struct world *w = *state;

	connect_client(w, "p.test", 80);
	says(w, &w->client,
	     "GET /@TOKEN-TOKEN@ HTTP/1.1\r\nHost: p.test\r\nX-Key: a@TOKEN-TOKEN@b@TOKEN-TOKEN@\r\nX-Other: "
	     "@TOKEN-TOKEN\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(
	    &w->origins[0],
	    "GET /@TOKEN-TOKEN@ HTTP/1.1\r\nHost: p.test\r\nX-Key: as3cr3t-T0ken/with+signsbs3cr3t-T0ken/with+signs\r\n"
	    "X-Other: @TOKEN-TOKEN\r\nAccept-Encoding: identity\r\n\r\n");
}

static void an_echo_comes_back_redacted(void **state)
{
	struct world *w = *state;

	connect_client(w, "s.test", 80);
	says(w, &w->client, "GET /open HTTP/1.1\r\nHost: s.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	says(w, &w->origins[0],
	     "HTTP/1.1 200 s3cr3t-T0ken/with+signs\r\nX-s3cr3t: 1\r\nX-Echo: Bearer s3cr3t-T0ken/with+signs\r\nContent-Type: "
	     "application/json\r\n"
	     "Content-Length: 43\r\n\r\n{\"h\": \"s3cr3t-T0k");
	rest(w);
	says(w, &w->origins[0], "en\\/with+signs\", \"x\": \"y\"}");
	expect(w, &w->client, "0\r\n\r\n");
	assert_true(peer_has(&w->client, "200 [redacted]\r\n"));
	assert_true(peer_has(&w->client, "X-Echo: Bearer [redacted]\r\n"));
	assert_true(peer_has(&w->client, "{\"h\": \"[redacted]\", \"x\": \"y\"}"));
	assert_true(peer_has(&w->client, "Transfer-Encoding: chunked\r\n"));
	assert_false(peer_has(&w->client, "T0ken"));
}

static void a_replaced_secret_is_still_redacted(void **state)
{
	struct world *w = *state;

	connect_client(w, "s.test", 80);
	assert_int_equal(secrets_set(w->broker.secrets, "token", "another-value", 13), 0);
	says(w, &w->client, "GET /s/1 HTTP/1.1\r\nHost: s.test\r\n\r\n");
	expect(w, &w->origins[0], "Authorization: Bearer another-value\r\n");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 37\r\n\r\ns3cr3t-T0ken/with+signs another-value");
	expect(w, &w->client, "[redacted] [redacted]");
	/* Revoked: the request does not go out at all. */
	forget(&w->origins[0]);
	assert_int_equal(secrets_set(w->broker.secrets, "token", NULL, 0), 0);
	says(w, &w->client, "GET /s/2 HTTP/1.1\r\nHost: s.test\r\n\r\n");
	expect(w, &w->client, "403");
	assert_non_null(strstr(seen.refused, "revoked"));
	assert_exactly(&w->origins[0], "");
}

static void a_secret_cannot_break_the_head(void **state)
{
	struct world *w = *state;

	assert_int_equal(secrets_set(w->broker.secrets, "token", "a\r\nX: y", 7), 0);
	connect_client(w, "s.test", 80);
	says(w, &w->client, "GET /s/1 HTTP/1.1\r\nHost: s.test\r\n\r\n");
	expect(w, &w->client, "403");
	assert_int_equal(w->dials, 0);
}

static size_t gzipped(const char *text, char *packed, size_t room)
{
	z_stream z = {0};

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *) (uintptr_t) text;
	z.avail_in = (uInt) strlen(text);
	z.next_out = (Bytef *) packed;
	z.avail_out = (uInt) room;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	(void) deflateEnd(&z);
	return room - z.avail_out;
}

static void an_encoding_does_not_hide_an_echo(void **state)
{
	struct world *w = *state;
	char packed[300], head[200];
	size_t size = gzipped("Bearer s3cr3t-T0ken/with+signs!", packed, sizeof packed);

	connect_client(w, "s.test", 80);
	says(w, &w->client, "GET /s/1 HTTP/1.1\r\nHost: s.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	(void) snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n", size);
	says(w, &w->origins[0], head);
	say(w, &w->origins[0], packed, size);
	expect(w, &w->client, "Bearer [redacted]!");
	assert_false(peer_has(&w->client, "Content-Encoding"));
	expect(w, &w->client, "0\r\n\r\n");
	says(w, &w->client, "GET /s/1 HTTP/1.1\r\nHost: s.test\r\n\r\n");
	rest(w);
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc");
	expect(w, &w->client, "502 Bad Gateway");
}

/* ---- WebSocket. ---- */

static void a_websocket_passes_bytes_both_ways(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client,
	     "GET /v1/ws HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: "
	     "k\r\n\r\n");
	expect(w, &w->origins[0], "Sec-WebSocket-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
	says(w, &w->origins[0],
	     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
	     "a\r\n\r\nfirst");
	expect(w, &w->client, "Sec-WebSocket-Accept: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst");
	says(w, &w->client, "GET /v2 HTTP/1.1\r\n\r\n");
	expect(w, &w->origins[0], "GET /v2 HTTP/1.1\r\n\r\n");
	(void) shutdown(w->client.fd, SHUT_WR);
	expect(w, &w->origins[0], "<end>");
	says(w, &w->origins[0], "last");
	fd_close(&w->origins[0].fd);
	expect(w, &w->client, "last<end>");
	rest(w);
	assert_string_equal(seen.connections, "a.test:80 0 GET /v1/ws 101,; \n");
}

static void a_refused_upgrade_leaves_no_tunnel(void **state)
{
	struct world *w = *state;

	connect_client(w, "a.test", 80);
	says(w, &w->client,
	     "GET /v1/ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nDELETE /v1/x "
	     "HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.1 426 No\r\nContent-Length: 0\r\n\r\n");
	expect(w, &w->client, "403 Forbidden");
	assert_false(peer_has(&w->origins[0], "DELETE"));
}

/* ---- The explicit proxy. ---- */

static void connect_proxy(struct world *w)
{
	fd_close(&w->client.fd);
	rest(w);
	forget(&w->client);
	w->client.over = false;
	proxy_start(&w->broker, connected_pair(w));
}

static void connect_opens_a_tunnel_by_the_rule(void **state)
{
	struct world *w = *state;

	connect_proxy(w);
	says(w, &w->client, "CONNECT TCP.test:80 HT");
	rest(w);
	says(w, &w->client, "TP/1.1\r\nHost: tcp.test:80\r\n\r\nfirst bytes");
	expect(w, &w->client, "HTTP/1.1 200 ");
	expect(w, &w->origins[0], "first bytes");
	says(w, &w->origins[0], "answer");
	expect(w, &w->client, "\r\n\r\nanswer");
	assert_int_equal(w->broker.connections, 1);
}

static void connect_to_an_http_rule_is_judged_by_request(void **state)
{
	struct world *w = *state;

	connect_proxy(w);
	says(w, &w->client, "CONNECT a.test:80 HTTP/1.1\r\n\r\nGET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->origins[0], "GET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
	connect_proxy(w);
	says(w, &w->client, "CONNECT a.test:80 HTTP/1.1\r\n\r\nGET /v2 HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->client, "403 Forbidden");
}

static void connect_elsewhere_is_denied_in_one_line(void **state)
{
	static const struct {
		const char *sent, *status;
	} table[] = {
	    {"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "403"},
	    {"CONNECT tcp.test:81 HTTP/1.1\r\n\r\n", "403"},
	    {"CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n", "403"},
	    {"CONNECT [::1]:80 HTTP/1.1\r\n\r\n", "403"},
	    {"CONNECT tcp.test:80 HTTP/1.1\r\nHost: evil.test:80\r\n\r\n", "421"},
	    {"CONNECT evil.test:80 HTTP/1.1\r\nHost: tcp.test:80\r\n\r\n", "421"},
	    {"CONNECT tcp.test%00.evil.test:80 HTTP/1.1\r\n\r\n", "400"},
	    {"CONNECT tcp.test@evil.test:80 HTTP/1.1\r\n\r\n", "400"},
	    {"CONNECT 0x7f.1:80 HTTP/1.1\r\n\r\n", "400"},
	    {"CONNECT 2130706433:80 HTTP/1.1\r\n\r\n", "400"},
	    {"CONNECT tcp.test HTTP/1.1\r\n\r\n", "400"},
	    {"CONNECT tcp.test:80 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "400"},
	    {"CONNECT tcp.test:80 HTTP/1.1\nHost: x\n\n", "400"},
	    {"CONNECT http://tcp.test:80 HTTP/1.1\r\n\r\n", "400"},
	    {"GET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "400"},
	    {"GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "400"},
	    {"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"},
	    {"GET http://a.test/v1/x HTTP/1.1\r\nHost: evil.test\r\n\r\n", "421"},
	    {"GET http://a.test:81/v1/x HTTP/1.1\r\nHost: a.test:81\r\n\r\n", "403"},
	    {"GET http://tls.test:443/ HTTP/1.1\r\nHost: tls.test:443\r\n\r\n", "403"},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		size_t before = seen.refusals;

		connect_proxy(w);
		says(w, &w->client, table[i].sent);
		expect(w, &w->client, "\r\n\r\nzwinger: ");
		assert_int_equal(seen.refusals, before + 1);
		if (strncmp(w->client.text + 9, table[i].status, 3) != 0)
			fail_msg("%s\nwas answered %s", table[i].sent, w->client.text);
	}
	assert_int_equal(w->dials, 0);
	connect_proxy(w);
	says(w, &w->client, "CONNECT tcp.test:81 HTTP/1.1\r\n\r\n");
	expect(w, &w->client, "<end>");
	assert_non_null(strstr(w->client.text, "tcp.test:81 is not in network.allow; the nearest rule is network.allow[6]"));
}

static void a_proxied_connection_changes_its_target(void **state)
{
	struct world *w = *state;

	connect_proxy(w);
	says(w, &w->client, "GET http://a.test/v1/x HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	assert_exactly(&w->origins[0], "GET /v1/x HTTP/1.1\r\nHost: a.test\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
	expect(w, &w->client, "\r\n\r\n1");
	says(w, &w->client, "GET http://a.test/v1/y HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->origins[0], "/v1/y");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
	expect(w, &w->client, "\r\n\r\n2");
	says(w, &w->client, "GET http://tcp.test/any HTTP/1.1\r\nHost: tcp.test\r\n\r\n");
	expect(w, &w->origins[1], "\r\n\r\n");
	assert_exactly(&w->origins[1], "GET /any HTTP/1.1\r\nHost: tcp.test\r\n\r\n");
	says(w, &w->origins[1], "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3");
	expect(w, &w->client, "\r\n\r\n3");
	expect(w, &w->origins[0], "<end>");
	forget(&w->client);
	says(w, &w->client,
	     "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\nGET http://a.test/v2 HTTP/1.1\r\nHost: a.test\r\n\r\n");
	expect(w, &w->client, "evil.test:80 is not in network.allow");
	expect(w, &w->client, "GET a.test/v2 is not allowed");
	assert_int_equal(w->dials, 2);
	fd_close(&w->client.fd);
	rest(w);
	assert_non_null(strstr(seen.connections, "a.test:80 0 GET /v1/x 200, GET /v1/y 200,; \n"));
	assert_non_null(strstr(seen.connections, "tcp.test:80 6 GET /any 200,; \n"));
	assert_int_equal(w->broker.connections, 0);
}

static void leave(struct world *w, const char *name)
{
	json_t *entries = json_pack("[s]", name);

	assert_int_equal(narrow_set(&w->broker, entries), 0);
	json_decref(entries);
}

/* While an answer comes, between requests, while it is dialled, and the next request of a proxied connection. */
static void what_is_no_longer_allowed_is_cut(void **state)
{
	struct world *w = *state;

	connect_client(w, "b.test", 8080);
	says(w, &w->client, "GET / HTTP/1.1\r\nHost: b.test:8080\r\n\r\n");
	expect(w, &w->origins[0], "\r\n\r\n");
	says(w, &w->origins[0], "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
	expect(w, &w->client, "half");
	leave(w, "b.test");
	assert_false(LIST_EMPTY(&w->broker.flows));
	leave(w, "a.test");
	assert_true(LIST_EMPTY(&w->broker.flows));
	expect(w, &w->client, "<reset>");
	expect(w, &w->origins[0], "<reset>");
	assert_non_null(strstr(seen.connections, "GET / 200,; the rules were changed, and no longer allow it\n"));
	reconnect_client(w, "a.test", 80);
	leave(w, "b.test");
	expect(w, &w->client, "<reset>");
	reconnect_client(w, "b.test", 8080);
	(void) send(w->client.fd, "GET / HTTP/1.1\r\nHost: b.test:8080\r\n\r\n", 38, MSG_NOSIGNAL);
	(void) event_base_loop(w->base, EVLOOP_NONBLOCK | EVLOOP_ONCE); /* asks for a connection */
	leave(w, "a.test");
	expect(w, &w->client, "<reset>");
	fd_close(&w->client.fd);
	w->client.over = false;
	forget(&w->client);
	http_start_proxied(&w->broker, connected_pair(w));
	says(w, &w->client, "GET http://b.test:8080/ HTTP/1.1\r\nHost: b.test:8080\r\n\r\n");
	expect(w, &w->client, "b.test is not among what is left of network.allow since the rules were changed");
	assert_int_equal(narrow_set(&w->broker, json_null()), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(an_allowed_request_is_passed_in_our_words),
	    CASE(a_kept_connection_is_used_again),
	    CASE(heads_may_come_in_pieces),
	    CASE(pipelined_requests_are_answered_in_order_and_judged_each),
	    CASE(a_denied_request_says_what_why_and_how),
	    CASE(the_body_of_a_denied_request_is_no_request),
	    CASE(nothing_is_smuggled),
	    CASE(a_body_is_passed_up_to_its_maximum),
	    CASE(a_broken_chunk_ends_the_request),
	    CASE(expectation_is_passed_and_fulfilled),
	    CASE(an_early_answer_closes_behind_it),
	    CASE(limits_are_answered),
	    CASE(a_passed_limit_of_bytes_resets),
	    CASE(a_body_that_ends_with_the_connection_arrives_whole),
	    CASE(a_body_that_was_cut_off_is_not_passed_as_whole),
	    CASE(a_connection_that_cannot_be_made_is_a_reset),
	    CASE(responses_without_body_are_known),
	    CASE(an_origin_that_speaks_unasked_is_left),
	    CASE(the_origins_end_between_requests_is_passed_on),
	    CASE(both_sides_are_held_back),
	    CASE(the_secret_is_set_where_the_rule_says),
	    CASE(the_placeholder_is_replaced_in_headers),
	    CASE(an_echo_comes_back_redacted),
	    CASE(a_replaced_secret_is_still_redacted),
	    CASE(a_secret_cannot_break_the_head),
	    CASE(an_encoding_does_not_hide_an_echo),
	    CASE(a_websocket_passes_bytes_both_ways),
	    CASE(a_refused_upgrade_leaves_no_tunnel),
	    CASE(connect_opens_a_tunnel_by_the_rule),
	    CASE(connect_to_an_http_rule_is_judged_by_request),
	    CASE(connect_elsewhere_is_denied_in_one_line),
	    CASE(a_proxied_connection_changes_its_target),
	    CASE(what_is_no_longer_allowed_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
