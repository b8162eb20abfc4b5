/* process.Process: what clients send to the standard input of a process. Each call is answered when the process has taken its
 * bytes, so that a client sends no faster than they are read. */
#include <errno.h>
#include <event2/buffer.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/envd.h"
#include "daemon/processes.h"

/* A stream may be silent for so long. */
#define STREAM_PATIENCE (3600 * USEC_PER_SEC)

/* The bytes of a ProcessInput into `out`. NULL, or why not. */
static const char *read_input(const struct process *p, const json_t *input, struct evbuffer *out, enum connect_code *ret_code)
{
	const char *plain = json_string_value(connect_field(input, "stdin")),
		   *pty = json_string_value(connect_field(input, "pty"));

	*ret_code = CONNECT_INTERNAL;
	if (p->tty != (pty != NULL) || (plain == NULL) == (pty == NULL))
		return p->tty ? "the process has no pipe as input" : "the process has no terminal";
	*ret_code = CONNECT_INVALID_ARGUMENT;
	return connect_bytes(p->tty ? pty : plain, out) ? NULL : "input: expected base64";
}

static const char *words_of(int error, enum connect_code *ret_code)
{
	*ret_code = error == -EPIPE ? CONNECT_INTERNAL : CONNECT_RESOURCE_EXHAUSTED;
	return error == -EPIPE ? "the process has no standard input, or no longer one"
			       : "too many calls wait for the process to read what was sent before";
}

/* ---- One message. ---- */

struct sending {
	struct input_writer writer;
	struct sandbox_cut cut;
	struct request *request;
	bool closes; /* for good, also when it was closed before */
};

static struct request *sending_free(struct sending *s)
{
	struct request *r = s->request;

	process_input_forget(&s->writer);
	sandbox_cut_remove(&s->cut);
	evbuffer_free(s->writer.data);
	free(s);
	return r;
}

static void sent(struct input_writer *w, int error)
{
	struct sending *s = (struct sending *) w; /* its first member */
	bool closed = s->closes && error == -EPIPE;
	struct request *r = sending_free(s);
	enum connect_code code;
	const char *words = words_of(error, &code);

	if (error == 0 || closed)
		connect_answer(r, json_object());
	else
		connect_refuse(r, code, "%s", words);
}

static void sending_gone(struct request *r)
{
	request_reset(sending_free(r->data));
}

static void sending_cut(struct sandbox_cut *c)
{
	request_reset(sending_free((struct sending *) ((char *) c - offsetof(struct sending, cut))));
}

/* Takes `data` over. */
static void send_to(const struct envd_call *c, struct process *p, struct evbuffer *data, bool closes)
{
	struct sending *s = xcalloc(1, sizeof *s);

	*s = (struct sending){.writer = {.data = data, .eof = closes, .done = sent}, .request = c->request, .closes = closes};
	s->cut.call = sending_cut;
	sandbox_cut_add(c->sandbox, &s->cut);
	/* What waits is held for as long as the call. */
	if (!request_count_body(c->request, evbuffer_get_length(data))) {
		connect_refuse(sending_free(s), CONNECT_RESOURCE_EXHAUSTED, "too many large requests are under way");
		return;
	}
	c->request->data = s;
	request_on_gone(c->request, sending_gone);
	process_input(p, &s->writer);
}

void envd_send_input(const struct envd_call *c)
{
	struct process *p = envd_running(c, connect_field(c->message, "process"), false);
	struct evbuffer *data = p != NULL ? evbuffer_new() : NULL;
	enum connect_code code = CONNECT_RESOURCE_EXHAUSTED;
	const char *why = "there is not enough memory";

	if (p == NULL)
		return;
	if (data != NULL)
		why = read_input(p, connect_field(c->message, "input"), data, &code);
	if (why == NULL) {
		send_to(c, p, data, false);
		return;
	}
	if (data != NULL)
		evbuffer_free(data);
	connect_refuse(c->request, code, "%s", why);
}

void envd_close_input(const struct envd_call *c)
{
	struct process *p = envd_running(c, connect_field(c->message, "process"), false);
	struct evbuffer *nothing;

	if (p == NULL)
		return;
	if (p->tty) {
		connect_refuse(c->request, CONNECT_FAILED_PRECONDITION, "a terminal has no end to close; send ^D");
		return;
	}
	nothing = evbuffer_new();
	if (nothing == NULL)
		connect_refuse(c->request, CONNECT_RESOURCE_EXHAUSTED, "there is not enough memory");
	else
		send_to(c, p, nothing, true);
}

/* ---- A stream of messages: "start" with the process, then "data" and "keepalive". ---- */

struct streaming {
	struct input_writer writer;
	struct sandbox_cut cut;
	struct envd_call call;
	struct process *process; /* held; NULL before "start" */
	struct evbuffer *in;
	int error; /* of the writer */
	bool whole, working;
};

/* The caller ends the request. */
static struct envd_call streaming_free(struct streaming *s)
{
	struct envd_call call = s->call;

	process_input_forget(&s->writer);
	if (s->process != NULL)
		process_hold(s->process, false);
	sandbox_cut_remove(&s->cut);
	if (s->in != NULL)
		evbuffer_free(s->in);
	if (s->writer.data != NULL)
		evbuffer_free(s->writer.data);
	free(s);
	return call;
}

static void streaming_cut(struct sandbox_cut *c)
{
	request_reset(streaming_free((struct streaming *) ((char *) c - offsetof(struct streaming, cut))).request);
}

static bool streaming_fail(struct streaming *s, enum connect_code code, const char *words)
{
	const struct envd_call call = streaming_free(s); /* `words` are static */

	envd_refuse(&call, true, code, "%s", words);
	return false;
}

static void no_stop(void *arg)
{
	(void) arg; /* it ends before anything can stop it */
}

static void streaming_finish(struct streaming *s)
{
	static const struct connect_stream_ops ops = {.stop = no_stop};
	struct connect_stream *answer = connect_stream_new(streaming_free(s).request, &ops, NULL, NULL);

	connect_stream_send(answer, json_object());
	connect_stream_end(answer);
}

/* Each gives false when the stream is over. */
static bool take_start(struct streaming *s, const json_t *start)
{
	struct process *p;

	if (s->process != NULL)
		return streaming_fail(s, CONNECT_INVALID_ARGUMENT, "there was a start before");
	p = envd_running(&s->call, connect_field(start, "process"), true);
	if (p == NULL) {
		(void) streaming_free(s); /* the request was refused */
		return false;
	}
	if (p->held)
		return streaming_fail(s, CONNECT_FAILED_PRECONDITION, "another request writes to this process");
	s->process = p;
	process_hold(p, true);
	return true;
}

static bool take_data(struct streaming *s, const json_t *data)
{
	enum connect_code code;
	const char *why;

	if (s->process == NULL)
		return streaming_fail(s, CONNECT_INVALID_ARGUMENT, "expected start first");
	why = read_input(s->process, connect_field(data, "input"), s->writer.data, &code);
	if (why != NULL)
		return streaming_fail(s, code, why);
	process_input(s->process, &s->writer);
	return true;
}

static bool take_message(struct streaming *s, const json_t *message)
{
	const json_t *start = connect_field(message, "start"), *data = connect_field(message, "data");

	if (json_is_object(start))
		return take_start(s, start);
	if (json_is_object(data))
		return take_data(s, data);
	return json_is_object(connect_field(message, "keepalive")) ||
	       streaming_fail(s, CONNECT_INVALID_ARGUMENT, "expected start, data or keepalive");
}

/* The next thing to do with what has come. False: wait, or the stream is over. */
static bool streaming_step(struct streaming *s)
{
	struct request *r = s->call.request;
	struct evbuffer *content = request_content(r);
	const char *why = NULL;
	json_t *message = NULL;
	enum connect_code code;
	bool more;
	int n;

	if (s->error != 0) {
		why = words_of(s->error, &code);
		return streaming_fail(s, code, why);
	}
	if (s->writer.process != NULL) { /* it has not read the last one, and the client waits too */
		s->working = false;
		return false;
	}
	n = connect_next(s->in, &message, &why);
	if (n < 0)
		return streaming_fail(s, CONNECT_INVALID_ARGUMENT, why);
	if (n > 0) {
		more = take_message(s, message);
		json_decref(message);
		return more;
	}
	if (evbuffer_get_length(content) > 0) {
		request_drop_body(r);
		if (!request_count_body(r, evbuffer_get_length(s->in) + evbuffer_get_length(content)))
			return streaming_fail(s, CONNECT_RESOURCE_EXHAUSTED, "too many large requests are under way");
		return evbuffer_add_buffer(s->in, content) == 0 ||
		       streaming_fail(s, CONNECT_RESOURCE_EXHAUSTED, "there is not enough memory");
	}
	if (s->whole && evbuffer_get_length(s->in) > 0)
		return streaming_fail(s, CONNECT_INVALID_ARGUMENT, "the stream ends within a message");
	if (s->whole && s->process == NULL)
		return streaming_fail(s, CONNECT_INVALID_ARGUMENT, "expected start first");
	s->working = false;
	if (s->whole)
		streaming_finish(s);
	else
		request_read_more(r);
	return false;
}

static void streaming_work(struct streaming *s)
{
	s->working = true;
	while (streaming_step(s)) {
	}
}

static void streamed(struct input_writer *w, int error)
{
	struct streaming *s = (struct streaming *) w; /* its first member */

	s->error = error;
	if (!s->working)
		streaming_work(s);
}

static void streaming_take(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct streaming *s = r->data;

	(void) content;
	if (event == BODY_BROKEN) {
		(void) streaming_free(s);
		refuse_body(r);
		return;
	}
	s->whole = event == BODY_WHOLE;
	if (s->writer.process == NULL)
		streaming_work(s);
}

static void streaming_gone(struct request *r)
{
	request_reset(streaming_free(r->data).request);
}

void envd_stream_input(struct request *r, struct sandbox *sandbox)
{
	struct streaming *s = xcalloc(1, sizeof *s);

	*s = (struct streaming){.writer = {.data = evbuffer_new(), .done = streamed},
				.call = {.request = r, .sandbox = sandbox},
				.in = evbuffer_new()};
	if (s->writer.data == NULL || s->in == NULL) {
		(void) streaming_fail(s, CONNECT_RESOURCE_EXHAUSTED, "there is not enough memory");
		return;
	}
	s->cut.call = streaming_cut;
	sandbox_cut_add(sandbox, &s->cut);
	r->data = s;
	request_patience(r, STREAM_PATIENCE);
	request_on_gone(r, streaming_gone);
	request_read(r, streaming_take);
}
