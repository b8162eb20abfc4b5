/* The daemon's side of `zwinger launcher` (cli/launcher.c has the messages): it is started once, when the daemon starts, and
 * never again; sessions outlive it. */
#pragma once

#include <event2/event.h>

#include "base/err.h"

struct launcher_client;

/* Starts the program that lies beside this one, or where it is installed. NULL with a sentence. */
struct launcher_client *launcher_client_new(struct event_base *base, void (*gone)(void *arg), void *arg, struct zw_error *e);
/* Closes the line, by which the launcher ends. NULL is fine. */
struct launcher_client *launcher_client_free(struct launcher_client *l);

/* Asks for a supervisor. `policy` is the text of one. *ret_line is the daemon's end of the session's socket, the caller's.
 * -EAGAIN: far too much waits for the launcher already; -ESHUTDOWN: it has ended; -EMSGSIZE: the policy is too long; others as of
 * socketpair(2). */
int launcher_client_launch(struct launcher_client *l, const char *policy, int *ret_line);
