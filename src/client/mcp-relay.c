#include "client/mcp-relay.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "client/show.h"
#include "client/sse-in.h"

enum {
	POSTS_MAX = 256,
	MESSAGE_MAX = 64 * 1024 * 1024, /* of an answer */
	HEADER_TEXT_MAX = 1024,
	TOLD_MAX = 400, /* bytes of a reason of the daemon */
	GOODBYE_SECONDS = 10,
};

static const char version_key[] = "io.modelcontextprotocol/protocolVersion";
static const char handshake_revision[] = "2025-11-25";

enum post_kind {
	POST_REQUEST,
	POST_NOTE,      /* a notification: nothing comes back */
	POST_HANDSHAKE, /* the client's */
	POST_OPENING,   /* ours */
};

struct relay_post {
	struct relay_post *next;
	struct relay *relay;
	enum post_kind kind;
	struct mcp_message message;
	char *session; /* that it was sent with */
	struct transfer transfer;
	CURL *easy;
	bool on, answered, events;
	bool again; /* sent a second time, in a new session */
	struct sse_in sse;
	struct buf body;
};

/* ---- Errors. ---- */

static bool is_call(const struct relay_post *p)
{
	return p->kind == POST_REQUEST && strcmp(p->message.method, "tools/call") == 0;
}

/* `reason` is for programs, the sentence for people and models. */
static void fail(struct relay_post *p, const char *reason, long status, const char *text)
{
	json_t *data = json_pack("{ss}", "reason", reason);

	if (status != 0)
		(void) json_object_set_new(data, "status", json_integer(status));
	if (p->kind == POST_NOTE || p->kind == POST_OPENING || p->answered)
		json_decref(data);
	else
		p->relay->send(p->relay->ctx, mcp_error(p->message.id, MCP_INTERNAL, data, "%s", text));
	p->answered = true;
}

static bool never_connected(CURLcode code)
{
	return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
}

/* What became of a transfer that brought no answer. Owned by the caller. */
static char *reason_of(const struct relay_post *p, CURLcode code, const char **ret_reason)
{
	const struct remote *remote = p->relay->remote;
	cleanup_free char *why = show_safe(p->transfer.error[0] != '\0' ? p->transfer.error : curl_easy_strerror(code), TOLD_MAX);

	*ret_reason = never_connected(code) ? "daemon_unreachable" : "daemon_lost";
	if (never_connected(code))
		return xasprintf("no daemon answers at %s: %s; %s", remote->where, why, remote->remedy);
	if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
		*ret_reason = "certificate";
		return xasprintf("the certificate of %s is not trusted: %s; name the one to trust with --cacert", remote->where,
				 why);
	}
	if (code == CURLE_OK)
		return xasprintf("%s has ended the call without an answer", remote->where);
	return xasprintf("the connection to %s broke before the answer: %s%s", remote->where, why,
			 is_call(p) ? "; what the call had begun has ended" : "");
}

/* A refusal outside of the protocol: a key, a limit, the end of the service. */
static char *refusal_of(const struct relay_post *p, long status)
{
	json_t *problem = json_loadb(p->transfer.body.data != NULL ? p->transfer.body.data : "", p->transfer.body.size,
				     JSON_REJECT_DUPLICATES, NULL);
	const char *message = json_string_value(json_object_get(problem, "message")),
		   *hint = json_string_value(json_object_get(problem, "hint"));
	cleanup_free char *safe = message != NULL ? show_safe(message, TOLD_MAX) : NULL;
	cleanup_free char *remedy = hint != NULL ? show_safe(hint, TOLD_MAX) : NULL;
	char *text = safe != NULL ? xasprintf("%s refuses: %s%s%s", p->relay->remote->where, safe, remedy != NULL ? "; " : "",
					      remedy != NULL ? remedy : "")
				  : xasprintf("%s answered with status %ld and no reason that could be read",
					      p->relay->remote->where, status);

	json_decref(problem);
	return text;
}

/* ---- What comes back. ---- */

static void forward(struct relay_post *p, json_t *message)
{
	bool is_last = json_object_get(message, "method") == NULL;

	if (p->kind == POST_OPENING || p->kind == POST_NOTE || p->answered) {
		json_decref(message);
		return;
	}
	p->answered = is_last;
	p->relay->send(p->relay->ctx, message);
}

/* NULL: no message of the protocol. */
static json_t *message_in(const char *data, size_t size)
{
	json_t *m = json_loadb(data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	const char *version = json_string_value(json_object_get(m, "jsonrpc"));

	if (version != NULL && strcmp(version, "2.0") == 0)
		return m;
	json_decref(m);
	return NULL;
}

static int take_event(void *ctx, const char *event, const char *data, size_t size)
{
	json_t *m = strcmp(event, "message") == 0 ? message_in(data, size) : NULL;

	if (m != NULL)
		forward(ctx, m);
	return 0;
}

static int take_data(void *ctx, const char *data, size_t size)
{
	struct relay_post *p = ctx;
	const char *type = NULL;
	int r;

	if (p->relay->is_full(p->relay->ctx)) {
		p->relay->paused = true;
		return 1;
	}
	(void) curl_easy_getinfo(p->easy, CURLINFO_CONTENT_TYPE, &type);
	p->events = type != NULL && strncmp(type, "text/event-stream", strlen("text/event-stream")) == 0;
	r = p->events ? sse_in_take(&p->sse, data, size) : buf_add(&p->body, data, size);
	p->transfer.too_large = r < 0;
	return r;
}

/* ---- Posts. ---- */

static struct relay_post *post_new(struct relay *r, enum post_kind kind, const struct mcp_message *m)
{
	struct relay_post *p = xcalloc(1, sizeof *p), **at = &r->posts;

	*p = (struct relay_post){.relay = r, .kind = kind, .message = *m, .body = buf_new(MESSAGE_MAX)};
	(void) json_incref(m->document);
	sse_in_init(&p->sse, MESSAGE_MAX, take_event, p);
	while (*at != NULL)
		at = &(*at)->next;
	*at = p;
	r->count++;
	return p;
}

static void post_free(struct relay_post *p)
{
	struct relay_post **at = &p->relay->posts;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	p->relay->count--;
	if (p->on) {
		(void) curl_multi_remove_handle(p->relay->multi, p->easy); /* before the end it closes the connection */
		transfer_done(&p->transfer);
	}
	if (p->easy != NULL)
		curl_easy_cleanup(p->easy);
	sse_in_done(&p->sse);
	buf_done(&p->body);
	mcp_message_done(&p->message);
	free(p->session);
	free(p);
}

/* A value that is no plain text travels as =?base64?...?=. */
static void add_header(struct transfer *t, const char *name, const char *value)
{
	size_t size = strlen(value), n = 0;
	cleanup_free char *line = NULL, *encoded = NULL;

	while (n < size && value[n] > ' ' && value[n] < 0x7f)
		n++;
	if (n < size || size == 0 || strncmp(value, "=?", 2) == 0) {
		size_t room = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);

		encoded = xcalloc(room, 1);
		(void) sodium_bin2base64(encoded, room, (const unsigned char *) value, size, sodium_base64_VARIANT_ORIGINAL);
		line = xasprintf("%s: =?base64?%s?=", name, encoded);
	} else {
		line = xasprintf("%s: %s", name, value);
	}
	if (strlen(line) <= HEADER_TEXT_MAX) /* without it the daemon refuses */
		transfer_header(t, line);
}

static const char *revision_named(const struct mcp_message *m)
{
	return json_string_value(json_object_get(json_object_get(m->params, "_meta"), version_key));
}

static void add_headers(struct relay_post *p)
{
	const struct mcp_message *m = &p->message;
	const char *revision = revision_named(m), *name = json_string_value(json_object_get(m->params, "name"));
	struct transfer *t = &p->transfer;

	transfer_header(t, "Accept: application/json, text/event-stream");
	if (p->kind == POST_HANDSHAKE || p->kind == POST_OPENING)
		return;
	if (revision == NULL) {
		if (p->session != NULL)
			add_header(t, "Mcp-Session-Id", p->session);
		if (p->session != NULL && p->relay->revision != NULL)
			add_header(t, "MCP-Protocol-Version", p->relay->revision);
		return;
	}
	add_header(t, "MCP-Protocol-Version", revision);
	add_header(t, "Mcp-Method", m->method);
	if (name != NULL)
		add_header(t, "Mcp-Name", name);
	if (p->session != NULL)
		add_header(t, "Zwinger-Mcp-Session", p->session);
}

static void post_send(struct relay_post *p)
{
	struct relay *r = p->relay;

	if (p->easy == NULL)
		p->easy = curl_easy_init();
	if (p->easy == NULL) {
		fail(p, "internal", 0, "there is not enough memory for the request");
		post_free(p);
		return;
	}
	free(p->session);
	p->session = r->session != NULL ? xstrdup(r->session) : NULL;
	transfer_init(&p->transfer, r->remote, p->easy, "POST", "/mcp", json_incref(p->message.document));
	add_headers(p);
	(void) curl_easy_setopt(p->easy, CURLOPT_PRIVATE, p);
	if (is_call(p)) /* it answers when it has ended, and may say nothing until then */
		transfer_may_be_silent(&p->transfer);
	p->transfer.sink = take_data;
	p->transfer.ctx = p;
	p->on = curl_multi_add_handle(r->multi, p->easy) == CURLM_OK;
	if (!p->on) {
		transfer_done(&p->transfer);
		fail(p, "internal", 0, "libcurl does not take the request");
		post_free(p);
	}
}

/* Nobody waits for it any more. */
static void unsend(struct relay_post *p)
{
	(void) curl_multi_remove_handle(p->relay->multi, p->easy);
	transfer_done(&p->transfer);
	curl_easy_cleanup(p->easy);
	p->easy = NULL;
	p->on = false;
	p->body.size = 0;
	sse_in_again(&p->sse);
}

/* ---- Sessions. ---- */

static void forget_session(struct relay *r)
{
	free(r->session);
	free(r->revision);
	r->session = r->revision = NULL;
}

static void open_session(struct relay *r)
{
	json_t *params = r->hello != NULL ? json_incref(r->hello)
					  : json_pack("{ss s{} s{ss ss}}", "protocolVersion", handshake_revision, "capabilities",
						      "clientInfo", "name", "zwinger mcp", "version", ZWINGER_VERSION);
	json_t *document =
	    json_pack("{ss ss ss so}", "jsonrpc", "2.0", "id", "zwinger", "method", "initialize", "params", params);
	struct mcp_message m;
	json_t *wrong = NULL;

	if (mcp_message_of(document, &m, &wrong) == 0) {
		r->opening = true;
		post_send(post_new(r, POST_OPENING, &m));
		mcp_message_done(&m);
	}
	json_decref(wrong);
	json_decref(document);
}

static bool needs_session(const struct relay_post *p)
{
	return p->kind == POST_REQUEST && (revision_named(&p->message) == NULL || is_call(p));
}

static bool is_token(const char *text)
{
	size_t n = 0;

	while (text[n] > ' ' && text[n] < 0x7f)
		n++;
	return n > 0 && n < HEADER_TEXT_MAX / 2 && text[n] == '\0';
}

/* With a session, what waits for one is sent; without, it fails as the handshake did. */
static void send_waiting(struct relay *r, const char *reason, long status, const char *text)
{
	for (struct relay_post *p = r->posts, *next; p != NULL; p = next) {
		next = p->next;
		if (p->on || !needs_session(p))
			continue;
		if (r->session != NULL) {
			post_send(p);
		} else {
			fail(p, reason, status, text);
			post_free(p);
		}
	}
}

static void initialized(struct relay *r)
{
	json_t *document = json_pack("{ss ss}", "jsonrpc", "2.0", "method", "notifications/initialized");
	struct mcp_message m;
	json_t *wrong = NULL;

	if (mcp_message_of(document, &m, &wrong) == 0) {
		post_send(post_new(r, POST_NOTE, &m));
		mcp_message_done(&m);
	}
	json_decref(wrong);
	json_decref(document);
}

static void take_session(struct relay_post *p, const json_t *answer)
{
	struct relay *r = p->relay;
	const char *revision = json_string_value(json_object_get(json_object_get(answer, "result"), "protocolVersion"));
	struct curl_header *h = NULL;

	forget_session(r);
	if (curl_easy_header(p->easy, "Mcp-Session-Id", 0, CURLH_HEADER, -1, &h) != CURLHE_OK || !is_token(h->value))
		return;
	r->session = xstrdup(h->value);
	r->revision = revision != NULL && is_token(revision) ? xstrdup(revision) : NULL;
	if (p->kind == POST_OPENING)
		initialized(r);
}

/* The daemon does not know it: it was restarted. True: the post is sent again, in a new session. */
static bool lost_session(struct relay_post *p)
{
	struct relay *r = p->relay;

	if (r->session != NULL && p->session != NULL && strcmp(r->session, p->session) == 0)
		forget_session(r);
	if (is_call(p)) {
		fail(p, "session_lost", 0,
		     "the daemon has been restarted, or has ended the session: the sandboxes of before are gone with their files "
		     "and interpreters, and this call did nothing; call again, and a new sandbox begins");
		return false;
	}
	if (p->kind != POST_REQUEST)
		return false;
	if (p->again) {
		fail(p, "session_lost", 0, "the daemon ends each session at once");
		return false;
	}
	p->again = true;
	unsend(p);
	if (r->session != NULL)
		post_send(p);
	else if (!r->opening)
		open_session(r);
	return true;
}

/* ---- Results. ---- */

static long code_of(const json_t *message)
{
	return (long) json_integer_value(json_object_get(json_object_get(message, "error"), "code"));
}

/* Whole answers; *ret_again: it goes on. */
static void take_answer(struct relay_post *p, long status, bool *ret_again)
{
	bool good = status >= 200 && status < 300;
	const struct buf *body = good ? &p->body : &p->transfer.body;
	json_t *m = body->size > 0 ? message_in(body->data, body->size) : NULL;
	cleanup_free char *text = NULL;

	if (status == 404 && p->session != NULL && code_of(m) == MCP_INVALID_REQUEST) {
		json_decref(m);
		*ret_again = lost_session(p);
		return;
	}
	if (good && m != NULL && (p->kind == POST_HANDSHAKE || p->kind == POST_OPENING))
		take_session(p, m);
	if (m != NULL) {
		forward(p, m);
	} else if (!p->answered) {
		const char *reason = "refused";

		text = good ? reason_of(p, CURLE_OK, &reason) : refusal_of(p, status);
		fail(p, reason, status, text);
	}
}

static void opened(struct relay_post *p, CURLcode code, long status)
{
	struct relay *r = p->relay;
	const char *reason = "refused";
	cleanup_free char *text = NULL;

	r->opening = false;
	if (r->session == NULL)
		text = code != CURLE_OK || (status >= 200 && status < 300) ? reason_of(p, code, &reason) : refusal_of(p, status);
	send_waiting(r, reason, status, text != NULL ? text : "");
}

static void finished(struct relay_post *p, CURLcode code)
{
	bool handshake = p->kind == POST_HANDSHAKE || p->kind == POST_OPENING, again = false;
	const char *reason = "too_large";
	cleanup_free char *text = NULL;
	long status = 0;

	(void) curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (p->transfer.too_large) {
		text = xasprintf("%s answered with more than a client accepts", p->relay->remote->where);
		fail(p, reason, status, text);
	} else if (code != CURLE_OK) {
		text = reason_of(p, code, &reason);
		fail(p, reason, 0, text);
	} else {
		take_answer(p, status, &again);
	}
	if (handshake)
		opened(p, code, status);
	if (!again)
		post_free(p);
}

void relay_take_results(struct relay *r)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(r->multi, &left)) != NULL) {
		CURLcode code = m->data.result;
		char *private = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void) curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
		finished((struct relay_post *) (void *) private, code);
	}
}

void relay_go_on(struct relay *r)
{
	if (!r->paused)
		return;
	r->paused = false;
	for (struct relay_post *p = r->posts; p != NULL; p = p->next)
		if (p->on)
			(void) curl_easy_pause(p->easy, CURLPAUSE_CONT);
}

/* ---- What the client says. ---- */

static struct relay_post *find(struct relay *r, const json_t *id)
{
	struct relay_post *p = r->posts;

	while (p != NULL && (p->kind == POST_NOTE || p->kind == POST_OPENING || !json_equal(p->message.id, id)))
		p = p->next;
	return p;
}

static void take_note(struct relay *r, const struct mcp_message *m)
{
	const json_t *id = json_object_get(m->params, "requestId");
	struct relay_post *p;

	if (strcmp(m->method, "notifications/cancelled") == 0) {
		p = id != NULL ? find(r, id) : NULL;
		if (p != NULL && p->kind == POST_REQUEST)
			post_free(p); /* a connection that closes cancels the call, in any revision */
	} else if (r->session != NULL && r->count < POSTS_MAX) {
		post_send(post_new(r, POST_NOTE, m));
	}
}

static void take_handshake(struct relay *r, const struct mcp_message *m)
{
	json_decref(r->hello);
	r->hello = json_incref(m->params);
	r->opening = true;
	post_send(post_new(r, POST_HANDSHAKE, m));
}

void relay_take(struct relay *r, const struct mcp_message *m)
{
	struct relay_post *p;

	if (m->kind == MCP_NOTIFICATION)
		take_note(r, m);
	if (m->kind != MCP_REQUEST)
		return;
	if (find(r, m->id) != NULL) {
		r->send(r->ctx, mcp_error(m->id, MCP_INVALID_REQUEST, NULL, "a request with this id is under way"));
	} else if (r->count >= POSTS_MAX) {
		r->send(r->ctx, mcp_error(m->id, MCP_INTERNAL, NULL, "too many calls are under way"));
	} else if (strcmp(m->method, "initialize") == 0 && revision_named(m) == NULL && r->session == NULL && !r->opening) {
		take_handshake(r, m);
	} else {
		p = post_new(r, POST_REQUEST, m);
		if (!needs_session(p) || (r->session != NULL && !r->opening))
			post_send(p);
		else if (!r->opening)
			open_session(r);
	}
}

/* ---- The end. ---- */

void relay_leave(struct relay *r, bool all)
{
	for (struct relay_post *p = r->posts, *next; p != NULL; p = next) {
		next = p->next;
		if (all || is_call(p))
			post_free(p);
	}
}

void relay_end(struct relay *r)
{
	struct transfer t;

	relay_leave(r, true);
	if (r->session != NULL) {
		transfer_init(&t, r->remote, r->remote->spare, "DELETE", "/mcp", NULL);
		add_header(&t, "Mcp-Session-Id", r->session);
		(void) curl_easy_setopt(r->remote->spare, CURLOPT_TIMEOUT, (long) GOODBYE_SECONDS);
		(void) curl_easy_perform(r->remote->spare); /* a daemon that is gone has ended them */
		transfer_done(&t);
	}
	forget_session(r);
	json_decref(r->hello);
	r->hello = NULL;
}
