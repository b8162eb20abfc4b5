/* What the parts of a context share: contexts.c has the order of executions, contexts-output.c what is printed,
 * contexts-interpreter.c the beginning and the end of an interpreter. */
#pragma once

#include <sys/queue.h>

#include "base/buf.h"
#include "daemon/context-message.h"
#include "daemon/contexts.h"

struct bufferevent;

enum { PIECE = 64 << 10 };

struct execution {
	TAILQ_ENTRY(execution) link;
	struct context *context;
	struct execution_callbacks callbacks;
	void *ctx;
	bool silent;              /* canceled: no callback any more */
	bool probe;               /* ours: whether the interpreter still answers */
	struct evbuffer *message; /* without its id, until it is sent */
	usec_t timeout, began;
	uint64_t output_max;
	bool output_kills;
	unsigned id;
	size_t result_bytes;
	bool error_told;
	struct execution_end end;
};

TAILQ_HEAD(execution_queue, execution);

struct stream {
	int fd;
	struct event *readable;
	struct buf late; /* what came while nothing ran */
	unsigned index;
	struct context *context;
};

struct context {
	struct event_base *base;
	const struct driver *driver;
	const struct context_ops *ops;
	void *owner;
	bool native, freed;
	unsigned nesting; /* callbacks under way: freeing waits for them */

	bool alive;         /* the owner will call context_ended() */
	bool ready;         /* the interpreter takes messages */
	bool came_up;       /* it was ready once */
	bool killed, again; /* killed by us; start a fresh one when it is gone */
	bool removed;       /* by context_end() */
	bool signaling;     /* SIGINT is on its way: nothing new may run before it has arrived */
	unsigned signals;   /* how many were sent to stop what is current */
	bool held;
	bool hung_up;     /* it has closed its channel: it has CONTEXT_GRACE to end */
	bool resync;      /* taken over: its channel may begin within a message */
	bool unsure;      /* taken over: what is current may never have begun, or be over */
	bool unsupported; /* it has said that it cannot do its language here */
	enum context_kind kind;
	struct bufferevent *channel;
	struct stream streams[2];
	struct event *timer; /* of the start, the execution's timeout, the grace */
	usec_t left;         /* of the timer, while the sandbox is paused; ZW_UNLIMITED: it was not set */
	bool paused;
	struct event *kick; /* begins what was queued */

	struct execution_queue queue;
	size_t queued, queued_bytes;
	struct execution *current;
	enum execution_status stopping; /* why current was interrupted; EXECUTION_OK: it was not */
	char stop_reason[120];
	unsigned serial, count; /* count: executions of this interpreter */
	uint64_t executions;
	bool fresh;
	char fault[sizeof((struct zw_error *) 0)->text];
};

/* Callbacks are made between these two; leave: false when one has freed the context. */
void context_enter(struct context *c);
bool context_leave(struct context *c);
void context_changed(struct context *c);
void context_noted(struct context *c);
void context_set_timer(struct context *c, usec_t t);

/* Begins the next execution, or the interpreter for it. */
void context_pump(struct context *c);
/* Ends the current one. */
void context_finish(struct context *c, enum execution_status status, const char *reason);
/* Interrupts the current one, and kills who does not yield. */
void context_stop(struct context *c, enum execution_status why, const char *reason);
/* `again`: start a fresh one when this is gone. */
void context_kill(struct context *c, bool again);
/* Everything that waits ends like this. */
void context_refuse_queue(struct context *c, enum execution_status status, const char *reason);

/* The line of an interpreter: three descriptors, taken over; -ENOMEM. listen: its callbacks come from now on. */
int context_attach(struct context *c, int channel, const int streams[2]);
void context_listen(struct context *c);
/* Puts an execution without code, callbacks and number before all others. 0 or -ENOMEM. */
int context_probe(struct context *c);
/* An execution that the daemon before has begun. */
int context_resume_unknown(struct context *c);
/* False: no message can begin in what has come. */
bool context_find_message(struct context *c);

/* Callbacks of the line. */
void context_read_channel(struct bufferevent *bev, void *arg);
void context_channel_event(struct bufferevent *bev, short what, void *arg);
void context_stream_readable(evutil_socket_t fd, short what, void *arg);

/* Reads what was printed before now. False when the context is gone; the caller has entered. */
bool context_drain(struct context *c);
/* Output of between executions, to the current one. */
void context_tell_late(struct context *c);
void context_close_line(struct context *c);
