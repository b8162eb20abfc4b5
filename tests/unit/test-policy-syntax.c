/* The small languages of a policy: sizes, times, host patterns, addresses, paths, suggestions. */
#include "policy-helpers.h"

#include <errno.h>

#include "policy/syntax.h"
#include "policy/text.h"

static void sizes_are_exact(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} right[] = {{"0", 0},
		     {"100", 100},
		     {"1K", 1024},
		     {"512M", UINT64_C(512) << 20},
		     {"1.5G", UINT64_C(3) << 29},
		     {"2T", UINT64_C(2) << 40},
		     {"null", ZW_UNLIMITED},
		     {"18446744073709551614", UINT64_MAX - 1}};
	static const char *const wrong[] = {"",
					    " 1",
					    "1 ",
					    "-1",
					    "+1",
					    "1k",
					    "1MB",
					    "1MiB",
					    "0x10",
					    "1e3",
					    "M",
					    "1.",
					    "1.5",
					    ".5M",
					    "18446744073709551615",
					    "18446744073709551616",
					    "16777216T",
					    "01",
					    "1,5M"};
	uint64_t v;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_int_equal(parse_size(right[i].text, &v), 0);
		assert_true(v == right[i].value);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		v = 7;
		assert_true(parse_size(wrong[i], &v) < 0);
		assert_int_equal(v, 7);
	}
}

static void times_have_a_unit(void **state)
{
	static const struct {
		const char *text;
		usec_t value;
	} right[] = {{"30s", 30000000}, {"1.5s", 1500000}, {"200ms", 200000}, {"2m", 120000000}, {"1h", UINT64_C(3600000000)},
		     {"0s", 0}};
	static const char *const wrong[] = {"", "30", "s", "30 s", "30S", "1d", "-1s", "1.s", "5sec", "99999999999999999999h"};
	usec_t v;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_int_equal(parse_usec(right[i].text, &v), 0);
		assert_true(v == right[i].value);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_true(parse_usec(wrong[i], &v) < 0);
}

static void words_of_sizes_and_times_read_back(void **state)
{
	static const uint64_t values[] = {0,           1, 1000, 1024, 1536, UINT64_C(5) << 30, 60000000, UINT64_C(7200000000),
					  ZW_UNLIMITED};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		char *word = format_size_word(values[i]);
		uint64_t v;

		assert_int_equal(parse_size(word, &v), 0);
		assert_true(v == values[i]);
		free(word);
	}
}

/* The canonical form, or NULL with the suggestion in *ret_suggestion (may be NULL). Owned. */
static char *canonical(syntax_check *check, const char *text, char **ret_suggestion)
{
	char *copy = xstrdup(text);
	struct fault f = {0};

	if (check(&copy, &f))
		return copy;
	assert_true(f.message[0] != '\0');
	if (ret_suggestion != NULL)
		*ret_suggestion = xstrdup(f.suggestion);
	free(copy);
	return NULL;
}

static void assert_canonical(syntax_check *check, const char *text, const char *expected)
{
	char *got = canonical(check, text, NULL);

	if (got == NULL || strcmp(got, expected) != 0)
		fail_msg("%s: expected %s, got %s", text, expected, got != NULL ? got : "a refusal");
	free(got);
}

static void assert_wrong(syntax_check *check, const char *text, const char *suggestion)
{
	char *hint = NULL, *got = canonical(check, text, &hint);

	if (got != NULL)
		fail_msg("%s was accepted as %s", text, got);
	if (strcmp(hint, suggestion) != 0)
		fail_msg("%s: expected the suggestion \"%s\", got \"%s\"", text, suggestion, hint);
	free(hint);
}

static void host_patterns_have_one_form(void **state)
{
	static const char *const wrong[] = {
	    "*.",      "*",          "a.*.test", "*a.test",        "a*.test",   "*.*.test", "",        ".",   "..",
	    ".a.test", "a..test",    "-a.test",  "a-.test",        "a b.test",  "a.test\n", "1.2.3.4", "::1", "127.1",
	    "0x7f.1",  "2130706433", "a.0x7f",   "b\xc3\xbc.test", "*.1.2.3.4", "a.test..", "a@b.test"};
	char longest[256];

	(void) state;
	assert_canonical(syntax_host_pattern, "Api.Example.ORG.", "api.example.org");
	assert_canonical(syntax_host_pattern, "*.Example.org", "*.example.org");
	assert_canonical(syntax_host_pattern, "xn--bcher-kva.example", "xn--bcher-kva.example");
	assert_canonical(syntax_host_pattern, "localhost", "localhost");
	assert_canonical(syntax_host_pattern, "1password.com", "1password.com");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_wrong(syntax_host_pattern, wrong[i], "");
	assert_wrong(syntax_host_pattern, "http://origin.test/", "origin.test");
	assert_wrong(syntax_host_pattern, "https://origin.test:8443/x?y", "origin.test");
	assert_wrong(syntax_host_pattern, "origin.test:443", "origin.test");
	assert_wrong(syntax_host_pattern, "origin.test/x", "origin.test");
	assert_wrong(syntax_host, "*.a.test", "");
	for (size_t i = 0; i < sizeof longest; i++)
		longest[i] = i % 2 == 0 ? 'a' : '.';
	longest[255] = '\0';
	assert_wrong(syntax_host_pattern, longest, "");
}

static void addresses_have_one_form(void **state)
{
	static const char *const wrong[] = {"",          "1.2.3",  "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/-1",
					    "010.0.0.1", "::1%lo", "::1/129",    "a",        "1.2.3.4/08"};

	(void) state;
	assert_canonical(syntax_address, "10.1.0.0/16", "10.1.0.0/16");
	assert_canonical(syntax_address, "2001:DB8:0::/32", "2001:db8::/32");
	assert_canonical(syntax_address, "::ffff:1.2.3.4", "1.2.3.4");
	assert_canonical(syntax_address, "::ffff:10.0.0.0/104", "10.0.0.0/8");
	assert_canonical(syntax_address, "0.0.0.0/0", "0.0.0.0/0");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_wrong(syntax_address, wrong[i], "");
	assert_wrong(syntax_address, "10.1.2.3/16", "10.1.0.0/16");
	assert_wrong(syntax_address, "2001:db8::1/32", "2001:db8::/32");
	assert_canonical(syntax_endpoint, "[::1]:8443", "[::1]:8443");
	assert_canonical(syntax_endpoint, "[0::0:1]:8443", "[::1]:8443");
	assert_canonical(syntax_endpoint, "2001:DB8::0:1", "2001:db8::1");
	assert_canonical(syntax_endpoint, "::1", "::1");
	assert_canonical(syntax_endpoint, "127.0.0.1:1", "127.0.0.1:1");
	assert_wrong(syntax_endpoint, "127.0.0.1:0", "");
	assert_wrong(syntax_endpoint, "[127.0.0.1]:80", "");
	assert_wrong(syntax_endpoint, "10.0.0.0/8", "");
	assert_wrong(syntax_endpoint, "host.test:80", "");
	assert_wrong(syntax_endpoint, "[::1]", "");
	assert_wrong(syntax_endpoint, "[::1]:", "");
	assert_wrong(syntax_endpoint, "[::1]x:80", "");
	assert_wrong(syntax_endpoint, "[fe80::1%lo]:80", "");
	assert_wrong(syntax_endpoint, ":80", "");
	assert_wrong(syntax_endpoint, "127.0.0.1:08", "");
	assert_wrong(syntax_endpoint, "127.1:80", "");
	assert_wrong(syntax_endpoint, "", "");
	assert_wrong(syntax_bind, "10.0.0.0/8", "");
}

static void url_paths_are_decoded_ones(void **state)
{
	static const char *const wrong[] = {"/a/../b", "/a/..", "/./a", "/a%2fb", "/a\\b", "/a?b", "/a#b", "/a\nb", "", "/a//b"};

	(void) state;
	assert_canonical(syntax_url_path, "/v1/*", "/v1/*");
	assert_canonical(syntax_url_path, "/**", "/**");
	assert_canonical(syntax_url_path, "/a..b/...", "/a..b/...");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_wrong(syntax_url_path, wrong[i], "");
	assert_wrong(syntax_url_path, "v1", "/v1");
}

static void paths_inside_are_normalised(void **state)
{
	(void) state;
	assert_canonical(syntax_inside_path, "//a/./b//c/", "/a/b/c");
	assert_canonical(syntax_inside_path, "/", "/");
	assert_canonical(syntax_inside_path, "/..a/b..", "/..a/b..");
	assert_wrong(syntax_inside_path, "/a/..", "");
	assert_wrong(syntax_inside_path, "a", "");
	assert_canonical(syntax_target, "/usrx", "/usrx");
	assert_canonical(syntax_target, "/tmp/a", "/tmp/a");
	assert_canonical(syntax_target, "/run/a", "/run/a");
	assert_canonical(syntax_target, "/home/a", "/home/a");
	assert_wrong(syntax_target, "/usr", "");
	assert_wrong(syntax_target, "/./proc", "");
}

static void the_nearest_word_is_near(void **state)
{
	static const char *const words[] = {"memory", "time", "cpu_time", "processes", NULL};
	static const struct {
		const char *word, *best;
	} cases[] = {{"memroy", "memory"},     {"tiem", "time"}, {"Memory", "memory"}, {"cputime", "cpu_time"},
		     {"process", "processes"}, {"xyzzy", NULL},  {"", NULL},           {"t", NULL}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nearest n = nearest_to(cases[i].word);

		nearest_try_all(&n, words);
		if (cases[i].best == NULL)
			assert_null(n.best);
		else
			assert_string_equal(n.best, cases[i].best);
	}
}

static void quoting_is_safe_and_short(void **state)
{
	char *q = text_quote("a\"b\\c\x1b\xc2\x9b\xe2\x80\xae\xc3\xa4\xff");

	(void) state;
	assert_string_equal(q, "\"a\\\"b\\\\c\\x1b\\xc2\\x9b\\xe2\\x80\\xae\xc3\xa4\\xff\"");
	free(q);
	q = text_quote("0123456789012345678901234567890123456789012345678901234567890123456789");
	assert_true(strlen(q) < 70);
	free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sizes_are_exact),
	    cmocka_unit_test(times_have_a_unit),
	    cmocka_unit_test(words_of_sizes_and_times_read_back),
	    cmocka_unit_test(host_patterns_have_one_form),
	    cmocka_unit_test(addresses_have_one_form),
	    cmocka_unit_test(url_paths_are_decoded_ones),
	    cmocka_unit_test(paths_inside_are_normalised),
	    cmocka_unit_test(the_nearest_word_is_near),
	    cmocka_unit_test(quoting_is_safe_and_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
