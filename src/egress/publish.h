/* network.publish: peers of the host that connect to ports inside. */
#pragma once

#include "egress/broker.h"

struct publish;

/* Peers take at most this part of the places for connections: others must not be able to use up those that the sandbox needs. */
enum { PUBLISH_SHARE = 4 };

struct publish *publish_new(struct broker *b);
void publish_free(struct publish *p);
/* Serves a listening socket of the host for `port` inside. `label` (copied) names it in records. Takes over `fd`. 0 or
 * negative errno: it is no such socket. */
int publish_add(struct publish *p, uint16_t port, const char *label, int fd);
