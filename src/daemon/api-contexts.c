/* /v1/sandboxes/{id}/contexts. */
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/sandbox-contexts.h"
#include "daemon/sandbox-languages.h"
#include "daemon/sandbox.h"
#include "daemon/sse.h"
#include "daemon/text-carry.h"
#include "policy/text.h"
#include "sandbox/encode.h"

/* ---- The context of a request. ---- */

/* NULL with the request refused. With `make`, a language names its default context, which is made if it is not there. */
static struct sandbox_context *context_of(struct request *r, struct sandbox *s, bool make)
{
	struct problem p = {0};
	struct sandbox_context *x = s == NULL ? NULL
				    : make    ? sandbox_context_get(s, r->params[1], &p)
					      : sandbox_context_find(s, r->params[1]);

	if (s == NULL || x != NULL)
		return x;
	if (!make) {
		p.code = PROBLEM_NOT_FOUND;
		(void) snprintf(p.message, sizeof p.message, "there is no context %.140s in the sandbox", r->params[1]);
	}
	refuse_with(r, &p);
	return NULL;
}

static const char bad_env[] = "expected names that are not empty and have no '='";

/* Why there is no interpreter. */
static void refuse_dead(struct request *r, const struct sandbox_context *x)
{
	const struct driver *d = context_driver(x->context);
	const char *fault = context_fault(x->context);

	if (x->missing)
		refuse(r, PROBLEM_NOT_SUPPORTED, "choose a template that has it", "there is no %s in the sandbox, which %s needs",
		       d->name, d->language);
	else if (x->misasked)
		refuse(r, PROBLEM_BAD_REQUEST, "look at cwd and env", "the interpreter cannot be started: %.400s",
		       fault != NULL ? fault : "it has ended");
	else if (context_is_unsupported(x->context))
		refuse(r, PROBLEM_NOT_SUPPORTED, "choose a template that can", "%s: %.400s", d->language, fault);
	else
		refuse(r, PROBLEM_UNAVAILABLE, "look at the limits of the sandbox", "the interpreter did not come up: %.400s",
		       fault != NULL ? fault : "it has ended");
}

static void came_up(void *arg, struct sandbox_context *x)
{
	struct request *r = arg;

	if (x == NULL) {
		refuse(r, PROBLEM_CONFLICT, NULL, "the context was removed before it was ready");
	} else if (context_state(x->context) == CONTEXT_DEAD) {
		refuse_dead(r, x);
		sandbox_context_remove(x);
	} else {
		respond_header(r, "Location", "/v1/sandboxes/%s/contexts/%s", x->sandbox->id, x->id);
		respond_json(r, 201, sandbox_context_to_json(x));
	}
}

/* Nobody knows its id. */
static void creator_gone(struct request *r)
{
	sandbox_context_remove(r->data); /* which calls came_up() */
}

static void post_context(struct request *r)
{
	struct sandbox *s = sandbox_of(r, true);
	struct context_wish wish = {.language = json_in_text(r->json, "language"),
				    .name = json_in_text(r->json, "name"),
				    .cwd = json_in_text(r->json, "cwd"),
				    .env =
					json_is_object(json_object_get(r->json, "env")) ? json_object_get(r->json, "env") : NULL};
	struct sandbox_context *x;
	struct problem p = {0};

	if (s == NULL)
		return;
	if (wish.name != NULL && strlen(wish.name) > CONTEXT_NAME_MAX) {
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "name: longer than %d bytes", CONTEXT_NAME_MAX);
		return;
	}
	if (!context_env_is_good(wish.env)) {
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "env: %s", bad_env);
		return;
	}
	if (sandbox_context_new(s, &wish, came_up, r, &x, &p) < 0) {
		refuse_with(r, &p);
		return;
	}
	r->data = x;
	request_on_gone(r, creator_gone);
}

static void list_contexts(struct request *r)
{
	struct sandbox *s = sandbox_or_record_of(r);
	uint64_t after = 0;
	const char *cursor;
	json_t *list, *next = NULL;
	size_t limit;

	if (s == NULL || !request_page(r, &limit, &cursor))
		return;
	if (cursor != NULL && parse_whole(cursor, &after) < 0) {
		refuse(r, PROBLEM_BAD_REQUEST, "leave it out, or send what next_cursor said",
		       "cursor: this is none of this list");
		return;
	}
	list = json_array();
	for (const struct sandbox_context *x = s->contexts; x != NULL && next == NULL; x = x->next) {
		if (x->number <= after)
			continue;
		(void) json_array_append_new(list, sandbox_context_to_json(x));
		if (json_array_size(list) == limit && x->next != NULL)
			next = json_sprintf("%llu", (unsigned long long) x->number);
	}
	respond_json(r, 200, json_pack("{so so}", "contexts", list, "next_cursor", next != NULL ? next : json_null()));
}

static void get_context(struct request *r)
{
	const struct sandbox_context *x = context_of(r, sandbox_of(r, false), false);

	if (x != NULL)
		respond_json(r, 200, sandbox_context_to_json(x));
}

static void delete_context(struct request *r)
{
	struct sandbox_context *x = context_of(r, sandbox_of(r, true), false);

	if (x == NULL)
		return;
	sandbox_context_remove(x);
	respond_empty(r, 204);
}

static void interrupt_context(struct request *r)
{
	const struct sandbox_context *x = context_of(r, sandbox_of(r, true), true);

	if (x == NULL)
		return;
	context_interrupt(x->context);
	respond_empty(r, 204);
}

static void restart_context(struct request *r)
{
	struct sandbox_context *x = context_of(r, sandbox_of(r, true), true);

	if (x == NULL)
		return;
	context_restart(x->context);
	respond_json(r, 200, sandbox_context_to_json(x));
}

/* ---- One execution, for one request. ---- */

struct call {
	struct request *request;
	struct sandbox_context *context;
	struct execution *execution;
	bool streams; /* server-sent events, from the beginning of the execution on */
	struct sse *sse;
	struct evbuffer *output[2];
	struct text_carry carry[2]; /* for the stream */
	json_t *results, *error;
};

static const char *const stream_names[] = {"stdout", "stderr"};

static void call_free(struct call *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->output); i++)
		if (c->output[i] != NULL)
			evbuffer_free(c->output[i]);
	json_decref(c->results);
	json_decref(c->error);
	free(c);
}

static void has_room(struct request *r)
{
	const struct call *c = r->data;

	context_hold(c->context->context, false);
}

/* The slowest sets the pace: what the client does not take, the interpreter does not write. */
static void keep_pace(const struct call *c)
{
	if (!sse_room(c->sse))
		context_hold(c->context->context, true);
}

static void begin(void *ctx, unsigned count, bool fresh)
{
	struct call *c = ctx;

	if (!c->streams)
		return;
	c->sse = sse_begin(c->request);
	if (c->sse == NULL) { /* the request is dead */
		execution_cancel(c->execution);
		call_free(c);
		return;
	}
	sse_on_room(c->sse, has_room);
	sse_send(c->sse, UINT64_MAX, "start", json_pack("{si sb}", "execution_count", (int) count, "fresh", (int) fresh));
}

static json_t *text_or_base64(const char *data, size_t size)
{
	json_t *text = json_stringn(data, size);
	cleanup_free char *encoded = text == NULL ? encode_base64(data, size) : NULL;

	return text != NULL ? json_pack("{so}", "text", text) : json_pack("{ss}", "base64", encoded);
}

static void send_output(struct call *c, unsigned stream, const char *data, size_t size, bool last)
{
	cleanup_free char *text = text_carry_join(&c->carry[stream], data, size, last, &size);

	if (size > 0)
		sse_send(c->sse, UINT64_MAX, stream_names[stream], text_or_base64(text, size));
}

static void output(void *ctx, unsigned stream, const char *data, size_t size)
{
	struct call *c = ctx;

	if (c->sse == NULL) {
		(void) evbuffer_add(c->output[stream], data, size);
		return;
	}
	send_output(c, stream, data, size, false);
	keep_pace(c);
}

/* What was printed before comes before. */
static void flush_output(struct call *c)
{
	for (unsigned i = 0; i < 2; i++)
		send_output(c, i, NULL, 0, true);
}

static void result(void *ctx, json_t *value)
{
	struct call *c = ctx;

	(void) json_array_append(c->results, value);
	if (c->sse == NULL)
		return;
	flush_output(c);
	sse_send(c->sse, UINT64_MAX, "result", json_incref(value));
	keep_pace(c);
}

static void error(void *ctx, const char *name, const char *value, const char *traceback)
{
	struct call *c = ctx;

	c->error = json_pack("{ss? ss? ss?}", "name", name, "value", value, "traceback", traceback);
	if (c->sse == NULL)
		return;
	flush_output(c);
	sse_send(c->sse, UINT64_MAX, "error", json_incref(c->error));
}

static json_t *main_text(const struct call *c)
{
	const json_t *value;
	size_t i;

	json_array_foreach(c->results, i, value)
	{
		if (json_is_true(json_object_get(value, "main")))
			return json_incref(json_object_get(value, "text"));
	}
	return NULL;
}

static void set(json_t *o, const char *name, const char *suffix, json_t *value)
{
	char key[40];

	(void) snprintf(key, sizeof key, "%s%s", name, suffix);
	(void) json_object_set_new(o, key, value);
}

static void set_stream(json_t *o, const struct call *c, unsigned i, const struct execution_end *end)
{
	size_t size = evbuffer_get_length(c->output[i]);
	const char *data = size > 0 ? (const char *) evbuffer_pullup(c->output[i], -1) : "";
	json_t *text;
	cleanup_free char *encoded = NULL;

	if (end->truncated[i])
		size -= utf8_incomplete_tail(data, size);
	text = json_stringn(data, size);
	if (text == NULL)
		encoded = encode_base64(data, size);
	set(o, stream_names[i], "_encoding", json_string(text != NULL ? "utf-8" : "base64"));
	set(o, stream_names[i], "", text != NULL ? text : json_string(encoded));
}

static json_t *execution_to_json(const struct call *c, const struct execution_end *end)
{
	json_t *text = main_text(c);
	json_t *o = json_pack("{ss ss ss ss? si sb ss}", "schema", "zwinger.execution/1", "context_id", c->context->id, "status",
			      execution_status_names[end->status], "reason", end->reason, "execution_count", (int) end->count,
			      "fresh", (int) end->fresh, "context_state", end->restarted ? "restarted" : "kept");

	for (unsigned i = 0; o != NULL && i < 2; i++) {
		if (!c->streams)
			set_stream(o, c, i, end);
		set(o, stream_names[i], "_bytes", json_integer((json_int_t) end->bytes[i]));
		set(o, stream_names[i], "_truncated", json_boolean(end->truncated[i]));
	}
	if (o == NULL || json_object_update_new(o, json_pack("{so sO sO? sf}", "text", text != NULL ? text : json_null(),
							     "results", c->results, "error", c->error, "seconds",
							     (double) end->took / (double) USEC_PER_SEC)) < 0) {
		json_decref(o);
		return NULL;
	}
	if (end->results_dropped > 0)
		(void) json_object_set_new(o, "results_dropped", json_integer(end->results_dropped));
	return o;
}

static void end(void *ctx, const struct execution_end *end)
{
	struct call *c = ctx;

	sandbox_context_count(c->context, end->status);
	if (c->sse != NULL) {
		flush_output(c);
		sse_send(c->sse, UINT64_MAX, "end", execution_to_json(c, end));
		sse_end(c->sse);
	} else if (end->status == EXECUTION_DIED && end->count == 0) { /* it did not begin */
		refuse_dead(c->request, c->context);
	} else {
		c->streams = false; /* it ended before it began: there is no stream */
		respond_json(c->request, 200, execution_to_json(c, end));
	}
	call_free(c);
}

static void client_gone(struct request *r)
{
	struct call *c = r->data;

	execution_cancel(c->execution); /* no callback comes any more */
	sandbox_context_count(c->context, EXECUTION_CANCELED);
	if (c->sse != NULL)
		sse_reset(c->sse);
	else
		request_reset(r);
	call_free(c);
}

static bool wants_events(const struct request *r)
{
	const char *accept = request_header(r, "accept");

	return accept != NULL && strstr(accept, "text/event-stream") != NULL;
}

static bool read_ask(struct request *r, struct execution_ask *ask)
{
	const json_t *code = json_object_get(r->json, "code"), *env = json_object_get(r->json, "env"),
		     *timeout = json_object_get(r->json, "timeout");
	struct json_faults faults = {0};

	*ask = (struct execution_ask){.code = json_string_value(code),
				      .code_size = json_string_length(code),
				      .env = json_is_object(env) ? env : NULL,
				      .timeout = ZW_UNLIMITED};
	if (timeout != NULL && !json_is_null(timeout) && json_in_usec(timeout, "timeout", &ask->timeout, &faults) &&
	    ask->timeout < 1000)
		json_fault_add(&faults, "timeout", "1ms or more", "expected 1 ms or more");
	if (!context_env_is_good(ask->env))
		json_fault_add(&faults, "env", NULL, "%s", bad_env);
	if (faults.count > 0)
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
	return faults.count == 0;
}

static void refuse_execution(struct request *r, int error)
{
	if (error == -EAGAIN)
		refuse(r, PROBLEM_BUSY, "wait for some of them", "as many executions wait in this sandbox as may");
	else if (error == -E2BIG)
		refuse(r, PROBLEM_TOO_LARGE, "write it to a file first", "code: longer than %d bytes", CONTEXT_CODE_MAX);
	else if (error == -EINVAL)
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "code: this language cannot be given NUL");
	else
		refuse_errno(r, -error, "the code cannot be executed");
}

static void post_execute(struct request *r)
{
	static const struct execution_callbacks callbacks = {
	    .begin = begin, .output = output, .result = result, .error = error, .end = end};
	struct sandbox_context *x = context_of(r, sandbox_of(r, true), true);
	struct execution_ask ask;
	struct call *c;
	int failed;

	if (x == NULL || !read_ask(r, &ask))
		return;
	c = xcalloc(1, sizeof *c);
	*c = (struct call){.request = r,
			   .context = x,
			   .streams = wants_events(r),
			   .output = {evbuffer_new(), evbuffer_new()},
			   .results = json_array()};
	failed = c->output[0] != NULL && c->output[1] != NULL ? sandbox_context_execute(x, &ask, &callbacks, c, &c->execution)
							      : -ENOMEM;
	if (failed < 0) {
		call_free(c);
		refuse_execution(r, failed);
		return;
	}
	r->data = c;
	request_on_gone(r, client_gone);
}

/* ---- What there is. ---- */

/* Of sandboxes that ask for nothing; another root may have others. */
static void add_languages(json_t *info, void *arg)
{
	struct daemon *daemon = arg;
	struct sandbox_policy policy = {0};
	struct problem p = {0};
	json_t *list = json_array();
	const struct driver *d;
	int r = sandbox_policy_make(&daemon->sandboxes->policies, NULL, NULL, &policy, &p);

	json_decref(p.errors);
	for (size_t i = 0; r == 0 && (d = driver_at(i)) != NULL; i++)
		if (language_is_there(policy.root, d))
			(void) json_array_append_new(list, json_string(d->language));
	if (r == 0)
		sandbox_policy_done(&policy);
	(void) json_object_set_new(info, "languages", list);
}

static const struct json_field create_fields[] = {
    {"language", JSON_IN_TEXT | JSON_IN_NULL},
    {"name", JSON_IN_TEXT | JSON_IN_NULL},
    {"cwd", JSON_IN_TEXT | JSON_IN_NULL},
    {"env", JSON_IN_OBJECT | JSON_IN_TEXTS | JSON_IN_NULL},
    {NULL, 0},
};
static const struct json_field execute_fields[] = {
    {"code", JSON_IN_TEXT | JSON_IN_NUL | JSON_IN_REQUIRED},
    {"timeout", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_NULL},
    {"env", JSON_IN_OBJECT | JSON_IN_TEXTS | JSON_IN_NULL},
    {NULL, 0},
};

#define C "/v1/sandboxes/{id}/contexts"

static const struct route routes[] = {
    {"POST", C, SCOPE_USE, TAKES_JSON_OR_NOTHING, ROUTE_WORK, create_fields, post_context, NULL, 0},
    {"GET", C, SCOPE_USE, TAKES_NOTHING, 0, NULL, list_contexts, NULL, 0},
    {"GET", C "/{cid}", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_context, NULL, 0},
    {"DELETE", C "/{cid}", SCOPE_USE, TAKES_NOTHING, 0, NULL, delete_context, NULL, 0},
    {"POST", C "/{cid}/execute", SCOPE_USE, TAKES_JSON, ROUTE_WORK, execute_fields, post_execute, NULL, 0},
    {"POST", C "/{cid}/interrupt", SCOPE_USE, TAKES_JSON_OR_NOTHING, 0, NULL, interrupt_context, NULL, 0},
    {"POST", C "/{cid}/restart", SCOPE_USE, TAKES_JSON_OR_NOTHING, ROUTE_WORK, NULL, restart_context, NULL, 0},
};

void api_contexts_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
	daemon_on_info(d, add_languages, d);
}
