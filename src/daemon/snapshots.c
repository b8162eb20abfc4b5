#include "daemon/snapshots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/archive.h"
#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/mover.h"

static const char folder_name[] = "snapshots";

#define COLUMNS "number, file, name, tag, sandbox, created, named, document"

/* ---- Rows. ---- */

bool snapshot_is_name(const char *text)
{
	size_t size = strlen(text);

	return size > 0 && size < SNAPSHOT_NAME_SIZE &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == size;
}

void snapshot_done(struct snapshot *s)
{
	free(s->sandbox);
	json_decref(s->policy);
	json_decref(s->metadata);
	json_decref(s->env);
	json_decref(s->extras);
	*s = (struct snapshot){0};
}

static const char *text_of(sqlite3_stmt *q, int column)
{
	const char *text = (const char *) sqlite3_column_text(q, column);

	return text != NULL ? text : "";
}

static bool copy_text(sqlite3_stmt *q, int column, char *ret, size_t size)
{
	const char *text = text_of(q, column);

	if (text[0] == '\0' || strlen(text) >= size)
		return false;
	(void) snprintf(ret, size, "%s", text);
	return true;
}

static bool read_sizes(const json_t *list, struct snapshot *s)
{
	s->count = json_array_size(list);
	if (s->count == 0 || s->count > CARRY_ROOTS_MAX)
		return false;
	for (size_t i = 0; i < s->count; i++) {
		json_int_t size = json_integer_value(json_array_get(list, i));

		if (size <= 0)
			return false;
		s->sizes[i] = (uint64_t) size;
	}
	return true;
}

static bool read_document(const json_t *m, struct snapshot *s)
{
	json_t *policy = json_object_get(m, "policy"), *metadata = json_object_get(m, "metadata"),
	       *env = json_object_get(m, "env");

	/* The files are in the form of this machine and this version alone. */
	if (json_integer_value(json_object_get(m, "archive")) != ARCHIVE_VERSION || !json_is_string(policy) ||
	    !json_is_object(metadata) || !json_is_object(env) || !read_sizes(json_object_get(m, "sizes"), s))
		return false;
	s->policy = json_incref(policy);
	s->metadata = json_incref(metadata);
	s->env = json_incref(env);
	s->extras = json_is_object(json_object_get(m, "extras")) ? json_incref(json_object_get(m, "extras")) : NULL;
	return true;
}

/* -EPROTO: the row is none of this version. */
static int read_row(sqlite3_stmt *q, struct snapshot *ret)
{
	struct snapshot s = {.number = sqlite3_column_int64(q, 0),
			     .created = (usec_t) sqlite3_column_int64(q, 5),
			     .named = sqlite3_column_int(q, 6) != 0};
	json_t *m = json_loads(text_of(q, 7), JSON_REJECT_DUPLICATES, NULL);
	bool good = copy_text(q, 1, s.file, sizeof s.file) && copy_text(q, 2, s.key.name, sizeof s.key.name) &&
		    copy_text(q, 3, s.key.tag, sizeof s.key.tag) && strchr(s.file, '/') == NULL && read_document(m, &s);

	json_decref(m);
	if (!good) {
		snapshot_done(&s);
		return -EPROTO;
	}
	s.sandbox = xstrdup(text_of(q, 4));
	*ret = s;
	return 0;
}

static sqlite3_stmt *prepare(struct daemon *d, const char *sql, const struct snapshot_key *key)
{
	sqlite3_stmt *q = store_prepare(&d->store, sql, NULL);

	if (q != NULL && (sqlite3_bind_text(q, 1, key->name, -1, SQLITE_STATIC) != SQLITE_OK ||
			  sqlite3_bind_text(q, 2, key->tag, -1, SQLITE_STATIC) != SQLITE_OK)) {
		(void) sqlite3_finalize(q); /* the binding's error is known */
		q = NULL;
	}
	return q;
}

int snapshot_find(struct daemon *d, const struct snapshot_key *key, struct snapshot *ret)
{
	cleanup_statement sqlite3_stmt *q = prepare(d, "SELECT " COLUMNS " FROM snapshots WHERE name = ? AND tag = ?", key);
	int r = q != NULL ? store_step(&d->store, q, NULL) : -store_errno(&d->store);

	return r < 0 ? r : r == 0 ? -ENOENT : read_row(q, ret);
}

int64_t snapshot_count(struct daemon *d)
{
	cleanup_statement sqlite3_stmt *q = store_prepare(&d->store, "SELECT count(*) FROM snapshots", NULL);

	if (q == NULL || store_step(&d->store, q, NULL) != 1)
		return -store_errno(&d->store);
	return sqlite3_column_int64(q, 0);
}

int snapshot_list(struct daemon *d, const struct snapshot_filter *f, int64_t limit,
		  void (*call)(void *arg, int64_t number, const struct snapshot_key *key, bool named), void *arg)
{
	cleanup_statement sqlite3_stmt *q =
	    store_prepare(&d->store,
			  "SELECT number, name, tag, named FROM snapshots WHERE (?1 IS NULL OR sandbox = ?1)"
			  " AND (?2 IS NULL OR name = ?2) AND (?3 IS NULL OR tag = ?3) AND (?4 = 0 OR number < ?4) ORDER BY "
			  "number DESC LIMIT ?5",
			  NULL);
	int r = q != NULL ? SQLITE_OK : SQLITE_NOMEM;

	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 1, f->sandbox, -1, SQLITE_STATIC); /* NULL is NULL */
	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 2, f->name, -1, SQLITE_STATIC);
	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 3, f->tag, -1, SQLITE_STATIC);
	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 4, f->below);
	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 5, limit);
	if (r != SQLITE_OK)
		return -ENOMEM;
	for (r = store_step(&d->store, q, NULL); r == 1; r = store_step(&d->store, q, NULL)) {
		struct snapshot_key key;

		if (copy_text(q, 1, key.name, sizeof key.name) && copy_text(q, 2, key.tag, sizeof key.tag))
			call(arg, sqlite3_column_int64(q, 0), &key, sqlite3_column_int(q, 3) != 0);
	}
	return r;
}

static char *document_of(const struct snapshot *s)
{
	json_t *sizes = json_array(), *m;
	char *text;

	for (size_t i = 0; i < s->count; i++)
		(void) json_array_append_new(sizes, json_integer((json_int_t) s->sizes[i]));
	m = json_pack("{si sO sO sO sO? so}", "archive", ARCHIVE_VERSION, "policy", s->policy, "metadata", s->metadata, "env",
		      s->env, "extras", s->extras, "sizes", sizes);
	text = m != NULL ? json_dumps(m, JSON_COMPACT) : NULL;
	json_decref(m);
	return text;
}

static int insert(struct daemon *d, const struct snapshot *s)
{
	cleanup_free char *document = document_of(s);
	cleanup_statement sqlite3_stmt *q =
	    prepare(d,
		    "INSERT OR REPLACE INTO snapshots (name, tag, file, sandbox, created, named, document)"
		    " VALUES (?, ?, ?, ?, ?, ?, ?)",
		    &s->key);
	int r = SQLITE_OK;

	if (q == NULL || document == NULL)
		return -ENOMEM;
	r = sqlite3_bind_text(q, 3, s->file, -1, SQLITE_STATIC);
	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 4, s->sandbox, -1, SQLITE_STATIC);
	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 5, (sqlite3_int64) s->created);
	r = r != SQLITE_OK ? r : sqlite3_bind_int(q, 6, s->named);
	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 7, document, -1, SQLITE_STATIC);
	if (r != SQLITE_OK)
		return -ENOMEM;
	return store_step_durably(&d->store, q, NULL) < 0 ? -store_errno(&d->store) : 0;
}

/* The file of one, "" when there is none. */
static int file_of(struct daemon *d, const struct snapshot_key *key, char ret[SNAPSHOT_FILE_SIZE])
{
	cleanup_statement sqlite3_stmt *q = prepare(d, "SELECT file FROM snapshots WHERE name = ? AND tag = ?", key);
	int r = q != NULL ? store_step(&d->store, q, NULL) : -EIO;

	ret[0] = '\0';
	if (r == 1 && (!copy_text(q, 0, ret, SNAPSHOT_FILE_SIZE) || strchr(ret, '/') != NULL))
		ret[0] = '\0';
	return r;
}

int snapshot_keep(struct daemon *d, const struct snapshot *s)
{
	char before[SNAPSHOT_FILE_SIZE];
	int r = file_of(d, &s->key, before);

	if (r >= 0)
		r = insert(d, s);
	if (r >= 0 && before[0] != '\0')
		(void) unlinkat(d->snapshots->folder, before, 0); /* what stays goes at the next start */
	return r < 0 ? r : 0;
}

int snapshot_remove(struct daemon *d, const struct snapshot_key *key)
{
	char file[SNAPSHOT_FILE_SIZE];
	cleanup_statement sqlite3_stmt *q = NULL;
	int r = file_of(d, key, file);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	q = prepare(d, "DELETE FROM snapshots WHERE name = ? AND tag = ?", key);
	if (q == NULL || store_step_durably(&d->store, q, NULL) < 0)
		return -store_errno(&d->store);
	if (file[0] != '\0' && unlinkat(d->snapshots->folder, file, 0) < 0 && errno != ENOENT)
		dlog(d->log, DLOG_WARNING, "a snapshot's file stays until the next start", dlog_text("why", strerror(errno)));
	return 0;
}

/* ---- The start: rows without a file go, and files without a row. ---- */

/* 1: there is such a row; 0: there is none; negative errno. */
static int has_row(struct daemon *d, const char *file)
{
	cleanup_statement sqlite3_stmt *q = store_prepare(&d->store, "SELECT 1 FROM snapshots WHERE file = ?", NULL);

	if (q == NULL || sqlite3_bind_text(q, 1, file, -1, SQLITE_STATIC) != SQLITE_OK)
		return -ENOMEM;
	return store_step(&d->store, q, NULL);
}

static int remove_strays(struct daemon *d, int folder, struct zw_error *e)
{
	int copy = fcntl(folder, F_DUPFD_CLOEXEC, 3);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;

	if (dir == NULL) {
		int error = errno;

		fd_close(&copy);
		return zw_errno(e, error, "cannot read the folder of snapshots in the state directory");
	}
	for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && has_row(d, entry->d_name) == 0)
			(void) unlinkat(folder, entry->d_name, 0); /* a folder is none of ours */
	(void) closedir(dir);
	return 0;
}

static int remove_lost(struct daemon *d, int folder, struct zw_error *e)
{
	cleanup_statement sqlite3_stmt *q = store_prepare(&d->store, "SELECT file FROM snapshots", e);
	cleanup_statement sqlite3_stmt *gone = store_prepare(&d->store, "DELETE FROM snapshots WHERE file = ?", e);
	int r = q != NULL && gone != NULL ? store_step(&d->store, q, e) : -EIO;

	for (; r == 1; r = store_step(&d->store, q, e)) {
		struct stat st;

		if (fstatat(folder, text_of(q, 0), &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		dlog(d->log, DLOG_WARNING, "a snapshot has lost its file, and goes", dlog_text("file", text_of(q, 0)));
		if (sqlite3_bind_text(gone, 1, text_of(q, 0), -1, SQLITE_TRANSIENT) == SQLITE_OK)
			(void) store_step(&d->store, gone, NULL); /* it is tried again at each start */
		(void) sqlite3_reset(gone);
	}
	return r;
}

int snapshots_start(struct daemon *d, struct zw_error *e)
{
	struct snapshots *all = xcalloc(1, sizeof *all);
	int r;

	*all = (struct snapshots){.folder = -EBADF};
	d->snapshots = all;
	all->movers = movers_new(d->base);
	if (mkdirat(d->state.fd, folder_name, 0700) < 0 && errno != EEXIST)
		return zw_errno(e, errno, "cannot make the folder of snapshots in the state directory");
	all->folder = openat(d->state.fd, folder_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (all->folder < 0)
		return zw_errno(e, errno, "cannot open the folder of snapshots in the state directory");
	r = remove_lost(d, all->folder, e);
	return r < 0 ? r : remove_strays(d, all->folder, e);
}

struct snapshots *snapshots_free(struct snapshots *all)
{
	if (all == NULL)
		return NULL;
	while (all->takes != NULL)
		snapshot_take_cancel(all->takes);
	while (all->uses != NULL)
		snapshot_use_cancel(all->uses);
	all->movers = movers_free(all->movers);
	fd_close(&all->folder);
	free(all);
	return NULL;
}
