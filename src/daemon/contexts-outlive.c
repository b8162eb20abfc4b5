/* Contexts of which another daemon takes over the interpreter.
 *
 * That daemon may have been killed anywhere: within a message of the interpreter, which it had read a part of; between an
 * execution that it noted and the sending of it; between its end and the note of that. So the next message is looked for by its
 * form (only the head of a message has a line feed, and its body is an object), and what was noted as under way is interrupted,
 * and when no word about it comes, the interpreter is asked to execute nothing before it is taken for stuck. */
#include "daemon/contexts-internal.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

enum { DIGITS_MAX = 8 };

void context_past(const struct context *c, struct context_past *ret)
{
	*ret = (struct context_past){.alive = c->alive,
				     .ready = c->ready,
				     .busy = c->current != NULL,
				     .kind = c->kind,
				     .serial = c->serial,
				     .count = c->count,
				     .executions = c->executions,
				     .fault = context_fault(c)};
}

void context_ours(const struct context *c, struct context_ends *ret)
{
	*ret = (struct context_ends){.out = c->streams[0].fd, .err = c->streams[1].fd, .channel = bufferevent_getfd(c->channel)};
}

void context_restore_dead(struct context *c, const struct context_past *past)
{
	c->kind = past->kind;
	c->executions = past->executions;
	if (past->fault != NULL)
		(void) snprintf(c->fault, sizeof c->fault, "%s", past->fault);
}

int context_take_over(struct context *c, const struct context_past *past, struct context_ends *ends, struct zw_error *e)
{
	const int streams[2] = {take_fd(&ends->out), take_fd(&ends->err)};

	c->kind = past->kind;
	c->serial = past->serial;
	c->count = past->count;
	c->executions = past->executions;
	if (context_attach(c, take_fd(&ends->channel), streams) < 0)
		return zw_error(e, ENOMEM, "out of memory");
	c->alive = true;
	c->ready = c->came_up = past->ready;
	c->fresh = past->count == 0;
	c->resync = true;
	context_listen(c);
	if (!c->ready)
		context_set_timer(c, CONTEXT_START_MAX);
	return past->busy && context_resume_unknown(c) < 0 ? zw_error(e, ENOMEM, "out of memory") : 0;
}

/* The digits before the line feed at `end`, and what follows it. */
static bool is_head(struct evbuffer *in, size_t end, size_t *ret_start)
{
	char text[DIGITS_MAX + 2];
	size_t before = end < DIGITS_MAX ? end : DIGITS_MAX, i = before;
	struct evbuffer_ptr at;

	if (evbuffer_ptr_set(in, &at, end - before, EVBUFFER_PTR_SET) < 0 ||
	    evbuffer_copyout_from(in, &at, text, before + 2) != (ev_ssize_t) before + 2 || text[before + 1] != '{')
		return false;
	while (i > 0 && text[i - 1] >= '0' && text[i - 1] <= '9')
		i--;
	*ret_start = end - before + i;
	return i < before;
}

bool context_find_message(struct context *c)
{
	struct evbuffer *in = bufferevent_get_input(c->channel);

	for (;;) {
		struct evbuffer_ptr feed = evbuffer_search(in, "\n", 1, NULL);
		size_t have = evbuffer_get_length(in), start = 0;

		if (feed.pos < 0) { /* all but what may be the digits of a head */
			(void) evbuffer_drain(in, have > DIGITS_MAX ? have - DIGITS_MAX : 0);
			return false;
		}
		if ((size_t) feed.pos + 1 == have)
			return false;
		if (is_head(in, (size_t) feed.pos, &start)) {
			(void) evbuffer_drain(in, start);
			return true;
		}
		(void) evbuffer_drain(in, (size_t) feed.pos + 1);
	}
}
