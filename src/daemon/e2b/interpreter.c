/* The code interpreter of a sandbox: contexts, and executions as lines of JSON. */
#include "daemon/e2b/e2b.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/json-in.h"
#include "daemon/sandbox-contexts.h"
#include "daemon/sandbox.h"
#include "daemon/text-carry.h"
#include "sandbox/encode.h"

enum { BODY_SIZE_MAX = 32 << 20, KEEPALIVE_SECONDS = 5 };

/* What is not there is told in plain text. */
static void __attribute__((format(printf, 3, 4))) refuse_text(struct request *r, unsigned status, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	respond_text(r, status, "text/plain; charset=utf-8", text, strlen(text));
}

static void refuse_problem(struct request *r, const struct problem *p)
{
	refuse_text(r, p->code == PROBLEM_NOT_FOUND ? 404 : 500, "%s", p->message);
}

/* ---- Lines. ---- */

/* Bytes that are no UTF-8 become U+FFFD. */
static json_t *text_of(const char *data, size_t size)
{
	json_t *text = json_stringn(data, size);
	cleanup_free char *out = text == NULL ? xcalloc(size * 3 + 1, 1) : NULL;
	char *to = out;

	for (size_t i = 0, n; out != NULL && i<size; i += n> 0 ? n : 1) {
		n = data[i] == '\0' ? 1 : utf8_length(data + i);
		memcpy(to, n > 0 ? data + i : "\xef\xbf\xbd", n > 0 ? n : 3);
		to += n > 0 ? n : 3;
	}
	return text != NULL ? text : json_stringn(out, (size_t) (to - out));
}

struct run {
	struct sandbox_cut cut;
	struct request *request;
	struct sandbox_context *context;
	struct execution *execution;
	struct event *idle;
	struct text_carry carry[2];
	bool begun, error_told, broken;
};

static void run_free(struct run *run)
{
	sandbox_cut_remove(&run->cut);
	if (run->idle != NULL)
		event_free(run->idle);
	free(run);
}

static void has_room(struct request *r)
{
	const struct run *run = r->data;

	context_hold(run->context->context, false);
}

static void keep_pace(const struct run *run)
{
	if (stream_queued(run->request) >= STREAM_ROOM)
		context_hold(run->context->context, true);
}

/* ---- One execution. ---- */

static void open_stream(struct run *run)
{
	if (run->begun)
		return;
	run->begun = true;
	stream_begin(run->request, 200, "application/x-ndjson", ZW_UNLIMITED);
	stream_on_room(run->request, has_room);
}

static void await_silence(struct run *run)
{
	static const struct timeval silence = {.tv_sec = KEEPALIVE_SECONDS};

	(void) event_add(run->idle, &silence);
}

/* Characters outside of ASCII are escaped: clients decode each piece that they receive by itself. */
static void send_line(struct run *run, json_t *line)
{
	cleanup_free char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	json_decref(line);
	await_silence(run);
	if (text == NULL) {
		run->broken = true; /* a stream that has lost a line must not look whole */
		return;
	}
	stream_write(run->request, text, strlen(text));
	stream_write(run->request, "\n", 1);
}

/* Also of one that waits for others, or for its interpreter: clients give up when nothing comes. */
static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct run *run = arg;

	(void) fd;
	(void) what;
	open_stream(run);
	if (stream_queued(run->request) == 0)
		send_line(run, json_pack("{ss}", "type", "keepalive"));
	else
		await_silence(run); /* a client that does not even take what there is */
}

static void begin(void *ctx, unsigned count, bool fresh)
{
	struct run *run = ctx;

	(void) fresh;
	open_stream(run);
	send_line(run, json_pack("{ss si}", "type", "number_of_executions", "execution_count", (int) count));
}

static void send_output(struct run *run, unsigned stream, const char *data, size_t size, bool last)
{
	cleanup_free char *text = text_carry_join(&run->carry[stream], data, size, last, &size);

	if (size > 0)
		send_line(run, json_pack("{ss so so}", "type", stream == 0 ? "stdout" : "stderr", "text", text_of(text, size),
					 "timestamp", json_time(now_realtime())));
}

static void output(void *ctx, unsigned stream, const char *data, size_t size)
{
	send_output(ctx, stream, data, size, false);
	keep_pace(ctx);
}

static void flush_output(struct run *run)
{
	for (unsigned i = 0; i < 2; i++)
		send_output(run, i, NULL, 0, true);
}

static void result(void *ctx, json_t *value)
{
	struct run *run = ctx;
	json_t *line = json_copy(value);

	flush_output(run);
	(void) json_object_set_new(line, "type", json_string("result"));
	(void) json_object_set_new(line, "is_main_result", json_boolean(json_is_true(json_object_get(value, "main"))));
	(void) json_object_del(line, "main");
	if (json_object_get(line, "extra") == NULL)
		(void) json_object_set_new(line, "extra", json_object());
	send_line(run, line);
	keep_pace(run);
}

static void error(void *ctx, const char *name, const char *value, const char *traceback)
{
	struct run *run = ctx;

	flush_output(run);
	run->error_told = true;
	send_line(run, json_pack("{ss ss ss ss}", "type", "error", "name", name != NULL ? name : "Error", "value",
				 value != NULL ? value : "", "traceback", traceback != NULL ? traceback : ""));
}

/* An end that is no error of the code is told as one, by names that clients know. */
static void tell_end(struct run *run, const struct execution_end *end)
{
	static const char *const names[EXECUTION_STATUS_MAX] = {
	    [EXECUTION_TIMEOUT] = "TimeoutError",          [EXECUTION_INTERRUPTED] = "KeyboardInterrupt",
	    [EXECUTION_DIED] = "UnexpectedEndOfExecution", [EXECUTION_OUTPUT_LIMIT] = "OutputLimitExceeded",
	    [EXECUTION_CANCELED] = "ContextRestarting",
	};
	const char *name = names[end->status];

	if (end->removed)
		name = "ContextRemoved";
	if (end->status == EXECUTION_ERROR && strcmp(context_driver(run->context->context)->language, "bash") == 0)
		name = "ExitStatus";
	if (name != NULL && !run->error_told)
		error(run, name, end->reason, "");
}

static void end(void *ctx, const struct execution_end *end)
{
	struct run *run = ctx;
	struct request *r = run->request;
	bool broken;

	sandbox_context_count(run->context, end->status);
	if (!run->begun && end->status == EXECUTION_DIED) { /* there is no interpreter */
		run_free(run);
		refuse_text(r, 500, "%s", end->reason);
		return;
	}
	open_stream(run);
	flush_output(run);
	tell_end(run, end);
	send_line(run, json_pack("{ss}", "type", "end_of_execution"));
	broken = run->broken;
	run_free(run);
	if (broken)
		request_reset(r);
	else
		stream_end(r);
}

static void stop(struct run *run)
{
	struct request *r = run->request;

	execution_cancel(run->execution); /* no callback comes any more */
	sandbox_context_count(run->context, EXECUTION_CANCELED);
	run_free(run);
	request_reset(r);
}

static void client_gone(struct request *r)
{
	stop(r->data);
}

static void cut_off(struct sandbox_cut *c)
{
	stop((struct run *) ((char *) c - offsetof(struct run, cut)));
}

/* ---- The requests. ---- */

static const char *text_in(const json_t *o, const char *name)
{
	return json_string_value(json_object_get(o, name));
}

/* The context that is meant; NULL with the request refused. */
static struct sandbox_context *context_of(struct request *r, struct sandbox *s, const json_t *m)
{
	const char *id = text_in(m, "context_id"), *language = text_in(m, "language");
	struct sandbox_context *x;
	struct problem p = {0};

	if (id != NULL && language != NULL) {
		refuse_text(r, 400, "expected one of context_id and language");
		return NULL;
	}
	x = id != NULL ? sandbox_context_find(s, id) : sandbox_context_get(s, language != NULL ? language : "python", &p);
	if (x != NULL)
		return x;
	if (id != NULL)
		refuse_text(r, 404, "Context %.100s not found", id);
	else if (p.code == PROBLEM_NOT_FOUND)
		refuse_text(r, 500, "the language %.60s is not supported", language);
	else
		refuse_problem(r, &p);
	return NULL;
}

static void execute(struct request *r, struct sandbox *s, const json_t *m)
{
	static const struct execution_callbacks callbacks = {
	    .begin = begin, .output = output, .result = result, .error = error, .end = end};
	const json_t *code = json_object_get(m, "code"), *env = json_object_get(m, "env_vars");
	struct execution_ask ask = {.code = json_string_value(code),
				    .code_size = json_string_length(code),
				    .env = json_is_object(env) ? env : NULL,
				    .timeout = ZW_UNLIMITED};
	struct sandbox_context *x;
	struct run *run;
	int failed;

	if (!json_is_string(code)) {
		refuse_text(r, 422, "code: expected a text");
		return;
	}
	if (env != NULL && !json_is_null(env) && !json_is_object(env)) {
		refuse_text(r, 422, "env_vars: expected an object of texts");
		return;
	}
	x = context_of(r, s, m);
	if (x == NULL)
		return;
	run = xcalloc(1, sizeof *run);
	*run = (struct run){.request = r, .context = x, .cut = {.call = cut_off}};
	run->idle = event_new(r->daemon->base, -1, 0, on_idle, run);
	failed = run->idle != NULL ? sandbox_context_execute(x, &ask, &callbacks, run, &run->execution) : -ENOMEM;
	if (failed < 0) {
		run_free(run);
		refuse_text(r,
			    failed == -EAGAIN   ? 429
			    : failed == -EINVAL ? 422
						: 500,
			    "the code cannot be executed: %s", strerror(-failed));
		return;
	}
	r->data = run;
	await_silence(run);
	sandbox_cut_add(s, &run->cut);
	request_on_gone(r, client_gone);
}

static json_t *context_to_json(const struct sandbox_context *x)
{
	return json_pack("{ss ss ss}", "id", x->id, "language", context_driver(x->context)->language, "cwd", x->cwd);
}

static void came_up(void *arg, struct sandbox_context *x)
{
	struct request *r = arg;
	const char *fault;

	if (x == NULL) {
		refuse_text(r, 500, "the context was removed before it was ready");
	} else if (context_state(x->context) == CONTEXT_DEAD) {
		fault = context_fault(x->context);
		refuse_text(r, 500, "%s", fault != NULL ? fault : "the interpreter did not come up");
		sandbox_context_remove(x);
	} else {
		respond_json(r, 200, context_to_json(x));
	}
}

static void creator_gone(struct request *r)
{
	sandbox_context_remove(r->data); /* which calls came_up() */
}

static void make_context(struct request *r, struct sandbox *s, const json_t *m)
{
	struct context_wish wish = {.language = text_in(m, "language"), .cwd = text_in(m, "cwd")};
	struct sandbox_context *x;
	struct problem p = {0};

	if (wish.cwd != NULL && (wish.cwd = e2b_path(wish.cwd)) == NULL) {
		refuse_text(r, 400, "cwd: expected an absolute path, or one below the home directory");
	} else if (sandbox_context_new(s, &wish, came_up, r, &x, &p) < 0) {
		refuse_problem(r, &p);
	} else {
		r->data = x;
		request_on_gone(r, creator_gone);
	}
}

/* The default ones first; those of python and javascript are there from the beginning, as far as anybody can see. */
static void list_contexts(struct request *r, struct sandbox *s)
{
	static const char *const first[] = {"python", "javascript"};
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(first); i++)
		sandbox_context_reserve(s, first[i]);
	for (int others = 0; others < 2; others++)
		for (const struct sandbox_context *x = s->contexts; x != NULL; x = x->next)
			if (x->is_default == (others == 0))
				(void) json_array_append_new(list, context_to_json(x));
	respond_json(r, 200, list);
}

/* "/contexts/{id}" and "/contexts/{id}/restart" */
static void change_context(struct request *r, struct sandbox *s)
{
	const char *at = r->path + strlen("/contexts/");
	size_t size = strcspn(at, "/");
	bool restarts = strcmp(at + size, "/restart") == 0 && strcmp(r->method, "POST") == 0;
	cleanup_free char *id = xstrndup(at, size);
	struct sandbox_context *x = sandbox_context_find(s, id);

	if (!restarts && (at[size] != '\0' || strcmp(r->method, "DELETE") != 0)) {
		refuse_text(r, 404, "Not Found");
		return;
	}
	if (x == NULL) {
		refuse_text(r, 404, "Context %.100s not found", id);
		return;
	}
	if (restarts)
		context_restart(x->context);
	else
		sandbox_context_remove(x);
	respond_text(r, 200, "application/json", "null", 4);
}

/* ---- Bodies. ---- */

static void with_json(struct request *r, struct sandbox *s, const char *body, size_t size,
		      void (*run)(struct request *r, struct sandbox *s, const json_t *m))
{
	struct json_faults faults = {0};
	json_t *m = size > 0 ? json_in_parse(body, size, &faults) : json_object();

	if (json_is_object(m))
		run(r, s, m);
	else
		refuse_text(r, 422, "the body is no JSON object");
	json_decref(m);
}

static void execute_body(struct request *r, struct sandbox *s, const void *arg, const char *body, size_t size)
{
	(void) arg;
	with_json(r, s, body, size, execute);
}

static void context_body(struct request *r, struct sandbox *s, const void *arg, const char *body, size_t size)
{
	(void) arg;
	with_json(r, s, body, size, make_context);
}

static void body_refused(struct request *r, const void *arg, enum e2b_body_fault fault)
{
	(void) arg;
	if (fault == E2B_BODY_TOO_LONG)
		refuse_text(r, 413, "the body is too long");
	else
		refuse_text(r, 503, "too many large requests are under way");
}

static void read_body(struct request *r, const struct sandbox *s, bool executes)
{
	static const struct e2b_body_ops execution = {BODY_SIZE_MAX, execute_body, body_refused},
					 context = {BODY_SIZE_MAX, context_body, body_refused};

	request_hold_drain(r);
	e2b_read_body(r, s, executes ? &execution : &context, NULL);
}

void e2b_interpreter_request(struct request *r, struct sandbox *s)
{
	bool posts = strcmp(r->method, "POST") == 0, gets = strcmp(r->method, "GET") == 0;

	if (posts && strcmp(r->path, "/execute") == 0) {
		if (e2b_has_access_token(r, s))
			read_body(r, s, true);
		else
			e2b_refuse(r, 401, "the access token of the sandbox is missing or wrong");
	} else if (posts && strcmp(r->path, "/contexts") == 0) {
		read_body(r, s, false);
	} else if (gets && strcmp(r->path, "/contexts") == 0) {
		list_contexts(r, s);
	} else if (gets && strcmp(r->path, "/health") == 0) {
		respond_text(r, 200, "application/json", "\"OK\"", 4);
	} else if (strncmp(r->path, "/contexts/", strlen("/contexts/")) == 0) {
		change_context(r, s);
	} else {
		refuse_text(r, 404, "Not Found");
	}
}
