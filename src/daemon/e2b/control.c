/* The control plane of E2B: the life of sandboxes, and clear words about what is not offered. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"

#define CONNECT_TIMEOUT (300 * USEC_PER_SEC)

struct sandbox *e2b_find(struct request *r)
{
	char id[64];
	struct sandbox *s;

	(void) snprintf(id, sizeof id, "%.*s", (int) strcspn(r->params[0], "-"), r->params[0]); /* older clients: ID-CLIENT */
	s = sandbox_find(r->daemon, id);
	return s != NULL && !s->hidden && (s->state == SANDBOX_RUNNING || s->state == SANDBOX_PAUSED) ? s : NULL;
}

struct sandbox *e2b_sandbox_of(struct request *r)
{
	struct sandbox *s = e2b_find(r);

	if (s == NULL)
		e2b_refuse(r, 404, "there is no sandbox %.64s", r->params[0]);
	return s;
}

/* ---- The end, and time. ---- */

static void killed(void *arg, struct sandbox *s)
{
	(void) s;
	respond_empty(arg, 204);
}

static void kill_sandbox(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);

	if (s == NULL)
		return;
	sandbox_end(s, "deleted", "it was deleted");
	sandbox_on_end(s, killed, r);
}

static void set_timeout(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);
	usec_t timeout;

	if (s == NULL || !e2b_read_timeout(r, INT64_MIN, 0, &timeout))
		return;
	if (!json_is_integer(json_object_get(r->json, "timeout"))) {
		e2b_refuse(r, 400, "timeout: expected whole seconds");
		return;
	}
	sandbox_set_timeout(s, timeout);
	respond_empty(r, 204);
}

/* Longer only. */
static void refresh(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);
	json_int_t seconds = json_integer_value(json_object_get(r->json, "duration"));

	if (s == NULL)
		return;
	if (seconds < 0 || (usec_t) seconds > r->daemon->options->max_timeout / USEC_PER_SEC) {
		e2b_refuse(r, 400, "duration: expected seconds within the longest life on this service");
		return;
	}
	if (s->state == SANDBOX_RUNNING && now_realtime() + (usec_t) seconds * USEC_PER_SEC > s->expires)
		sandbox_set_timeout(s, (usec_t) seconds * USEC_PER_SEC);
	respond_empty(r, 204);
}

/* ---- Pausing. ---- */

static void paused(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	struct sandbox *s = e2b_find(r);
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;

	(void) fd;
	if (s == NULL || error == ESHUTDOWN) {
		e2b_refuse(r, 404, "there is no sandbox %.64s", r->params[0]);
	} else if (error == EALREADY) {
		e2b_refuse(r, 409, "the sandbox is paused already");
	} else if (error != 0) {
		e2b_refuse(r, 503, "the sandbox cannot be paused: %s", strerror(error));
	} else {
		sandbox_set_paused(s, true);
		respond_empty(r, 204);
	}
}

static void pause_sandbox(struct request *r)
{
	const struct sandbox *s = e2b_sandbox_of(r);

	if (s == NULL)
		return;
	if (json_is_false(json_object_get(r->json, "memory")))
		e2b_refuse(r, 501, "pausing without the memory (keeping files alone) is not supported");
	else if (s->state == SANDBOX_PAUSED)
		e2b_refuse(r, 409, "the sandbox is paused already");
	else if (session_ask(s->session, json_pack("{ss}", "t", "pause"), NULL, 0, paused, r, NULL) < 0)
		e2b_refuse(r, 503, "the sandbox cannot be asked now; try again");
}

/* ---- Connecting: never shortens, and wakes. ---- */

static void woken(struct request *r, struct sandbox *s)
{
	usec_t timeout;

	if (!e2b_read_timeout(r, 0, CONNECT_TIMEOUT, &timeout))
		return;
	sandbox_set_timeout(s, timeout);
	respond_json(r, 201, e2b_sandbox_to_json(s));
}

static void connect_sandbox(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);
	usec_t timeout;

	if (s == NULL || !e2b_read_timeout(r, 0, CONNECT_TIMEOUT, &timeout))
		return;
	if (json_is_false(json_object_get(r->json, "memory")) && s->state == SANDBOX_PAUSED) {
		e2b_refuse(r, 501, "starting anew from the files alone is not supported");
		return;
	}
	if (s->state == SANDBOX_PAUSED) {
		e2b_when_running(r, s, true, woken);
		return;
	}
	if (now_realtime() + timeout > s->expires)
		sandbox_set_timeout(s, timeout);
	respond_json(r, 200, e2b_sandbox_to_json(s));
}

static void resume_sandbox(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);

	if (s == NULL)
		return;
	if (s->state == SANDBOX_RUNNING)
		e2b_refuse(r, 409, "the sandbox is running");
	else
		e2b_when_running(r, s, true, woken);
}

/* ---- What is not offered. ---- */

static void not_offered(struct request *r)
{
	e2b_refuse(r, 501, "%s %s is not supported", r->method, r->route->pattern);
}

static void logs(struct request *r)
{
	if (e2b_sandbox_of(r) != NULL)
		e2b_refuse(r, 501, "logs are not supported in this form; GET /v1/sandboxes/{id}/logs has them");
}

static void has_alias(struct request *r)
{
	if (sandbox_is_template(&r->daemon->sandboxes->policies, r->params[0]) || e2b_has_snapshot(r->daemon, r->params[0]))
		respond_json(r, 200, json_pack("{ss sb}", "templateID", r->params[0], "public", 1));
	else
		e2b_refuse(r, 404, "there is no template %.64s", r->params[0]);
}

#define S "/sandboxes/{id}"
#define ROW(method, path, takes, flags, run)                                                                                     \
	{                                                                                                                        \
		method, path, SCOPE_CREATE, takes, flags, NULL, run, e2b_write_problem, 0                                        \
	}
#define NOT_OFFERED(method, path) ROW(method, path, TAKES_NOTHING, 0, not_offered)

static const struct route routes[] = {
    ROW("DELETE", S, TAKES_NOTHING, 0, kill_sandbox),
    ROW("POST", S "/timeout", TAKES_JSON, 0, set_timeout),
    ROW("POST", S "/refreshes", TAKES_JSON_OR_NOTHING, 0, refresh),
    ROW("POST", S "/pause", TAKES_JSON_OR_NOTHING, 0, pause_sandbox),
    ROW("POST", S "/connect", TAKES_JSON_OR_NOTHING, ROUTE_WORK, connect_sandbox),
    ROW("POST", "/v2" S "/connect", TAKES_JSON_OR_NOTHING, ROUTE_WORK, connect_sandbox),
    ROW("POST", S "/resume", TAKES_JSON_OR_NOTHING, ROUTE_WORK, resume_sandbox),
    ROW("GET", S "/logs", TAKES_NOTHING, 0, logs),
    ROW("GET", "/v2" S "/logs", TAKES_NOTHING, 0, logs),
    ROW("GET", "/templates/aliases/{name}", TAKES_NOTHING, 0, has_alias),
};

static const struct route absent[] = {
    NOT_OFFERED("GET", "/sandboxes/metrics"),
    NOT_OFFERED("GET", "/teams"),
    NOT_OFFERED("GET", "/templates"),
    NOT_OFFERED("GET", "/v2/templates"),
    NOT_OFFERED("POST", "/templates"),
    NOT_OFFERED("POST", "/v2/templates"),
    NOT_OFFERED("POST", "/v3/templates"),
    NOT_OFFERED("PATCH", "/templates/{id}"),
    NOT_OFFERED("PATCH", "/v2/templates/{id}"),
    NOT_OFFERED("GET", "/templates/{id}"),
    NOT_OFFERED("GET", "/templates/{id}/files/{hash}"),
    NOT_OFFERED("POST", "/templates/{id}/builds/{build}"),
    NOT_OFFERED("POST", "/v2/templates/{id}/builds/{build}"),
    NOT_OFFERED("GET", "/templates/{id}/builds/{build}/status"),
    NOT_OFFERED("GET", "/templates/{id}/builds/{build}/logs"),
    NOT_OFFERED("POST", "/templates/tags"),
    NOT_OFFERED("DELETE", "/templates/tags"),
    NOT_OFFERED("GET", "/templates/{id}/tags"),
    NOT_OFFERED("GET", "/volumes"),
    NOT_OFFERED("POST", "/volumes"),
    NOT_OFFERED("GET", "/volumes/{id}"),
    NOT_OFFERED("DELETE", "/volumes/{id}"),
    NOT_OFFERED("GET", "/volumecontent/{id}/dir"),
    NOT_OFFERED("POST", "/volumecontent/{id}/dir"),
    NOT_OFFERED("GET", "/volumecontent/{id}/path"),
    NOT_OFFERED("PATCH", "/volumecontent/{id}/path"),
    NOT_OFFERED("DELETE", "/volumecontent/{id}/path"),
    NOT_OFFERED("GET", "/volumecontent/{id}/file"),
    NOT_OFFERED("PUT", "/volumecontent/{id}/file"),
    NOT_OFFERED("GET", "/secrets"),
    NOT_OFFERED("POST", "/secrets"),
    NOT_OFFERED("GET", "/secrets/{id}"),
    NOT_OFFERED("POST", "/secrets/{id}"),
    NOT_OFFERED("DELETE", "/secrets/{id}"),
};

void e2b_add(struct daemon *d)
{
	e2b_front_add(d);
	e2b_create_add(d);
	e2b_list_add(d);
	e2b_fork_add(d);
	e2b_snapshots_add(d);
	e2b_network_add(d);
	router_add(d->router, routes, ARRAY_SIZE(routes));
	router_add(d->router, absent, ARRAY_SIZE(absent));
}
