#include "daemon/router.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/http-origin.h"
#include "daemon/http.h"
#include "daemon/idempotency.h"

enum { TABLES_MAX = 32, FRONTS_MAX = 8 };

struct router {
	struct {
		const struct route *routes;
		size_t count;
	} tables[TABLES_MAX];
	size_t table_count;
	bool (*fronts[FRONTS_MAX])(struct request *r);
	size_t front_count;
};

struct router *router_new(void)
{
	return xcalloc(1, sizeof(struct router));
}

struct router *router_free(struct router *router)
{
	free(router);
	return NULL;
}

void router_add(struct router *router, const struct route *routes, size_t count)
{
	if (router->table_count == TABLES_MAX)
		return; /* as many as there are modules, with room to spare */
	router->tables[router->table_count].routes = routes;
	router->tables[router->table_count++].count = count;
}

void router_add_front(struct router *router, bool (*front)(struct request *r))
{
	if (router->front_count < FRONTS_MAX)
		router->fronts[router->front_count++] = front;
}

const struct route *router_at(const struct router *router, size_t index)
{
	for (size_t t = 0; t < router->table_count; t++) {
		if (index < router->tables[t].count)
			return &router->tables[t].routes[index];
		index -= router->tables[t].count;
	}
	return NULL;
}

/* ---- Finding. ---- */

/* Does the path match? *ret_rank tells of two matches the better one: a literal text counts more than a parameter, the first
 * segments most. */
static bool matches(const char *pattern, const struct target_parts *t, const char *params[ROUTE_PARAMS_MAX], uint32_t *ret_rank)
{
	size_t param = 0, segment = 0;

	*ret_rank = 0;
	for (; *pattern == '/'; segment++) {
		size_t n = strcspn(++pattern, "/");

		if (segment == t->segment_count)
			return false;
		if (pattern[0] == '{') {
			if (t->segments[segment][0] == '\0' || param == ROUTE_PARAMS_MAX)
				return false;
			params[param++] = t->segments[segment];
		} else if (strncmp(pattern, t->segments[segment], n) != 0 || t->segments[segment][n] != '\0') {
			return false;
		} else {
			*ret_rank |= UINT32_C(1) << (31 - segment);
		}
		pattern += n;
	}
	return segment == t->segment_count;
}

static void allow(char *list, const char *method)
{
	size_t n = strlen(list);

	if (strstr(list, method) == NULL)
		(void) snprintf(list + n, ROUTER_ALLOW_SIZE - n, "%s%s%s", n > 0 ? ", " : "", method,
				strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

static bool answers(const struct route *route, const char *method)
{
	return strcmp(route->method, method) == 0 || (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

const struct route *router_find(const struct router *router, struct request *r, char ret_allow[ROUTER_ALLOW_SIZE])
{
	const struct route *best = NULL;
	uint32_t best_rank = 0, rank;

	ret_allow[0] = '\0';
	for (size_t t = 0; t < router->table_count; t++) {
		for (size_t i = 0; i < router->tables[t].count; i++) {
			const struct route *route = &router->tables[t].routes[i];
			const char *params[ROUTE_PARAMS_MAX] = {0};

			if (!matches(route->pattern, &r->target, params, &rank))
				continue;
			allow(ret_allow, route->method);
			if (!answers(route, r->method) || (best != NULL && rank <= best_rank))
				continue;
			best = route;
			best_rank = rank;
			memcpy(r->params, params, sizeof params);
		}
	}
	return best;
}

/* ---- Running. ---- */

static void run(struct request *r)
{
	r->route->run(r);
}

static bool body_is_object(struct request *r, const char *text, size_t size)
{
	struct json_faults faults = {0};

	if (size == 0 && r->route->takes == TAKES_JSON_OR_NOTHING)
		r->json = json_object();
	else
		r->json = json_in_parse(text, size, &faults);
	if (r->json != NULL && r->route->takes == TAKES_ANY_JSON)
		return true;
	if (r->json != NULL && json_in_check(r->json, r->route->fields, &faults))
		return true;
	if (faults.count == 0)
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the request");
	else
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
	return false;
}

static void run_with_json(struct request *r)
{
	struct exchange *x = r->x;
	size_t size = evbuffer_get_length(x->collected);
	const char *text = size > 0 ? (const char *) evbuffer_pullup(x->collected, -1) : "";

	if (text == NULL) {
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the request");
		return;
	}
	if (!body_is_object(r, text, size))
		return;
	if ((r->route->flags & ROUTE_IDEMPOTENT) != 0 && !idempotency_begin(x, text, size))
		return;
	evbuffer_free(x->collected);
	x->collected = NULL;
	run(r);
}

static void collect(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct exchange *x = r->x;

	if (event == BODY_BROKEN) {
		refuse_body(r);
		return;
	}
	if (!request_collect(r, x->collected, content)) {
		x->reading = false;
		refuse(r, PROBLEM_UNAVAILABLE, "try again soon", "too many large requests are under way");
		return;
	}
	if (event == BODY_WHOLE)
		run_with_json(r);
}

static bool is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t n = sizeof json - 1;

	return type == NULL || (strncasecmp(type, json, n) == 0 && (type[n] == '\0' || type[n] == ';' || type[n] == ' '));
}

static void collect_json(struct request *r)
{
	struct exchange *x = r->x;
	uint64_t length;
	bool known = request_length(r, &length);

	if ((!known || length > 0) &&
	    (!is_json(request_header(r, "content-type")) || request_header_count(r, "content-type") > 1)) {
		refuse(r, PROBLEM_UNSUPPORTED_MEDIA_TYPE, "send JSON with Content-Type: application/json",
		       "the body is not application/json");
		return;
	}
	if (request_header_count(r, "content-encoding") > 0) {
		refuse(r, PROBLEM_UNSUPPORTED_MEDIA_TYPE, "send the JSON as it is", "an encoded body is not understood here");
		return;
	}
	x->body.max = JSON_BODY_MAX;
	if (known && length > JSON_BODY_MAX) {
		refuse(r, PROBLEM_TOO_LARGE, "send less", "the body is larger than %d bytes", JSON_BODY_MAX);
		return;
	}
	x->collected = evbuffer_new();
	if (x->collected == NULL)
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the request");
	else
		request_read(r, collect);
}

/* ---- Checks, in order; each is false when it has ended the request. ---- */

static bool check_head(struct request *r)
{
	const struct head_fault *f = &r->x->fault;
	struct problem p = {.code = PROBLEM_BAD_REQUEST, .status = f->status};

	if (f->status == 0)
		return true;
	if (f->status == 414 || f->status == 431)
		p.code = PROBLEM_TOO_LARGE;
	else if (f->status == 505)
		p.code = PROBLEM_NOT_SUPPORTED;
	(void) snprintf(p.message, sizeof p.message, "%s", f->why);
	refuse_with(r, &p);
	return false;
}

static bool check_host(struct request *r)
{
	if (r->x->peer.local || origin_host_allowed(&r->daemon->origins, r->host, r->x->peer.here))
		return true;
	refuse(r, PROBLEM_MISDIRECTED, "the operator can allow it with --allow-host",
	       "requests for the host %s are not served here", r->host);
	return false;
}

static bool taken_by_front(struct request *r)
{
	for (size_t i = 0; i < r->daemon->router->front_count; i++)
		if (r->daemon->router->fronts[i](r))
			return true;
	return false;
}

static bool check_origin(struct request *r, const struct route *route)
{
	const char *origin = request_header(r, "origin");

	if (request_header_count(r, "origin") == 0)
		return true;
	if (origin != NULL && route != NULL && (route->flags & ROUTE_ANY_ORIGIN) != 0) {
		respond_header(r, "Access-Control-Allow-Origin", "*");
		return true;
	}
	if (origin != NULL && origin_allowed(&r->daemon->origins, origin, r->x->peer.here)) {
		respond_header(r, "Access-Control-Allow-Origin", "%s", origin);
		respond_header(r, "Vary", "Origin");
		respond_header(r, "Access-Control-Expose-Headers", "Location, Retry-After, X-Request-Id, Idempotency-Replayed");
		return true;
	}
	refuse(r, PROBLEM_FORBIDDEN, "the operator can allow it with --allow-origin",
	       "pages of this origin may not use this server");
	return false;
}

/* A browser asks, without any key, whether it may send what it has been told to: its origin is allowed by now. */
static bool is_preflight(const struct request *r)
{
	return strcmp(r->method, "OPTIONS") == 0 && request_header_count(r, "origin") == 1 &&
	       request_header_count(r, "access-control-request-method") == 1;
}

static void answer_preflight(struct request *r)
{
	const char *headers = request_header(r, "access-control-request-headers");

	respond_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
	respond_header(r, "Access-Control-Allow-Headers", "%s", headers != NULL ? headers : "Authorization, Content-Type");
	respond_header(r, "Access-Control-Max-Age", "600");
	respond_empty(r, 204);
}

static bool check_key(struct request *r, const struct route *route)
{
	bool known = request_authenticate(r);

	if (known || (route != NULL && (route->flags & ROUTE_OPEN) != 0))
		return true;
	refuse(r, PROBLEM_UNAUTHORIZED, "send a key as \"Authorization: Bearer KEY\" or \"X-API-KEY: KEY\"",
	       "the request has no valid key");
	return false;
}

static bool check_route(struct request *r, const struct route *route, enum target_verdict verdict, const char *why,
			const char *methods)
{
	if (verdict == TARGET_BAD)
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "%s", why);
	else if (verdict == TARGET_NOWHERE)
		refuse(r, PROBLEM_NOT_FOUND, NULL, "%s", why);
	else if (route == NULL && methods[0] == '\0')
		refuse(r, PROBLEM_NOT_FOUND, "the native interface is below /v1", "there is no route %.200s", r->path);
	else if (route == NULL) {
		respond_header(r, "Allow", "%s", methods);
		refuse(r, PROBLEM_METHOD_NOT_ALLOWED, NULL, "%s is not a method of %.200s, which has %s", r->method, r->path,
		       methods);
	} else {
		return true;
	}
	return false;
}

static bool check_rights(struct request *r)
{
	const struct route *route = r->route;

	if ((route->flags & ROUTE_OPEN) == 0 && r->caller.scope < route->scope) {
		refuse(r, PROBLEM_FORBIDDEN, "use a key with that scope",
		       "this needs a key of scope \"%s\", and the key has \"%s\"", scope_name(route->scope),
		       scope_name(r->caller.scope));
		return false;
	}
	if ((route->flags & ROUTE_WORK) != 0 && r->daemon->draining) {
		refuse(r, PROBLEM_UNAVAILABLE, "try again when it is up", "the daemon is about to end and takes no new work");
		return false;
	}
	return true;
}

void router_dispatch(struct request *r)
{
	const struct route *route = NULL;
	const char *why = "";
	char methods[ROUTER_ALLOW_SIZE] = "";
	enum target_verdict verdict;

	if (!check_head(r) || !check_host(r))
		return;
	verdict = target_parts_parse(r->path, r->query, &r->target, &why);
	if (taken_by_front(r))
		return;
	if (verdict == TARGET_GOOD)
		route = router_find(r->daemon->router, r, methods);
	r->route = route;
	if (!check_origin(r, route))
		return;
	if (is_preflight(r)) {
		answer_preflight(r);
		return;
	}
	if (!check_key(r, route) || !check_route(r, route, verdict, why, methods) || !check_rights(r))
		return;
	if ((route->flags & ROUTE_LASTING) == 0)
		request_hold_drain(r);
	if (route->takes == TAKES_JSON || route->takes == TAKES_ANY_JSON || route->takes == TAKES_JSON_OR_NOTHING)
		collect_json(r);
	else
		run(r);
}
