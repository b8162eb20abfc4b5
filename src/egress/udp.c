#include "egress/udp.h"

#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/dial.h"
#include "egress/names.h"
#include "egress/quota.h"

enum {
	DATAGRAM_MAX = 65536,
	AT_ONCE = 64,                 /* datagrams that one turn of the loop takes from one socket */
	QUEUE_COUNT_MAX = 8,          /* that wait for one flow's socket */
	QUEUE_BYTES_MAX = 1024 * 1024 /* and for all of them together */
};

struct queued {
	STAILQ_ENTRY(queued) link;
	size_t size;
	unsigned char data[];
};

/* Who sent from where, and to what. */
struct key {
	int listener;
	struct net_address from, to;
	uint16_t from_port, to_port;
};

struct dgram_flow {
	struct datagrams *all;
	struct key key;
	struct flow *flow;
	int fd; /* connected, -EBADF while dialling */
	struct dial *dial;
	struct event *readable;
	STAILQ_HEAD(, queued) queue;
	size_t queue_count;
	usec_t used;
	TAILQ_ENTRY(dgram_flow) link;
};

struct datagrams {
	struct broker *broker;
	TAILQ_HEAD(flow_list, dgram_flow) flows; /* the one used longest ago comes first */
	size_t count;
	size_t queued; /* bytes */
	struct event *idle;
	unsigned char buf[DATAGRAM_MAX];
};

static void flow_end(struct dgram_flow *d);

static void arm_idle(struct datagrams *all)
{
	struct dgram_flow *oldest = TAILQ_FIRST(&all->flows);
	usec_t now = now_monotonic(), due = oldest != NULL ? oldest->used + DATAGRAM_IDLE_USEC : 0;
	usec_t wait = due > now ? due - now : 0;
	struct timeval tv = {.tv_sec = (time_t) (wait / USEC_PER_SEC), .tv_usec = (suseconds_t) (wait % USEC_PER_SEC)};

	if (oldest != NULL && !evtimer_pending(all->idle, NULL))
		(void) evtimer_add(all->idle, &tv);
}

static void idle(evutil_socket_t fd, short what, void *ctx)
{
	struct datagrams *all = ctx;
	usec_t now = now_monotonic();
	struct dgram_flow *d;

	(void) fd, (void) what;
	for (;;) {
		d = TAILQ_FIRST(&all->flows);
		if (d == NULL || d->used + DATAGRAM_IDLE_USEC > now)
			break;
		flow_end(d);
	}
	arm_idle(all);
}

struct datagrams *datagrams_new(struct broker *b)
{
	struct datagrams *all = xcalloc(1, sizeof *all);

	all->broker = b;
	TAILQ_INIT(&all->flows);
	all->idle = evtimer_new(b->base, idle, all);
	return all;
}

void datagrams_free(struct datagrams *all)
{
	if (all == NULL)
		return;
	while (!TAILQ_EMPTY(&all->flows))
		flow_end(TAILQ_FIRST(&all->flows));
	event_free(all->idle);
	free(all);
}

int datagrams_prepare(int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t size = sizeof sa;
	const int on = 1;
	int r;

	if (getsockname(fd, (struct sockaddr *) &sa, &size) < 0)
		return -errno;
	r = sa.ss_family == AF_INET6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on)
				     : setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
	return r < 0 ? -errno : 0;
}

static void drop_first(struct dgram_flow *d)
{
	struct queued *q = STAILQ_FIRST(&d->queue);

	STAILQ_REMOVE_HEAD(&d->queue, link);
	d->queue_count--;
	d->all->queued -= q->size;
	free(q);
}

static void flow_end(struct dgram_flow *d)
{
	while (!STAILQ_EMPTY(&d->queue))
		drop_first(d);
	if (d->dial != NULL)
		dial_cancel(d->dial);
	if (d->readable != NULL)
		event_free(d->readable);
	fd_close(&d->fd);
	TAILQ_REMOVE(&d->all->flows, d, link);
	d->all->count--;
	flow_close(d->flow);
	free(d);
}

static void touch(struct dgram_flow *d)
{
	d->used = now_monotonic();
	TAILQ_REMOVE(&d->all->flows, d, link);
	TAILQ_INSERT_TAIL(&d->all->flows, d, link);
}

/* As a policer: what comes faster than network.limits.rate is lost, as on any line that is too thin. */
static bool within_rate(struct dgram_flow *d, size_t size)
{
	usec_t wait;

	return size == 0 || quota_allowance(d->flow->broker->quota, size, &wait) > 0;
}

/* False when the flow has ended. */
static bool send_out(struct dgram_flow *d, const void *data, size_t size)
{
	if (!within_rate(d, size))
		return true;
	if (!quota_sent(d->flow, size)) {
		flow_end(d);
		return false;
	}
	/* A datagram may be lost: full buffers and errors that the network reports (port unreachable) are the sender's to
	 * survive. */
	(void) send(d->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	return true;
}

static void enqueue(struct dgram_flow *d, const void *data, size_t size)
{
	struct queued *q;

	if (d->queue_count == QUEUE_COUNT_MAX || size > QUEUE_BYTES_MAX - d->all->queued)
		return;
	q = xcalloc(1, sizeof *q + size);
	memcpy(q->data, data, size);
	q->size = size;
	STAILQ_INSERT_TAIL(&d->queue, q, link);
	d->queue_count++;
	d->all->queued += size;
}

/* The source address of an answer is the destination of what it answers. */
static void add_source(struct msghdr *msg, const struct net_address *source)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (source->family == AF_INET6) {
		struct in6_pktinfo info = {.ipi6_addr = source->v6};

		*c = (struct cmsghdr){.cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO, .cmsg_len = CMSG_LEN(sizeof info)};
		memcpy(CMSG_DATA(c), &info, sizeof info);
		msg->msg_controllen = CMSG_SPACE(sizeof info);
	} else {
		struct in_pktinfo info = {.ipi_spec_dst = source->v4};

		*c = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof info)};
		memcpy(CMSG_DATA(c), &info, sizeof info);
		msg->msg_controllen = CMSG_SPACE(sizeof info);
	}
}

static void send_back(struct dgram_flow *d, const void *data, size_t size)
{
	union {
		char buf[CMSG_SPACE(sizeof(struct in6_pktinfo))];
		struct cmsghdr align;
	} ancillary = {0};
	struct sockaddr_storage to;
	struct iovec iov = {.iov_base = (void *) (uintptr_t) data, .iov_len = size};
	struct msghdr msg = {.msg_name = &to,
			     .msg_namelen = network_address_to(&d->key.from, d->key.from_port, &to),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = ancillary.buf,
			     .msg_controllen = sizeof ancillary.buf};

	add_source(&msg, &d->key.to);
	(void) sendmsg(d->key.listener, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void answered(evutil_socket_t fd, short what, void *ctx)
{
	struct dgram_flow *d = ctx;
	unsigned char *buf = d->all->buf;

	(void) what;
	for (int i = 0; i < AT_ONCE; i++) {
		ssize_t n = recv(fd, buf, DATAGRAM_MAX, MSG_DONTWAIT);

		if (n < 0 && errno == ECONNREFUSED)
			continue; /* an ICMP error; the next datagram may fare better */
		if (n < 0)
			return;
		touch(d);
		if (!within_rate(d, (size_t) n))
			continue;
		if (!quota_received(d->flow, (size_t) n)) {
			flow_end(d);
			return;
		}
		send_back(d, buf, (size_t) n);
	}
}

static void dialled(void *ctx, int fd)
{
	struct dgram_flow *d = ctx;

	d->dial = NULL;
	d->fd = fd;
	if (fd < 0) {
		flow_end(d);
		return;
	}
	d->readable = event_new(d->all->broker->base, fd, EV_READ | EV_PERSIST, answered, d);
	(void) event_add(d->readable, NULL);
	while (!STAILQ_EMPTY(&d->queue)) {
		struct queued *q = STAILQ_FIRST(&d->queue);

		if (!send_out(d, q->data, q->size))
			return;
		drop_first(d);
	}
}

static bool same_address(const struct net_address *a, const struct net_address *b)
{
	if (a->family != b->family)
		return false;
	return a->family == AF_INET6 ? memcmp(&a->v6, &b->v6, sizeof a->v6) == 0 : a->v4.s_addr == b->v4.s_addr;
}

static bool same_key(const struct key *a, const struct key *b)
{
	return a->listener == b->listener && a->from_port == b->from_port && a->to_port == b->to_port &&
	       same_address(&a->from, &b->from) && same_address(&a->to, &b->to);
}

/* Those in use are at the end of the list. */
static struct dgram_flow *find(struct datagrams *all, const struct key *key)
{
	struct dgram_flow *d;

	TAILQ_FOREACH_REVERSE(d, &all->flows, flow_list, link)
	{
		if (same_key(&d->key, key))
			return d;
	}
	return NULL;
}

static void cut(void *owner)
{
	flow_end(owner);
}

static struct dgram_flow *begin(struct datagrams *all, const struct key *key)
{
	struct broker *b = all->broker;
	const char *name = key->to.family == AF_INET ? names_lookup(b->names, ntohl(key->to.v4.s_addr)) : NULL;
	struct target target = {.port = key->to_port};
	struct dgram_flow *d;
	struct flow *f;

	if (name != NULL)
		(void) memccpy(target.name, name, '\0', sizeof target.name);
	else
		target.address = key->to;
	f = flow_open(b, &target, true);
	if (f == NULL)
		return NULL;
	if (all->count == DATAGRAM_FLOWS_MAX)
		flow_end(TAILQ_FIRST(&all->flows));
	d = xcalloc(1, sizeof *d);
	*d = (struct dgram_flow){.all = all, .key = *key, .flow = f, .fd = -EBADF};
	f->cut = cut;
	f->owner = d;
	STAILQ_INIT(&d->queue);
	TAILQ_INSERT_TAIL(&all->flows, d, link);
	all->count++;
	d->used = now_monotonic();
	d->dial = dial_start(f, true, dialled, d);
	arm_idle(all);
	return d;
}

/* The destination of a datagram, as the kernel tells beside it. */
static bool destination(struct msghdr *msg, struct net_address *ret)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		struct sockaddr_in v4 = {.sin_family = AF_INET};
		struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
		struct in_pktinfo info4;
		struct in6_pktinfo info6;

		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&info4, CMSG_DATA(c), sizeof info4);
			v4.sin_addr = info4.ipi_addr;
			network_address_from((struct sockaddr *) &v4, ret, NULL);
			return true;
		}
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&info6, CMSG_DATA(c), sizeof info6);
			v6.sin6_addr = info6.ipi6_addr;
			network_address_from((struct sockaddr *) &v6, ret, NULL);
			return true;
		}
	}
	return false;
}

static uint16_t bound_port(int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t size = sizeof sa;
	struct net_address a;
	uint16_t port = 0;

	if (getsockname(fd, (struct sockaddr *) &sa, &size) == 0)
		network_address_from((struct sockaddr *) &sa, &a, &port);
	return port;
}

static void arrived(struct datagrams *all, const struct key *key, size_t size)
{
	struct dgram_flow *d = find(all, key);

	if (d == NULL)
		d = begin(all, key);
	if (d == NULL)
		return;
	touch(d);
	if (d->fd >= 0)
		(void) send_out(d, all->buf, size);
	else
		enqueue(d, all->buf, size);
}

void datagrams_ready(struct datagrams *all, int fd)
{
	struct key key = {.listener = fd, .to_port = bound_port(fd)};

	for (int i = 0; i < AT_ONCE; i++) {
		union {
			char buf[CMSG_SPACE(sizeof(struct in6_pktinfo))];
			struct cmsghdr align;
		} ancillary;
		struct sockaddr_storage from = {0};
		struct iovec iov = {.iov_base = all->buf, .iov_len = DATAGRAM_MAX};
		struct msghdr msg = {.msg_name = &from,
				     .msg_namelen = sizeof from,
				     .msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = ancillary.buf,
				     .msg_controllen = sizeof ancillary.buf};
		ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

		if (n < 0)
			return;
		network_address_from((struct sockaddr *) &from, &key.from, &key.from_port);
		if (key.from.family != AF_UNSPEC && destination(&msg, &key.to))
			arrived(all, &key, (size_t) n);
	}
}
