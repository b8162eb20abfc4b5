/* run_code: an execution in a context of the sandbox. */
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/mcp/mcp.h"
#include "daemon/sandbox-contexts.h"

enum { IMAGES_MAX = 32, IMAGES_BYTES_MAX = 16 << 20, RESULT_TEXT_MAX = 256 * 1024 };

struct code {
	struct mcp_call *call;
	struct sandbox_context *context;
	char label[CONTEXT_NAME_MAX + 1];
	struct execution *execution;
	struct evbuffer *output[2];
	bool cut;
	json_t *text;  /* of the main result, or NULL */
	json_t *shown; /* texts of the others */
	json_t *error, *images;
	size_t image_bytes;
	/* What the interpreter had been denied before; the answers come in the order of asking, so it is known by the end. */
	uint32_t process, ended; /* ended: the last one that had ended by then */
	json_t *before;
	bool asked; /* it is not known yet */
	/* Of the end, while the denials are waited for: */
	struct evbuffer *said;
	json_t *structured;
	bool is_error, over;
};

static void code_free(struct code *x)
{
	for (size_t i = 0; i < 2; i++)
		if (x->output[i] != NULL)
			evbuffer_free(x->output[i]);
	json_decref(x->text);
	json_decref(x->shown);
	json_decref(x->error);
	json_decref(x->images);
	json_decref(x->before);
	json_decref(x->structured);
	if (x->said != NULL)
		evbuffer_free(x->said);
	free(x);
}

/* One that waits for what was denied before it is freed when that has come. */
static void code_leave(struct code *x)
{
	x->over = true;
	x->call = NULL;
	if (!x->asked)
		code_free(x);
}

/* ---- What comes. ---- */

static void on_output(void *ctx, unsigned stream, const char *data, size_t size)
{
	struct code *x = ctx;
	size_t have = evbuffer_get_length(x->output[stream]), room = have < MCP_STREAM_MAX ? MCP_STREAM_MAX - have : 0;

	mcp_call_output(x->call, data, size);
	x->cut = x->cut || size > room;
	(void) evbuffer_add(x->output[stream], data, size < room ? size : room);
}

static void add_image(struct code *x, const json_t *value, const char *kind, const char *type)
{
	json_t *data = json_object_get(value, kind);

	if (!json_is_string(data))
		return;
	if (json_array_size(x->images) >= IMAGES_MAX || x->image_bytes + json_string_length(data) > IMAGES_BYTES_MAX) {
		x->cut = true;
		return;
	}
	x->image_bytes += json_string_length(data);
	(void) json_array_append_new(x->images, json_pack("{ss sO ss}", "type", "image", "data", data, "mimeType", type));
}

static void on_result(void *ctx, json_t *value)
{
	struct code *x = ctx;
	json_t *text = json_object_get(value, "text");
	bool fits = json_string_length(text) <= RESULT_TEXT_MAX;

	add_image(x, value, "png", "image/png");
	add_image(x, value, "jpeg", "image/jpeg");
	if (!json_is_string(text))
		return;
	x->cut = x->cut || !fits;
	text = fits ? json_incref(text) : mcp_text(json_string_value(text), RESULT_TEXT_MAX);
	if (json_is_true(json_object_get(value, "main")) && x->text == NULL)
		x->text = text;
	else if (json_array_size(x->shown) < IMAGES_MAX)
		(void) json_array_append_new(x->shown, text);
	else
		json_decref(text);
}

static void on_error(void *ctx, const char *name, const char *value, const char *traceback)
{
	struct code *x = ctx;

	json_decref(x->error);
	x->error = json_pack("{ss? ss? ss?}", "name", name, "value", value, "traceback", traceback);
}

/* ---- The end. ---- */

static void say_end(struct evbuffer *text, const struct code *x, const struct execution_end *end)
{
	const json_t *traceback = json_object_get(x->error, "traceback"), *part;
	const char *name = json_string_value(json_object_get(x->error, "name")),
		   *value = json_string_value(json_object_get(x->error, "value"));
	size_t i;

	json_array_foreach(x->shown, i, part) mcp_say(text, part, NULL);
	mcp_say(text, x->text, NULL);
	if (json_string_length(traceback) > 0)
		mcp_say(text, traceback, "error");
	else if (x->error != NULL)
		mcp_say_line(text, "[error] %s: %s", name != NULL ? name : "error", value != NULL ? value : "");
	if (end->status != EXECUTION_OK && (end->reason != NULL || x->error == NULL))
		mcp_say_line(text, "[%s%s%s]", execution_status_names[end->status], end->reason != NULL ? ": " : "",
			     end->reason != NULL ? end->reason : "");
	if (end->restarted)
		mcp_say_line(text, "[the interpreter was started anew: variables and imports of before are gone]");
	if (evbuffer_get_length(text) == 0 && json_array_size(x->images) == 0)
		mcp_say_line(text, "[no output]");
}

static void on_denials(void *arg, uint32_t process, const json_t *list)
{
	struct code *x = arg;
	struct mcp_call *c = x->call;

	mcp_denials_add(c->denials, list, process == x->process ? x->before : NULL);
	(void) json_object_set(x->structured, "denials", c->denials);
	mcp_call_end(c, take_ptr(&x->structured), mcp_text_end(c, take_ptr(&x->said)), json_incref(x->images), x->is_error);
	code_leave(x);
}

static void on_end(void *ctx, const struct execution_end *end)
{
	struct code *x = ctx;
	struct mcp_call *c = x->call;
	struct evbuffer *text = mcp_text_begin(c);
	bool cut[2], truncated;
	json_t *out = mcp_stream(x->output[0], MCP_STREAM_MAX, &cut[0]), *err = mcp_stream(x->output[1], MCP_STREAM_MAX, &cut[1]),
	       *o;

	sandbox_context_count(x->context, end->status);
	truncated = x->cut || cut[0] || cut[1] || end->truncated[0] || end->truncated[1] || end->results_dropped > 0;
	o = json_pack("{ss so so sO? sO? so ss ss sb sb ss?}", "status", execution_status_names[end->status], "stdout", out,
		      "stderr", err, "text", x->text, "error", x->error, "execution_count",
		      end->count > 0 ? json_integer((json_int_t) end->count) : json_null(), "context", x->label, "context_state",
		      end->restarted ? "restarted" : "kept", "fresh", (int) end->fresh, "truncated", (int) truncated, "reason",
		      end->reason);
	mcp_say(text, out, NULL);
	mcp_say(text, err, "stderr");
	say_end(text, x, end);
	c->stop = NULL;
	x->structured = o;
	x->said = text;
	x->is_error = end->status != EXECUTION_OK;
	/* One that was killed has been followed by another already. */
	if (x->context->interpreter != NULL && x->context->last_process != x->ended)
		mcp_denials_add(c->denials, x->context->last_denials, x->context->last_process == x->process ? x->before : NULL);
	sandbox_context_denials(x->context, true, on_denials, x);
}

/* The client has left or canceled: it is interrupted, and the context stays. */
static void stop(struct mcp_call *c)
{
	struct code *x = c->work;

	execution_cancel(x->execution);
	sandbox_context_count(x->context, EXECUTION_CANCELED);
	code_leave(x);
	mcp_call_fail(c, NULL, "canceled");
}

static void on_denials_before(void *arg, uint32_t process, const json_t *list)
{
	struct code *x = arg;

	x->asked = false;
	x->process = process;
	x->before = json_incref((json_t *) (uintptr_t) list);
	if (x->over)
		code_free(x);
}

/* ---- The context. ---- */

static struct sandbox_context *find_named(struct sandbox *s, const char *name)
{
	struct sandbox_context *x = s->contexts;

	while (x != NULL && (x->name == NULL || x->is_default || strcmp(x->name, name) != 0))
		x = x->next;
	return x;
}

/* A name that is that of a language means its default context, as the answer calls it. NULL with the call ended. */
static struct sandbox_context *context_of(struct mcp_call *c, struct sandbox *s)
{
	const char *language = mcp_argument(c, "language"), *name = mcp_argument(c, "context");
	const struct driver *asked = driver_find(language != NULL ? language : "python"),
			    *named = name != NULL ? driver_find(name) : NULL;
	struct sandbox_context *x = name != NULL && named == NULL ? find_named(s, name) : NULL;
	struct problem p = {0};

	if (language == NULL && named != NULL)
		asked = named;
	if (asked == NULL) {
		mcp_call_fail(c, NULL, "there is no language %.64s; sandbox_info tells which there are", language);
		return NULL;
	}
	if ((x != NULL && language != NULL && context_driver(x->context) != asked) || (named != NULL && named != asked)) {
		mcp_call_fail(c, NULL, "the context %.64s is one of another language; use another name", name);
		return NULL;
	}
	if (x == NULL && (name == NULL || named != NULL))
		x = sandbox_context_get(s, asked->language, &p);
	else if (x == NULL && sandbox_context_new(s, &(struct context_wish){.language = asked->language, .name = name}, NULL,
						  NULL, &x, &p) < 0)
		x = NULL;
	if (x == NULL)
		mcp_call_fail(c, NULL, "%s", p.message);
	return x;
}

static const char *why_not(int error)
{
	if (error == -EAGAIN)
		return "too many executions wait in this context; wait for some of them";
	if (error == -E2BIG)
		return "the code is too long; write it to a file first";
	return error == -EINVAL ? "the code has a NUL" : strerror(-error);
}

void mcp_run_code(struct mcp_call *c, struct sandbox *s)
{
	static const struct execution_callbacks callbacks = {
	    .output = on_output, .result = on_result, .error = on_error, .end = on_end};
	const json_t *code = json_object_get(c->arguments, "code");
	struct execution_ask ask = {
	    .code = json_string_value(code), .code_size = json_string_length(code), .timeout = mcp_timeout(c)};
	struct sandbox_context *context = context_of(c, s);
	struct code *x;
	int r;

	if (context == NULL)
		return;
	x = xcalloc(1, sizeof *x);
	*x = (struct code){.call = c,
			   .context = context,
			   .output = {evbuffer_new(), evbuffer_new()},
			   .shown = json_array(),
			   .images = json_array()};
	(void) snprintf(x->label, sizeof x->label, "%s",
			context->name != NULL && !context->is_default ? context->name
								      : context_driver(context->context)->language);
	x->asked = true;
	x->ended = context->last_process;
	sandbox_context_denials(context, false, on_denials_before, x);
	r = x->output[0] != NULL && x->output[1] != NULL ? sandbox_context_execute(context, &ask, &callbacks, x, &x->execution)
							 : -ENOMEM;
	if (r < 0) {
		code_leave(x);
		mcp_call_fail(c, NULL, "the code cannot be run: %s", why_not(r));
		return;
	}
	c->work = x;
	c->stop = stop;
}
