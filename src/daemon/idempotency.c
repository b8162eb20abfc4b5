#include "daemon/idempotency.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/queue.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/http.h"
#include "daemon/log.h"

enum { HASH_SIZE = 32, KEY_SIZE_MAX = 255, ANSWER_SIZE_MAX = 16 * 1024 * 1024, SWEEP_EVERY = 64 };
#define KEPT_FOR (24 * 3600 * USEC_PER_SEC)
/* Of all answers together. A request whose answer could not be kept is not begun. */
#define KEPT_BYTES_MAX (UINT64_C(256) * 1024 * 1024)

struct idempotent {
	LIST_ENTRY(idempotent) entry;
	unsigned char id[HASH_SIZE];      /* of the caller, the route and the key */
	unsigned char request[HASH_SIZE]; /* of the target and the body */
	size_t fields_before;             /* lines of the answer's head that are this request's own */
};

struct idempotency {
	struct store *store;
	LIST_HEAD(, idempotent) running;
	unsigned until_sweep;
	uint64_t kept_bytes; /* at the last sweep, and what came since */
};

struct idempotency *idempotency_new(struct store *store)
{
	struct idempotency *i = xcalloc(1, sizeof *i);

	i->store = store;
	LIST_INIT(&i->running);
	return i;
}

struct idempotency *idempotency_free(struct idempotency *i)
{
	free(i);
	return NULL;
}

/* Each part with its length, so that no two lists of parts are the same bytes. */
static void hash_part(crypto_generichash_state *h, const void *data, size_t size)
{
	uint64_t n = size;

	(void) crypto_generichash_update(h, (const unsigned char *) &n, sizeof n);
	(void) crypto_generichash_update(h, data, size);
}

static void hash_text(crypto_generichash_state *h, const char *text)
{
	hash_part(h, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
}

static void identify(const struct request *r, const char *key, const void *body, size_t size, struct idempotent *ret)
{
	crypto_generichash_state h;

	(void) crypto_generichash_init(&h, NULL, 0, HASH_SIZE);
	hash_text(&h, r->caller.key_id);
	hash_text(&h, r->method);
	hash_text(&h, r->path);
	hash_text(&h, key);
	(void) crypto_generichash_final(&h, ret->id, HASH_SIZE);
	(void) crypto_generichash_init(&h, NULL, 0, HASH_SIZE);
	hash_text(&h, r->query);
	hash_part(&h, body, size);
	(void) crypto_generichash_final(&h, ret->request, HASH_SIZE);
}

/* Now and then: what is too old goes, and what is there is added up. */
static void sweep(struct idempotency *i)
{
	cleanup_statement sqlite3_stmt *gone = NULL;
	cleanup_statement sqlite3_stmt *sum = NULL;

	if (i->until_sweep-- > 0)
		return;
	i->until_sweep = SWEEP_EVERY;
	gone = store_prepare(i->store, "DELETE FROM answers WHERE created < ?", NULL);
	if (gone == NULL)
		return;
	(void) sqlite3_bind_int64(gone, 1, (sqlite3_int64) (now_realtime() - KEPT_FOR));
	(void) store_step(i->store, gone, NULL); /* what stays now goes the next time */
	sum = store_prepare(i->store, "SELECT coalesce(sum(length(body) + length(head)), 0) FROM answers", NULL);
	if (sum != NULL && store_step(i->store, sum, NULL) == 1)
		i->kept_bytes = (uint64_t) sqlite3_column_int64(sum, 0);
}

static void refuse_reused(struct request *r)
{
	refuse(r, PROBLEM_IDEMPOTENCY_KEY_REUSED, "use a new key for another request",
	       "this Idempotency-Key came with another request before");
}

/* The head's lines are ours, one "Name: value" each. */
static void repeat(struct request *r, sqlite3_stmt *row)
{
	const char *head = (const char *) sqlite3_column_text(row, 2), *type = (const char *) sqlite3_column_text(row, 3);
	const void *body = sqlite3_column_blob(row, 4);
	size_t size = (size_t) sqlite3_column_bytes(row, 4);

	(void) buf_adds(&r->x->fields, head != NULL ? head : "");
	respond_header(r, "Idempotency-Replayed", "true");
	answer_whole(r->x, (unsigned) sqlite3_column_int(row, 1), type != NULL && type[0] != '\0' ? type : NULL,
		     body != NULL ? body : "", size);
}

/* 1: it was answered; 0: there is nothing kept; negative: the store does not work. */
static int answer_from_store(struct idempotency *i, struct request *r, const struct idempotent *asked)
{
	cleanup_statement sqlite3_stmt *q =
	    store_prepare(i->store, "SELECT request, status, head, type, body FROM answers WHERE id = ? AND created >= ?", NULL);
	const void *request;
	int n;

	if (q == NULL)
		return -EIO;
	(void) sqlite3_bind_blob(q, 1, asked->id, HASH_SIZE, SQLITE_STATIC);
	(void) sqlite3_bind_int64(q, 2, (sqlite3_int64) (now_realtime() - KEPT_FOR));
	n = store_step(i->store, q, NULL);
	if (n <= 0)
		return n;
	request = sqlite3_column_blob(q, 0);
	if (request == NULL || sqlite3_column_bytes(q, 0) != HASH_SIZE || sodium_memcmp(request, asked->request, HASH_SIZE) != 0)
		refuse_reused(r);
	else
		repeat(r, q);
	return 1;
}

static const struct idempotent *find_running(const struct idempotency *i, const struct idempotent *asked)
{
	const struct idempotent *each;

	LIST_FOREACH(each, &i->running, entry)
	if (memcmp(each->id, asked->id, HASH_SIZE) == 0)
		return each;
	return NULL;
}

static bool check_key(struct request *r, const char *key)
{
	if (key != NULL && key[0] != '\0' && strlen(key) <= KEY_SIZE_MAX)
		return true;
	refuse(r, PROBLEM_BAD_REQUEST, NULL, "Idempotency-Key: expected one field of 1 to %d bytes", KEY_SIZE_MAX);
	return false;
}

static bool begin(struct idempotency *i, struct exchange *x, const struct idempotent *asked)
{
	const struct idempotent *running = find_running(i, asked);
	int n;

	if (running != NULL && memcmp(running->request, asked->request, HASH_SIZE) != 0) {
		refuse_reused(&x->r);
		return false;
	}
	if (running != NULL) {
		refuse(&x->r, PROBLEM_CONFLICT, "wait for the first one", "a request with this Idempotency-Key is under way");
		return false;
	}
	sweep(i);
	n = answer_from_store(i, &x->r, asked);
	if (n > 0)
		return false;
	if (n < 0) {
		refuse(&x->r, PROBLEM_INSUFFICIENT_STORAGE, "leave out Idempotency-Key, or try again",
		       "answers cannot be kept now");
		return false;
	}
	if (i->kept_bytes >= KEPT_BYTES_MAX) {
		refuse(&x->r, PROBLEM_INSUFFICIENT_STORAGE, "leave out Idempotency-Key", "there is no room to keep more answers");
		return false;
	}
	return true;
}

bool idempotency_begin(struct exchange *x, const void *body, size_t size)
{
	struct idempotency *i = x->server->daemon->idempotency;
	const char *key = request_header(&x->r, "idempotency-key");
	struct idempotent asked = {0};

	if (request_header_count(&x->r, "idempotency-key") == 0)
		return true;
	if (!check_key(&x->r, key))
		return false;
	identify(&x->r, key, body, size, &asked);
	if (!begin(i, x, &asked))
		return false;
	x->idempotent = xcalloc(1, sizeof asked);
	*x->idempotent = asked;
	x->idempotent->fields_before = x->fields.size;
	LIST_INSERT_HEAD(&i->running, x->idempotent, entry);
	return true;
}

static bool worth_keeping(unsigned status)
{
	return status >= 200 && status < 500 && status != 409 && status != 429;
}

void idempotency_keep(struct exchange *x, unsigned status, const char *type, const void *body, size_t size)
{
	static const char too_long[] =
	    "{\"type\":\"about:blank\",\"status\":409,\"code\":\"conflict\",\"message\":\"the first answer was too "
	    "large to be kept\",\"hint\":null}";
	struct idempotency *i = x->server->daemon->idempotency;
	cleanup_statement sqlite3_stmt *q = NULL;

	if (x->forget || !worth_keeping(status))
		return;
	/* The work was done once and must not be done again. */
	if (size > ANSWER_SIZE_MAX) {
		body = too_long;
		size = sizeof too_long - 1;
		status = 409;
		type = "application/problem+json";
	}
	q = store_prepare(
	    i->store,
	    "INSERT OR REPLACE INTO answers (id, request, created, status, head, type, body) VALUES (?, ?, ?, ?, ?, ?, ?)", NULL);
	if (q != NULL) {
		(void) sqlite3_bind_blob(q, 1, x->idempotent->id, HASH_SIZE, SQLITE_STATIC);
		(void) sqlite3_bind_blob(q, 2, x->idempotent->request, HASH_SIZE, SQLITE_STATIC);
		(void) sqlite3_bind_int64(q, 3, (sqlite3_int64) now_realtime());
		(void) sqlite3_bind_int(q, 4, (int) status);
		(void) sqlite3_bind_text(q, 5, x->fields.size > 0 ? x->fields.data + x->idempotent->fields_before : "", -1,
					 SQLITE_STATIC);
		(void) sqlite3_bind_text(q, 6, type != NULL ? type : "", -1, SQLITE_STATIC);
		(void) sqlite3_bind_blob64(q, 7, size > 0 ? body : "", size, SQLITE_STATIC);
	}
	if (q == NULL || store_step(i->store, q, NULL) < 0)
		dlog(x->server->daemon->log, DLOG_ERROR, "answer not kept", dlog_text("request_id", x->r.id));
	else
		i->kept_bytes += size + x->fields.size;
}

void idempotency_end(struct exchange *x)
{
	LIST_REMOVE(x->idempotent, entry);
	free(x->idempotent);
	x->idempotent = NULL;
}
