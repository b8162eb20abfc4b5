/* Upstream DNS: what an allowed name's addresses really are. A name is resolved only when a connection to it is made, never
 * because somebody inside asked for it (stub.h).
 *
 * The files of the host (resolv.conf(5), hosts(5)) are read once, by resolver_new; after that no file is opened, no environment
 * variable counts (LOCALDOMAIN, HOSTALIASES and RES_OPTIONS are ignored even then) and no call waits. There are no search
 * domains: the one canonical name is asked for, at the servers of resolv.conf in their order.
 *
 * The addresses are whatever the servers or the host's hosts file say, public or not: the caller judges each (network_may_dial).
 */
#pragma once

#include "egress/broker.h"

enum {
	RESOLVE_ADDRESSES_MAX = 16,
	RESOLVE_CACHE_MAX = 1024,      /* names; the one that expires first goes */
	RESOLVE_LOOKUPS_MAX = 2048,    /* under way at once */
	RESOLVE_TTL_MAX = 300,         /* seconds; there is no least: 0 is not kept at all */
	RESOLVE_FAMILY_WAIT_MSEC = 50, /* that addresses of one family wait for those of the other (RFC 8305, 3) */
	RESOLVE_PATIENCE_SECONDS = 30, /* for a name in all */
};

struct resolver;
struct resolve;

/* Where the host says how to resolve. Port 0: 53. */
struct resolver_files {
	const char *resolv_conf, *hosts;
	uint16_t port;
};

/* Before the broker is confined. A missing resolv.conf means a server at 127.0.0.1, as for every program of the host; a missing
 * hosts file means none. NULL with a sentence for anything else. `b` needs base and network. */
struct resolver *resolver_new(struct broker *b, struct zw_error *e);
struct resolver *resolver_new_with(struct broker *b, const struct resolver_files *files, struct zw_error *e);
/* Look-ups under way end without their callback. */
void resolver_free(struct resolver *r);

/* Resolves a canonical name. Calls done() once, never from within this call, unless resolve_cancel came first: with 1 to
 * RESOLVE_ADDRESSES_MAX different addresses, families taking turns, or with none and why not ("no such name"). Addresses and text
 * are valid during the call only, the handle no longer in it. */
typedef void (*resolve_done)(void *ctx, const struct net_address *a, size_t count, const char *error);
struct resolve *resolve_start(struct resolver *r, const char *name, resolve_done done, void *ctx);
void resolve_cancel(struct resolve *q);
