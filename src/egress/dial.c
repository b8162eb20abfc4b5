/* Connecting, in the way of RFC 8305 without its refinements: the addresses in order, the next one when one has failed or has not
 * answered for a quarter of a second, and the first that answers wins.
 *
 * The struct net_address that network_may_dial_as has judged is the one that connect(2) gets; nothing is resolved, parsed or
 * written as text in between. */
#include "egress/dial.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/control.h"
#include "egress/resolve.h"

enum { ADDRESSES_MAX = 8, PARALLEL_MAX = 4 /* descriptors of one dial */, NEXT_MSEC = 250, PATIENCE_SECONDS = 75 };

struct attempt {
	struct dial *dial;
	struct event *event;
	int fd;
};

struct dial {
	struct flow *flow;
	bool udp;
	void (*done)(void *ctx, int fd);
	void *ctx;
	uint16_t port; /* that is dialled */
	struct resolve *resolve;
	struct net_address addresses[ADDRESSES_MAX]; /* judged: they may be dialled */
	size_t count, next;                          /* the next one to try */
	struct net_address refused;                  /* the first that may not be; AF_UNSPEC: none */
	struct attempt attempts[ADDRESSES_MAX];      /* by index of the address */
	int error;                                   /* of the last attempt that failed, errno */
	size_t failed;                               /* its index */
	struct event *step;                          /* time for the next address, or to end */
	int connected;                               /* the result, -EBADF while there is none */
	size_t winner;
};

/* ---- The end. ---- */

static void attempt_end(struct attempt *a)
{
	if (a->event != NULL)
		event_free(a->event);
	a->event = NULL;
	fd_close(&a->fd);
}

static void dial_free(struct dial *d)
{
	if (d->resolve != NULL)
		resolve_cancel(d->resolve);
	for (size_t i = 0; i < ADDRESSES_MAX; i++)
		attempt_end(&d->attempts[i]);
	fd_close(&d->connected);
	event_free(d->step);
	free(d);
}

/* Who waits may forget the dial in its callback, so it is gone before. */
static void finish(struct dial *d, int fd)
{
	void (*done)(void *, int) = d->done;
	void *ctx = d->ctx;

	dial_free(d);
	done(ctx, fd);
}

static void set_error(struct dial *d, const char *what, const char *why)
{
	(void) snprintf(d->flow->error, sizeof d->flow->error, "%s: %s", what, why);
}

/* The rules forbid what the name resolves to. Nothing is said of it when another address has served: then nothing was
 * kept from the sandbox. */
static void record_refused(struct dial *d)
{
	struct flow *f = d->flow;
	char text[NET_ADDRESS_TEXT], why[256];
	const char *kind = network_never_dialled(&d->refused);
	struct refusal r = {.kind = "network",
			    .host = f->target.name,
			    .port = f->target.port,
			    .address = &d->refused,
			    .rule = f->rule,
			    .why = why};

	network_address_text(&d->refused, text);
	if (f->target.name[0] == '\0')
		r.host = text;
	(void) snprintf(why, sizeof why, "%s %s (%s), which neither an address rule nor network.hosts permits",
			f->target.name[0] != '\0' ? "the name resolves to" : "the address is", text,
			kind != NULL ? kind : "public");
	control_refusal(f->broker->control, &r);
	if (d->count == 0)
		(void) snprintf(f->error, sizeof f->error, "%s (%s) may not be dialled", text, kind != NULL ? kind : "public");
}

static void fail(struct dial *d)
{
	char text[NET_ADDRESS_TEXT], what[32 + NET_ADDRESS_TEXT];

	if (d->refused.family != AF_UNSPEC)
		record_refused(d);
	if (d->error != 0) {
		(void) snprintf(what, sizeof what, "cannot connect to %s", network_address_text(&d->addresses[d->failed], text));
		set_error(d, what, strerror(d->error));
	}
	finish(d, -1);
}

static void succeed(struct dial *d)
{
	d->flow->dialled = d->addresses[d->winner];
	d->flow->dialled_port = d->port;
	finish(d, take_fd(&d->connected));
}

/* ---- Attempts. ---- */

static void step_after(struct dial *d, usec_t wait)
{
	const struct timeval tv = {.tv_sec = (time_t) (wait / USEC_PER_SEC), .tv_usec = (suseconds_t) (wait % USEC_PER_SEC)};

	(void) event_add(d->step, &tv);
}

static void win(struct dial *d, size_t i)
{
	d->winner = i;
	d->connected = take_fd(&d->attempts[i].fd);
}

static void lose(struct dial *d, size_t i, int error)
{
	d->error = error;
	d->failed = i;
	attempt_end(&d->attempts[i]);
}

/* A socket that connects to a port of this host at which nobody listens, but which the kernel has just chosen as its own, is
 * connected to itself (simultaneous open, RFC 9293, 3.5). */
static bool is_own_echo(int fd, const struct net_address *to, uint16_t to_port)
{
	struct sockaddr_storage own;
	socklen_t size = sizeof own;
	struct net_address a;
	uint16_t port;

	if (getsockname(fd, (struct sockaddr *) &own, &size) < 0)
		return false;
	network_address_from((struct sockaddr *) &own, &a, &port);
	return port == to_port && network_address_equal(&a, to);
}

static int socket_error(const struct dial *d, size_t i)
{
	int error = 0, fd = d->attempts[i].fd;
	socklen_t size = sizeof error;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return errno;
	if (error == 0 && !d->udp && is_own_echo(fd, &d->addresses[i], d->port))
		return ECONNREFUSED;
	return error;
}

/* How many there are; *ret_oldest is the first, when there are any. */
static size_t under_way(const struct dial *d, size_t *ret_oldest)
{
	size_t n = 0;

	for (size_t i = d->count; i-- > 0;) {
		if (d->attempts[i].fd < 0)
			continue;
		n++;
		*ret_oldest = i;
	}
	return n;
}

/* Of many silent addresses the one that has been silent for longest gives way. */
static void make_room(struct dial *d)
{
	size_t oldest;

	if (under_way(d, &oldest) >= PARALLEL_MAX)
		lose(d, oldest, ETIMEDOUT);
}

static void attempt_ready(evutil_socket_t fd, short what, void *ctx);

/* Both only make it faster. What never leaves this machine needs no congestion control that the host has chosen for the world
 * (transit.c says why). */
static void set_pace(int fd, const struct net_address *to)
{
	static const char reno[] = "reno";
	const char *special = network_never_dialled(to);
	const int on = 1;

	(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (special != NULL && strcmp(special, "loopback") == 0)
		(void) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof reno - 1);
}

/* 0: connected; -EINPROGRESS: under way; another errno: failed. */
static int attempt_start(struct dial *d, size_t i)
{
	struct attempt *a = &d->attempts[i];
	struct sockaddr_storage to;
	socklen_t size = network_address_to(&d->addresses[i], d->port, &to);

	a->fd = socket(d->addresses[i].family, (d->udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return -errno;
	if (!d->udp)
		set_pace(a->fd, &d->addresses[i]);
	if (connect(a->fd, (struct sockaddr *) &to, size) == 0)
		return -socket_error(d, i);
	if (errno != EINPROGRESS)
		return -errno;
	a->event = event_new(d->flow->broker->base, a->fd, EV_WRITE, attempt_ready, a);
	return a->event != NULL && event_add(a->event, NULL) == 0 ? -EINPROGRESS : -ENOMEM;
}

/* Tries addresses until one is under way, and sees to it that `step` comes: at once with a result or a failure of all. */
static void try_next(struct dial *d)
{
	size_t oldest;

	while (d->next < d->count && d->connected < 0) {
		size_t i = d->next++;
		int r;

		make_room(d);
		r = attempt_start(d, i);
		if (r == -EINPROGRESS) {
			step_after(d, d->next < d->count ? NEXT_MSEC * USEC_PER_MSEC : PATIENCE_SECONDS * USEC_PER_SEC);
			return;
		}
		if (r == 0)
			win(d, i);
		else
			lose(d, i, -r);
	}
	if (d->connected >= 0 || under_way(d, &oldest) == 0)
		event_active(d->step, EV_TIMEOUT, 0);
}

static void attempt_ready(evutil_socket_t fd, short what, void *ctx)
{
	struct attempt *a = ctx;
	struct dial *d = a->dial;
	size_t i = (size_t) (a - d->attempts);
	int error = socket_error(d, i);

	(void) fd;
	(void) what;
	if (error == 0) {
		win(d, i);
		succeed(d);
		return;
	}
	lose(d, i, error);
	try_next(d);
}

static void step(evutil_socket_t fd, short what, void *ctx)
{
	struct dial *d = ctx;
	size_t oldest;

	(void) fd;
	(void) what;
	if (d->connected >= 0) {
		succeed(d);
	} else if (d->next < d->count) {
		try_next(d);
	} else {
		if (under_way(d, &oldest) > 0) /* patience is over */
			lose(d, oldest, ETIMEDOUT);
		fail(d);
	}
}

/* ---- Addresses. ---- */

/* Keeps those that the rules let be dialled. */
static void judge(struct dial *d, const struct net_address *a, size_t count)
{
	const struct flow *f = d->flow;
	const char *name = f->target.name[0] != '\0' ? f->target.name : NULL;

	for (size_t i = 0; i < count && d->count < ADDRESSES_MAX; i++) {
		if (network_may_dial_as(f->broker->network, name, &a[i], d->port, d->udp))
			d->addresses[d->count++] = a[i];
		else if (d->refused.family == AF_UNSPEC)
			d->refused = a[i];
	}
	try_next(d);
}

static void resolved(void *ctx, const struct net_address *a, size_t count, const char *error)
{
	struct dial *d = ctx;

	d->resolve = NULL;
	if (count == 0)
		set_error(d, "cannot resolve the name", error);
	judge(d, a, count);
}

static void find_addresses(struct dial *d)
{
	const struct target *t = &d->flow->target;
	const struct network_host *host;

	if (t->name[0] == '\0') {
		judge(d, &t->address, 1);
		return;
	}
	host = network_host_for(d->flow->broker->network, t->name);
	if (host == NULL) {
		d->resolve = resolve_start(d->flow->broker->resolver, t->name, resolved, d);
		return;
	}
	if (host->port != 0)
		d->port = host->port;
	judge(d, &host->address, 1);
}

struct dial *dial_start(struct flow *f, bool udp, void (*done)(void *ctx, int fd), void *ctx)
{
	struct dial *d = xcalloc(1, sizeof *d);

	*d = (struct dial){.flow = f, .udp = udp, .done = done, .ctx = ctx, .port = f->target.port, .connected = -EBADF};
	for (size_t i = 0; i < ADDRESSES_MAX; i++)
		d->attempts[i] = (struct attempt){.dial = d, .fd = -EBADF};
	d->step = evtimer_new(f->broker->base, step, d);
	if (d->step == NULL)
		abort(); /* memory */
	find_addresses(d);
	return d;
}

void dial_cancel(struct dial *d)
{
	dial_free(d);
}
