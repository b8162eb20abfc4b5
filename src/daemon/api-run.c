/* POST /v1/run and POST /v1/sandboxes/{id}/run: start, wait, collect. Who leaves ends it. */
#include "daemon/api-run.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/signame.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/sandbox.h"
#include "policy/text.h"
#include "sandbox/encode.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

/* ---- A command. ---- */

static bool read_user(const json_t *user, int64_t *ret, struct json_faults *f)
{
	const char *name = json_string_value(user);
	uint64_t number = 0;

	*ret = -1;
	if (user == NULL || json_is_null(user) || (name != NULL && strcmp(name, "user") == 0))
		return true;
	if (name != NULL && strcmp(name, "root") == 0) {
		*ret = 0;
		return true;
	}
	if (name != NULL && strcmp(name, "nobody") == 0) {
		*ret = 65534; /* in /etc/passwd inside, which is our own (sandbox/root.c) */
		return true;
	}
	if (name != NULL && parse_whole(name, &number) < 0) {
		json_fault_add(f, "user", "user, root or a number", "there is no user of this name inside");
		return false;
	}
	*ret = name != NULL ? (int64_t) number : json_integer_value(user);
	if (*ret >= 0 && *ret < UINT32_MAX && number < UINT32_MAX)
		return true;
	json_fault_add(f, "user", "user, root or a number", "expected a user's number");
	return false;
}

bool command_read(const json_t *body, struct process_wish *ret, struct json_faults *f)
{
	const json_t *command = json_object_get(body, "command"), *timeout = json_object_get(body, "timeout"),
		     *env = json_object_get(body, "env");

	*ret = (struct process_wish){.argv = command,
				     .shell = json_in_text(body, "shell"),
				     .env = json_is_object(env) ? env : NULL,
				     .cwd = json_in_text(body, "cwd"),
				     .timeout = ZW_UNLIMITED,
				     .tree = true};
	if ((command != NULL) == (ret->shell != NULL))
		json_fault_add(f, "", "command or shell", "expected exactly one of command and shell");
	else if (command != NULL && (json_array_size(command) == 0 || json_string_length(json_array_get(command, 0)) == 0))
		json_fault_add(f, "command", "a program and its arguments", "expected the name of a program");
	if (!context_env_is_good(ret->env))
		json_fault_add(f, "env", "names without '='", "expected names that are not empty and have no '='");
	(void) read_user(json_object_get(body, "user"), &ret->user, f);
	if (timeout != NULL && !json_is_null(timeout) && json_in_usec(timeout, "timeout", &ret->timeout, f) &&
	    ret->timeout < 1000)
		json_fault_add(f, "timeout", "1ms or more", "expected 1 ms or more");
	return f->count == 0;
}

static bool read_input(const json_t *body, struct evbuffer *ret, struct json_faults *f)
{
	const json_t *text = json_object_get(body, "stdin");
	const char *encoded = json_in_text(body, "stdin_base64");
	size_t size = encoded != NULL ? strlen(encoded) : 0, used = 0;
	const char *end = encoded;
	cleanup_free unsigned char *data = NULL;

	if (json_is_string(text) && encoded != NULL)
		json_fault_add(f, "stdin", "stdin or stdin_base64", "expected one of stdin and stdin_base64");
	else if (json_is_string(text))
		(void) evbuffer_add(ret, json_string_value(text), json_string_length(text));
	if (encoded == NULL || f->count > 0)
		return f->count == 0;
	data = malloc(size + 1);
	if (data == NULL ||
	    sodium_base642bin(data, size + 1, encoded, size, NULL, &used, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    *end != '\0') {
		json_fault_add(f, "stdin_base64", "base64 (RFC 4648)", "expected base64");
		return false;
	}
	(void) evbuffer_add(ret, data, used);
	return true;
}

/* Of a program that could not be executed, as in the result of a run (sandbox/ending.c). */
static int exit_code_of_errno(int error)
{
	return error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

static void refuse_exec(struct request *r, int error, const char *message)
{
	struct problem p = {.code = PROBLEM_BAD_REQUEST, .exit_code = exit_code_of_errno(error)};

	(void) snprintf(p.message, sizeof p.message, "%s", message);
	refuse_with(r, &p);
}

void refuse_start(struct request *r, const struct process *p)
{
	int error = (int) json_integer_value(json_object_get(p->exit, "errno"));
	const char *stage = json_string_value(json_object_get(p->exit, "stage")),
		   *message = json_string_value(json_object_get(p->exit, "message"));

	if (p->exit == NULL)
		refuse(r, PROBLEM_SANDBOX_ENDED, NULL, "the sandbox has ended");
	else if (strcmp(stage, "exec") == 0)
		refuse_exec(r, error, message);
	else if (strcmp(stage, "cwd") == 0)
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "%s", message);
	else if (error == EPERM || error == EINVAL)
		refuse(r, error == EPERM ? PROBLEM_NOT_ENFORCEABLE : PROBLEM_BAD_REQUEST, NULL, "%s", message);
	else
		refuse_errno(r, error, message);
}

/* ---- The document. ---- */

struct run {
	struct request *request;
	struct process_wish wish;
	struct sandbox *sandbox;
	struct process *process;
	struct evbuffer *input;
	bool alone; /* the sandbox is made for it */
	json_t *document;
};

static void run_free(struct run *run)
{
	if (run->input != NULL)
		evbuffer_free(run->input);
	json_decref(run->document);
	free(run);
}

static void set(json_t *o, const char *stream, const char *suffix, json_t *value)
{
	cleanup_free char *key = xasprintf("%s%s", stream, suffix);

	(void) json_object_set_new(o, key, value);
}

static void set_stream(json_t *o, const char *name, const struct stream *s)
{
	struct evbuffer *all = evbuffer_new();
	const char *data;
	size_t size;
	json_t *text;
	cleanup_free char *encoded = NULL;

	(void) evbuffer_add_buffer(all, s->captured.head);
	if (s->captured.dropped > 0)
		(void) evbuffer_add_printf(all, "\n[zwinger: %llu bytes left out]\n", (unsigned long long) s->captured.dropped);
	(void) evbuffer_add_buffer(all, s->captured.tail);
	size = evbuffer_get_length(all);
	data = size > 0 ? (const char *) evbuffer_pullup(all, -1) : "";
	text = json_stringn(data != NULL ? data : "", data != NULL ? size : 0);
	if (text == NULL)
		encoded = encode_base64(data, size);
	set(o, name, "_encoding", json_string(text != NULL ? "utf-8" : "base64"));
	set(o, name, "", text != NULL ? text : json_string(encoded));
	set(o, name, "_bytes", json_integer((json_int_t) s->bytes));
	set(o, name, "_truncated", json_boolean(s->captured.dropped > 0));
	if (s->captured.dropped > 0)
		set(o, name, "_dropped_bytes", json_integer((json_int_t) s->captured.dropped));
	evbuffer_free(all);
}

static json_t *signal_to_json(const json_t *number)
{
	const char *name = signal_abbreviation((int) json_integer_value(number));

	if (!json_is_integer(number))
		return json_null();
	return name != NULL ? json_sprintf("SIG%s", name) : json_sprintf("SIG%lld", (long long) json_integer_value(number));
}

static json_t *exit_code_of(const struct process *p)
{
	int error = (int) json_integer_value(json_object_get(p->exit, "errno"));

	if (p->failed)
		return json_integer(exit_code_of_errno(error));
	return p->exit != NULL ? json_incref(json_object_get(p->exit, "exit_code")) : json_null();
}

static json_t *seconds(const json_t *usec)
{
	return json_is_integer(usec) ? json_real((double) json_integer_value(usec) / (double) USEC_PER_SEC) : json_null();
}

static json_t *usage_of(const struct process *p)
{
	json_t *u = json_object();
	static const char *const unknown[] = {"processes_peak", "scratch_peak_bytes", "io_read_bytes",
					      "io_write_bytes", "net_received_bytes", "net_sent_bytes"};
	json_t *rss = json_object_get(p->exit, "max_rss"), *kills = json_object_get(p->exit, "oom_kills");

	(void) json_object_set_new(u, "wall_seconds", seconds(json_object_get(p->exit, "wall_usec")));
	(void) json_object_set_new(u, "cpu_seconds", seconds(json_object_get(p->exit, "cpu_usec")));
	(void) json_object_set_new(u, "memory_peak_bytes", rss != NULL ? json_incref(rss) : json_null());
	(void) json_object_set_new(u, "oom_kills", kills != NULL ? json_incref(kills) : json_null());
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
		(void) json_object_set_new(u, unknown[i], json_null());
	return u;
}

/* What the supervisor told with the end; nothing where the program did not run. */
static json_t *list_of(const struct process *p, const char *name)
{
	json_t *list = json_object_get(p->exit, name);

	return list != NULL ? json_incref(list) : json_array();
}

static json_t *result_of(const struct sandbox *s, const struct process *p)
{
	const char *reason = json_string_value(json_object_get(p->exit, p->failed ? "message" : "reason"));
	json_t *o = json_object();

	(void) json_object_set_new(o, "schema", json_string("zwinger.result/1"));
	(void) json_object_set_new(o, "id", json_string(s->id));
	(void) json_object_set_new(o, "status", json_string(p->failed ? "error" : process_status(p)));
	(void) json_object_set_new(o, "exit_code", exit_code_of(p));
	(void) json_object_set_new(o, "signal", signal_to_json(json_object_get(p->exit, "signal")));
	if (p->over_limit)
		reason = "it wrote more than limits.output";
	(void) json_object_set_new(o, "reason", json_string(reason != NULL ? reason : s->end_reason));
	(void) json_object_set_new(o, "isolation", json_string(isolation_name(s->policy.isolation)));
	set_stream(o, "stdout", &p->streams[STREAM_OUT]);
	set_stream(o, "stderr", &p->streams[STREAM_ERR]);
	(void) json_object_set_new(o, "started_at", json_time(p->started));
	(void) json_object_set_new(o, "usage", usage_of(p));
	(void) json_object_set_new(o, "setup_seconds", json_real((double) s->setup / (double) USEC_PER_SEC));
	(void) json_object_set(o, "enforcement", s->enforcement);
	if (json_array_size(s->not_enforced) > 0)
		(void) json_object_set(o, "not_enforced", s->not_enforced);
	(void) json_object_set_new(o, "denials", list_of(p, "denials"));
	(void) json_object_set_new(o, "connections", list_of(p, "connections"));
	(void) json_object_set_new(o, "files", json_pack("{sn sn sn}", "created", "modified", "deleted"));
	return o;
}

static void answer(struct run *run)
{
	metrics_add(run->request->daemon->metrics, METRIC_RUNS,
		    METRIC_LABELS(json_string_value(json_object_get(run->document, "status"))), 1);
	if (request_is_gone(run->request))
		request_forget(run->request);
	respond_json(run->request, 200, json_incref(run->document));
	run_free(run);
}

/* The sandbox that was made for the run has ended: what it knows of the whole is truer than the process's share. */
static void alone_ended(void *arg, struct sandbox *s)
{
	static const char *const parts[] = {"denials", "connections", "files"};
	struct run *run = arg;
	json_t *usage = json_object_get(run->document, "usage"), *wall = json_incref(json_object_get(usage, "wall_seconds"));

	for (size_t i = 0; i < ARRAY_SIZE(parts) && s->last_word != NULL; i++)
		if (json_object_get(s->last_word, parts[i]) != NULL)
			(void) json_object_set(run->document, parts[i], json_object_get(s->last_word, parts[i]));
	if (s->usage != NULL) {
		(void) json_object_set(run->document, "usage", s->usage);
		(void) json_object_set(json_object_get(run->document, "usage"), "wall_seconds", wall);
	}
	json_decref(wall);
	answer(run);
	sandbox_drop(s);
}

static void over(struct run *run, struct process *p)
{
	struct sandbox *s = run->sandbox;
	bool gone = request_is_gone(run->request);

	if (!p->failed && !run->alone)
		process_capture_keep(p);
	run->document = result_of(s, p);
	process_capture_taken(p);
	run->process = NULL; /* its record may go */
	if (gone)
		(void) json_object_set_new(run->document, "status", json_string("canceled"));
	if (!run->alone) {
		answer(run);
		return;
	}
	sandbox_end(s, gone ? "canceled" : "deleted", gone ? "the client has left" : "the run is over");
	sandbox_on_end(s, alone_ended, run);
}

static void run_ended(void *arg, struct process *p)
{
	over(arg, p);
}

/* Nothing ran when it is our doing or the wish's; a program that is not there is a result. */
static void run_started(void *arg, struct process *p)
{
	struct run *run = arg;
	const char *stage = json_string_value(json_object_get(p->exit, "stage"));

	if (!p->failed) {
		if (request_is_gone(run->request))
			process_kill(p);
		return;
	}
	if (stage != NULL && strcmp(stage, "exec") == 0) {
		over(run, p);
		return;
	}
	refuse_start(run->request, p);
	if (run->alone)
		sandbox_end(run->sandbox, "error", "the command could not be started");
	run_free(run);
}

static void run_gone(struct request *r)
{
	struct run *run = r->data;

	if (run->alone && run->sandbox->state != SANDBOX_ENDED)
		sandbox_end(run->sandbox, "canceled", "the client has left");
	else if (run->process != NULL)
		process_kill(run->process);
}

static void start(struct run *run)
{
	int error = process_start(run->sandbox, &run->wish, run_started, run_ended, run, &run->process);

	if (error == 0)
		return;
	refuse_errno(run->request, error, "the command cannot be started");
	if (run->alone)
		sandbox_end(run->sandbox, "error", "the command could not be started");
	run_free(run);
}

static void alone_ready(void *arg, struct sandbox *s)
{
	struct run *run = arg;

	run->sandbox = s;
	if (s->state == SANDBOX_RUNNING) {
		start(run);
		return;
	}
	request_forget(run->request);
	refuse_with(run->request, &s->problem);
	run_free(run);
}

static struct run *read_run(struct request *r)
{
	struct json_faults faults = {0};
	struct run *run = xcalloc(1, sizeof *run);

	*run = (struct run){.request = r, .input = evbuffer_new()};
	if (run->input == NULL)
		json_fault_add(&faults, "", NULL, "there is not enough memory");
	else if (command_read(r->json, &run->wish, &faults))
		(void) read_input(r->json, run->input, &faults);
	run->wish.input = run->input;
	run->wish.capture = true;
	if (faults.count == 0)
		return run;
	refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
	run_free(run);
	return NULL;
}

static void post_run(struct request *r)
{
	struct sandbox_wish wish = {.policy = json_object_get(r->json, "policy"),
				    .template = json_in_text(r->json, "template"),
				    .timeout = r->daemon->options->max_timeout,
				    .hidden = true};
	struct problem problem = {0};
	struct run *run = read_run(r);

	if (run == NULL)
		return;
	run->alone = true;
	r->data = run;
	if (sandbox_create(r->daemon->sandboxes, &wish, alone_ready, run, &run->sandbox, &problem) < 0) {
		refuse_with(r, &problem);
		json_decref(problem.errors);
		run_free(run);
		return;
	}
	request_on_gone(r, run_gone);
}

static void post_sandbox_run(struct request *r)
{
	struct sandbox *s = sandbox_of(r, true);
	struct run *run = s != NULL ? read_run(r) : NULL;

	if (run == NULL)
		return;
	run->sandbox = s;
	r->data = run;
	request_on_gone(r, run_gone);
	start(run);
}

static const struct json_field run_fields[] = {
    COMMAND_FIELDS,
    {"policy", JSON_IN_TEXT | JSON_IN_OBJECT | JSON_IN_NULL},
    {"template", JSON_IN_TEXT | JSON_IN_NULL},
    {"stdin", JSON_IN_TEXT | JSON_IN_NUL | JSON_IN_NULL},
    {"stdin_base64", JSON_IN_TEXT | JSON_IN_NULL},
    {NULL, 0},
};

static const struct json_field sandbox_run_fields[] = {
    COMMAND_FIELDS,
    {"stdin", JSON_IN_TEXT | JSON_IN_NUL | JSON_IN_NULL},
    {"stdin_base64", JSON_IN_TEXT | JSON_IN_NULL},
    {NULL, 0},
};

static const struct route routes[] = {
    {"POST", "/v1/run", SCOPE_CREATE, TAKES_JSON, ROUTE_WORK | ROUTE_IDEMPOTENT, run_fields, post_run, NULL, 0},
    {"POST", "/v1/sandboxes/{id}/run", SCOPE_USE, TAKES_JSON, ROUTE_WORK, sandbox_run_fields, post_sandbox_run, NULL, 0},
};

void api_run_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
