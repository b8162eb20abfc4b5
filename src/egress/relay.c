/* Moving bytes between two sockets with splice(2): they go through a pipe in the kernel and are never copied to this process.
 *
 * Theory of operation. A relay has two ways, one for each direction. A way reads from one socket into its pipe, and only when the
 * pipe is empty; it writes from the pipe to the other socket; when that is full it stops reading, which is all of the
 * backpressure. The pipe is borrowed while bytes are in it. An end of file is passed on (shutdown(2)) once the pipe is empty, and
 * the other way goes on: a half closed connection stays half closed for as long as both sides want. There is no time-out: a
 * connection may be silent for as long as it likes, and the kernel finds out about peers that are gone as it does for everyone
 * (SO_KEEPALIVE).
 *
 * A reset. When reading fails, the bytes that are under way are delivered, and then the other side is reset. When writing fails,
 * the side that was written to is gone, but may have sent something before: its way back is drained first, and then the other
 * side is reset. So a peer sees what it would have seen without anybody in between. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/dial.h"
#include "egress/pipes.h"
#include "egress/quota.h"

enum { DIAL_USEC = 75000000 };
/* Bytes of one way that one turn of the loop moves, so that others get their turn too. */
enum { TURN_BYTES = 4 * 1024 * 1024, TURN_STEPS = 64 };

enum side { CLIENT, UPSTREAM };

struct relay;

/* From one side to the other. */
struct way {
	struct relay *relay;
	enum side from;
	struct event *readable; /* of the socket that is read from */
	struct event *writable; /* of the socket that is written to; made when it is first needed */
	struct event *rate;     /* network.limits.rate; likewise */
	struct pipe_ends pipe;
	size_t held; /* bytes in the pipe */
	char *first; /* to be written before anything from the pipe */
	size_t first_size, first_sent;
	bool ended; /* nothing more will be read */
	bool done;  /* and the end was passed on */
};

struct relay {
	struct flow *flow;
	int fds[2];         /* by side */
	bool broken[2];     /* the side was reset, or cannot be written to any more */
	struct way ways[2]; /* by the side that is read from */
	struct dial *dial;  /* while there is no upstream */
	struct event *late; /* dialling takes too long */
};

static void relay_free(struct relay *r, bool reset)
{
	for (int side = CLIENT; side <= UPSTREAM; side++) {
		struct way *w = &r->ways[side];
		struct event *events[] = {w->readable, w->writable, w->rate};

		for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
			if (events[i] != NULL)
				event_free(events[i]);
		}
		pipes_return(r->flow->broker->pipes, &w->pipe, w->held);
		free(w->first);
	}
	if (r->late != NULL)
		event_free(r->late);
	for (int side = CLIENT; side <= UPSTREAM; side++) {
		if (reset)
			reset_close(r->fds[side]);
		else
			fd_close(&r->fds[side]);
	}
	flow_close(r->flow);
	free(r);
}

static void note(struct relay *r, const char *what, int err)
{
	if (r->flow->error[0] == '\0')
		(void) snprintf(r->flow->error, sizeof r->flow->error, "%s: %s", what, strerror(err));
}

static int writing_fd(const struct way *w)
{
	return w->relay->fds[!w->from];
}

static int reading_fd(const struct way *w)
{
	return w->relay->fds[w->from];
}

/* What becomes of a way after a turn. */
enum outcome {
	WAIT_READ,
	WAIT_WRITE,
	WAIT_RATE,
	WAY_DONE,   /* the end was passed on, or nobody is there to take it */
	RELAY_OVER, /* reset both */
};

/* The side that `w` reads from is gone: what it has sent is still delivered. */
static void reading_failed(struct way *w, int err)
{
	note(w->relay, w->from == CLIENT ? "the sandbox's side" : "the other side", err);
	w->relay->broken[w->from] = true;
	w->ended = true;
}

/* The side that `w` writes to takes no more. */
static enum outcome writing_failed(struct way *w, int err)
{
	note(w->relay, w->from == UPSTREAM ? "the sandbox's side" : "the other side", err);
	w->relay->broken[!w->from] = true;
	w->ended = true;
	return WAY_DONE;
}

static bool count(struct way *w, size_t bytes)
{
	return w->from == CLIENT ? quota_sent(w->relay->flow, bytes) : quota_received(w->relay->flow, bytes);
}

/* 0: the caller goes on; else what to wait for. Fills the empty pipe, or notes the end. */
static int fill(struct way *w, enum outcome *ret, usec_t *ret_wait)
{
	struct broker *b = w->relay->flow->broker;
	size_t wanted = quota_allowance(b->quota, PIPE_WANTED, ret_wait);
	ssize_t n;
	int r;

	*ret = WAIT_RATE;
	if (wanted == 0)
		return 1;
	if (w->pipe.read < 0) {
		r = pipes_borrow(b->pipes, &w->pipe);
		*ret = RELAY_OVER;
		if (r < 0) {
			note(w->relay, "no pipe for it", -r);
			return 1;
		}
	}
	n = splice(reading_fd(w), NULL, w->pipe.write, NULL, wanted, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	*ret = WAIT_READ;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (n < 0)
		reading_failed(w, errno);
	w->ended = n <= 0;
	if (n <= 0)
		return 0;
	w->held = (size_t) n;
	*ret = RELAY_OVER;
	return count(w, w->held) ? 0 : 1;
}

static int write_first(struct way *w, enum outcome *ret)
{
	ssize_t n = send(writing_fd(w), w->first + w->first_sent, w->first_size - w->first_sent, MSG_DONTWAIT | MSG_NOSIGNAL);

	*ret = WAIT_WRITE;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (n < 0) {
		*ret = writing_failed(w, errno);
		return 1;
	}
	w->first_sent += (size_t) n;
	if (w->first_sent < w->first_size)
		return 1;
	free(take_ptr(&w->first));
	return 0;
}

static int drain(struct way *w, enum outcome *ret)
{
	ssize_t n = splice(w->pipe.read, NULL, writing_fd(w), NULL, w->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	*ret = WAIT_WRITE;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	if (n <= 0) {
		*ret = writing_failed(w, n < 0 ? errno : EPIPE);
		return 1;
	}
	w->held -= (size_t) n;
	return w->held > 0 ? 1 : 0;
}

/* Nothing is under way any more, and nothing more will be read. */
static enum outcome pass_end(struct way *w)
{
	if (w->relay->broken[w->from])
		return RELAY_OVER;
	(void) shutdown(writing_fd(w), SHUT_WR); /* fails where the peer is gone, which the other way finds out */
	return WAY_DONE;
}

static enum outcome turn(struct way *w, usec_t *ret_wait)
{
	enum outcome outcome = WAIT_READ;
	size_t moved = 0;

	for (int step = 0; step < TURN_STEPS && moved < TURN_BYTES; step++) {
		if (w->first != NULL && write_first(w, &outcome))
			return outcome;
		if (w->held > 0 && drain(w, &outcome))
			return outcome;
		if (w->ended)
			return pass_end(w);
		if (fill(w, &outcome, ret_wait))
			return outcome;
		moved += w->held;
	}
	return w->held > 0 || w->ended ? WAIT_WRITE : WAIT_READ;
}

static void way_run(struct way *w);

static void ready(evutil_socket_t fd, short what, void *ctx)
{
	(void) fd, (void) what;
	way_run(ctx);
}

static void watch_write(struct way *w)
{
	if (w->writable == NULL)
		w->writable = event_new(w->relay->flow->broker->base, writing_fd(w), EV_WRITE, ready, w);
	(void) event_del(w->readable);
	(void) event_add(w->writable, NULL);
}

static void watch_rate(struct way *w, usec_t wait)
{
	struct timeval tv = {.tv_sec = (time_t) (wait / USEC_PER_SEC), .tv_usec = (suseconds_t) (wait % USEC_PER_SEC)};

	if (w->rate == NULL)
		w->rate = evtimer_new(w->relay->flow->broker->base, ready, w);
	(void) event_del(w->readable);
	(void) evtimer_add(w->rate, &tv);
}

static void way_done(struct way *w)
{
	struct relay *r = w->relay;

	w->done = true;
	(void) event_del(w->readable);
	if (r->ways[CLIENT].done && r->ways[UPSTREAM].done)
		relay_free(r, r->broken[CLIENT] || r->broken[UPSTREAM]);
}

static void way_run(struct way *w)
{
	usec_t wait = 0;
	enum outcome outcome = turn(w, &wait);

	if (w->held == 0)
		pipes_return(w->relay->flow->broker->pipes, &w->pipe, 0);
	switch (outcome) {
	case WAIT_READ:
		(void) event_add(w->readable, NULL);
		break;
	case WAIT_WRITE:
		watch_write(w);
		break;
	case WAIT_RATE:
		watch_rate(w, wait);
		break;
	case WAY_DONE:
		way_done(w);
		break;
	case RELAY_OVER:
		relay_free(w->relay, true);
		break;
	}
}

static void cut(void *owner)
{
	struct relay *r = owner;

	if (r->dial != NULL)
		dial_cancel(r->dial);
	relay_free(r, true);
}

static struct relay *relay_new(struct flow *f, int client)
{
	struct relay *r = xcalloc(1, sizeof *r);

	r->flow = f;
	f->cut = cut;
	f->owner = r;
	r->fds[CLIENT] = client;
	r->fds[UPSTREAM] = -EBADF;
	for (int side = CLIENT; side <= UPSTREAM; side++) {
		r->ways[side].relay = r;
		r->ways[side].from = (enum side) side;
		r->ways[side].pipe = PIPE_NONE;
	}
	return r;
}

/* The first turn of each way comes at once: what the client has sent meanwhile need not wait for another round of the loop. */
static void relay_begin(struct relay *r)
{
	struct event_base *base = r->flow->broker->base;
	const int on = 1;

	(void) setsockopt(r->fds[UPSTREAM], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	for (int side = CLIENT; side <= UPSTREAM; side++)
		r->ways[side].readable = event_new(base, r->fds[side], EV_READ | EV_PERSIST, ready, &r->ways[side]);
	(void) event_add(r->ways[UPSTREAM].readable, NULL);
	way_run(&r->ways[CLIENT]);
}

static void dialled(void *ctx, int fd)
{
	struct relay *r = ctx;

	r->dial = NULL;
	if (fd < 0) {
		relay_free(r, true);
		return;
	}
	event_free(take_ptr(&r->late));
	r->fds[UPSTREAM] = fd;
	relay_begin(r);
}

static void late(evutil_socket_t fd, short what, void *ctx)
{
	struct relay *r = ctx;

	(void) fd, (void) what;
	dial_cancel(r->dial);
	note(r, "cannot connect", ETIMEDOUT);
	relay_free(r, true);
}

void relay_start(struct flow *f, int fd)
{
	static const struct timeval limit = {.tv_sec = DIAL_USEC / USEC_PER_SEC};
	struct relay *r = relay_new(f, fd);

	r->late = evtimer_new(f->broker->base, late, r);
	(void) evtimer_add(r->late, &limit);
	r->dial = dial_start(f, false, dialled, r);
}

void relay_pair(struct flow *f, int client, int upstream, const void *first, size_t first_size)
{
	struct relay *r = relay_new(f, client);

	r->fds[UPSTREAM] = upstream;
	if (first_size > 0) {
		if (!quota_sent(f, first_size)) {
			relay_free(r, true);
			return;
		}
		r->ways[CLIENT].first = xcalloc(1, first_size);
		memcpy(r->ways[CLIENT].first, first, first_size);
		r->ways[CLIENT].first_size = first_size;
	}
	relay_begin(r);
}
