/* What the files of a session share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernel/cgroup.h"
#include "sandbox/ending.h"
#include "sandbox/session-line.h"
#include "sandbox/session.h"
#include "sandbox/supervise.h"

enum { SESSION_PROCESSES_MAX = 1024, SESSION_CONNECTS_MAX = 256, SESSION_RECORDS_MAX = 1024 };
#define CONNECT_STALE UINT32_C(0x80000000) /* no id has this bit */

enum process_state {
	PROCESS_STARTING, /* START was sent */
	PROCESS_RUNNING,
	PROCESS_LEAVING, /* it has ended; the rest of its tree was killed and is on its way */
};

/* What is kept of a process for a daemon that may come after this one. */
struct session_hold {
	json_t *memo; /* the daemon's own; NULL: it is nothing to the next one */
	size_t count;
	int fds[SESSION_FDS_MAX]; /* -EBADF: given back */
};

/* One that has ended, kept until the daemon says "forget". */
struct session_record {
	uint32_t id;
	pid_t inside;
	usec_t ended; /* real time */
	json_t *exit; /* "exited" as it was told */
	struct session_hold hold;
};

/* A session that does not end with its line but waits for another daemon. */
struct session_carry {
	int listener; /* -EBADF: it ends with its line */
	bool alone;   /* no daemon is there */
	usec_t wait, due;
	json_t *memo;     /* of the sandbox, the daemon's own */
	uint32_t highest; /* request so far */
	struct session_record *records;
	size_t count, room;
};

/* One process that the daemon asked for, with all that it starts. */
struct session_process {
	uint32_t id; /* the daemon's, and the agent's */
	enum process_state state;
	bool tty;
	bool tree;                           /* what it started ends with it */
	bool killed;                         /* the daemon sent SIGKILL: then no other reason is looked for */
	pid_t inside;                        /* its pid as the sandbox sees it */
	pid_t outside;                       /* as we see it; only looked for where there is no group, else 0 */
	char *command, *cwd;                 /* for sentences */
	usec_t wall_limit, cpu_limit;        /* ZW_UNLIMITED: none */
	usec_t wall_due, cpu_due, leave_due; /* CLOCK_MONOTONIC, ZW_UNLIMITED: not set */
	usec_t started, ended;               /* CLOCK_MONOTONIC */
	usec_t stood_still;                  /* of the session, when it started */
	uint64_t oom_before;                 /* out-of-memory kills in the sandbox before it started */
	usec_t cpu;                          /* by the agent's word: its own and of children that were waited for */
	uint64_t max_rss;
	struct evidence evidence;
	struct denials denials; /* with `tree`: of it, and those that may be anybody's */
	struct connections connections;
	uint32_t asked;       /* the request for its denials that waits for the broker, 0: none */
	usec_t asked_due;     /* CLOCK_MONOTONIC */
	bool settling;        /* it is over, and the broker is asked for the rest */
	int rest;             /* without a group: a handle on what is left of its tree, -EBADF */
	bool resident;        /* its group is the sandbox's own: it was alone when it started */
	usec_t others_before; /* a resident's: what the others had used then */
	bool kill_waits;      /* a resident's: until nobody is on the way to another group */
	struct session_hold hold;
	struct cgroup_child *group; /* NULL: none; then its tree is held together by parent links and its session id alone */
};

struct session {
	struct session_line line;
	usec_t begun;
	bool ready;
	struct session_process **processes;
	size_t count, room;
	struct cgroup_child **left; /* groups in which something is left of a process that has ended */
	size_t left_count;
	usec_t gone_cpu;                         /* of groups that were removed */
	uint32_t connects[SESSION_CONNECTS_MAX]; /* asked of the agent, not answered; CONNECT_STALE: by a daemon that is gone */
	size_t connect_count;
	uint64_t oom_settled; /* out-of-memory kills that are accounted for */
	unsigned oom_looks;   /* how often was waited for the last ones */
	usec_t paused_at;     /* CLOCK_MONOTONIC, 0: it runs */
	bool stopped;         /* it was paused by signals */
	struct session_carry carry;
	struct result result;
	char end_status[32], end_reason[512]; /* by the daemon's word, "" when it has not asked for the end */
	struct json_t *(*record)(const struct event *e);
};

/* Text for a message, fit for JSON whatever bytes of the inside it names. A new reference. */
json_t *session_text(const char *text);

/* How many denials there were by kind, and connections. A new reference. */
bool session_has_root(const struct supervisor *s);
json_t *session_totals(const struct result *r);

/* session-request.c: everything that the daemon has sent. */
void session_requests(struct supervisor *s);
/* Nobody is at the other end: ends the sandbox, or waits for the next daemon. */
void session_line_over(struct supervisor *s, const char *why);
void session_connected(struct supervisor *s, struct msg_in *m);

/* 0 or a positive errno, as "done" has it. */
void session_done(struct session *n, uint32_t id, int error, const char *message, int *fd);

/* session.c: what "ready" says of the sandbox. A new reference. */
json_t *session_describe(struct supervisor *s, const char *type);

/* session-carry.c */
void session_carry_init(struct session *n);
void session_carry_done(struct session *n);
/* The line is over. False: nobody may come. */
bool session_carry_wait(struct supervisor *s);
void session_carry_event(struct supervisor *s, uint32_t events);
void session_carry_due(struct supervisor *s, usec_t now);
/* The last `count` of the descriptors of a start; they are taken out of the list. */
int session_hold_take(struct session_hold *h, json_int_t count, int *fds, size_t *nfds);
void session_hold_done(struct session_hold *h);
/* It has ended so: keeps what the daemon has a memo for. */
void session_carry_ended(struct session *n, struct session_process *p, json_t *exited);
/* Requests. 0 or a positive errno. */
int session_carry_begin(struct session *n, const json_t *m, int *fds, size_t nfds);
int session_carry_note(struct session *n, uint32_t process, const json_t *m);
int session_carry_release(struct session *n, uint32_t process, const json_t *m);
int session_carry_forget(struct session *n, uint32_t process);
void session_carry_tell(struct supervisor *s);

/* session-process.c */
struct session_process *session_process_find(const struct session *n, uint32_t id);
void session_process_start(struct supervisor *s, uint32_t id, const json_t *m, int *fds, size_t nfds);
void session_process_message(struct supervisor *s, struct msg_in *m);
/* Something happened to the rest of its tree. */
void session_process_event(struct supervisor *s, uint32_t id);
void session_process_due(struct supervisor *s);
void session_process_denied(struct supervisor *s, const struct denial *what, pid_t pid);
void session_process_connection(struct supervisor *s, const json_t *report);
void session_process_synced(struct supervisor *s, uint32_t id);
/* Answers the request `id`, now or when the broker has told what it knows. */
void session_process_tell_denials(struct supervisor *s, struct session_process *p, uint32_t id, bool settle);
/* 0 or a positive errno. */
int session_process_signal(struct supervisor *s, struct session_process *p, int number, bool tree);
/* From now on it may use so much processor time ("cpu_usec"; null: any amount). 0 or a positive errno. */
int session_process_meter(struct supervisor *s, struct session_process *p, const struct json_t *m);
/* The sandbox is gone: tells the end of all that were there. */
void session_process_all_over(struct supervisor *s);
void session_process_shift(struct session *n, usec_t by);
void session_process_schedule(struct supervisor *s);
bool session_process_outlived(struct supervisor *s, uint64_t kills);
