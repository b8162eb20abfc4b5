/* The control line as control.c (what is sent) and control-in.c (what comes) share it. */
#pragma once

#include <jansson.h>

#include "egress/control.h"
#include "egress/outbox.h"
#include "egress/refusals.h"
#include "egress/tally.h"

enum { CONTROL_SYNCS_MAX = 64 };

/* A connection to a port inside that the supervisor was asked for. */
struct inbound {
	uint64_t id;
	void (*done)(void *ctx, int fd);
	void *ctx;
	LIST_ENTRY(inbound) link;
};

struct control {
	struct broker *broker;
	int fd; /* owned */
	struct event *readable;
	struct outbox *outbox; /* NULL before control_start */
	struct refusals *refusals;
	struct tally *tally;
	LIST_HEAD(, inbound) inbounds;
	uint64_t last_inbound;
	uint32_t syncs[CONTROL_SYNCS_MAX]; /* asked, and not answered yet */
	size_t sync_count;
	struct event *sync;                    /* no other event waits, or the patience is over */
	bool ended;                            /* "end" came; else the loop was broken because the supervisor is gone */
	char message[CONTROL_MESSAGE_MAX + 1]; /* that is being read */
};

/* One message, waiting for it if `wait`. Returns its size with a NUL behind it in c->message, and its descriptors (owned by the
 * caller); 0 when the supervisor is gone, -EAGAIN, or negative errno; -EPROTO when it is too long or brought too many descriptors
 * (none are returned then). */
ssize_t control_receive(struct control *c, bool wait, int fds[CONTROL_FDS_MAX], size_t *ret_count);
/* The loop's callback for c->readable. */
void control_readable(evutil_socket_t fd, short what, void *ctx);
/* The supervisor wants to have been told all that has happened until now. */
void control_sync(struct control *c, uint32_t id);
/* Answers all who wait for a connection inside with "none". */
void control_forget_inbounds(struct control *c);
