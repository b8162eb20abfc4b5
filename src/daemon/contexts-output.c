#include "daemon/contexts-internal.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

enum { DRAIN_MAX = 1 << 20 };

static void keep_late(struct stream *s, const char *data, size_t size)
{
	if (size > CONTEXT_LATE_MAX) {
		data += size - CONTEXT_LATE_MAX;
		size = CONTEXT_LATE_MAX;
	}
	if (s->late.size + size > CONTEXT_LATE_MAX) {
		size_t gone = s->late.size + size - CONTEXT_LATE_MAX;

		memmove(s->late.data, s->late.data + gone, s->late.size - gone);
		s->late.size -= gone;
	}
	(void) buf_add(&s->late, data, size);
}

static void take_output(struct context *c, struct stream *s, const char *data, size_t size)
{
	struct execution *x = c->current;
	uint64_t before, room;

	if (x == NULL) {
		keep_late(s, data, size);
		return;
	}
	before = x->end.bytes[s->index];
	room = before < x->output_max ? x->output_max - before : 0;
	x->end.bytes[s->index] += size;
	if (size > room) {
		x->end.truncated[s->index] = true;
		size = (size_t) room;
	}
	if (size > 0 && !x->silent && x->callbacks.output != NULL)
		x->callbacks.output(x->ctx, s->index, data, size);
	if (!c->freed && c->current == x && x->end.truncated[s->index] && x->output_kills)
		context_stop(c, EXECUTION_OUTPUT_LIMIT, "more output than the limit allows");
}

/* At most `max` bytes of what is there now. False when the context is gone. The caller has entered. */
static bool read_stream(struct context *c, struct stream *s, size_t max)
{
	char data[PIECE];

	while (max > 0 && s->fd >= 0) {
		ssize_t n = read(s->fd, data, max < sizeof data ? max : sizeof data);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			(void) event_del(s->readable);
			fd_close(&s->fd);
			break;
		}
		max -= (size_t) n;
		take_output(c, s, data, (size_t) n);
		if (c->freed)
			return false;
	}
	return true;
}

void context_stream_readable(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	struct context *c = s->context;

	(void) fd;
	(void) what;
	context_enter(c);
	(void) read_stream(c, s, PIECE);
	(void) context_leave(c);
}

/* What was written before now. A pipe holds no more than its size, so this ends. */
bool context_drain(struct context *c)
{
	for (unsigned i = 0; i < 2; i++) {
		int there = 0;

		if (c->streams[i].fd < 0 || ioctl(c->streams[i].fd, FIONREAD, &there) < 0 || there <= 0)
			continue;
		if (!read_stream(c, &c->streams[i], (size_t) there < DRAIN_MAX ? (size_t) there : DRAIN_MAX))
			return false;
	}
	return true;
}

void context_hold(struct context *c, bool hold)
{
	if (c->held == hold)
		return;
	c->held = hold;
	for (unsigned i = 0; i < 2; i++)
		if (c->streams[i].readable != NULL && c->streams[i].fd >= 0)
			(void) (hold ? event_del(c->streams[i].readable) : event_add(c->streams[i].readable, NULL));
	if (c->channel != NULL)
		(void) (hold ? bufferevent_disable(c->channel, EV_READ) : bufferevent_enable(c->channel, EV_READ));
	if (c->channel != NULL && !hold)
		bufferevent_trigger(c->channel, EV_READ, BEV_TRIG_DEFER_CALLBACKS); /* messages that were there */
}

void context_tell_late(struct context *c)
{
	for (unsigned i = 0; i < 2 && !c->freed && c->current != NULL; i++) {
		struct buf late = c->streams[i].late;

		c->streams[i].late = buf_new(CONTEXT_LATE_MAX);
		if (late.size > 0)
			take_output(c, &c->streams[i], late.data, late.size);
		buf_done(&late);
	}
}
