/* A whole session with a client and an origin that say anything in any order. The input is a row of records: one byte that says
 * who speaks (lowest bit) and how much (the rest), then the bytes; in what the origin says, the byte 1 stands for the secret of
 * the rule, and when it says nothing, the rules are changed and cut the session. The secret must never reach the client, the
 * session must end when both are gone, and nothing may stay behind. */
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/control.h"
#include "egress/dial.h"
#include "egress/narrow.h"
#include "egress/quota.h"
#include "egress/secrets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char SECRET[] = "hunter2-hunter2";

struct world {
	struct broker broker;
	int client, origin;
	char heard[64 * 1024]; /* what the client received last */
	size_t size;
};

struct dial {
	struct event *later;
	void (*done)(void *ctx, int fd);
	void *ctx;
	struct world *world;
};

static void dial_later(evutil_socket_t unused, short what, void *ctx)
{
	struct dial d = *(struct dial *) ctx;
	int fds[2] = {-1, -1};

	(void) unused, (void) what;
	event_free(d.later);
	free(ctx);
	fd_close(&d.world->origin);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0)
		d.world->origin = fds[0];
	d.done(d.ctx, fds[1]);
}

struct dial *dial_start(struct flow *f, bool udp, void (*done)(void *ctx, int fd), void *ctx)
{
	struct dial *d = xcalloc(1, sizeof *d);
	const struct timeval now = {0};

	(void) udp;
	*d = (struct dial){.done = done, .ctx = ctx, .world = (struct world *) f->broker};
	d->later = evtimer_new(f->broker->base, dial_later, d);
	(void) evtimer_add(d->later, &now);
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
	if (r->host == NULL || r->host[0] == '\0' || r->why == NULL)
		abort();
}

void control_connection(struct control *c, const struct flow *f)
{
	(void) c;
	if (strstr(f->error, SECRET) != NULL)
		abort();
}

void control_flow_gone(struct control *c)
{
	(void) c;
}

void control_limit(struct control *c, const char *which, bool kill_it)
{
	(void) c, (void) which, (void) kill_it;
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

/* Keeps the newest half of the room, so that a secret over the border would be seen. */
static void hear(struct world *w)
{
	size_t half = sizeof w->heard / 2;
	ssize_t n;

	for (;;) {
		if (w->size > half) {
			memmove(w->heard, w->heard + w->size - half, half);
			w->size = half;
		}
		n = w->client >= 0 ? recv(w->client, w->heard + w->size, half, MSG_DONTWAIT) : -1;
		if (n <= 0)
			return;
		w->size += (size_t) n;
		if (memmem(w->heard, w->size, SECRET, strlen(SECRET)) != NULL)
			abort();
	}
}

/* A client that says the value itself may hear it in a refusal: that tells it nothing. */
static bool client_says_it(const uint8_t *data, size_t size)
{
	char said[32768];
	size_t length = 0;

	for (size_t at = 0; at < size;) {
		size_t n = data[at] >> 1;
		bool origin = (data[at] & 1) != 0;

		at++;
		if (n > size - at)
			n = size - at;
		if (!origin) {
			memcpy(said + length, data + at, n);
			length += n;
		}
		at += n;
	}
	return memmem(said, length, SECRET, strlen(SECRET)) != NULL;
}

static void turn(struct world *w)
{
	char unread[4096];

	(void) event_base_loop(w->broker.base, EVLOOP_NONBLOCK);
	hear(w);
	while (w->origin >= 0 && recv(w->origin, unread, sizeof unread, MSG_DONTWAIT) > 0)
		continue;
}

static void speak(struct world *w, bool origin, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		bool secret = origin && data[i] == 1;

		(void) send(origin ? w->origin : w->client, secret ? (const void *) SECRET : data + i,
			    secret ? strlen(SECRET) : 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

static void add_rule(struct network *n)
{
	char host[] = "a.test", post[] = "POST", head[] = "HEAD", name[] = "token", header[] = "Authorization",
	     format[] = "Bearer {}";
	char *methods[] = {post, head}; /* no GET: a tunnel would not be searched */
	struct port_range ports = {.first = 80, .last = 80};
	struct policy_rule rule = {
	    .host = host,
	    .ports = &ports,
	    .port_count = 1,
	    .protocol = NET_HTTP,
	    .methods = {.items = methods, .count = 2},
	    .has_methods = true,
	    .request_max = 100,
	    .secret = {.name = name, .header = header, .format = format},
	};

	if (network_add_rule(n, &rule, "rule", NULL) < 0)
		abort();
}

/* What comes when the rules are changed meanwhile. */
static void cut(struct world *w)
{
	json_t *nothing = json_array();

	if (narrow_set(&w->broker, nothing) < 0 || !LIST_EMPTY(&w->broker.flows))
		abort();
	json_decref(nothing);
}

static void run(struct world *w, const uint8_t *data, size_t size)
{
	struct target t = {.name = "a.test", .port = 80};
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		abort();
	w->client = fds[0];
	http_start(flow_open(&w->broker, &t, false), fds[1]);
	for (size_t at = 0; at < size;) {
		size_t n = data[at] >> 1;
		bool origin = (data[at] & 1) != 0;

		at++;
		if (n > size - at)
			n = size - at;
		speak(w, origin, data + at, n);
		at += n;
		if (n == 0 && origin)
			cut(w);
		turn(w);
	}
	fd_close(&w->origin);
	turn(w);
	fd_close(&w->client);
	for (int i = 0; i < 20 && !LIST_EMPTY(&w->broker.flows); i++)
		turn(w);
	fd_close(&w->origin);
	for (int i = 0; i < 20 && !LIST_EMPTY(&w->broker.flows); i++)
		turn(w);
	if (!LIST_EMPTY(&w->broker.flows) || w->broker.connections != 0)
		abort();
	turn(w); /* what libevent frees later */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct network n = {.limits = {ZW_UNLIMITED, ZW_UNLIMITED, ZW_UNLIMITED, ZW_UNLIMITED, ZW_UNLIMITED, 0}};
	struct world *w;

	if (size < 2 || size > 32768 || client_says_it(data, size))
		return 0;
	(void) signal(SIGPIPE, SIG_IGN);
	w = xcalloc(1, sizeof *w);
	w->client = w->origin = -EBADF;
	add_rule(&n);
	w->broker = (struct broker){.base = event_base_new(), .network = &n, .secrets = secrets_new()};
	w->broker.quota = quota_new(&w->broker);
	if (secrets_set(w->broker.secrets, "token", SECRET, strlen(SECRET)) < 0)
		abort();
	run(w, data, size);
	(void) narrow_set(&w->broker, json_null());
	quota_free(w->broker.quota);
	secrets_free(w->broker.secrets);
	event_base_free(w->broker.base);
	network_done(&n);
	free(w);
	return 0;
}
