#include "sandbox/snapshot.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/changes.h"
#include "sandbox/tree.h"

bool snapshot_covers(const struct plan_mount *m)
{
	return m->writable && m->kind != PLAN_READ;
}

static bool tree_room(struct snapshot_tree *t, size_t entries, size_t bytes)
{
	size_t room = t->room == 0 ? 256 : t->room, names_room = t->names_room == 0 ? 8192 : t->names_room;

	if (t->names_size + bytes > UINT32_MAX)
		return false;
	while (room < t->count + entries)
		room *= 2;
	while (names_room < t->names_size + bytes)
		names_room *= 2;
	if (room != t->room)
		t->entries = xrealloc(t->entries, room, sizeof *t->entries);
	if (names_room != t->names_room)
		t->names = xrealloc(t->names, names_room, 1);
	t->room = room;
	t->names_room = names_room;
	return true;
}

static void add_text(struct snapshot_tree *t, const char *text, size_t n)
{
	memcpy(t->names + t->names_size, text, n);
	t->names_size += n;
	t->names[t->names_size++] = '\0';
}

static bool add_entry(struct snapshot_tree *t, int dirfd, const struct tree_node *n)
{
	char target[PATH_MAX];
	size_t name_size = strlen(n->name);
	ssize_t target_size = 0;

	if (S_ISLNK(n->mode))
		target_size = readlinkat(dirfd, n->name, target, sizeof target);
	if (target_size < 0)
		target_size = 0;
	if (!tree_room(t, 1, name_size + (size_t) target_size + 2))
		return false;
	t->entries[t->count++] = (struct snapshot_entry){
	    .ino = n->ino,
	    .size = n->size,
	    .mtime = n->mtime,
	    .ctime = n->ctime,
	    .name = (uint32_t) t->names_size,
	    .count = S_ISDIR(n->mode) ? SNAPSHOT_UNREAD : 0,
	    .mode = n->mode,
	};
	add_text(t, n->name, name_size);
	if (S_ISLNK(n->mode))
		add_text(t, target, (size_t) target_size);
	return true;
}

struct take {
	struct snapshot *s;
	struct snapshot_tree *t;
};

static int take_dir(void *ctx, const struct tree_dir *d, struct tree_node *nodes, size_t count)
{
	struct take *take = ctx;
	struct snapshot_tree *t = take->t;
	size_t first = t->count;

	if (!d->whole || take->s->total + count > SNAPSHOT_MAX) {
		t->truncated = true;
		return -E2BIG;
	}
	for (size_t i = 0; i < count; i++) {
		nodes[i].cookie = (uint32_t) t->count;
		if (!add_entry(t, d->fd, &nodes[i])) {
			t->truncated = true;
			return -E2BIG;
		}
	}
	t->entries[d->cookie].first = (uint32_t) first;
	t->entries[d->cookie].count = (uint32_t) count;
	take->s->total += count;
	return 0;
}

static void take_tree(struct snapshot *s, struct snapshot_tree *t, const struct plan_mount *m)
{
	struct take take = {.s = s, .t = t};
	struct tree_visitor visitor = {.ctx = &take, .dir = take_dir};
	struct tree_node root = {.name = "", .mode = S_IFDIR};
	struct tree_gaps gaps;
	struct stat st;

	if (!m->is_dir && fstat(m->fd, &st) == 0) {
		root.ino = st.st_ino;
		root.size = (uint64_t) st.st_size;
		root.mtime = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
		root.ctime = st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec;
		root.mode = (uint16_t) st.st_mode;
	}
	(void) add_entry(t, m->fd, &root);
	if (!m->is_dir)
		return;
	(void) tree_walk(m->fd, &visitor, 0, false, &gaps); /* E2BIG is noted in the tree; gaps stay SNAPSHOT_UNREAD */
}

int snapshot_take(const struct plan *plan, struct snapshot **ret, struct zw_error *e)
{
	struct snapshot *s = NULL;
	struct timespec now;

	for (size_t i = 0; i < plan->mount_count; i++) {
		if (!snapshot_covers(&plan->mounts[i]))
			continue;
		if (s == NULL) {
			/* The coarse clock is the one that stamps files. */
			if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0)
				return zw_errno(e, errno, "cannot read the clock");
			s = xcalloc(1, sizeof *s);
			s->tree_count = plan->mount_count;
			s->trees = xcalloc(s->tree_count, sizeof *s->trees);
			s->taken = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
			s->wanted = plan->audit_files != AUDIT_FILES_OFF;
		}
		take_tree(s, &s->trees[i], &plan->mounts[i]);
	}
	*ret = s;
	return 0;
}

struct snapshot *snapshot_free(struct snapshot *s)
{
	if (s == NULL)
		return NULL;
	for (size_t i = 0; i < s->tree_count; i++) {
		free(s->trees[i].entries);
		free(s->trees[i].names);
	}
	free(s->trees);
	free(s);
	return NULL;
}
