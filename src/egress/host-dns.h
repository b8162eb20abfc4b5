/* What the host's files say about names: resolv.conf(5) and hosts(5). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/network.h"

enum { HOST_DNS_SERVERS_MAX = 3 /* as the resolver of the C library */, HOST_DNS_ENTRIES_MAX = 4096 };

struct host_dns_server {
	struct net_address address;
	uint32_t scope; /* interface index of a link-local one, else 0 */
};

struct host_dns_entry {
	char *name; /* canonical */
	struct net_address address;
};

struct host_dns {
	struct host_dns_server servers[HOST_DNS_SERVERS_MAX];
	size_t server_count;
	unsigned timeout_seconds, tries; /* for each server and try */
	bool rotate, tcp;
	struct host_dns_entry *entries;
	size_t entry_count;
};

/* Reads both files. Lines that say nothing to us (search, sortlist, unknown options) are passed over. Of hosts only names are
 * kept that the rules cover, in the order of the file, HOST_DNS_ENTRIES_MAX at most. A missing file is an empty one; without any
 * server there is one at 127.0.0.1. 0 or negative errno with a sentence, and nothing to free then. */
int host_dns_read(const char *resolv_conf, const char *hosts, const struct network *n, struct host_dns *ret, struct zw_error *e);
void host_dns_done(struct host_dns *h);
