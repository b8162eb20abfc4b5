/* An authoritative name server of a few lines, on the loop of the test that asks it: what it says is a table, and may be as
 * hostile as a server can be. */
#pragma once

#include "egress-fixture.h"

enum { ZONE_A = 1, ZONE_CNAME = 5, ZONE_AAAA = 28, ZONE_ENTRIES = 48, ZONE_RECORDS = 8 };

struct zone_record {
	const char *owner; /* NULL: the name that was asked for */
	uint16_t type;
	uint32_t ttl;
	const char *data;
};

/* The answer to one name and type. Later entries for the same wait until the earlier have answered `uses` times (0: for ever). */
struct zone_entry {
	const char *name;
	uint16_t type;
	unsigned uses;
	unsigned rcode;
	bool silent, truncated /* over UDP */;
	unsigned delay_msec;
	struct zone_record records[ZONE_RECORDS];
};

struct zone {
	struct event_base *base;
	const struct zone_entry *entries;
	unsigned used[ZONE_ENTRIES];
	unsigned asked_udp, asked_tcp; /* in all */
	char last[256];                /* name of the last question */
	int udp, tcp;
	uint16_t port;
	struct event *udp_event, *tcp_event;
};

struct zone_question {
	char name[256];
	uint16_t type;
	size_t size; /* of header and question */
};

struct zone_late {
	struct zone *zone;
	struct sockaddr_storage to;
	socklen_t to_size;
	size_t size;
	unsigned char answer[2048];
};

static bool zone_read(const unsigned char *m, size_t size, struct zone_question *q)
{
	size_t at = 12, n = 0;

	if (size < 17)
		return false;
	while (at < size && m[at] != 0) {
		if (n > 0)
			q->name[n++] = '.';
		for (size_t label = m[at++]; label > 0 && at < size && n < sizeof q->name - 2; label--)
			q->name[n++] = (char) m[at++];
	}
	q->name[n] = '\0';
	if (at + 5 > size)
		return false;
	q->type = (uint16_t) (m[at + 1] << 8 | m[at + 2]);
	q->size = at + 5;
	return true;
}

static void zone_put16(unsigned char **at, unsigned v)
{
	*(*at)++ = (unsigned char) (v >> 8);
	*(*at)++ = (unsigned char) v;
}

static void zone_put_name(unsigned char **at, const char *name)
{
	while (*name != '\0') {
		size_t label = strcspn(name, ".");

		*(*at)++ = (unsigned char) label;
		memcpy(*at, name, label);
		*at += label;
		name += label + (name[label] == '.');
	}
	*(*at)++ = 0;
}

static void zone_put_record(unsigned char **at, const struct zone_record *r)
{
	unsigned char *length;

	if (r->owner != NULL)
		zone_put_name(at, r->owner);
	else
		zone_put16(at, 0xc00c);
	zone_put16(at, r->type);
	zone_put16(at, 1);
	zone_put16(at, r->ttl >> 16);
	zone_put16(at, r->ttl & 0xffff);
	length = *at;
	*at += 2;
	if (r->type == ZONE_CNAME) {
		zone_put_name(at, r->data);
	} else {
		assert_int_equal(inet_pton(r->type == ZONE_A ? AF_INET : AF_INET6, r->data, *at), 1);
		*at += r->type == ZONE_A ? 4 : 16;
	}
	zone_put16(&length, (unsigned) (*at - length - 2));
}

static const struct zone_entry *zone_find(struct zone *z, const struct zone_question *q)
{
	for (size_t i = 0; z->entries[i].name != NULL; i++) {
		const struct zone_entry *e = &z->entries[i];

		if (strcmp(e->name, q->name) != 0 || e->type != q->type || (e->uses != 0 && z->used[i] >= e->uses))
			continue;
		z->used[i]++;
		return e;
	}
	return NULL;
}

/* NULL in *ret_entry: the name is not in the table. */
static size_t zone_answer(struct zone *z, const unsigned char *m, size_t size, bool tcp, unsigned char *answer,
			  const struct zone_entry **ret_entry)
{
	static const struct zone_entry unknown = {.rcode = 3};
	const struct zone_entry *e;
	struct zone_question q;
	unsigned char *at = answer;
	unsigned count = 0;

	if (!zone_read(m, size, &q))
		return 0;
	(void) snprintf(z->last, sizeof z->last, "%s", q.name);
	e = zone_find(z, &q);
	*ret_entry = e != NULL ? e : &unknown;
	e = *ret_entry;
	while (count < ZONE_RECORDS && e->records[count].type != 0)
		count++;
	if (e->truncated && !tcp)
		count = 0;
	memcpy(at, m, 2);
	at += 2;
	zone_put16(&at, 0x8180 | e->rcode | (e->truncated && !tcp ? 0x0200 : 0));
	zone_put16(&at, 1);
	zone_put16(&at, count);
	zone_put16(&at, 0);
	zone_put16(&at, 0);
	memcpy(at, m + 12, q.size - 12);
	at += q.size - 12;
	for (unsigned i = 0; i < count; i++)
		zone_put_record(&at, &e->records[i]);
	return (size_t) (at - answer);
}

static void zone_send_late(evutil_socket_t fd, short what, void *ctx)
{
	struct zone_late *l = ctx;

	(void) fd;
	(void) what;
	(void) sendto(l->zone->udp, l->answer, l->size, 0, (struct sockaddr *) &l->to, l->to_size);
	free(l);
}

static void zone_udp_ready(evutil_socket_t fd, short what, void *ctx)
{
	struct zone *z = ctx;
	struct zone_late *l = xcalloc(1, sizeof *l);
	const struct zone_entry *e = NULL;
	unsigned char m[1024];
	ssize_t n;

	(void) what;
	l->zone = z;
	l->to_size = sizeof l->to;
	n = recvfrom(fd, m, sizeof m, 0, (struct sockaddr *) &l->to, &l->to_size);
	if (n > 0) {
		z->asked_udp++;
		l->size = zone_answer(z, m, (size_t) n, false, l->answer, &e);
	}
	if (e == NULL || e->silent) {
		free(l);
	} else {
		const struct timeval delay = {.tv_sec = e->delay_msec / 1000,
					      .tv_usec = (suseconds_t) (e->delay_msec % 1000) * 1000};

		if (event_base_once(z->base, -1, EV_TIMEOUT, zone_send_late, l, &delay) < 0)
			abort();
	}
}

/* One question a connection; the question comes in one segment over loopback. */
static void zone_tcp_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct zone *z = ctx;
	const struct zone_entry *e = NULL;
	unsigned char m[1024], answer[2 + 2048];
	ssize_t n = recv(fd, m, sizeof m, 0);

	(void) what;
	if (n > 2) {
		size_t size = zone_answer(z, m + 2, (size_t) n - 2, true, answer + 2, &e);

		z->asked_tcp++;
		answer[0] = (unsigned char) (size >> 8);
		answer[1] = (unsigned char) size;
		assert_int_equal(send(fd, answer, size + 2, MSG_NOSIGNAL), size + 2);
	}
	close(fd);
}

static void zone_tcp_ready(evutil_socket_t fd, short what, void *ctx)
{
	struct zone *z = ctx;
	int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void) what;
	if (client >= 0 && event_base_once(z->base, client, EV_READ, zone_tcp_readable, z, NULL) < 0)
		abort();
}

static UNUSED void zone_start(struct zone *z, struct event_base *base, const struct zone_entry *entries)
{
	*z = (struct zone){.base = base, .entries = entries, .udp = -EBADF, .tcp = -EBADF};
	for (unsigned tries = 0; z->udp < 0 && tries < 16; tries++) { /* one number that is free for both */
		fd_close(&z->tcp);
		z->tcp = serve_at("127.0.0.1", 0, SOCK_STREAM);
		z->port = port_of(z->tcp);
		z->udp = try_serve_at("127.0.0.1", z->port, SOCK_DGRAM);
	}
	assert_true(z->udp >= 0);
	z->udp_event = event_new(base, z->udp, EV_READ | EV_PERSIST, zone_udp_ready, z);
	z->tcp_event = event_new(base, z->tcp, EV_READ | EV_PERSIST, zone_tcp_ready, z);
	event_add(z->udp_event, NULL);
	event_add(z->tcp_event, NULL);
}

static UNUSED void zone_stop(struct zone *z)
{
	event_free(z->udp_event);
	event_free(z->tcp_event);
	fd_close(&z->udp);
	fd_close(&z->tcp);
}
