/* The line to the daemon: whole messages, never waited for. What the daemon does not take is queued; while anything is queued, no
 * request is read, so answers are bounded by what was asked before. Events, which the code inside can cause, are dropped and
 * counted instead. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/session-wire.h"

struct queued;

struct session_line {
	int fd;    /* owned, -EBADF once it is over */
	bool deaf; /* the other end takes nothing any more; over when what it had said is read */
	struct queued *first, *last;
	size_t bytes;  /* queued */
	uint64_t lost; /* events, since the last word about it */
	uint32_t watched;
};

int session_line_open(struct session_line *l, int fd);
void session_line_close(struct session_line *l);

/* Sends or queues; `message` is released and *fd (-EBADF: none; may be NULL) taken over in any case. Without effect when the line
 * is over. */
void session_line_send(struct session_line *l, json_t *message, int *fd);
/* With up to SESSION_FDS_MAX descriptors, which stay the caller's. */
void session_line_send_with(struct session_line *l, json_t *message, const int *fds, size_t nfds);
/* The same for what may be lost. */
void session_line_tell(struct session_line *l, json_t *event);
/* 1: *ret (a new reference, an object) and `fds`, all of them close-on-exec and the caller's. 0: nothing more for now. -EPIPE: it
 * is over. -EPROTO: no message. */
int session_line_receive(struct session_line *l, json_t **ret, int fds[SESSION_FDS_MAX], size_t *ret_count);

/* Sends what is queued, as far as it goes. */
void session_line_flush(struct session_line *l);
static inline bool session_line_is_idle(const struct session_line *l)
{
	return l->fd < 0 || l->first == NULL; /* nothing is queued for nobody */
}
/* Waits until all is sent, or nothing moves for `patience` milliseconds. */
void session_line_drain(struct session_line *l, int patience);

/* Asks epoll for what the line waits for. 0 or negative errno. */
int session_line_watch(struct session_line *l, int epoll, uint64_t tag);
