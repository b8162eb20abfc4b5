/* A walk over a tree that a hostile program has filled, by descriptors: nothing is followed, no other mount is entered, no path
 * is built to be opened. However deep or wide the tree is, few descriptors are open and no stack grows: a directory is read,
 * shown to the visitor as a whole and closed again if need be; the way back up is "..", accepted only when it is the very
 * directory we came from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Which inode, on which mount. */
struct tree_id {
	uint64_t ino;
	uint64_t place; /* the mount (statx), or the device where the kernel does not tell mounts apart */
};

struct tree_node {
	const char *name; /* valid during the callback; raw bytes */
	uint64_t ino, size;
	int64_t mtime, ctime; /* ns since the epoch */
	gid_t gid;
	uid_t uid;
	dev_t rdev;
	uint32_t links;
	uint32_t cookie; /* set by the visitor for a directory: handed to its own callback */
	uint16_t mode;   /* type and permissions */
	bool foreign;    /* a mount point: on another mount, not looked into */
	bool descend;    /* set for directories of this mount; the visitor may clear it */
};

struct tree_dir {
	int fd;           /* of the directory, borrowed. -EBADF in `leave` when the way back to it is lost */
	const char *path; /* below the root, "" for the root, NUL-terminated. Cut when `path_cut` */
	const char *name; /* the last of it */
	size_t path_size;
	bool path_cut;
	uint64_t depth; /* 0: the root */
	uint64_t ino;
	uint32_t cookie;
	gid_t gid;
	uint16_t mode;
	bool whole; /* the nodes are all there are, sorted by name; else this is one of several batches */
};

struct tree_visitor {
	void *ctx;
	/* Called once for a directory (several times when it is huge). A negative result ends the walk with it. */
	int (*dir)(void *ctx, const struct tree_dir *d, struct tree_node *nodes, size_t count);
	/* A directory and all below it has been seen; `parent` is its parent's fd (-EBADF for the root, or when lost). May be
	 * NULL. */
	void (*leave)(void *ctx, const struct tree_dir *d, int parent);
};

/* What could not be looked at. Names that vanish meanwhile do not count. */
struct tree_gaps {
	uint64_t count;
	int err;        /* positive errno of the first */
	char path[240]; /* of the first, cut */
};

#define TREE_BATCH 500000        /* most names of one directory held at a time */
#define TREE_PATH_MAX (1U << 20) /* longest path told; a deeper one is cut */

/* Walks the directory `fd` (O_PATH will do), borrowed. With `force`, directories of our own that deny us are opened up for the
 * time of the visit. */
int tree_walk(int fd, const struct tree_visitor *visitor, uint32_t cookie, bool force, struct tree_gaps *ret_gaps);

int tree_identify(int fd, struct tree_id *ret);
bool tree_same(const struct tree_id *a, const struct tree_id *b);

/* Opens the parent of directory `fd` (O_RDONLY or O_PATH) if it is the one wanted; -ESTALE when the directory was moved. */
int tree_open_parent(int fd, const struct tree_id *want, int flags);

/* An O_PATH fd of `name` in `dirfd` if it still is that inode on that mount: -ESTALE when not. */
int tree_open_node(int dirfd, const char *name, const struct tree_id *want);

/* chmod of what an O_PATH fd refers to, never of anything else. */
int tree_chmod(int fd, mode_t mode);

/* unlinkat(2) that also works in a directory of our own that was made read-only. */
int tree_unlink(int dirfd, const char *name, int flags);

/* Removes everything in directory `fd`. */
int tree_empty(int fd);

/* Removes `name` in `dirfd` and all below it. -ENOENT when there is none. Other mounts are left alone (-EBUSY). */
int tree_remove(int dirfd, const char *name);
