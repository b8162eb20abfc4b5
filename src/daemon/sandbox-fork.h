/* Forks: new sandboxes with the policy, metadata, environment and files (sandbox-carry.h) of one that runs, which goes on.
 *
 * The zwinger-files of the original packs a tree into a pipe, that of each new sandbox unpacks it from another; the daemon moves
 * the bytes from pipe to pipe and looks at none of them, so that no descriptor is shared and each side works behind its own
 * walls.
 *
 * The original is not stopped (its zwinger-files, which packs, would be too): what its programs change meanwhile is carried as it
 * was when its turn came, and each fork reads for itself. Who needs one moment lets them stop writing first. */
#pragma once

#include <stddef.h>

#include "base/clock.h"
#include "daemon/sandbox.h"

enum { FORK_COUNT_MAX = 10 };

struct sandbox_fork;

/* All of them run (`made`, in order), or none is left and `p` says why (its errors are the caller's); once, unless canceled. */
typedef void sandbox_forked(void *arg, struct sandbox *const *made, size_t count, struct problem *p);

/* `s` runs and is not paused; `count` is 1 to FORK_COUNT_MAX; `timeout` as of sandbox_create. They are hidden until all is done.
 * 0 and *ret, which is good until `done` is called, or -EINVAL with a problem: nothing is left, and `done` is not called. */
int sandbox_fork(struct sandbox *s, size_t count, usec_t timeout, sandbox_forked *done, void *arg, struct sandbox_fork **ret,
		 struct problem *p);
/* Ends what was made, without a callback. */
void sandbox_fork_cancel(struct sandbox_fork *f);
