#include "daemon/keys.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "policy/text.h"

static const char *const scope_names[] = {"none", "use", "create", "admin"};

const char *scope_name(enum scope scope)
{
	return scope_names[scope];
}

enum scope scope_find(const char *name)
{
	for (size_t i = SCOPE_USE; i < ARRAY_SIZE(scope_names); i++)
		if (strcmp(scope_names[i], name) == 0)
			return (enum scope) i;
	return SCOPE_NONE;
}

static void forget(struct keys *k)
{
	for (size_t i = 0; i < k->count; i++)
		free(k->items[i].name);
	free(k->items);
	k->items = NULL;
	k->count = 0;
}

/* A row that is not what we write is passed over: it can open nothing. */
static void take_row(struct keys *k, sqlite3_stmt *row)
{
	const char *id = (const char *) sqlite3_column_text(row, 0), *name = (const char *) sqlite3_column_text(row, 2);
	const char *scope = (const char *) sqlite3_column_text(row, 3);
	const void *hash = sqlite3_column_blob(row, 1);
	struct key *key;

	if (id == NULL || hash == NULL || scope == NULL || strlen(id) >= KEY_ID_SIZE ||
	    sqlite3_column_bytes(row, 1) != KEY_HASH_SIZE || scope_find(scope) == SCOPE_NONE)
		return;
	k->items = xrealloc(k->items, k->count + 1, sizeof *k->items);
	key = &k->items[k->count++];
	*key = (struct key){.name = name != NULL ? xstrdup(name) : NULL,
			    .scope = scope_find(scope),
			    .created = (usec_t) sqlite3_column_int64(row, 4),
			    .expires = (usec_t) sqlite3_column_int64(row, 5)};
	memcpy(key->id, id, strlen(id));
	memcpy(key->hash, hash, KEY_HASH_SIZE);
}

static int load(struct keys *k, struct zw_error *e)
{
	cleanup_statement sqlite3_stmt *q =
	    store_prepare(k->store, "SELECT id, hash, name, scope, created, expires FROM keys ORDER BY created, id", e);
	struct keys fresh = {.store = k->store, .version = k->version, .checked = k->checked};
	int r = q == NULL ? -EIO : 1;

	while (r == 1) {
		r = store_step(k->store, q, e);
		if (r == 1 && fresh.count < KEYS_MAX)
			take_row(&fresh, q);
	}
	if (r < 0) {
		forget(&fresh);
		return r;
	}
	forget(k);
	*k = fresh;
	return 0;
}

int keys_open(struct store *store, struct keys *ret, struct zw_error *e)
{
	struct keys k = {.store = store, .version = -1};
	int r;

	if (sodium_init() < 0)
		return zw_error(e, EIO, "libsodium does not start");
	(void) store_changed(store, &k.version);
	k.checked = now_monotonic();
	r = load(&k, e);
	if (r == 0)
		*ret = k;
	return r;
}

void keys_done(struct keys *k)
{
	forget(k);
}

bool keys_refresh(struct keys *k)
{
	int64_t version = k->version;

	k->checked = now_monotonic();
	if (!store_changed(k->store, &version) || load(k, NULL) < 0)
		return false; /* a list that cannot be read now is tried again the next time */
	k->version = version;
	return true;
}

/* No fold of the digits: a key has one form for each of the two prefixes. */
static bool hash_of(const char *text, size_t size, unsigned char hash[KEY_HASH_SIZE])
{
	unsigned char bytes[KEY_BYTES];
	size_t n = 0;
	bool good;

	if (size != KEY_TEXT_SIZE - 1 || (memcmp(text, "zwk_", 4) != 0 && memcmp(text, "e2b_", 4) != 0))
		return false;
	good = sodium_hex2bin(bytes, sizeof bytes, text + 4, size - 4, NULL, &n, NULL) == 0 && n == sizeof bytes &&
	       crypto_generichash(hash, KEY_HASH_SIZE, bytes, sizeof bytes, NULL, 0) == 0;
	sodium_memzero(bytes, sizeof bytes);
	return good;
}

bool key_expired(const struct key *k)
{
	return k->expires != 0 && now_realtime() >= k->expires;
}

static const struct key *find_hash(const struct keys *k, const unsigned char hash[KEY_HASH_SIZE])
{
	const struct key *found = NULL;

	for (size_t i = 0; i < k->count; i++)
		if (sodium_memcmp(k->items[i].hash, hash, KEY_HASH_SIZE) == 0)
			found = &k->items[i];
	return found;
}

const struct key *keys_find(struct keys *k, const char *text, size_t size)
{
	unsigned char hash[KEY_HASH_SIZE];
	const struct key *found;

	if (now_monotonic() - k->checked > KEYS_STALE_MAX)
		(void) keys_refresh(k);
	if (!hash_of(text, size, hash))
		return NULL;
	found = find_hash(k, hash);
	/* Another process may have made it just now. */
	if (found == NULL && keys_refresh(k))
		found = find_hash(k, hash);
	return found != NULL && !key_expired(found) ? found : NULL;
}

const struct key *keys_by_id(const struct keys *k, const char *id)
{
	for (size_t i = 0; i < k->count; i++)
		if (strcmp(k->items[i].id, id) == 0)
			return &k->items[i];
	return NULL;
}

static int check_name(const char *name, struct zw_error *e)
{
	size_t bad, size = strlen(name);

	if (size > KEY_NAME_MAX)
		return zw_error(e, EINVAL, "the name of the key is longer than %d bytes", KEY_NAME_MAX);
	if (!text_is_utf8(name, size, &bad))
		return zw_error(e, EINVAL, "the name of the key is not UTF-8");
	for (const char *p = name; *p != '\0'; p++)
		if ((unsigned char) *p < 0x20 || *p == 0x7f)
			return zw_error(e, EINVAL, "the name of the key has a control character");
	return 0;
}

/* The random bytes as a key's text, its hash, and an id that has nothing to do with it. */
static void generate(struct key *key, char text[KEY_TEXT_SIZE])
{
	unsigned char bytes[KEY_BYTES], id[(KEY_ID_SIZE - 1) / 2];

	randombytes_buf(bytes, sizeof bytes);
	randombytes_buf(id, sizeof id);
	memcpy(text, "zwk_", 4);
	(void) sodium_bin2hex(text + 4, KEY_TEXT_SIZE - 4, bytes, sizeof bytes);
	(void) sodium_bin2hex(key->id, sizeof key->id, id, sizeof id);
	(void) crypto_generichash(key->hash, sizeof key->hash, bytes, sizeof bytes, NULL, 0);
	sodium_memzero(bytes, sizeof bytes);
}

static int insert(struct keys *k, const struct key *key, struct zw_error *e)
{
	cleanup_statement sqlite3_stmt *q =
	    store_prepare(k->store, "INSERT INTO keys (id, hash, name, scope, created, expires) VALUES (?, ?, ?, ?, ?, ?)", e);

	if (q == NULL)
		return -EIO;
	(void) sqlite3_bind_text(q, 1, key->id, -1, SQLITE_STATIC);
	(void) sqlite3_bind_blob(q, 2, key->hash, sizeof key->hash, SQLITE_STATIC);
	(void) sqlite3_bind_text(q, 3, key->name, -1, SQLITE_STATIC); /* a NULL text is a NULL */
	(void) sqlite3_bind_text(q, 4, scope_name(key->scope), -1, SQLITE_STATIC);
	(void) sqlite3_bind_int64(q, 5, (sqlite3_int64) key->created);
	(void) sqlite3_bind_int64(q, 6, (sqlite3_int64) key->expires);
	return store_step_durably(k->store, q, e);
}

int keys_add(struct keys *k, const char *name, enum scope scope, usec_t expires, char text[KEY_TEXT_SIZE], const struct key **ret,
	     struct zw_error *e)
{
	struct key key = {.scope = scope, .created = now_realtime(), .expires = expires};
	int r = name != NULL ? check_name(name, e) : 0;

	if (r == 0)
		(void) keys_refresh(k);
	if (r == 0 && k->count >= KEYS_MAX)
		r = zw_error(e, ENOSPC, "there are %d keys, which is the most; revoke one first", KEYS_MAX);
	if (r < 0)
		return r;
	key.name = name != NULL ? xstrdup(name) : NULL;
	generate(&key, text);
	r = insert(k, &key, e);
	if (r < 0) {
		free(key.name);
		sodium_memzero(text, KEY_TEXT_SIZE);
		return r;
	}
	k->items = xrealloc(k->items, k->count + 1, sizeof *k->items);
	k->items[k->count] = key;
	*ret = &k->items[k->count++];
	return 0;
}

int keys_revoke(struct keys *k, const char *id, struct zw_error *e)
{
	cleanup_statement sqlite3_stmt *q = store_prepare(k->store, "DELETE FROM keys WHERE id = ?", e);
	int r;

	if (q == NULL)
		return -EIO;
	(void) sqlite3_bind_text(q, 1, id, -1, SQLITE_STATIC);
	r = store_step_durably(k->store, q, e);
	if (r < 0)
		return r;
	if (sqlite3_changes(k->store->db) == 0)
		return zw_error(e, ENOENT, "there is no key with the id \"%.64s\"", id);
	return load(k, e);
}
