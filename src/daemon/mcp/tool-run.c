/* run_command: a line of shell, its output and its end. */
#include <errno.h>
#include <event2/buffer.h>
#include <string.h>

#include "base/mem.h"
#include "base/signame.h"
#include "daemon/mcp/mcp.h"
#include "daemon/processes.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const char *reason_of(const struct process *p)
{
	const char *reason = json_string_value(json_object_get(p->exit, p->failed ? "message" : "reason"));

	if (p->over_limit)
		return "it wrote more than limits.output";
	return reason != NULL ? reason : p->exit == NULL ? p->sandbox->end_reason : NULL;
}

static json_t *signal_of(const struct process *p)
{
	json_t *number = json_object_get(p->exit, "signal");
	const char *name = signal_abbreviation((int) json_integer_value(number));

	if (!json_is_integer(number))
		return json_null();
	return name != NULL ? json_sprintf("SIG%s", name) : json_sprintf("SIG%lld", (long long) json_integer_value(number));
}

static json_t *exit_code_of(const struct process *p)
{
	json_t *code = json_object_get(p->exit, "exit_code");
	const char *stage = json_string_value(json_object_get(p->exit, "stage"));
	json_int_t error = json_integer_value(json_object_get(p->exit, "errno"));

	if (p->failed && stage != NULL && strcmp(stage, "exec") == 0)
		return json_integer(error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
	return json_is_integer(code) ? json_incref(code) : json_null();
}

static json_t *stream_of(struct stream *s, bool *truncated)
{
	struct evbuffer *all = evbuffer_new();
	json_t *text;
	bool cut;

	(void) evbuffer_add_buffer(all, s->captured.head);
	if (s->captured.dropped > 0)
		(void) evbuffer_add_printf(all, "\n[zwinger: %llu bytes left out]\n", (unsigned long long) s->captured.dropped);
	(void) evbuffer_add_buffer(all, s->captured.tail);
	text = mcp_stream(all, MCP_STREAM_MAX, &cut);
	*truncated = *truncated || cut || s->captured.dropped > 0;
	evbuffer_free(all);
	return text;
}

static void say_end(struct evbuffer *text, const json_t *o, const char *status, const char *reason)
{
	const json_t *code = json_object_get(o, "exit_code");

	if (strcmp(status, "exited") == 0 && json_integer_value(code) == 0) {
		if (evbuffer_get_length(text) == 0)
			mcp_say_line(text, "[no output; exit code 0]");
	} else if (strcmp(status, "exited") == 0) {
		mcp_say_line(text, "[exit code %lld]", (long long) json_integer_value(code));
	} else {
		mcp_say_line(text, "[%s%s%s]", status, reason != NULL ? ": " : "", reason != NULL ? reason : "");
	}
}

static void over(struct mcp_call *c, struct process *p)
{
	const char *status = p->failed ? "error" : process_status(p), *reason = reason_of(p);
	struct evbuffer *text = mcp_text_begin(c);
	bool truncated = false, good;
	json_t *out = stream_of(&p->streams[STREAM_OUT], &truncated), *err = stream_of(&p->streams[STREAM_ERR], &truncated), *o;

	p->on_output = NULL;
	process_capture_taken(p);
	mcp_denials_add(c->denials, json_object_get(p->exit, "denials"), NULL);
	o = json_pack("{ss so so so so sb sO ss?}", "status", status, "exit_code", exit_code_of(p), "signal", signal_of(p),
		      "stdout", out, "stderr", err, "truncated", (int) truncated, "denials", c->denials, "reason", reason);
	good = strcmp(status, "exited") == 0 && json_integer_value(json_object_get(o, "exit_code")) == 0;
	mcp_say(text, out, NULL);
	mcp_say(text, err, "stderr");
	say_end(text, o, status, reason);
	mcp_call_end(c, o, mcp_text_end(c, text), NULL, !good);
}

static void ended(void *arg, struct process *p)
{
	struct mcp_call *c = arg;

	c->stop = NULL;
	over(c, p);
}

static void started(void *arg, struct process *p)
{
	struct mcp_call *c = arg;

	if (p->failed)
		over(c, p);
	else if (c->canceled)
		process_kill(p);
}

static void output(void *arg, const char *data, size_t size)
{
	mcp_call_output(arg, data, size);
}

static void stop(struct mcp_call *c)
{
	process_kill(c->work); /* one that has not started yet is ended when it has */
}

void mcp_run_command(struct mcp_call *c, struct sandbox *s)
{
	const struct process_wish wish = {.shell = mcp_argument(c, "command"),
					  .cwd = mcp_argument(c, "cwd"),
					  .user = -1,
					  .timeout = mcp_timeout(c),
					  .tree = true,
					  .capture = true};
	struct process *p;
	int error = process_start(s, &wish, started, ended, c, &p);

	if (error != 0) {
		mcp_call_fail(c, NULL, "the command cannot be started: %s",
			      error == E2BIG || error == EMSGSIZE ? "it is too long; write it to a file first" : strerror(error));
		return;
	}
	p->on_output = output;
	c->work = p;
	c->stop = stop;
}
