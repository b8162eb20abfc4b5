/* Redaction: a value is found in every form and over every border, nothing else is changed, and what is held back does not tell
 * whether the bytes resemble a value. */
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "egress/redact.h"

/* Gives the text `step` bytes at a time and returns what came out. */
static char *streamed(struct redact *r, const char *text, size_t step)
{
	struct evbuffer *in = evbuffer_new(), *out = evbuffer_new();
	size_t size = strlen(text);
	char *result;

	for (size_t at = 0; at < size; at += step) {
		(void) evbuffer_add(in, text + at, size - at < step ? size - at : step);
		redact_stream(r, in, out, false);
		assert_true(evbuffer_get_length(in) <= redact_window(r));
	}
	redact_stream(r, in, out, true);
	assert_int_equal(evbuffer_get_length(in), 0);
	(void) evbuffer_add(out, "", 1);
	result = xstrdup((const char *) evbuffer_pullup(out, -1));
	evbuffer_free(in);
	evbuffer_free(out);
	return result;
}

static struct redact *with(const char *value)
{
	struct redact *r = redact_new();

	assert_true(redact_add(r, value, strlen(value)));
	return r;
}

static void assert_redacted(const char *value, const char *text, const char *expected)
{
	struct redact *r = with(value);

	for (size_t step = 1; step <= strlen(text) + 1; step++) {
		cleanup_free char *got = streamed(r, text, step);

		assert_string_equal(got, expected);
	}
	redact_free(r);
}

static void a_value_is_found_over_every_border(void **state)
{
	(void) state;
	assert_redacted("s3cr3t-token", "", "");
	assert_redacted("s3cr3t-token", "s3cr3t-token", "[redacted]");
	assert_redacted("s3cr3t-token", "a s3cr3t-token b\ns3cr3t-tokens3cr3t-token", "a [redacted] b\n[redacted][redacted]");
	assert_redacted("s3cr3t-token", "s3cr3t-toke s3cr3t-tokex s3cr3t-\ntoken", "s3cr3t-toke s3cr3t-tokex s3cr3t-\ntoken");
	assert_redacted("aab", "aaab aaaab", "a[redacted] aa[redacted]");
}

static void escaped_forms_are_found(void **state)
{
	static const char value[] = "a/b+c \"d\" <e>&'f%";

	(void) state;
	assert_redacted(value, "x=a%2Fb%2bc%20%22d%22%20%3Ce%3e%26%27f%25&y", "x=[redacted]&y");
	assert_redacted(value, "x=a/b%2Bc+%22d%22+%3Ce%3E%26'f%25", "x=[redacted]");
	assert_redacted(value, "{\"x\": \"a\\/b+c \\\"d\\\" <e>&'f%\"}", "{\"x\": \"[redacted]\"}");
	assert_redacted(value, "{\"x\": \"a/b+c \\\"d\\\" \\u003ce\\u003E\\u0026'f%\"}", "{\"x\": \"[redacted]\"}");
	assert_redacted(value, "<b>a/b+c &quot;d&#34; &lt;e&gt;&amp;&#x27;f%</b>", "<b>[redacted]</b>");
	assert_redacted("%41bc-defg", "%41bc-defg %2541bc-defg Abc-defg", "[redacted] [redacted] Abc-defg");
}

static void base64_is_found_at_every_alignment(void **state)
{
	/* printf 'correct-horse' and with one or two bytes before it */
	(void) state;
	assert_redacted("correct-horse", "Y29ycmVjdC1ob3JzZQ==", "[redacted]Q==");
	assert_redacted("correct-horse", "QWNvcnJlY3QtaG9yc2U=", "QW[redacted]U=");
	assert_redacted("correct-horse", "QUJjb3JyZWN0LWhvcnNl", "QUJ[redacted]");
	assert_redacted("\xff\xfe\xfb\xef\xbe\xff\xfe\xfb\xff", "//77777//vv/ __77777__vv_ __77", "[redacted] [redacted] __77");
}

static void the_longer_of_two_values_wins(void **state)
{
	struct redact *r = with("token");
	cleanup_free char *got = NULL;

	(void) state;
	assert_true(redact_add(r, "token-and-more", 14));
	got = streamed(r, "token-and-more token", 3);
	assert_string_equal(got, "[redacted] [redacted]");
	redact_free(r);
}

static void without_values_nothing_is_held_or_changed(void **state)
{
	struct redact *r = redact_new();
	cleanup_free char *got = streamed(r, "100% \\u0041 &amp; text", 1);

	(void) state;
	assert_string_equal(got, "100% \\u0041 &amp; text");
	assert_int_equal(redact_window(r), 0);
	assert_true(redact_add(r, "", 0));
	assert_true(redact_add(r, "two\nlines", 9));
	assert_int_equal(redact_window(r), 0);
	redact_free(r);
}

/* Otherwise a peer that pauses after each byte would tell the sandbox, byte by byte, what the value is. */
static void what_is_held_does_not_depend_on_the_value(void **state)
{
	static const char *const texts[] = {"s3cr3t-tok", "s3cr3t-toX", "XXXXXXXXXX"};
	struct redact *r = with("s3cr3t-token");
	size_t held = 0;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct evbuffer *in = evbuffer_new(), *out = evbuffer_new();

		(void) evbuffer_add_printf(in, "data: line\n%s", texts[i]);
		redact_stream(r, in, out, false);
		assert_int_equal(evbuffer_get_length(out), 11); /* a whole line goes at once */
		assert_true(i == 0 || held == evbuffer_get_length(in));
		held = evbuffer_get_length(in);
		evbuffer_free(in);
		evbuffer_free(out);
	}
	redact_free(r);
}

static void header_values_are_searched_at_once(void **state)
{
	struct redact *r = with("s3cr3t-token");
	struct evbuffer *out = evbuffer_new();

	(void) state;
	redact_text(r, "Bearer s3cr3t-token, s3cr3t", 27, out);
	assert_int_equal(evbuffer_get_length(out), strlen("Bearer [redacted], s3cr3t"));
	assert_memory_equal(evbuffer_pullup(out, -1), "Bearer [redacted], s3cr3t", strlen("Bearer [redacted], s3cr3t"));
	assert_true(redact_finds(r, "x-s3cr3t-token", 14));
	assert_false(redact_finds(r, "x-s3cr3t-toke", 13));
	evbuffer_free(out);
	redact_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_value_is_found_over_every_border),
	    cmocka_unit_test(escaped_forms_are_found),
	    cmocka_unit_test(base64_is_found_at_every_alignment),
	    cmocka_unit_test(the_longer_of_two_values_wins),
	    cmocka_unit_test(without_values_nothing_is_held_or_changed),
	    cmocka_unit_test(what_is_held_does_not_depend_on_the_value),
	    cmocka_unit_test(header_values_are_searched_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
