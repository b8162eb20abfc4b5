/* One form of every name and address, and the addresses that nobody may mean without naming them. */
#include "network-helpers.h"

#include <arpa/inet.h>
#include <errno.h>

/* ---- Names. ---- */

static void a_name_has_one_form(void **state)
{
	static const struct {
		const char *text, *name;
	} right[] = {{"api.example.org", "api.example.org"},
		     {"API.Example.ORG.", "api.example.org"},
		     {"xn--bcher-kva.example", "xn--bcher-kva.example"},
		     {"_dmarc.example.org", "_dmarc.example.org"},
		     {"1password.com", "1password.com"},
		     {"3com", "3com"},
		     {"localhost", "localhost"}};
	char name[NETWORK_NAME_SIZE];

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_int_equal(network_name(right[i].text, strlen(right[i].text), name), 0);
		assert_string_equal(name, right[i].name);
	}
}

static void what_has_no_one_form_is_refused(void **state)
{
	static const struct {
		const char *text;
		size_t size;
	} wrong[] = {
	    {BYTES("")},
	    {BYTES(".")},
	    {BYTES("..")},
	    {BYTES("a..test")},
	    {BYTES("a.test..")},
	    {BYTES(".a.test")},
	    {BYTES("evil.test\0.allowed.test")},
	    {BYTES("allowed.test\0")},
	    {BYTES("\0")},
	    {BYTES("evil.test\r\nHost: allowed.test")},
	    {BYTES("allowed.test\n")},
	    {BYTES("allowed.test\r")},
	    {BYTES("evil.test%00.allowed.test")},
	    {BYTES("evil.test%2eallowed.test")},
	    {BYTES(" allowed.test")},
	    {BYTES("allowed.test ")},
	    {BYTES("a b.test")},
	    {BYTES("a/b.test")},
	    {BYTES("a\\b.test")},
	    {BYTES("user@allowed.test")},
	    {BYTES("allowed.test:443")},
	    {BYTES("allowed.test#x")},
	    {BYTES("-a.test")},
	    {BYTES("a-.test")},
	    {BYTES("*.allowed.test")},
	    {BYTES("b\xc3\xbc"
		   "cher.test")},               /* U-label */
	    {BYTES("allowed\xe3\x80\x82test")}, /* ideographic full stop, which IDNA reads as a dot */
	    {BYTES("\xef\xbd\x81llowed.test")}, /* full-width letter, which IDNA reads as "a" */
	    {BYTES("127.0.0.1")},
	    {BYTES("127.0.0.1.")},
	    {BYTES("127.1")},
	    {BYTES("2130706433")},
	    {BYTES("0x7f000001")},
	    {BYTES("0X7F.1")},
	    {BYTES("017700000001")},
	    {BYTES("0177.0.0.1")},
	    {BYTES("1.2.3.0x4")},
	    {BYTES("a.0x")},
	    {BYTES("a.5")},
	    {BYTES("::1")},
	    {BYTES("[::1]")},
	    {BYTES("fe80::1%eth0")},
	};
	char name[NETWORK_NAME_SIZE] = "untouched";

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (network_name(wrong[i].text, wrong[i].size, name) != -EINVAL)
			fail_msg("%s was accepted as %s", wrong[i].text, name);
	assert_string_equal(name, "untouched");
}

static void names_are_bounded(void **state)
{
	char text[320], name[NETWORK_NAME_SIZE];

	(void) state;
	memset(text, 'a', sizeof text);
	assert_int_equal(network_name(text, 63, name), 0);
	assert_int_equal(network_name(text, 64, name), -EINVAL);
	for (size_t i = 1; i < sizeof text; i += 2)
		text[i] = '.';
	assert_int_equal(network_name(text, 253, name), 0);
	assert_int_equal(strlen(name), 253);
	assert_int_equal(network_name(text, 254, name), 0); /* the last dot is the root's */
	assert_int_equal(network_name(text, 255, name), -EINVAL);
	assert_int_equal(network_name(text, 256, name), -EINVAL);
}

static void a_wildcard_leaves_room_for_a_subdomain(void **state)
{
	char text[NETWORK_NAME_SIZE + 8] = "*.", name[NETWORK_NAME_SIZE];

	(void) state;
	for (size_t i = 2; i < sizeof text; i++)
		text[i] = i % 2 == 0 ? 'a' : '.';
	assert_int_equal(network_pattern(text, 253, name), 0);
	assert_int_equal(strlen(name), 253);
	assert_int_equal(network_pattern(text, 255, name), -EINVAL);
	assert_int_equal(network_pattern("*.", 2, name), -EINVAL);
	assert_int_equal(network_pattern("*..", 3, name), -EINVAL);
	assert_int_equal(network_pattern("*.*.test", 8, name), -EINVAL);
}

static void every_byte_outside_of_names_is_refused(void **state)
{
	static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	char name[NETWORK_NAME_SIZE];

	(void) state;
	for (unsigned c = 0; c < 256; c++) {
		char text[] = "a?b.test";

		text[1] = (char) c;
		assert_int_equal(network_name(text, strlen("a?b.test"), name),
				 c != 0 && strchr(good, (int) c) != NULL ? 0 : -EINVAL);
	}
}

/* Random texts over a small alphabet: whatever is accepted is a form that stays. */
static void the_form_of_a_form_is_itself(void **state)
{
	static const char alphabet[] = "aZ0x9.-_*%";
	uint32_t seed = 1;
	unsigned accepted = 0;

	(void) state;
	for (int i = 0; i < 200000; i++) {
		char text[12], name[NETWORK_NAME_SIZE], again[NETWORK_NAME_SIZE];
		size_t size = next_random(&seed) % sizeof text;

		for (size_t j = 0; j < size; j++)
			text[j] = alphabet[next_random(&seed) % (sizeof alphabet - 1)];
		if (network_name(text, size, name) < 0)
			continue;
		accepted++;
		assert_int_equal(network_name(name, strlen(name), again), 0);
		assert_string_equal(name, again);
		assert_int_equal(inet_addr(name), INADDR_NONE); /* by the rules of inet_aton(3) */
	}
	assert_true(accepted > 1000);
}

/* ---- Addresses. ---- */

static void an_address_has_one_text(void **state)
{
	static const char *const right[] = {
	    "10.1.2.3", "0.0.0.0",        "255.255.255.255", "::",        "::1",        "2001:db8::1",
	    "fe80::1",  "1:0:0:2::",      "1:0:2:3:4:5:6:7", "::1:0:0:2", "1::2:0:0:3", "64:ff9b::a00:1",
	    "::a00:1",  "1:2:3:4:5:6:7:8"};
	static const char *const wrong[] = {
	    "",          "10.1.2",      "10.1.2.3.",       "10.1.2.3 ",    " 10.1.2.3",   "010.1.2.3",
	    "10.1.2.03", "0x0a.1.2.3",  "167838211",       "10.1.2.256",   "10.1.2.3/32", "10.1.2.3:80",
	    "1.2.3.4.5", "+1.2.3.4",    "::ffff:10.1.2.3", "::10.1.2.3",   "::0",         "0::1",
	    "::0001",    "2001:DB8::1", "fe80::1%lo",      "fe80::1%25lo", "[::1]",       "1:2:3:4:5:6:7::",
	    "1:::2",     "1::2::3",     "1:0:0:2:0:0:0:3", "localhost"};
	struct net_address a = {.family = AF_UNSPEC};
	char text[NET_ADDRESS_TEXT];

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (network_address(wrong[i], strlen(wrong[i]), &a) != -EINVAL)
			fail_msg("%s was accepted as %s", wrong[i], network_address_text(&a, text));
	assert_int_equal(network_address("1.2.3.4\0", 8, &a), -EINVAL);
	assert_int_equal(network_address("1.2.3\0.4", 8, &a), -EINVAL);
	assert_int_equal(a.family, AF_UNSPEC);
	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		if (network_address(right[i], strlen(right[i]), &a) != 0)
			fail_msg("%s was refused", right[i]);
		assert_string_equal(network_address_text(&a, text), right[i]);
	}
}

static void texts_of_addresses_read_back(void **state)
{
	uint32_t seed = 2;

	(void) state;
	for (int i = 0; i < 50000; i++) {
		struct net_address a = {.family = AF_INET6}, again;
		struct in6_addr parsed;
		char text[NET_ADDRESS_TEXT];

		for (int j = 0; j < 16; j++) /* many zeros, so that runs of them meet */
			a.v6.s6_addr[j] = next_random(&seed) % 3 > 0 ? 0 : (unsigned char) next_random(&seed);
		a.v6.s6_addr[0] |= 0x20; /* not mapped */
		(void) network_address_text(&a, text);
		assert_int_equal(inet_pton(AF_INET6, text, &parsed), 1);
		assert_memory_equal(&parsed, &a.v6, sizeof parsed);
		assert_int_equal(network_address(text, strlen(text), &again), 0);
		assert_true(network_address_equal(&a, &again));
	}
}

static void mapped_addresses_are_ipv4(void **state)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
	struct sockaddr_storage storage;
	struct sockaddr_in in;
	struct net_address a;
	struct net_prefix p = prefix_of("::ffff:10.0.0.0/104");
	char text[NET_PREFIX_TEXT];
	uint16_t port;

	(void) state;
	assert_int_equal(inet_pton(AF_INET6, "::ffff:10.0.0.1", &in6.sin6_addr), 1);
	network_address_from((struct sockaddr *) &in6, &a, &port);
	assert_int_equal(a.family, AF_INET);
	assert_int_equal(port, 443);
	assert_string_equal(network_address_text(&a, text), "10.0.0.1");
	assert_string_equal(network_prefix_text(&p, text), "10.0.0.0/8");
	/* Also when somebody builds one by hand. */
	a = (struct net_address){.family = AF_INET6, .v6 = in6.sin6_addr};
	assert_string_equal(network_never_dialled(&a), "private");
	assert_true(network_prefix_has(&p, &a));
	assert_int_equal(network_address_to(&a, 80, &storage), sizeof in);
	memcpy(&in, &storage, sizeof in);
	assert_int_equal(in.sin_family, AF_INET);
	assert_int_equal(ntohs(in.sin_port), 80);
	assert_int_equal(ntohl(in.sin_addr.s_addr), 0x0a000001);
}

static void other_families_are_no_addresses(void **state)
{
	struct sockaddr sa = {.sa_family = AF_UNIX};
	struct sockaddr_storage storage;
	struct net_address a;
	uint16_t port = 7;

	(void) state;
	network_address_from(&sa, &a, &port);
	assert_int_equal(a.family, AF_UNSPEC);
	assert_int_equal(port, 0);
	assert_int_equal(network_address_to(&a, 80, &storage), 0);
	assert_non_null(network_never_dialled(&a));
}

static bool bit_of(const struct net_address *a, unsigned i)
{
	const unsigned char *bytes = a->family == AF_INET ? (const unsigned char *) &a->v4 : a->v6.s6_addr;

	return (bytes[i / 8] >> (7 - i % 8) & 1) != 0;
}

/* Bit by bit. */
static bool slow_prefix_has(const struct net_prefix *p, const struct net_address *a)
{
	for (unsigned i = 0; i < p->bits; i++)
		if (bit_of(&p->address, i) != bit_of(a, i))
			return false;
	return p->address.family == a->family;
}

static void prefixes_hold_what_their_bits_say(void **state)
{
	uint32_t seed = 3;
	unsigned inside = 0;

	(void) state;
	for (int i = 0; i < 100000; i++) {
		sa_family_t family = next_random(&seed) % 2 == 0 ? AF_INET : AF_INET6;
		struct net_prefix p = {.address.family = family, .bits = next_random(&seed) % (network_family_bits(family) + 1)};
		struct net_address a;
		unsigned flip = next_random(&seed) % network_family_bits(family);

		for (int j = 0; j < 16; j++)
			p.address.v6.s6_addr[j] = (unsigned char) next_random(&seed);
		p.address.v6.s6_addr[0] |= 0x20;
		(void) network_prefix_trim(&p);
		a = p.address;
		for (unsigned bit = p.bits; bit < network_family_bits(family); bit++)
			if (next_random(&seed) % 2 == 0)
				a.v6.s6_addr[bit / 8] ^= (unsigned char) (0x80 >> bit % 8);
		assert_true(network_prefix_has(&p, &a));
		a.v6.s6_addr[flip / 8] ^= (unsigned char) (0x80 >> flip % 8);
		assert_int_equal(network_prefix_has(&p, &a), slow_prefix_has(&p, &a));
		inside += network_prefix_has(&p, &a);
		a.family = family == AF_INET ? AF_INET6 : AF_INET;
		assert_false(network_prefix_has(&p, &a));
	}
	assert_true(inside > 1000 && inside < 99000);
}

/* ---- What is never dialled. ---- */

static void special_addresses_are_never_dialled(void **state)
{
	static const struct {
		const char *address, *why;
	} special[] = {
	    {"0.0.0.0", "this host"},
	    {"0.1.2.3", "this host"},
	    {"10.0.0.1", "private"},
	    {"10.255.255.255", "private"},
	    {"100.64.0.1", "shared by carriers"},
	    {"100.100.100.200", "metadata"},
	    {"100.127.255.255", "shared by carriers"},
	    {"127.0.0.1", "loopback"},
	    {"127.255.0.1", "loopback"},
	    {"168.63.129.16", "metadata"},
	    {"169.254.1.1", "link-local"},
	    {"169.254.169.254", "metadata"},
	    {"169.254.170.2", "link-local"},
	    {"172.16.0.1", "private"},
	    {"172.31.255.255", "private"},
	    {"192.0.0.1", "reserved"},
	    {"192.0.2.1", "documentation"},
	    {"192.168.1.1", "private"},
	    {"198.18.0.1", "the sandbox's own"},
	    {"198.19.255.255", "the sandbox's own"},
	    {"198.51.100.7", "documentation"},
	    {"203.0.113.7", "documentation"},
	    {"224.0.0.251", "multicast"},
	    {"239.255.255.250", "multicast"},
	    {"240.0.0.1", "reserved"},
	    {"255.255.255.255", "broadcast"},
	    {"::", "this host"},
	    {"::1", "loopback"},
	    {"::7f00:1", "loopback"},        /* compatible */
	    {"::ffff:0:a00:1", "private"},   /* translated */
	    {"64:ff9b::7f00:1", "loopback"}, /* NAT64 */
	    {"64:ff9b::a9fe:a9fe", "metadata"},
	    {"64:ff9b:1::a00:1", "local NAT64"},
	    {"100::1", "reserved"},
	    {"2001:2::1", "benchmarking"},
	    {"2001:10::1", "reserved"},
	    {"2001:20::1", "reserved"},
	    {"2001:db8::1", "documentation"},
	    {"2001::a00:1:1:1:1:1", NULL},            /* Teredo needs a server that is public */
	    {"2001:0:a00:1::1", "private"},           /* ... and this one is not */
	    {"2001:0:808:808::f5ff:fffe", "private"}, /* client 10.0.0.1, inverted */
	    {"2002:a00:1::1", "private"},             /* 6to4 */
	    {"2002:7f00:1::", "loopback"},
	    {"2002:c0a8:101::", "private"},
	    {"2a00:1450::5efe:a00:1", "private"}, /* ISATAP */
	    {"2a00:1450::200:5efe:7f00:1", "loopback"},
	    {"3fff::1", "documentation"},
	    {"4000::1", "reserved"},
	    {"5f00::1", "reserved"},
	    {"fc00::1", "private"},
	    {"fd00:ec2::254", "metadata"},
	    {"fd12:3456::1", "private"},
	    {"fe80::1", "link-local"},
	    {"febf::1", "link-local"},
	    {"fec0::1", "site-local"},
	    {"ff02::fb", "multicast"},
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
		struct net_address a = address_of(special[i].address);
		const char *why = network_never_dialled(&a);

		if (special[i].why == NULL ? why == NULL : why == NULL || strcmp(why, special[i].why) != 0)
			fail_msg("%s: expected %s, got %s", special[i].address,
				 special[i].why != NULL ? special[i].why : "a reason", why != NULL ? why : "nothing");
	}
}

static void public_addresses_are_dialled(void **state)
{
	static const char *const ordinary[] = {
	    "1.1.1.1",          "8.8.8.8",         "9.255.255.255",        "11.0.0.0",
	    "100.63.255.255",   "100.128.0.0",     "126.255.255.255",      "128.0.0.0",
	    "169.253.255.255",  "169.255.0.0",     "172.15.255.255",       "172.32.0.0",
	    "192.0.1.0",        "192.0.3.0",       "192.167.255.255",      "192.169.0.0",
	    "198.17.255.255",   "198.20.0.0",      "198.51.99.255",        "203.0.112.255",
	    "223.255.255.255",  "2606:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888",
	    "64:ff9b::808:808", "2002:808:808::1", "2001:db9::1"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(ordinary); i++) {
		struct net_address a = address_of(ordinary[i]);

		if (network_never_dialled(&a) != NULL)
			fail_msg("%s is refused as %s", ordinary[i], network_never_dialled(&a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_name_has_one_form),
	    cmocka_unit_test(what_has_no_one_form_is_refused),
	    cmocka_unit_test(names_are_bounded),
	    cmocka_unit_test(a_wildcard_leaves_room_for_a_subdomain),
	    cmocka_unit_test(every_byte_outside_of_names_is_refused),
	    cmocka_unit_test(the_form_of_a_form_is_itself),
	    cmocka_unit_test(an_address_has_one_text),
	    cmocka_unit_test(texts_of_addresses_read_back),
	    cmocka_unit_test(mapped_addresses_are_ipv4),
	    cmocka_unit_test(other_families_are_no_addresses),
	    cmocka_unit_test(prefixes_hold_what_their_bits_say),
	    cmocka_unit_test(special_addresses_are_never_dialled),
	    cmocka_unit_test(public_addresses_are_dialled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
