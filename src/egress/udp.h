/* Datagrams of rules with protocol udp: a flow for each source address, source port and destination. */
#pragma once

#include "egress/broker.h"

enum { DATAGRAM_FLOWS_MAX = 512, DATAGRAM_IDLE_USEC = 60000000 };

struct datagrams;

struct datagrams *datagrams_new(struct broker *b);
void datagrams_free(struct datagrams *d);
/* A socket of the transit namespace, bound to a port: asks the kernel for the destination of each datagram. 0 or negative errno.
 */
int datagrams_prepare(int fd);
/* Takes what waits at it, up to a bound; the rest at the next turn of the loop. The fd stays the caller's. */
void datagrams_ready(struct datagrams *d, int fd);
