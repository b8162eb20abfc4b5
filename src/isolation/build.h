/* Building the container level: what crosses from the supervisor into the child, and the child's ordered table of steps.
 *
 * Theory of operation. The supervisor opens, allocates and decides everything beforehand (struct build), then clones once. The
 * child walks the table in build-steps.c; each step is one function, run in order, timed, and named in the error when it fails.
 * The child allocates nothing, reads no policy and no environment, and trusts nothing it finds in the file system: it works on
 * fds.
 *
 * Privilege. Started by root, the child stays real root until `identity`, so that the mount, pid, ipc, uts, network and cgroup
 * namespaces belong to the first user namespace: even code that became root inside its own user namespace could not change them.
 * Started by anybody else, the child begins in a user namespace of its own, which owns all others.
 *
 * Messages between the two (one SOCK_SEQPACKET socket, end of file = the agent runs or the child is dead):
 *     child -> supervisor: WANT_MAPS (the child is in its user namespace and waits), ON_ITS_OWN (instead, when its ids are mapped
 *                          already: it asks for nothing more), SOCKETS (of the network rules, from the helper that makes the
 *                          network namespaces), UPPER (fd of a sized mount's upper folder), LISTENER (the filter is on; fd of
 *                          the notifier, times of the steps), FAULT (step, errno, object)
 *     supervisor -> child: one byte, "maps are written"; before it, when started by root, one byte with the fd of the network
 *                          namespace that the child is to join, and a build_groups with the fds of the control groups
 *
 * What must never happen: a step after the filter that the filter does not allow; an fd above 3 that survives the exec; a fault
 * that lets the exec happen. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "kernel/cgroup.h"
#include "kernel/seccomp.h"
#include "sandbox/plan.h"

enum { BUILD_STEPS_MAX = 32, BUILD_OBJECT_MAX = 200, BUILD_FDS_MAX = TRANSIT_BATCH };

struct build {
	const struct plan *plan;
	int channel;      /* the agent's end of the protocol socket */
	int agent;        /* sealed memfd */
	int sync;         /* the child's end of the build socket */
	int others[2];    /* the supervisor's ends of both sockets: the child's copies would keep it from seeing the supervisor's
			     death */
	int *trees;       /* privileged: a detached tree per plan mount, prepared by the supervisor; else NULL */
	bool late_groups; /* the five that follow come with a message, before the child takes its identity */
	int join[CGROUP_CONTROLLER_MAX];
	size_t join_count;
	struct seccomp_filter filter, confined_filter; /* which one depends on `processors` */
	int landlock_abi;                              /* 0: the kernel has none */
	unsigned processors;                           /* to be confined to, where no cgroup holds the limit; 0: all */
	uint64_t processes;                            /* for RLIMIT_NPROC where no cgroup holds the limit, else ZW_UNLIMITED */
	uid_t outside_uid;                             /* the sandbox's uid and gid as the host sees them */
	gid_t outside_gid;

	/* the child's own */
	int root; /* the file system of our own, where places for mounts may be made */
	dev_t root_dev;
	int settings;               /* /proc/sys, before it is covered; from `mount /proc` until the network is joined */
	int network, network_ready; /* not privileged: pidfd of the helper that makes the network namespace; the pipe on which it
				       says so */
	pid_t network_pid;
	const char *object;             /* what the running step works on, for the error */
	uint32_t took[BUILD_STEPS_MAX]; /* usec per step */
};

/* Which groups to join, and what the child itself must hold because no group does. */
struct build_groups {
	uint64_t processes;
	unsigned processors;
};

enum build_message_kind { BUILD_WANT_MAPS = 1, BUILD_ON_ITS_OWN, BUILD_UPPER, BUILD_SOCKETS, BUILD_LISTENER, BUILD_FAULT };

struct build_message {
	uint32_t kind;
	uint32_t index; /* FAULT: step. UPPER: plan mount. SOCKETS: the first of plan->transit's listeners */
	int32_t error;  /* FAULT: errno */
	uint32_t took[BUILD_STEPS_MAX];
	char object[BUILD_OBJECT_MAX];
};

struct build_step {
	const char *name;
	int (*run)(struct build *b); /* 0 or negative errno */
};

extern const struct build_step build_steps[];
extern const size_t build_step_count;

/* Runs in the child, ends in the agent or in _exit. */
_Noreturn void build_child(struct build *b);

/* Assembles the root file system (build-root.c). Each is a step. */
int build_root_tree(struct build *b);
int build_system_tree(struct build *b);
int build_etc(struct build *b);
int build_scratch(struct build *b);
int build_devices(struct build *b);
int build_proc(struct build *b);
int build_mounts(struct build *b);
int build_trust(struct build *b);
int build_seal_root(struct build *b);

/* Child to supervisor. 0 or negative errno. */
int build_send(const struct build *b, const struct build_message *m, int fd);

/* A tree for a plan mount, with its attributes: read-only or not, nosuid, nodev. Used by the supervisor (privileged) and by the
 * child. */
int build_tree_attributes(int tree, const struct plan_mount *m, int userns);
