/* What survives the daemon: one SQLite database in the state directory, in WAL mode, so that `zwinger keys` and a running daemon
 * work on it at the same time. Everything is on disk when a function returns success, as far as a kill of the process goes; a
 * loss of power may take the last moments.
 *
 * Tables are made by the steps of one list (store.c), each run once; the number of steps taken is the schema's version. Steps are
 * only ever added. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct store {
	sqlite3 *db;
	char *path;
};

/* `dir` is the absolute path of the state directory. -EPROTO: made by a newer zwinger. */
int store_open(const char *dir, struct store *ret, struct zw_error *e);
/* One in memory, that nobody else sees and nothing keeps: for tests. */
int store_open_memory(struct store *ret, struct zw_error *e);
void store_done(struct store *s);

#define cleanup_statement __attribute__((cleanup(store_statement_cleanup)))
static inline void store_statement_cleanup(sqlite3_stmt **s)
{
	(void) sqlite3_finalize(*s); /* repeats the error of the last step, if there was one */
}

/* NULL with a sentence. */
sqlite3_stmt *store_prepare(struct store *s, const char *sql, struct zw_error *e);
/* 1: a row; 0: the end; or negative errno with a sentence. */
int store_step(struct store *s, sqlite3_stmt *statement, struct zw_error *e);
/* The same for a change that must also survive a loss of power. */
int store_step_durably(struct store *s, sqlite3_stmt *statement, struct zw_error *e);
/* Runs statements without values or rows. */
int store_run(struct store *s, const char *sql, struct zw_error *e);
/* What SQLite says now, as an errno: ENOSPC, EBUSY, ENOMEM, EROFS, else EIO. */
int store_errno(const struct store *s);
/* Has another process changed the database since the last call? The first call says yes. */
bool store_changed(struct store *s, int64_t *version);
