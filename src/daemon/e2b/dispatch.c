/* Whose traffic a request is: the header fields that name sandbox and port, the host name "PORT-ID.anything", a signed URL of a
 * file, else the control plane. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/files/files-protocol.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/router.h"
#include "daemon/sandbox.h"

enum { PORT_MAX = 65535, PORT_DIGITS = 5 };

struct place {
	char id[64]; /* as it was sent, cut; not an id of ours by that */
	unsigned port;
};

static void nothing(struct request *r)
{
	(void) r; /* a front has its routes for metrics and the form of errors */
}

static const struct route envd_route = {"POST",  "e2b:envd",        SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL,
					nothing, e2b_write_problem, 0};
static const struct route files_route = {"GET",   "e2b:files",       SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL,
					 nothing, e2b_write_problem, 0};
static const struct route interpreter_route = {"POST",  "e2b:interpreter", SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL,
					       nothing, e2b_write_problem, 0};
static const struct route port_route = {"GET",   "e2b:port",        SCOPE_NONE, TAKES_STREAM, ROUTE_OPEN, NULL,
					nothing, e2b_write_problem, 0};

/* ---- The place. ---- */

static bool read_port(const char *text, size_t size, unsigned *ret)
{
	unsigned port = 0;

	if (size == 0 || size > PORT_DIGITS)
		return false;
	for (size_t i = 0; i < size; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		port = port * 10 + (unsigned) (text[i] - '0');
	}
	*ret = port;
	return port > 0 && port <= PORT_MAX;
}

/* Older clients append "-CLIENT". */
static void set_id(struct place *p, const char *text)
{
	(void) snprintf(p->id, sizeof p->id, "%.*s", (int) strcspn(text, "-"), text);
}

/* "3000-ID.domain" */
static bool place_of_host(const char *host, struct place *ret)
{
	size_t digits = strspn(host, "0123456789"), rest;

	if (host[digits] != '-' || !read_port(host, digits, &ret->port))
		return false;
	rest = strspn(host + digits + 1, "abcdefghijklmnopqrstuvwxyz0123456789");
	if (rest == 0 || rest >= sizeof ret->id || host[digits + 1 + rest] != '.')
		return false;
	(void) snprintf(ret->id, sizeof ret->id, "%.*s", (int) rest, host + digits + 1);
	return true;
}

/* 1: the head names one; 0: it doesn't; -EINVAL: it is not clear. */
static int place_of_head(const struct request *r, struct place *ret)
{
	size_t ids = request_header_count(r, "e2b-sandbox-id"), ports = request_header_count(r, "e2b-sandbox-port");
	const char *id = request_header(r, "e2b-sandbox-id"), *port = request_header(r, "e2b-sandbox-port");

	if (ids == 0 && ports == 0)
		return 0;
	if (id == NULL || port == NULL || id[0] == '\0' || !read_port(port, strlen(port), &ret->port))
		return -EINVAL;
	set_id(ret, id);
	return 1;
}

/* ---- For all that is a sandbox's. ---- */

const char *e2b_path(const char *path)
{
	if (path == NULL || path[0] == '\0' || strlen(path) >= FILES_PATH_MAX)
		return NULL;
	if (path[0] != '~')
		return path;
	if (path[1] != '\0' && path[1] != '/')
		return NULL;
	path += 1 + strspn(path + 1, "/");
	return path[0] != '\0' ? path : ".";
}

void e2b_allow_origin(struct request *r)
{
	if (request_header_count(r, "origin") == 0)
		return;
	respond_header(r, "Access-Control-Allow-Origin", "*");
	respond_header(r, "Access-Control-Expose-Headers", "*");
}

static bool is_preflight(const struct request *r)
{
	return strcmp(r->method, "OPTIONS") == 0 && request_header_count(r, "origin") == 1 &&
	       request_header_count(r, "access-control-request-method") == 1;
}

static void answer_preflight(struct request *r)
{
	const char *headers = request_header(r, "access-control-request-headers");

	respond_header(r, "Access-Control-Allow-Origin", "*");
	respond_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
	respond_header(r, "Access-Control-Allow-Headers", "%s", headers != NULL ? headers : "*");
	respond_header(r, "Access-Control-Max-Age", "600");
	respond_empty(r, 204);
}

/* A browser's question before a request that will have the header fields. */
static bool announces_headers(const struct request *r)
{
	const char *headers = request_header(r, "access-control-request-headers");

	return is_preflight(r) && headers != NULL && strcasestr(headers, "e2b-sandbox-id") != NULL;
}

bool e2b_wakes(const struct sandbox *s)
{
	return json_is_true(json_object_get(s->extras, "auto_resume"));
}

/* ---- Waking. ---- */

struct waking {
	struct request *request;
	char id[SANDBOX_ID_SIZE];
	void (*then)(struct request *r, struct sandbox *s);
};

static void woken(void *arg, const json_t *m, int *fd)
{
	struct waking *w = arg;
	struct sandbox *s = sandbox_find(w->request->daemon, w->id);
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;

	(void) fd;
	if (s != NULL && error == 0)
		sandbox_set_paused(s, false);
	/* Somebody else may have woken it meanwhile. */
	if (s != NULL && s->state == SANDBOX_RUNNING)
		w->then(w->request, s);
	else
		e2b_refuse_gone(w->request, w->id);
	free(w);
}

void e2b_when_running(struct request *r, struct sandbox *s, bool wake, void (*then)(struct request *r, struct sandbox *s))
{
	struct waking *w;

	if (s->state == SANDBOX_RUNNING) {
		then(r, s);
		return;
	}
	if (s->state != SANDBOX_PAUSED || !wake || r->daemon->draining) {
		e2b_refuse_gone(r, s->id);
		return;
	}
	w = xcalloc(1, sizeof *w);
	*w = (struct waking){.request = r, .then = then};
	memcpy(w->id, s->id, sizeof w->id);
	if (session_ask(s->session, json_pack("{ss}", "t", "resume"), NULL, 0, woken, w, NULL) == 0)
		return;
	free(w);
	e2b_refuse_gone(r, s->id);
}

/* ---- Where it goes. ---- */

static bool path_is(const struct request *r, const char *path)
{
	return strcmp(r->path, path) == 0;
}

static void to_envd(struct request *r, struct sandbox *s)
{
	bool reads = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

	r->route = &envd_route;
	if (is_preflight(r)) {
		answer_preflight(r);
		return;
	}
	e2b_allow_origin(r);
	if (reads && path_is(r, "/health")) {
		if (s->state == SANDBOX_RUNNING)
			respond_empty(r, 204);
		else
			e2b_refuse_gone(r, s->id); /* a question does not wake it */
		return;
	}
	if (path_is(r, "/files")) {
		r->route = &files_route;
		request_hold_drain(r);
		if (!e2b_has_access_token(r, s) && e2b_check_signature(r, s) != E2B_SIGNATURE_GOOD)
			e2b_refuse(r, 401, "%s",
				   e2b_check_signature(r, s) == E2B_SIGNATURE_EXPIRED
				       ? "signature is already expired"
				       : "the access token is missing or wrong, and the URL has no valid signature");
		else
			e2b_when_running(r, s, e2b_wakes(s), e2b_files_request);
		return;
	}
	if (!e2b_has_access_token(r, s))
		e2b_refuse(r, 401, "the access token of the sandbox is missing or wrong");
	else
		e2b_when_running(r, s, e2b_wakes(s), e2b_envd_request);
}

static void to_interpreter(struct request *r, struct sandbox *s)
{
	r->route = &interpreter_route;
	if (is_preflight(r)) {
		answer_preflight(r);
		return;
	}
	e2b_allow_origin(r);
	if (!e2b_has_traffic_token(r, s))
		e2b_refuse(r, 403, "the traffic token of the sandbox is missing or wrong");
	else
		e2b_when_running(r, s, e2b_wakes(s), e2b_interpreter_request);
}

static void to_port(struct request *r, struct sandbox *s, unsigned port)
{
	r->route = &port_route;
	if (!e2b_has_traffic_token(r, s)) {
		respond_json(r, 403,
			     json_pack("{ss ss si si}", "sandboxId", s->id, "message",
				       "the traffic token of the sandbox is missing or wrong", "port", (int) port, "code", 403));
		return;
	}
	r->data = (void *) (uintptr_t) port;
	e2b_when_running(r, s, e2b_wakes(s), e2b_port_request);
}

static void to_sandbox(struct request *r, const struct place *p)
{
	struct sandbox *s = sandbox_find(r->daemon, p->id);

	if (s == NULL || s->hidden || (s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSED)) {
		r->route = p->port == E2B_ENVD_PORT          ? &envd_route
			   : p->port == E2B_INTERPRETER_PORT ? &interpreter_route
							     : &port_route;
		if (is_preflight(r)) {
			answer_preflight(r);
			return;
		}
		e2b_allow_origin(r);
		e2b_refuse_gone(r, p->id);
	} else if (p->port == E2B_ENVD_PORT) {
		to_envd(r, s);
	} else if (p->port == E2B_INTERPRETER_PORT) {
		to_interpreter(r, s);
	} else {
		to_port(r, s, p->port);
	}
}

static bool front(struct request *r)
{
	struct place place = {.port = E2B_ENVD_PORT};
	int named = place_of_head(r, &place);

	if (named < 0) {
		r->route = &envd_route;
		e2b_refuse(r, 400, "E2b-Sandbox-Id and E2b-Sandbox-Port are expected both, once, with an id and a port");
		return true;
	}
	if (named == 0 && path_is(r, "/files") && request_query(r, "signature") != NULL && !place_of_host(r->host, &place)) {
		struct sandbox *s = e2b_signed_sandbox(r);

		r->route = &files_route;
		if (s != NULL)
			to_envd(r, s);
		else
			e2b_refuse(r, 401, "the signature is that of no sandbox here");
		return true;
	}
	if (named == 0 && announces_headers(r)) {
		r->route = &envd_route;
		answer_preflight(r);
		return true;
	}
	if (named == 0 && !place_of_host(r->host, &place))
		return false;
	to_sandbox(r, &place);
	return true;
}

void e2b_front_add(struct daemon *d)
{
	router_add_front(d->router, front);
}
