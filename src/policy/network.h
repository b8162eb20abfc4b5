/* What a run may reach: the rules of network.allow as the supervisor and the broker both read them. The supervisor makes a struct
 * network from a policy and its rule sets, and sends it to the broker as JSON; both ask the same functions, so that what is
 * explained, recorded and enforced cannot differ.
 *
 * Names. There is one canonical form (network_name): lower case, no trailing dot, letters, digits, '-' and '_' in labels of 1 to
 * 63 bytes, at most 253 bytes in all, and nothing that any resolver could take for an address in numbers. What has no canonical
 * form is refused, never mended. Everything is checked and dialled in this form only.
 *
 * Which rule. For a name and port, exact rules come before wildcards, and longer wildcards before shorter ones: only the rules of
 * the most specific pattern that covers the port are asked. All of them have the same protocol (the policy is refused otherwise).
 *
 * Thread safety: none is needed; a struct network does not change once made. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "policy/policy.h"

/* What supervisor and broker must agree on, in host byte order: 198.18.0.1 is the stub resolver and, with network.proxy_env, the
 * proxy; names stand at 198.18.1.0 and up, the exact ones of the rules first, in their order. */
#define NETWORK_STUB_TEXT "198.18.0.1"
#define NETWORK_STUB_ADDRESS UINT32_C(0xC6120001)
#define NETWORK_NAMES_FIRST UINT32_C(0xC6120100)
#define NETWORK_NAMES_LAST UINT32_C(0xC612FEFF)
enum { NETWORK_STUB_PORT = 53, NETWORK_PROXY_PORT = 3128 };

enum {
	NETWORK_NAME_SIZE = 254, /* with the NUL */
	NETWORK_RULES_MAX = 8192,
	NETWORK_PORTS_MAX = 4096, /* different ports of all rules: each is a listener; those of udp count apart */
	NETWORK_COVER_MAX = 32,   /* rules of one pattern that cover the same port */
	NETWORK_PATH_MAX = 8192,  /* a request target that is longer matches nothing */
	NETWORK_JSON_MAX = 16 * 1024 * 1024,
};

/* An address of either family, without a port. v4-mapped IPv6 is never stored: it becomes IPv4. */
struct net_address {
	sa_family_t family; /* AF_INET or AF_INET6; AF_UNSPEC: none */
	union {
		struct in_addr v4;
		struct in6_addr v6;
	};
};

struct net_prefix {
	struct net_address address;
	unsigned bits;
};

struct network_rule {
	char *pattern;            /* canonical: "api.example.org" or "*.example.org"; NULL for an address rule */
	struct net_prefix prefix; /* address rules */
	struct port_range *ports;
	size_t port_count;
	enum net_protocol protocol;
	struct strv methods, paths;
	bool has_methods, has_paths;
	uint64_t request_max; /* bytes of a body, ZW_UNLIMITED */
	struct policy_secret_use secret;
	char *label; /* for people: "network.allow[2]" or "network.allow[0] (@pip)" */
};

/* network.hosts: where to connect for a name, in place of DNS. */
struct network_host {
	char *name; /* canonical */
	struct net_address address;
	uint16_t port; /* 0: the port that was asked for */
};

struct network {
	struct network_rule *rules;
	size_t rule_count;
	struct network_host *hosts;
	size_t host_count;
	struct {
		uint64_t bytes_out, bytes_in, requests, connections; /* in the whole run; ZW_UNLIMITED */
		uint64_t rate; /* bytes per second, both directions together; ZW_UNLIMITED */
		enum network_limit_action on_limit;
	} limits;
	bool proxy_env;
	struct policy_publish *publish; /* not sent to the broker as rules, but it opens the listeners on the host */
	size_t publish_count;
	char *ca_file; /* absolute path on the host, or NULL; more certificates to trust upstream */
};

void network_done(struct network *n);

/* The rules of a policy; entries with `preset` are left out (the plan expands those with network_add_rule). 0 or -EINVAL with
 * entries in `errors`. */
int network_from_policy(const struct policy *p, struct network *ret, struct policy_errors *errors);
/* Appends a copy of the rule (a rule set's). `label` (printable ASCII, at most 200 bytes) is copied. 0 or -EINVAL with a
 * sentence. */
int network_add_rule(struct network *n, const struct policy_rule *rule, const char *label, struct zw_error *e);
/* Two rules of one pattern that overlap in a port but differ in protocol (udp beside another is no difference), more than
 * NETWORK_COVER_MAX rules for one port of a pattern, more than NETWORK_PORTS_MAX ports: 0, or -EINVAL with a sentence that names
 * both. */
int network_check(const struct network *n, struct zw_error *e);

/* To the broker and back. The text is owned by the caller. */
char *network_to_json(const struct network *n);
int network_from_json(const char *text, size_t size, struct network *ret, struct zw_error *e);

/* The canonical form of `size` bytes that came from anywhere. 0 or -EINVAL (nothing is written then). */
int network_name(const char *text, size_t size, char ret[NETWORK_NAME_SIZE]);
/* An address in its one usual form ("10.1.2.3", "2001:db8::1"), nothing else: no octal, no short forms, no zone. 0 or -EINVAL. */
int network_address(const char *text, size_t size, struct net_address *ret);
/* "10.0.0.1", "2001:db8::1". Returns buf. */
enum { NET_ADDRESS_TEXT = INET6_ADDRSTRLEN };
const char *network_address_text(const struct net_address *a, char buf[NET_ADDRESS_TEXT]);
void network_address_from(const struct sockaddr *sa, struct net_address *ret, uint16_t *ret_port); /* AF_UNSPEC for others */
socklen_t network_address_to(const struct net_address *a, uint16_t port, struct sockaddr_storage *ret);
bool network_prefix_has(const struct net_prefix *p, const struct net_address *a);
bool network_address_equal(const struct net_address *a, const struct net_address *b);

/* Does any rule, at whatever port, cover the name? What the stub resolver answers. */
bool network_knows_name(const struct network *n, const char *name);

/* The rules for a connection (network_check sees to it that NETWORK_COVER_MAX is room enough): indexes into n->rules, at most
 * `room`; returns how many there are in all (0: refused). `udp` asks for rules of protocol udp, else for all others. */
size_t network_rules_for_name(const struct network *n, const char *name, uint16_t port, bool udp, size_t *ret, size_t room);
size_t network_rules_for_address(const struct network *n, const struct net_address *a, uint16_t port, bool udp, size_t *ret,
				 size_t room);
/* The rule that comes nearest to a refused name and port (same name at another port, a wildcard beside it, a name one letter
 * off), for messages; -1: none is near. */
int network_nearest_rule(const struct network *n, const char *name, uint16_t port);

/* One request against the rules that cover its connection: the index (into n->rules) of the first that allows it, or -1. `path`
 * is the raw request target without query; one with a backslash, "..", NUL or bad escapes matches nothing, and one that can be
 * read in two ways (an encoded slash above all) no rule with paths. A rule without methods allows every method, without paths
 * every path; GET implies HEAD. */
int network_match_request(const struct network *n, const size_t *rules, size_t rule_count, const char *method, const char *path,
			  size_t path_size);

/* Why the broker must not dial an address that nobody named: "loopback", "private", "link-local", "metadata", ... static text, or
 * NULL when it is an ordinary public address. IPv6 forms that embed an IPv4 address (mapped, NAT64, 6to4, Teredo) are judged by
 * both. */
const char *network_never_dialled(const struct net_address *a);
/* May it be dialled for this name (NULL or "": an address was asked for) at this port (the one that is dialled)? True for public
 * addresses, for what network.hosts gives for the name, and for what an address rule names: one whose range lies within the
 * special range and covers the address at that port. A wider range, such as 0.0.0.0/0, covers the public addresses in it alone.
 */
bool network_may_dial(const struct network *n, const char *name, const struct net_address *a, uint16_t port);
/* The same for one transport: an address rule for udp permits no TCP connection, nor the other way round. */
bool network_may_dial_as(const struct network *n, const char *name, const struct net_address *a, uint16_t port, bool udp);

/* network.hosts for a name, or NULL. */
const struct network_host *network_host_for(const struct network *n, const char *name);
