#include "daemon/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"
#include "policy/text.h"
#include "sandbox/session-wire.h"

enum { RECORDS_MIN = 64 };

#define RECORD_KEEP (60 * USEC_PER_SEC)

void process_no_answer(void *arg, const json_t *m, int *fd)
{
	(void) arg;
	(void) m;
	(void) fd;
}

static void destroy(struct process *p)
{
	struct sandbox *s = p->sandbox;

	*(p->newer != NULL ? &p->newer->older : &s->processes) = p->older;
	if (p->older != NULL)
		p->older->newer = p->newer;
	s->process_count--;
	process_output_free(p);
	if (p->in_event != NULL)
		event_free(p->in_event);
	fd_close(&p->in);
	if (p->input != NULL)
		evbuffer_free(p->input);
	json_decref(p->command);
	json_decref(p->message);
	json_decref(p->env);
	json_decref(p->exit);
	free(p->tag);
	free(p->cwd);
	free(p);
}

/* ---- The end. ---- */

static void finish(struct process *p, const json_t *m)
{
	void (*ended)(void *arg, struct process *p) = p->on_ended;

	if (p->state == PROCESS_ENDED)
		return;
	process_streams_drain(p);
	p->state = PROCESS_ENDED;
	p->ended = now_realtime();
	if (m != NULL && !p->failed)
		process_outlive_note_end(p);
	p->exit = m != NULL ? json_incref((json_t *) (uintptr_t) m) : NULL;
	process_input_close(p);
	p->on_ended = NULL;
	if (!p->failed)
		sandbox_event(p->sandbox, "process_ended",
			      json_pack("{sI ss}", "pid", (json_int_t) p->pid, "status", process_status(p)));
	if (ended != NULL)
		ended(p->arg, p);
	process_readers_wake(p);
}

static void fail(struct process *p, const json_t *m)
{
	void (*started)(void *arg, struct process *p) = p->on_started;

	p->failed = true;
	p->on_started = NULL;
	p->on_ended = NULL;
	finish(p, m);
	if (started != NULL)
		started(p->arg, p);
}

void process_restore_end(struct process *p, json_t *exited, usec_t ended)
{
	const struct sandbox_policy *policy = &p->sandbox->policy;

	p->state = PROCESS_ENDED;
	p->exit = json_incref(exited);
	p->ended = ended;
	for (size_t i = 0; i < STREAMS; i++)
		p->over_limit |= policy->output_kill && p->streams[i].bytes > policy->output;
	process_input_close(p);
}

/* ---- Start. ---- */

static int launch(struct process *p);

static void started(struct process *p, const json_t *m, int *fd)
{
	void (*call)(void *arg, struct process *p) = p->on_started;
	int input;

	p->pid = json_integer_value(json_object_get(m, "pid"));
	p->state = PROCESS_RUNNING;
	if (p->tty && *fd >= 0) {
		input = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
		if (input >= 0)
			(void) process_input_open(p, input); /* without it there is no input */
		(void) process_streams_open(p, fd, 1);
		*fd = -EBADF;
	}
	metrics_add(p->sandbox->all->daemon->metrics, METRIC_PROCESSES_STARTED, NULL, 1);
	sandbox_event(p->sandbox, "process_started", json_pack("{sI sO}", "pid", (json_int_t) p->pid, "command", p->command));
	p->on_started = NULL;
	if (call != NULL)
		call(p->arg, p);
	if (p->state == PROCESS_RUNNING)
		process_input_begin(p);
}

/* The shell line is meant for /bin/bash, and for sh where that is not. */
static bool try_other_shell(struct process *p, const json_t *m)
{
	if (!p->shell_again || json_integer_value(json_object_get(m, "errno")) != ENOENT ||
	    strcmp(json_string_value(json_object_get(m, "stage")), "exec") != 0)
		return false;
	p->shell_again = false;
	(void) json_array_set_new(json_object_get(p->message, "argv"), 0, json_string("/bin/sh"));
	process_streams_close(p);
	if (p->in_event != NULL)
		event_free(p->in_event);
	p->in_event = NULL;
	fd_close(&p->in);
	return launch(p) == 0;
}

void process_answered(void *arg, const json_t *m, int *fd)
{
	struct process *p = arg;
	const char *type = json_string_value(json_object_get(m, "t"));

	if (type != NULL && strcmp(type, "started") == 0)
		started(p, m, fd);
	else if (type != NULL && strcmp(type, "exited") == 0)
		finish(p, m);
	else if (p->state != PROCESS_STARTING)
		finish(p, NULL);
	else if (type == NULL || strcmp(type, "failed") != 0)
		fail(p, NULL);
	else if (!try_other_shell(p, m))
		fail(p, m);
}

struct ends {
	int in[2], out[2], err[2];
};

static void ends_close(struct ends *e)
{
	int *const all[] = {&e->in[0], &e->in[1], &e->out[0], &e->out[1], &e->err[0], &e->err[1]};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		fd_close(all[i]);
}

static int ends_open(struct ends *e)
{
	*e = (struct ends){{-EBADF, -EBADF}, {-EBADF, -EBADF}, {-EBADF, -EBADF}};
	if (pipe2(e->in, O_CLOEXEC) < 0 || pipe2(e->out, O_CLOEXEC) < 0 || pipe2(e->err, O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

/* Sends the request. 0 or negative errno. */
static int launch(struct process *p)
{
	struct ends e = {{-EBADF, -EBADF}, {-EBADF, -EBADF}, {-EBADF, -EBADF}};
	int r = p->tty ? 0 : ends_open(&e), ours[STREAMS] = {-EBADF, -EBADF};

	if (r == 0 && !p->tty) {
		ours[STREAM_OUT] = take_fd(&e.out[0]);
		ours[STREAM_ERR] = take_fd(&e.err[0]);
		r = process_streams_open(p, ours, STREAMS);
	}
	/* Without input: a pipe whose other end is closed, which is the end of the input. */
	if (r == 0 && !p->tty && (p->keep_input || evbuffer_get_length(p->input) > 0))
		r = process_input_open(p, take_fd(&e.in[1]));
	if (r == 0) {
		int fds[SESSION_FDS_MAX] = {e.in[0], e.out[1], e.err[1]};
		json_t *m = json_copy(p->message);
		size_t count = process_outlive_hold(p, fds, p->tty ? 0 : 3, ours, m);

		r = session_ask(p->sandbox->session, m, fds, count, process_answered, p, &p->id);
	}
	if (r == 0)
		process_outlive_note(p);
	ends_close(&e);
	return r;
}

static json_t *argv_of(const struct process_wish *w)
{
	if (w->shell != NULL)
		return json_pack("[ss s]", "/bin/bash", "-c", w->shell);
	return json_deep_copy(w->argv);
}

static json_t *message_of(const struct sandbox *s, const struct process_wish *w)
{
	json_t *env = json_copy(s->env), *m;

	if (w->env != NULL)
		(void) json_object_update(env, (json_t *) (uintptr_t) w->env);
	m = json_pack("{ss so so ss? sb sb sb}", "t", "start", "argv", argv_of(w), "env", env, "cwd", w->cwd, "tree",
		      (int) w->tree, "channel", 0, "program", 0);
	(void) json_object_set_new(m, "user", w->user >= 0 ? json_integer(w->user) : json_null());
	(void) json_object_set_new(m, "tty",
				   w->tty ? json_pack("{sI sI}", "rows", (json_int_t) w->rows, "columns", (json_int_t) w->columns)
					  : json_null());
	if (w->timeout != ZW_UNLIMITED)
		(void) json_object_set_new(m, "timeout_usec", json_integer((json_int_t) w->timeout));
	return m;
}

int process_start(struct sandbox *s, const struct process_wish *w, void (*on_started)(void *arg, struct process *p),
		  void (*on_ended)(void *arg, struct process *p), void *arg, struct process **ret)
{
	struct process *p = xcalloc(1, sizeof *p);
	int r;

	*p = (struct process){
	    .sandbox = s,
	    .older = s->processes,
	    .in = -EBADF,
	    .streams = {{.fd = -EBADF}, {.fd = -EBADF}},
	    .tag = w->tag != NULL ? xstrdup(w->tag) : NULL,
	    .cwd = xstrdup(w->cwd != NULL                ? w->cwd
			   : w->user == 0 && s->has_root ? PLAN_ROOT_HOME
							 : s->home),
	    .command = argv_of(w),
	    .message = message_of(s, w),
	    .env = json_incref((json_t *) (uintptr_t) w->env),
	    .shell_again = w->shell != NULL,
	    .started = now_realtime(),
	    .tty = w->tty,
	    .capture = w->capture,
	    .keep_input = w->keep_input,
	    .in_eof = !w->keep_input && !w->tty,
	    .input = evbuffer_new(),
	    .on_started = on_started,
	    .on_ended = on_ended,
	    .arg = arg,
	};
	if (s->processes != NULL)
		s->processes->newer = p;
	s->processes = p;
	s->process_count++;
	r = p->input != NULL ? 0 : -ENOMEM;
	if (r == 0 && w->input != NULL)
		(void) evbuffer_add_buffer(p->input, w->input);
	if (r == 0 && w->capture)
		r = process_capture_init(p, s->policy.output);
	if (r == 0)
		r = process_outlive_begin(p);
	if (r == 0)
		r = launch(p);
	if (r < 0) {
		destroy(p);
		return -r;
	}
	*ret = p;
	return 0;
}

/* ---- Looking. ---- */

struct process *process_find(struct sandbox *s, const char *name)
{
	const char *tag = strncmp(name, "tag:", 4) == 0 ? name + 4 : NULL;
	uint64_t pid = 0;

	if (tag == NULL && parse_whole(name, &pid) < 0)
		return NULL;
	for (struct process *p = s->processes; p != NULL; p = p->older) {
		if (p->state == PROCESS_STARTING || p->failed || p->capture)
			continue;
		if (tag != NULL ? p->tag != NULL && strcmp(p->tag, tag) == 0 : p->pid == (int64_t) pid)
			return p;
	}
	return NULL;
}

void process_kill(struct process *p)
{
	if (p->state == PROCESS_ENDED || p->sandbox->session == NULL)
		return;
	p->ending = true;
	/* What cannot be sent is not needed: the line is over, and the process with it. */
	(void) session_ask(p->sandbox->session,
			   json_pack("{ss sI si sb}", "t", "signal", "process", (json_int_t) p->id, "signal", SIGKILL, "tree", 1),
			   NULL, 0, process_no_answer, NULL, NULL);
}

const char *process_status(const struct process *p)
{
	const char *status = json_string_value(json_object_get(p->exit, "status"));

	if (p->over_limit)
		return "output_limit";
	return status != NULL ? status : "canceled";
}

json_t *process_to_json(const struct process *p)
{
	bool over = p->state == PROCESS_ENDED;
	const char *reason = json_string_value(json_object_get(p->exit, "reason"));

	if (p->over_limit)
		reason = "it wrote more than limits.output";
	return json_pack("{sI ss? sO ss ss so so sO? sO? ss? ss? sb sI}", "pid", (json_int_t) p->pid, "tag", p->tag, "command",
			 p->command, "cwd", p->cwd, "state", over ? "ended" : "running", "started_at", json_time(p->started),
			 "ended_at", json_time(p->ended), "exit_code", json_object_get(p->exit, "exit_code"), "signal",
			 json_object_get(p->exit, "signal"), "status", over ? process_status(p) : NULL, "reason",
			 over ? (reason != NULL ? reason : "the sandbox has ended") : NULL, "tty", (int) p->tty, "dropped",
			 (json_int_t) p->dropped);
}

/* ---- All of a sandbox. ---- */

void processes_sandbox_ended(struct sandbox *s)
{
	for (struct process *p = s->processes, *older; p != NULL; p = older) {
		older = p->older;
		if (p->state == PROCESS_STARTING)
			fail(p, NULL);
		else
			finish(p, NULL);
		process_streams_close(p);
	}
}

void processes_sweep(struct sandbox *s)
{
	usec_t now = now_realtime();

	for (struct process *p = s->processes, *older; p != NULL; p = older) {
		older = p->older;
		if (p->state != PROCESS_ENDED || p->readers != NULL || p->held)
			continue;
		if (p->failed || (s->process_count > RECORDS_MIN && now - p->ended > RECORD_KEEP)) {
			process_outlive_forget(p);
			destroy(p);
		}
	}
}

void processes_free(struct sandbox *s)
{
	while (s->processes != NULL)
		destroy(s->processes);
}
