/* What must not be left in a folder of the host after a run, and its removal. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sandbox/changes.h"
#include "sandbox/plan.h"
#include "sandbox/tree.h"

struct sweep {
	enum plan_mount_kind kind;
	const char *source, *target; /* of the mount: on the host, inside */
	int root;                    /* of the mount */
	struct changes *changes;     /* where removals are noted */
	uint64_t failures;
	struct zw_error *e; /* the first failure */
};

/* Looks at one thing that the run made or changed; `made` when it was not there before. True when it is gone afterwards. */
bool sweep_node(struct sweep *s, const struct tree_dir *d, struct tree_node *n, bool made);

/* The same for a mount of a single file. */
void sweep_file(struct sweep *s, int fd, mode_t mode);

/* The path inside of `name` in the directory at `dir` below a mount's target. Owned by the caller. */
char *sweep_path(const char *target, const char *dir, const char *name);
