/* The record of the writable folders before a run. Inside of src/sandbox only: changes.h is the face of it.
 *
 * The children of a directory lie side by side, sorted by name, so that comparing is a merge of two sorted lists, directory by
 * directory, without any index. A directory that could not be recorded (too many entries, no permission) is marked so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/plan.h"

#define SNAPSHOT_UNREAD UINT32_MAX /* entry.count: what was in this directory is not known */

struct snapshot_entry {
	uint64_t ino, size;
	int64_t mtime, ctime;
	uint32_t name;         /* into names; behind the name of a link stands its target */
	uint32_t first, count; /* children of a directory */
	uint16_t mode;
};

struct snapshot_tree {
	struct snapshot_entry *entries; /* 0: the mount's root */
	size_t count, room;
	char *names;
	size_t names_size, names_room;
	bool truncated;
};

struct snapshot {
	struct snapshot_tree *trees; /* one a mount of the plan */
	size_t tree_count, total;
	int64_t taken; /* clock of the file systems, ns; nothing that the run does has an earlier change time */
	bool wanted;   /* lists, besides the removal */
};

/* Does the record cover this mount? */
bool snapshot_covers(const struct plan_mount *m);
