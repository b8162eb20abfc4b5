/* The agent's inside: what its files share. The agent is built by musl alone and links nothing of the other layers.
 *
 * Theory of operation. One thread, no allocation but the mapping of a START message, and every signal blocked except while it
 * waits in ppoll(2): so nothing can interrupt a half-done step. It waits for three things: the channel (a message, or its end),
 * and SIGCHLD (whose handler does nothing: it is there so that ppoll wakes). Whatever ends the channel ends the sandbox.
 *
 * As pid 1 of a pid namespace the kernel drops every signal from inside that has no handler, SIGKILL and SIGSTOP included
 * (pid_namespaces(7)), and kills the rest of the namespace when the agent exits. Without a pid namespace (process level) the
 * agent is a child subreaper: whatever its descendants leave behind becomes its child, and it kills until none is left.
 *
 * Two users. Where there is a root too (AGENT_WITH_ROOT) the agent begins with two capabilities, takes root's id as its real one
 * beside its own as the effective one, and drops the capabilities before it reads its first message. From then on it can start a
 * process as either, and signal both, by what every process may do with its own ids; each process has one id alone before it
 * executes anything. Nobody inside has both, so nobody can look into the agent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "agent/protocol.h"

enum { PROCESS_MAX = 1024, OWN_PROC_COUNT = 10 };

struct process {
	pid_t pid; /* 0: the slot is free */
	uint32_t id;
	bool one_shot;
	int master; /* of its terminal, for resizes, or -1 */
	int slave; /* kept open until the process has ended, so that the terminal outlives a moment in which nobody has it open */
	int own[OWN_PROC_COUNT]; /* of its /proc folder, see own-proc.c; 0 or less: none */
};

struct agent {
	bool pid_namespace;        /* we are pid 1 of one */
	bool has_root;             /* our real ids are root's */
	bool scoped;               /* kill(-1) reaches this sandbox alone: see AGENT_SCOPED */
	int terminal_fd;           /* AGENT_TERMINAL_FD while it has not been used, or -1 */
	int children_fd;           /* /proc/thread-self/children, or -1 */
	struct process *processes; /* PROCESS_MAX of them in a mapping: the kernel gives pages only to those that were used */
	size_t used;               /* no process lies at or behind this one */
};

/* A decoded START. Strings and arrays lie in one mapping of `map_size` bytes at `map`. */
struct start {
	uint32_t id;
	struct msg_start fixed;
	char *cwd;
	char **argv, **env;
	int fds[START_FDS_MAX];
	size_t nfds;
	void *map;
	size_t map_size;
};

/* Starts the process. 0 and *ret filled, or the errno (positive) and the stage that failed. Takes nothing over: s->fds stay the
 * caller's. */
int spawn(struct agent *a, const struct start *s, struct process *ret, uint32_t *ret_stage);

/* Descriptors that arrive while 0, 1 or 2 are free would be overwritten when those are put in place: moves them up. */
bool raise_fds(int *fds, size_t count);

/* Kills every process below us but us, and reaps (and reports) until there is none. */
void end_descendants(struct agent *a);

/* One wait4(2): returns the pid, 0 when none has ended yet (never with `block`), negative when there are no children. */
pid_t reap(bool block, int *ret_status, struct rusage *ret_usage);
/* Tells the supervisor about the end of `pid` when it is one that it started. Returns true when that one was a one-shot. */
bool report_end(struct agent *a, pid_t pid, int status, const struct rusage *usage);

static inline bool start_is_root(const struct start *s)
{
	return (s->fixed.flags & START_USER) != 0 && s->fixed.uid == 0 && s->fixed.gid == 0;
}

/* Which of s->fds is which; -1 where the flags name none. The first three are stdin, stdout, stderr unless there is a terminal.
 */
static inline size_t start_stdio_count(const struct start *s)
{
	return (s->fixed.flags & START_TTY) != 0 ? 0 : 3;
}

static inline int start_channel_fd(const struct start *s)
{
	return (s->fixed.flags & START_CHANNEL) != 0 ? s->fds[start_stdio_count(s)] : -1;
}

static inline int start_program_fd(const struct start *s)
{
	return (s->fixed.flags & START_PROGRAM) != 0 ? s->fds[s->nfds - 1] : -1;
}

/* The first of s->fixed.groups. */
static inline const int *start_group_fds(const struct start *s)
{
	return s->fds + start_stdio_count(s) + ((s->fixed.flags & START_CHANNEL) != 0);
}

/* How many descriptors `s` asks for. */
static inline size_t start_fds_wanted(const struct start *s)
{
	return start_stdio_count(s) + ((s->fixed.flags & START_CHANNEL) != 0) + s->fixed.groups +
	       ((s->fixed.flags & START_PROGRAM) != 0);
}

/* own-proc.c. allow: in the child, for itself. hold, release: in the agent. */
void own_proc_allow(int ruleset);
void own_proc_hold(struct process *p);
void own_proc_release(struct process *p);
