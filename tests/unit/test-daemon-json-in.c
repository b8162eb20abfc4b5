/* JSON of requests: what is taken, what is refused, and where the fault is said to be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/json-in.h"

static json_t *parse(const char *text, struct json_faults *f)
{
	*f = (struct json_faults){0};
	return json_in_parse(text, strlen(text), f);
}

static void good(const char *text, const char *want)
{
	struct json_faults f;
	json_t *value = parse(text, &f);
	cleanup_free char *again = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

	if (value == NULL)
		fail_msg("%s: %s: %s", text, f.items[0].path, f.items[0].message);
	assert_string_equal(again, want);
	json_decref(value);
}

static void bad(const char *text, const char *path, const char *part)
{
	struct json_faults f;
	json_t *value = parse(text, &f);

	if (value != NULL)
		fail_msg("%s was taken", text);
	assert_int_equal(f.count, 1);
	if (strcmp(f.items[0].path, path) != 0 || strstr(f.items[0].message, part) == NULL)
		fail_msg("%s: got \"%s\": %s", text, f.items[0].path, f.items[0].message);
}

static void values_are_read(void **state)
{
	(void) state;
	good(" {\"a\" : [1, -2, 1.5, -1e2, true, false, null, \"\"], \"b\":{}} ",
	     "{\"a\":[1,-2,1.5,-100.0,true,false,null,\"\"],\"b\":{}}");
	good("9223372036854775807", "9223372036854775807");
	good("-0", "0");
	good("\"\\u00e9\\ud83d\\ude00\\n\\/\\u0000\"", "\"\\u00E9\\uD83D\\uDE00\\n/\\u0000\"");
	good("\"\xc3\xa9\"", "\"\\u00E9\"");
	good("[]", "[]");
	good("[\n]\t", "[]");
}

static void faults_have_a_place(void **state)
{
	(void) state;
	bad("{\"a\":{\"b\":[1,{\"c\":2,\"c\":3}]}}", "a.b[1].c", "twice");
	bad("{\"a\":1,\"\\u0061\":2}", "a", "twice");
	bad("{\"x\":[1e999]}", "x[0]", "finite");
	bad("{\"x\":[NaN]}", "x[0]", "expected a value");
	bad("{\"x\":Infinity}", "x", "expected a value");
	bad("{\"x\":-Infinity}", "x", "expected a value");
	bad("{\"n\":9223372036854775808}", "n", "64 bits");
	bad("{\"a\\u0000b\":1}", "", "NUL");
	bad("{\"a\":\"\\ud800\"}", "a", "surrogate");
	bad("{\"a\":\"\\udc00\"}", "a", "surrogate");
	bad("{\"a\":\"\\ud800\\u0041\"}", "a", "surrogate");
	bad("{\"a\":\"\\x\"}", "a", "escape");
	bad("{\"a\":\"\\u12g4\"}", "a", "hexadecimal");
	bad("{\"a\":\"\n\"}", "a", "control character");
	bad("{\"a\":\"x", "a", "no end");
	bad("{\"a\":\"x\\", "a", "escape");
}

static void the_grammar_is_that_of_json(void **state)
{
	static const char *const texts[] = {
	    "",           " ",       "{",         "[",         "{]",      "[}",      "[1,]",
	    "[,1]",       "{\"a\"}", "{\"a\":}",  "{a:1}",     "{'a':1}", "01",      "1.",
	    ".5",         "+1",      "1e",        "1e+",       "0x10",    "--1",     "tru",
	    "nul",        "True",    "1 2",       "{} {}",     "[1 2]",   "// x\n1", "\xef\xbb\xbf{}",
	    "{\"a\":1,}", "\"a",     "[\"a\":1]", "{\"a\" 1}", "-"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct json_faults f;
		json_t *value = parse(texts[i], &f);

		if (value != NULL || f.count != 1)
			fail_msg("\"%s\" was taken", texts[i]);
	}
}

static void bytes_that_are_not_utf8_are_refused(void **state)
{
	struct json_faults f = {0};

	(void) state;
	bad("{\"a\":\"\xff\"}", "", "UTF-8");
	bad("{\"a\":\"\xed\xa0\x80\"}", "", "UTF-8");
	bad("{\"a\":\"\xc0\xaf\"}", "", "UTF-8");
	assert_null(json_in_parse("{\"a\":\"\0\"}", 9, &f));
	assert_int_equal(f.count, 1);
}

static void nested(unsigned depth, char *buf)
{
	memset(buf, '[', depth);
	memset(buf + depth, ']', depth);
	buf[2 * depth] = '\0';
}

static void depth_and_number_of_values_are_bounded(void **state)
{
	char text[512];
	size_t size = 2 * (JSON_IN_VALUES_MAX + 2);
	cleanup_free char *many = xcalloc(size + 1, 1);
	struct json_faults f;
	json_t *value;

	(void) state;
	nested(64, text);
	value = parse(text, &f);
	assert_non_null(value);
	json_decref(value);
	nested(65, text);
	assert_null(parse(text, &f));
	assert_non_null(strstr(f.items[0].message, "64 deep"));
	for (size_t i = 0; i < size; i += 2)
		memcpy(many + i, i == 0 ? "[1" : i + 2 >= size ? "1]" : ",1", 2);
	memcpy(many + size - 2, ",]", 2);
	assert_null(parse(many, &f));
	assert_non_null(strstr(f.items[0].message, "more than"));
}

static void a_hostile_name_does_not_reach_a_terminal(void **state)
{
	struct json_faults f;
	char text[4096] = "{\"\\u001b[31m";

	(void) state;
	memset(text + strlen(text), 'x', 2000);
	(void) snprintf(text + strlen(text), 64, "\":[1e999]}");
	assert_null(parse(text, &f));
	assert_null(strchr(f.items[0].path, 0x1b));
	assert_true(strlen(f.items[0].path) < 200);
}

static const struct json_field fields[] = {
    {"command", JSON_IN_LIST | JSON_IN_TEXTS},
    {"env", JSON_IN_OBJECT | JSON_IN_TEXTS},
    {"stdin", JSON_IN_TEXT | JSON_IN_NUL | JSON_IN_NULL},
    {"count", JSON_IN_WHOLE},
    {"timeout", JSON_IN_TEXT | JSON_IN_NUMBER},
    {"path", JSON_IN_TEXT | JSON_IN_REQUIRED},
    {"tty", JSON_IN_BOOL},
    {NULL, 0},
};

static size_t check(const char *text, struct json_faults *f)
{
	json_t *value = parse(text, f);
	bool good;

	assert_non_null(value);
	good = json_in_check(value, fields, f);
	assert_int_equal(good, f->count == 0);
	json_decref(value);
	return f->count;
}

static void members_are_held_against_the_table(void **state)
{
	struct json_faults f;

	(void) state;
	assert_int_equal(check("{\"path\":\"p\",\"command\":[\"a\"],\"env\":{\"A\":\"b\"},\"stdin\":\"\\u0000\",\"count\":1,"
			       "\"timeout\":1.5,\"tty\":true}",
			       &f),
			 0);
	assert_int_equal(check("{\"path\":\"p\",\"stdin\":null}", &f), 0);
	assert_int_equal(check("{\"path\":\"p\",\"comand\":[]}", &f), 1);
	assert_string_equal(f.items[0].path, "comand");
	assert_string_equal(f.items[0].suggestion, "command");
	assert_int_equal(check("{}", &f), 1);
	assert_string_equal(f.items[0].path, "path");
	assert_non_null(strstr(f.items[0].message, "missing"));
	assert_int_equal(
	    check("{\"path\":1,\"command\":[1],\"env\":{\"A\":null},\"count\":1.5,\"tty\":\"true\",\"timeout\":[]}", &f), 6);
	assert_string_equal(f.items[1].expected, "a list of texts");
	assert_string_equal(f.items[5].expected, "a text or a number");
	assert_int_equal(check("[]", &f), 1);
}

static void nul_is_refused_where_it_is_not_expected(void **state)
{
	struct json_faults f;

	(void) state;
	assert_int_equal(check("{\"path\":\"a\\u0000b\"}", &f), 1);
	assert_string_equal(f.items[0].path, "path");
	assert_int_equal(check("{\"path\":\"p\",\"command\":[\"a\",\"b\\u0000\"]}", &f), 1);
	assert_int_equal(check("{\"path\":\"p\",\"env\":{\"A\":\"\\u0000\"}}", &f), 1);
}

static bool duration(const char *text, usec_t *ret)
{
	struct json_faults f;
	json_t *value = parse(text, &f);
	bool taken = json_in_usec(value, "timeout", ret, &f);

	assert_int_equal(f.count, taken ? 0 : 1);
	json_decref(value);
	return taken;
}

static void durations_are_texts_or_seconds(void **state)
{
	static const char *const wrong[] = {
	    "\"x\"", "\"-1s\"", "-1", "1e300", "true", "null", "\"null\"", "\"5\"", "9223372036854775807"};
	usec_t t;

	(void) state;
	assert_true(duration("\"1.5s\"", &t) && t == 1500000);
	assert_true(duration("\"200ms\"", &t) && t == 200000);
	assert_true(duration("300", &t) && t == 300000000);
	assert_true(duration("0.25", &t) && t == 250000);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (duration(wrong[i], &t))
			fail_msg("%s was taken", wrong[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(values_are_read),
	    cmocka_unit_test(faults_have_a_place),
	    cmocka_unit_test(the_grammar_is_that_of_json),
	    cmocka_unit_test(bytes_that_are_not_utf8_are_refused),
	    cmocka_unit_test(depth_and_number_of_values_are_bounded),
	    cmocka_unit_test(a_hostile_name_does_not_reach_a_terminal),
	    cmocka_unit_test(members_are_held_against_the_table),
	    cmocka_unit_test(nul_is_refused_where_it_is_not_expected),
	    cmocka_unit_test(durations_are_texts_or_seconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
