/* /mcp: the streamable HTTP transport. A request is answered with JSON, or, once there is progress to tell, with server-sent
 * events. Revisions with a handshake have sessions, whose sandboxes end with them; in the stateless one the key owns them.
 *
 * A client that closes the connection before the answer has canceled its call. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/hex.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/http.h"
#include "daemon/mcp/mcp.h"
#include "daemon/sse.h"

enum { SESSION_ID_SIZE = 33, SESSIONS_MAX = 1000, STREAMS_OPEN_MAX = 16, NAME_HEADER_MAX = 1024 };

#define SESSION_IDLE (24 * 3600 * USEC_PER_SEC)

/* A GET: nothing is sent there, because we ask and announce nothing; clients may want it open. */
struct open_stream {
	struct open_stream *next;
	struct mcp_session *session;
	struct sse *sse;
};

struct mcp_session {
	struct mcp_session *next;
	char id[SESSION_ID_SIZE], key_id[KEY_ID_SIZE];
	struct mcp_owner owner;
	enum mcp_revision revision;
	usec_t used; /* monotonic */
	bool over;
	struct open_stream *streams;
	size_t stream_count;
};

struct key_owner {
	struct key_owner *next;
	char id[KEY_ID_SIZE];
	struct mcp_owner owner;
};

struct mcp_http {
	struct daemon *daemon;
	struct mcp_session *sessions;
	size_t session_count;
	struct key_owner *keys;
};

/* ---- Sessions. ---- */

static void end_streams(struct mcp_session *s)
{
	while (s->streams != NULL) {
		struct open_stream *o = s->streams;

		s->streams = o->next;
		sse_end(o->sse);
		free(o);
	}
	s->stream_count = 0;
}

/* What has ended, or was forgotten by its client. */
static void sweep(struct mcp_http *h)
{
	usec_t now = now_monotonic();

	for (struct mcp_session **at = &h->sessions; *at != NULL;) {
		struct mcp_session *s = *at;
		bool idle = (s->over || (now - s->used > SESSION_IDLE && s->streams == NULL)) && mcp_owner_is_idle(&s->owner);

		if (!idle) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		h->session_count--;
		free(s);
	}
	for (struct key_owner **at = &h->keys; *at != NULL;) {
		struct key_owner *k = *at;

		if (!mcp_owner_is_idle(&k->owner)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k);
	}
}

/* Where there are as many as there may be, the one that has done nothing for longest goes. */
static bool make_room(struct mcp_http *h)
{
	struct mcp_session *oldest = NULL;

	if (h->session_count < SESSIONS_MAX)
		return true;
	for (struct mcp_session *s = h->sessions; s != NULL; s = s->next)
		if (mcp_owner_is_idle(&s->owner) && s->streams == NULL && (oldest == NULL || s->used < oldest->used))
			oldest = s;
	if (oldest == NULL)
		return false;
	oldest->over = true;
	sweep(h);
	return true;
}

static struct mcp_session *new_session(struct mcp_http *h, const struct request *r, enum mcp_revision revision)
{
	unsigned char random[(SESSION_ID_SIZE - 1) / 2];
	struct mcp_session *s;

	sweep(h);
	if (!make_room(h) || getrandom(random, sizeof random, 0) != sizeof random)
		return NULL;
	s = xcalloc(1, sizeof *s);
	*s = (struct mcp_session){.next = h->sessions,
				  .owner = {.daemon = h->daemon, .label = "session"},
				  .revision = revision,
				  .used = now_monotonic()};
	for (size_t i = 0; i < sizeof random; i++)
		(void) snprintf(s->id + 2 * i, 3, "%02x", random[i]);
	memcpy(s->key_id, r->caller.key_id, sizeof s->key_id);
	h->sessions = s;
	h->session_count++;
	return s;
}

static struct mcp_session *session_of(struct request *r, const char *id)
{
	struct mcp_session *s = r->daemon->mcp_http->sessions;

	while (s != NULL && (s->over || strcmp(s->id, id) != 0 || strcmp(s->key_id, r->caller.key_id) != 0))
		s = s->next;
	if (s != NULL)
		s->used = now_monotonic();
	return s;
}

static struct mcp_owner *owner_of_key(struct request *r)
{
	struct mcp_http *h = r->daemon->mcp_http;
	struct key_owner *k = h->keys;

	while (k != NULL && strcmp(k->id, r->caller.key_id) != 0)
		k = k->next;
	if (k != NULL)
		return &k->owner;
	sweep(h);
	k = xcalloc(1, sizeof *k);
	*k = (struct key_owner){.next = h->keys, .owner = {.daemon = h->daemon, .label = "key"}};
	memcpy(k->id, r->caller.key_id, sizeof k->id);
	h->keys = k;
	return &k->owner;
}

/* ---- Answers. ---- */

/* A body that is no JSON is answered in the protocol's form; what is not the protocol's business is a problem like others. */
static void write_problem(struct request *r, const struct problem *p)
{
	cleanup_free char *text = NULL;

	if (p->code == PROBLEM_BAD_REQUEST) {
		respond_json(r, problem_status(p), mcp_error(NULL, MCP_PARSE_ERROR, NULL, "%s", p->message));
		return;
	}
	text = problem_json(p, r->id);
	respond_text(r, problem_status(p), "application/problem+json", text != NULL ? text : "{}",
		     text != NULL ? strlen(text) : 2);
}

struct work {
	struct request *request; /* NULL: it is dead */
	struct sse *sse;
	struct mcp_call *call;
	bool events; /* the client takes them */
};

static void send_event(struct work *w, json_t *message)
{
	if (w->sse == NULL) {
		w->sse = sse_begin(w->request);
		if (w->sse == NULL)
			w->request = NULL;
	}
	if (w->sse != NULL)
		sse_send(w->sse, UINT64_MAX, "message", message);
	else
		json_decref(message);
}

static void send_last(struct work *w, json_t *message)
{
	if (w->request == NULL)
		json_decref(message);
	else if (w->sse == NULL && message != NULL)
		respond_json(w->request, 200, message);
	else if (w->sse == NULL)
		respond_empty(w->request, 204);
	else {
		if (message != NULL)
			send_event(w, message);
		sse_end(w->sse);
	}
	free(w);
}

static void send_message(void *to, json_t *message, bool last)
{
	struct work *w = to;

	if (last)
		send_last(w, message);
	else if (w->request != NULL && w->events && (w->sse == NULL || sse_room(w->sse)))
		send_event(w, message);
	else
		json_decref(message); /* the result has all of it */
}

static void gone(struct request *r)
{
	struct work *w = r->data;

	if (w->call != NULL)
		mcp_call_cancel(w->call);
}

/* ---- Headers of the stateless revision. ---- */

/* A value that is no plain text travels as =?base64?...?=. NULL: it cannot be decoded. */
static char *header_text(const char *value)
{
	static const char before[] = "=?base64?", after[] = "?=";
	size_t size = strlen(value), used = 0, n = sizeof before - 1;
	char *text;

	if (size > NAME_HEADER_MAX)
		return NULL;
	if (strncmp(value, before, n) != 0 || size < n + 2 || strcmp(value + size - 2, after) != 0)
		return xstrdup(value);
	text = xcalloc(size + 1, 1);
	if (sodium_base642bin((unsigned char *) text, size, value + n, size - n - 2, NULL, &used, NULL,
			      sodium_base64_VARIANT_ORIGINAL) == 0 &&
	    strlen(text) == used)
		return text;
	free(text);
	return NULL;
}

static json_t *check_header(struct request *r, const struct mcp_message *m, const char *name, const char *expected)
{
	const char *value = request_header(r, name);
	cleanup_free char *text = value != NULL ? header_text(value) : NULL;

	if (value == NULL)
		return mcp_error(m->id, MCP_HEADER_MISMATCH, NULL, "the header %s is missing", name);
	if (text == NULL || strcmp(text, expected) != 0)
		return mcp_error(m->id, MCP_HEADER_MISMATCH, NULL, "the header %s is not what the body says", name);
	return NULL;
}

static json_t *check_headers(struct request *r, const struct mcp_message *m)
{
	const char *name = json_string_value(json_object_get(m->params, "name"));
	json_t *wrong = check_header(r, m, "mcp-protocol-version", mcp_revision_names[MCP_2026_07_28]);

	if (wrong == NULL)
		wrong = check_header(r, m, "mcp-method", m->method);
	if (wrong == NULL && name != NULL && strcmp(m->method, "tools/call") == 0)
		wrong = check_header(r, m, "mcp-name", name);
	return wrong;
}

/* ---- POST. ---- */

static bool takes_events(const struct request *r)
{
	const char *accept = request_header(r, "accept");

	return accept != NULL && (strstr(accept, "text/event-stream") != NULL || strstr(accept, "*/*") != NULL);
}

static unsigned status_of(enum mcp_revision revision, const json_t *answer)
{
	json_int_t code = json_integer_value(json_object_get(json_object_get(answer, "error"), "code"));

	return revision == MCP_2026_07_28 && code == MCP_METHOD_NOT_FOUND ? 404 : 200;
}

static void handle(struct request *r, struct mcp_owner *o, enum mcp_revision revision, const struct mcp_message *m)
{
	struct work *w = xcalloc(1, sizeof *w);
	const struct mcp_line line = {.send = send_message, .to = w, .handle = &w->call};
	json_t *answer = NULL;
	enum mcp_verdict verdict;

	*w = (struct work){.request = r, .events = takes_events(r)};
	r->data = w;
	request_on_gone(r, gone);
	verdict = mcp_handle(o, revision, m, &line, &answer);
	if (verdict == MCP_CALLED)
		return;
	free(w);
	request_on_gone(r, NULL);
	if (verdict == MCP_NOTHING)
		respond_empty(r, 202);
	else
		respond_json(r, status_of(revision, answer), answer);
}

static void initialize(struct request *r, const struct mcp_message *m)
{
	struct mcp_session *s = new_session(r->daemon->mcp_http, r, mcp_negotiate(m));

	if (s == NULL) {
		refuse(r, PROBLEM_BUSY, "end some of them", "there are as many sessions as this service allows");
		return;
	}
	respond_header(r, "Mcp-Session-Id", "%s", s->id);
	handle(r, &s->owner, s->revision, m);
}

static json_t *no_session(const struct mcp_message *m)
{
	return mcp_error(m->id, MCP_INVALID_REQUEST, NULL, "there is no such session; send initialize");
}

static void with_session(struct request *r, const struct mcp_message *m)
{
	const char *id = request_header(r, "mcp-session-id"), *version = request_header(r, "mcp-protocol-version");
	struct mcp_session *s = id != NULL ? session_of(r, id) : NULL;

	if (version != NULL && mcp_revision_named(version) == MCP_REVISION_MAX)
		respond_json(r, 400, mcp_unsupported(m->id, version));
	else if (m->kind == MCP_REQUEST && strcmp(m->method, "initialize") == 0)
		initialize(r, m);
	else if (version != NULL && mcp_revision_named(version) == MCP_2026_07_28)
		respond_json(r, 400,
			     mcp_error(m->id, MCP_INVALID_PARAMS, NULL,
				       "_meta has no io.modelcontextprotocol/protocolVersion, which %s needs", version));
	else if (id == NULL)
		respond_json(r, 400,
			     mcp_error(m->id, MCP_INVALID_REQUEST, NULL,
				       "send initialize first and then its Mcp-Session-Id, or name the revision in _meta"));
	else if (s == NULL)
		respond_json(r, 404, no_session(m));
	else
		handle(r, &s->owner, s->revision, m);
}

static void without_session(struct request *r, const struct mcp_message *m)
{
	/* Ours alone: `zwinger mcp --url` is one process, whose sandboxes end with it. */
	const char *id = request_header(r, "zwinger-mcp-session");
	struct mcp_session *s = id != NULL ? session_of(r, id) : NULL;
	json_t *wrong = m->kind == MCP_REQUEST ? check_headers(r, m) : NULL;

	if (wrong != NULL)
		respond_json(r, 400, wrong);
	else if (id != NULL && s == NULL)
		respond_json(r, 404, no_session(m));
	else
		handle(r, s != NULL ? &s->owner : owner_of_key(r), MCP_2026_07_28, m);
}

static void post(struct request *r)
{
	struct mcp_message m;
	enum mcp_revision revision;
	json_t *wrong = NULL;
	int how;

	if (mcp_message_of(r->json, &m, &wrong) < 0) {
		respond_json(r, 400, wrong);
		return;
	}
	how = mcp_revision_of(&m, &revision, &wrong);
	if (how == -EINVAL)
		respond_json(r, 400, wrong);
	else if (how == 0)
		without_session(r, &m);
	else
		with_session(r, &m);
	mcp_message_done(&m);
}

/* ---- GET and DELETE. ---- */

static void stream_gone(struct request *r)
{
	struct open_stream *o = r->data, **at = &o->session->streams;

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	o->session->stream_count--;
	sse_end(o->sse);
	free(o);
}

/* NULL with the request refused. */
static struct mcp_session *required_session(struct request *r)
{
	const char *id = request_header(r, "mcp-session-id");
	struct mcp_session *s = id != NULL ? session_of(r, id) : NULL;

	if (s != NULL)
		return s;
	if (id != NULL) {
		refuse(r, PROBLEM_NOT_FOUND, "send initialize", "there is no such session");
	} else {
		respond_header(r, "Allow", "POST");
		refuse(r, PROBLEM_METHOD_NOT_ALLOWED, "send initialize first", "without a session there is only POST");
	}
	return NULL;
}

static void get(struct request *r)
{
	struct mcp_session *s = required_session(r);
	struct open_stream *o;
	struct sse *sse;

	if (s == NULL)
		return;
	if (s->stream_count >= STREAMS_OPEN_MAX) {
		refuse(r, PROBLEM_CONFLICT, "close one of them", "the session has %d streams open", STREAMS_OPEN_MAX);
		return;
	}
	sse = sse_begin(r);
	if (sse == NULL)
		return;
	o = xcalloc(1, sizeof *o);
	*o = (struct open_stream){.next = s->streams, .session = s, .sse = sse};
	s->streams = o;
	s->stream_count++;
	r->data = o;
	request_on_gone(r, stream_gone);
}

static void delete (struct request *r)
{
	struct mcp_session *s = required_session(r);

	if (s == NULL)
		return;
	s->over = true;
	end_streams(s);
	mcp_owner_end(&s->owner, "the MCP session has ended");
	sweep(r->daemon->mcp_http);
	respond_empty(r, 204);
}

static const struct route routes[] = {
    {"POST", "/mcp", SCOPE_CREATE, TAKES_ANY_JSON, ROUTE_WORK, NULL, post, write_problem, 0},
    {"GET", "/mcp", SCOPE_CREATE, TAKES_NOTHING, ROUTE_LASTING, NULL, get, NULL, 0},
    {"DELETE", "/mcp", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, delete, NULL, 0},
};

void mcp_http_add(struct daemon *d)
{
	struct mcp_http *h = xcalloc(1, sizeof *h);

	h->daemon = d;
	d->mcp_http = h;
	router_add(d->router, routes, ARRAY_SIZE(routes));
}

struct mcp_http *mcp_http_free(struct mcp_http *h)
{
	if (h == NULL)
		return NULL;
	while (h->sessions != NULL) {
		struct mcp_session *s = h->sessions;

		h->sessions = s->next;
		mcp_owner_done(&s->owner);
		free(s);
	}
	while (h->keys != NULL) {
		struct key_owner *k = h->keys;

		h->keys = k->next;
		mcp_owner_done(&k->owner);
		free(k);
	}
	free(h);
	return NULL;
}
