#include "daemon/sandbox-records.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/sandbox-outlive.h"
#include "daemon/sandbox.h"

/* ---- Out. ---- */

static int bind_row(sqlite3_stmt *q, const struct sandbox *s, const char *document)
{
	bool ended = s->state == SANDBOX_ENDED;
	int r = sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC);

	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 2, (sqlite3_int64) s->number);
	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 3, (sqlite3_int64) s->created);
	/* Paused ones have no expiry: 0 here. */
	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 4, s->expires == ZW_UNLIMITED ? 0 : (sqlite3_int64) s->expires);
	r = r != SQLITE_OK ? r : sqlite3_bind_int64(q, 5, ended ? (sqlite3_int64) s->ended_at : 0);
	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 6, ended ? s->end_status : "", -1, SQLITE_STATIC);
	r = r != SQLITE_OK ? r : sqlite3_bind_text(q, 7, ended ? s->end_reason : "", -1, SQLITE_STATIC);
	return r != SQLITE_OK ? r : sqlite3_bind_text(q, 8, document, -1, SQLITE_STATIC);
}

int sandbox_record_keep(const struct sandbox *s)
{
	struct store *store = &s->all->daemon->store;
	json_t *m = sandbox_to_json(s);
	/* For the next daemon, as long as it lives. */
	int carried =
	    s->outlive != NULL && s->state != SANDBOX_ENDED ? json_object_set_new(m, "carried", sandbox_outlive_record(s)) : 0;
	cleanup_free char *document = m != NULL && carried == 0 ? json_dumps(m, JSON_COMPACT) : NULL;
	cleanup_statement sqlite3_stmt *q = NULL;
	struct zw_error e = {0};

	json_decref(m);
	if (document == NULL)
		return -ENOMEM;
	q = store_prepare(store,
			  "INSERT OR REPLACE INTO sandboxes (id, number, created, expires, ended, status, reason, document)"
			  " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			  &e);
	if (q == NULL)
		return e.code < 0 ? e.code : -EIO;
	if (bind_row(q, s, document) != SQLITE_OK)
		return -ENOMEM;
	if (store_step(store, q, &e) < 0) {
		dlog(s->all->daemon->log, DLOG_ERROR, "record not kept", dlog_text("sandbox_id", s->id),
		     dlog_text("why", e.text));
		return e.code < 0 ? e.code : -EIO;
	}
	return 0;
}

void sandbox_record_forget(const struct sandbox *s)
{
	struct store *store = &s->all->daemon->store;
	cleanup_statement sqlite3_stmt *q = store_prepare(store, "DELETE FROM sandboxes WHERE id = ?", NULL);

	if (q == NULL || sqlite3_bind_text(q, 1, s->id, -1, SQLITE_STATIC) != SQLITE_OK)
		return;
	(void) store_step(store, q, NULL); /* what stays goes at a start */
}

/* ---- In. ---- */

static const char *text_of(sqlite3_stmt *q, int column)
{
	const char *text = (const char *) sqlite3_column_text(q, column);

	return text != NULL ? text : "";
}

static json_t *member(const json_t *m, const char *key)
{
	json_t *value = json_object_get(m, key);

	return value != NULL && !json_is_null(value) ? json_incref(value) : NULL;
}

static enum isolation_level level_of(const json_t *m)
{
	const char *name = json_string_value(json_object_get(m, "isolation"));

	for (unsigned i = 0; name != NULL && i <= ISOLATION_WASM; i++)
		if (strcmp(isolation_name((enum isolation_level) i), name) == 0)
			return (enum isolation_level) i;
	return ISOLATION_CONTAINER;
}

static char *text_member(const json_t *m, const char *key)
{
	const char *text = json_string_value(json_object_get(m, key));

	return text != NULL ? xstrdup(text) : NULL;
}

/* NULL: the row is not one of ours. */
static struct sandbox *read_row(sqlite3_stmt *q)
{
	json_t *m = json_loads(text_of(q, 7), JSON_REJECT_DUPLICATES, NULL);
	const char *id = text_of(q, 0), *on_timeout = json_string_value(json_object_get(m, "on_timeout"));
	double timeout = json_number_value(json_object_get(m, "timeout_seconds"));
	struct sandbox *s;

	if (!json_is_object(m) || strlen(id) != SANDBOX_ID_SIZE - 1 || !(timeout >= 0 && timeout < 1e10)) {
		json_decref(m);
		return NULL;
	}
	s = xcalloc(1, sizeof *s);
	*s = (struct sandbox){
	    .number = (uint64_t) sqlite3_column_int64(q, 1),
	    .name = text_member(m, "name"),
	    .policy = {.template = text_member(m, "template"), .isolation = level_of(m)},
	    .metadata = member(m, "metadata"),
	    .env = json_object(),
	    .created = (usec_t) sqlite3_column_int64(q, 2),
	    .expires = (usec_t) sqlite3_column_int64(q, 3),
	    .ended_at = (usec_t) sqlite3_column_int64(q, 4),
	    .timeout = (usec_t) (timeout * (double) USEC_PER_SEC),
	    .pause_on_timeout = on_timeout != NULL && strcmp(on_timeout, "pause") == 0,
	    .limits = member(m, "limits"),
	    .enforcement = member(m, "enforcement"),
	    .usage = member(m, "usage"),
	};
	(void) snprintf(s->id, sizeof s->id, "%s", id);
	(void) snprintf(s->end_status, sizeof s->end_status, "%s", text_of(q, 5));
	(void) snprintf(s->end_reason, sizeof s->end_reason, "%s", text_of(q, 6));
	if (s->metadata == NULL)
		s->metadata = json_object();
	s->state = s->ended_at != 0 ? SANDBOX_ENDED : SANDBOX_STARTING;
	if (s->state == SANDBOX_STARTING) {
		s->expires = s->expires == 0 ? ZW_UNLIMITED : s->expires;
		(void) sandbox_outlive_restore(s, json_object_get(m, "carried")); /* else it has no policy, and ends */
	}
	json_decref(m);
	return s;
}

static int run_with(struct store *store, const char *sql, usec_t value, struct zw_error *e)
{
	cleanup_statement sqlite3_stmt *q = store_prepare(store, sql, e);

	if (q == NULL)
		return -EIO;
	return sqlite3_bind_int64(q, 1, (sqlite3_int64) value) == SQLITE_OK ? store_step(store, q, e) : -ENOMEM;
}

static int settle(struct sandboxes *all, usec_t now, struct zw_error *e)
{
	struct store *store = &all->daemon->store;
	usec_t keep = all->daemon->options->keep_record;
	int r = store_run(store, "BEGIN IMMEDIATE", e);

	if (r < 0)
		return r;
	r = run_with(store, "DELETE FROM sandboxes WHERE ended != 0 AND ended < ?", now > keep ? now - keep : 0, e);
	if (r >= 0)
		r = run_with(store,
			     "DELETE FROM sandboxes WHERE id NOT IN (SELECT id FROM sandboxes ORDER BY number DESC LIMIT ?)",
			     SANDBOX_RECORDS_MAX, e);
	if (r >= 0)
		r = store_run(store, "COMMIT", e);
	if (r < 0)
		(void) store_run(store, "ROLLBACK", NULL); /* the first fault is the one to tell */
	return r;
}

int sandbox_records_load(struct sandboxes *all, struct zw_error *e)
{
	struct daemon *d = all->daemon;
	usec_t now = now_realtime();
	cleanup_statement sqlite3_stmt *q = NULL;
	int r = settle(all, now, e);

	if (r >= 0)
		q = store_prepare(&d->store,
				  "SELECT id, number, created, expires, ended, status, reason, document FROM sandboxes"
				  " ORDER BY number",
				  e);
	if (q == NULL)
		return r < 0 ? r : -EIO;
	for (r = store_step(&d->store, q, e); r == 1; r = store_step(&d->store, q, e)) {
		struct sandbox *s = read_row(q);

		if (s != NULL)
			sandbox_restore(all, s);
	}
	return r;
}
