#include "sandbox/network.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network.h"
#include "sandbox/environment.h"
#include "sandbox/rule-sets.h"
#include "sandbox/secret-source.h"

enum { LISTENERS_MAX = 4096 };

static bool is_exact(const struct network_rule *r)
{
	return r->pattern != NULL && r->pattern[0] != '*';
}

/* ---- Names and their addresses. ---- */

static size_t find_name(const struct plan *plan, const char *name)
{
	size_t i = 0;

	while (i < plan->name_count && strcmp(plan->names[i], name) != 0)
		i++;
	return i;
}

/* In the order of the rules. The broker gives these names addresses in the same order before any others (src/egress/main.c). */
static void plan_names(struct plan *plan)
{
	const struct network *n = plan->network;

	for (size_t i = 0; i < n->rule_count; i++) {
		if (!is_exact(&n->rules[i]) || find_name(plan, n->rules[i].pattern) < plan->name_count)
			continue;
		plan->names = xrealloc(plan->names, plan->name_count + 1, sizeof *plan->names);
		plan->names[plan->name_count++] = xstrdup(n->rules[i].pattern);
	}
}

const char *network_plan_name_at(const struct plan *plan, uint32_t address)
{
	return address >= NETWORK_NAMES_FIRST && address - NETWORK_NAMES_FIRST < plan->name_count
		   ? plan->names[address - NETWORK_NAMES_FIRST]
		   : NULL;
}

/* ---- Listeners. ---- */

static struct transit_listener at_v4(uint32_t address, uint16_t port, bool udp)
{
	struct transit_listener l = {.udp = udp, .port = port};
	uint32_t network_order = htonl(address);

	memcpy(l.address, &network_order, sizeof network_order);
	return l;
}

static bool same_place(const struct transit_listener *a, const struct transit_listener *b)
{
	return a->v6 == b->v6 && a->udp == b->udp && a->port == b->port && memcmp(a->address, b->address, sizeof a->address) == 0;
}

static bool is_any(const struct transit_listener *l)
{
	static const uint8_t any[16];

	return memcmp(l->address, any, sizeof any) == 0;
}

/* False when there are too many. One at any address takes the place of those at a single one: two cannot listen at one port.
 * Datagrams can, and have to: the broker knows by the socket that a datagram is a look-up. */
static bool add_listener(struct transit *t, struct transit_listener l)
{
	for (size_t i = 0; i < t->listener_count; i++) {
		struct transit_listener *have = &t->listeners[i];

		if (same_place(have, &l) || (is_any(have) && !l.v6 && !have->v6 && !have->udp && !l.udp && have->port == l.port))
			return true;
	}
	if (t->listener_count == LISTENERS_MAX)
		return false;
	if (t->listeners == NULL)
		t->listeners = xcalloc(LISTENERS_MAX, sizeof *t->listeners);
	t->listeners[t->listener_count++] = l;
	return true;
}

static bool add_rule_listeners(struct plan *plan, const struct network_rule *r, bool exact)
{
	bool udp = r->protocol == NET_UDP;
	size_t name = exact ? find_name(plan, r->pattern) : 0;

	for (size_t i = 0; i < r->port_count; i++) {
		for (unsigned port = r->ports[i].first; port <= r->ports[i].last; port++) {
			uint32_t address = exact ? NETWORK_NAMES_FIRST + (uint32_t) name : INADDR_ANY;
			struct transit_listener l = at_v4(address, (uint16_t) port, udp);

			if (!exact && r->pattern == NULL)
				l.v6 = r->prefix.address.family == AF_INET6;
			if (!add_listener(&plan->transit, l))
				return false;
		}
	}
	return true;
}

static void add_range(struct transit *t, const struct net_prefix *p)
{
	struct transit_range range = {.v6 = p->address.family == AF_INET6, .bits = (uint8_t) p->bits};

	if (range.v6)
		memcpy(range.address, &p->address.v6, sizeof p->address.v6);
	else
		memcpy(range.address, &p->address.v4, sizeof p->address.v4);
	t->ranges = xrealloc(t->ranges, t->range_count + 1, sizeof *t->ranges);
	t->ranges[t->range_count++] = range;
}

/* Those at any address first: they swallow the others. */
static void plan_listeners(struct plan *plan, struct policy_errors *errors)
{
	const struct network *n = plan->network;
	struct transit *t = &plan->transit;
	bool fits = true;

	for (size_t i = 0; i < n->rule_count; i++) {
		if (n->rules[i].pattern == NULL)
			add_range(t, &n->rules[i].prefix);
		if (!is_exact(&n->rules[i]))
			fits = fits && add_rule_listeners(plan, &n->rules[i], false);
	}
	for (size_t i = 0; i < n->rule_count; i++)
		if (is_exact(&n->rules[i]))
			fits = fits && add_rule_listeners(plan, &n->rules[i], true);
	fits = fits && add_listener(t, at_v4(NETWORK_STUB_ADDRESS, NETWORK_STUB_PORT, true)) &&
	       add_listener(t, at_v4(NETWORK_STUB_ADDRESS, NETWORK_STUB_PORT, false));
	if (n->proxy_env)
		fits = fits && add_listener(t, at_v4(NETWORK_STUB_ADDRESS, NETWORK_PROXY_PORT, false));
	if (!fits)
		policy_errors_add(errors, NULL, 0, "network.allow", NULL,
				  "the rules open more than %d ports; name those that are needed", LISTENERS_MAX);
}

static bool covers_v4(const struct transit_range *r, uint32_t address)
{
	uint32_t base, mask = r->bits == 0 ? 0 : UINT32_MAX << (32 - r->bits);

	memcpy(&base, r->address, sizeof base);
	return !r->v6 && (address & mask) == (ntohl(base) & mask);
}

static bool covers_v6(const struct transit_range *r, const uint8_t address[16])
{
	unsigned whole = r->bits / 8, rest = r->bits % 8;

	if (!r->v6 || memcmp(r->address, address, whole) != 0)
		return false;
	return rest == 0 || ((r->address[whole] ^ address[whole]) & (0xff << (8 - rest)) & 0xff) == 0;
}

static bool is_local_in_transit(const struct transit *t, const struct net_address *a)
{
	if (a->family == AF_INET &&
	    ntohl(a->v4.s_addr) >> (32 - TRANSIT_NAMES_BITS) == TRANSIT_NAMES_PREFIX >> (32 - TRANSIT_NAMES_BITS))
		return true;
	for (size_t i = 0; i < t->range_count; i++)
		if (a->family == AF_INET6 ? covers_v6(&t->ranges[i], a->v6.s6_addr)
					  : covers_v4(&t->ranges[i], ntohl(a->v4.s_addr)))
			return true;
	return false;
}

bool network_plan_listens(const struct plan *plan, const struct net_address *a, uint16_t port)
{
	const struct transit *t = &plan->transit;

	if (!is_local_in_transit(t, a))
		return false;
	for (size_t i = 0; i < t->listener_count; i++) {
		const struct transit_listener *l = &t->listeners[i];

		if (l->port != port || l->v6 != (a->family == AF_INET6))
			continue;
		if (is_any(l) || (!l->v6 && memcmp(l->address, &a->v4, sizeof a->v4) == 0))
			return true;
	}
	return false;
}

/* ---- What the sandbox is told. ---- */

static void plan_trust(struct plan *plan)
{
	static const char *const by_file[] = {"SSL_CERT_FILE",       "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
					      "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",     "PIP_CERT",
					      "DENO_CERT",           "CARGO_HTTP_CAINFO",  "AWS_CA_BUNDLE"};

	for (size_t i = 0; i < plan->network->rule_count; i++)
		plan->trust = plan->trust || plan->network->rules[i].protocol == NET_HTTPS;
	for (size_t i = 0; plan->trust && i < ARRAY_SIZE(by_file); i++)
		environment_default(plan, by_file[i], TRUST_BUNDLE);
}

static void plan_proxy(struct plan *plan)
{
	static const char *const by_proxy[] = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
					       "http_proxy", "https_proxy", "all_proxy"};
	static const char *const direct[] = {"NO_PROXY", "no_proxy"};
	cleanup_free char *proxy = xasprintf("http://%s:%d", NETWORK_STUB_TEXT, NETWORK_PROXY_PORT);

	if (!plan->network->proxy_env)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(by_proxy); i++)
		environment_default(plan, by_proxy[i], proxy);
	for (size_t i = 0; i < ARRAY_SIZE(direct); i++)
		environment_default(plan, direct[i], "localhost,127.0.0.1,::1,[::1]");
}

static void expand_rule_sets(const struct policy *policy, struct plan *plan, struct policy_errors *errors)
{
	for (size_t i = 0; i < policy->network.allow_count; i++) {
		const char *preset = policy->network.allow[i].preset;
		cleanup_free char *key = xasprintf("network.allow[%zu]", i);
		struct zw_error e = {0};

		if (preset != NULL && rule_set_expand(preset, plan, &e) < 0)
			policy_errors_add(errors, NULL, 0, key, NULL, "%s", e.text);
	}
}

void network_plan(const struct policy *policy, struct plan *plan, struct policy_errors *errors)
{
	size_t faults = errors->count;
	struct zw_error e = {0};

	if (policy->network.allow_count == 0 && policy->network.publish_count == 0)
		return;
	plan->network = xcalloc(1, sizeof *plan->network);
	if (network_from_policy(policy, plan->network, errors) < 0)
		return;
	expand_rule_sets(policy, plan, errors);
	if (errors->count == faults && network_check(plan->network, &e) < 0)
		policy_errors_add(errors, NULL, 0, "network.allow", NULL, "%s", e.text);
	if (errors->count > faults || plan->network->rule_count == 0)
		return;
	plan_names(plan);
	plan_listeners(plan, errors);
	secret_sources_plan(policy, plan);
	plan_trust(plan);
	plan_proxy(plan);
}

void network_plan_done(struct plan *plan)
{
	if (plan->network != NULL)
		network_done(plan->network);
	free(plan->network);
	for (size_t i = 0; i < plan->name_count; i++)
		free(plan->names[i]);
	free(plan->names);
	free(plan->transit.ranges);
	free(plan->transit.listeners);
	secret_sources_done(plan);
}
