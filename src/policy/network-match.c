/* Which rules cover a connection. */
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"
#include "policy/text.h"

bool network_rule_has_port(const struct network_rule *r, uint16_t port)
{
	for (size_t i = 0; i < r->port_count; i++)
		if (port >= r->ports[i].first && port <= r->ports[i].last)
			return true;
	return false;
}

uint64_t network_ports_count(const struct port_range *ports, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (uint64_t) (ports[i].last - ports[i].first) + 1;
	return sum;
}

/* A name or an address that is asked for; the other one is NULL. */
struct asked {
	const char *name;
	const struct net_address *address;
};

/* 0: not covered; else the more, the more specific. Two patterns that cover the same with the same number are the same pattern.
 */
static size_t covers(const struct network_rule *r, const struct asked *asked)
{
	if (asked->name != NULL)
		return r->pattern != NULL ? network_pattern_covers(r->pattern, asked->name) : 0;
	if (r->pattern != NULL || !network_prefix_has(&r->prefix, asked->address) ||
	    !network_special_named(&r->prefix, asked->address))
		return 0;
	return r->prefix.bits + 1;
}

static bool is_for(const struct network_rule *r, uint16_t port, bool udp)
{
	return (r->protocol == NET_UDP) == udp && network_rule_has_port(r, port);
}

static size_t most_specific(const struct network *n, const struct asked *asked, uint16_t port, bool udp, size_t *ret, size_t room)
{
	size_t best = 0, count = 0;

	for (size_t i = 0; i < n->rule_count; i++) {
		size_t c = covers(&n->rules[i], asked);

		if (c < best || c == 0 || !is_for(&n->rules[i], port, udp))
			continue;
		if (c > best)
			count = 0;
		best = c;
		if (count < room)
			ret[count] = i;
		count++;
	}
	return count;
}

size_t network_rules_for_name(const struct network *n, const char *name, uint16_t port, bool udp, size_t *ret, size_t room)
{
	return most_specific(n, &(struct asked){.name = name}, port, udp, ret, room);
}

size_t network_rules_for_address(const struct network *n, const struct net_address *a, uint16_t port, bool udp, size_t *ret,
				 size_t room)
{
	return most_specific(n, &(struct asked){.address = a}, port, udp, ret, room);
}

bool network_knows_name(const struct network *n, const char *name)
{
	for (size_t i = 0; i < n->rule_count; i++)
		if (n->rules[i].pattern != NULL && network_pattern_covers(n->rules[i].pattern, name) > 0)
			return true;
	return false;
}

/* ---- What may be dialled. ---- */

const struct network_host *network_host_for(const struct network *n, const char *name)
{
	for (size_t i = 0; i < n->host_count; i++)
		if (strcmp(n->hosts[i].name, name) == 0)
			return &n->hosts[i];
	return NULL;
}

bool network_may_dial_as(const struct network *n, const char *name, const struct net_address *a, uint16_t port, bool udp)
{
	const struct network_host *host = name != NULL ? network_host_for(n, name) : NULL;

	if (network_never_dialled(a) == NULL)
		return true;
	if (host != NULL && network_address_equal(&host->address, a) && (host->port == 0 || host->port == port))
		return true;
	return network_rules_for_address(n, a, port, udp, NULL, 0) > 0;
}

bool network_may_dial(const struct network *n, const char *name, const struct net_address *a, uint16_t port)
{
	bool any = name == NULL || name[0] == '\0';

	for (int udp = 0; udp <= 1; udp++)
		if ((any || network_host_for(n, name) != NULL || network_rules_for_name(n, name, port, udp != 0, NULL, 0) > 0) &&
		    network_may_dial_as(n, name, a, port, udp != 0))
			return true;
	return network_never_dialled(a) == NULL;
}

/* ---- What comes nearest. ---- */

static int covering_rule(const struct network *n, const struct asked *asked)
{
	size_t best = 0;
	int found = -1;

	for (size_t i = 0; i < n->rule_count; i++) {
		size_t c = covers(&n->rules[i], asked);

		if (c > best) {
			best = c;
			found = (int) i;
		}
	}
	return found;
}

static bool is_below(const char *name, const char *parent)
{
	size_t a = strlen(name), b = strlen(parent);

	return a > b && name[a - b - 1] == '.' && strcmp(name + a - b, parent) == 0;
}

/* "example.org" and "*.example.org", "www.example.org" and "example.org". */
static int related_rule(const struct network *n, const char *name)
{
	for (size_t i = 0; i < n->rule_count; i++) {
		const char *pattern = n->rules[i].pattern;

		if (pattern == NULL)
			continue;
		if (strncmp(pattern, "*.", 2) == 0 ? strcmp(pattern + 2, name) == 0
						   : is_below(name, pattern) || is_below(pattern, name))
			return (int) i;
	}
	return -1;
}

static int similar_rule(const struct network *n, const char *name)
{
	struct nearest nearest = nearest_to(name);
	int found = -1;

	for (size_t i = 0; i < n->rule_count; i++) {
		const char *before = nearest.best;

		if (n->rules[i].pattern == NULL)
			continue;
		nearest_try(&nearest, n->rules[i].pattern);
		if (nearest.best != before)
			found = (int) i;
	}
	/* Names share their ends anyway ("api.example.org" and "cdn.example.org"): only one or two slips of the keys are near. */
	return nearest.distance <= 4 ? found : -1;
}

int network_nearest_rule(const struct network *n, const char *name, uint16_t port)
{
	struct asked asked = {.name = name};
	struct net_address address;
	int found;

	(void)
	    port; /* a rule of that name at this port would have allowed it, unless it is for the other transport: near as well */
	if (network_address(name, strlen(name), &address) == 0)
		asked = (struct asked){.address = &address};
	found = covering_rule(n, &asked);
	if (found >= 0 || asked.address != NULL)
		return found;
	found = related_rule(n, name);
	return found >= 0 ? found : similar_rule(n, name);
}
