/* What is never dialled because nobody named it: ranges that are not the public network. After IANA's registries of
 * special-purpose addresses (RFC 6890 and what followed), and the addresses where clouds answer for the machine. */
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"

struct range {
	unsigned char bytes[16];
	unsigned bits;
	bool sealed; /* only network.hosts may name it */
	const char *what;
};

/* The first that has an address gives the reason. */
static const struct range ranges4[] = {
    {{169, 254, 169, 254}, 32, false, "metadata"}, /* of most clouds; 169.254.170.2 and others are link-local as well */
    {{100, 100, 100, 200}, 32, false, "metadata"}, /* Alibaba Cloud */
    {{168, 63, 129, 16}, 32, false, "metadata"},   /* Azure: a public address that leads to the host */
    {{192, 0, 0, 192}, 32, false, "metadata"},     /* Oracle Cloud */
    {{0}, 8, true, "this host"},                   /* Linux connects 0.0.0.0 to itself */
    {{10}, 8, false, "private"},
    {{100, 64}, 10, false, "shared by carriers"},
    {{127}, 8, true, "loopback"},
    {{169, 254}, 16, false, "link-local"},
    {{172, 16}, 12, false, "private"},
    {{192, 0, 0}, 24, false, "reserved"},
    {{192, 0, 2}, 24, false, "documentation"},
    {{192, 88, 99}, 24, false, "reserved"}, /* relays of 6to4 */
    {{192, 168}, 16, false, "private"},
    {{198, 18}, 15, true, "the sandbox's own"},
    {{198, 51, 100}, 24, false, "documentation"},
    {{203, 0, 113}, 24, false, "documentation"},
    {{224}, 4, true, "multicast"},
    {{255, 255, 255, 255}, 32, false, "broadcast"},
    {{240}, 4, false, "reserved"},
};

static const struct range ranges6[] = {
    {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128, false, "metadata"}, /* Amazon */
    {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}, 128, false, "metadata"}, /* Google */
    {{0}, 128, true, "this host"},
    {{[15] = 1}, 128, true, "loopback"},
    {{0xff}, 8, true, "multicast"},
    {{0xfe, 0x80}, 10, false, "link-local"},
    {{0xfe, 0xc0}, 10, false, "site-local"},
    {{0xfc}, 7, false, "private"},
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01},
     48,
     false,
     "local NAT64"}, /* RFC 8215: where the IPv4 address lies is the operator's choice */
    {{0x20, 0x01, 0x00, 0x02}, 48, false, "benchmarking"},
    {{0x20, 0x01, 0x00, 0x10}, 28, false, "reserved"}, /* ORCHID */
    {{0x20, 0x01, 0x00, 0x20}, 28, false, "reserved"}, /* ORCHIDv2 */
    {{0x20, 0x01, 0x0d, 0xb8}, 32, false, "documentation"},
    {{0x3f, 0xff}, 20, false, "documentation"},
};

/* All that is in use lies in 2000::/3; what is assigned outside of it later has not been looked at. NAT64 is judged by what it
 * embeds. */
static const unsigned char nat64[12] = {0x00, 0x64, 0xff, 0x9b};
static const struct range unassigned[] = {
    {{0x00}, 3, false, "reserved"},
    {{0x40}, 2, false, "reserved"},
    {{0x80}, 1, false, "reserved"},
};

/* Forms of IPv6 that lead to an IPv4 address, by a gateway or by the kernel. */
static const struct {
	unsigned char prefix[12];
	unsigned prefix_bytes, at;
	bool inverted;
} embeddings[] = {
    {{0x00, 0x64, 0xff, 0x9b}, 12, 12, false}, /* NAT64, RFC 6052 */
    {{0}, 12, 12, false},                      /* compatible, RFC 4291 section 2.5.5.1 */
    {{[8] = 0xff, [9] = 0xff}, 12, 12, false}, /* translated, RFC 2765 */
    {{0x20, 0x02}, 2, 2, false},               /* 6to4 */
    {{0x20, 0x01, 0x00, 0x00}, 4, 4, false},   /* Teredo's server */
    {{0x20, 0x01, 0x00, 0x00}, 4, 12, true},   /* Teredo's client */
};
/* ISATAP (RFC 5214) marks the interface identifier, whatever the prefix. */
static const unsigned char isatap[3] = {0x00, 0x5e, 0xfe};

typedef void found_range(void *ctx, const struct range *range, unsigned bits);

static bool has(const struct range *range, const unsigned char *bytes)
{
	unsigned whole = range->bits / 8, rest = range->bits % 8;

	if (memcmp(range->bytes, bytes, whole) != 0)
		return false;
	return rest == 0 || ((range->bytes[whole] ^ bytes[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

static void look_up(const struct range *ranges, size_t count, const unsigned char *bytes, unsigned offset, found_range *found,
		    void *ctx)
{
	for (size_t i = 0; i < count; i++)
		if (has(&ranges[i], bytes))
			found(ctx, &ranges[i], offset + ranges[i].bits);
}

static void look_up_embedded(const unsigned char *bytes, unsigned at, bool inverted, found_range *found, void *ctx)
{
	unsigned char v4[4];

	for (unsigned i = 0; i < sizeof v4; i++)
		v4[i] = inverted ? (unsigned char) ~bytes[at + i] : bytes[at + i];
	look_up(ranges4, ARRAY_SIZE(ranges4), v4, at * 8, found, ctx);
}

/* Calls back with every special range around the address; `bits` is where that range ends in the address as it is written. */
static void each_range(const struct net_address *address, found_range *found, void *ctx)
{
	const struct net_address a = network_address_plain(address);
	const unsigned char *b = a.v6.s6_addr;

	if (a.family == AF_INET) {
		look_up(ranges4, ARRAY_SIZE(ranges4), (const unsigned char *) &a.v4, 0, found, ctx);
		return;
	}
	look_up(ranges6, ARRAY_SIZE(ranges6), b, 0, found, ctx);
	for (size_t i = 0; i < ARRAY_SIZE(embeddings); i++)
		if (memcmp(b, embeddings[i].prefix, embeddings[i].prefix_bytes) == 0)
			look_up_embedded(b, embeddings[i].at, embeddings[i].inverted, found, ctx);
	if ((b[8] & ~0x02) == 0 && memcmp(b + 9, isatap, sizeof isatap) == 0)
		look_up_embedded(b, 12, false, found, ctx);
	if (memcmp(b, nat64, sizeof nat64) != 0)
		look_up(unassigned, ARRAY_SIZE(unassigned), b, 0, found, ctx);
}

static void take_first(void *ctx, const struct range *range, unsigned bits)
{
	const char **what = ctx;

	(void) bits;
	if (*what == NULL)
		*what = range->what;
}

const char *network_never_dialled(const struct net_address *a)
{
	const char *what = NULL;

	if (a->family != AF_INET && a->family != AF_INET6)
		return "no address";
	each_range(a, take_first, &what);
	return what;
}

struct naming {
	const struct net_prefix *rule;
	size_t around, named;
	const char *sealed;
};

static void note_range(void *ctx, const struct range *range, unsigned bits)
{
	struct naming *n = ctx;

	n->around++;
	if (n->rule->bits >= bits)
		n->named++;
	if (range->sealed)
		n->sealed = range->what;
}

bool network_special_named(const struct net_prefix *rule, const struct net_address *a)
{
	struct naming n = {.rule = rule};

	each_range(a, note_range, &n);
	return n.around == 0 || (n.named > 0 && n.sealed == NULL);
}

static void note_sealed(void *ctx, const struct range *range, unsigned bits)
{
	struct naming *n = ctx;

	if (range->sealed && n->rule->bits >= bits && n->sealed == NULL)
		n->sealed = range->what;
}

const char *network_special_sealed(const struct net_prefix *rule)
{
	struct naming n = {.rule = rule};

	each_range(&rule->address, note_sealed, &n);
	return n.sealed;
}

/* What `inner` names lies around its first address too, since it names no range that it is wider than. */
bool network_special_covers(const struct net_prefix *outer, const struct net_prefix *inner)
{
	return network_prefix_equal(outer, inner) ||
	       (inner->bits >= outer->bits && inner->address.family == outer->address.family &&
		network_prefix_has(outer, &inner->address) && network_special_named(outer, &inner->address));
}

bool network_special_within(const struct net_prefix *rule)
{
	bool v4 = rule->address.family == AF_INET;
	const struct range *ranges = v4 ? ranges4 : ranges6;

	for (size_t i = 0; i < (v4 ? ARRAY_SIZE(ranges4) : ARRAY_SIZE(ranges6)); i++) {
		struct net_address a = {.family = rule->address.family};

		memcpy(v4 ? (unsigned char *) &a.v4 : a.v6.s6_addr, ranges[i].bytes, network_family_bits(a.family) / 8);
		if (ranges[i].bits > rule->bits && network_prefix_has(rule, &a) && !network_special_named(rule, &a))
			return true;
	}
	return false;
}
