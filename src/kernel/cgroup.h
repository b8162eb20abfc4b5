/* Control groups, version 1, 2 and hybrid trees behind one face, chosen controller by controller (cgroups(7)). The groups of one
 * sandbox are directories "zwinger-<pid>-<random>" below the caller's own group (v2: below the nearest ancestor that may hand out
 * controllers), so that outer limits stay in force. No group outlives its sandbox; groups left behind by a killed supervisor are
 * removed by the next start. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CPUACCT, CGROUP_IO, CGROUP_CONTROLLER_MAX };
enum cgroup_version { CGROUP_ABSENT, CGROUP_V1, CGROUP_V2 };

struct cgroup_limits {   /* ZW_UNLIMITED: not limited */
	uint64_t memory; /* bytes; swap is set to `swap` beyond it */
	uint64_t swap;
	uint64_t processes; /* tasks, the agent not counted (the group gets one more) */
	uint64_t cpu_quota; /* usec per 100 ms period; ZW_UNLIMITED: all */
	uint64_t io_read_bps, io_write_bps;
};

struct cgroup;

/* Makes the groups and writes the limits. Controllers that cannot be had are left out, without error: ask cgroup_holds and let
 * the caller decide. `e` says why the most important one is missing (for the refusal). With no usable tree at all *ret is a valid
 * object that holds nothing. Negative errno only for faults half-way (nothing is left behind then). */
int cgroup_create(const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e);

/* The same in two parts, for root alone: begin makes the v2 group, which a child is born into; finish, called while the child is
 * busy, the groups of version 1, which it joins later and which take most of the time. Between the two cgroup_holds and
 * cgroup_lack say nothing. A failed finish leaves `c` to be removed. */
int cgroup_begin(const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e);
int cgroup_finish(struct cgroup *c, struct zw_error *e);

/* By which version the controller is held for this group. A limit that could not be written counts as CGROUP_ABSENT. */
enum cgroup_version cgroup_holds(const struct cgroup *c, enum cgroup_controller controller);
/* Why a controller is absent: a sentence with the remedy, "" when it is held. */
const char *cgroup_lack(const struct cgroup *c, enum cgroup_controller controller);

/* An fd for CLONE_INTO_CGROUP, or -EBADF when the group has no v2 part. Owned by `c`. */
int cgroup_clone_fd(const struct cgroup *c);

/* Fds of v1 `tasks` files: the single-threaded child writes "0" to each before it does anything else, which moves it without the
 * global lock that writing another's pid takes. Owned by `c`. Returns how many. */
size_t cgroup_join_fds(const struct cgroup *c, int fds[CGROUP_CONTROLLER_MAX]);

/* Fds that become ready when the kernel notes an out-of-memory kill: `eventfd` for v1 (POLLIN, 8 bytes to read) or an fd of
 * memory.events for v2 (POLLPRI). -EBADF when neither. Only a wake-up: the truth is in cgroup_stats. */
int cgroup_oom_fd(const struct cgroup *c, short *ret_events);

struct cgroup_stats { /* ZW_UNLIMITED: cannot be known */
	uint64_t memory_peak, memory_current, oom_kills;
	uint64_t processes_current, processes_peak, process_limit_hits; /* agent not counted */
	usec_t cpu;
	uint64_t io_read_bytes, io_write_bytes;
};
void cgroup_read_stats(const struct cgroup *c, struct cgroup_stats *ret);
/* The same after the last process is gone and before cgroup_remove: leaves memory_current and processes_current unknown. */
void cgroup_read_final_stats(const struct cgroup *c, struct cgroup_stats *ret);
/* Opens the files that cgroup_read_final_stats reads, so that the end of a run need not. Call it while the child builds its
 * walls; not calling it is fine. */
void cgroup_prepare(const struct cgroup *c);
/* CPU time alone (read often). ZW_UNLIMITED when unknown. */
usec_t cgroup_cpu(const struct cgroup *c);

/* Out-of-memory kills alone. ZW_UNLIMITED when unknown. */
uint64_t cgroup_oom_kills(const struct cgroup *c);
/* Memory in use now. ZW_UNLIMITED when unknown. */
uint64_t cgroup_memory(const struct cgroup *c);

/* Kills every process of the group at once where the kernel can (v2 cgroup.kill); 0, or -ENOTSUP. */
int cgroup_kill(const struct cgroup *c);
int cgroup_freeze(const struct cgroup *c, bool freeze);

/* Removes the groups and frees `c`. All processes must be gone. NULL is fine. Returns NULL. */
struct cgroup *cgroup_remove(struct cgroup *c);

/* Removes groups of dead supervisors beside ours, in every hierarchy. Cheap, also where many live: then it looks at some of them,
 * by chance. Called while the child builds its walls. */
void cgroup_reap(struct cgroup *c);

/* ---- Groups within the sandbox's, one for a process and all that it starts (cgroup-child.c). ---- */

enum { CGROUP_CHILD_FDS = 2 };
struct cgroup_child;

/* What version they would be of; CGROUP_ABSENT: cgroup_child_make would fail. */
enum cgroup_version cgroup_child_kind(const struct cgroup *c);
/* `number` tells those of one sandbox apart. -ENOTSUP where no group can have one. `c` must outlive it. */
int cgroup_child_make(const struct cgroup *c, uint32_t number, struct cgroup_child **ret);
/* The sandbox's own group without the agent, for a process that needs no group then, and joins nothing. -EBUSY when somebody else
 * is in it, -ENOTSUP as above. Whoever starts another process as long as it is used gives that one a group. Its CPU time includes
 * that of those groups. `c` must outlive it. */
int cgroup_child_own(const struct cgroup *c, pid_t agent, struct cgroup_child **ret);
/* Descriptors to each of which the process writes "0", and so joins. Owned by `g`. Returns how many. */
size_t cgroup_child_join_fds(const struct cgroup_child *g, int fds[CGROUP_CHILD_FDS]);
/* They have been handed on: closes them. */
void cgroup_child_joined(struct cgroup_child *g);
/* Microseconds, of all that were ever in it. ZW_UNLIMITED when unknown. */
usec_t cgroup_child_cpu(const struct cgroup_child *g);
/* To each process in it. 0 or negative errno. */
int cgroup_child_signal(const struct cgroup_child *g, int number);
/* Ends all of them; nothing in it can fork any more (in the sandbox's own: calls again while cgroup_child_wait_fd finds
 * somebody). Does not wait. */
int cgroup_child_kill(const struct cgroup_child *g);
/* A descriptor that becomes ready (*ret_events) when it is time to call this again; -ENOENT when nobody is left in it. Owned by
 * `g`, and closed by the next call at the latest when that returns another. */
int cgroup_child_wait_fd(struct cgroup_child *g, short *ret_events);
/* The number of the one that a process or thread of any sandbox of ours is in; 0: none. Where several sandboxes have such a
 * number, the caller knows whose process it is. */
uint32_t cgroup_child_of(pid_t pid);
/* Removes and frees; false when somebody is still in it. The sandbox's own is only freed. *g may be NULL. */
bool cgroup_child_remove(struct cgroup_child **g);
/* Frees alone: the group goes with the sandbox's. */
void cgroup_child_forget(struct cgroup_child **g);
