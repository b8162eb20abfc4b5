/* The supervisor's loop: what its parts (limits, notify, egress, the workloads) share. Theory of operation: supervise.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/channel.h"
#include "base/clock.h"
#include "sandbox/egress.h"
#include "sandbox/ending.h"
#include "sandbox/relay.h"
#include "sandbox/run.h"
#include "sandbox/sandbox.h"
#include "sandbox/terminal.h"

enum { MAIN_PROCESS = 1 }; /* of a run: its id in the protocol */

/* What an event of the loop is about. A stream has one for each end. */
enum tag {
	TAG_AGENT,
	TAG_CHANNEL,
	TAG_LISTENER,
	TAG_OOM,
	TAG_TIMER,
	TAG_SIGNALS,
	TAG_EGRESS,
	TAG_SECRETS,
	TAG_IN = 8,
	TAG_OUT = 10,
	TAG_ERR = 12,
	TAG_LINE = 16, /* of a session, and where the next daemon comes */
	TAG_NEXT = 17,
};

/* Of the ids of connections to ports inside: those that the workload asked for; the others are the broker's. */
#define CONNECT_OF_WORKLOAD UINT32_C(0x80000000)

#define TAG_PROCESS (UINT64_C(1) << 32) /* of a session: plus the number of the process */

#define CANCEL_GRACE (2 * USEC_PER_SEC)

/* Everything that waits for a time. One timerfd is set to the earliest. */
enum deadline {
	DUE_WALL,    /* wall time limit */
	DUE_CPU,     /* look at the CPU time */
	DUE_WATCH,   /* look at memory and processes, where no control group does */
	DUE_DISK,    /* look at the writable folders */
	DUE_SCRATCH, /* look at the private folder, where no file system of its own holds it */
	DUE_OOM,     /* look whether the main process outlived an out-of-memory kill */
	DUE_REPLY,   /* answer the next delayed system call */
	DUE_GRACE,   /* what was asked to end has had its time */
	DUE_DRAIN,   /* the caller has had its time to take the last output of a sandbox that was ended */
	DUE_EGRESS,  /* the broker has had its time to report and end */
	DUE_WORK,    /* the workload's own */
	DUE_MAX,
};

/* A refused call whose answer waits, so that a flood costs its sender and not us. */
struct late_reply {
	uint64_t id;
	int error; /* 0: let the call go on */
	usec_t due;
};

enum { LATE_MAX = 512 };

struct notify {
	struct late_reply late[LATE_MAX]; /* a ring; due times only grow */
	size_t first, count;
	usec_t next_denial, next_report; /* leaky buckets: when the next answer of a flood may go out */
	bool paused;                     /* the ring is full: nothing is received */
};

enum { KILLS_AT_ONCE = 16 };

struct watch {
	bool memory, processes, disk, scratch;
	bool process_limit; /* held by an rlimit, whose refusals nobody counts: a look that finds as many as may be is the record
			     */
	bool process_limit_met;
	int scratch_fd, shm_fd; /* O_PATH on the sandbox's own tmpfs mounts, -EBADF */
	uint64_t scratch_before, scratch_peak;
	uint64_t memfd_bytes; /* in memory files, as of the last look */
	usec_t exact_next;    /* when memory may be measured exactly again */
	uint64_t memory_peak;
	usec_t cpu_seen;
	uint64_t kills;              /* processes that the watchdog ended for memory */
	pid_t killed[KILLS_AT_ONCE]; /* the latest of them */
	usec_t killed_at;            /* CLOCK_MONOTONIC, of the last */
	uint64_t disk_before;        /* bytes in the writable folders at the start */
};

struct supervisor;

/* What the sandbox is there for: the one command of a run (command.c), or the many processes of a session (session.c). */
struct workload {
	/* While the walls go up: what does not depend on them. begin: they are up, and the network serves. Negative errno with a
	 * sentence: the sandbox ends. */
	int (*prepare)(struct supervisor *s, struct zw_error *e);
	int (*begin)(struct supervisor *s, struct zw_error *e);
	/* STARTED, EXEC_FAILED and EXITED, and a CONNECTED that is not the broker's. What came with it may be taken out of `m`.
	 */
	void (*message)(struct supervisor *s, struct msg_in *m);
	/* Of TAG_SIGNALS, and of tags that the loop does not know. */
	void (*event)(struct supervisor *s, uint64_t tag, uint32_t events);
	void (*due)(struct supervisor *s); /* DUE_WORK */
	/* Before the loop sleeps: asks epoll for what is wanted now. 0 or negative errno. */
	int (*watch)(struct supervisor *s);
	/* No process of the workload is there, nor one that it left behind: watchdogs need not look before the next start. */
	bool (*is_idle)(const struct supervisor *s);
	/* The kernel killed for memory, a moment ago, `kills` in all: true when nobody of the workload is still dying from it. */
	bool (*outlived)(struct supervisor *s, uint64_t kills);
	/* The last process is gone. finished: nothing is left to be handed on. */
	void (*over)(struct supervisor *s);
	bool (*finished)(struct supervisor *s);
	/* NULL: nobody wants to know. A denial has been counted, of the process `pid` as we see it, 0: not known; the broker has
	 * told a connection; it has told all that had happened when it was asked with this number ("sync"). */
	void (*denied)(struct supervisor *s, const struct denial *what, pid_t pid);
	void (*connection)(struct supervisor *s, const json_t *report);
	void (*synced)(struct supervisor *s, uint32_t id);
	/* After all that: status and reason of the result, from the evidence. */
	void (*decide)(struct supervisor *s);
};

struct supervisor {
	const struct plan *plan;
	const struct isolation_ops *ops;
	const struct observer *observer; /* may be NULL */
	const struct workload *workload;
	void *work;                        /* the workload's own state */
	const struct run_streams *streams; /* of a run, else NULL */
	struct sandbox *sandbox;
	struct result *result;

	bool begun;      /* supervise_begin was called */
	int begin_error; /* and found this (negative errno), which `begin_fault` tells in words */
	struct zw_error begin_fault;
	int inside[3]; /* of a run: the sandbox's ends of the streams, until they are sent */
	int epoll, timer, signals;
	usec_t due[DUE_MAX], armed; /* CLOCK_MONOTONIC; ZW_UNLIMITED: not set */

	struct channel channel;
	struct relay in, out, err;
	struct terminal terminal;
	struct egress egress;
	struct notify notify;
	struct watch watch;
	struct evidence evidence;

	pid_t main_inside;  /* of a run: pid of the main process as the sandbox sees it, 0 before STARTED */
	bool starting;      /* START was sent, and not answered */
	bool quit_early;    /* SIGQUIT came before the answer: it is forwarded with it */
	bool killed, ended; /* asked the level to end it; the agent is gone */
	bool abandoned;     /* what the caller has not taken yet is dropped */
	bool frozen_by_cgroup;
	usec_t started, main_ended; /* CLOCK_MONOTONIC, 0: not yet. Of a session: since it is ready, until the end */
	usec_t stood_still;         /* how long it was paused in between */
	uint64_t oom_seen;
	usec_t agent_cpu;  /* of the main process and its children, by the agent's word; ZW_UNLIMITED: not known */
	usec_t reaped_cpu; /* of the agent and all that it waited for, by the kernel's word at its end; 0: not known */
	uint64_t agent_rss;
};

/* Opens what the loop needs but does not depend on the walls being up: it can be called (as sandbox->meanwhile) while the level
 * still builds them. A fault shows in supervise. */
void supervise_begin(void *supervisor);
/* Runs the loop until the sandbox is over and its output handed on. */
void supervise(struct supervisor *s);
/* Instead of supervise, when the level could not build its walls. */
void supervise_abandon(struct supervisor *s);

/* Ends the sandbox. The first reason stands. */
void supervisor_kill(struct supervisor *s, enum killed_for why);
/* What the agent has said and nobody has read yet. */
void supervisor_receive(struct supervisor *s);
int supervisor_watch(const struct supervisor *s, int fd, uint32_t events, uint64_t tag);
void supervisor_unwatch(const struct supervisor *s, int fd);
/* Brings s->result->usage up to date. Returns how many processes and threads there are, ZW_UNLIMITED when that is not known. */
uint64_t supervisor_usage(struct supervisor *s);
/* The supervisor cannot hold what it promised: ends the sandbox, and the result says why. */
void supervisor_fault(struct supervisor *s, const struct zw_error *e);
void supervisor_denial(struct supervisor *s, struct denial *what);
void supervisor_limit_event(const struct supervisor *s, const char *which);

/* command.c: what a run is. */
extern const struct workload workload_command;

/* run.c. The life of a sandbox with any workload: sandbox_run says the rest. `streams` may be NULL with workloads that have none.
 */
void sandbox_live(const struct plan *plan, const struct isolation_ops *ops, const struct observer *observer,
		  const struct run_streams *streams, const struct workload *workload, void *work, struct result *ret);

/* limits.c. prepare: before a program starts; watch: when one has, for what is looked at from time to time. */
void limits_prepare(struct supervisor *s);
void limits_watch(struct supervisor *s);
/* Of a run: watch, and the clocks of its command. */
void limits_start(struct supervisor *s);
/* How much of a CPU time limit may pass before the next look. */
usec_t limits_cpu_step(const struct supervisor *s, usec_t remaining);
/* The wall clock alone, from START on: whatever keeps the agent's answer away does not make a run without end. */
void limits_arm_wall(struct supervisor *s, usec_t from);
void limits_due(struct supervisor *s, enum deadline which);
/* The kernel reports an out-of-memory kill (or is about to make one). */
void limits_oom(struct supervisor *s);
/* The most that was seen in the scratch: at the end, and whenever memory was looked at. ZW_UNLIMITED when not known. */
uint64_t limits_scratch_peak(struct supervisor *s);
/* Out-of-memory kills so far, by the kernel or the watchdog; ZW_UNLIMITED when nobody counts. */
uint64_t limits_oom_kills(const struct supervisor *s);
/* Whether the watchdog ended that process (as seen from here) for memory. */
bool limits_has_killed(const struct supervisor *s, pid_t pid);
/* CPU time as seen from outside, where no control group counts. */
usec_t limits_cpu_seen(struct supervisor *s);
void limits_done(struct supervisor *s);

/* notify.c */
void notify_ready(struct supervisor *s);
void notify_due(struct supervisor *s);

/* signals.c */
void signals_read(struct supervisor *s);
void signals_forward(struct supervisor *s, int number);
/* Undoes a stop. */
void signals_thaw(struct supervisor *s);

/* streams.c. open: the sandbox's ends of stdin, stdout and stderr go to `inside` (the caller closes them), none with a terminal.
 * terminal: the terminal's master takes their place; it is taken over. drain: when nobody inside writes any more; true when all
 * is handed on. */
int streams_open(struct supervisor *s, int inside[3]);
void streams_terminal(struct supervisor *s, int *master);
int streams_watch(struct supervisor *s);
void streams_step(struct supervisor *s, uint64_t tag);
bool streams_drain(struct supervisor *s);
