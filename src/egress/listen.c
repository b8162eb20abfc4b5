/* Accepting. What a connection was meant for is the address at which it arrived: nothing that the peer says is asked. */
#include "egress/listen.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/control.h"
#include "egress/names.h"
#include "egress/stub.h"
#include "egress/udp.h"

/* How many connections one turn of the loop takes from one socket, so that others get their turn too; how long accepting
 * rests when the kernel has no descriptor or memory for more; and how long connections wait for a place. After that they are
 * refused: what was sent on them lies in memory of the kernel that is in nobody's account. */
enum { ACCEPT_AT_ONCE = 64, REST_USEC = 50000, FULL_USEC = 250000, TURN_AWAY_AT_ONCE = 4096 };

struct listener {
	struct broker *broker;
	int fd;
	struct event *readable;
	bool udp;
	bool stub; /* 198.18.0.1:53 */
	LIST_ENTRY(listener) link;
};

struct listeners {
	struct broker *broker;
	LIST_HEAD(, listener) list;
	struct event *rested;
	struct event *full; /* pending while every place is taken */
	bool paused;        /* all that accept */
};

static void resume(struct listeners *l)
{
	struct listener *i;

	l->paused = false;
	LIST_FOREACH(i, &l->list, link)
	{
		if (!i->udp)
			(void) event_add(i->readable, NULL);
	}
}

static void pause_all(struct listeners *l)
{
	struct listener *i;

	l->paused = true;
	LIST_FOREACH(i, &l->list, link)
	{
		if (!i->udp)
			(void) event_del(i->readable);
	}
}

static void rested(evutil_socket_t fd, short what, void *ctx)
{
	struct listeners *l = ctx;

	(void) fd, (void) what;
	if (l->paused && l->broker->connections < l->broker->connections_max)
		resume(l);
}

/* Whom a connection that cannot be accepted was for is not worth a look. */
static void turn_away(struct listeners *l)
{
	static const char why[] = "too many connections are open at once";
	struct listener *i;
	int fd;

	LIST_FOREACH(i, &l->list, link)
	{
		for (int n = 0; !i->udp && n < TURN_AWAY_AT_ONCE; n++) {
			fd = accept4(i->fd, NULL, NULL, SOCK_CLOEXEC);
			if (fd < 0)
				break;
			control_refusal(l->broker->control,
					&(struct refusal){.kind = "network", .host = "(any)", .rule = -1, .why = why});
			reset_close(fd);
		}
	}
}

static void wait_for_places(struct listeners *l)
{
	static const struct timeval patience = {.tv_usec = FULL_USEC};

	if (!evtimer_pending(l->full, NULL))
		(void) evtimer_add(l->full, &patience);
}

static void full(evutil_socket_t fd, short what, void *ctx)
{
	struct listeners *l = ctx;

	(void) fd, (void) what;
	if (l->broker->connections < l->broker->connections_max)
		return;
	turn_away(l);
	wait_for_places(l);
}

void connections_count(struct broker *b, int change)
{
	b->connections = change < 0 ? b->connections - 1 : b->connections + 1;
	if (b->listeners == NULL)
		return;
	if (b->connections >= b->connections_max)
		wait_for_places(b->listeners);
	if (b->connections >= b->connections_max && !b->listeners->paused)
		pause_all(b->listeners);
	else if (b->connections < b->connections_max && b->listeners->paused && !evtimer_pending(b->listeners->rested, NULL))
		resume(b->listeners);
}

struct listeners *listeners_new(struct broker *b)
{
	struct listeners *l = xcalloc(1, sizeof *l);

	l->broker = b;
	LIST_INIT(&l->list);
	l->rested = evtimer_new(b->base, rested, l);
	l->full = evtimer_new(b->base, full, l);
	return l;
}

static void listener_free(struct listener *i)
{
	if (i->readable != NULL)
		event_free(i->readable);
	fd_close(&i->fd);
	free(i);
}

void listeners_free(struct listeners *l)
{
	if (l == NULL)
		return;
	while (!LIST_EMPTY(&l->list)) {
		struct listener *i = LIST_FIRST(&l->list);

		LIST_REMOVE(i, link);
		listener_free(i);
	}
	event_free(l->rested);
	event_free(l->full);
	free(l);
}

static bool is_stub_address(const struct net_address *a)
{
	return a->family == AF_INET && ntohl(a->v4.s_addr) == NETWORK_STUB_ADDRESS;
}

/* The name that an address of 198.18.0.0/16 stands for, else the address itself: those that stand for nothing are in no rule. */
static void target_of(struct broker *b, const struct net_address *a, uint16_t port, struct target *ret)
{
	const char *name = a->family == AF_INET ? names_lookup(b->names, ntohl(a->v4.s_addr)) : NULL;

	*ret = (struct target){.port = port};
	if (name != NULL)
		(void) memccpy(ret->name, name, '\0', sizeof ret->name);
	else
		ret->address = *a;
}

static void take(struct broker *b, int fd)
{
	struct sockaddr_storage sa = {0};
	socklen_t size = sizeof sa;
	struct net_address a = {0};
	struct target target;
	uint16_t port = 0;
	struct flow *f;

	if (getsockname(fd, (struct sockaddr *) &sa, &size) == 0)
		network_address_from((struct sockaddr *) &sa, &a, &port);
	if (a.family == AF_UNSPEC) {
		reset_close(fd);
		return;
	}
	if (is_stub_address(&a) && port == NETWORK_STUB_PORT) {
		stub_tcp_start(b, fd);
		return;
	}
	if (is_stub_address(&a) && port == NETWORK_PROXY_PORT && b->network->proxy_env) {
		proxy_start(b, fd);
		return;
	}
	target_of(b, &a, port, &target);
	f = flow_open(b, &target, false);
	if (f == NULL)
		reset_close(fd);
	else
		flow_start(f, fd);
}

/* A connection that was gone before it was accepted is no fault of the socket (accept(2), "Error handling"). */
static bool is_passing(int err)
{
	return err == ECONNABORTED || err == EINTR || err == EPROTO || err == EPERM || err == ENETDOWN || err == EHOSTDOWN ||
	       err == ENETUNREACH || err == EHOSTUNREACH || err == ENOPROTOOPT || err == ENONET || err == EOPNOTSUPP;
}

static void accept_ready(struct listener *i)
{
	static const struct timeval rest = {.tv_usec = REST_USEC};
	struct broker *b = i->broker;

	for (int n = 0; n < ACCEPT_AT_ONCE && b->connections < b->connections_max; n++) {
		int fd = accept4(i->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take(b, fd);
			continue;
		}
		if (is_passing(errno))
			continue;
		if (errno != EAGAIN) { /* EMFILE, ENFILE, ENOBUFS, ENOMEM */
			pause_all(b->listeners);
			(void) evtimer_add(b->listeners->rested, &rest);
		}
		return;
	}
}

static void readable(evutil_socket_t fd, short what, void *ctx)
{
	struct listener *i = ctx;

	(void) what;
	if (!i->udp)
		accept_ready(i);
	else if (i->stub)
		stub_udp_ready(i->broker, fd);
	else
		datagrams_ready(i->broker->datagrams, fd);
}

/* Accepted sockets inherit it: what comes from outside is written as it comes, and must not wait for more. */
static void set_no_delay(int fd)
{
	const int on = 1;

	(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int listen_add(struct listeners *l, const struct net_address *a, uint16_t port, bool udp, int fd)
{
	struct listener *i = xcalloc(1, sizeof *i);
	int r = fd_nonblock(fd);

	i->broker = l->broker;
	i->fd = fd;
	i->udp = udp;
	i->stub = is_stub_address(a) && port == NETWORK_STUB_PORT;
	if (r == 0 && udp && !i->stub)
		r = datagrams_prepare(fd);
	if (r == 0)
		i->readable = event_new(l->broker->base, fd, EV_READ | EV_PERSIST, readable, i);
	if (i->readable == NULL) {
		listener_free(i);
		return r < 0 ? r : -ENOMEM;
	}
	if (!udp)
		set_no_delay(fd);
	LIST_INSERT_HEAD(&l->list, i, link);
	if (udp || !l->paused)
		(void) event_add(i->readable, NULL);
	return 0;
}
