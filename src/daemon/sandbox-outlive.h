/* Sandboxes that outlive the daemon (--on-restart adopt). Each has a socket in the state directory, sessions/ID, on which its
 * supervisor waits for the next daemon for --adopt-wait when its line has closed (sandbox/session-carry.c). What the next daemon
 * has to know comes from three places: the record in the store (policy, times), the supervisor's memo (the environment, which is
 * never written to a disk), and what was noted of each process.
 *
 * A daemon holds the lock of the state directory, so no two of them come to one sandbox; and whoever has connected before is not
 * listened to as long as the line to the living one is there. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct sandbox;
struct sandboxes;
struct sandbox_outlive;

/* Opens the folder of the sockets; nothing for a daemon without a state directory. */
int sandbox_outlive_open(struct sandboxes *all, struct zw_error *e);
void sandbox_outlive_close(struct sandboxes *all);

/* It is ready, and shall outlive the daemon, if that was asked for. What cannot be is logged: it ends with the daemon then. */
void sandbox_outlive_begin(struct sandbox *s);
/* Its environment is another one. */
void sandbox_outlive_memo(const struct sandbox *s);
/* It has ended, or must not be taken over by anybody: its supervisor ends with the line. */
void sandbox_outlive_end(struct sandbox *s);
/* This daemon ends, and the supervisor is to wait for the next one. */
void sandbox_outlive_leave(struct sandbox *s);

/* What the record has for the next daemon. A new reference. */
json_t *sandbox_outlive_record(const struct sandbox *s);
/* The other way; `m` is NULL where there is none. False: it is not fit. */
bool sandbox_outlive_restore(struct sandbox *s, const json_t *m);

/* Of the session that is taken over (session.h). */
bool sandbox_adopted(void *arg, const json_t *m, int *listener);
bool sandbox_held(void *arg, const json_t *m, int *fds, size_t nfds);

/* At the start, before anybody can ask: takes over those that the records have as alive (they are STARTING), or ends them as
 * "daemon_restarted"; whatever else has a socket is ended. Waits for the supervisors for some seconds at most. */
void sandboxes_adopt(struct sandboxes *all);
