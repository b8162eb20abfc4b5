#include "egress/outbox.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/mem.h"

struct message {
	STAILQ_ENTRY(message) link;
	size_t size;
	char text[];
};

struct outbox {
	int fd;
	struct event *writable;
	STAILQ_HEAD(, message) waiting;
	size_t size; /* of all that waits */
	bool gone;   /* the other side */
	void (*drained)(void *ctx);
	void (*broken)(void *ctx);
	void *ctx;
};

static void writable(evutil_socket_t fd, short what, void *ctx);

struct outbox *outbox_new(struct event_base *base, int fd, void (*drained)(void *ctx), void (*broken)(void *ctx), void *ctx)
{
	struct outbox *o = xcalloc(1, sizeof *o);

	o->fd = fd;
	o->drained = drained;
	o->broken = broken;
	o->ctx = ctx;
	STAILQ_INIT(&o->waiting);
	o->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, writable, o);
	return o;
}

static void drop_first(struct outbox *o)
{
	struct message *m = STAILQ_FIRST(&o->waiting);

	STAILQ_REMOVE_HEAD(&o->waiting, link);
	o->size -= m->size;
	free(m);
}

static void drop_all(struct outbox *o)
{
	while (!STAILQ_EMPTY(&o->waiting))
		drop_first(o);
}

void outbox_free(struct outbox *o)
{
	if (o == NULL)
		return;
	drop_all(o);
	if (o->writable != NULL)
		event_free(o->writable);
	free(o);
}

bool outbox_has_room(const struct outbox *o, size_t size)
{
	return size <= OUTBOX_MAX && o->size <= OUTBOX_MAX - size;
}

/* 0, -EAGAIN, or another errno: then the other side is gone. A packet goes as a whole or not at all. */
static int send_now(struct outbox *o, const char *text, size_t size)
{
	ssize_t n;

	do
		n = send(o->fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	return errno == ENOBUFS || errno == EAGAIN ? -EAGAIN : -errno;
}

static void send_waiting(struct outbox *o)
{
	while (!o->gone && !STAILQ_EMPTY(&o->waiting)) {
		struct message *m = STAILQ_FIRST(&o->waiting);
		int r = send_now(o, m->text, m->size);

		if (r == -EAGAIN)
			return;
		o->gone = r < 0;
		drop_first(o);
	}
}

static void writable(evutil_socket_t fd, short what, void *ctx)
{
	struct outbox *o = ctx;

	(void) fd, (void) what;
	send_waiting(o);
	if (o->gone) {
		drop_all(o);
		(void) event_del(o->writable);
		o->broken(o->ctx);
		return;
	}
	if (o->size <= OUTBOX_MAX / 2)
		o->drained(o->ctx);
	if (STAILQ_EMPTY(&o->waiting))
		(void) event_del(o->writable);
}

static void keep(struct outbox *o, const char *text, size_t size)
{
	struct message *m = xcalloc(1, sizeof *m + size);

	memcpy(m->text, text, size);
	m->size = size;
	STAILQ_INSERT_TAIL(&o->waiting, m, link);
	o->size += size;
	(void) event_add(o->writable, NULL);
}

static void send_or_keep(struct outbox *o, const char *text, size_t size)
{
	int r = -EAGAIN;

	if (STAILQ_EMPTY(&o->waiting))
		r = send_now(o, text, size);
	if (r < 0)
		keep(o, text, size); /* the loop notices when the other side is gone */
}

bool outbox_send(struct outbox *o, const char *text, size_t size)
{
	if (!o->gone && !outbox_has_room(o, size))
		return false;
	if (!o->gone)
		send_or_keep(o, text, size);
	return true; /* when it is gone, nobody will ever read it */
}

bool outbox_send_urgent(struct outbox *o, const char *text, size_t size)
{
	if (!o->gone && (size > OUTBOX_EXTRA || o->size > OUTBOX_MAX + OUTBOX_EXTRA - size))
		return false;
	if (!o->gone)
		send_or_keep(o, text, size);
	return true;
}

void outbox_flush(struct outbox *o, usec_t timeout)
{
	usec_t end = now_monotonic() + timeout, now;

	for (;;) {
		struct pollfd p = {.fd = o->fd, .events = POLLOUT};

		send_waiting(o);
		now = now_monotonic();
		if (o->gone || STAILQ_EMPTY(&o->waiting) || now >= end)
			return;
		(void) poll(&p, 1, (int) ((end - now) / USEC_PER_MSEC) + 1);
	}
}
