/* process.Process: processes of a sandbox. */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/envd.h"
#include "daemon/processes.h"
#include "sandbox/encode.h"

/* ---- Following. ---- */

/* One stream of events of one process. The process goes on without it. */
struct watcher {
	struct sandbox_cut cut;
	struct connect_stream *stream;
	struct output_reader *reader; /* NULL: it has not started yet */
	bool stopped;                 /* before it has started */
};

static json_t *event_of(const char *kind, json_t *what)
{
	return json_pack("{s{so}}", "event", kind, what);
}

static void watcher_free(struct watcher *w)
{
	sandbox_cut_remove(&w->cut);
	if (w->reader != NULL)
		process_reader_end(w->reader);
	free(w);
}

static void send_chunk(void *arg, const struct process *p, uint64_t number, unsigned stream, const char *data, size_t size)
{
	const struct watcher *w = arg;
	cleanup_free char *text = encode_base64(data, size);

	(void) number;
	connect_stream_send(w->stream, event_of("data", json_pack("{ss}",
								  p->tty                 ? "pty"
								  : stream == STREAM_ERR ? "stderr"
											 : "stdout",
								  text)));
}

static bool has_room(void *arg)
{
	const struct watcher *w = arg;

	return connect_stream_room(w->stream);
}

static json_t *end_of(const struct process *p)
{
	const json_t *code = json_object_get(p->exit, "exit_code"), *number = json_object_get(p->exit, "signal");
	const char *reason = json_string_value(json_object_get(p->exit, "reason"));
	char status[160];
	json_t *end;

	if (json_is_integer(code))
		(void) snprintf(status, sizeof status, "exit status %lld", (long long) json_integer_value(code));
	else if (strcmp(process_status(p), "signaled") == 0)
		(void) snprintf(status, sizeof status, "signal: %s", strsignal((int) json_integer_value(number)));
	else
		(void) snprintf(status, sizeof status, "%s: %s", process_status(p),
				reason != NULL ? reason : "no reason is known");
	end = json_pack("{sI sb ss}", "exitCode", json_is_integer(code) ? json_integer_value(code) : (json_int_t) -1, "exited",
			json_is_integer(code), "status", status);
	if (!json_is_integer(code) || json_integer_value(code) != 0)
		(void) json_object_set_new(end, "error", json_string(status));
	return end;
}

static void send_end(void *arg, struct process *p)
{
	struct watcher *w = arg;
	struct connect_stream *s = w->stream;

	w->reader = NULL; /* it is gone */
	watcher_free(w);
	if (p->exit == NULL) { /* with its sandbox */
		connect_stream_cut(s);
		return;
	}
	connect_stream_send(s, event_of("end", end_of(p)));
	connect_stream_end(s);
}

static void send_nothing(void *arg)
{
	struct watcher *w = arg;
	struct connect_stream *s = w->stream;

	w->reader = NULL;
	watcher_free(w);
	connect_stream_cut(s);
}

static void end_stopped(struct connect_stream *s)
{
	if (connect_stream_is_late(s))
		connect_stream_fail(s, CONNECT_DEADLINE_EXCEEDED, "the time of the call was over");
	else
		connect_stream_cut(s);
}

static void watcher_stop(void *arg)
{
	struct watcher *w = arg;
	struct connect_stream *s = w->stream;

	if (w->reader == NULL) { /* `started` comes */
		w->stopped = true;
		return;
	}
	watcher_free(w);
	end_stopped(s);
}

static void watcher_room(void *arg)
{
	const struct watcher *w = arg;

	if (w->reader != NULL)
		process_readers_wake(process_of_reader(w->reader));
}

/* The sandbox ends or is paused: the client shall see it at once. */
static void watcher_cut(struct sandbox_cut *c)
{
	struct watcher *w = (struct watcher *) ((char *) c - offsetof(struct watcher, cut));
	struct connect_stream *s = w->stream;

	if (w->reader == NULL) { /* `started` comes, and finds it so */
		w->stopped = true;
		return;
	}
	watcher_free(w);
	connect_stream_cut(s);
}

static struct watcher *watcher_new(const struct envd_call *c)
{
	static const struct connect_stream_ops ops = {.stop = watcher_stop, .room = watcher_room};
	struct watcher *w = xcalloc(1, sizeof *w);

	w->cut.call = watcher_cut;
	w->stream = connect_stream_new(c->request, &ops, w, event_of("keepalive", json_object()));
	sandbox_cut_add(c->sandbox, &w->cut);
	return w;
}

static void watch(struct watcher *w, struct process *p, uint64_t from)
{
	static const struct output_sink sink = {.chunk = send_chunk, .room = has_room, .over = send_end, .lost = send_nothing};

	connect_stream_send(w->stream, event_of("start", json_pack("{sI}", "pid", (json_int_t) p->pid)));
	w->reader = process_read(p, from, &sink, w);
	process_readers_wake(p);
}

/* ---- Start. ---- */

static void started(void *arg, struct process *p)
{
	struct watcher *w = arg;
	struct connect_stream *s = w->stream;
	const char *stage = json_string_value(json_object_get(p->exit, "stage")),
		   *message = json_string_value(json_object_get(p->exit, "message"));

	if (w->stopped) {
		watcher_free(w);
		end_stopped(s);
	} else if (!p->failed) {
		watch(w, p, 1);
	} else if (p->exit == NULL) {
		watcher_free(w);
		connect_stream_cut(s);
	} else {
		int error = (int) json_integer_value(json_object_get(p->exit, "errno"));
		bool asked = strcmp(stage, "exec") == 0 || strcmp(stage, "cwd") == 0 || error == EINVAL;

		watcher_free(w);
		connect_stream_fail(s,
				    asked            ? CONNECT_INVALID_ARGUMENT
				    : error == EPERM ? CONNECT_UNAUTHENTICATED /* another user than there is */
						     : CONNECT_INTERNAL,
				    "%s", message);
	}
}

static const char *text_in(const json_t *o, const char *name)
{
	const char *text = json_string_value(connect_field(o, name));

	return text != NULL && text[0] != '\0' ? text : NULL;
}

/* cmd and args as one list, owned by the caller; NULL: not of the form. */
static json_t *argv_of(const json_t *config)
{
	const json_t *args = connect_field(config, "args"), *arg;
	json_t *argv;
	size_t i;

	if (text_in(config, "cmd") == NULL || (args != NULL && !json_is_array(args)))
		return NULL;
	argv = json_pack("[s]", text_in(config, "cmd"));
	json_array_foreach(args, i, arg)
	{
		if (!json_is_string(arg) || json_array_append(argv, (json_t *) (uintptr_t) arg) < 0) {
			json_decref(argv);
			return NULL;
		}
	}
	return argv;
}

static bool is_environment(const json_t *envs)
{
	const char *key;
	json_t *value;

	if (envs == NULL)
		return true;
	json_object_foreach((json_t *) (uintptr_t) envs, key, value)
	{
		if (!json_is_string(value))
			return false;
	}
	return json_is_object(envs);
}

static bool read_size(const json_t *pty, unsigned *columns, unsigned *rows)
{
	const json_t *size = connect_field(pty, "size");
	json_int_t c = connect_integer(connect_field(size, "cols")), r = connect_integer(connect_field(size, "rows"));

	*columns = (unsigned) c;
	*rows = (unsigned) r;
	return c > 0 && c <= UINT16_MAX && r > 0 && r <= UINT16_MAX;
}

/* NULL, or what is wrong. `argv` is what the wish borrows. */
static const char *read_start(const struct envd_call *c, const json_t *argv, struct process_wish *w)
{
	const json_t *config = connect_field(c->message, "process"), *envs = connect_field(config, "envs"),
		     *input = connect_field(c->message, "stdin"), *pty = connect_field(c->message, "pty");
	uint64_t left = 0;

	*w = (struct process_wish){.argv = argv,
				   .env = json_is_object(envs) ? envs : NULL,
				   .cwd = text_in(config, "cwd"),
				   .tag = text_in(c->message, "tag"),
				   .user = c->user,
				   .timeout = ZW_UNLIMITED,
				   .keep_input = !json_is_false(input)};
	if (argv == NULL || !is_environment(envs))
		return "process: expected cmd, args and envs as texts";
	if (w->tag != NULL && strlen(w->tag) > TAG_MAX)
		return "tag: longer than 128 bytes";
	if (w->cwd != NULL) {
		w->cwd = e2b_path(w->cwd);
		if (w->cwd == NULL)
			return "cwd: expected an absolute path, or one below the home directory";
	}
	if (json_is_object(pty)) {
		w->tty = true;
		if (!read_size(pty, &w->columns, &w->rows))
			return "pty: expected a size of 1 to 65535 columns and rows";
	}
	if (connect_number(c->request, "connect-timeout-ms", UINT64_MAX / 1000, &left))
		w->timeout = left * 1000;
	return NULL;
}

static void start(const struct envd_call *c)
{
	json_t *argv = argv_of(connect_field(c->message, "process"));
	struct process_wish wish;
	const char *why = read_start(c, argv, &wish);
	struct process *p;
	struct watcher *w;
	int error;

	if (why != NULL) {
		envd_refuse(c, true, CONNECT_INVALID_ARGUMENT, "%s", why);
		json_decref(argv);
		return;
	}
	w = watcher_new(c);
	error = process_start(c->sandbox, &wish, started, NULL, w, &p);
	json_decref(argv);
	if (error != 0) {
		struct connect_stream *s = w->stream;

		watcher_free(w);
		connect_stream_fail(s, error == EAGAIN ? CONNECT_RESOURCE_EXHAUSTED : CONNECT_INTERNAL,
				    "it cannot be started: %s", strerror(error));
	}
}

/* ---- What runs. ---- */

struct process *envd_process(const struct envd_call *c, const json_t *which, bool streams)
{
	const char *tag = text_in(which, "tag");
	char name[TAG_MAX + 8];
	struct process *p = NULL;

	if (tag != NULL)
		(void) snprintf(name, sizeof name, "tag:%s", tag);
	else
		(void) snprintf(name, sizeof name, "%lld", (long long) connect_integer(connect_field(which, "pid")));
	if (strlen(name) < sizeof name - 1)
		p = process_find(c->sandbox, name);
	if (p == NULL)
		envd_refuse(c, streams, CONNECT_NOT_FOUND, "there is no process %.140s", name);
	return p;
}

struct process *envd_running(const struct envd_call *c, const json_t *which, bool streams)
{
	struct process *p = envd_process(c, which, streams);

	if (p == NULL || p->state != PROCESS_ENDED)
		return p;
	envd_refuse(c, streams, CONNECT_NOT_FOUND, "the process %lld has ended", (long long) p->pid);
	return NULL;
}

static struct process *running(const struct envd_call *c)
{
	return envd_running(c, connect_field(c->message, "process"), false);
}

static void connect_to(const struct envd_call *c)
{
	struct process *p = envd_process(c, connect_field(c->message, "process"), true);

	if (p != NULL)
		watch(watcher_new(c), p, p->added + 1);
}

static void list(const struct envd_call *c)
{
	json_t *found = json_array();

	for (const struct process *p = c->sandbox->processes; p != NULL; p = p->older) {
		json_t *args, *one;

		if (p->state != PROCESS_RUNNING || p->capture)
			continue;
		args = json_copy(p->command);
		(void) json_array_remove(args, 0);
		one = json_pack("{s{sO so ss} sI}", "config", "cmd", json_array_get(p->command, 0), "args", args, "cwd", p->cwd,
				"pid", (json_int_t) p->pid);
		if (p->env != NULL)
			(void) json_object_set(json_object_get(one, "config"), "envs", p->env);
		if (p->tag != NULL)
			(void) json_object_set_new(one, "tag", json_string(p->tag));
		(void) json_array_append_new(found, one);
	}
	connect_answer(c->request, json_pack("{so}", "processes", found));
}

/* ---- Signals, sizes. ---- */

static void done(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;

	(void) fd;
	if (error == 0)
		connect_answer(r, json_object());
	else if (error == ESRCH)
		connect_refuse(r, CONNECT_NOT_FOUND, "the process has ended");
	else
		connect_refuse(r, error == ESHUTDOWN ? CONNECT_UNAVAILABLE : CONNECT_INTERNAL, "it cannot be done: %s",
			       strerror(error));
}

static void ask(const struct envd_call *c, json_t *m)
{
	int error = session_ask(c->sandbox->session, m, NULL, 0, done, c->request, NULL);

	if (error < 0)
		connect_refuse(c->request, CONNECT_UNAVAILABLE, "it cannot be done: %s", strerror(-error));
}

static int signal_of(const json_t *value)
{
	const char *name = json_string_value(value);

	if (json_is_integer(value))
		return (int) json_integer_value(value);
	if (name != NULL && strcmp(name, "SIGNAL_SIGKILL") == 0)
		return SIGKILL;
	return name != NULL && strcmp(name, "SIGNAL_SIGTERM") == 0 ? SIGTERM : 0;
}

static void send_signal(const struct envd_call *c)
{
	int number = signal_of(connect_field(c->message, "signal"));
	const struct process *p = running(c);

	if (p == NULL)
		return;
	if (number != SIGKILL && number != SIGTERM)
		connect_refuse(c->request, CONNECT_INVALID_ARGUMENT, "signal: expected SIGNAL_SIGTERM or SIGNAL_SIGKILL");
	else
		ask(c, json_pack("{ss sI si sb}", "t", "signal", "process", (json_int_t) p->id, "signal", number, "tree", 0));
}

static void update(const struct envd_call *c)
{
	const json_t *pty = connect_field(c->message, "pty");
	struct process *p = running(c);
	unsigned columns, rows;

	if (p == NULL)
		return;
	if (!json_is_object(pty))
		connect_answer(c->request, json_object());
	else if (!p->tty)
		connect_refuse(c->request, CONNECT_FAILED_PRECONDITION, "the process has no terminal");
	else if (!read_size(pty, &columns, &rows))
		connect_refuse(c->request, CONNECT_INVALID_ARGUMENT, "pty: expected a size of 1 to 65535 columns and rows");
	else if (process_resize(p, rows, columns) == 0)
		connect_answer(c->request, json_object());
	else
		ask(c, json_pack("{ss sI si si}", "t", "resize", "process", (json_int_t) p->id, "rows", (int) rows, "columns",
				 (int) columns));
}

#define P "/process.Process/"

const struct envd_method envd_process_methods[] = {
    {P "Start", true, start, NULL},
    {P "Connect", true, connect_to, NULL},
    {P "List", false, list, NULL},
    {P "SendInput", false, envd_send_input, NULL},
    {P "CloseStdin", false, envd_close_input, NULL},
    {P "SendSignal", false, send_signal, NULL},
    {P "Update", false, update, NULL},
    {P "StreamInput", true, NULL, envd_stream_input},
    {NULL, false, NULL, NULL},
};
