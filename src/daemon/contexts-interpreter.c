#include "daemon/contexts-internal.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/signame.h"

void context_close_line(struct context *c)
{
	if (c->channel != NULL)
		bufferevent_free(c->channel);
	c->channel = NULL;
	for (unsigned i = 0; i < 2; i++) {
		struct stream *s = &c->streams[i];

		if (s->readable != NULL)
			event_free(s->readable);
		s->readable = NULL;
		fd_close(&s->fd);
	}
	c->ready = false;
}

int context_attach(struct context *c, int channel, const int streams[2])
{
	(void) fd_nonblock(channel);
	c->channel = bufferevent_socket_new(c->base, channel, BEV_OPT_CLOSE_ON_FREE);
	for (unsigned i = 0; i < 2; i++) {
		struct stream *s = &c->streams[i];

		s->fd = streams[i];
		(void) fd_nonblock(s->fd);
		s->readable = event_new(c->base, s->fd, EV_READ | EV_PERSIST, context_stream_readable, s);
	}
	if (c->channel != NULL && c->streams[0].readable != NULL && c->streams[1].readable != NULL)
		return 0;
	if (c->channel == NULL)
		fd_close(&channel);
	context_close_line(c);
	return -ENOMEM;
}

void context_listen(struct context *c)
{
	bufferevent_setcb(c->channel, context_read_channel, NULL, context_channel_event, c);
	bufferevent_setwatermark(c->channel, EV_READ, 0, CONTEXT_MESSAGE_MAX + PIECE);
	(void) bufferevent_enable(c->channel, EV_READ | EV_WRITE);
	for (unsigned i = 0; i < 2; i++)
		(void) event_add(c->streams[i].readable, NULL);
}

static int make_line(struct context *c, struct context_ends *ends, struct zw_error *e)
{
	int pair[2], out[2][2] = {{-EBADF, -EBADF}, {-EBADF, -EBADF}};

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return zw_errno(e, errno, "cannot make the channel of an interpreter");
	if (pipe2(out[0], O_CLOEXEC) < 0 || pipe2(out[1], O_CLOEXEC) < 0) {
		int r = zw_errno(e, errno, "cannot make the pipes of an interpreter");

		fd_close(&pair[0]);
		fd_close(&pair[1]);
		fd_close(&out[0][0]);
		fd_close(&out[0][1]);
		return r;
	}
	*ends = (struct context_ends){.out = out[0][1], .err = out[1][1], .channel = pair[1]};
	if (context_attach(c, pair[0], (const int[]){out[0][0], out[1][0]}) == 0)
		return 0;
	fd_close(&ends->out);
	fd_close(&ends->err);
	fd_close(&ends->channel);
	return zw_error(e, ENOMEM, "out of memory");
}

int context_start(struct context *c, struct zw_error *e)
{
	struct context_ends ends;
	struct zw_error own = {0};
	int r;

	if (c->alive)
		return 0;
	c->fault[0] = '\0';
	r = make_line(c, &ends, &own);
	if (r == 0 && driver_greet(c->driver, c->native, bufferevent_get_output(c->channel)) < 0) {
		fd_close(&ends.out);
		fd_close(&ends.err);
		fd_close(&ends.channel);
		r = zw_error(&own, ENOMEM, "out of memory");
	}
	if (r == 0)
		r = c->ops->start(c->owner, c, &ends, &own);
	if (r < 0) {
		context_close_line(c);
		(void) snprintf(c->fault, sizeof c->fault, "%s", own.text);
		return zw_error(e, -r, "%s", own.text);
	}
	c->alive = true;
	c->killed = c->again = c->ready = c->came_up = c->signaling = c->held = c->hung_up = c->unsupported = false;
	c->fresh = true;
	c->count = 0;
	c->resync = c->unsure = false;
	context_listen(c);
	context_set_timer(c, CONTEXT_START_MAX);
	context_noted(c);
	context_changed(c);
	return 0;
}

static void describe_death(const struct context_death *d, char *text, size_t size)
{
	const char *name = d->signal > 0 ? signal_abbreviation(d->signal) : NULL;

	if (d->reason != NULL)
		(void) snprintf(text, size, "%s", d->reason);
	else if (d->signal > 0)
		(void) snprintf(text, size, "the interpreter was ended by signal %d%s%s", d->signal, name ? " SIG" : "",
				name ? name : "");
	else
		(void) snprintf(text, size, "the interpreter ended with exit code %d", d->exit_code);
}

/* How what ran has ended with its interpreter. */
static void finish_dead(struct context *c, const struct context_death *d, bool killed)
{
	char reason[sizeof c->fault], text[60];

	(void) snprintf(reason, sizeof reason, "%s", c->fault);
	if (c->stopping != EXECUTION_OK) {
		context_finish(c, c->stopping, c->stop_reason);
	} else if (c->driver->exit_is_result && !killed && d->exit_code >= 0 && d->reason == NULL) {
		(void) snprintf(text, sizeof text, "the shell ended with exit status %d", d->exit_code);
		context_finish(c, d->exit_code == 0 ? EXECUTION_OK : EXECUTION_ERROR, text);
	} else {
		context_finish(c, EXECUTION_DIED, reason);
	}
}

/* What has arrived and was not yet looked at. */
static void read_rest(struct context *c)
{
	struct evbuffer *in = bufferevent_get_input(c->channel);

	(void) evbuffer_unfreeze(in, 0);
	while (evbuffer_get_length(in) < CONTEXT_MESSAGE_MAX && evbuffer_read(in, bufferevent_getfd(c->channel), PIECE) > 0)
		;
	(void) evbuffer_freeze(in, 0);
}

void context_ended(struct context *c, const struct context_death *death)
{
	bool came_up, again, killed = c->killed;

	if (!c->alive)
		return;
	context_enter(c);
	/* What it said before its end: a message that is whole still counts. */
	if (c->channel != NULL && !c->killed) {
		read_rest(c);
		context_read_channel(c->channel, c);
	}
	came_up = c->came_up;
	again = c->again;
	if (!c->freed && context_drain(c)) {
		c->alive = c->signaling = c->ready = false;
		context_close_line(c);
		if (c->fault[0] == '\0')
			describe_death(death, c->fault, sizeof c->fault);
		c->killed = true; /* nothing begins while callbacks run */
		if (c->current != NULL)
			finish_dead(c, death, killed);
	}
	if (!c->freed) {
		context_set_timer(c, ZW_UNLIMITED);
		c->killed = false;
		if (!came_up && !again)
			context_refuse_queue(c, EXECUTION_DIED, c->fault); /* it never came up: the next would not either */
	}
	context_noted(c);
	if (!c->freed)
		context_changed(c);
	if (!c->freed && again)
		(void) context_start(c, NULL);
	if (!c->freed)
		context_pump(c);
	(void) context_leave(c);
}
