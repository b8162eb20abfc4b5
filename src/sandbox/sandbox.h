/* A live sandbox, the face of an isolation level, and what watches it. Levels live in src/isolation, audit sinks in src/audit;
 * both plug in here by a struct of operations. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernel/cgroup.h"
#include "sandbox/plan.h"

/* How a control of the policy is held. The names are those of the result document's `enforcement`. */
enum control {
	CONTROL_MEMORY,
	CONTROL_PROCESSES,
	CONTROL_CPUS,
	CONTROL_CPU_TIME,
	CONTROL_WALL_TIME,
	CONTROL_OPEN_FILES,
	CONTROL_FILE_SIZE,
	CONTROL_DISK,
	CONTROL_SCRATCH,
	CONTROL_OUTPUT,
	CONTROL_IO,
	CONTROL_FILESYSTEM,
	CONTROL_SYSCALLS,
	CONTROL_NETWORK,
	CONTROL_PROCESS_VIEW, /* other processes are not seen, traced or signalled */
	CONTROL_IPC,
	CONTROL_IDENTITY, /* a uid of its own, no capabilities */
	CONTROL_MAX,
};
const char *control_name(enum control c); /* "memory", "cpu_time", ... */

struct control_state {
	const char *mechanism; /* static: "cgroup2", "rlimit", "watchdog", "mounts+landlock", ...; NULL: not asked for; "none":
				  not held */
	char *why;             /* owned; for "none": why, with the remedy */
};

/* Set-up steps, timed in order. */
struct step_time {
	const char *name; /* static */
	usec_t took;
};

struct sandbox {
	const struct plan *plan;
	pid_t pid;             /* of the agent, in the supervisor's pid namespace */
	int pidfd;             /* of the agent */
	int channel;           /* the agent protocol's socket, the supervisor's end */
	int listener;          /* seccomp notifier, -EBADF when the kernel gave none */
	struct cgroup *cgroup; /* never NULL after start */
	int scratch; /* process level: the private folder on disk, which a watchdog keeps to the plan's size; else -EBADF */
	void *level; /* what the level keeps for itself, until its finish() */
	int upper[PLAN_MOUNTS_MAX]; /* per plan mount with a size: fd of the in-memory upper folder, else -EBADF; see
				       workspace/commit */
	struct control_state controls[CONTROL_MAX];
	struct step_time steps[40];
	size_t step_count;
	usec_t setup; /* whole of start() until the agent runs */

	/* NULL when all was settled before start(). Else the control groups are only begun: a level with `settles_late` calls it
	 * once in start(), before anything of the sandbox's is run; from then on `cgroup` and `controls` are complete. Negative
	 * errno: give up; -ECANCELED when a control cannot be held, and the caller knows it. */
	int (*settle)(void *ctx, struct zw_error *e);
	void *settle_ctx;
	/* May be NULL. A level calls it once in start(), when pidfd and channel are there and the child is busy with its walls:
	 * what the caller needs for the time after that it prepares now. */
	void (*meanwhile)(void *ctx);
	void *meanwhile_ctx;

	/* With network rules (plan->transit has listeners); else not called. A level hands over the sockets of the listeners as
	 * soon as they are made, and with plan->trust asks for the memory files with certificates before the root is sealed: they
	 * stay the caller's, ret[1] is -EBADF where Java needs none. */
	transit_give give_listeners;
	int (*trust)(void *ctx, int ret[2], struct zw_error *e);
	void *network_ctx;
};

struct isolation_ops {
	const char *name;
	bool settles_late; /* knows sandbox->settle, when the plan is privileged */
	/* May be NULL. Called right after plan_make, before anything else is done with the plan (printing it included): writes
	 * into it what is different at this level, paths and environment above all. Touches nothing on the host. */
	int (*prepare)(struct plan *plan, struct zw_error *e);
	/* Tries what the level needs on this host, for this plan; fills `controls` with what it will hold each by ("none" + why
	 * where it cannot). Called before anything is built. Negative errno with a sentence and remedy when the level cannot run
	 * at all here. */
	int (*probe)(const struct plan *plan, struct control_state controls[CONTROL_MAX], struct zw_error *e);
	/* Builds the walls and starts the agent inside; `s` is zeroed but for plan, and has `cgroup` made by the caller. On
	 * failure nothing is left and the error names the step. */
	int (*start)(struct sandbox *s, struct zw_error *e);
	/* Ends every process of the sandbox now. Does not wait; the agent's pidfd tells when all is over. */
	void (*kill)(struct sandbox *s);
	/* May be NULL. Called for each refused call before it is recorded. A level without mounts carries some out on behalf of
	 * the sandbox, on what it has checked and holds by fd: true when the call has been answered. */
	bool (*answer)(struct sandbox *s, const struct seccomp_notif *n);
	/* May be NULL. Called once after the agent's pidfd has fired (and was waited for), when start() had succeeded: removes
	 * what the level made outside. */
	void (*finish)(struct sandbox *s);
};

void sandbox_done(struct sandbox *s); /* closes fds, removes the cgroup; the processes must be gone */

/* What happened, for whoever listens (the audit). Strings belong to the caller and are valid during the call. */
enum event_kind {
	EVENT_START,
	EVENT_EXEC,
	EVENT_DENIAL,
	EVENT_DENIALS_SUMMARISED,
	EVENT_CONNECTION,
	EVENT_LIMIT,
	EVENT_FILES,
	EVENT_END,
};

struct denial {
	const char *kind;                                 /* "syscall", "file", "network", "dns", "http", "process" */
	const char *name;                                 /* call, path, "processes"; NULL when not known */
	const char *host;                                 /* network, dns, http: address or name; else NULL */
	unsigned port;                                    /* 0: not known */
	const char *address, *method, *path, *rule, *why; /* of the broker, NULL when not known: where the host led, the request,
							     the rule that was broken or comes nearest, and a sentence */
	const char *detail;                               /* rendered arguments, NULL */
	pid_t pid;                                        /* inside-agnostic: in the supervisor's namespace; 0 when not known */
	const char *comm;                                 /* name of the thread, NULL when not known */
	uint64_t count;
};

struct event {
	enum event_kind kind;
	usec_t when; /* CLOCK_REALTIME */
	const char *sandbox_id;
	const struct denial *denial;     /* DENIAL, DENIALS_SUMMARISED */
	const struct plan *plan;         /* START */
	const struct result *result;     /* END, FILES */
	const struct json_t *connection; /* CONNECTION: as in the result document */
	const char *text;                /* EXEC: path; LIMIT: which */
	pid_t pid;                       /* EXEC */
};

struct observer {
	void *ctx;
	void (*event)(void *ctx, const struct event *e); /* must not block for long, must not fail */
};
