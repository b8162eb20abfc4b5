#include "egress/publish.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/control.h"

enum { ACCEPT_AT_ONCE = 16, REST_USEC = 50000 };

struct entry {
	struct publish *all;
	int fd;
	uint16_t port; /* inside */
	char *label;
	struct event *readable;
	struct event *rested;
	LIST_ENTRY(entry) link;
};

struct publish {
	struct broker *broker;
	LIST_HEAD(, entry) entries;
};

/* A peer that waits for its connection inside. */
struct peer {
	struct entry *entry;
	int fd;
	struct flow *flow;
};

struct publish *publish_new(struct broker *b)
{
	struct publish *p = xcalloc(1, sizeof *p);

	p->broker = b;
	LIST_INIT(&p->entries);
	return p;
}

static void entry_free(struct entry *e)
{
	if (e->readable != NULL)
		event_free(e->readable);
	if (e->rested != NULL)
		event_free(e->rested);
	fd_close(&e->fd);
	free(e->label);
	free(e);
}

void publish_free(struct publish *p)
{
	if (p == NULL)
		return;
	while (!LIST_EMPTY(&p->entries)) {
		struct entry *e = LIST_FIRST(&p->entries);

		LIST_REMOVE(e, link);
		entry_free(e);
	}
	free(p);
}

static void inside(void *ctx, int fd)
{
	struct peer *p = ctx;
	const int on = 1;

	if (fd >= 0 && fd_nonblock(fd) == 0) {
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		relay_pair(p->flow, fd, p->fd, NULL, 0);
	} else {
		(void) snprintf(p->flow->error, sizeof p->flow->error, "nothing listens inside at port %u", p->entry->port);
		fd_close(&fd);
		reset_close(p->fd);
		flow_close(p->flow);
	}
	free(p);
}

static size_t served(const struct broker *b)
{
	size_t count = 0;
	const struct flow *f;

	LIST_FOREACH(f, &b->flows, link)
	count += f->published != NULL;
	return count;
}

static void take(struct entry *e, int fd, const struct sockaddr *from)
{
	struct broker *b = e->all->broker;
	struct target target = {.port = e->port};
	struct peer *p = xcalloc(1, sizeof *p);
	uint16_t port;

	network_address_from(from, &target.address, &port);
	*p = (struct peer){.entry = e, .fd = fd, .flow = flow_open_published(b, &target, e->label)};
	control_inbound(b->control, e->port, inside, p);
}

static void rest(struct entry *e)
{
	static const struct timeval tv = {.tv_usec = REST_USEC};

	(void) event_del(e->readable);
	(void) evtimer_add(e->rested, &tv);
}

static void rested(evutil_socket_t fd, short what, void *ctx)
{
	struct entry *e = ctx;

	(void) fd, (void) what;
	(void) event_add(e->readable, NULL);
}

static void readable(evutil_socket_t listener, short what, void *ctx)
{
	struct entry *e = ctx;
	size_t room = e->all->broker->connections_max / PUBLISH_SHARE, used = served(e->all->broker);

	(void) what;
	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_storage from = {0};
		socklen_t size = sizeof from;
		int fd;

		if (used + (size_t) i >= room) {
			rest(e);
			return;
		}
		fd = accept4(listener, (struct sockaddr *) &from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			take(e, fd, (struct sockaddr *) &from);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			rest(e);
		if (fd < 0 && errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

int publish_add(struct publish *p, uint16_t port, const char *label, int fd)
{
	struct entry *e = xcalloc(1, sizeof *e);
	const int on = 1;
	int r = fd_nonblock(fd);

	*e = (struct entry){.all = p, .fd = fd, .port = port, .label = xstrdup(label)};
	if (r == 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0) /* accepted sockets inherit it */
		r = -errno;
	if (r < 0) {
		entry_free(e);
		return r;
	}
	LIST_INSERT_HEAD(&p->entries, e, link);
	e->readable = event_new(p->broker->base, fd, EV_READ | EV_PERSIST, readable, e);
	e->rested = evtimer_new(p->broker->base, rested, e);
	(void) event_add(e->readable, NULL);
	return 0;
}
