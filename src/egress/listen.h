/* The sockets of the transit namespace, at which everything from inside arrives. */
#pragma once

#include "egress/broker.h"

struct listeners;

struct listeners *listeners_new(struct broker *b);
void listeners_free(struct listeners *l);
/* Serves a socket that is bound to `a` (host or any) and `port`, and, but for UDP, listens. Takes over `fd`. 0 or
 * negative errno: it is no such socket. */
int listen_add(struct listeners *l, const struct net_address *a, uint16_t port, bool udp, int fd);
