/* The process level: what its files share.
 *
 * Theory of operation. Nothing is mounted and no namespace is made: the program sees the host's own paths, and what it must not
 * touch is refused. files      Landlock: a list of what may be opened, for reading, executing or writing. Owner's rights that
 * Landlock does not know (modes, times, attributes) are refused by the filter, and carried out by the supervisor where the file
 * lies in a folder that is writable inside (process-answer.c) network    the filter refuses every socket but pairs processes
 * Landlock scopes signals and tracing (ABI 6); /proc is closed but for a few files about the machine identity   root gives the
 * program another uid, without capabilities. An ordinary user can only give its own
 *
 * Three processes of ours. The agent is the parent of all that runs inside, in the outer of two Landlock domains; each program
 * runs in the inner one, so that none can signal or trace the agent. It is a child subreaper and ends when its channel does: at
 * this level that, and not PR_SET_PDEATHSIG, is how a dead supervisor ends the sandbox, because an agent that dies at once would
 * leave its descendants to the host's init. The keeper is a fork of the supervisor outside all walls: if the supervisor dies, it
 * waits for the agent's end and removes the private folder. What must never happen: the supervisor's end of the channel open
 * anywhere else; a path inside taken for one outside (there is no difference here, but links lead anywhere: everything is opened
 * once and judged by its fd). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/plan.h"
#include "sandbox/sandbox.h"

/* As whom the program runs. */
enum identity_kind {
	IDENTITY_CALLER, /* an ordinary user's own uid: it cannot give another */
	IDENTITY_ROOT,   /* root's own, without capabilities, because no other will do: only with enforcement: best-effort */
	IDENTITY_OWNER,  /* root's choice: the owner of the folders that may be written to */
	IDENTITY_FRESH,  /* root's choice: a uid that nobody else has */
};

struct identity {
	enum identity_kind kind;
	uid_t uid;
	gid_t gid;
};

struct process_level {
	struct identity identity;
	int parent;        /* O_PATH on the folder that the private folder is in */
	const char *name;  /* of the private folder, in plan->home */
	bool made;         /* it is there */
	pid_t keeper;      /* 0: none */
	int keeper_socket; /* its end tells the keeper that we are dead */
};

/* process-identity.c: decides, without taking a uid yet (kind FRESH leaves it 0). */
void identity_decide(const struct plan *plan, struct identity *ret);
/* Takes a uid for FRESH. */
int identity_take(struct identity *id, struct zw_error *e);

/* process-rules.c */
int process_check_paths(const struct plan *plan, const struct identity *id, struct zw_error *e);

/* Landlock rulesets: of the domain that the agent is in, and of the one within that each program enters (-EBADF before
 * LANDLOCK_ABI_SCOPE). */
struct rulesets {
	int outer, inner;
};
/* They allow what the plan allows, with `scratch` (fd of the private folder). */
int process_rulesets(const struct plan *plan, const struct identity *id, int scratch, struct rulesets *ret, struct zw_error *e);

/* process-scratch.c: the private folder (its path is plan->home) and its keeper, which is there before the folder is. */
int scratch_make(struct sandbox *s, struct process_level *l, struct zw_error *e);
/* Tells it whose end to wait for. Before this no START may be sent. */
int keeper_tell(const struct process_level *l, int agent, struct zw_error *e);
/* Removes the folder and lets the keeper go. Nothing may run inside any more. */
void scratch_remove(struct sandbox *s, struct process_level *l);

/* process-build.c: clones, puts the child behind the walls, and waits until the agent runs. */
struct process_walls {
	struct identity identity;
	struct rulesets rules;
	struct seccomp_filter filter;
	uint64_t processes; /* for RLIMIT_NPROC, ZW_UNLIMITED where it is held otherwise or would count others */
};
int process_build(struct sandbox *s, const struct process_walls *walls, struct zw_error *e);
/* Ends an agent that has not been given anything to start yet, and closes what led to it. */
void process_undo(struct sandbox *s);

/* process-answer.c */
bool process_answer(struct sandbox *s, const struct seccomp_notif *n);
