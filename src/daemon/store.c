#include "daemon/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* What others wait for a writer: the daemon's transactions take well under a millisecond, and those of `zwinger keys` too. */
enum { PATIENCE_MSEC = 2000, APPLICATION_ID = 0x7a77676e /* "zwgn" */ };

static const char *const steps[] = {
    /* 1: keys, and answers that are kept for Idempotency-Key. */
    "CREATE TABLE keys (id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, name TEXT, scope TEXT NOT NULL, created INTEGER NOT NULL,"
    " expires INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE TABLE answers (id BLOB PRIMARY KEY, request BLOB NOT NULL, created INTEGER NOT NULL, status INTEGER NOT NULL,"
    " head TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL) STRICT;"
    "CREATE INDEX answers_created ON answers (created);",
    /* 2: records of sandboxes; ended is 0 while it lives. */
    "CREATE TABLE sandboxes (id TEXT PRIMARY KEY, number INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,"
    " ended INTEGER NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, document TEXT NOT NULL) STRICT;"
    "CREATE INDEX sandboxes_number ON sandboxes (number);",
    /* 3: snapshots; each has a file, and a number that is never given again. */
    "CREATE TABLE snapshots (number INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL UNIQUE, name TEXT NOT NULL,"
    " tag TEXT NOT NULL, named INTEGER NOT NULL, sandbox TEXT NOT NULL, created INTEGER NOT NULL, document TEXT NOT NULL,"
    " UNIQUE (name, tag)) STRICT;",
};

int store_errno(const struct store *s)
{
	switch (sqlite3_errcode(s->db)) {
	case SQLITE_FULL:
		return ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return EBUSY;
	case SQLITE_NOMEM:
		return ENOMEM;
	case SQLITE_READONLY:
		return EROFS;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return EACCES;
	default:
		return EIO;
	}
}

static int failed(const struct store *s, struct zw_error *e)
{
	return zw_error(e, store_errno(s), "the database %s does not work: %s", s->path, sqlite3_errmsg(s->db));
}

int store_run(struct store *s, const char *sql, struct zw_error *e)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(s, e);
}

sqlite3_stmt *store_prepare(struct store *s, const char *sql, struct zw_error *e)
{
	sqlite3_stmt *statement = NULL;

	if (sqlite3_prepare_v2(s->db, sql, -1, &statement, NULL) != SQLITE_OK)
		(void) failed(s, e);
	return statement;
}

int store_step(struct store *s, sqlite3_stmt *statement, struct zw_error *e)
{
	int r = sqlite3_step(statement);

	return r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : failed(s, e);
}

int store_step_durably(struct store *s, sqlite3_stmt *statement, struct zw_error *e)
{
	int r = store_run(s, "PRAGMA synchronous = FULL", e);

	if (r == 0)
		r = store_step(s, statement, e);
	(void) store_run(s, "PRAGMA synchronous = NORMAL", NULL); /* what follows is then only slower */
	return r;
}

static int number_of(struct store *s, const char *pragma, int64_t *ret, struct zw_error *e)
{
	cleanup_statement sqlite3_stmt *q = store_prepare(s, pragma, e);
	int r = q != NULL ? store_step(s, q, e) : -EIO;

	if (r < 0)
		return e != NULL ? e->code : -EIO;
	*ret = r == 1 ? sqlite3_column_int64(q, 0) : 0;
	return 0;
}

bool store_changed(struct store *s, int64_t *version)
{
	int64_t now;

	if (number_of(s, "PRAGMA data_version", &now, NULL) < 0 || now == *version)
		return false;
	*version = now;
	return true;
}

static int take_steps(struct store *s, struct zw_error *e)
{
	char pragma[64];
	int64_t version = 0;
	int r = number_of(s, "PRAGMA user_version", &version, e);

	if (r < 0)
		return r;
	if (version < 0 || (size_t) version > ARRAY_SIZE(steps))
		return zw_error(e, EPROTO, "%s was made by a newer zwinger (its schema is %lld, this one knows %zu)", s->path,
				(long long) version, ARRAY_SIZE(steps));
	for (size_t i = (size_t) version; i < ARRAY_SIZE(steps) && r == 0; i++)
		r = store_run(s, steps[i], e);
	(void) snprintf(pragma, sizeof pragma, "PRAGMA user_version = %zu", ARRAY_SIZE(steps));
	return r == 0 && (size_t) version < ARRAY_SIZE(steps) ? store_run(s, pragma, e) : r;
}

static int settle(struct store *s, struct zw_error *e)
{
	char pragma[64];
	int r;

	(void) sqlite3_busy_timeout(s->db, PATIENCE_MSEC);
	/* Nothing of what the database says is a program: no trusted schema, no extension. */
	(void) sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void) sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	(void) snprintf(pragma, sizeof pragma, "PRAGMA application_id = %d", APPLICATION_ID);
	r = store_run(
	    s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON;", e);
	if (r == 0)
		r = store_run(s, "BEGIN IMMEDIATE", e);
	if (r < 0)
		return r;
	r = take_steps(s, e);
	if (r == 0)
		r = store_run(s, pragma, e);
	if (r == 0)
		return store_run(s, "COMMIT", e);
	(void) store_run(s, "ROLLBACK", NULL); /* the first fault is the one to tell */
	return r;
}

static int open_at(const char *path, struct store *ret, struct zw_error *e)
{
	struct store s = {.path = xstrdup(path)};
	int r = 0;

	if (sqlite3_open_v2(s.path, &s.db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX,
			    NULL) != SQLITE_OK)
		r = s.db != NULL ? failed(&s, e) : zw_error(e, ENOMEM, "there is no memory for the database");
	else
		r = settle(&s, e);
	if (r < 0) {
		store_done(&s);
		return r;
	}
	*ret = s;
	return 0;
}

int store_open(const char *dir, struct store *ret, struct zw_error *e)
{
	cleanup_free char *path = xasprintf("%s/zwinger.db", dir);

	return open_at(path, ret, e);
}

int store_open_memory(struct store *ret, struct zw_error *e)
{
	return open_at(":memory:", ret, e);
}

void store_done(struct store *s)
{
	(void) sqlite3_close(s->db);
	free(s->path);
	*s = (struct store){0};
}
