/* The codec of Connect: envelopes in, envelopes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/connect.h"

#define BODY(text) (text), sizeof(text) - 1

static void assert_parsed(const char *body, size_t size, bool enveloped, const char *key)
{
	const char *why = NULL;
	json_t *m = connect_parse(body, size, enveloped, &why);

	assert_true(json_is_object(m));
	assert_int_equal(json_object_size(m), key != NULL ? 1 : 0);
	assert_true(key == NULL || json_object_get(m, key) != NULL);
	json_decref(m);
}

static void assert_refused(const char *body, size_t size, bool enveloped, const char *word)
{
	const char *why = NULL;

	assert_null(connect_parse(body, size, enveloped, &why));
	assert_non_null(why);
	assert_non_null(strstr(why, word));
}

static void one_message_is_parsed(void **state)
{
	(void) state;
	assert_parsed(BODY("{\"a\":1}"), false, "a");
	assert_parsed(BODY(""), false, NULL); /* all defaults */
	assert_parsed(BODY("\0\0\0\0\7{\"a\":1}"), true, "a");
	assert_parsed(BODY("\0\0\0\0\0"), true, NULL);
	assert_refused(BODY("[1]"), false, "no JSON object");
	assert_refused(BODY("{\"a\":"), false, "no JSON object");
	assert_refused(BODY("\0\0\0\0\3[1]"), true, "no JSON object");
	assert_refused(BODY(""), true, "one message");
	assert_refused(BODY("\0\0\0\0"), true, "one message");
	assert_refused(BODY("\0\0\0\0\7{\"a\":1"), true, "one message");
	assert_refused(BODY("\0\0\0\0\7{\"a\":1}x"), true, "one message");
	assert_refused(BODY("\0\xff\xff\xff\xff{}"), true, "one message");
	assert_refused(BODY("\1\0\0\0\7{\"a\":1}"), true, "compressed");
	assert_refused(BODY("\2\0\0\0\2{}"), true, "flag");
}

/* Adds the messages that are whole to `text`. */
static void take_messages(struct evbuffer *in, char **text)
{
	const char *why = NULL;
	json_t *m = NULL;

	while (connect_next(in, &m, &why) > 0) {
		cleanup_free char *one = json_dumps(m, JSON_COMPACT), *before = *text;

		*text = xasprintf("%s%s", before, one);
		json_decref(m);
	}
	assert_null(why);
}

/* The messages of a stream that comes in `step` bytes at a time. */
static char *read_stream(const char *data, size_t size, size_t step)
{
	struct evbuffer *in = evbuffer_new();
	char *text = xstrdup("");

	for (size_t at = 0; at < size; at += step) {
		assert_int_equal(evbuffer_add(in, data + at, size - at < step ? size - at : step), 0);
		take_messages(in, &text);
	}
	assert_int_equal(evbuffer_get_length(in), 0);
	evbuffer_free(in);
	return text;
}

static void streams_are_read_however_they_come_in(void **state)
{
	static const char stream[] = "\0\0\0\0\7{\"a\":1}\0\0\0\0\0\0\0\0\0\2{}\0\0\0\0\7{\"b\":2}";
	static const size_t steps[] = {1, 2, 3, 5, 11, 1000};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		cleanup_free char *found = read_stream(stream, sizeof stream - 1, steps[i]);

		assert_string_equal(found, "{\"a\":1}{}{}{\"b\":2}");
	}
}

static void assert_next(const char *data, size_t size, int expected, const char *word)
{
	struct evbuffer *in = evbuffer_new();
	const char *why = NULL;
	json_t *m = NULL;

	(void) evbuffer_add(in, data, size);
	assert_int_equal(connect_next(in, &m, &why), expected);
	assert_null(m);
	assert_true(word == NULL ? why == NULL : strstr(why, word) != NULL);
	assert_true(expected < 0 || evbuffer_get_length(in) == size);
	evbuffer_free(in);
}

static void what_is_no_message_is_told_at_once(void **state)
{
	(void) state;
	assert_next(BODY(""), 0, NULL);
	assert_next(BODY("\0\0\0\0"), 0, NULL);
	assert_next(BODY("\0\0\0\0\2{"), 0, NULL);
	assert_next(BODY("\0\1\0\0\0"), 0, NULL);        /* the most */
	assert_next(BODY("\0\1\0\0\1"), -1, "too long"); /* and one more */
	assert_next(BODY("\0\xff\xff\xff\xff"), -1, "too long");
	assert_next(BODY("\1\0\0\0\2{}"), -1, "compressed");
	assert_next(BODY("\2\0\0\0\2{}"), -1, "flag");
	assert_next(BODY("\0\0\0\0\2[]"), -1, "no JSON object");
}

static void envelopes_are_written(void **state)
{
	struct evbuffer *out = evbuffer_new();
	json_t *m = json_pack("{si}", "a", 1), *empty = json_object();
	static const char expected[] = "\0\0\0\0\7{\"a\":1}\2\0\0\0\2{}";
	char found[sizeof expected];

	(void) state;
	assert_int_equal(connect_add(out, false, m), 0);
	assert_int_equal(connect_add(out, true, empty), 0);
	assert_true(connect_add(out, false, NULL) < 0);
	assert_int_equal(evbuffer_remove(out, found, sizeof found), sizeof expected - 1);
	assert_memory_equal(found, expected, sizeof expected - 1);
	json_decref(m);
	json_decref(empty);
	evbuffer_free(out);
}

static void fields_have_two_names(void **state)
{
	json_t *m = json_pack("{si si sn si}", "watcherId", 1, "include_entry", 2, "cwd", "a", 3);

	(void) state;
	assert_int_equal(json_integer_value(connect_field(m, "watcherId")), 1);
	assert_int_equal(json_integer_value(connect_field(m, "includeEntry")), 2);
	assert_null(connect_field(m, "cwd")); /* null is as if it were not there */
	assert_null(connect_field(m, "A"));
	assert_null(connect_field(m, "nothing"));
	assert_null(connect_field(NULL, "a"));
	json_decref(m);
}

static void assert_integer(json_t *value, json_int_t expected)
{
	assert_int_equal(connect_integer(value), expected);
	json_decref(value);
}

static void numbers_may_be_texts(void **state)
{
	(void) state;
	assert_integer(json_integer(7), 7);
	assert_integer(json_integer(-7), -7);
	assert_integer(json_string("1234"), 1234);
	assert_integer(json_string("9223372036854775808"), 0);
	assert_integer(json_string("1x"), 0);
	assert_integer(json_string(""), 0);
	assert_integer(json_true(), 0);
	assert_integer(NULL, 0);
}

static void assert_bytes(const char *text, const char *expected)
{
	struct evbuffer *out = evbuffer_new();
	char found[16] = "";

	assert_int_equal(connect_bytes(text, out), expected != NULL);
	(void) evbuffer_remove(out, found, sizeof found - 1);
	assert_string_equal(found, expected != NULL ? expected : "");
	evbuffer_free(out);
}

static void bytes_are_base64_of_any_kind(void **state)
{
	(void) state;
	assert_bytes("", "");
	assert_bytes("aGk=", "hi");
	assert_bytes("aGk", "hi");
	assert_bytes("Pz8/", "???");
	assert_bytes("Pz8_", "???");
	assert_bytes("/j8=", "\xfe?");
	assert_bytes("_j8", "\xfe?");
	assert_bytes("***", NULL);
	assert_bytes("aGk=x", NULL);
	assert_bytes("a", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_message_is_parsed),
	    cmocka_unit_test(streams_are_read_however_they_come_in),
	    cmocka_unit_test(what_is_no_message_is_told_at_once),
	    cmocka_unit_test(envelopes_are_written),
	    cmocka_unit_test(fields_have_two_names),
	    cmocka_unit_test(numbers_may_be_texts),
	    cmocka_unit_test(bytes_are_base64_of_any_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
