/* User namespace maps (user_namespaces(7)), uid ranges and id-mapped mounts (mount_setattr(2)). */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct id_pair {
	uid_t inside, outside;
	gid_t inside_gid, outside_gid;
};

/* Writes maps for a process in a fresh user namespace: each of the `count` (1 or 2) pairs is `inside` there and `outside` here.
 * `proc` is an fd of /proc. setgroups is denied first, as the kernel wants it from the unprivileged. */
int idmap_write(int proc, pid_t pid, const struct id_pair *pairs, size_t count, struct zw_error *e);

/* IDMAP_RANGE: ids of one sandbox. IDMAP_ROOT: which of them its root is. On no id-mapped mount does anything belong to that one:
 * see idmap_namespace(). */
enum { IDMAP_RANGE = 64, IDMAP_ROOT = 3 };
#define IDMAP_NO_GID ((gid_t) -1)

/* The first id of the range that belongs to sandboxes of this supervisor: derived from its pid, so that no other living process
 * of this pid namespace has it, and above what accounts, subordinate ids and other container managers use. No lock is needed that
 * somebody could hold against us. An account that lies in the range is an error. */
int idmap_range(uid_t *ret_base, struct zw_error *e);
/* The last id of that range, for the network broker of the supervisor `pid`: nobody else's either. */
uid_t idmap_broker(pid_t pid);

/* An fd of a user namespace for MOUNT_ATTR_IDMAP over the range that begins at `base`: what belongs to `disk_uid` and `disk_gid`
 * on disk appears as the first id of the range, and what that id makes belongs to them. Root and nobody appear as the next two
 * ids, which nobody inside is, so that folders of theirs can be used as far as their modes let everybody; whose id is not mapped
 * can only be read. `disk_gid` IDMAP_NO_GID maps no group: then nothing on the mount can be opened for writing and no socket
 * there can be connected to, whatever the modes say, because the kernel refuses write permission on what has an unmapped id;
 * reading goes by owner and others. Needs CAP_SETUID and CAP_SETGID. */
int idmap_namespace(int proc, uid_t base, uid_t disk_uid, gid_t disk_gid, int *ret_fd, struct zw_error *e);
