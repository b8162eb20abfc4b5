/* LIST: depth first, names in the order of their bytes, a folder before what is in it.
 *
 * Folders can be larger than our memory, so no level keeps all its names: a scan keeps the smallest ones behind the last that was
 * told, as many as fit (a batch), and another scan follows when those are used up. Levels share one store like a stack; each may
 * take half of what the levels above have left, and a little that is always its own. Where a page ends, the path of its last
 * entry is enough to go on: each of its components is what its level told last. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/files.h"

enum {
	TEXT_SHARED = 256 * 1024,
	TEXT_OWN = 1024, /* of each level: three of the longest names */
	NAMES_SHARED = 16384,
	NAMES_OWN = 4,
	ENTRIES_A_STEP = 64,
};

struct level {
	size_t text, name;         /* where its batch begins in the store */
	size_t text_end, name_end; /* and ends */
	size_t next;               /* the first name not told yet */
	size_t path_size;          /* of its folder, in `path` */
	bool more;                 /* names behind the batch */
	char last[256];            /* told last, "" none */
};

struct list {
	size_t depth; /* levels in use */
	bool scanning;
	bool dropped; /* this scan has left names out, all of them behind `limit` */
	char limit[256];
	size_t bytes, entries;
	struct level levels[FILES_DEPTH_MAX];
	char path[FILES_PATH_MAX]; /* of the entry or folder at hand */
	const char *names[NAMES_SHARED + FILES_DEPTH_MAX * NAMES_OWN];
	char text[TEXT_SHARED + FILES_DEPTH_MAX * TEXT_OWN];
};

static struct level *top(struct list *l)
{
	return &l->levels[l->depth - 1];
}

static size_t share(size_t shared, size_t used)
{
	return used < shared ? (shared - used) / 2 : 0;
}

/* ---- Batches. ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static int by_place(const void *a, const void *b)
{
	const char *x = *(const char *const *) a, *y = *(const char *const *) b;

	return x < y ? -1 : x > y;
}

static void sort(struct list *l, const struct level *v, int (*compare)(const void *, const void *))
{
	qsort(l->names + v->name, v->name_end - v->name, sizeof l->names[0], compare);
}

/* Keeps the smaller half, moved together. */
static void drop_half(struct list *l, struct level *v)
{
	size_t count = v->name_end - v->name;

	sort(l, v, by_name);
	v->name_end = v->name + (count + 1) / 2;
	memcpy(l->limit, l->names[v->name_end - 1], strlen(l->names[v->name_end - 1]) + 1);
	sort(l, v, by_place);
	v->text_end = v->text;
	for (size_t i = v->name; i < v->name_end; i++) {
		size_t size = strlen(l->names[i]) + 1;

		memmove(l->text + v->text_end, l->names[i], size);
		l->names[i] = l->text + v->text_end;
		v->text_end += size;
	}
	l->dropped = true;
}

/* Makes room for one more name. A level's own share holds four names, so there is some when half is gone. */
static void make_room(struct list *l, struct level *v, size_t size)
{
	size_t text_most = share(TEXT_SHARED, v->text) + TEXT_OWN, names_most = share(NAMES_SHARED, v->name) + NAMES_OWN;

	while (v->text_end - v->text + size > text_most || v->name_end - v->name + 1 > names_most)
		drop_half(l, v);
}

static bool is_beyond(const struct list *l, const char *name)
{
	return l->dropped && strcmp(name, l->limit) > 0;
}

static void add_name(struct list *l, struct level *v, const char *name)
{
	size_t size = strlen(name) + 1;

	/* Longer ones exist where names are translated to UTF-8; no path finds those. */
	if (size > sizeof v->last || strcmp(name, v->last) <= 0 || is_beyond(l, name))
		return;
	make_room(l, v, size);
	if (is_beyond(l, name))
		return;
	memcpy(l->text + v->text_end, name, size);
	l->names[v->name_end++] = l->text + v->text_end;
	v->text_end += size;
}

/* ---- Scans. ---- */

/* Goes into the folder at `path`. Not an error: one that may not be read is listed, not what is in it. */
static bool begin_scan(struct list *l, struct job *j)
{
	int follow = l->depth == 1 ? 0 : O_NOFOLLOW;

	l->path[top(l)->path_size] = '\0';
	close_fd(&j->file);
	j->file = open(l->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | follow);
	top(l)->text_end = top(l)->text;
	top(l)->name_end = top(l)->next = top(l)->name;
	top(l)->more = false;
	l->scanning = j->file >= 0;
	l->dropped = false;
	return l->scanning;
}

static bool push(struct list *l, size_t path_size)
{
	struct level *v;

	if (l->depth == FILES_DEPTH_MAX || path_size + 1 >= FILES_PATH_MAX)
		return false;
	v = &l->levels[l->depth];
	v->text = l->depth > 0 ? top(l)->text_end : 0;
	v->name = l->depth > 0 ? top(l)->name_end : 0;
	v->text_end = v->text;
	v->name_end = v->next = v->name;
	v->path_size = path_size;
	v->last[0] = '\0';
	v->more = true;
	l->depth++;
	return true;
}

static enum step scan(struct files *f, struct list *l, struct job *j)
{
	struct level *v = top(l);
	ssize_t n = read_folder(j->file, f->piece, 32768);
	const struct entry_head *e;
	size_t at = 0;

	while (n > 0 && (e = next_entry(f->piece, (size_t) n, &at)) != NULL)
		add_name(l, v, e->name);
	if (n > 0)
		return STEP_AGAIN;
	close_fd(&j->file);
	l->scanning = false;
	v->more = l->dropped;
	sort(l, v, by_name);
	return STEP_AGAIN;
}

/* ---- Going through. ---- */

static bool is_own_temp(const struct files *f, const char *name)
{
	if (!is_temp_name(name))
		return false;
	for (size_t i = 0; i < f->used; i++)
		if (f->jobs[i].used && strcmp(f->jobs[i].temp, name) == 0)
			return true;
	return false;
}

/* Tells the next name of the top level. False: the page is full. */
static bool tell_next(struct files *f, struct list *l, struct job *j)
{
	struct level *v = top(l);
	const char *name = l->names[v->next];
	struct described d;
	size_t size;

	if (is_own_temp(f, name)) {
		v->next++;
		return true;
	}
	l->path[v->path_size] = '\0';
	if (path_join(l->path, name, l->path) != 0 || describe(l->path, j->flags, &d) != 0) {
		v->next++; /* gone meanwhile, or out of reach by name */
		return true;
	}
	if (l->entries >= j->limit || l->bytes >= FILES_LIST_BYTES)
		return false;
	size = strlen(name);
	memcpy(v->last, name, size < sizeof v->last ? size + 1 : 0);
	v->next++;
	l->bytes += answer_entry(f, j, &d);
	l->entries++;
	if (S_ISDIR(d.st.st_mode) && l->depth < j->depth)
		(void) push(l, strlen(l->path));
	return true;
}

/* Takes up where a page ended: behind `other`, first with what lies in it. */
static int resume(struct list *l, const struct job *j)
{
	size_t root = strcmp(j->path, "/") == 0 ? 0 : strlen(j->path);
	const char *rest = j->other + root;

	if (strncmp(j->other, j->path, root) != 0 || rest[0] != '/')
		return EINVAL;
	while (rest[0] == '/' && rest[1] != '\0') {
		size_t size = strcspn(rest + 1, "/");

		if (size >= sizeof top(l)->last)
			return EINVAL;
		memcpy(top(l)->last, rest + 1, size);
		top(l)->last[size] = '\0';
		rest += 1 + size;
		if (l->depth >= j->depth)
			return rest[0] == '\0' ? 0 : EINVAL;
		memcpy(l->path, j->other, (size_t) (rest - j->other));
		if (!push(l, (size_t) (rest - j->other)))
			return EINVAL;
	}
	return 0;
}

static enum step start(struct files *f, struct job *j)
{
	struct list *l = job_state(j, sizeof *l);
	int error;

	if (l == NULL)
		return done(f, j, ENOMEM);
	j->depth = j->depth == 0 ? 1 : j->depth < FILES_DEPTH_MAX ? j->depth : FILES_DEPTH_MAX;
	j->limit = j->limit == 0 || j->limit > FILES_LIST_MAX ? FILES_LIST_MAX : j->limit;
	memcpy(l->path, j->path, sizeof l->path);
	(void) push(l, strlen(j->path));
	if (!begin_scan(l, j))
		return done(f, j, errno);
	if (j->other[0] == '\0')
		return STEP_AGAIN;
	close_fd(&j->file); /* it was to see whether it is a folder */
	l->scanning = false;
	top(l)->more = true;
	error = resume(l, j);
	return error != 0 ? done(f, j, error) : STEP_AGAIN;
}

enum step list_step(struct files *f, struct job *j)
{
	struct list *l = j->state_map;

	if (j->fresh)
		return start(f, j);
	if (l->scanning)
		return scan(f, l, j);
	for (unsigned i = 0; i < ENTRIES_A_STEP && l->depth > 0; i++) {
		struct level *v = top(l);

		if (v->next < v->name_end) {
			if (!tell_next(f, l, j))
				return done_with(f, j, 0, FILES_DONE_MORE, NULL);
		} else if (v->more && begin_scan(l, j)) {
			return STEP_AGAIN;
		} else {
			l->depth--;
		}
	}
	return l->depth > 0 ? STEP_AGAIN : done(f, j, 0);
}
