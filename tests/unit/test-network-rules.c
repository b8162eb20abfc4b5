/* Which rule covers a name, an address, a request; rules as they come from a policy and go to the broker. */
#include "network-helpers.h"

#include <errno.h>

/* The only rule for a name, or -1 for none. */
static int rule_for(const struct network *n, const char *name, uint16_t port)
{
	size_t rules[4], count = network_rules_for_name(n, name, port, false, rules, ARRAY_SIZE(rules));

	assert_true(count <= 1);
	return count == 0 ? -1 : (int) rules[0];
}

static int rule_for_address(const struct network *n, const char *address, uint16_t port)
{
	struct net_address a = address_of(address);
	size_t rules[4], count = network_rules_for_address(n, &a, port, false, rules, ARRAY_SIZE(rules));

	assert_true(count <= 1);
	return count == 0 ? -1 : (int) rules[0];
}

/* ---- What may be dialled. ---- */

static bool may(const struct network *n, const char *name, const char *address, uint16_t port)
{
	struct net_address a = address_of(address);
	bool tcp = network_may_dial_as(n, name, &a, port, false);

	assert_true(network_may_dial(n, name, &a, port) || !tcp);
	return tcp;
}

static void only_hosts_and_address_rules_open_special_addresses(void **state)
{
	struct network n = network_of("network:\n"
				      "  allow: [a.test, b.test, \"10.1.0.0/16:5432\", \"0.0.0.0/0:443\", \"::/0:443\",\n"
				      "          {address: 10.9.9.9, ports: [53], protocol: udp}]\n"
				      "  hosts: {a.test: 192.168.0.9, b.test: \"127.0.0.1:8443\"}\n");

	(void) state;
	assert_true(may(&n, "a.test", "8.8.8.8", 443));
	assert_true(may(&n, "a.test", "192.168.0.9", 443));
	assert_false(may(&n, "a.test", "192.168.0.10", 443));
	assert_false(may(&n, "b.test", "192.168.0.9", 443)); /* another name's */
	assert_true(may(&n, "b.test", "127.0.0.1", 8443));
	assert_false(may(&n, "b.test", "127.0.0.1", 443));
	assert_true(may(&n, "a.test", "10.1.2.3", 5432));
	assert_true(may(&n, "", "10.1.2.3", 5432));
	assert_true(may(&n, NULL, "10.1.2.3", 5432));
	assert_false(may(&n, "a.test", "10.1.2.3", 443));
	assert_false(may(&n, "a.test", "10.2.0.1", 5432));
	/* A wide range means the public addresses in it. */
	assert_false(may(&n, "a.test", "10.1.2.3", 443));
	assert_false(may(&n, "a.test", "169.254.169.254", 443));
	assert_false(may(&n, "a.test", "127.0.0.1", 443));
	assert_false(may(&n, "a.test", "fd00::1", 443));
	assert_false(may(&n, "a.test", "64:ff9b::a00:1", 443));
	/* A rule for one transport is none for the other. */
	assert_false(may(&n, "a.test", "10.9.9.9", 53));
	assert_true(
	    network_may_dial_as(&n, "", &(struct net_address){.family = AF_INET, .v4 = address_of("10.9.9.9").v4}, 53, true));
	network_done(&n);
}

static void names_of_special_ranges_open_them(void **state)
{
	struct network n =
	    network_of("network: {allow: [\"169.254.169.254:80\", \"fd00::/8:80\", \"100.64.0.0/10:80\", \"192.168.0.0/16:80\",\n"
		       "  \"64:ff9b::a00:0/104:80\", \"2002:c0a8::/32:80\"]}");

	(void) state;
	assert_int_equal(rule_for_address(&n, "169.254.169.254", 80), 0);
	assert_int_equal(rule_for_address(&n, "169.254.169.253", 80), -1);
	assert_int_equal(rule_for_address(&n, "fd00:ec2::254", 80), 1);
	assert_int_equal(rule_for_address(&n, "fc00::1", 80), -1);
	assert_int_equal(rule_for_address(&n, "100.100.1.1", 80), 2);
	assert_int_equal(rule_for_address(&n, "192.168.7.7", 80), 3);
	assert_int_equal(rule_for_address(&n, "64:ff9b::a01:203", 80), 4);
	assert_int_equal(rule_for_address(&n, "2002:c0a8:1::1", 80), 5);
	network_done(&n);
}

/* ---- Rules. ---- */

static void the_most_specific_rule_counts(void **state)
{
	struct network n =
	    network_of("network: {allow: [\"*.example.org:443\", \"*.a.example.org:443\", \"x.a.example.org:443\",\n"
		       "  \"*.example.org:80\", \"10.0.0.0/8:1-9\", \"10.1.0.0/16:5\", \"b.test:443,8000-8010\"]}");

	(void) state;
	assert_int_equal(rule_for(&n, "b.example.org", 443), 0);
	assert_int_equal(rule_for(&n, "a.example.org", 443), 0);
	assert_int_equal(rule_for(&n, "y.a.example.org", 443), 1);
	assert_int_equal(rule_for(&n, "z.y.a.example.org", 443), 1);
	assert_int_equal(rule_for(&n, "x.a.example.org", 443), 2);
	assert_int_equal(rule_for(&n, "z.x.a.example.org", 443), 1);
	assert_int_equal(rule_for(&n, "x.a.example.org", 80), 3); /* of those that cover the port */
	assert_int_equal(rule_for(&n, "example.org", 443), -1);
	assert_int_equal(rule_for(&n, "evilexample.org", 443), -1);
	assert_int_equal(rule_for(&n, "example.org.evil.test", 443), -1);
	assert_int_equal(rule_for(&n, "b.test", 8005), 6);
	assert_int_equal(rule_for(&n, "b.test", 8011), -1);
	assert_int_equal(rule_for(&n, "x.b.test", 443), -1);
	assert_int_equal(rule_for_address(&n, "10.1.2.3", 4), 4);
	assert_int_equal(rule_for_address(&n, "10.1.2.3", 5), 5);
	assert_int_equal(rule_for_address(&n, "10.2.2.3", 5), 4);
	assert_int_equal(rule_for_address(&n, "11.1.2.3", 5), -1);
	assert_true(network_knows_name(&n, "b.test") && network_knows_name(&n, "q.example.org"));
	assert_false(network_knows_name(&n, "example.org"));
	assert_false(network_knows_name(&n, "c.test"));
	network_done(&n);
}

static void rules_of_one_pattern_are_all_asked(void **state)
{
	struct network n = network_of("network: {allow: [{host: a.test, protocol: https, methods: [GET]}, b.test,\n"
				      "  {host: a.test, protocol: https, methods: [POST], paths: [/up]},\n"
				      "  {host: a.test, protocol: udp}]}");
	size_t rules[1], both[4];

	(void) state;
	assert_int_equal(network_rules_for_name(&n, "a.test", 443, false, both, 4), 2);
	assert_int_equal(both[0], 0);
	assert_int_equal(both[1], 2);
	assert_int_equal(network_rules_for_name(&n, "a.test", 443, false, rules, 1), 2);
	assert_int_equal(rules[0], 0);
	assert_int_equal(network_rules_for_name(&n, "a.test", 443, true, both, 4), 1);
	assert_int_equal(both[0], 3);
	network_done(&n);
}

/* Label by label, from the end. */
static bool slow_below(const char *name, const char *parent)
{
	const char *a = name + strlen(name), *b = parent + strlen(parent);

	while (a > name && b > parent) {
		if (*--a != *--b)
			return false;
	}
	return b == parent && a > name + 1 && a[-1] == '.';
}

static void wildcards_cover_what_is_below_them(void **state)
{
	uint32_t seed = 4;
	unsigned covered = 0;

	(void) state;
	for (int i = 0; i < 200000; i++) {
		char name[NETWORK_NAME_SIZE], base[NETWORK_NAME_SIZE], text[2][8], *pattern;
		size_t sizes[2];

		for (int k = 0; k < 2; k++) {
			sizes[k] = 1 + next_random(&seed) % (k == 0 ? 7 : 4);
			for (size_t j = 0; j < sizes[k]; j++)
				text[k][j] = "ab."[next_random(&seed) % 3];
		}
		if (network_name(text[0], sizes[0], name) < 0 || network_name(text[1], sizes[1], base) < 0)
			continue;
		pattern = xasprintf("*.%s", base);
		assert_int_equal(network_pattern_covers(pattern, name) > 0, slow_below(name, base));
		assert_int_equal(network_pattern_covers(base, name) > 0, strcmp(base, name) == 0);
		covered += network_pattern_covers(pattern, name) > 0;
		free(pattern);
	}
	assert_true(covered > 1000);
}

static void the_nearest_rule_is_near(void **state)
{
	struct network n = network_of("network: {allow: [api.example.org, \"*.mirror.test\", \"10.0.0.0/8:5432\"]}");

	(void) state;
	assert_int_equal(network_nearest_rule(&n, "api.example.org", 80), 0);
	assert_int_equal(network_nearest_rule(&n, "apj.example.org", 443), 0);
	assert_int_equal(network_nearest_rule(&n, "www.api.example.org", 443), 0);
	assert_int_equal(network_nearest_rule(&n, "mirror.test", 443), 1);
	assert_int_equal(network_nearest_rule(&n, "a.mirror.test", 80), 1);
	assert_int_equal(network_nearest_rule(&n, "10.1.2.3", 80), 2);
	assert_int_equal(network_nearest_rule(&n, "11.1.2.3", 80), -1);
	assert_int_equal(network_nearest_rule(&n, "somewhere-else.invalid", 443), -1);
	network_done(&n);
}

/* ---- Requests. ---- */

static bool path_is_read(const char *path, size_t size, const char *expected)
{
	char decoded[NETWORK_PATH_MAX];
	bool slash;
	size_t n;

	if (!network_path_decode(path, size, decoded, &n, &slash) || slash)
		return false;
	if (n != strlen(expected) || memcmp(decoded, expected, n) != 0)
		fail_msg("%s was read as %.*s", path, (int) n, decoded);
	return true;
}

static void a_path_is_decoded_once(void **state)
{
	static const struct {
		const char *raw, *path;
	} right[] = {{"/", "/"},
		     {"/v1/a", "/v1/a"},
		     {"/v1/%61", "/v1/a"},
		     {"/a%20b", "/a b"},
		     {"/a/", "/a/"},
		     {"/...", "/..."},
		     {"/a..b/.c", "/a..b/.c"},
		     {"/100%25", "/100%"},
		     {"/%25zz", "/%zz"},
		     {"/b%C3%BCcher", "/b\xc3\xbc"
				      "cher"},
		     {"/a;v=1", "/a;v=1"},
		     {"/a%3fb", "/a?b"}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(right); i++)
		if (!path_is_read(right[i].raw, strlen(right[i].raw), right[i].path))
			fail_msg("%s was refused", right[i].raw);
}

static void a_path_with_two_readings_never_matches(void **state)
{
	static const struct {
		const char *raw;
		size_t size;
	} wrong[] = {{BYTES("")},
		     {BYTES("v1")},
		     {BYTES("*")},
		     {BYTES("http://a.test/v1")},
		     {BYTES("/v1/../secret")},
		     {BYTES("/v1/..")},
		     {BYTES("/..")},
		     {BYTES("/.")},
		     {BYTES("/./v1")},
		     {BYTES("/v1/.")},
		     {BYTES("/v1/%2e%2e/secret")},
		     {BYTES("/v1/.%2E/secret")},
		     {BYTES("/v1/%2e/secret")},
		     {BYTES("/v1/..;/secret")},
		     {BYTES("/v1/..;a=b/secret")},
		     {BYTES("/v1/%2e%2e%3b/secret")},
		     {BYTES("/v1%2fsecret")},
		     {BYTES("/v1%2Fsecret")},
		     {BYTES("/v1/..%2fsecret")},
		     {BYTES("/v1/%2fsecret")},
		     {BYTES("/v1%5csecret")},
		     {BYTES("/v1\\..\\secret")},
		     {BYTES("/v1%252e%252e/secret")},
		     {BYTES("/v1/%252fsecret")},
		     {BYTES("//v1")},
		     {BYTES("/v1//secret")},
		     {BYTES("/v1//")},
		     {BYTES("/v1%00")},
		     {BYTES("/v1\0/secret")},
		     {BYTES("/v1%0d%0a")},
		     {BYTES("/v1\r\n")},
		     {BYTES("/v1 HTTP/1.1")},
		     {BYTES("/v1\tx")},
		     {BYTES("/v1%7f")},
		     {BYTES("/v1%")},
		     {BYTES("/v1%2")},
		     {BYTES("/v1%zz")},
		     {BYTES("/v1%%32e")},
		     {BYTES("/v1%c0%ae%c0%ae/secret")}, /* overlong dots */
		     {BYTES("/v1%c0%afsecret")},
		     {BYTES("/v1%ff")},
		     {BYTES("/v1?q")},
		     {BYTES("/v1#x")}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char decoded[NETWORK_PATH_MAX];
		bool slash;
		size_t n;

		if (network_path_decode(wrong[i].raw, wrong[i].size, decoded, &n, &slash) && !slash)
			fail_msg("%s was read as %.*s", wrong[i].raw, (int) n, decoded);
	}
}

static void paths_are_bounded(void **state)
{
	static char path[NETWORK_PATH_MAX + 1], decoded[NETWORK_PATH_MAX];
	bool slash;
	size_t n;

	(void) state;
	memset(path, 'a', sizeof path);
	path[0] = '/';
	assert_true(network_path_decode(path, NETWORK_PATH_MAX - 1, decoded, &n, &slash));
	assert_false(network_path_decode(path, NETWORK_PATH_MAX, decoded, &n, &slash));
}

/* As a person would say it, however long it takes. */
static bool slow_matches(const char *pattern, const char *path, size_t size)
{
	if (*pattern == '\0')
		return size == 0;
	if (pattern[0] == '*') {
		size_t stars = strspn(pattern, "*");

		for (size_t n = 0; n <= size; n++) {
			if (slow_matches(pattern + stars, path + n, size - n))
				return true;
			if (n < size && stars == 1 && path[n] == '/')
				return false;
		}
		return false;
	}
	return size > 0 && *pattern == *path && slow_matches(pattern + 1, path + 1, size - 1);
}

static void globs_match_what_they_say(void **state)
{
	uint32_t seed = 5;
	unsigned matched = 0;

	(void) state;
	for (int i = 0; i < 200000; i++) {
		char pattern[10] = "", path[10] = "";
		size_t pattern_size = next_random(&seed) % sizeof pattern, size = next_random(&seed) % sizeof path;

		for (size_t j = 0; j < pattern_size; j++)
			pattern[j] = "a/**b"[next_random(&seed) % 5];
		for (size_t j = 0; j < size; j++)
			path[j] = "a/b"[next_random(&seed) % 3];
		if (network_path_matches(pattern, path, size) != slow_matches(pattern, path, size))
			fail_msg("%s and %s", pattern, path);
		matched += network_path_matches(pattern, path, size);
	}
	assert_true(matched > 1000);
	assert_true(network_path_matches("/v1/*", "/v1/a", 5));
	assert_false(network_path_matches("/v1/*", "/v1/a/b", 7));
	assert_true(network_path_matches("/v1/**", "/v1/a/b", 7));
	assert_false(network_path_matches("/v1/**", "/v1", 3));
	assert_true(network_path_matches("/**", "/", 1));
}

/* Many stars against a path that almost matches: exponential for a matcher that tries one way after the other. */
static void no_glob_takes_long(void **state)
{
	char pattern[1025] = "", path[4096];
	usec_t start = now_monotonic();

	(void) state;
	for (size_t i = 0; i + 1 < sizeof pattern; i += 2)
		memcpy(pattern + i, "*a", 2);
	memset(path, 'a', sizeof path);
	path[sizeof path - 1] = 'b';
	assert_false(network_path_matches(pattern, path, sizeof path));
	assert_true(now_monotonic() - start < 5 * USEC_PER_SEC);
}

static int asked(const struct network *n, const char *name, const char *method, const char *path)
{
	size_t rules[8], count = network_rules_for_name(n, name, 443, false, rules, ARRAY_SIZE(rules));

	return network_match_request(n, rules, count, method, path, strlen(path));
}

static void requests_are_matched_by_method_and_path(void **state)
{
	struct network n = network_of("network: {allow: [\n"
				      "  {host: a.test, protocol: https, methods: [GET], paths: [\"/v1/*\"]},\n"
				      "  {host: a.test, protocol: https, methods: [POST], paths: [/v1/new, \"/files/**\"]},\n"
				      "  {host: b.test, protocol: https},\n"
				      "  {host: c.test, protocol: https, methods: []},\n"
				      "  {host: d.test, protocol: https, paths: []}]}");

	(void) state;
	assert_int_equal(asked(&n, "a.test", "GET", "/v1/x"), 0);
	assert_int_equal(asked(&n, "a.test", "HEAD", "/v1/x"), 0); /* GET implies it */
	assert_int_equal(asked(&n, "a.test", "get", "/v1/x"), -1);
	assert_int_equal(asked(&n, "a.test", "POST", "/v1/x"), -1);
	assert_int_equal(asked(&n, "a.test", "POST", "/v1/new"), 1);
	assert_int_equal(asked(&n, "a.test", "POST", "/files/a/b"), 1);
	assert_int_equal(asked(&n, "a.test", "POST", "/files/../v1/x"), -1);
	assert_int_equal(asked(&n, "a.test", "GET", "/v1/%78"), 0);
	assert_int_equal(asked(&n, "a.test", "GET", "/v1/x/y"), -1);
	assert_int_equal(asked(&n, "a.test", "GET", "/v1/x%2fy"), -1);
	assert_int_equal(asked(&n, "b.test", "PURGE", "/any/thing"), 2);
	/* Where every path is allowed, how the far end reads it is its own affair, */
	assert_int_equal(asked(&n, "b.test", "GET", "/@scope%2fname"), 2);
	assert_int_equal(asked(&n, "b.test", "GET", "/a//b/%2525/%ff"), 2);
	/* but ways up, ends of lines and the like are refused there too. */
	assert_int_equal(asked(&n, "b.test", "GET", "/a/../b"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "/a%2f..%2fb"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "/a/%2E%2e"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "/a%5cb"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "/a%00b"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "/a%0d%0ab"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "/a%zz"), -1);
	assert_int_equal(asked(&n, "b.test", "GET", "a"), -1);
	assert_int_equal(asked(&n, "c.test", "GET", "/"), -1);
	assert_int_equal(asked(&n, "d.test", "GET", "/"), -1);
	assert_int_equal(asked(&n, "e.test", "GET", "/"), -1);
	network_done(&n);
}

/* ---- Policies. ---- */

static void absent_empty_and_one_rule_differ(void **state)
{
	struct network absent = network_of(""), empty = network_of("network: {allow: []}"),
		       one = network_of("network: {allow: [a.test]}");
	struct policy over;
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};

	(void) state;
	assert_int_equal(absent.rule_count, 0);
	assert_int_equal(empty.rule_count, 0);
	assert_int_equal(one.rule_count, 1);
	assert_false(network_knows_name(&absent, "a.test") || network_knows_name(&empty, "a.test"));
	assert_true(network_knows_name(&one, "a.test"));
	assert_false(network_knows_name(&one, "b.test"));
	/* Empty over one entry is none, absent over it leaves it. */
	assert_int_equal(policy_stack_add_text(s, "1", BYTES("network: {allow: [a.test]}"), &errors), 0);
	assert_int_equal(policy_stack_add_text(s, "2", BYTES("network: {proxy_env: true}"), &errors), 0);
	assert_int_equal(policy_stack_resolve(s, &over, &errors), 0);
	assert_int_equal(over.network.allow_count, 1);
	policy_done(&over);
	assert_int_equal(policy_stack_add_text(s, "3", BYTES("network: {allow: []}"), &errors), 0);
	assert_int_equal(policy_stack_resolve(s, &over, &errors), 0);
	assert_int_equal(over.network.allow_count, 0);
	policy_done(&over);
	policy_stack_free(s);
	network_done(&absent);
	network_done(&empty);
	network_done(&one);
}

static void patterns_that_match_nothing_are_errors(void **state)
{
	static const char *const wrong[] = {"*.",        "*",     "a.*.test", "*.*.test", "*a.test", "", "http://origin.test/",
					    "*.1.2.3.4", "127.1", "0x7f.1",   "a..test"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char *text = xasprintf("network:\n  allow:\n  - host: \"%s\"\n", wrong[i]);

		assert_refused(text, 3, "network.allow[0].host", "");
		free(text);
	}
	assert_refused("network: {allow: [\"*.\"]}", 1, "network.allow[0]", "matches nothing");
	assert_refused("network: {allow: [\"\"]}", 1, "network.allow[0]", "");
	assert_refused("network: {allow: [{host: a.test, protocol: http, paths: [/a//b]}]}", 1, "network.allow[0].paths[0]",
		       "never matches");
}

static void one_port_has_one_protocol(void **state)
{
	assert_refused("network:\n  allow:\n  - a.test\n  - {host: b.test}\n  - {host: A.test., protocol: https}\n", 5,
		       "network.allow[2]", "port 443 is https here and tcp in network.allow[0]");
	assert_refused(
	    "network: {allow: [{address: 10.0.0.0/8, ports: [\"80-90\"]},\n {address: 10.0.0.0/8, ports: [85], protocol: http}]}",
	    2, "network.allow[1]", "port 85 is http here and tcp");
	assert_refused("network: {allow: [\"*.a.test\",\n {host: \"*.A.test\", protocol: tls}]}", 2, "network.allow[1]",
		       "port 443");
	(void) state;
}

static void different_targets_and_transports_do_not_clash(void **state)
{
	struct network n = network_of(
	    "network: {allow: [a.test, {host: \"*.a.test\", protocol: tls}, {host: a.test, protocol: udp},\n"
	    "  {host: a.test, ports: [80], protocol: http}, {address: 10.0.0.0/8}, {address: 10.0.0.0/9, protocol: https},\n"
	    "  '@pip', a.test]}");

	(void) state;
	assert_int_equal(n.rule_count, 7); /* the set is expanded by somebody else */
	assert_string_equal(n.rules[6].label, "network.allow[7]");
	network_done(&n);
}

static void too_many_rules_for_one_port_are_told(void **state)
{
	char *text = xstrdup("network:\n  allow:\n");

	(void) state;
	for (int i = 0; i <= NETWORK_COVER_MAX; i++) {
		char *longer = xasprintf("%s  - {host: a.test, protocol: https, paths: [/%d]}\n", text, i);

		free(text);
		text = longer;
	}
	assert_refused(text, 3 + NETWORK_COVER_MAX, "network.allow[32]", "more than 32 rules for port 443");
	free(text);
}

static void ports_are_bounded(void **state)
{
	struct network most =
	    network_of("network: {allow: [{host: a.test, ports: [\"1-4096\"]}, {host: b.test, ports: [\"1-4096\"]}]}");
	struct network often =
	    network_of("network: {allow: [\"a.test:443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,"
		       "443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443,443\"]}");

	(void) state;
	assert_int_equal(most.rule_count, 2);
	assert_int_equal(often.rule_count, 1);
	network_done(&most);
	network_done(&often);
	assert_refused("network: {allow: [{host: a.test,\n ports: [\"1-4097\"]}]}", 2, "network.allow[0].ports", "at most 4096");
	assert_refused("network: {allow: [{host: a.test, ports: [\"1-4000\", \"1-4000\"]}]}", 1, "network.allow[0].ports",
		       "at most 4096");
	assert_refused("network:\n  allow:\n  - {host: a.test, ports: [\"1-4096\"]}\n  - b.test:5000\n", 0, "network.allow",
		       "4097 different ports");
	assert_refused(
	    "network:\n  allow:\n  - {host: a.test, ports: [\"1-4096\"]}\n  - {host: a.test, protocol: udp, ports: [1]}\n", 0,
	    "network.allow", "4097 different ports");
}

static void the_host_itself_is_reached_by_name_only(void **state)
{
	static const char *const sealed[] = {
	    "127.0.0.1",       "127.0.0.0/8",     "127.9.0.0/16", "::1",         "0.0.0.0", "0.0.0.0/8", "::",
	    "198.18.0.0/15",   "198.19.1.1",      "224.0.0.0/4",  "224.0.0.251", "ff02::1", "ff00::/8",  "::ffff:127.0.0.1",
	    "64:ff9b::7f00:1", "2002:7f00:1::/48"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(sealed); i++) {
		struct net_prefix p = prefix_of(sealed[i]);
		char *text = xasprintf("network:\n  allow:\n  - a.test\n  - address: \"%s\"\n", sealed[i]);

		assert_refused(text, 4, "network.allow[1].address", "cannot open");
		assert_false(network_special_named(&p, &p.address)); /* nor would one, had it come here */
		free(text);
	}
	assert_refused("network: {allow: [\"127.0.0.1:80\"]}", 1, "network.allow[0].address", "network.hosts");
}

static void a_wide_range_covers_what_it_opens(void **state)
{
	static const struct {
		const char *outer, *inner;
		bool covers;
	} cases[] = {{"0.0.0.0/0", "0.0.0.0/0", true},
		     {"0.0.0.0/0", "1.1.1.1", true},
		     {"0.0.0.0/0", "8.0.0.0/5", true},
		     {"0.0.0.0/0", "10.0.0.0/8", false},
		     {"0.0.0.0/0", "10.1.2.3", false},
		     {"0.0.0.0/0", "169.254.169.254", false},
		     {"0.0.0.0/0", "100.64.0.0/10", false},
		     {"8.0.0.0/5", "10.1.0.0/16", false},
		     {"10.0.0.0/8", "10.1.0.0/16", true},
		     {"10.1.0.0/16", "10.0.0.0/8", false},
		     {"10.1.0.0/16", "10.2.0.1", false},
		     {"0.0.0.0/0", "2606:4700::1", false},
		     {"::/0", "2606:4700::1", true},
		     {"::/0", "fd00::/8", false},
		     {"::/0", "fe80::1", false},
		     {"::/0", "64:ff9b::a00:1", false},
		     {"fd00::/8", "fd00:1::/32", true},
		     {"2606:4700::/32", "2606:4700::1", true},
		     {"2606:4700::/32", "::/0", false},
		     {"169.254.0.0/16", "169.254.1.0/24", true}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct net_prefix outer = prefix_of(cases[i].outer), inner = prefix_of(cases[i].inner);

		if (network_special_covers(&outer, &inner) != cases[i].covers)
			fail_msg("%s and %s", cases[i].outer, cases[i].inner);
	}
}

static void limits_have_a_rate_and_an_action(void **state)
{
	struct network plain = network_of("network: {allow: [a.test]}");
	struct network n = network_of("network: {limits: {rate: 1M, on_limit: kill, bytes_out: 5K, requests: 0}}");

	(void) state;
	assert_true(plain.limits.rate == ZW_UNLIMITED && plain.limits.on_limit == NETWORK_LIMIT_DENY);
	assert_true(n.limits.rate == 1 << 20 && n.limits.on_limit == NETWORK_LIMIT_KILL);
	assert_true(n.limits.bytes_out == 5 << 10 && n.limits.requests == 0 && n.limits.bytes_in == ZW_UNLIMITED);
	network_done(&plain);
	network_done(&n);
	assert_refused("network: {limits: {on_limit: drop}}", 1, "network.limits.on_limit", "deny or kill");
	assert_refused("network: {limits: {rate: 0}}", 1, "network.limits.rate", "at least 1");
}

static void a_rule_of_a_set_is_checked_too(void **state)
{
	struct port_range https = {443, 443}, none = {0, 0}, reversed = {9, 8}, many = {1, 65535};
	struct policy_rule good = {.host = (char *) "A.Test.", .ports = &https, .port_count = 1, .request_max = ZW_UNLIMITED};
	struct policy_rule wrong[9];
	struct network n = {0};
	struct zw_error e = {0};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		wrong[i] = good;
	wrong[0].host = NULL;
	wrong[1].address = (char *) "10.0.0.1";
	wrong[2].preset = (char *) "@pip";
	wrong[3].ports = &none;
	wrong[4].ports = &reversed;
	wrong[5].ports = &many;
	wrong[6].port_count = 0;
	wrong[7].request_max = 1; /* of a tcp rule */
	wrong[8].host = (char *) "http://a.test/";
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		e.text[0] = '\0';
		if (network_add_rule(&n, &wrong[i], "network.allow[0] (@pip)", &e) != -EINVAL)
			fail_msg("rule %zu was accepted", i);
		assert_non_null(strstr(e.text, "@pip"));
	}
	assert_int_equal(n.rule_count, 0);
	assert_int_equal(network_add_rule(&n, &good, "network.allow[0] (@pip)", &e), 0);
	assert_string_equal(n.rules[0].pattern, "a.test");
	assert_string_equal(n.rules[0].label, "network.allow[0] (@pip)");
	good.protocol = NET_TLS;
	assert_int_equal(network_add_rule(&n, &good, "network.allow[1] (@npm)", &e), 0);
	assert_int_equal(network_check(&n, &e), -EINVAL);
	assert_non_null(strstr(e.text, "(@npm): port 443 is tls here and tcp in network.allow[0] (@pip)"));
	network_done(&n);
}

/* ---- To the broker and back. ---- */

static const char everything[] =
    "network:\n"
    "  allow:\n"
    "  - {host: a.test, ports: [443, \"8000-8010\"], protocol: https, methods: [GET], paths: [\"/v1/*\"], request_max: 1M,\n"
    "     secret: {name: t, header: Authorization, format: \"Bearer {}\"}}\n"
    "  - {host: a.test, protocol: https, ports: [443], paths: [], secret: {name: t, placeholder: PLACEHOLDER}}\n"
    "  - {host: \"*.b.test\", protocol: tls}\n"
    "  - {address: \"2001:db8::/32\", ports: [53], protocol: udp}\n"
    "  - 10.1.2.3\n"
    "  hosts: {a.test: \"[::1]:8443\", c.b.test: 10.9.8.7}\n"
    "  limits: {bytes_out: 1, bytes_in: 2, requests: 3, connections: 18446744073709551614, rate: 5, on_limit: kill}\n"
    "  proxy_env: true\n"
    "  ca_file: /etc/ca.pem\n"
    "secrets: {t: {env: T}}\n";

static void the_rules_travel_whole(void **state)
{
	struct network n = network_of(everything), back = {0};
	struct zw_error e = {0};
	char *text = network_to_json(&n), *again;

	(void) state;
	if (network_from_json(text, strlen(text), &back, &e) != 0)
		fail_msg("%s: %s", e.text, text);
	again = network_to_json(&back);
	assert_string_equal(text, again);
	assert_int_equal(back.rule_count, 5);
	assert_true(back.rules[0].has_methods && back.rules[0].has_paths && back.rules[0].request_max == 1 << 20);
	assert_int_equal(back.rules[0].ports[1].last, 8010);
	assert_string_equal(back.rules[0].secret.format, "Bearer {}");
	assert_true(back.rules[1].has_paths && !back.rules[1].has_methods && back.rules[1].paths.count == 0);
	assert_string_equal(back.rules[1].secret.placeholder, "PLACEHOLDER");
	assert_null(back.rules[3].pattern);
	assert_int_equal(back.rules[3].prefix.bits, 32);
	assert_int_equal(back.rules[4].prefix.bits, 32);
	assert_string_equal(back.rules[4].label, "network.allow[4]");
	assert_int_equal(network_host_for(&back, "a.test")->port, 8443);
	assert_int_equal(network_host_for(&back, "c.b.test")->port, 0);
	assert_null(network_host_for(&back, "b.test"));
	assert_true(back.limits.bytes_out == 1 && back.limits.connections == INT64_MAX &&
		    back.limits.on_limit == NETWORK_LIMIT_KILL);
	assert_true(back.proxy_env);
	assert_string_equal(back.ca_file, "/etc/ca.pem");
	free(text);
	free(again);
	network_done(&n);
	network_done(&back);
}

static char *replaced(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);

	assert_non_null(at);
	return at == NULL ? NULL : xasprintf("%.*s%s%s", (int) (at - text), text, to, at + strlen(from));
}

static void what_is_not_understood_is_refused(void **state)
{
	static const struct {
		const char *from, *to;
	} faults[] = {{"{", "["},
		      {"\"rules\"", "\"rulez\""},
		      {"\"proxy_env\":true", "\"proxy_env\":true,\"deny\":[]"},
		      {"\"proxy_env\":true", "\"proxy_env\":1"},
		      {"\"proxy_env\":true", "\"proxy_env\":true,\"proxy_env\":true"},
		      {"\"protocol\":3", "\"protocol\":5"},
		      {"\"protocol\":3", "\"protocol\":-1"},
		      {"\"protocol\":3", "\"protocol\":\"https\""},
		      {"[443,443]", "[0,443]"},
		      {"[443,443]", "[443]"},
		      {"[443,443]", "[1,65535]"},
		      {"[443,443]", "[443,65536]"},
		      {"\"methods\":[\"GET\"]", "\"methods\":[\"get\"]"},
		      {"\"methods\":[\"GET\"]", "\"methods\":\"GET\""},
		      {"\"methods\":[\"GET\"]", "\"methods\":[\"GET\\u0000X\"]"},
		      {"\"methods\":[\"GET\"],", ""},
		      {"\"paths\":[\"/v1/*\"]", "\"paths\":[\"v1\"]"},
		      {"\"host\":\"a.test\"", "\"host\":\"a.test\\u0000b\""},
		      {"\"host\":\"a.test\"", "\"host\":\"1.2.3.4\""},
		      {"\"host\":\"a.test\"", "\"host\":null"},
		      {"\"address\":null", "\"address\":\"10.0.0.0/8\""},
		      {"\"10.1.2.3/32\"", "\"127.0.0.1/32\""},
		      {"\"10.1.2.3/32\"", "\"10.1.2.3/31\""},
		      {"\"request_max\":1048576", "\"request_max\":-1"},
		      {"\"request_max\":1048576", "\"request_max\":1.5"},
		      {"\"header\":\"Authorization\"", "\"header\":\"A: b\\r\\nC\""},
		      {"\"format\":\"Bearer {}\"", "\"format\":\"Bearer\""},
		      {"\"format\":\"Bearer {}\"", "\"format\":null"},
		      {"\"::1\"", "\"::01\""},
		      {"\"port\":8443", "\"port\":65536"},
		      {"\"kill\":true", "\"kill\":null"},
		      {"/etc/ca.pem", "ca.pem"},
		      {"[443,443]", "[443,443],[8000,8010]"} /* well formed: the last one must pass */};
	struct network n = network_of(everything);
	char *text = network_to_json(&n);

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		char *changed = replaced(text, faults[i].from, faults[i].to);
		struct network back = {0};
		struct zw_error e = {0};
		int r = network_from_json(changed, strlen(changed), &back, &e);

		if (r != (i + 1 < ARRAY_SIZE(faults) ? -EINVAL : 0))
			fail_msg("%s in place of %s: %d %s", faults[i].to, faults[i].from, r, e.text);
		assert_true(r == 0 || e.text[0] != '\0');
		network_done(&back);
		free(changed);
	}
	free(text);
	network_done(&n);
}

/* ---- In sentences. ---- */

static void the_summary_tells_what_can_be_reached(void **state)
{
	static const char *const words[] = {
	    "a.test, port 443, 8000-8010, https: each request is checked",
	    "requests: GET",
	    "paths: /v1/*",
	    "at most 1 MiB",
	    "the secret t in the header Authorization",
	    "in place of the placeholder",
	    "every subdomain of b.test (not b.test itself), port 443, tls",
	    "2001:db8::/32, port 53, udp",
	    "a.test means [::1]:8443",
	    "nobody outside is asked",
	    "proxy",
	    "/etc/ca.pem",
	    "1 bytes sent",
	    "3 HTTP requests",
	    "beyond that it is ended",
	    "5 bytes a second",
	};
	struct policy p = policy_of(everything);
	struct policy wide =
	    policy_of("network: {allow: [0.0.0.0/0, {host: h.test, protocol: http, secret: {name: t, header: X}}],\n"
		      " hosts: {other.test: 127.0.0.1}, publish: [\"0.0.0.0:9000:80\"]}\nsecrets: {t: {env: T}}");
	char *text = policy_explain(&p), *wide_text = policy_explain(&wide);

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strstr(text, words[i]) == NULL)
			fail_msg("\"%s\" is not in\n%s", words[i], text);
	assert_non_null(strstr(wide_text, "private and other special addresses"));
	assert_null(strstr(text, "private and other special addresses"));
	assert_non_null(strstr(wide_text, "everyone on the way"));
	assert_non_null(strstr(wide_text, "no rule allows that name"));
	assert_non_null(strstr(wide_text, "wherever this host can be reached"));
	free(text);
	free(wide_text);
	policy_done(&p);
	policy_done(&wide);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(only_hosts_and_address_rules_open_special_addresses),
	    cmocka_unit_test(names_of_special_ranges_open_them),
	    cmocka_unit_test(the_most_specific_rule_counts),
	    cmocka_unit_test(rules_of_one_pattern_are_all_asked),
	    cmocka_unit_test(wildcards_cover_what_is_below_them),
	    cmocka_unit_test(the_nearest_rule_is_near),
	    cmocka_unit_test(a_path_is_decoded_once),
	    cmocka_unit_test(a_path_with_two_readings_never_matches),
	    cmocka_unit_test(paths_are_bounded),
	    cmocka_unit_test(globs_match_what_they_say),
	    cmocka_unit_test(no_glob_takes_long),
	    cmocka_unit_test(requests_are_matched_by_method_and_path),
	    cmocka_unit_test(absent_empty_and_one_rule_differ),
	    cmocka_unit_test(patterns_that_match_nothing_are_errors),
	    cmocka_unit_test(one_port_has_one_protocol),
	    cmocka_unit_test(different_targets_and_transports_do_not_clash),
	    cmocka_unit_test(too_many_rules_for_one_port_are_told),
	    cmocka_unit_test(ports_are_bounded),
	    cmocka_unit_test(the_host_itself_is_reached_by_name_only),
	    cmocka_unit_test(a_wide_range_covers_what_it_opens),
	    cmocka_unit_test(limits_have_a_rate_and_an_action),
	    cmocka_unit_test(a_rule_of_a_set_is_checked_too),
	    cmocka_unit_test(the_rules_travel_whole),
	    cmocka_unit_test(what_is_not_understood_is_refused),
	    cmocka_unit_test(the_summary_tells_what_can_be_reached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
