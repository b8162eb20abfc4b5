/* The contexts of one sandbox: its interpreters as processes of its session, found by id or, for the default one of a language,
 * by that language. Every interface of the daemon (native, E2B, MCP) works on them through this and contexts.h.
 *
 * A context lives until it is removed or its sandbox has ended; a pointer is good from one event of the loop to the next only as
 * long as that has not happened: keep the ids. Everything happens in the event loop. Not thread safe. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/contexts.h"
#include "daemon/problem.h"

struct sandbox;
struct interpreter;

enum {
	CONTEXT_ID_SIZE = 37,
	CONTEXT_NAME_MAX = 255,
	SANDBOX_CONTEXTS_MAX = 64,
	SANDBOX_CODE_MAX = 64 << 20 /* bytes that wait */
};

struct sandbox_context {
	struct sandbox_context *next; /* the one made after it */
	struct sandbox *sandbox;
	char id[CONTEXT_ID_SIZE]; /* a UUID: the E2B wire has nothing else to keep others out */
	char *name, *cwd;         /* name: NULL when it has none; cwd: absolute, or below HOME */
	json_t *env;              /* over that of the sandbox */
	usec_t created;           /* real time */
	bool is_default;          /* of its language */
	bool missing;             /* its interpreter is not in the sandbox */
	bool misasked;            /* it cannot be started with its cwd and env: context_fault() */
	struct context *context;
	struct interpreter *interpreter; /* the running one, or NULL */
	json_t *last_denials;            /* of the last one that has ended; NULL: not known */
	uint32_t last_process;
	uint64_t metered; /* executions whose processor time was limited */
	uint64_t number;  /* in the order of creation, from 1 */
	uint32_t noted;   /* the process that has its note, 0: none has */
	void (*on_up)(void *arg, struct sandbox_context *x);
	void *up_arg;
};

/* Texts and objects are borrowed. */
struct context_wish {
	const char *language;   /* NULL: python */
	const char *name, *cwd; /* or NULL */
	const json_t *env;      /* or NULL */
	bool is_default;
	bool unstarted; /* the interpreter is started by its first execution; `up` is not called then */
};

/* Starts an interpreter. 0 and *ret, or -EINVAL with a problem. `up` (may be NULL) is called once, later: the interpreter takes
 * work, or could not be had (context_state() is CONTEXT_DEAD; `missing` and `misasked` tell why, context_fault() in words), or,
 * with NULL, was removed. */
int sandbox_context_new(struct sandbox *s, const struct context_wish *wish, void (*up)(void *arg, struct sandbox_context *x),
			void *arg, struct sandbox_context **ret, struct problem *p);
/* By id, or by language the default context of that. NULL: there is none. */
struct sandbox_context *sandbox_context_find(struct sandbox *s, const char *name);
/* The same, but a default context that is not there is made. NULL with a problem. */
struct sandbox_context *sandbox_context_get(struct sandbox *s, const char *name, struct problem *p);
/* The default context of a language of the sandbox's is there from now on, without an interpreter. */
void sandbox_context_reserve(struct sandbox *s, const char *language);
/* `up` of sandbox_context_new() is not to be called any more. */
void sandbox_context_forget(struct sandbox_context *x);
/* Ends its interpreter; its executions end as canceled. */
void sandbox_context_remove(struct sandbox_context *x);
size_t sandbox_contexts_count(const struct sandbox *s);
/* CONTEXT. A new reference. */
json_t *sandbox_context_to_json(const struct sandbox_context *x);

/* context_execute() within the limits of the policy; `ask` needs code, env and timeout (ZW_UNLIMITED: no more than the policy's).
 * Its errors, and -ESHUTDOWN while the sandbox does not run. */
int sandbox_context_execute(struct sandbox_context *x, struct execution_ask *ask, const struct execution_callbacks *callbacks,
			    void *ctx, struct execution **ret);
/* What its interpreter, and what that started, were denied in all: `list` as in the result document, NULL when it is not known;
 * `process` tells one interpreter from the next. Of the last one where none runs. `call` comes once, now or later, in the order
 * of asking where nobody settles. With `settle` the broker has told by then what it knows. */
void sandbox_context_denials(struct sandbox_context *x, bool settle,
			     void (*call)(void *arg, uint32_t process, const json_t *list), void *arg);
/* For the metrics, by who told the client how it ended. */
void sandbox_context_count(const struct sandbox_context *x, enum execution_status status);

/* ---- For sandbox.c and sandbox-outlive.c. ---- */

/* As process_adopt(). */
bool sandbox_context_adopt(struct sandbox *s, const json_t *held, int *fds);

void sandbox_contexts_pause(struct sandbox *s, bool paused);
/* The session is over, and every request to it was answered. */
void sandbox_contexts_ended(struct sandbox *s);
/* Without any callback. */
void sandbox_contexts_free(struct sandbox *s);
