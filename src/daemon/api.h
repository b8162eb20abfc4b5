/* How a handler of the HTTP interface is written. This is all that one needs; http.h is the server's own.
 *
 * ROUTES. A module has a table of routes and hands it to router_add() when the daemon starts:
 *
 *	static const struct json_field timeout_fields[] = {{"timeout", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_REQUIRED}, {NULL}};
 *
 *	static const struct route routes[] = {
 *	    {"GET", "/v1/sandboxes/{id}", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_sandbox},
 *	    {"POST", "/v1/sandboxes/{id}/timeout", SCOPE_CREATE, TAKES_JSON, 0, timeout_fields, set_timeout},
 *	};
 *
 * By the time `run` is called, Host, Origin, key and scope are checked, unknown members of the body, wrong kinds and NUL in texts
 *are refused, and the daemon is known not to drain (ROUTE_WORK). A GET route answers HEAD too.
 *
 * THE LIFE OF A REQUEST. From the call of `run` the request is the handler's, until it calls exactly one function that ends it: a
 * respond_*(), refuse(), stream_end(), request_reset(), request_take_over(). It may do that at once or later, from any event of
 *the loop. After it the pointer is dead. A client that leaves does not change this: functions that write then do nothing, and the
 * handler still has to end the request. A handler that has something to stop registers request_on_gone():
 *
 *	static void set_timeout(struct request *r)                    // answers at once
 *	{
 *		struct json_faults faults = {0};
 *		struct sandbox *s = sandbox_find(r->daemon, r->params[0]);
 *		usec_t timeout;
 *
 *		if (s == NULL)
 *			refuse(r, PROBLEM_NOT_FOUND, NULL, "there is no sandbox %s", r->params[0]);
 *		else if (!json_in_usec(json_object_get(r->json, "timeout"), "timeout", &timeout, &faults))
 *			refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
 *		else
 *			respond_json(r, 200, sandbox_to_json(s));
 *	}
 *
 *	static void run_gone(struct request *r)                       // answers later
 *	{
 *		struct run *run = r->data;
 *
 *		run_cancel(run);      // which calls run_ended(), now or soon
 *	}
 *
 *	static void run_ended(struct run *run)
 *	{
 *		respond_json(run->request, 200, run_to_json(run));    // goes nowhere when the client has left
 *		run_free(run);
 *	}
 *
 *	static void post_run(struct request *r)
 *	{
 *		r->data = run_start(r, run_ended);
 *		request_on_gone(r, run_gone);
 *	}
 *
 * BODIES THAT STREAM IN (TAKES_STREAM): request_read() and then take from the buffer what can be used; what is left there stops
 *the client. BODIES THAT STREAM OUT: stream_begin(), stream_write() while stream_queued() is below STREAM_ROOM, then wait for
 * stream_on_room(). Server-sent events: sse.h.
 *
 * IDEMPOTENCY. A route with ROUTE_IDEMPOTENT is called once for an Idempotency-Key; what it answers with respond_*() is kept and
 * repeated. The answer counts also when the client has left: a handler that stops its work because of that, and would give no
 *answer that is worth repeating, calls request_forget() before it ends the request. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/http-target.h"
#include "daemon/json-in.h"
#include "daemon/keys.h"
#include "daemon/problem.h"

struct daemon;
struct evbuffer;
struct bufferevent;
struct request;
struct tunnel;

/* ---- Routes. ---- */

enum takes {
	TAKES_NOTHING,         /* a body is read and dropped if it is small */
	TAKES_JSON,            /* an object; r->json is never NULL */
	TAKES_ANY_JSON,        /* any value, with NUL in texts: the handler checks; r->json is never NULL */
	TAKES_JSON_OR_NOTHING, /* r->json is an empty object then */
	TAKES_STREAM,
};

enum {
	ROUTE_OPEN = 1,        /* no key is asked for: r->caller.scope may be SCOPE_NONE, and the handler has to judge */
	ROUTE_WORK = 2,        /* new work: 503 while the daemon drains */
	ROUTE_LASTING = 4,     /* a stream without an end of its own: does not hold back a drain */
	ROUTE_IDEMPOTENT = 8,  /* Idempotency-Key is looked at; TAKES_JSON or TAKES_JSON_OR_NOTHING */
	ROUTE_ANY_ORIGIN = 16, /* browsers may come from anywhere */
};

enum { ROUTE_PARAMS_MAX = 4, REQUEST_ID_SIZE = 25 };

struct route {
	const char *method, *pattern; /* "{name}" is one segment that is not empty; texts before parameters are tried first */
	enum scope scope;
	enum takes takes;
	unsigned flags;
	const struct json_field *fields; /* of the body; NULL: any object, which the handler checks */
	void (*run)(struct request *r);
	/* Writes a problem in the form of another protocol; NULL: problem+json. Ends the request. */
	void (*write_problem)(struct request *r, const struct problem *p);
	uint64_t body_max; /* TAKES_STREAM; 0: no limit. JSON has JSON_BODY_MAX */
};

struct router;
/* The table must outlive the router. */
void router_add(struct router *router, const struct route *routes, size_t count);
/* Asked before everything but the check of Host, in the order of registration, with r->route NULL: true when it has taken the
 * request over (it is the handler then). For traffic that is not chosen by the path. It may set r->route to a static route of its
 * own for metrics, and has to ask request_authenticate() itself where a key is needed. */
void router_add_front(struct router *router, bool (*front)(struct request *r));

/* ---- A request. ---- */

struct caller {
	enum scope scope;
	char key_id[KEY_ID_SIZE]; /* "": no key (the owner of the state directory at its socket, or nobody) */
};

struct request {
	struct daemon *daemon;
	const struct route *route;
	char id[REQUEST_ID_SIZE];             /* X-Request-Id */
	const char *method;                   /* "HEAD" is given to GET routes as it is */
	const char *path, *query;             /* as sent; query NULL when there is none */
	char host[HOST_SIZE];                 /* lower case, without port */
	const char *params[ROUTE_PARAMS_MAX]; /* of the pattern, decoded, without NUL and '/' */
	struct target_parts target;
	json_t *json; /* the request's */
	struct caller caller;
	void *data; /* the handler's */

	struct exchange *x; /* the server's (http.h) */
};

/* The value of a header field (name in lower case); NULL when it is not there or there more than once. */
const char *request_header(const struct request *r, const char *name);
size_t request_header_count(const struct request *r, const char *name);
/* All fields in order: false behind the last one. For proxying. */
bool request_header_at(const struct request *r, size_t index, const char **ret_name, const char **ret_value);
bool request_header_hop_by_hop(const struct request *r, size_t index);

/* A parameter of the query, decoded; NULL when it is not there. The first of several. */
const char *request_query(const struct request *r, const char *name);
/* "true", "false", "" (as true). False with the request refused and dead. */
bool request_query_bool(struct request *r, const char *name, bool missing, bool *ret);
/* ?limit= (1 to 1000, else 100) and ?cursor= (NULL). False with the request refused and dead. */
bool request_page(struct request *r, size_t *ret_limit, const char **ret_cursor);

/* Who the client is by its key; fills r->caller. False: nobody (not answered yet). */
bool request_authenticate(struct request *r);

/* Called at most once, from the event loop, when the client has left while the request is the handler's. */
void request_on_gone(struct request *r, void (*gone)(struct request *r));
bool request_is_gone(const struct request *r);
/* An answer to this Idempotency-Key is not to be kept. */
void request_forget(struct request *r);
/* For a front: this request holds back a drain, as those of routes without ROUTE_LASTING do. */
void request_hold_drain(struct request *r);
/* This much time may pass without progress of the body or the answer; the default is 60 s. */
void request_patience(struct request *r, usec_t t);

enum body_event { BODY_MORE, BODY_WHOLE, BODY_BROKEN };

/* Reads the body (TAKES_STREAM). `take` gets a buffer of what has come, at most STREAM_ROOM bytes: it removes what it can use. If
 * it leaves something, nothing more is read until it calls request_read_more(). BODY_WHOLE comes once, with the last bytes; what
 * `take` leaves then stays in the buffer until the request ends. `take` is called from the event loop, or before this function
 * returns if the client has left already. BODY_BROKEN: it never becomes whole (the client left, or sent what is no body, or more
 * than is allowed); the handler ends the request with refuse_body() or request_reset(). */
void request_read(struct request *r, void (*take)(struct request *r, struct evbuffer *content, enum body_event event));
void request_read_more(struct request *r);
struct evbuffer *request_content(struct request *r); /* what was left */
void refuse_body(struct request *r);                 /* ends the request with why the body is broken */
/* For who collects a body: counts what is held of all of them, so that many clients together cannot have what one may not. False:
 * it is too much now. Until request_drop_body() or the end of the request. */
bool request_count_body(struct request *r, size_t more);
/* Counts what has come, and moves it to `to`, where it takes no more memory than is counted. */
bool request_collect(struct request *r, struct evbuffer *to, struct evbuffer *content);
void request_drop_body(struct request *r);
/* The length that the head announces; false: it does not. */
bool request_length(const struct request *r, uint64_t *ret);

/* ---- Answers. ---- */

/* A further field, before the answer begins. Bytes that could end the line make the call do nothing. */
void respond_header(struct request *r, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* For a proxy, whose answer is another server's: no fields of ours but the framing. Before the answer begins. */
void respond_bare(struct request *r);

/* Takes over `body`; NULL (out of memory) becomes 500. */
void respond_json(struct request *r, unsigned status, json_t *body);
void respond_text(struct request *r, unsigned status, const char *type, const char *text, size_t size);
/* Empties `body`, which stays the caller's. */
void respond_buffer(struct request *r, unsigned status, const char *type, struct evbuffer *body);
/* No body: 204, or another status with Content-Length: 0. */
void respond_empty(struct request *r, unsigned status);

void refuse(struct request *r, enum problem_code code, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void refuse_faults(struct request *r, enum problem_code code, const struct json_faults *f);
void refuse_with(struct request *r, const struct problem *p);

enum { STREAM_ROOM = 256 * 1024 };

/* `length`: how many bytes will come, ZW_UNLIMITED: not known (chunked). */
void stream_begin(struct request *r, unsigned status, const char *type, uint64_t length);
void stream_write(struct request *r, const void *data, size_t size);
void stream_write_buffer(struct request *r, struct evbuffer *content); /* empties it */
/* Bytes that the client has not taken yet (0 when it has left). */
size_t stream_queued(const struct request *r);
/* Called each time that stream_queued() has fallen below a quarter of STREAM_ROOM; NULL ends that. */
void stream_on_room(struct request *r, void (*room)(struct request *r));
void stream_end(struct request *r);
/* Cuts the connection with a reset, in the middle of whatever was sent: what a client sees when a sandbox dies. */
void request_reset(struct request *r);

/* ---- Other protocols. ---- */

/* Takes the connection over, for what `head` (the whole head of the answer with its empty line, or NULL) announces. What the
 * client has sent behind its head is in the input of the bufferevent, which has no callbacks yet. `cut` is called when the server
 * ends or the key is revoked: tunnel_close() then. The request is dead. NULL when the client has left. */
struct tunnel *request_take_over(struct request *r, const char *head, void (*cut)(void *arg), void *arg);
struct bufferevent *tunnel_bev(struct tunnel *t);
void tunnel_close(struct tunnel *t);
