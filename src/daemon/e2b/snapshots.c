/* Snapshots: made, listed, deleted (as templates, which they are there), and sandboxes from them. Their ids are "name:tag", or of
 * one without a name "id:default"; a name before a slash, which is that of a team there, is of no meaning here. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"
#include "daemon/snapshots.h"
#include "policy/text.h"

enum { PAGE_MAX = 100, ID_SIZE = 2 * SNAPSHOT_NAME_SIZE };

static const char default_tag[] = "default";

/* ---- Names. ---- */

bool e2b_snapshot_key(const char *text, struct snapshot_key *ret, bool *ret_tagged)
{
	const char *slash = strrchr(text, '/');
	const char *name = slash != NULL ? slash + 1 : text, *colon = strchr(name, ':');
	const char *tag = colon != NULL ? colon + 1 : default_tag;
	size_t size = strcspn(name, ":");

	*ret = (struct snapshot_key){0};
	*ret_tagged = colon != NULL;
	if (size >= sizeof ret->name || strlen(tag) >= sizeof ret->tag)
		return false;
	memcpy(ret->name, name, size);
	memcpy(ret->tag, tag, strlen(tag));
	return snapshot_is_name(ret->name) && snapshot_is_name(ret->tag);
}

static json_t *to_json(const struct snapshot_key *key, bool named)
{
	char id[ID_SIZE];
	json_t *names = json_array();

	(void) snprintf(id, sizeof id, "%s:%s", key->name, key->tag);
	if (named)
		(void) json_array_append_new(names, json_string(id));
	return json_pack("{ss so}", "snapshotID", id, "names", names);
}

static void refuse_store(struct request *r)
{
	e2b_refuse(r, 503, "the records of snapshots cannot be read or written now");
}

/* ---- Making. ---- */

static void taken(void *arg, const struct snapshot *made, const struct problem *p)
{
	struct request *r = arg;

	if (made == NULL)
		refuse_with(r, p);
	else
		respond_json(r, 201, to_json(&made->key, made->named));
}

/* Nobody would know its id. */
static void left(struct request *r)
{
	snapshot_take_cancel(r->data);
	request_reset(r);
}

/* False with the request refused. */
static bool read_name(struct request *r, struct snapshot_key *ret, bool *ret_named)
{
	const json_t *name = json_object_get(r->json, "name");
	bool tagged;

	*ret_named = name != NULL && !json_is_null(name);
	if (!*ret_named)
		return true;
	if (!json_is_string(name) || !e2b_snapshot_key(json_string_value(name), ret, &tagged)) {
		e2b_refuse(r, 400, "name: expected at most 64 letters, digits, '-', '_' and '.', and a tag of such behind ':'");
		return false;
	}
	if (sandbox_is_template(&r->daemon->sandboxes->policies, ret->name)) {
		e2b_refuse(r, 409, "name: there is a template %s", ret->name);
		return false;
	}
	return true;
}

static void post_snapshot(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);
	struct snapshot_key key = {0};
	struct problem p = {0};
	struct snapshot_take *take;
	bool named;

	if (s == NULL || !read_name(r, &key, &named))
		return;
	if (s->state == SANDBOX_PAUSED) {
		e2b_refuse(r, 409, "the sandbox is paused; connect to it first, which resumes it");
		return;
	}
	if (snapshot_take(s, named ? &key : NULL, taken, r, &take, &p) < 0) {
		refuse_with(r, &p);
		return;
	}
	r->data = take;
	request_on_gone(r, left);
}

/* ---- Lists. ---- */

struct page {
	json_t *array;
	size_t limit;
	int64_t last; /* number of the last one that is on it */
	bool more;
};

static void add(void *arg, int64_t number, const struct snapshot_key *key, bool named)
{
	struct page *p = arg;

	if (json_array_size(p->array) == p->limit) {
		p->more = true;
		return;
	}
	(void) json_array_append_new(p->array, to_json(key, named));
	p->last = number;
}

static void list_snapshots(struct request *r)
{
	const char *limit = request_query(r, "limit"), *token = request_query(r, "nextToken"), *name = request_query(r, "name");
	const char *sandbox = request_query(r, "sandboxID");
	struct snapshot_filter f = {.sandbox = sandbox != NULL && sandbox[0] != '\0' ? sandbox : NULL};
	struct snapshot_key key;
	uint64_t most = PAGE_MAX, below = 0;
	struct page page;
	bool tagged = false, known = true;

	if (limit != NULL && (parse_whole(limit, &most) < 0 || most < 1 || most > PAGE_MAX)) {
		e2b_refuse(r, 400, "limit: expected 1 to %d", PAGE_MAX);
		return;
	}
	if (token != NULL && token[0] != '\0' && (parse_whole(token, &below) < 0 || below == 0 || below > INT64_MAX)) {
		e2b_refuse(r, 400, "nextToken: expected what x-next-token said");
		return;
	}
	if (name != NULL && name[0] != '\0') {
		known = e2b_snapshot_key(name, &key, &tagged); /* else there cannot be one */
		f.name = key.name;
		f.tag = tagged ? key.tag : NULL;
	}
	f.below = (int64_t) below;
	page = (struct page){.array = json_array(), .limit = (size_t) most};
	if (known && snapshot_list(r->daemon, &f, (int64_t) most + 1, add, &page) < 0) {
		json_decref(page.array);
		refuse_store(r);
		return;
	}
	if (page.more)
		respond_header(r, "x-next-token", "%lld", (long long) page.last);
	respond_json(r, 200, page.array);
}

/* ---- The end. ---- */

static void delete_snapshot(struct request *r)
{
	struct snapshot_key key;
	bool tagged;
	int error = e2b_snapshot_key(r->params[0], &key, &tagged) ? -snapshot_remove(r->daemon, &key) : ENOENT;

	if (error == 0)
		respond_empty(r, 204);
	else if (error != ENOENT)
		refuse_store(r);
	else if (sandbox_is_template(&r->daemon->sandboxes->policies, key.name))
		e2b_refuse(r, 501, "deleting the template %s is not supported: it is the operator's", key.name);
	else
		e2b_refuse(r, 404, "there is no snapshot %.140s", r->params[0]);
}

bool e2b_has_snapshot(struct daemon *d, const char *text)
{
	struct snapshot snapshot;
	struct snapshot_key key;
	bool tagged;

	if (!e2b_snapshot_key(text, &key, &tagged) || snapshot_find(d, &key, &snapshot) < 0)
		return false;
	snapshot_done(&snapshot);
	return true;
}

/* ---- Sandboxes from them. ---- */

/* `over` over `base`, both objects or NULL. */
static json_t *merged(const json_t *base, const json_t *over)
{
	json_t *o = base != NULL ? json_deep_copy(base) : json_object();

	if (over != NULL)
		(void) json_object_update(o, (json_t *) (uintptr_t) over);
	return o;
}

static void made(void *arg, struct sandbox *s, struct problem *p)
{
	struct request *r = arg;

	if (s != NULL) {
		respond_json(r, 201, e2b_sandbox_to_json(s));
		return;
	}
	refuse_with(r, p);
	json_decref(p->errors);
}

static void nobody(struct request *r)
{
	snapshot_use_cancel(r->data);
	request_reset(r);
}

/* What the request says of the network takes the place of all that was said before. */
static json_t *extras_over(const struct snapshot *snapshot, const struct sandbox_wish *wish)
{
	bool said =
	    json_object_get(wish->extras, "network") != NULL || json_object_get(wish->extras, "allow_internet_access") != NULL;
	json_t *extras = merged(snapshot->extras, wish->extras);

	if (!said)
		return extras;
	if (json_object_get(wish->extras, "network") == NULL)
		(void) json_object_del(extras, "network");
	if (json_object_get(wish->extras, "allow_internet_access") == NULL)
		(void) json_object_del(extras, "allow_internet_access");
	return extras;
}

static void create_with(struct request *r, const struct snapshot *snapshot, const struct sandbox_wish *asked)
{
	struct sandbox_wish wish = *asked;
	struct sandbox_policy policy = {0};
	struct problem p = {0};
	struct snapshot_use *use;
	struct sandbox *s;
	char id[ID_SIZE];
	json_t *metadata = merged(snapshot->metadata, asked->metadata), *env = merged(snapshot->env, asked->env),
	       *extras = extras_over(snapshot, asked);
	int result;

	(void) snprintf(id, sizeof id, "%s:%s", snapshot->key.name, snapshot->key.tag);
	wish.metadata = metadata;
	wish.env = env;
	wish.extras = extras;
	result = sandbox_policy_remake(&r->daemon->sandboxes->policies, json_string_value(snapshot->policy), asked->policy, id,
				       &policy, &p);
	wish.like = &policy;
	if (result == 0)
		result = snapshot_use(r->daemon, snapshot, &wish, made, r, &use, &s, &p);
	if (result == 0) {
		e2b_name_inside(s);
		r->data = use;
		request_on_gone(r, nobody);
	} else {
		refuse_with(r, &p);
		json_decref(p.errors);
	}
	sandbox_policy_done(&policy);
	json_decref(metadata);
	json_decref(env);
	json_decref(extras);
}

void e2b_create_from_snapshot(struct request *r, const struct snapshot_key *key, const struct sandbox_wish *wish)
{
	struct snapshot snapshot;
	int error = -snapshot_find(r->daemon, key, &snapshot);

	if (error == 0) {
		create_with(r, &snapshot, wish);
		snapshot_done(&snapshot);
	} else if (error == ENOENT) {
		e2b_refuse(r, 404, "there is no template or snapshot %s", key->name);
	} else if (error == EPROTO) {
		e2b_refuse(r, 409, "the snapshot was made by another version of this service; make it anew");
	} else {
		refuse_store(r);
	}
}

static const struct route routes[] = {
    {"POST", "/sandboxes/{id}/snapshots", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, ROUTE_WORK, NULL, post_snapshot, e2b_write_problem,
     0},
    {"GET", "/snapshots", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, list_snapshots, e2b_write_problem, 0},
    {"DELETE", "/templates/{id}", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, delete_snapshot, e2b_write_problem, 0},
};

void e2b_snapshots_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
