/* Inside the network rules: what their files share with each other, with the syntax of policies and with the tests. */
#pragma once

#include "policy/network.h"

/* ---- Names: network-name.c. ---- */

/* A canonical name, or "*." in front of one that leaves room for a subdomain. 0 or -EINVAL. */
int network_pattern(const char *text, size_t size, char ret[NETWORK_NAME_SIZE]);
/* How well a canonical pattern covers a canonical name: 0 not at all, SIZE_MAX exactly, between them longer wildcards before
 * shorter. */
size_t network_pattern_covers(const char *pattern, const char *name);

/* ---- Addresses: network-address.c. ---- */

enum { NET_PREFIX_TEXT = NET_ADDRESS_TEXT + sizeof "/128" };

/* An address with or without "/bits" as people may write it (any form of IPv6, its mapped form becomes IPv4). Bits behind the
 * prefix stay. False when it is none. */
bool network_prefix_parse(const char *text, struct net_prefix *ret);
/* "10.0.0.0/8". Returns buf. */
const char *network_prefix_text(const struct net_prefix *p, char buf[NET_PREFIX_TEXT]);
/* Clears the bits behind the prefix; true when one was set. */
bool network_prefix_trim(struct net_prefix *p);
/* ::ffff:a.b.c.d is a way to write a.b.c.d, and the kernel connects to that. */
struct net_address network_address_plain(const struct net_address *a);
bool network_prefix_equal(const struct net_prefix *a, const struct net_prefix *b);
unsigned network_family_bits(sa_family_t family);

/* "10.1.2.3", "127.0.0.1:8443", "[::1]:8443", "::1"; port 0 when there is none. */
bool network_endpoint_parse(const char *text, struct net_address *ret, uint16_t *ret_port);

/* ---- Special ranges: network-special.c. ---- */

/* What is never dialled may be named by an address rule that lies within the special range: 10.1.0.0/16 names private addresses,
 * and 0.0.0.0/0 only means the public ones. True when `a` is ordinary, or named so. The prefix covers the address. */
bool network_special_named(const struct net_prefix *rule, const struct net_address *a);
/* What no address rule may name ("loopback", "multicast"...), since network.hosts does that for services of the host itself; NULL
 * for other ranges. */
const char *network_special_sealed(const struct net_prefix *rule);

/* True when a rule for `outer` opens all that one for `inner` would: it lies in it, and where it names a special range, `outer`
 * names one around that. */
bool network_special_covers(const struct net_prefix *outer, const struct net_prefix *inner);

/* True when the range is so wide that there are special ranges in it which it does not name. */
bool network_special_within(const struct net_prefix *rule);

/* ---- Rules: network-match.c, network.c. ---- */

bool network_rule_has_port(const struct network_rule *r, uint16_t port);
uint64_t network_ports_count(const struct port_range *ports, size_t count); /* those that stand twice count twice */
void network_rule_done(struct network_rule *r);
/* What network_check finds, one after the other: index of the rule at fault (rule_count: all together) and a sentence. */
void network_each_fault(const struct network *n, void (*found)(void *ctx, size_t rule, const char *sentence), void *ctx);

/* ---- Paths: network-path.c. ---- */

/* A raw path decoded once, when it has one reading but perhaps for a slash that was encoded (*ret_slash). False for all others.
 * `ret` has NETWORK_PATH_MAX bytes. */
bool network_path_decode(const char *path, size_t size, char ret[NETWORK_PATH_MAX], size_t *ret_size, bool *ret_slash);
/* For rules that look at no path: nothing in it that a reader could take for a way up or the end of the line. */
bool network_path_is_harmless(const char *path, size_t size);
/* `*`: any bytes but '/'; `**`: any bytes. In time of the product of both lengths at most. Longer patterns than 1024 match
 * nothing. */
bool network_path_matches(const char *pattern, const char *path, size_t size);
