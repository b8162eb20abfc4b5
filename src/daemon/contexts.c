#include "daemon/contexts-internal.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/fd.h"
#include "base/mem.h"

enum { SIGNALS = 4 }; /* to an interpreter that is interrupted by them, until it is killed */

const char *const execution_status_names[EXECUTION_STATUS_MAX] = {"ok",   "error",        "timeout", "interrupted",
								  "died", "output_limit", "canceled"};
const char *const context_state_names[CONTEXT_STATE_MAX] = {"dead", "idle", "idle", "busy"};

/* ---- Life of the object. ---- */

static void execution_free(struct execution *x)
{
	if (x->message != NULL)
		evbuffer_free(x->message);
	free(x);
}

static void enqueue(struct context *c, struct execution *x)
{
	TAILQ_INSERT_TAIL(&c->queue, x, link);
	c->queued++;
	c->queued_bytes += evbuffer_get_length(x->message);
}

static void unqueue(struct context *c, struct execution *x)
{
	TAILQ_REMOVE(&c->queue, x, link);
	c->queued--;
	c->queued_bytes -= evbuffer_get_length(x->message);
}

void context_enter(struct context *c)
{
	c->nesting++;
}

static void context_destroy(struct context *c)
{
	event_free(c->timer);
	event_free(c->kick);
	if (c->current != NULL)
		execution_free(c->current);
	free(c);
}

/* False when the context is gone. */
bool context_leave(struct context *c)
{
	bool freed = c->freed;

	if (--c->nesting == 0 && freed)
		context_destroy(c);
	return !freed;
}

void context_changed(struct context *c)
{
	if (!c->freed && c->ops->changed != NULL)
		c->ops->changed(c->owner, c);
}

void context_noted(struct context *c)
{
	if (!c->freed && c->ops->note != NULL)
		c->ops->note(c->owner, c);
}

void context_set_timer(struct context *c, usec_t t)
{
	struct timeval tv = {.tv_sec = (time_t) (t / USEC_PER_SEC), .tv_usec = (suseconds_t) (t % USEC_PER_SEC)};

	(void) event_del(c->timer);
	c->left = t;
	if (t != ZW_UNLIMITED && !c->paused)
		(void) event_add(c->timer, &tv);
}

void context_pause(struct context *c, bool paused)
{
	struct timeval due, now, left;

	if (c->paused == paused)
		return;
	c->paused = paused;
	if (!paused) {
		context_set_timer(c, c->left);
		return;
	}
	c->left = ZW_UNLIMITED;
	if (!event_pending(c->timer, EV_TIMEOUT, &due))
		return;
	(void) gettimeofday(&now, NULL); /* event_pending() tells the real time at which it is due */
	timersub(&due, &now, &left);
	c->left = left.tv_sec < 0 ? 0 : (usec_t) left.tv_sec * USEC_PER_SEC + (usec_t) left.tv_usec;
	(void) event_del(c->timer);
}

/* ---- Stopping. ---- */

void context_kill(struct context *c, bool again)
{
	c->again |= again;
	if (!c->alive || c->killed)
		return;
	c->killed = true;
	c->ready = false;
	context_set_timer(c, ZW_UNLIMITED);
	c->ops->kill(c->owner, c);
}

static void send_json(struct context *c, const char *text)
{
	struct evbuffer *out = bufferevent_get_output(c->channel);

	(void) evbuffer_add_printf(out, "%zu\n%s", strlen(text), text);
}

/* One that comes between a fork and an execve is lost on who forked there: so there are several within the time to yield. */
static void send_signal(struct context *c)
{
	c->signals++;
	context_set_timer(c, CONTEXT_GRACE / SIGNALS);
	if (c->signaling)
		return; /* the last one is on its way */
	c->signaling = true;
	c->ops->interrupt(c->owner, c);
}

void context_stop(struct context *c, enum execution_status why, const char *reason)
{
	char text[64];

	if (c->stopping != EXECUTION_OK || c->current == NULL)
		return;
	c->stopping = why;
	(void) snprintf(c->stop_reason, sizeof c->stop_reason, "%s", reason);
	if (c->held)
		context_hold(c, false); /* nobody waits for what it says; it must be able to end */
	if (!c->ready || c->channel == NULL) {
		context_kill(c, true);
		return;
	}
	if (c->driver->by_signal) {
		c->signals = 0;
		send_signal(c);
		return;
	}
	context_set_timer(c, CONTEXT_GRACE);
	(void) snprintf(text, sizeof text, "{\"t\":\"interrupt\",\"id\":%u}", c->current->id);
	send_json(c, text);
}

void context_signaled(struct context *c)
{
	c->signaling = false;
	context_pump(c);
}

void context_interrupt(struct context *c)
{
	context_stop(c, EXECUTION_INTERRUPTED, "it was interrupted");
}

static void timer_fired(evutil_socket_t fd, short what, void *arg)
{
	struct context *c = arg;
	char took[40], reason[100];

	(void) fd;
	(void) what;
	context_enter(c);
	if (c->hung_up) {
		context_kill(c, false);
	} else if (c->current == NULL) {
		if (c->fault[0] == '\0')
			(void) snprintf(c->fault, sizeof c->fault, "the interpreter did not become ready in time");
		context_kill(c, false);
	} else if (c->stopping != EXECUTION_OK && c->unsure && context_probe(c) == 0) {
		context_finish(c, c->stopping, c->stop_reason); /* and then it is asked */
	} else if (c->stopping != EXECUTION_OK && c->driver->by_signal && c->signals < SIGNALS) {
		send_signal(c);
	} else if (c->stopping != EXECUTION_OK) {
		context_kill(c, true);
	} else {
		(void) snprintf(reason, sizeof reason, "it took longer than %s",
				format_usec(c->current->timeout, took, sizeof took));
		context_stop(c, EXECUTION_TIMEOUT, reason);
	}
	(void) context_leave(c);
}

void context_restart(struct context *c)
{
	context_enter(c);
	if (c->alive) {
		if (c->current != NULL && c->stopping == EXECUTION_OK) {
			c->stopping = EXECUTION_CANCELED;
			(void) snprintf(c->stop_reason, sizeof c->stop_reason, "the context was restarted");
		}
		if (c->held)
			context_hold(c, false);
		context_kill(c, true);
		context_changed(c);
	} else {
		(void) context_start(c, NULL);
	}
	(void) context_leave(c);
}

/* ---- Messages of the interpreter. ---- */

/* What it says makes no sense: it is no interpreter any more. */
static void broken(struct context *c, const char *what)
{
	(void) snprintf(c->fault, sizeof c->fault, "the interpreter's channel carries nonsense: %s", what);
	context_kill(c, false);
}

static void take_ready(struct context *c, const struct context_message *m)
{
	if (c->ready) {
		broken(c, "ready twice");
		return;
	}
	c->ready = c->came_up = true;
	c->kind = m->kind;
	context_set_timer(c, ZW_UNLIMITED);
	context_noted(c);
	context_changed(c);
	if (!c->freed)
		context_pump(c);
}

static void take_result(struct context *c, struct context_message *m, size_t size)
{
	struct execution *x = c->current;

	if (x->result_bytes + size > CONTEXT_RESULTS_MAX) {
		x->end.results_dropped++;
		return;
	}
	x->result_bytes += size;
	if (!x->silent && x->callbacks.result != NULL)
		x->callbacks.result(x->ctx, m->result);
}

static void take_error(struct context *c, const struct context_message *m)
{
	struct execution *x = c->current;

	if (x->error_told)
		return;
	x->error_told = true;
	if (!x->silent && x->callbacks.error != NULL)
		x->callbacks.error(x->ctx, m->name, m->value, m->traceback);
}

static void take_done(struct context *c, const struct context_message *m)
{
	char reason[60];

	if (c->stopping != EXECUTION_OK && (m->interrupted || !m->ok)) {
		context_finish(c, c->stopping, c->stop_reason);
	} else if (m->ok) {
		context_finish(c, EXECUTION_OK, NULL);
	} else {
		(void) snprintf(reason, sizeof reason, "the last command's exit status was %d", m->exit_status);
		context_finish(c, EXECUTION_ERROR, m->exit_status > 0 ? reason : NULL);
	}
}

static void take_message(struct context *c, struct context_message *m, size_t size)
{
	if (m->type == MESSAGE_READY) {
		take_ready(c, m);
		return;
	}
	if (m->type == MESSAGE_UNSUPPORTED) {
		(void) snprintf(c->fault, sizeof c->fault, "%s", m->reason);
		c->unsupported = true;
		context_kill(c, false);
		return;
	}
	if (!c->ready || c->current == NULL || m->id != c->current->id)
		return; /* of a thread that outlived its cell; there is nobody to tell */
	if (m->type == MESSAGE_RESULT)
		take_result(c, m, size);
	else if (m->type == MESSAGE_ERROR)
		take_error(c, m);
	else
		take_done(c, m);
}

/* One message if a whole one is there. False: no, or the line is broken. */
static bool take_next(struct context *c)
{
	struct evbuffer *in = bufferevent_get_input(c->channel);
	struct context_message m = {0};
	size_t head = 0, size = 0;
	int r;

	if (c->resync && !context_find_message(c))
		return false;
	r = context_message_size(in, &head, &size);
	if (r == 0)
		return false;
	if (r > 0)
		r = context_message_decode((const char *) evbuffer_pullup(in, (ev_ssize_t) (head + size)) + head, size, &m);
	if (r < 0 && c->resync) {
		context_message_done(&m);
		(void) evbuffer_drain(in, 1); /* it only looked like one */
		return true;
	}
	if (r < 0) {
		context_message_done(&m);
		broken(c, "no message");
		return false;
	}
	c->resync = false;
	(void) evbuffer_drain(in, head + size);
	/* Output that was written before it comes before it. */
	if (context_drain(c) && !c->killed)
		take_message(c, &m, size);
	context_message_done(&m);
	return !c->freed && c->channel != NULL && !c->killed && !c->held;
}

void context_read_channel(struct bufferevent *bev, void *arg)
{
	struct context *c = arg;
	unsigned left = 64;

	(void) bev;
	context_enter(c);
	/* A bounded number at once: the others' turn comes, and what is left brings us back. Half a message does not: its rest
	 * will. */
	while (left > 0 && !c->killed && take_next(c))
		left--;
	if (!c->freed && c->channel != NULL && !c->killed && left == 0)
		bufferevent_trigger(c->channel, EV_READ, BEV_TRIG_DEFER_CALLBACKS);
	(void) context_leave(c);
}

void context_channel_event(struct bufferevent *bev, short what, void *arg)
{
	struct context *c = arg;

	(void) bev;
	(void) what;
	context_enter(c);
	bufferevent_free(c->channel);
	c->channel = NULL;
	c->ready = false;
	/* A shell that was replaced by a program (exec) ends with it; nothing else has a reason to go on. Most often it is
	 * ending, and how must not be hidden by a signal of ours. */
	if (c->current == NULL || !c->driver->exit_is_result) {
		c->hung_up = true;
		context_set_timer(c, CONTEXT_GRACE);
	}
	(void) context_leave(c);
}

/* ---- Executions. ---- */

void context_finish(struct context *c, enum execution_status status, const char *reason)
{
	struct execution *x = c->current;

	c->current = NULL;
	c->stopping = EXECUTION_OK;
	c->unsure = false;
	context_noted(c);
	context_set_timer(c, ZW_UNLIMITED);
	if (c->held)
		context_hold(c, false);
	x->end.status = status;
	x->end.reason = reason;
	x->end.restarted = !c->ready;
	x->end.removed = c->removed;
	x->end.took = now_monotonic() - x->began;
	if (!x->silent)
		x->callbacks.end(x->ctx, &x->end);
	execution_free(x);
	if (c->freed)
		return;
	context_changed(c);
	if (!c->freed)
		context_pump(c);
}

static void begin_current(struct context *c, struct execution *x)
{
	c->current = x;
	c->stopping = EXECUTION_OK;
	x->id = ++c->serial;
	x->began = now_monotonic();
	c->count += !x->probe;
	c->executions += !x->probe;
	x->end.count = c->count;
	x->end.fresh = c->fresh;
	c->fresh = c->fresh && x->probe;
	context_noted(c);
	context_set_timer(c, x->timeout);
	context_changed(c);
	if (!c->freed && x->callbacks.begin != NULL && !x->silent)
		x->callbacks.begin(x->ctx, x->end.count, x->end.fresh);
}

static void send_current(struct context *c)
{
	struct evbuffer *out = bufferevent_get_output(c->channel);
	char head[64];
	int size = snprintf(head, sizeof head, "{\"t\":\"execute\",\"id\":%u,", c->current->id);

	(void) evbuffer_add_printf(out, "%zu\n%s", (size_t) size + evbuffer_get_length(c->current->message), head);
	(void) evbuffer_add_buffer(out, c->current->message);
}

void context_refuse_queue(struct context *c, enum execution_status status, const char *reason)
{
	for (struct execution *x = TAILQ_FIRST(&c->queue); x != NULL && !c->freed; x = TAILQ_FIRST(&c->queue)) {
		unqueue(c, x);
		x->end.status = status;
		x->end.reason = reason;
		x->end.restarted = true;
		x->end.removed = c->removed;
		if (!x->silent)
			x->callbacks.end(x->ctx, &x->end);
		execution_free(x);
	}
}

void context_end(struct context *c, const char *reason)
{
	context_enter(c);
	context_kill(c, false);
	c->killed = true; /* nothing begins any more */
	c->removed = true;
	if (c->current != NULL)
		context_finish(c, EXECUTION_CANCELED, reason);
	if (!c->freed)
		context_refuse_queue(c, EXECUTION_CANCELED, reason);
	(void) context_leave(c);
}

/* The next execution, or the interpreter for it. */
void context_pump(struct context *c)
{
	struct execution *x = TAILQ_FIRST(&c->queue);

	if (x == NULL || c->current != NULL || c->signaling || c->killed || c->freed)
		return;
	context_enter(c);
	if (!c->alive) {
		if (context_start(c, NULL) < 0)
			context_refuse_queue(c, EXECUTION_DIED, c->fault);
	} else if (c->ready) {
		unqueue(c, x);
		(void) context_drain(c);
		begin_current(c, x);
		if (!c->freed && c->current == x)
			context_tell_late(c);
		/* A callback may have stopped it already; then it is sent and interrupted in this order all the same. */
		if (!c->freed && c->current == x && c->channel != NULL)
			send_current(c);
	}
	(void) context_leave(c);
}

static int make_message(const struct execution_ask *ask, struct evbuffer **ret)
{
	cleanup_free char *env = ask->env == NULL ? NULL : json_dumps(ask->env, JSON_COMPACT);
	json_t *code = json_stringn(ask->code, ask->code_size);
	cleanup_free char *text = code == NULL ? NULL : json_dumps(code, JSON_COMPACT | JSON_ENCODE_ANY);
	struct evbuffer *out = evbuffer_new();

	json_decref(code);
	if (code == NULL || text == NULL || out == NULL || (ask->env != NULL && env == NULL) ||
	    evbuffer_add_printf(out, "\"env\":%s,\"code\":", env == NULL ? "{}" : env) < 0 ||
	    evbuffer_add(out, text, strlen(text)) < 0 || evbuffer_add(out, "}", 1) < 0) {
		if (out != NULL)
			evbuffer_free(out);
		return code == NULL ? -EINVAL : -ENOMEM;
	}
	*ret = out;
	return 0;
}

bool context_env_is_good(const json_t *env)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *) (uintptr_t) env, name, value)
	{
		if (*name == '\0' || strchr(name, '=') != NULL || !json_is_string(value) ||
		    strlen(json_string_value(value)) != json_string_length(value))
			return false;
	}
	return true;
}

int context_execute(struct context *c, const struct execution_ask *ask, const struct execution_callbacks *callbacks, void *ctx,
		    struct execution **ret)
{
	struct execution *x;
	int r;

	if (ask->code_size > CONTEXT_CODE_MAX)
		return -E2BIG;
	if (c->driver->by_signal && memchr(ask->code, '\0', ask->code_size) != NULL)
		return -EINVAL;
	if (!context_env_is_good(ask->env))
		return -EINVAL; /* an interpreter would end by it */
	if (c->queued >= CONTEXT_QUEUE_MAX)
		return -EAGAIN;
	x = calloc(1, sizeof *x);
	if (x == NULL)
		return -ENOMEM;
	r = make_message(ask, &x->message);
	if (r < 0) {
		free(x);
		return r;
	}
	x->context = c;
	x->callbacks = *callbacks;
	x->ctx = ctx;
	x->timeout = ask->timeout;
	x->output_max = ask->output_max;
	x->output_kills = ask->output_kills;
	enqueue(c, x);
	*ret = x;
	event_active(c->kick, EV_TIMEOUT, 0); /* begins from the loop, not before the caller has its pointer */
	return 0;
}

int context_probe(struct context *c)
{
	static const struct execution_ask nothing = {.code = ""};
	struct execution *x = calloc(1, sizeof *x);

	if (x == NULL || make_message(&nothing, &x->message) < 0) {
		free(x);
		return -ENOMEM;
	}
	x->context = c;
	x->silent = x->probe = true;
	x->timeout = CONTEXT_GRACE;
	TAILQ_INSERT_HEAD(&c->queue, x, link);
	c->queued++;
	c->queued_bytes += evbuffer_get_length(x->message);
	return 0;
}

int context_resume_unknown(struct context *c)
{
	struct execution *x = calloc(1, sizeof *x);

	if (x == NULL)
		return -ENOMEM;
	x->context = c;
	x->silent = true;
	x->id = c->serial;
	x->timeout = ZW_UNLIMITED;
	x->began = now_monotonic();
	c->current = x;
	c->unsure = true;
	context_stop(c, EXECUTION_CANCELED, "the client has left");
	return 0;
}

void execution_cancel(struct execution *x)
{
	struct context *c = x->context;

	x->silent = true;
	if (c->current == x) {
		context_stop(c, EXECUTION_CANCELED, "the client has left");
		return;
	}
	unqueue(c, x);
	execution_free(x);
}

/* ---- The object. ---- */

static void kicked(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	context_pump(arg);
}

int context_new(struct event_base *base, const struct driver *driver, bool native, const struct context_ops *ops, void *owner,
		struct context **ret, struct zw_error *e)
{
	struct context *c = calloc(1, sizeof *c);

	if (c == NULL)
		return zw_error(e, ENOMEM, "out of memory");
	*c = (struct context){.base = base, .driver = driver, .native = native, .ops = ops, .owner = owner};
	for (unsigned i = 0; i < 2; i++)
		c->streams[i] = (struct stream){.fd = -EBADF, .late = buf_new(CONTEXT_LATE_MAX), .index = i, .context = c};
	TAILQ_INIT(&c->queue);
	c->timer = event_new(base, -1, 0, timer_fired, c);
	c->kick = event_new(base, -1, 0, kicked, c);
	if (c->timer == NULL || c->kick == NULL) {
		if (c->timer != NULL)
			event_free(c->timer);
		free(c);
		return zw_error(e, ENOMEM, "out of memory");
	}
	*ret = c;
	return 0;
}

void context_free(struct context *c)
{
	if (c == NULL || c->freed)
		return;
	context_enter(c);
	context_kill(c, false);
	c->freed = true;
	(void) event_del(c->timer);
	(void) event_del(c->kick);
	context_close_line(c);
	for (unsigned i = 0; i < 2; i++)
		buf_done(&c->streams[i].late);
	for (struct execution *x = TAILQ_FIRST(&c->queue); x != NULL; x = TAILQ_FIRST(&c->queue)) {
		unqueue(c, x);
		execution_free(x);
	}
	if (c->current != NULL)
		c->current->silent = true;
	(void) context_leave(c);
}

enum context_state context_state(const struct context *c)
{
	if (!c->alive)
		return CONTEXT_DEAD;
	if (c->current != NULL || !TAILQ_EMPTY(&c->queue))
		return CONTEXT_BUSY;
	return c->ready ? CONTEXT_IDLE : CONTEXT_STARTING;
}

bool context_is_unsupported(const struct context *c)
{
	return c->unsupported;
}

bool context_is_up(const struct context *c)
{
	return c->ready;
}

const struct driver *context_driver(const struct context *c)
{
	return c->driver;
}

const char *context_driver_kind(const struct context *c)
{
	return c->kind == KIND_IPYTHON ? "ipython" : "native";
}

size_t context_queued_bytes(const struct context *c)
{
	return c->queued_bytes;
}

uint64_t context_executions(const struct context *c)
{
	return c->executions;
}

const char *context_fault(const struct context *c)
{
	return c->alive || c->fault[0] == '\0' ? NULL : c->fault;
}
