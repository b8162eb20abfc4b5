#include "egress/stub.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "egress/control.h"
#include "egress/names.h"
#include "egress/narrow.h"
#include "egress/query.h"

enum {
	ANSWER_TTL = 60,
	UDP_BATCH = 32, /* datagrams of one wake-up */
	TCP_MAX = 64,
	TCP_IDLE_SECONDS = 10,
	TCP_UNSENT_MAX = 64 * 1024, /* a client that asks on without reading is cut off */
	DENIED_MAX = 64,
};

/* Look-ups of one name for several types that come within this time are one. */
static const usec_t denied_together = 2 * USEC_PER_SEC;

/* A name that was denied of late, and how often it was asked for by type: the largest of them is the number of look-ups. */
struct denied {
	char *name; /* owned; NULL: free */
	usec_t since;
	uint32_t a, aaaa, others, counted;
};

struct client {
	LIST_ENTRY(client) link;
	struct stub *stub;
	struct bufferevent *bev;
	bool ended; /* the client sends nothing more; what waits is still sent */
};

struct stub {
	struct broker *broker;
	struct denied denied[DENIED_MAX];
	size_t denied_next; /* the oldest: where the next one goes */
	LIST_HEAD(, client) clients;
	size_t client_count;
};

static struct stub *stub_of(struct broker *b)
{
	if (b->stub == NULL)
		b->stub = stub_new(b);
	return b->stub;
}

struct stub *stub_new(struct broker *b)
{
	struct stub *s = xcalloc(1, sizeof *s);

	s->broker = b;
	LIST_INIT(&s->clients);
	return s;
}

/* ---- Denials. ---- */

static struct denied *find_denied(struct stub *s, const char *name, usec_t now)
{
	struct denied *d;

	for (size_t i = 0; i < DENIED_MAX; i++) {
		d = &s->denied[i];
		if (d->name != NULL && now - d->since <= denied_together && strcmp(d->name, name) == 0)
			return d;
	}
	d = &s->denied[s->denied_next];
	s->denied_next = (s->denied_next + 1) % DENIED_MAX;
	free(d->name);
	*d = (struct denied){.name = xstrdup(name), .since = now};
	return d;
}

/* Resolvers vary the case of letters to tell answers from forgeries: that makes no other name. */
static const char *recorded_name(const struct query *q)
{
	return q->canonical[0] != '\0' ? q->canonical : q->text;
}

/* A resolver asks for A and AAAA, and some for HTTPS, of the one name that a program wants: that is one look-up. */
static bool is_new_lookup(struct stub *s, const struct query *q)
{
	struct denied *d = find_denied(s, recorded_name(q), now_monotonic());
	uint32_t *count = q->type == QUERY_A ? &d->a : q->type == QUERY_AAAA ? &d->aaaa : &d->others;

	if (++*count <= d->counted)
		return false;
	d->counted = *count;
	return true;
}

static void deny(struct broker *b, const struct query *q, const char *why)
{
	struct refusal r = {.kind = "dns", .host = recorded_name(q), .rule = -1, .why = why};

	if (!is_new_lookup(stub_of(b), q))
		return;
	if (q->canonical[0] != '\0')
		r.rule = network_nearest_rule(b->network, q->canonical, 0);
	control_refusal(b->control, &r);
}

/* ---- What to answer. ---- */

static bool is_localhost(const char *name)
{
	size_t size = strlen(name), tail = sizeof "localhost" - 1;

	return size >= tail && strcmp(name + size - tail, "localhost") == 0 && (size == tail || name[size - tail - 1] == '.');
}

static void set_v4(struct query_answer *a, uint32_t address)
{
	a->type = QUERY_A;
	for (unsigned i = 0; i < 4; i++)
		a->address[i] = (unsigned char) (address >> (24 - 8 * i));
}

static void answer_known(struct broker *b, const struct query *q, struct query_answer *a)
{
	bool new = false;
	uint32_t address;

	if (q->type != QUERY_A && q->type != QUERY_ANY)
		return;
	address = names_address(b->names, q->canonical, &new);
	if (address == 0) {
		a->code = QUERY_NXDOMAIN;
		deny(b, q, "the run has asked for too many names below wildcards");
		return;
	}
	if (new)
		control_name(b->control, q->canonical, address);
	set_v4(a, address);
}

static void answer_localhost(const struct query *q, struct query_answer *a)
{
	if (q->type == QUERY_A || q->type == QUERY_ANY) {
		set_v4(a, INADDR_LOOPBACK);
	} else if (q->type == QUERY_AAAA) {
		a->type = QUERY_AAAA;
		memcpy(a->address, &in6addr_loopback, sizeof a->address);
	}
}

static bool knows_name(const struct broker *b, const char *name)
{
	return network_knows_name(b->network, name) && narrow_leaves_name(b, name);
}

static const char *why_not(const struct broker *b, const struct query *q)
{
	if (q->canonical[0] == '\0')
		return "that is no host name";
	return network_knows_name(b->network, q->canonical)
		   ? "the name is not among what is left of network.allow since the rules were changed"
		   : "the name is not in network.allow";
}

static void answer_reverse(struct broker *b, const struct query *q, const char *name, struct query_answer *a)
{
	/* The rules may cover less than when the name was given out. */
	if (name == NULL || !knows_name(b, name)) {
		a->code = QUERY_NXDOMAIN;
		return;
	}
	if (q->type != QUERY_PTR && q->type != QUERY_ANY)
		return;
	a->type = QUERY_PTR;
	a->name = name;
}

static void look_up(struct broker *b, const struct query *q, struct query_answer *a)
{
	uint32_t address = 0;
	bool reverse = false;

	if (q->canonical[0] != '\0' && knows_name(b, q->canonical)) {
		answer_known(b, q, a);
	} else if (is_localhost(q->canonical)) {
		answer_localhost(q, a);
	} else if (query_reverse(q->canonical, &address, &reverse) || reverse) {
		answer_reverse(b, q, address != 0 ? names_lookup(b->names, address) : NULL, a);
	} else {
		a->code = QUERY_NXDOMAIN;
		deny(b, q, why_not(b, q));
	}
}

size_t stub_answer(struct broker *b, const void *message, size_t size, unsigned char *ret)
{
	struct query_answer a = {.ttl = ANSWER_TTL};
	struct query q;
	int code = query_parse(message, size, &q);

	if (code < 0)
		return 0;
	a.code = (enum query_code) code;
	if (code == QUERY_NOERROR)
		look_up(b, &q, &a);
	return query_answer(&q, &a, ret);
}

/* ---- Datagrams. ---- */

void stub_udp_ready(struct broker *b, int fd)
{
	unsigned char message[QUERY_SIZE_MAX + 1], answer[QUERY_ANSWER_SIZE];

	for (unsigned i = 0; i < UDP_BATCH; i++) {
		struct sockaddr_storage from;
		socklen_t from_size = sizeof from;
		ssize_t n = recvfrom(fd, message, sizeof message, MSG_DONTWAIT, (struct sockaddr *) &from, &from_size);
		size_t size;

		if (n < 0)
			return; /* nothing more; or an error of an earlier answer, which this call has taken */
		size = stub_answer(b, message, (size_t) n, answer);
		/* A client whose buffer is full or that is gone asks again: that is how DNS over UDP is used. */
		if (size > 0)
			(void) sendto(fd, answer, size, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *) &from, from_size);
	}
}

/* ---- Streams: each message has its length in two bytes before it. ---- */

static void client_free(struct client *c)
{
	LIST_REMOVE(c, link);
	c->stub->client_count--;
	connections_count(c->stub->broker, -1);
	bufferevent_free(c->bev);
	free(c);
}

/* Answers the next whole message of `in`. 1: there was one; 0: not yet; -1: the client is to be cut off. */
static int answer_next(struct client *c, struct evbuffer *in, struct evbuffer *out)
{
	unsigned char message[2 + QUERY_SIZE_MAX], answer[2 + QUERY_ANSWER_SIZE];
	size_t size;

	if (evbuffer_copyout(in, message, 2) < 2)
		return 0;
	size = (size_t) message[0] << 8 | message[1];
	if (size > QUERY_SIZE_MAX)
		return -1;
	if (evbuffer_get_length(in) < 2 + size)
		return 0;
	if (evbuffer_remove(in, message, 2 + size) != (int) (2 + size))
		return -1;
	size = stub_answer(c->stub->broker, message + 2, size, answer + 2);
	if (size == 0)
		return -1;
	answer[0] = (unsigned char) (size >> 8);
	answer[1] = (unsigned char) size;
	return evbuffer_add(out, answer, 2 + size) == 0 && evbuffer_get_length(out) <= TCP_UNSENT_MAX ? 1 : -1;
}

static void client_readable(struct bufferevent *bev, void *ctx)
{
	struct evbuffer *in = bufferevent_get_input(bev), *out = bufferevent_get_output(bev);
	int r;

	do
		r = answer_next(ctx, in, out);
	while (r > 0);
	if (r < 0)
		client_free(ctx);
}

static void client_drained(struct bufferevent *bev, void *ctx)
{
	struct client *c = ctx;

	(void) bev;
	if (c->ended)
		client_free(c);
}

static void client_event(struct bufferevent *bev, short what, void *ctx)
{
	struct client *c = ctx;

	if ((what & BEV_EVENT_EOF) != 0 && evbuffer_get_length(bufferevent_get_output(bev)) > 0)
		c->ended = true;
	else
		client_free(c);
}

void stub_tcp_start(struct broker *b, int fd)
{
	struct stub *s = stub_of(b);
	const struct timeval idle = {.tv_sec = TCP_IDLE_SECONDS};
	struct bufferevent *bev = NULL;
	struct client *c;

	if (s->client_count < TCP_MAX)
		bev = bufferevent_socket_new(b->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (bev == NULL) {
		reset_close(fd);
		return;
	}
	c = xcalloc(1, sizeof *c);
	*c = (struct client){.stub = s, .bev = bev};
	LIST_INSERT_HEAD(&s->clients, c, link);
	s->client_count++;
	connections_count(b, 1);
	bufferevent_setcb(bev, client_readable, client_drained, client_event, c);
	bufferevent_set_timeouts(bev, &idle, &idle);
	bufferevent_setwatermark(bev, EV_READ, 0, 2 + QUERY_SIZE_MAX);
	(void) bufferevent_enable(bev, EV_READ | EV_WRITE);
}

void stub_free(struct stub *s)
{
	if (s == NULL)
		return;
	while (!LIST_EMPTY(&s->clients))
		client_free(LIST_FIRST(&s->clients));
	for (size_t i = 0; i < DENIED_MAX; i++)
		free(s->denied[i].name);
	free(s);
}
