/* The daemon's side of one session's line (sandbox/session-wire.h). Everything that comes is checked for form before it is handed
 * on: a message that is none ends the line, as if the supervisor had died. Nothing waits; what the supervisor does not take in
 * time waits in a queue that has an end. Callbacks may ask, and free the session. */
#pragma once

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct session;

struct session_events {
	void (*ready)(void *arg, const json_t *m);
	void (*refused)(void *arg, const json_t *m);
	void (*event)(void *arg, const char *kind, const json_t *m);
	/* Of session_adopt() alone, may be NULL otherwise: "adopted" with its listening socket, then "held" for each process.
	 * False: it makes no sense. Descriptors that are to be kept are replaced by -EBADF. */
	bool (*adopted)(void *arg, const json_t *m, int *listener);
	bool (*held)(void *arg, const json_t *m, int *fds, size_t nfds);
	/* The last one, after every request was answered with NULL. `m` is "ended", or NULL when the line has closed without. */
	void (*ended)(void *arg, const json_t *m);
};

/* `m` is "started", "failed", "exited", "done", "stats" or "denials"; NULL: the session is over. `fd` comes with "started" of a
 * terminal and "done" of a connection: take it by take_fd(), else it is closed. A start is answered by started and exited, or by
 * failed. */
typedef void session_answer(void *arg, const json_t *m, int *fd);

/* `line` is taken over, also when it fails. */
struct session *session_new(struct event_base *base, int line, const struct session_events *events, void *arg,
			    struct zw_error *e);
/* Asks the supervisor of a daemon that is gone for all that it has; `answer` comes behind the last "held". Before anything else
 * is asked. As session_ask(). */
int session_adopt(struct session *s, session_answer *answer, void *arg);
/* From within `held`: `answer` will be called for what the supervisor tells of the process with this number. -EEXIST, -EINVAL. */
int session_take_over(struct session *s, json_int_t process, bool started, session_answer *answer, void *arg);
/* Ends the line: the supervisor ends its sandbox, and, from the event loop, every request is answered with NULL and `ended`
 * called. */
void session_hang_up(struct session *s);
/* Without further callbacks. The supervisor ends its sandbox when the line closes. */
struct session *session_free(struct session *s);

/* Sends `m` (taken over) with an id. The descriptors stay the caller's. 0, -EAGAIN (too much waits), -EMSGSIZE, -ENOMEM,
 * -ESHUTDOWN; no callback then. *ret_id may be NULL. */
int session_ask(struct session *s, json_t *m, const int *fds, size_t nfds, session_answer *answer, void *arg, uint32_t *ret_id);
