/* What egress-start.c and egress.c share. */
#pragma once

#include <jansson.h>

#include "sandbox/egress.h"
#include "sandbox/plan.h"

enum { EGRESS_MESSAGE_MAX = 64 * 1024 };

/* Sends and releases `message`. 0 or negative errno: -EPIPE when the broker is gone, -EAGAIN when it does not read. */
int egress_send(struct egress *g, json_t *message, const int *fds, size_t nfds);
int egress_send_secret(struct supervisor *s, const struct secret_source *source, struct zw_error *e);
