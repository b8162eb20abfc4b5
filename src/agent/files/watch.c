/* WATCH by inotify(7). Watches are of single folders, so for a tree there is a table of them, each a name below its parent; a
 * folder that appears is watched, then searched, since things can have been put in before it was watched.
 *
 * What WRITE does shows as a rename of its own file: it is told as what was meant, and the file's own name is never told. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/files/files.h"

#define WATCHED                                                                                                                  \
	(IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF |           \
	 IN_ONLYDIR | IN_EXCL_UNLINK)

enum { ROOT = 0 };

struct folder {
	int wd; /* 0: free */
	uint32_t parent, serial, parent_serial;
	bool search; /* still to be looked through for folders */
	bool report; /* and what is found is news */
	char name[256];
};

struct watch {
	size_t used; /* no folder lies at or behind this one */
	uint32_t serial;
	bool ready;
	bool full; /* told that something is not watched */
	uint32_t temp_cookie;
	char temp[TEMP_NAME_SIZE]; /* the rename under way, "" none */
	uint32_t moved; /* a folder that has moved away, and may be found again by the cookie in the next event; ROOT: none */
	uint32_t moved_cookie;
	int last_wd; /* of the write told last in this round, 0 none */
	char last_name[256];
	struct folder folders[FILES_WATCH_FOLDERS];
};

static void overflow(struct files *f, struct job *j)
{
	answer_event(f, j, FILES_EVENT_OVERFLOW, "", false, NULL);
}

/* ---- The table. ---- */

static size_t find_wd(const struct watch *w, int wd)
{
	for (size_t i = 0; i < w->used; i++)
		if (w->folders[i].wd == wd)
			return i;
	return FILES_WATCH_FOLDERS;
}

static size_t free_folder(struct watch *w)
{
	size_t i = find_wd(w, 0);

	if (i < FILES_WATCH_FOLDERS)
		return i;
	return w->used < FILES_WATCH_FOLDERS ? w->used++ : FILES_WATCH_FOLDERS;
}

/* Writes the path of `name` ("": itself) in folder `at` to the end of `text`. NULL: it has none any more, or one too long. */
static const char *path_in(const struct watch *w, const struct job *j, size_t at, const char *name, char text[FILES_PATH_MAX])
{
	size_t left = FILES_PATH_MAX - 1, root = strcmp(j->path, "/") == 0 ? 0 : strlen(j->path);

	text[left] = '\0';
	while (at != ROOT || name[0] != '\0') {
		const struct folder *v = &w->folders[at];
		size_t size = strlen(name);

		if (size > 0) {
			if (left < root + size + 1)
				return NULL;
			left -= size;
			memcpy(text + left, name, size);
			text[--left] = '/';
		}
		if (at == ROOT)
			break;
		name = v->name;
		if (v->wd == 0 || w->folders[v->parent].wd == 0 || w->folders[v->parent].serial != v->parent_serial)
			return NULL;
		at = v->parent;
	}
	left -= root;
	memcpy(text + left, j->path, root);
	return text[left] != '\0' ? text + left : "/";
}

static void tell(struct files *f, struct job *j, enum files_event_kind kind, size_t at, const char *name, bool folder)
{
	char text[FILES_PATH_MAX];
	const char *path = path_in(j->state_map, j, at, name, text);
	struct described d;
	bool wanted = (j->flags & FILES_ENTRIES) != 0 && kind != FILES_EVENT_REMOVE && kind != FILES_EVENT_RENAME;

	if (path == NULL)
		return;
	wanted = wanted && describe(path, j->flags, &d) == 0;
	answer_event(f, j, kind, path, folder, wanted ? &d : NULL);
}

static void not_watched(struct files *f, struct job *j)
{
	struct watch *w = j->state_map;

	if (!w->full)
		overflow(f, j);
	w->full = true;
}

/* Watches the folder `name` in folder `parent`. What has gone again, or may not be read, is not watched. */
static void add_folder(struct files *f, struct job *j, size_t parent, const char *name, bool report)
{
	struct watch *w = j->state_map;
	char text[FILES_PATH_MAX];
	const char *path = path_in(w, j, parent, name, text);
	size_t at, size = strlen(name) + 1;
	int wd;

	if (path == NULL || size > sizeof w->folders[0].name)
		return;
	wd = inotify_add_watch(j->file, path, WATCHED | IN_DONT_FOLLOW);
	if (wd < 0) {
		if (errno == ENOSPC || errno == ENOMEM)
			not_watched(f, j);
		return;
	}
	at = find_wd(w, wd); /* known already when it was found twice, or has moved */
	if (at == ROOT)
		return;
	if (at == FILES_WATCH_FOLDERS)
		at = free_folder(w);
	if (at == FILES_WATCH_FOLDERS) {
		(void) inotify_rm_watch(j->file, wd);
		not_watched(f, j);
		return;
	}
	w->folders[at].wd = wd;
	w->folders[at].serial = ++w->serial;
	w->folders[at].parent = (uint32_t) parent;
	w->folders[at].parent_serial = w->folders[parent].serial;
	w->folders[at].search = true;
	w->folders[at].report = report;
	memcpy(w->folders[at].name, name, size);
}

static bool lies_below(const struct watch *w, size_t at, size_t above)
{
	for (int levels = 0; at != ROOT && levels < FILES_PATH_MAX / 2; levels++) {
		const struct folder *v = &w->folders[at];

		if (at == above)
			return true;
		if (v->wd == 0 || w->folders[v->parent].serial != v->parent_serial)
			return false;
		at = v->parent;
	}
	return at == above;
}

static size_t find_child(const struct watch *w, size_t parent, const char *name)
{
	for (size_t i = 1; i < w->used; i++)
		if (w->folders[i].wd != 0 && w->folders[i].parent == parent &&
		    w->folders[i].parent_serial == w->folders[parent].serial && strcmp(w->folders[i].name, name) == 0)
			return i;
	return FILES_WATCH_FOLDERS;
}

/* It has moved away. Nothing is lost of what happens in it when the next event says that it is still below us: watches stay with
 * their folders. */
static void move_away(struct watch *w, size_t parent, const char *name, uint32_t cookie)
{
	size_t at = find_child(w, parent, name);

	w->moved = at != FILES_WATCH_FOLDERS ? (uint32_t) at : ROOT;
	w->moved_cookie = cookie;
}

/* False: it is not the one that has moved away. */
static bool move_here(struct watch *w, size_t parent, const char *name, uint32_t cookie)
{
	size_t size = strlen(name) + 1;
	struct folder *v = &w->folders[w->moved];

	if (w->moved == ROOT || cookie != w->moved_cookie || v->wd == 0 || size > sizeof v->name)
		return false;
	v->parent = (uint32_t) parent;
	v->parent_serial = w->folders[parent].serial;
	memcpy(v->name, name, size);
	w->moved = ROOT;
	return true;
}

/* It has moved out of our sight. */
static void drop_moved(struct job *j)
{
	struct watch *w = j->state_map;
	size_t above = w->moved;

	w->moved = ROOT;
	if (above == ROOT)
		return;
	/* The table keeps them until the kernel says that no more comes of them. */
	for (size_t i = w->used; i-- > 1;)
		if (w->folders[i].wd != 0 && lies_below(w, i, above))
			(void) inotify_rm_watch(j->file, w->folders[i].wd);
}

/* ---- Searching. ---- */

static bool is_folder(int fd, const struct entry_head *e)
{
	struct stat st;

	if (e->type != 0) /* DT_UNKNOWN */
		return e->type == 4 /* DT_DIR */;
	return fstatat(fd, e->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static void search(struct files *f, struct job *j, size_t at)
{
	struct watch *w = j->state_map;
	struct folder *v = &w->folders[at];
	char text[FILES_PATH_MAX];
	const char *path = path_in(w, j, at, "", text);
	int fd = path != NULL ? open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | (at != ROOT ? O_NOFOLLOW : 0)) : -1;
	ssize_t n;

	v->search = false;
	while (fd >= 0 && (n = read_folder(fd, f->piece, 32768)) > 0) {
		const struct entry_head *e;
		size_t place = 0;

		while ((e = next_entry(f->piece, (size_t) n, &place)) != NULL) {
			bool folder = is_folder(fd, e);

			if (v->report && !is_temp_name(e->name))
				tell(f, j, FILES_EVENT_CREATE, at, e->name, folder);
			if (folder)
				add_folder(f, j, at, e->name, v->report);
		}
	}
	close_fd(&fd);
}

/* One folder, or false when there is none left to search. */
static bool search_next(struct files *f, struct job *j)
{
	struct watch *w = j->state_map;

	for (size_t i = 0; i < w->used; i++) {
		if (w->folders[i].wd == 0 || !w->folders[i].search)
			continue;
		search(f, j, i);
		return true;
	}
	return false;
}

/* ---- Events. ---- */

static bool was_created(const struct files *f, const char *temp)
{
	size_t kept = f->commit_count < COMMITS_KEPT ? f->commit_count : COMMITS_KEPT;

	for (size_t i = 0; i < kept; i++)
		if (strcmp(f->commits[i].temp, temp) == 0)
			return f->commits[i].created;
	return false;
}

/* True when the event is one of WRITE's own, which is dealt with then. */
static bool is_of_write(struct files *f, struct job *j, size_t at, const struct inotify_event *e)
{
	struct watch *w = j->state_map;

	if (is_temp_name(e->name)) {
		if ((e->mask & IN_MOVED_FROM) != 0) {
			w->temp_cookie = e->cookie;
			memcpy(w->temp, e->name, sizeof w->temp);
		}
		return true;
	}
	if ((e->mask & IN_MOVED_TO) == 0 || w->temp[0] == '\0' || e->cookie != w->temp_cookie)
		return false;
	if ((e->mask & IN_ISDIR) != 0) { /* a folder that was moved here across file systems: the rest is as with others */
		w->temp[0] = '\0';
		return false;
	}
	if (was_created(f, w->temp))
		tell(f, j, FILES_EVENT_CREATE, at, e->name, false);
	tell(f, j, FILES_EVENT_WRITE, at, e->name, false);
	w->temp[0] = '\0';
	return true;
}

/* The kernel joins equal events only where nothing lies between: what one round brings is joined here. */
static bool is_repeated(struct watch *w, const struct inotify_event *e)
{
	bool repeated = (e->mask & IN_MODIFY) != 0 && w->last_wd == e->wd && strcmp(w->last_name, e->name) == 0;

	w->last_wd = 0;
	if ((e->mask & IN_MODIFY) != 0 && strlen(e->name) < sizeof w->last_name) {
		w->last_wd = e->wd;
		memcpy(w->last_name, e->name, strlen(e->name) + 1);
	}
	return repeated;
}

static void handle_named(struct files *f, struct job *j, size_t at, const struct inotify_event *e)
{
	static const struct {
		uint32_t mask;
		enum files_event_kind kind;
	} kinds[] = {{IN_CREATE | IN_MOVED_TO, FILES_EVENT_CREATE},
		     {IN_MODIFY, FILES_EVENT_WRITE},
		     {IN_DELETE, FILES_EVENT_REMOVE},
		     {IN_MOVED_FROM, FILES_EVENT_RENAME},
		     {IN_ATTRIB, FILES_EVENT_ATTRIBUTES}};
	bool folder = (e->mask & IN_ISDIR) != 0, deep = folder && (j->flags & FILES_RECURSIVE) != 0;

	if (is_of_write(f, j, at, e) || is_repeated(j->state_map, e))
		return;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if ((e->mask & kinds[i].mask) != 0)
			tell(f, j, kinds[i].kind, at, e->name, folder);
	if (deep && (e->mask & IN_MOVED_FROM) != 0)
		move_away(j->state_map, at, e->name, e->cookie);
	if (deep && (e->mask & IN_MOVED_TO) != 0 && move_here(j->state_map, at, e->name, e->cookie))
		return;
	if (deep && (e->mask & (IN_CREATE | IN_MOVED_TO)) != 0)
		add_folder(f, j, at, e->name, (e->mask & IN_CREATE) != 0);
}

/* False: the folder that was asked for is gone. */
static bool handle_event(struct files *f, struct job *j, const struct inotify_event *e)
{
	struct watch *w = j->state_map;
	size_t at = find_wd(w, e->wd);

	if ((e->mask & IN_Q_OVERFLOW) != 0) {
		overflow(f, j);
		for (size_t i = 0; i < w->used && (j->flags & FILES_RECURSIVE) != 0; i++)
			w->folders[i].search = true; /* for folders that we were not told of */
		return true;
	}
	if (at == FILES_WATCH_FOLDERS)
		return true;
	if ((e->mask & IN_IGNORED) != 0) {
		w->folders[at].wd = 0;
		w->folders[at].search = false;
		return at != ROOT;
	}
	if (at == ROOT && (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
		tell(f, j, (e->mask & IN_MOVE_SELF) != 0 ? FILES_EVENT_RENAME : FILES_EVENT_REMOVE, ROOT, "", true);
		return false;
	}
	if (e->len > 0)
		handle_named(f, j, at, e);
	return true;
}

static enum step start(struct files *f, struct job *j)
{
	struct watch *w = job_state(j, sizeof *w);

	if (w == NULL)
		return done(f, j, ENOMEM);
	j->file = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (j->file < 0)
		return done(f, j, errno);
	w->folders[ROOT].wd = inotify_add_watch(j->file, j->path, WATCHED);
	if (w->folders[ROOT].wd < 0)
		return done(f, j, errno);
	w->folders[ROOT].search = (j->flags & FILES_RECURSIVE) != 0;
	w->used = 1;
	return STEP_AGAIN;
}

static enum step read_events(struct files *f, struct job *j)
{
	struct watch *w = j->state_map;
	char events[4096] __attribute__((aligned(8))); /* not the piece, which a search needs */
	ssize_t n = read(j->file, events, sizeof events);

	if (n < 0 && errno == EAGAIN) {
		drop_moved(j);
		return wait_for(j, j->file, POLLIN);
	}
	if (n < 0)
		return done(f, j, errno);
	w->last_wd = 0;
	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *e = (const struct inotify_event *) (const void *) (events + at);

		if (w->moved != ROOT && ((e->mask & IN_MOVED_TO) == 0 || e->cookie != w->moved_cookie))
			drop_moved(j);
		if (!handle_event(f, j, e))
			return done(f, j, ENOENT);
		at += (ssize_t) (sizeof *e + e->len);
	}
	return STEP_AGAIN;
}

enum step watch_step(struct files *f, struct job *j)
{
	struct watch *w = j->state_map;

	if (j->fresh)
		return start(f, j);
	if (search_next(f, j))
		return STEP_AGAIN;
	if (!w->ready) {
		w->ready = true;
		answer_opened(f, j, 0, 0, NULL);
	}
	return read_events(f, j);
}
