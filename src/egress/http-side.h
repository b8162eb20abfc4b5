/* One of the two connections of a session: a bufferevent, plain or TLS, what is known of its state, and what waits to be sent.
 * Memory is bounded by HTTP_BUFFER_MAX each way: who writes looks at side_unsent first, and a full input is not read from. */
#pragma once

#include <event2/bufferevent.h>
#include <stdbool.h>
#include <stddef.h>

struct evbuffer;
struct event_base;

enum { HTTP_BUFFER_MAX = 64 * 1024 /* of input, and about that of output */ };

struct side {
	struct bufferevent *bev;
	struct evbuffer *out; /* what the states write; sent when they are through */
	bool connected;       /* TLS included */
	bool ended;           /* nothing more comes: an orderly end, or `failed` */
	bool failed;          /* reset or broken */
	bool ragged;          /* TLS that ended in order but without its closing alert */
	bool deaf;            /* takes no more bytes, but may still speak */
	bool shut;            /* our end has been sent */
	bool held;            /* is not read from until its input has gone down */
};

/* Takes over `fd`, also when it fails. NULL: no memory. */
struct bufferevent *side_plain(struct event_base *base, int fd);
/* side->bev has been set: begins to read. `data` is called when bytes came, or went and little is left. */
void side_set_up(struct side *side, bufferevent_data_cb data, bufferevent_event_cb event, void *ctx);
/* Closes; `reset` so that the peer sees it broken off. Takes an empty side. */
void side_free(struct side *side, bool reset);

/* What came, to be drained. */
struct evbuffer *side_input(const struct side *side);
/* What is to be sent, to be added to; it goes with side_flush. */
struct evbuffer *side_output(const struct side *side);
/* Bytes that were written and have not reached the socket. */
size_t side_unsent(const struct side *side);
/* True when something went at once: there may be more to do then. */
bool side_flush(struct side *side);
/* Stops reading while the input is full. To be called when the input has been looked at. */
void side_hold(struct side *side);
/* Gives back memory that TLS holds for bytes under way, where there are none. */
void side_rest(const struct side *side);
/* Sends our end behind what was written, for TLS and unless it is `ragged` as its closing alert as well. */
void side_shut(struct side *side, bool ragged);
/* Takes down what an event of the bufferevent says. */
void side_note(struct side *side, short what);
