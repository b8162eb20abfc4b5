/* What a run changed in the folders it could write to, and what must not be left there. A snapshot (one walk by fds, nothing
 * followed, no other device entered) is taken before the start and compared after the end, when nothing inside runs any more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct plan;

struct change_list {
	char **paths; /* as seen inside, raw bytes; owned */
	size_t count;
	uint64_t more; /* further ones that were not kept */
};

struct removed {
	char *path;       /* inside */
	const char *what; /* static: "link that leads out", "device", "set-user-ID bit" */
	char *target;     /* of a link, else NULL */
};

#define CHANGES_MAX 10000
#define SNAPSHOT_MAX 2000000

struct changes {
	bool known; /* false: the record was switched off, or the tree was too large: then the lists are null in the document */
	struct change_list created, modified, deleted;
	struct removed *removed;
	size_t removed_count;
	uint64_t removed_more; /* further ones, removed but not kept in the list */
};

struct snapshot;

/* Walks the writable mounts of the plan. NULL *ret and 0 when there is none. */
int snapshot_take(const struct plan *plan, struct snapshot **ret, struct zw_error *e);
/* Compares, and removes what the run made and must not be left: set-id bits, device nodes, links that lead out of the mount (a
 * workspace keeps those into the system tree), and in write mounts named pipes and sockets. What was there before and is
 * unchanged is never touched. `ret` is zeroed, or holds what upper_commit removed; it is complete as far as can be known even
 * when this fails: a negative errno says that something could not be looked at or removed. */
int snapshot_compare(struct snapshot *before, const struct plan *plan, struct changes *ret, struct zw_error *e);
struct snapshot *snapshot_free(struct snapshot *s);
void changes_done(struct changes *c);

/* For what removes things: notes one. `path` is copied, as is `target` (NULL: none); `what` is static. */
void changes_note_removed(struct changes *c, const char *path, const char *what, const char *target);
