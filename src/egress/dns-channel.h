/* The DNS client (c-ares) on the broker's loop. */
#pragma once

#include <ares.h>
#include <event2/event.h>

#include "base/err.h"
#include "egress/host-dns.h"

struct dns_channel;

/* Takes servers, patience and transport from `h`, and nothing from environment or files. NULL with a sentence. Port 0: 53. */
struct dns_channel *dns_channel_new(struct event_base *base, const struct host_dns *h, uint16_t port, struct zw_error *e);
/* Outstanding queries call back with ARES_EDESTRUCTION from within. NULL is fine. */
void dns_channel_free(struct dns_channel *c);

/* Asks for exactly this name. Calls back once, maybe from within this call or another query's. `type` as in DNS (1: A, 28: AAAA).
 */
void dns_channel_query(struct dns_channel *c, const char *name, int type, ares_callback done, void *ctx);
