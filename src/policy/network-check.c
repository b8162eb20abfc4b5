/* What only shows when all rules are together. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"
#include "policy/schema.h"

typedef void found_fault(void *ctx, size_t rule, const char *sentence);

static const char *protocol_word(enum net_protocol p)
{
	return schema_find("network.allow[].protocol")->choices[p];
}

static int compare_targets(const struct network_rule *a, const struct network_rule *b)
{
	char x[NET_PREFIX_TEXT], y[NET_PREFIX_TEXT];

	if (a->pattern != NULL && b->pattern != NULL)
		return strcmp(a->pattern, b->pattern);
	if (a->pattern != NULL || b->pattern != NULL)
		return a->pattern != NULL ? 1 : -1;
	return strcmp(network_prefix_text(&a->prefix, x), network_prefix_text(&b->prefix, y));
}

/* By what they are for; equal ones in the order in which they were written. */
static int compare_rules(const void *a, const void *b)
{
	const struct network_rule *x = *(const struct network_rule *const *) a, *y = *(const struct network_rule *const *) b;
	int c = compare_targets(x, y);

	if (c == 0)
		c = (x->protocol == NET_UDP) - (y->protocol == NET_UDP);
	return c != 0 ? c : (x > y) - (x < y);
}

/* Who has a port within a group of rules for the same target. Rules are counted from 1, 0 is none. */
struct holder {
	uint32_t first, last, count;
};

struct check {
	const struct network *n;
	struct holder *holders; /* of each port */
	found_fault *found;
	void *ctx;
};

/* False (told) when the rule does not go with those that have the port. */
static bool take_port(struct check *c, const struct network_rule *r, unsigned port)
{
	struct holder *h = &c->holders[port];
	size_t index = (size_t) (r - c->n->rules);
	cleanup_free char *sentence = NULL;
	const struct network_rule *first;

	if (h->last == index + 1)
		return true; /* the port stands twice in one rule */
	h->last = (uint32_t) index + 1;
	if (h->first == 0)
		h->first = h->last;
	first = &c->n->rules[h->first - 1];
	if (first->protocol == r->protocol && ++h->count <= NETWORK_COVER_MAX)
		return true;
	if (first->protocol == r->protocol)
		sentence = xasprintf("more than %d rules for port %u of the same target", NETWORK_COVER_MAX, port);
	else
		sentence = xasprintf("port %u is %s here and %s in %s: one port of a target has one protocol", port,
				     protocol_word(r->protocol), protocol_word(first->protocol), first->label);
	c->found(c->ctx, index, sentence);
	return false;
}

static bool take_ports(struct check *c, const struct network_rule *r)
{
	for (size_t i = 0; i < r->port_count; i++)
		for (unsigned port = r->ports[i].first; port <= r->ports[i].last; port++)
			if (!take_port(c, r, port))
				return false;
	return true;
}

static void forget_ports(struct check *c, const struct network_rule *r)
{
	for (size_t i = 0; i < r->port_count; i++)
		for (unsigned port = r->ports[i].first; port <= r->ports[i].last; port++)
			c->holders[port] = (struct holder){0};
}

static bool same_group(const struct network_rule *a, const struct network_rule *b)
{
	return compare_targets(a, b) == 0 && (a->protocol == NET_UDP) == (b->protocol == NET_UDP);
}

/* In the order of the targets: each rule costs what its ports cost, however many there are of a target. */
static void check_groups(const struct network *n, found_fault *found, void *ctx)
{
	cleanup_free const struct network_rule **sorted = xcalloc(n->rule_count + 1, sizeof *sorted);
	cleanup_free struct holder *holders = xcalloc(UINT16_MAX + 1, sizeof *holders);
	struct check c = {.n = n, .holders = holders, .found = found, .ctx = ctx};
	size_t end;

	for (size_t i = 0; i < n->rule_count; i++)
		sorted[i] = &n->rules[i];
	qsort(sorted, n->rule_count, sizeof *sorted, compare_rules);
	for (size_t start = 0; start < n->rule_count; start = end) {
		for (end = start; end < n->rule_count && same_group(sorted[start], sorted[end]); end++)
			(void) take_ports(&c, sorted[end]); /* told in there */
		for (size_t i = start; i < end && end < n->rule_count; i++)
			forget_ports(&c, sorted[i]);
	}
}

static size_t count_ports(const struct network *n, bool udp)
{
	cleanup_free bool *listens = xcalloc(UINT16_MAX + 1, sizeof *listens);
	size_t count = 0;

	for (size_t i = 0; i < n->rule_count; i++)
		for (size_t j = 0; j < n->rules[i].port_count && (n->rules[i].protocol == NET_UDP) == udp; j++)
			for (unsigned port = n->rules[i].ports[j].first; port <= n->rules[i].ports[j].last; port++) {
				count += !listens[port];
				listens[port] = true;
			}
	return count;
}

void network_each_fault(const struct network *n, found_fault *found, void *ctx)
{
	cleanup_free char *sentence = NULL;
	size_t ports;

	if (n->rule_count == 0)
		return;
	check_groups(n, found, ctx);
	ports = count_ports(n, false) + count_ports(n, true);
	if (ports <= NETWORK_PORTS_MAX)
		return;
	sentence = xasprintf("the rules have %zu different ports; at most %d can be listened on", ports, NETWORK_PORTS_MAX);
	found(ctx, n->rule_count, sentence);
}

struct first {
	const struct network *n;
	struct zw_error *e;
	int result;
};

static void take_first(void *ctx, size_t rule, const char *sentence)
{
	struct first *f = ctx;

	if (f->result < 0)
		return;
	f->result = rule < f->n->rule_count ? zw_error(f->e, EINVAL, "%s: %s", f->n->rules[rule].label, sentence)
					    : zw_error(f->e, EINVAL, "%s", sentence);
}

int network_check(const struct network *n, struct zw_error *e)
{
	struct first f = {.n = n, .e = e};

	network_each_fault(n, take_first, &f);
	return f.result;
}
