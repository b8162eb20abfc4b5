/* POST /v2/sandboxes and POST /sandboxes. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"
#include "daemon/snapshots.h"
#include "egress/head.h"

enum { TEXTS_MAX_BYTES = 64 * 1024, TEMPLATE_SIZE = 256, TIMEOUT_SECONDS = 300, OLD_TIMEOUT_SECONDS = 15, PORTS_MAX = 64 };

/* ---- What a sandbox is to these clients. ---- */

json_t *e2b_sandbox_to_json(const struct sandbox *s)
{
	const struct daemon *d = s->all->daemon;
	const char *template = s->policy.template != NULL ? s->policy.template : "";
	char access[E2B_TOKEN_SIZE], traffic[E2B_TOKEN_SIZE];
	bool closed = json_is_false(json_object_get(json_object_get(s->extras, "network"), "allowPublicTraffic"));

	e2b_access_token(d, s->id, access);
	e2b_traffic_token(d, s->id, traffic);
	return json_pack("{ss ss ss ss ss ss ss? ss?}", "sandboxID", s->id, "templateID", template, "alias", template, "clientID",
			 "local", "envdVersion", E2B_ENVD_VERSION, "envdAccessToken", access, "trafficAccessToken",
			 closed ? traffic : NULL, "domain", d->options->domain);
}

void e2b_name_inside(struct sandbox *s)
{
	(void) json_object_set_new(s->env, "E2B_SANDBOX", json_string("true"));
	(void) json_object_set_new(s->env, "E2B_SANDBOX_ID", json_string(s->id));
	(void) json_object_set_new(s->env, "E2B_TEMPLATE_ID", json_string(s->policy.template != NULL ? s->policy.template : ""));
	sandbox_changed(s);
}

/* ---- The request. ---- */

bool e2b_read_timeout(struct request *r, int64_t least, usec_t missing, usec_t *ret)
{
	const json_t *value = json_object_get(r->json, "timeout");
	usec_t most = r->daemon->options->max_timeout;
	json_int_t seconds = json_integer_value(value);

	if (value == NULL || json_is_null(value)) {
		*ret = missing < most ? missing : most;
		return true;
	}
	if (!json_is_integer(value) || seconds < least || (seconds > 0 && (usec_t) seconds > most / USEC_PER_SEC)) {
		e2b_refuse(r, 400, "timeout: expected whole seconds, at least %lld and at most %llu", (long long) least,
			   (unsigned long long) (most / USEC_PER_SEC));
		return false;
	}
	*ret = seconds > 0 ? (usec_t) seconds * USEC_PER_SEC : 0;
	return true;
}

/* {"k": "v"} of a bounded size, or nothing. */
static bool read_texts(struct request *r, const char *name, const json_t **ret)
{
	const json_t *object = json_object_get(r->json, name);
	size_t size = 0;
	const char *key;
	json_t *value;
	bool good = object == NULL || json_is_null(object) || json_is_object(object);

	json_object_foreach((json_t *) (uintptr_t) object, key, value)
	{
		good = good && json_is_string(value);
		size += strlen(key) + json_string_length(value);
	}
	if (good && size <= TEXTS_MAX_BYTES) {
		*ret = json_is_object(object) ? object : NULL;
		return true;
	}
	e2b_refuse(r, 400, "%s: expected an object of texts, at most 64 KiB in all", name);
	return false;
}

static bool is_empty(const json_t *value)
{
	return value == NULL || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
	       (json_is_object(value) && json_object_size(value) == 0);
}

static bool check_features(struct request *r)
{
	static const char *const not_here[] = {"volumeMounts", "iam"};
	bool wakes = json_is_true(json_object_get(json_object_get(r->json, "autoResume"), "enabled"));

	for (size_t i = 0; i < ARRAY_SIZE(not_here); i++)
		if (!is_empty(json_object_get(r->json, not_here[i]))) {
			e2b_refuse(r, 501, "%s is not supported", not_here[i]);
			return false;
		}
	if (json_is_false(json_object_get(r->json, "autoPauseMemory"))) {
		if (wakes)
			e2b_refuse(r, 400, "autoPauseMemory false and autoResume exclude each other");
		else
			e2b_refuse(r, 501, "autoPauseMemory false (keeping files alone) is not supported");
		return false;
	}
	return true;
}

/* "base", "base:tag", "namespace/base"; what is no template may be a snapshot. */
static bool read_template(struct request *r, struct snapshot_key *ret)
{
	const char *text = json_in_text(r->json, "templateID");
	bool tagged;

	if (text == NULL || text[0] == '\0' || strlen(text) >= TEMPLATE_SIZE) {
		e2b_refuse(r, 400, "templateID: expected the name of a template");
		return false;
	}
	if (e2b_snapshot_key(text, ret, &tagged))
		return true;
	e2b_refuse(r, 404, "there is no template %.64s", text);
	return false;
}

static void set_if_there(json_t *into, const json_t *from, const char *name)
{
	json_t *value = json_object_get(from, name);

	if (value != NULL && !json_is_null(value))
		(void) json_object_set(into, name, value);
}

/* What is kept for later answers, and for the ports. */
static json_t *extras_of(const struct request *r)
{
	const json_t *network = json_object_get(r->json, "network");
	json_t *extras = json_object(), *kept = json_object();

	set_if_there(kept, network, "allowOut");
	set_if_there(kept, network, "denyOut");
	set_if_there(kept, network, "allowPublicTraffic");
	set_if_there(kept, network, "maskRequestHost");
	set_if_there(kept, network, "httpsPorts");
	if (json_object_size(kept) > 0)
		(void) json_object_set(extras, "network", kept);
	json_decref(kept);
	set_if_there(extras, r->json, "allow_internet_access");
	(void) json_object_set_new(
	    extras, "auto_resume",
	    json_boolean(json_is_true(json_object_get(json_object_get(r->json, "autoResume"), "enabled"))));
	return extras;
}

/* All but that of envd, whose traffic goes elsewhere. */
static bool are_ports(const json_t *value)
{
	const json_t *port;
	size_t i;

	json_array_foreach(value, i, port)
	{
		json_int_t n = json_integer_value(port);

		if (n < 1 || n > 65535 || n == E2B_ENVD_PORT)
			return false;
	}
	return value == NULL || json_is_null(value) || (json_is_array(value) && i <= PORTS_MAX);
}

static bool check_network(struct request *r)
{
	const json_t *network = json_object_get(r->json, "network");
	const json_t *mask = json_object_get(network, "maskRequestHost"), *open = json_object_get(network, "allowPublicTraffic");
	const json_t *access = json_object_get(r->json, "allow_internet_access");

	if (network != NULL && !json_is_null(network) && !json_is_object(network))
		e2b_refuse(r, 400, "network: expected an object");
	else if (mask != NULL && !json_is_null(mask) &&
		 (!json_is_string(mask) || json_string_length(mask) > 255 || strchr(json_string_value(mask), ' ') != NULL ||
		  !head_is_value(json_string_value(mask), json_string_length(mask))))
		e2b_refuse(r, 400, "network.maskRequestHost: expected a host name");
	else if (open != NULL && !json_is_null(open) && !json_is_boolean(open))
		e2b_refuse(r, 400, "network.allowPublicTraffic: expected true or false");
	else if (!are_ports(json_object_get(network, "httpsPorts")))
		e2b_refuse(r, 400, "network.httpsPorts: expected at most %d ports, not that of envd", PORTS_MAX);
	else if (access != NULL && !json_is_null(access) && !json_is_boolean(access))
		e2b_refuse(r, 400, "allow_internet_access: expected true or false");
	else
		return true;
	return false;
}

static void created(void *arg, struct sandbox *s)
{
	struct request *r = arg;

	if (s->state == SANDBOX_ENDED) {
		refuse_with(r, &s->problem);
		s->hidden = true; /* it never was */
		return;
	}
	if (request_is_gone(r)) {
		respond_empty(r, 204);
		sandbox_end(s, "deleted", "the client has left before it was told");
		return;
	}
	respond_json(r, 201, e2b_sandbox_to_json(s));
}

static void create(struct request *r, usec_t default_timeout)
{
	struct sandbox_wish wish = {.pause_on_timeout = json_is_true(json_object_get(r->json, "autoPause"))};
	struct snapshot_key template;
	struct e2b_refusal refusal;
	struct problem problem = {0};
	struct sandbox *s;
	json_t *policy, *extras;
	bool own;

	if (!read_template(r, &template) || !e2b_read_timeout(r, 1, default_timeout, &wish.timeout) ||
	    !read_texts(r, "metadata", &wish.metadata) || !read_texts(r, "envVars", &wish.env) || !check_features(r) ||
	    !check_network(r))
		return;
	own = strcmp(template.name, "base") == 0 || strcmp(template.name, "code-interpreter-v1") == 0;
	if (!e2b_network_policy(&r->daemon->sandboxes->policies.ceiling, json_object_get(r->json, "allow_internet_access"),
				json_object_get(r->json, "network"), own, &policy, &refusal)) {
		e2b_refuse(r, refusal.status, "%s", refusal.message);
		return;
	}
	extras = extras_of(r);
	wish.policy = policy;
	wish.extras = extras;
	wish.template = template.name;
	if (!sandbox_is_template(&r->daemon->sandboxes->policies, template.name)) {
		e2b_create_from_snapshot(r, &template, &wish);
	} else if (sandbox_create(r->daemon->sandboxes, &wish, created, r, &s, &problem) < 0) {
		refuse_with(r, &problem);
		json_decref(problem.errors);
	} else {
		e2b_name_inside(s);
	}
	json_decref(policy);
	json_decref(extras);
}

static void post_v2(struct request *r)
{
	create(r, TIMEOUT_SECONDS * USEC_PER_SEC);
}

/* Clients of this route say true of themselves when their program has said nothing. */
static void post_v1(struct request *r)
{
	if (json_is_true(json_object_get(r->json, "allow_internet_access")))
		(void) json_object_del(r->json, "allow_internet_access");
	create(r, OLD_TIMEOUT_SECONDS * USEC_PER_SEC);
}

static const struct route routes[] = {
    {"POST", "/v2/sandboxes", SCOPE_CREATE, TAKES_JSON, ROUTE_WORK, NULL, post_v2, e2b_write_problem, 0},
    {"POST", "/sandboxes", SCOPE_CREATE, TAKES_JSON, ROUTE_WORK, NULL, post_v1, e2b_write_problem, 0},
};

void e2b_create_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
