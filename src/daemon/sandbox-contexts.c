#include "daemon/sandbox-contexts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/processes.h"
#include "daemon/sandbox-contexts-internal.h"
#include "daemon/sandbox-languages.h"
#include "daemon/sandbox.h"
#include "sandbox/session-wire.h"

/* One process. It outlives its context when that is removed, until the supervisor has told its end and answered all else. */
struct interpreter {
	struct interpreter *next, **at; /* in the sandbox's list */
	struct sandbox_context *of;     /* NULL: nobody waits for its end */
	uint32_t process;               /* id of its start */
	unsigned asks;                  /* signals that are not answered yet */
	bool over;
};

/* ---- The interpreter. ---- */

static void interpreter_detach(struct interpreter *p)
{
	if (p->of != NULL)
		p->of->interpreter = NULL;
	p->of = NULL;
}

static void interpreter_attach(struct interpreter *p, struct sandbox_context *x)
{
	struct sandbox *s = x->sandbox;

	*p = (struct interpreter){.of = x, .next = s->interpreters, .at = &s->interpreters};
	if (p->next != NULL)
		p->next->at = &p->next;
	s->interpreters = p;
	x->interpreter = p;
}

static void interpreter_free(struct interpreter *p)
{
	interpreter_detach(p);
	*p->at = p->next;
	if (p->next != NULL)
		p->next->at = p->at;
	free(p);
}

/* Ends that the interpreter chose itself need no reason; others are told as the supervisor saw them. */
static const char *told_reason(const json_t *m)
{
	const char *status = json_string_value(json_object_get(m, "status"));

	if (status == NULL || strcmp(status, "exited") == 0 || strcmp(status, "signaled") == 0)
		return NULL;
	return json_string_value(json_object_get(m, "reason"));
}

/* A folder that is not there gives the same errno as a program that is not: the stage tells them apart. */
static void tell_fault(struct sandbox_context *x, const json_t *failed)
{
	const char *stage = json_string_value(json_object_get(failed, "stage"));
	json_int_t error = json_integer_value(json_object_get(failed, "errno"));

	x->misasked = stage != NULL && (strcmp(stage, "cwd") == 0 || (strcmp(stage, "exec") != 0 && error == EINVAL));
	x->missing = !x->misasked && error == ENOENT;
}

static void on_answer(void *arg, const json_t *m, int *fd)
{
	struct interpreter *p = arg;
	struct sandbox_context *x = p->of;
	const char *t = json_string_value(json_object_get(m, "t"));
	struct context_death death = {.exit_code = -1};
	uint32_t process = p->process;

	(void) fd;
	if (t != NULL && strcmp(t, "started") == 0)
		return;
	p->over = true;
	interpreter_detach(p);
	if (p->asks == 0)
		interpreter_free(p);
	if (x == NULL)
		return;
	if (m == NULL) {
		death.reason = "the sandbox has ended";
	} else if (strcmp(t, "failed") == 0) {
		tell_fault(x, m);
		death.reason = json_string_value(json_object_get(m, "message"));
	} else {
		json_decref(x->last_denials);
		x->last_denials = json_incref(json_object_get(m, "denials"));
		x->last_process = process;
		if (json_is_integer(json_object_get(m, "exit_code")))
			death.exit_code = (int) json_integer_value(json_object_get(m, "exit_code"));
		death.signal = (int) json_integer_value(json_object_get(m, "signal"));
		death.reason = told_reason(m);
	}
	context_ended(x->context, &death);
}

static json_t *start_message(const struct sandbox_context *x)
{
	json_t *env = json_copy(x->sandbox->env);

	(void) json_object_update(env, x->env);
	return json_pack("{ss so so ss? sn sn sb sb sb sb}", "t", "start", "argv", driver_command(context_driver(x->context)),
			 "env", env, "cwd", x->cwd, "user", "tty", "tree", 1, "lasting", 1, "channel", 1, "program", 0);
}

/* What has no input: a pipe whose other end is closed. */
static int empty_input(void)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	fd_close(&ends[1]);
	return ends[0];
}

static int start_interpreter(void *owner, struct context *c, struct context_ends *ends, struct zw_error *e)
{
	struct sandbox_context *x = owner;
	struct sandbox *s = x->sandbox;
	struct interpreter *p = xcalloc(1, sizeof *p);
	cleanup_fd int in = empty_input(), out = ends->out, err = ends->err, channel = ends->channel;
	int fds[SESSION_FDS_MAX] = {in, out, err, channel};
	size_t count = 4;
	json_t *m;
	int r = s->session == NULL ? -ESHUTDOWN : in < 0 ? in : 0;

	interpreter_attach(p, x);
	x->context = c; /* the first one is started before its maker has it */
	x->missing = x->misasked = false;
	if (r == 0) {
		m = start_message(x);
		count = sandbox_context_hold(x, fds, count, m);
		r = session_ask(s->session, m, fds, count, on_answer, p, &p->process);
	}
	if (r == 0) {
		sandbox_context_note_start(x, p->process);
		return 0;
	}
	interpreter_free(p);
	return zw_errno(e, -r, "the interpreter cannot be started");
}

/* 0 or negative errno: the process is gone, or goes with the line. */
static int signal_interpreter(const struct interpreter *p, struct session *session, int number, session_answer *answer, void *arg)
{
	if (session == NULL)
		return -ESHUTDOWN;
	return session_ask(
	    session, json_pack("{ss sI si sb}", "t", "signal", "process", (json_int_t) p->process, "signal", number, "tree", 1),
	    NULL, 0, answer, arg, NULL);
}

static void on_signaled(void *arg, const json_t *m, int *fd)
{
	struct interpreter *p = arg;

	(void) m;
	(void) fd;
	p->asks--;
	if (p->over && p->asks == 0)
		interpreter_free(p);
	else if (p->of != NULL)
		context_signaled(p->of->context);
}

static void interrupt_interpreter(void *owner, struct context *c)
{
	const struct sandbox_context *x = owner;
	struct interpreter *p = x->interpreter;

	/* Without an answer: its end is told next, and nothing may begin in it any more. */
	if (p != NULL && signal_interpreter(p, x->sandbox->session, SIGINT, on_signaled, p) == 0)
		p->asks++;
	(void) c;
}

static void kill_interpreter(void *owner, struct context *c)
{
	const struct sandbox_context *x = owner;

	(void) c;
	if (x->interpreter != NULL)
		(void) signal_interpreter(x->interpreter, x->sandbox->session, SIGKILL, process_no_answer, NULL);
}

/* ---- Denials. ---- */

struct denials_ask {
	struct interpreter *of;
	uint32_t process;
	void (*call)(void *arg, uint32_t process, const json_t *list);
	void *arg;
};

static void on_denials(void *arg, const json_t *m, int *fd)
{
	struct denials_ask *a = arg;
	struct interpreter *p = a->of;

	(void) fd;
	if (--p->asks == 0 && p->over)
		interpreter_free(p);
	a->call(a->arg, a->process, json_object_get(m, "denials"));
	free(a);
}

void sandbox_context_denials(struct sandbox_context *x, bool settle,
			     void (*call)(void *arg, uint32_t process, const json_t *list), void *arg)
{
	struct interpreter *p = x->interpreter;
	struct denials_ask *a;
	json_t *m;

	if (p == NULL || x->sandbox->session == NULL) {
		call(arg, x->last_process, x->last_denials);
		return;
	}
	a = xcalloc(1, sizeof *a);
	*a = (struct denials_ask){.of = p, .process = p->process, .call = call, .arg = arg};
	m = json_pack("{ss sI sb}", "t", "denials", "process", (json_int_t) p->process, "settle", (int) settle);
	p->asks++;
	if (session_ask(x->sandbox->session, m, NULL, 0, on_denials, a, NULL) == 0)
		return;
	p->asks--;
	call(arg, p->process, NULL);
	free(a);
}

static void meter(struct sandbox_context *x)
{
	usec_t most = x->sandbox->policy.cpu_time;

	if (most == ZW_UNLIMITED || x->interpreter == NULL || x->metered == context_executions(x->context))
		return;
	x->metered = context_executions(x->context);
	(void) session_ask(
	    x->sandbox->session,
	    json_pack("{ss sI sI}", "t", "meter", "process", (json_int_t) x->interpreter->process, "cpu_usec", (json_int_t) most),
	    NULL, 0, process_no_answer, NULL, NULL);
}

static void on_changed(void *owner, struct context *c)
{
	struct sandbox_context *x = owner;
	enum context_state state = context_state(c);
	void (*up)(void *arg, struct sandbox_context *x) = x->on_up;

	x->context = c;
	if (state == CONTEXT_BUSY)
		meter(x);
	if (up == NULL || state == CONTEXT_STARTING || (state == CONTEXT_BUSY && !context_is_up(c)))
		return;
	x->on_up = NULL;
	up(x->up_arg, x);
}

static void on_note(void *owner, struct context *c)
{
	const struct sandbox_context *x = owner;

	(void) c;
	sandbox_context_note(x);
}

static const struct context_ops ops = {.start = start_interpreter,
				       .interrupt = interrupt_interpreter,
				       .kill = kill_interpreter,
				       .changed = on_changed,
				       .note = on_note};

/* ---- One of a daemon before this one. ---- */

static void context_object_free(struct sandbox_context *x)
{
	free(x->name);
	free(x->cwd);
	json_decref(x->env);
	json_decref(x->last_denials);
	free(x);
}

int sandbox_context_prepare(struct sandbox_context *x, const struct driver *driver)
{
	struct zw_error e = {0};

	if (context_new(x->sandbox->all->daemon->base, driver, false, &ops, x, &x->context, &e) == 0)
		return 0;
	context_object_free(x);
	return -ENOMEM;
}

int sandbox_context_interpreter(struct sandbox_context *x, uint32_t process, const json_t *held)
{
	struct interpreter *p = xcalloc(1, sizeof *p);
	const char *state = json_string_value(json_object_get(held, "state"));
	int r = 0;

	interpreter_attach(p, x);
	p->process = process;
	if (held != NULL)
		r = session_take_over(x->sandbox->session, process, strcmp(state, "running") == 0, on_answer, p);
	if (r < 0)
		interpreter_free(p);
	return r;
}

void sandbox_context_interpreter_ended(struct sandbox_context *x, const json_t *exited)
{
	int none = -EBADF;

	on_answer(x->interpreter, exited, &none);
}

/* ---- The list. ---- */

static int make_id(char ret[CONTEXT_ID_SIZE])
{
	unsigned char b[16];

	if (getrandom(b, sizeof b, 0) != sizeof b)
		return -EIO;
	b[6] = (b[6] & 0x0f) | 0x40; /* RFC 9562, 5.4 */
	b[8] = (b[8] & 0x3f) | 0x80;
	(void) snprintf(ret, CONTEXT_ID_SIZE, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
			b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

static int __attribute__((format(printf, 3, 4))) fail(struct problem *p, enum problem_code code, const char *fmt, ...)
{
	va_list ap;

	p->code = code;
	va_start(ap, fmt);
	(void) vsnprintf(p->message, sizeof p->message, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static void append(struct sandbox *s, struct sandbox_context *x)
{
	struct sandbox_context **at = &s->contexts;

	while (*at != NULL)
		at = &(*at)->next;
	*at = x;
	x->number = ++s->context_numbers;
}

int sandbox_context_new(struct sandbox *s, const struct context_wish *wish, void (*up)(void *arg, struct sandbox_context *x),
			void *arg, struct sandbox_context **ret, struct problem *p)
{
	const char *language = wish->language != NULL ? wish->language : "python";
	const struct driver *driver = driver_find(language);
	struct sandbox_context *x;
	struct zw_error e = {0};

	if (driver == NULL)
		return fail(p, PROBLEM_NOT_SUPPORTED,
			    "the language %.60s is not supported: python, javascript, typescript, bash, r, java are", language);
	if (sandbox_contexts_count(s) >= SANDBOX_CONTEXTS_MAX)
		return fail(p, PROBLEM_BUSY, "the sandbox has as many contexts as one may have: remove one");
	x = xcalloc(1, sizeof *x);
	*x = (struct sandbox_context){
	    .sandbox = s,
	    .name = wish->name != NULL ? xstrdup(wish->name) : NULL,
	    .cwd = xstrdup(wish->cwd != NULL ? wish->cwd : s->home),
	    .env = wish->env != NULL ? json_deep_copy(wish->env) : json_object(),
	    .created = now_realtime(),
	    .is_default = wish->is_default,
	};
	if (make_id(x->id) < 0) {
		context_object_free(x);
		return fail(p, PROBLEM_UNAVAILABLE, "the system has no random numbers");
	}
	if (sandbox_context_prepare(x, driver) < 0)
		return fail(p, PROBLEM_UNAVAILABLE, "there is not enough memory for a context");
	append(s, x);
	if (!wish->unstarted && context_start(x->context, &e) < 0) {
		sandbox_context_remove(x);
		return fail(p, PROBLEM_UNAVAILABLE, "%s", e.text);
	}
	x->on_up = wish->unstarted ? NULL : up;
	x->up_arg = arg;
	*ret = x;
	return 0;
}

struct sandbox_context *sandbox_context_find(struct sandbox *s, const char *name)
{
	const struct driver *driver = driver_find(name);
	struct sandbox_context *x = s->contexts;

	while (x != NULL && strcmp(x->id, name) != 0 && !(x->is_default && context_driver(x->context) == driver))
		x = x->next;
	return x;
}

static struct sandbox_context *make_default(struct sandbox *s, const char *language, bool unstarted, struct problem *p)
{
	struct context_wish wish = {.language = language, .is_default = true, .unstarted = unstarted};
	struct sandbox_context *x;

	return sandbox_context_new(s, &wish, NULL, NULL, &x, p) < 0 ? NULL : x;
}

void sandbox_context_reserve(struct sandbox *s, const char *language)
{
	struct problem p = {0};

	if (sandbox_context_find(s, language) == NULL && language_is_there(s->policy.root, driver_find(language)))
		(void) make_default(s, language, true, &p); /* without room for it, it is not there */
}

struct sandbox_context *sandbox_context_get(struct sandbox *s, const char *name, struct problem *p)
{
	struct sandbox_context *x = sandbox_context_find(s, name);

	if (x != NULL)
		return x;
	if (driver_find(name) != NULL)
		return make_default(s, name, false, p);
	(void) fail(p, PROBLEM_NOT_FOUND, "there is no context %.140s in the sandbox", name);
	return NULL;
}

void sandbox_context_forget(struct sandbox_context *x)
{
	x->on_up = NULL;
}

void sandbox_context_remove(struct sandbox_context *x)
{
	struct sandbox_context **at = &x->sandbox->contexts;
	void (*up)(void *arg, struct sandbox_context *x) = x->on_up;

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	x->on_up = NULL;
	if (up != NULL)
		up(x->up_arg, NULL);
	sandbox_context_forget_note(x);
	context_end(x->context, "the context was removed");
	context_free(x->context);
	if (x->interpreter != NULL)
		interpreter_detach(x->interpreter);
	context_object_free(x);
}

size_t sandbox_contexts_count(const struct sandbox *s)
{
	size_t n = 0;

	for (const struct sandbox_context *x = s->contexts; x != NULL; x = x->next)
		n++;
	return n;
}

json_t *sandbox_context_to_json(const struct sandbox_context *x)
{
	const struct context *c = x->context;
	/* One that was never started is as good as idle. */
	enum context_state state = context_state(c) == CONTEXT_DEAD && context_fault(c) == NULL ? CONTEXT_IDLE : context_state(c);

	return json_pack("{ss ss ss? ss ss ss? sI so}", "id", x->id, "language", context_driver(c)->language, "name", x->name,
			 "cwd", x->cwd, "state", context_state_names[state], "driver", context_driver_kind(c), "executions",
			 (json_int_t) context_executions(c), "created_at", json_time(x->created));
}

/* ---- Executions. ---- */

int sandbox_context_execute(struct sandbox_context *x, struct execution_ask *ask, const struct execution_callbacks *callbacks,
			    void *ctx, struct execution **ret)
{
	const struct sandbox_policy *p = &x->sandbox->policy;
	size_t waiting = ask->code_size;

	if (x->sandbox->state != SANDBOX_RUNNING)
		return -ESHUTDOWN;
	for (const struct sandbox_context *other = x->sandbox->contexts; other != NULL; other = other->next)
		waiting += context_queued_bytes(other->context);
	if (waiting > SANDBOX_CODE_MAX)
		return -EAGAIN;
	if (ask->timeout > p->time)
		ask->timeout = p->time;
	ask->output_max = p->output < CONTEXT_OUTPUT_MAX ? p->output : CONTEXT_OUTPUT_MAX;
	ask->output_kills = p->output_kill;
	return context_execute(x->context, ask, callbacks, ctx, ret);
}

void sandbox_context_count(const struct sandbox_context *x, enum execution_status status)
{
	metrics_add(x->sandbox->all->daemon->metrics, METRIC_EXECUTIONS,
		    METRIC_LABELS(context_driver(x->context)->language, execution_status_names[status]), 1);
}

/* ---- With the sandbox. ---- */

void sandbox_contexts_pause(struct sandbox *s, bool paused)
{
	for (struct sandbox_context *x = s->contexts; x != NULL; x = x->next)
		context_pause(x->context, paused);
}

void sandbox_contexts_ended(struct sandbox *s)
{
	/* Requests that wait have ended with their interpreters, whose ends were told by the session's. What remains is dead. */
	while (s->contexts != NULL)
		sandbox_context_remove(s->contexts);
	while (s->interpreters != NULL)
		interpreter_free(s->interpreters);
}

void sandbox_contexts_free(struct sandbox *s)
{
	sandbox_contexts_ended(s);
}
