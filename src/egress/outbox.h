/* Messages that wait to be sent over the control line. Sending never blocks the loop; what waits is bounded. */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

enum {
	OUTBOX_MAX = 1024 * 1024,   /* bytes that may wait */
	OUTBOX_EXTRA = 1024 * 1024, /* beyond it, for messages that are few and must not be lost */
};

struct outbox;

/* `fd` stays the caller's and is a SOCK_SEQPACKET socket. drained(ctx) is called from the loop when messages had to wait and at
 * most half of OUTBOX_MAX still does: whoever held something back may send it now. broken(ctx) is called, at most once and never
 * from within outbox_send, when the other side is gone. */
struct outbox *outbox_new(struct event_base *base, int fd, void (*drained)(void *ctx), void (*broken)(void *ctx), void *ctx);
void outbox_free(struct outbox *o);

/* Is there room for a message of that size? */
bool outbox_has_room(const struct outbox *o, size_t size);
/* Sends it now or later. False, and nothing is kept, when there is no room. */
bool outbox_send(struct outbox *o, const char *text, size_t size);
bool outbox_send_urgent(struct outbox *o, const char *text, size_t size); /* OUTBOX_EXTRA is room for it too */
/* Waits until everything is sent, but no longer than `timeout` and not once the other side is gone. */
void outbox_flush(struct outbox *o, usec_t timeout);
