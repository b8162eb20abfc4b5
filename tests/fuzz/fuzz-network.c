/* Names, addresses, request paths and rules as foreign bytes. The first byte of the input says which of them the rest is. What is
 * accepted has one form, and that form says the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool truth)
{
	if (!truth)
		abort();
}

static void look_at_name(const char *text, size_t size)
{
	char name[NETWORK_NAME_SIZE], again[NETWORK_NAME_SIZE];

	if (network_name(text, size, name) < 0)
		return;
	expect(strlen(name) > 0 && strlen(name) < sizeof name && strlen(name) <= size);
	expect(network_name(name, strlen(name), again) == 0 && strcmp(name, again) == 0);
	expect(network_pattern_covers(name, name) == SIZE_MAX);
}

static void look_at_address(const char *text, size_t size)
{
	struct net_address a, again;
	struct sockaddr_storage storage;
	char usual[NET_ADDRESS_TEXT];
	uint16_t port;

	if (network_address(text, size, &a) < 0)
		return;
	expect(strlen(network_address_text(&a, usual)) == size && memcmp(usual, text, size) == 0);
	expect(network_address_to(&a, 443, &storage) > 0);
	network_address_from((const struct sockaddr *) &storage, &again, &port);
	expect(port == 443 && network_address_equal(&a, &again));
	expect(network_special_named(&(struct net_prefix){.address = a, .bits = network_family_bits(a.family)}, &a) ||
	       network_never_dialled(&a) != NULL);
}

static void look_at_endpoint(const char *text, size_t size)
{
	cleanup_free char *copy = xstrndup(text, size);
	struct net_prefix p;
	struct net_address a;
	char word[NET_PREFIX_TEXT];
	uint16_t port;

	(void) network_endpoint_parse(copy, &a, &port);
	if (!network_prefix_parse(copy, &p))
		return;
	(void) network_prefix_trim(&p);
	expect(network_prefix_has(&p, &p.address) && !network_prefix_trim(&p));
	(void) network_special_within(&p);
	(void) network_special_sealed(&p);
	expect(network_prefix_parse(network_prefix_text(&p, word), &(struct net_prefix){0}));
}

/* The pattern stands in the first line, the path behind it. */
static void look_at_path(const char *text, size_t size)
{
	const char *end = memchr(text, '\n', size);
	char decoded[NETWORK_PATH_MAX];
	size_t n;
	bool slash;
	cleanup_free char *pattern = end != NULL ? xstrndup(text, (size_t) (end - text)) : NULL;

	if (end == NULL || !network_path_decode(end + 1, size - (size_t) (end + 1 - text), decoded, &n, &slash))
		return;
	expect(n > 0 && n < sizeof decoded && decoded[0] == '/' && memchr(decoded, '\0', n) == NULL &&
	       memchr(decoded, '\\', n) == NULL);
	expect(memmem(decoded, n, "//", 2) == NULL && memmem(decoded, n, "/../", 4) == NULL &&
	       memmem(decoded, n, "/./", 3) == NULL);
	expect(network_path_matches("/**", decoded, n));
	if (n < 512)
		(void) network_path_matches(pattern, decoded, n);
}

static void ask(const struct network *n, const char *name)
{
	size_t rules[NETWORK_COVER_MAX];
	struct net_address a = {.family = AF_INET, .v4.s_addr = 0x0100007f};

	for (int udp = 0; udp <= 1; udp++) {
		size_t count = network_rules_for_name(n, name, 443, udp != 0, rules, ARRAY_SIZE(rules));

		expect(count <= ARRAY_SIZE(rules) && (count == 0 || network_knows_name(n, name)));
		expect(network_match_request(n, rules, count, "GET", "/", 1) < (int) n->rule_count);
		expect(network_rules_for_address(n, &a, 443, udp != 0, rules, ARRAY_SIZE(rules)) == 0); /* loopback */
	}
	expect(network_nearest_rule(n, name, 443) < (int) n->rule_count);
	(void) network_may_dial(n, name, &a, 443);
}

static void look_at_rules(const char *text, size_t size)
{
	struct network n, back;
	struct zw_error e = {0};
	cleanup_free char *first = NULL, *second = NULL;

	if (network_from_json(text, size, &n, &e) < 0) {
		expect(e.text[0] != '\0');
		return;
	}
	ask(&n, "a.test");
	ask(&n, "x.b.test");
	first = network_to_json(&n);
	expect(first != NULL && network_from_json(first, strlen(first), &back, &e) == 0);
	second = network_to_json(&back);
	expect(second != NULL && strcmp(first, second) == 0);
	network_done(&n);
	network_done(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const looks[])(const char *text, size_t size) = {look_at_name, look_at_address, look_at_endpoint,
								       look_at_path, look_at_rules};

	if (size > 0)
		looks[data[0] % ARRAY_SIZE(looks)]((const char *) data + 1, size - 1);
	return 0;
}
