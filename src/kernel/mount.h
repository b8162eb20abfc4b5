/* The mount API of file descriptors (open_tree(2), mount_setattr(2), move_mount(2), fsopen(2)). Everything here is
 * async-signal-safe: raw calls only, for use between clone and exec. Results are fds or 0, failures negative errno. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A detached copy of the tree at `path` below `dirfd` ("" for dirfd itself), with everything mounted below it. */
int mount_clone_tree(int dirfd, const char *path);

/* Sets (and clears) attributes on all mounts of a tree before anybody sees it. `attrs` of MOUNT_ATTR_*; `userns` for
 * MOUNT_ATTR_IDMAP, else -EBADF. */
int mount_set_tree(int tree, uint64_t attrs, int userns);

/* On one mount only. */
int mount_set_one(int mount, uint64_t attrs);
int mount_clear_one(int mount, uint64_t attrs);

/* Attaches a detached mount at `path` below `dirfd` ("" for dirfd itself). Symlinks in `path` are not followed. */
int mount_attach(int mount, int dirfd, const char *path);

/* A new file system of `type` with options "key", "value", ... (NULL value: a flag; NULL key ends), as a detached mount. An
 * option whose key begins with '?' may be unknown to the kernel. */
int mount_new(const char *type, const char *const options[][2], uint64_t attrs);

/* Changes options of a mounted file system. */
int mount_reconfigure(int mount, const char *const options[][2]);

/* All mounts of this namespace stop propagating to others and receiving from them. */
int mount_isolate(void);

/* The current directory, a mount point, becomes the root; the old root is detached with all below it. */
int mount_pivot(void);
