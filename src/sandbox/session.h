/* The supervisor of a session: a sandbox that lives, and runs what the daemon asks for. Its messages: session-wire.h. */
#pragma once

#include "base/clock.h"
#include "sandbox/plan.h"
#include "sandbox/sandbox.h"

struct session;

/* `line` is the supervisor's end of the socket, taken over. `begun` (CLOCK_MONOTONIC) is when the request came. */
struct session *session_new(int line, usec_t begun);

/* An observer that tells the daemon what happens. `record` makes the object that goes out for an event (a new reference), NULL to
 * leave it out. Events that the daemon does not take in time are counted and lost; the session goes on. Valid until session_free.
 */
struct observer session_observer(struct session *s, struct json_t *(*record)(const struct event *e));

/* Ready, all the work, and the end: returns when the sandbox is gone and the daemon has been told (or is gone itself). `plan` is
 * of plan_make_session. Signals as in sandbox_run; SIGTERM, SIGINT and SIGHUP end the sandbox. */
void session_run(struct session *s, const struct plan *plan, const struct isolation_ops *ops, const struct observer *observer);

/* Instead of session_run: nothing runs. `errors` may be NULL. */
void session_refuse(struct session *s, const char *code, const char *reason, const struct policy_errors *errors);

void session_free(struct session *s);
