/* The processes of a sandbox, seen from outside by /proc: the tree below the agent. Orphans inside go to the agent (it is pid 1,
 * or a child subreaper), so the tree is all of them. For watchdogs where no cgroup counts, and for the name of the largest
 * process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"

struct process {
	pid_t pid, parent, session;
	uint64_t threads;
	uint64_t resident; /* bytes, shared ones included */
	usec_t cpu;        /* own and of children that were waited for */
	bool dying;        /* a zombie or on its way there */
	bool zombie;
	char comm[20];
};

/* Calls back for each process below `agent`, the agent left out unless `with_agent`; a false answer stops the walk. */
void processes_walk(pid_t agent, bool with_agent, bool (*found)(void *ctx, const struct process *p), void *ctx);

struct processes_sum {
	uint64_t processes, tasks, resident;
	usec_t cpu;             /* the agent's waited-for children included */
	struct process largest; /* by resident; pid 0: none */
	struct process
	    main; /* the one whose pid inside is `main_inside`, dying also when a SIGKILL waits for it; pid 0: not there */
};
void processes_measure(pid_t agent, pid_t main_inside, struct processes_sum *ret);

/* The largest by resident size that are not dying, largest first. Returns how many. */
size_t processes_largest(pid_t agent, struct process *list, size_t max);

/* SIGKILL to `pid` if, and only if, it is one of the sandbox. 0 or negative errno. */
int processes_kill(pid_t agent, pid_t pid);

/* The process of the sandbox whose pid inside is `inside`, as it is called here; 0 when it is not there. `ret_dying` (may be
 * NULL): also when a SIGKILL waits for it. */
pid_t processes_find(pid_t agent, pid_t inside, bool *ret_dying);

/* Whether any is on its way out, or is going to be by a SIGKILL that waits for it. A zombie counts when it is the agent's, which
 * will tell of it; another may stay one for as long as its parent likes. */
bool processes_any_dying(pid_t agent);

/* Where no control group keeps them together: `root`, what is below it, and what is still in the session that it leads, `root`
 * itself gone or not. What has left both, as a daemon does, is not found. */
usec_t processes_tree_cpu(pid_t agent, pid_t root);
bool processes_tree_has(pid_t agent, pid_t root, pid_t pid);
/* Returns how many there were. */
size_t processes_signal_tree(pid_t agent, pid_t root, int number);
/* A handle (pidfd) on one of them that is not a zombie, the caller's; -ENOENT when there is none. */
int processes_tree_open(pid_t agent, pid_t root);
/* Stops every process of the sandbox but the agent. False when new ones came faster than that. */
bool processes_stop(pid_t agent);
void processes_continue(pid_t agent);

/* Proportional share of memory (Pss) of all processes, exact and slow; pages of shared memory objects (tmpfs, memfd, anonymous
 * shared) are left out of it and given in *ret_shmem. */
uint64_t processes_pss(pid_t agent, uint64_t *ret_shmem);

/* Bytes in memory files (memfd_create(2)) that processes hold open, mapped or not, each once. Not seen: those that only lie in a
 * message of a Unix socket. */
uint64_t processes_memfd(pid_t agent);
