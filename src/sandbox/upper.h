/* Write mounts with a size: what is written inside goes to memory (an overlay of the host's folder and a tmpfs of that size), and
 * is copied out to the folder when the run has ended. The tmpfs counts against the memory limit; when it is full, the code inside
 * sees ENOSPC. A file of the folder that is changed is first copied whole, and counts whole. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/changes.h"
#include "sandbox/plan.h"

/* Inside the new mount namespace, between clone and exec (async-signal-safe, allocates nothing). Mounts need CAP_SYS_ADMIN there.
 *
 * `lower` is a detached tree of the host's folder (mount_clone_tree, id-mapped if need be) with nothing mounted below; it is
 * consumed by the mount, the fd stays the caller's. `place` is any directory of this namespace (O_PATH): it is mounted over for
 * the time of the call, because before Linux 6.15 an overlay takes only layers that are mounted somewhere. `userns` in a user
 * namespace, where the overlay keeps its marks in user.* attributes. `uid`, `gid`: owner of the merged root when the folder's own
 * owner has no id here.
 *
 * Before Linux 6.6 a tmpfs of a user namespace takes no user.* attributes: there, a folder that was in the host's folder before
 * cannot be removed or replaced by the code inside (EIO); everything else works.
 *
 * Returns 0, the detached merged mount (to be attached, nosuid and nodev) and the upper folder's fd, which goes to the supervisor
 * for upper_commit; or negative errno with nothing left behind: EINVAL when something is mounted below the folder, ENODEV without
 * overlay. */
int upper_mount(int lower, uint64_t size, bool userns, int place, uid_t uid, gid_t gid, int *ret_mount, int *ret_upper);

/* In the supervisor, when nothing runs inside any more: copies the upper folder out to the mount's source, by descriptors,
 * following nothing. Files are put in place whole, by name, in one step each. Modes are cut to rwx bits; new things belong to
 * uid:gid ((uid_t) -1: to whoever we are). Devices, pipes, sockets and links that lead out stay behind and are noted in
 * `changes->removed`, as is what could not be written, which also makes the result negative; everything else is still copied. */
int upper_commit(int upper, const struct plan_mount *m, uid_t uid, gid_t gid, struct changes *changes, struct zw_error *e);
