/* A context: one interpreter inside a sandbox that keeps its state between executions, and the queue of what it is to execute.
 *
 *	dead --execute--> starting --ready--> idle <--> busy --interrupt--> stopping --2 s--> killed --> dead (--> starting)
 *
 * One execution at a time. A timeout, an interrupt and a client that leaves first interrupt; code that has not yielded after
 * CONTEXT_GRACE costs the interpreter, and a fresh one is started at once. An interpreter that dies by itself is started again by
 *the next execution alone, so that one that cannot live costs nothing.
 *
 * The interpreter is hostile like all code inside: what it says is bounded and checked, and can end in nothing worse than its own
 * death. Output comes through pipes (so that programs which it starts write there too); a message is handled after everything
 *that was in the pipes when it came, which keeps text, results and the end in order.
 *
 * Everything happens in the event loop. Callbacks may begin, cancel and interrupt, and free the context. Not thread safe. */
#pragma once

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/err.h"
#include "daemon/context-message.h"
#include "daemon/drivers.h"

struct context;
struct execution;

enum context_state { CONTEXT_DEAD, CONTEXT_STARTING, CONTEXT_IDLE, CONTEXT_BUSY, CONTEXT_STATE_MAX };

enum {
	CONTEXT_QUEUE_MAX = 64,
	CONTEXT_CODE_MAX = 16 << 20,
	CONTEXT_MESSAGE_MAX = 16 << 20, /* of the interpreter */
	CONTEXT_RESULTS_MAX = 32 << 20, /* bytes of results of one execution; more are dropped and counted */
	CONTEXT_OUTPUT_MAX = 64 << 20,  /* of each stream of one execution, whatever the policy says */
	CONTEXT_LATE_MAX = 64 << 10,    /* output between executions: so much of the newest is told with the next one */
};
#define CONTEXT_GRACE (2 * USEC_PER_SEC)
#define CONTEXT_START_MAX (30 * USEC_PER_SEC)

/* What START gets: stdin is /dev/null's business. Owned by the receiver. */
struct context_ends {
	int out, err, channel;
};

struct context_ops {
	/* Starts driver_command(d) with these ends; takes them whatever it returns. 0: context_ended() will come, also when the
	 * program turns out not to be there. Negative: nothing was started. */
	int (*start)(void *owner, struct context *c, struct context_ends *ends, struct zw_error *e);
	/* SIGINT to the interpreter and its tree, then context_signaled(). */
	void (*interrupt)(void *owner, struct context *c);
	/* SIGKILL to the whole tree. */
	void (*kill)(void *owner, struct context *c);
	/* The state is another one; may be NULL. */
	void (*changed)(void *owner, struct context *c);
	/* context_past() tells something else than before; may be NULL. Before an execution is sent, and before its end is told.
	 */
	void (*note)(void *owner, struct context *c);
};

/* What a daemon that takes the context over has to know of it. */
struct context_past {
	bool alive, ready, busy;
	enum context_kind kind;
	unsigned serial, count;
	uint64_t executions;
	const char *fault; /* of one that is not alive, or NULL */
};

struct context_death {
	int exit_code;      /* -1: none */
	int signal;         /* 0: none */
	const char *reason; /* a sentence ("memory ran out"), or NULL */
};

enum execution_status {
	EXECUTION_OK,
	EXECUTION_ERROR,
	EXECUTION_TIMEOUT,
	EXECUTION_INTERRUPTED,
	EXECUTION_DIED,
	EXECUTION_OUTPUT_LIMIT,
	EXECUTION_CANCELED,
	EXECUTION_STATUS_MAX,
};
extern const char *const execution_status_names[EXECUTION_STATUS_MAX];

struct execution_ask {
	const char *code;
	size_t code_size;    /* at most CONTEXT_CODE_MAX, UTF-8 */
	const json_t *env;   /* texts, for this execution alone; NULL: none */
	usec_t timeout;      /* ZW_UNLIMITED: none */
	uint64_t output_max; /* bytes a stream that are told */
	bool output_kills;   /* more than that ends it (output_limit) */
};

/* How it ended. What is pointed to is gone when the callback returns. */
struct execution_end {
	enum execution_status status;
	const char *reason; /* a sentence; NULL with "ok" and with an error that was told */
	unsigned count;
	bool fresh, restarted;
	bool removed;      /* canceled, because its context was removed */
	uint64_t bytes[2]; /* of stdout and stderr, told or not */
	bool truncated[2];
	unsigned results_dropped;
	usec_t took;
};

struct execution_callbacks {
	void (*begin)(void *ctx, unsigned count, bool fresh);
	/* stream 0: stdout, 1: stderr. Bytes as they came: a character may be cut in two, and nothing says that they are UTF-8.
	 */
	void (*output)(void *ctx, unsigned stream, const char *data, size_t size);
	/* A RESULT without anything that does not belong there; the receiver may keep a reference. */
	void (*result)(void *ctx, json_t *result);
	void (*error)(void *ctx, const char *name, const char *value, const char *traceback);
	/* Last, exactly once, unless execution_cancel() was called. */
	void (*end)(void *ctx, const struct execution_end *end);
};

int context_new(struct event_base *base, const struct driver *driver, bool native, const struct context_ops *ops, void *owner,
		struct context **ret, struct zw_error *e);
/* Kills the interpreter; what runs and what waits ends as canceled. Only context_free() may follow. */
void context_end(struct context *c, const char *reason);
/* Kills the interpreter and drops what waits without a callback. context_ended() must not be called afterwards. NULL is fine. */
void context_free(struct context *c);

/* Starts the interpreter before anything is to be executed. 0 or what ops->start said. */
int context_start(struct context *c, struct zw_error *e);
/* Whether an environment can have these: names that are not empty and without '=', texts without NUL. NULL is fine. */
bool context_env_is_good(const json_t *env);
/* 0; -EAGAIN: too many wait; -E2BIG, -EINVAL: code too long, or of a form that the language cannot be given (NUL in a shell's),
 * or an env that is not good. No callback comes before it returns. */
int context_execute(struct context *c, const struct execution_ask *ask, const struct execution_callbacks *callbacks, void *ctx,
		    struct execution **ret);
/* Its client has left: no callback comes any more; it is interrupted, or taken out of the queue. */
void execution_cancel(struct execution *x);
/* Interrupts what runs; nothing when nothing does, and then nothing later is hit. */
void context_interrupt(struct context *c);
/* Ends the interpreter and starts a fresh one; what runs is canceled, what waits goes on in the new one. */
void context_restart(struct context *c);
/* While the sandbox is paused the clocks of its executions stand. */
void context_pause(struct context *c, bool paused);
/* Stops taking output, which then stops the interpreter; for a client that is slower than it. */
void context_hold(struct context *c, bool hold);

enum context_state context_state(const struct context *c);
bool context_is_unsupported(const struct context *c); /* dead, since it cannot do its language here: context_fault() */
bool context_is_up(const struct context *c);          /* the interpreter takes work */
extern const char *const context_state_names[CONTEXT_STATE_MAX];
const struct driver *context_driver(const struct context *c);
const char *context_driver_kind(const struct context *c); /* "native" or "ipython" */
size_t context_queued_bytes(const struct context *c);     /* of code that waits */
uint64_t context_executions(const struct context *c);
const char *context_fault(const struct context *c); /* why it is dead, or NULL */

void context_past(const struct context *c, struct context_past *ret);
/* From within ops->start: the ends that stay here, to be kept for another daemon. */
void context_ours(const struct context *c, struct context_ends *ret);
/* Right after context_new(): goes on with an interpreter of a daemon that is gone. What that one had executed is interrupted;
 * where it is not known whether anything was, what yields is not ended. `ends` are those of context_ours(), taken over in any
 * case. */
void context_restore_dead(struct context *c, const struct context_past *past);
int context_take_over(struct context *c, const struct context_past *past, struct context_ends *ends, struct zw_error *e);

/* From the owner. */
void context_ended(struct context *c, const struct context_death *death);
void context_signaled(struct context *c);
