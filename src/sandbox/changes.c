/* Both walks see every directory as a whole, sorted by name, and the record keeps it so: comparing is a merge (snapshot.h). Below
 * a directory that was not recorded the lists are not known, and what the run touched is told by the change time, which nothing
 * inside can set back. */
#include "sandbox/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/plan.h"
#include "sandbox/snapshot.h"
#include "sandbox/sweep.h"
#include "sandbox/tree.h"

/* Cookies of the comparing walk: the entry of the directory, or */
#define COOKIE_NEW UINT32_MAX /* it was not there before */
#define COOKIE_UNKNOWN (UINT32_MAX - 1)

#define LIST_BYTES_MAX (16U << 20) /* of paths in one list; deep trees have long ones */

/* ---- the lists ---- */

struct budget {
	size_t bytes;
};

static void list_add(struct change_list *list, struct budget *budget, const char *target, const char *dir, const char *name,
		     bool cut)
{
	size_t size = strlen(target) + strlen(dir) + strlen(name) + 3;

	if (cut || list->count == CHANGES_MAX || budget->bytes + size > LIST_BYTES_MAX) {
		list->more++;
		return;
	}
	budget->bytes += size;
	if ((list->count & (list->count - 1)) == 0) /* grows at powers of two */
		list->paths = xrealloc(list->paths, list->count == 0 ? 1 : list->count * 2, sizeof *list->paths);
	list->paths[list->count++] = sweep_path(target, dir, name);
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Mounts can overlap: one path may have been met twice. */
static void list_sort(struct change_list *list)
{
	size_t kept = 0;

	if (list->count == 0)
		return;
	qsort(list->paths, list->count, sizeof *list->paths, compare_paths);
	for (size_t i = 1; i < list->count; i++) {
		if (strcmp(list->paths[i], list->paths[kept]) == 0)
			free(list->paths[i]);
		else
			list->paths[++kept] = list->paths[i];
	}
	list->count = kept + 1;
}

static void list_done(struct change_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->paths[i]);
	free(list->paths);
	*list = (struct change_list){0};
}

void changes_done(struct changes *c)
{
	list_done(&c->created);
	list_done(&c->modified);
	list_done(&c->deleted);
	for (size_t i = 0; i < c->removed_count; i++) {
		free(c->removed[i].path);
		free(c->removed[i].target);
	}
	free(c->removed);
	*c = (struct changes){0};
}

void changes_note_removed(struct changes *c, const char *path, const char *what, const char *target)
{
	enum { SHOWN_MAX = 4096 };

	if (c->removed_count == CHANGES_MAX || strlen(path) > SHOWN_MAX) {
		c->removed_more++;
		return;
	}
	if ((c->removed_count & (c->removed_count - 1)) == 0)
		c->removed = xrealloc(c->removed, c->removed_count == 0 ? 1 : c->removed_count * 2, sizeof *c->removed);
	c->removed[c->removed_count++] =
	    (struct removed){.path = xstrdup(path), .what = what, .target = target != NULL ? xstrdup(target) : NULL};
}

/* ---- comparing ---- */

struct compare {
	const struct snapshot *before;
	const struct snapshot_tree *t;
	const struct plan_mount *m;
	struct changes *out;
	struct budget created, modified, deleted;
	struct sweep sweep;
	bool known;
};

static void list_created(struct compare *c, const struct tree_dir *d, const char *name)
{
	if (c->before->wanted)
		list_add(&c->out->created, &c->created, c->m->target, d->path, name, d->path_cut);
}

static void list_modified(struct compare *c, const struct tree_dir *d, const char *name)
{
	if (c->before->wanted)
		list_add(&c->out->modified, &c->modified, c->m->target, d->path, name, d->path_cut);
}

static void list_deleted(struct compare *c, const struct tree_dir *d, const char *name)
{
	if (c->before->wanted)
		list_add(&c->out->deleted, &c->deleted, c->m->target, d->path, name, d->path_cut);
}

/* What was below a directory that is gone, without recursion: the directories on the way, and the path to the last of them. */
struct gone {
	struct gone_level {
		uint32_t next, end;
		size_t path_size;
	} * levels;
	size_t depth, room;
	char *path;
	size_t path_room;
};

static void gone_enter(struct gone *g, const char *parent, size_t parent_size, const char *name, const struct snapshot_entry *e)
{
	size_t n = strlen(name), at = parent_size;

	if (at + n + 2 > g->path_room) {
		g->path_room = (at + n + 2) * 2;
		g->path = xrealloc(g->path, g->path_room, 1);
	}
	if (parent != NULL)
		memcpy(g->path, parent, at);
	if (at > 0)
		g->path[at++] = '/';
	memcpy(g->path + at, name, n + 1);
	if (g->depth == g->room) {
		g->room = g->room == 0 ? 64 : g->room * 2;
		g->levels = xrealloc(g->levels, g->room, sizeof *g->levels);
	}
	g->levels[g->depth++] = (struct gone_level){.next = e->first, .end = e->first + e->count, .path_size = at + n};
}

static bool has_children(struct compare *c, const struct snapshot_entry *e)
{
	if (!S_ISDIR(e->mode))
		return false;
	if (e->count == SNAPSHOT_UNREAD)
		c->known = false;
	return e->count != SNAPSHOT_UNREAD && e->count > 0;
}

static void list_deleted_below(struct compare *c, const struct tree_dir *d, const struct snapshot_entry *e)
{
	struct gone g = {0};

	if (!c->before->wanted || !has_children(c, e))
		return;
	gone_enter(&g, d->path, d->path_size, c->t->names + e->name, e);
	while (g.depth > 0) {
		struct gone_level *level = &g.levels[g.depth - 1];
		struct tree_dir at = {.path_size = level->path_size, .path_cut = d->path_cut || level->path_size > TREE_PATH_MAX};

		if (level->next == level->end) {
			g.depth--;
			continue;
		}
		e = &c->t->entries[level->next++];
		g.path[level->path_size] = '\0';
		at.path = g.path;
		list_deleted(c, &at, c->t->names + e->name);
		if (has_children(c, e))
			gone_enter(&g, NULL, level->path_size, c->t->names + e->name, e);
	}
	free(g.levels);
	free(g.path);
}

static void deleted(struct compare *c, const struct tree_dir *d, const struct snapshot_entry *e)
{
	list_deleted(c, d, c->t->names + e->name);
	list_deleted_below(c, d, e);
}

static void created(struct compare *c, const struct tree_dir *d, struct tree_node *n)
{
	n->cookie = COOKIE_NEW;
	if (!sweep_node(&c->sweep, d, n, true))
		list_created(c, d, n->name);
}

static bool same_target(const struct compare *c, const struct tree_dir *d, const struct tree_node *n,
			const struct snapshot_entry *e)
{
	const char *before = c->t->names + e->name;
	char target[PATH_MAX];
	ssize_t size = readlinkat(d->fd, n->name, target, sizeof target - 1);

	if (size < 0)
		return false;
	target[size] = '\0';
	return strcmp(before + strlen(before) + 1, target) == 0;
}

static void compare_dirs(struct compare *c, const struct tree_dir *d, struct tree_node *n, const struct snapshot_entry *e)
{
	bool other = n->mode != e->mode;

	/* It kept us out before, and still does: so it did with what ran in our name. */
	if (e->count == SNAPSHOT_UNREAD && !c->t->truncated && !other && n->ino == e->ino && n->uid != geteuid()) {
		n->descend = false;
		return;
	}
	n->cookie = e->count == SNAPSHOT_UNREAD ? COOKIE_UNKNOWN : (uint32_t) (e - c->t->entries);
	(void) sweep_node(&c->sweep, d, n, n->ino != e->ino || (other && ((n->mode & ~e->mode) & (S_ISUID | S_ISGID)) != 0));
	if (other)
		list_modified(c, d, n->name);
}

static void compare_nodes(struct compare *c, const struct tree_dir *d, struct tree_node *n, const struct snapshot_entry *e)
{
	bool same_kind = (n->mode & S_IFMT) == (e->mode & S_IFMT);
	bool touched = !same_kind || n->ino != e->ino || n->size != e->size || n->mtime != e->mtime || n->ctime != e->ctime ||
		       n->mode != e->mode;
	bool gone = false;

	n->cookie = COOKIE_NEW;
	if (same_kind && S_ISDIR(n->mode)) {
		compare_dirs(c, d, n, e);
		return;
	}
	if (S_ISDIR(e->mode))
		list_deleted_below(c, d, e);
	/* A link with the old text is the owner's link, whatever else was done to it. */
	if (S_ISLNK(n->mode) && same_kind ? !same_target(c, d, n, e) : touched) {
		touched = true;
		gone = sweep_node(&c->sweep, d, n, !same_kind || n->ino != e->ino);
	}
	if (gone)
		list_deleted(c, d, n->name);
	else if (touched)
		list_modified(c, d, n->name);
}

/* Without knowing what was there before: the change time says what was touched. */
static void compare_blindly(struct compare *c, const struct tree_dir *d, struct tree_node *nodes, size_t count)
{
	c->known = false;
	for (size_t i = 0; i < count; i++) {
		nodes[i].cookie = COOKIE_UNKNOWN;
		if (nodes[i].ctime >= c->before->taken)
			(void) sweep_node(&c->sweep, d, &nodes[i], false);
	}
}

static int compare_dir(void *ctx, const struct tree_dir *d, struct tree_node *nodes, size_t count)
{
	struct compare *c = ctx;
	const struct snapshot_entry *old = NULL, *end = NULL;
	size_t i = 0;

	if (d->cookie == COOKIE_UNKNOWN || (d->cookie != COOKIE_NEW && !d->whole)) {
		compare_blindly(c, d, nodes, count);
		return 0;
	}
	if (d->cookie != COOKIE_NEW) {
		old = c->t->entries + c->t->entries[d->cookie].first;
		end = old + c->t->entries[d->cookie].count;
	}
	while (i < count || old != end) {
		int order = i == count ? 1 : old == end ? -1 : strcmp(nodes[i].name, c->t->names + old->name);

		if (order < 0)
			created(c, d, &nodes[i++]);
		else if (order > 0)
			deleted(c, d, old++);
		else
			compare_nodes(c, d, &nodes[i++], old++);
	}
	return 0;
}

static int compare_folder(struct compare *c, struct zw_error *e)
{
	struct tree_visitor visitor = {.ctx = c, .dir = compare_dir};
	struct tree_gaps gaps;
	uint32_t cookie = c->t->entries[0].count == SNAPSHOT_UNREAD ? COOKIE_UNKNOWN : 0;
	int r = tree_walk(c->m->fd, &visitor, cookie, true, &gaps);

	if (c->sweep.failures > 0)
		e = NULL; /* it has its sentence */
	if (r < 0)
		return zw_errno(e, -r, "cannot look through %s after the run", c->m->target);
	if (gaps.count > 0) {
		c->known = false;
		return zw_errno(e, gaps.err, "cannot look at %s/%s after the run", c->m->target, gaps.path);
	}
	return 0;
}

static int compare_file(struct compare *c, struct zw_error *e)
{
	const struct tree_dir here = {.path = ""};
	const struct snapshot_entry *old = &c->t->entries[0];
	struct stat st;

	if (fstat(c->m->fd, &st) < 0)
		return zw_errno(e, errno, "cannot look at %s after the run", c->m->target);
	if (old->size == (uint64_t) st.st_size && old->mtime == st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec &&
	    old->ctime == st.st_ctim.tv_sec * INT64_C(1000000000) + st.st_ctim.tv_nsec)
		return 0;
	list_modified(c, &here, "");
	sweep_file(&c->sweep, c->m->fd, st.st_mode & 07777);
	return 0;
}

static int compare_mount(const struct snapshot *before, size_t i, const struct plan_mount *m, struct changes *ret,
			 struct zw_error *e)
{
	struct compare c = {
	    .before = before, .t = &before->trees[i], .m = m, .out = ret, .known = before->wanted && !before->trees[i].truncated};
	cleanup_fd int root = -EBADF;
	int r;

	if (m->is_dir) {
		root = openat(m->fd, ".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (root < 0)
			return zw_errno(e, errno, "cannot open %s after the run", m->target);
	}
	c.sweep = (struct sweep){
	    .kind = m->kind, .source = m->source, .target = m->target, .root = m->is_dir ? root : m->fd, .changes = ret, .e = e};
	r = m->is_dir ? compare_folder(&c, e) : compare_file(&c, e);
	if (r == 0 && c.sweep.failures > 0)
		r = -EPERM;
	ret->known &= c.known;
	return r;
}

int snapshot_compare(struct snapshot *before, const struct plan *plan, struct changes *ret, struct zw_error *e)
{
	int result = 0;

	if (before == NULL) {
		ret->known = plan->audit_files != AUDIT_FILES_OFF;
		return 0;
	}
	ret->known = before->wanted;
	for (size_t i = 0; i < plan->mount_count; i++) {
		int r = 0;

		if (snapshot_covers(&plan->mounts[i]))
			r = compare_mount(before, i, &plan->mounts[i], ret, result < 0 ? NULL : e);
		if (r < 0 && result == 0)
			result = r;
	}
	if (!ret->known) {
		list_done(&ret->created);
		list_done(&ret->modified);
		list_done(&ret->deleted);
	}
	list_sort(&ret->created);
	list_sort(&ret->modified);
	list_sort(&ret->deleted);
	return result;
}
