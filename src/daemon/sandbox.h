/* Sandboxes that live: from a policy to the end, with who waits for them. The table of all of them belongs to the daemon.
 *
 * A sandbox is STARTING until its supervisor says "ready", ENDING from the wish to its last word, ENDED until its record is
 * forgotten (--keep-record). Its pointer is good from one event of the loop to the next only as long as it is in the table: keep
 * the id, or a process (processes.h), not the pointer. */
#pragma once

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/problem.h"
#include "daemon/sandbox-policy.h"
#include "daemon/session.h"
#include "sandbox/plan.h"

struct daemon;
struct files_client;
struct interpreter;
struct launcher_client;
struct process;
struct sandbox_context;
struct event_log;
struct sandbox_outlive;
struct sandbox_measure;
struct sandbox_levels;

enum { SANDBOX_ID_SIZE = 25, SANDBOX_BUCKETS = 4096, SANDBOX_RECORDS_MAX = 10000 };

enum sandbox_state { SANDBOX_STARTING, SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_ENDING, SANDBOX_ENDED };

struct sandboxes {
	struct daemon *daemon;
	struct launcher_client *launcher;
	struct sandbox_policies policies;
	struct sandbox *newest, *oldest;
	struct sandbox *buckets[SANDBOX_BUCKETS];
	size_t live, ended;
	uint64_t next_number;
	struct event *sweep, *drop;
	struct sandbox *dropped;  /* see sandbox_drop() */
	size_t spare;             /* see heap.h */
	size_t output_held;       /* see output-budget.h */
	struct event_log *events; /* of all, NULL before the first */
	size_t event_bytes;       /* of those of each */
	struct sandbox_measure *measure;
	struct sandbox_levels *levels;
	int outlive_dir; /* of the sockets of sandboxes that outlive the daemon, -EBADF: there is none */
	bool stopping;
};

/* Somebody who waits for a state: called once, with what it has become. */
struct sandbox_waiter {
	struct sandbox_waiter *next;
	void (*call)(void *arg, struct sandbox *s);
	void *arg;
};

/* Somebody whose work ends when the sandbox stands still: called once, when it is paused (unless `lasting`) or is about to end,
 * before anything that runs inside is told of. Taken out of the list by then; may free itself. */
struct sandbox_cut {
	struct sandbox_cut *next, **at; /* at NULL: in no list */
	void (*call)(struct sandbox_cut *c);
	bool lasting;
};

/* Somebody who looks again whenever processes may have written something or ended, or the sandbox has. May be removed by its
 * call, as itself alone. */
struct sandbox_watch {
	struct sandbox_watch *next;
	void (*moved)(void *arg, const struct process *p); /* p NULL: the sandbox */
	void *arg;
};

/* What is counted of a sandbox for the metrics, as of its last word about it. */
enum { DENIAL_KINDS = 7 };
struct sandbox_figures {
	uint64_t cpu_usec, memory, sent, received, connections, denials[DENIAL_KINDS];
	bool asked;
};

/* zwinger-files of one user inside. */
struct sandbox_files {
	struct files_client *client; /* NULL: not started */
	uint32_t id;                 /* of its start */
};
enum { SANDBOX_FILES_USER, SANDBOX_FILES_ROOT, SANDBOX_FILES_KINDS };

struct sandbox {
	struct sandboxes *all;
	struct sandbox *newer, *older, *next_in_bucket, *next_dropped;
	char id[SANDBOX_ID_SIZE];
	uint64_t number; /* in the order of creation */
	char *name;
	struct sandbox_policy policy;
	/* The policy of the start, once its network was narrowed (e2b/network-change.c), and whether its maker chose that
	 * network. */
	char *start_policy;
	bool start_chosen;
	json_t *metadata, *env;
	json_t *extras; /* what the protocol that made it keeps with it: an object, or NULL */
	enum sandbox_state state;
	bool hidden;                       /* of a run alone: not in lists */
	bool unkept;                       /* the store does not know the newest of it */
	usec_t created, expires, ended_at; /* real time; expires ZW_UNLIMITED while paused */
	usec_t paused_at;                  /* real time of the last pause */
	usec_t began;                      /* monotonic */
	usec_t timeout, left;              /* left: when it was paused */
	bool pause_on_timeout;
	struct event *timer;
	struct session *session;
	struct sandbox_outlive *outlive;                     /* NULL: it ends with the daemon */
	json_t *limits, *enforcement, *not_enforced, *usage; /* NULL while not known */
	json_t *last_word;                                   /* "ended", NULL when there was none */
	char *home;
	usec_t setup;
	struct sandbox_figures figures;
	char end_status[32], end_reason[512];
	struct problem problem; /* why it did not start; its errors are ours */
	struct sandbox_waiter *waiters;
	struct sandbox_cut *cuts;
	struct sandbox_watch *watches;
	struct process *processes; /* newest first */
	size_t process_count;
	size_t holds;                                    /* requests that keep a process of it */
	bool has_root;                                   /* user 0 is there too */
	struct sandbox_files files[SANDBOX_FILES_KINDS]; /* sandbox-files.c */
	size_t output_kept;                              /* see output-budget.h */
	struct event_log *events;
	struct sandbox_context *contexts; /* oldest first */
	struct interpreter *interpreters;
	uint64_t context_numbers;
};

/* What POST /v1/sandboxes says; texts and objects are borrowed. */
struct sandbox_wish {
	const json_t *policy, *metadata, *env, *extras; /* extras: NULL or an object */
	const char *template, *name;
	usec_t timeout;
	bool pause_on_timeout, hidden;
	const struct sandbox_policy *like; /* a copy of it, in place of `policy` and `template`; or NULL */
};

/* 0, or -EINVAL with a problem whose `errors` are the caller's. `ready` is called later: the sandbox runs, or has ended with its
 * `problem`. */
int sandbox_create(struct sandboxes *all, const struct sandbox_wish *wish, void (*ready)(void *arg, struct sandbox *s), void *arg,
		   struct sandbox **ret, struct problem *p);
/* Takes over one of a daemon before this one, ended or still STARTING, with its number; numbers must come in order. */
void sandbox_restore(struct sandboxes *all, struct sandbox *s);
/* NULL: there is none, or none any more. */
struct sandbox *sandbox_find(struct daemon *d, const char *id);
/* Ends it, now or soon; an ending that is under way keeps its reason. */
void sandbox_end(struct sandbox *s, const char *status, const char *reason);
/* Nobody asks any more for a hidden one that has ended: it goes as soon as the caller has returned to the loop. To be called
 * once. */
void sandbox_drop(struct sandbox *s);
/* Called once when it has ended, at once when it has. */
void sandbox_on_end(struct sandbox *s, void (*call)(void *arg, struct sandbox *s), void *arg);
/* Nobody calls this `arg` any more. */
void sandbox_forget(struct sandbox *s, const void *arg);
void sandbox_cut_add(struct sandbox *s, struct sandbox_cut *c);
/* Nothing when it is in no list. */
void sandbox_cut_remove(struct sandbox_cut *c);
void sandbox_watch_add(struct sandbox *s, struct sandbox_watch *w);
/* Nothing when it was not added. */
void sandbox_watch_remove(struct sandbox *s, const struct sandbox_watch *w);
void sandbox_watch_tell(struct sandbox *s, const struct process *p);
void sandbox_set_timeout(struct sandbox *s, usec_t timeout);
/* `env` or `extras` are others than when it was ready: for a daemon that comes after this one. */
void sandbox_changed(struct sandbox *s);
/* After the supervisor has done it: the state and the clock. */
void sandbox_set_paused(struct sandbox *s, bool paused);

/* For sandbox-outlive.c. reconnect: `line` is taken over, 0 or -EINVAL. describe: what "ready" says. go_on: from STARTING, with
 * so much of its time left. lost: from STARTING to the end. */
int sandbox_reconnect(struct sandbox *s, int line);
void sandbox_describe(struct sandbox *s, const json_t *m);
void sandbox_go_on(struct sandbox *s, bool paused, usec_t left);
void sandbox_lost(struct sandbox *s, const char *status, const char *reason);

const char *sandbox_state_name(enum sandbox_state state);
/* "running,paused": words of those states of `allowed`, each a bit 1U << state. False: there is another word. */
bool sandbox_states_read(const char *text, unsigned allowed, unsigned *ret);
json_t *sandbox_to_json(const struct sandbox *s);

/* ---- sandbox-figures.c ---- */

/* Adds to the metrics what "stats" or "ended" say more than before. */
void sandbox_account(struct sandbox *s, const json_t *m);
/* Asks all that live for their figures; `call` comes once, when they have answered, or have not in a second. At once where there
 * is nobody to ask. */
void sandboxes_measure(struct sandboxes *all, void (*call)(void *arg), void *arg);
/* It is over, and answers no more. */
void sandbox_measure_over(struct sandbox *s);
uint64_t sandboxes_memory(const struct sandboxes *all);
struct sandbox_measure *sandbox_measure_free(struct sandbox_measure *m);

struct request;
/* The sandbox of r->params[0]; NULL with the request refused: there is none, it has ended, and with `work` that it is paused. */
struct sandbox *sandbox_of(struct request *r, bool work);
/* One of any state. */
struct sandbox *sandbox_or_record_of(struct request *r);
void refuse_errno(struct request *r, int error, const char *what); /* of session_ask and its like */

/* "2026-01-31T12:00:00.000Z"; null for 0 and ZW_UNLIMITED. */
json_t *json_time(usec_t realtime);

int sandboxes_start(struct daemon *d, struct zw_error *e);
struct sandboxes *sandboxes_free(struct sandboxes *all);
