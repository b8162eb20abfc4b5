/* Keys of the HTTP interface. A key is 20 random bytes, written "zwk_" and 40 hexadecimal digits, or "e2b_" and the same digits;
 * the store has only its hash (BLAKE2b, 32 bytes: the key has too much entropy to be guessed, so nothing slow is needed).
 *
 * The daemon holds all of them in memory and compares with each, in constant time. It looks at the store again when another
 * process has changed it: a revocation by `zwinger keys` holds within KEYS_STALE_MAX, also for requests that are under way. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/store.h"

enum scope { SCOPE_NONE, SCOPE_USE, SCOPE_CREATE, SCOPE_ADMIN }; /* each includes the one before */

enum {
	KEY_BYTES = 20,
	KEY_TEXT_SIZE = 4 + 2 * KEY_BYTES + 1,
	KEY_HASH_SIZE = 32,
	KEY_ID_SIZE = 17,
	KEY_NAME_MAX = 128,
	KEYS_MAX = 1000,
};
#define KEYS_STALE_MAX (500 * USEC_PER_MSEC)

struct key {
	char id[KEY_ID_SIZE];
	char *name; /* NULL: none */
	enum scope scope;
	usec_t created, expires; /* real time; expires 0: never */
	unsigned char hash[KEY_HASH_SIZE];
};

struct keys {
	struct store *store;
	struct key *items; /* by creation */
	size_t count;
	int64_t version; /* of the store, when it was read */
	usec_t checked;  /* monotonic */
};

const char *scope_name(enum scope scope);
/* SCOPE_NONE when there is no such scope. */
enum scope scope_find(const char *name);

/* libsodium is ready. `store` outlives `ret`. */
int keys_open(struct store *store, struct keys *ret, struct zw_error *e);
void keys_done(struct keys *k);

/* Reads the store again if another process has changed it. True when the list is another one now. */
bool keys_refresh(struct keys *k);

/* The key that the text is, NULL when it is none that holds now. Takes the same time for each text of a key's form. Asks the
 * store for changes now and then. Valid until the next call that changes keys. */
const struct key *keys_find(struct keys *k, const char *text, size_t size);
const struct key *keys_by_id(const struct keys *k, const char *id);
bool key_expired(const struct key *k);

/* Makes one; `text` is the only copy of it. `expires` is real time, 0: never. `name` may be NULL. *ret is in k. -ENOSPC, also
 * when there are KEYS_MAX; -EINVAL: the name is no printable text of at most KEY_NAME_MAX bytes. */
int keys_add(struct keys *k, const char *name, enum scope scope, usec_t expires, char text[KEY_TEXT_SIZE], const struct key **ret,
	     struct zw_error *e);
/* 0, or -ENOENT. */
int keys_revoke(struct keys *k, const char *id, struct zw_error *e);
