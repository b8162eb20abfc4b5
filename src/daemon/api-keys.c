/* /v1/keys. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/daemon.h"
#include "daemon/key-json.h"
#include "daemon/log.h"
#include "policy/text.h"

/* ---- The list. ---- */

/* A page begins behind a key that may be gone by then: its place is its creation, then its id. */
static bool read_cursor(const char *text, usec_t *ret_created, const char **ret_id)
{
	const char *dash = strchr(text, '-');
	cleanup_free char *number = dash != NULL ? xstrndup(text, (size_t) (dash - text)) : NULL;

	*ret_id = dash != NULL ? dash + 1 : "";
	return number != NULL && parse_whole(number, ret_created) == 0;
}

static bool is_behind(const struct key *k, usec_t created, const char *id)
{
	return k->created > created || (k->created == created && strcmp(k->id, id) > 0);
}

static void list_keys(struct request *r)
{
	const struct keys *keys = &r->daemon->keys;
	json_t *list, *next = json_null();
	const char *cursor, *id = "";
	usec_t created = 0;
	size_t limit;

	if (!request_page(r, &limit, &cursor))
		return;
	if (cursor != NULL && !read_cursor(cursor, &created, &id)) {
		refuse(r, PROBLEM_BAD_REQUEST, "leave it out, or send what next_cursor said",
		       "cursor: this is none of this list");
		return;
	}
	(void) keys_refresh(&r->daemon->keys);
	list = json_array();
	for (size_t i = 0; i < keys->count; i++) {
		const struct key *k = &keys->items[i];

		if (cursor != NULL && !is_behind(k, created, id))
			continue;
		if (json_array_size(list) == limit) {
			k = &keys->items[i - 1];
			next = json_sprintf("%llu-%s", (unsigned long long) k->created, k->id);
			break;
		}
		(void) json_array_append_new(list, key_json(k, NULL));
	}
	respond_json(r, 200, json_pack("{s:o, s:o}", "keys", list, "next_cursor", next));
}

/* ---- One key. ---- */

static void refuse_key(struct request *r, const struct zw_error *e)
{
	if (e->code == -EINVAL)
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "name: %s", e->text);
	else if (e->code == -ENOSPC || e->code == -EROFS)
		refuse(r, PROBLEM_INSUFFICIENT_STORAGE, NULL, "the key cannot be kept: there is no room for it");
	else
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "the keys cannot be changed now");
	/* The sentence may name a path. It ends in the log. */
}

static bool read_expiry(const json_t *value, usec_t *ret, struct json_faults *faults)
{
	usec_t in;

	*ret = 0;
	if (value == NULL || json_is_null(value))
		return true;
	if (!json_in_usec(value, "expires_in", &in, faults))
		return false;
	if (in < USEC_PER_SEC || in > 100 * UINT64_C(31536000) * USEC_PER_SEC) {
		json_fault_add(faults, "expires_in", "1s to 100 years", "expected a duration of 1 s to 100 years");
		return false;
	}
	*ret = now_realtime() + in;
	return true;
}

static void add_key(struct request *r)
{
	struct daemon *d = r->daemon;
	enum scope scope = scope_find(json_in_text(r->json, "scope"));
	struct json_faults faults = {0};
	struct zw_error e = {0};
	char text[KEY_TEXT_SIZE];
	const struct key *key;
	usec_t expires;

	if (scope == SCOPE_NONE)
		json_fault_add(&faults, "scope", "use, create or admin", "expected use, create or admin");
	if (!read_expiry(json_object_get(r->json, "expires_in"), &expires, &faults) || faults.count > 0) {
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
		return;
	}
	if (keys_add(&d->keys, json_in_text(r->json, "name"), scope, expires, text, &key, &e) < 0) {
		dlog(d->log, DLOG_WARNING, "key not added", dlog_text("why", e.text));
		refuse_key(r, &e);
		return;
	}
	dlog(d->log, DLOG_INFO, "key added", dlog_text("key_id", key->id), dlog_text("scope", scope_name(scope)));
	key_watch_changed(d->key_watch);
	respond_header(r, "Location", "/v1/keys/%s", key->id);
	respond_header(r, "Cache-Control", "no-store");
	respond_json(r, 201, key_json(key, text));
	sodium_memzero(text, sizeof text);
}

static void remove_key(struct request *r)
{
	struct daemon *d = r->daemon;
	struct zw_error e = {0};
	int n = keys_revoke(&d->keys, r->params[0], &e);

	if (n == -ENOENT) {
		refuse(r, PROBLEM_NOT_FOUND, NULL, "there is no key %.64s", r->params[0]);
		return;
	}
	if (n < 0) {
		dlog(d->log, DLOG_WARNING, "key not revoked", dlog_text("why", e.text));
		refuse_key(r, &e);
		return;
	}
	dlog(d->log, DLOG_INFO, "key revoked", dlog_text("key_id", r->params[0]));
	key_watch_changed(d->key_watch);
	respond_empty(r, 204);
}

static const struct json_field add_fields[] = {
    {"name", JSON_IN_TEXT | JSON_IN_NULL},
    {"scope", JSON_IN_TEXT | JSON_IN_REQUIRED},
    {"expires_in", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_NULL},
    {NULL, 0},
};

static const struct route routes[] = {
    {"GET", "/v1/keys", SCOPE_ADMIN, TAKES_NOTHING, 0, NULL, list_keys, NULL, 0},
    {"POST", "/v1/keys", SCOPE_ADMIN, TAKES_JSON, 0, add_fields, add_key, NULL, 0},
    {"DELETE", "/v1/keys/{kid}", SCOPE_ADMIN, TAKES_NOTHING, 0, NULL, remove_key, NULL, 0},
};

void api_keys_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
