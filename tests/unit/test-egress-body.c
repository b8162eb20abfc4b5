/* Bodies: the framing comes off exactly, in whatever pieces the bytes arrive, and what is not framing is refused. */
#include <errno.h>
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/body.h"
#include "egress/inflate.h"

struct world {
	struct evbuffer *in, *out;
	struct body body;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->in = evbuffer_new();
	w->out = evbuffer_new();
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	evbuffer_free(w->in);
	evbuffer_free(w->out);
	free(w);
	return 0;
}

static void empty(struct world *w)
{
	(void) evbuffer_drain(w->in, evbuffer_get_length(w->in));
	(void) evbuffer_drain(w->out, evbuffer_get_length(w->out));
}

static void assert_holds(struct evbuffer *b, const char *text)
{
	assert_int_equal(evbuffer_get_length(b), strlen(text));
	if (text[0] != '\0')
		assert_memory_equal(evbuffer_pullup(b, -1), text, strlen(text));
}

/* Gives the body `step` bytes at a time. */
static int feed(struct world *w, const char *text, size_t size, size_t step)
{
	int r = 0;

	for (size_t at = 0; at < size && r == 0 && !w->body.done; at += step) {
		(void) evbuffer_add(w->in, text + at, size - at < step ? size - at : step);
		r = body_take(&w->body, w->in, w->out, SIZE_MAX);
	}
	return r;
}

static void chunks_come_off_in_any_pieces(void **state)
{
	static const char text[] =
	    "5\r\nhello\r\n006;x=\"y\"\r\n world\r\nA  \r\n0123456789\r\n0\r\nX-Trailer: t\r\nY: z\r\n\r\n";
	struct world *w = *state;

	for (size_t step = 1; step < sizeof text; step++) {
		empty(w);
		body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
		assert_int_equal(feed(w, text, sizeof text - 1, step), 0);
		assert_true(w->body.done);
		assert_holds(w->out, "hello world0123456789");
		assert_holds(w->in, "");
	}
}

static void what_follows_a_body_is_left(void **state)
{
	struct world *w = *state;

	body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
	assert_int_equal(feed(w, "1\r\na\r\n0\r\n\r\nGET /", 16, 16), 0);
	assert_true(w->body.done);
	assert_holds(w->in, "GET /");
	empty(w);
	body_begin(&w->body, BODY_LENGTH, 3, ZW_UNLIMITED);
	assert_int_equal(feed(w, "abcdef", 6, 6), 0);
	assert_true(w->body.done);
	assert_holds(w->in, "def");
	assert_holds(w->out, "abc");
}

static void loose_chunks_are_refused(void **state)
{
	static const char *const table[] = {
	    "\r\n",
	    "g\r\n",
	    " 1\r\na\r\n",
	    "0x1\r\na\r\n",
	    "-1\r\na\r\n",
	    "+1\r\na\r\n",
	    "1\na\r\n",
	    "1\r\na\n0\r\n\r\n",
	    "1\r\nab\r\n",
	    "1\r\na0\r\n\r\n",
	    "1\r\na\r\r\n",
	    "1;a\nb\r\na\r\n",
	    "1;a\rb\r\na\r\n",
	    "1;\x01\r\na\r\n",
	    "1000000000000000\r\n",
	    "0\r\nX: y\nZ: a\r\n\r\n",
	    "0\r\nX\r: y\r\n\r\n",
	    "0\r\n\rX",
	    "0\r\nX: \x01\r\n\r\n",
	    ";a\r\n",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		empty(w);
		body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
		if (feed(w, table[i], strlen(table[i]), SIZE_MAX / 2) != -EBADMSG)
			fail_msg("not refused: %s", table[i]);
	}
}

static void extensions_and_trailers_are_bounded(void **state)
{
	struct world *w = *state;
	char text[10000];

	memset(text, 'a', sizeof text);
	body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
	assert_int_equal(feed(w, "1;", 2, 2), 0);
	assert_int_equal(feed(w, text, sizeof text, 100), -EBADMSG);
	empty(w);
	body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
	assert_int_equal(feed(w, "0\r\n", 3, 3), 0);
	assert_int_equal(feed(w, text, sizeof text, 100), -EBADMSG);
}

static void no_more_than_the_maximum_is_let_through(void **state)
{
	struct world *w = *state;

	body_begin(&w->body, BODY_CHUNKED, 0, 4);
	assert_int_equal(feed(w, "3\r\nabc\r\n3\r\ndef\r\n", 16, 16), -E2BIG);
	assert_holds(w->out, "abcd");
	empty(w);
	body_begin(&w->body, BODY_CHUNKED, 0, 3);
	assert_int_equal(feed(w, "3\r\nabc\r\n0\r\n\r\n", 13, 13), 0);
	assert_true(w->body.done);
}

static void no_more_than_the_room_is_moved(void **state)
{
	struct world *w = *state;

	(void) evbuffer_add(w->in, "3\r\nabc\r\n3\r\ndef\r\n", 16);
	body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
	assert_int_equal(body_take(&w->body, w->in, w->out, 2), 0);
	assert_holds(w->out, "ab");
	assert_int_equal(body_take(&w->body, w->in, w->out, 2), 0);
	assert_holds(w->out, "abcd");
}

static void only_an_open_body_ends_with_the_connection(void **state)
{
	struct world *w = *state;

	body_begin(&w->body, BODY_UNTIL_CLOSE, 0, ZW_UNLIMITED);
	assert_int_equal(feed(w, "abc", 3, 1), 0);
	assert_false(w->body.done);
	assert_int_equal(body_end(&w->body), 0);
	assert_true(w->body.done);
	body_begin(&w->body, BODY_LENGTH, 3, ZW_UNLIMITED);
	assert_int_equal(feed(w, "ab", 2, 1), 0);
	assert_int_equal(body_end(&w->body), -EPIPE);
	body_begin(&w->body, BODY_CHUNKED, 0, ZW_UNLIMITED);
	assert_int_equal(feed(w, "1\r\na\r\n0\r\n", 9, 1), 0);
	assert_int_equal(body_end(&w->body), -EPIPE);
}

static void what_is_written_is_ours(void **state)
{
	struct world *w = *state;

	(void) evbuffer_add(w->in, "0123456789abcdefg", 17);
	body_put(BODY_CHUNKED, w->in, w->out);
	body_put(BODY_CHUNKED, w->in, w->out); /* nothing there: no last chunk by accident */
	body_put_end(BODY_CHUNKED, w->out);
	assert_holds(w->out, "11\r\n0123456789abcdefg\r\n0\r\n\r\n");
	assert_int_equal(evbuffer_get_length(w->in), 0);
}

/* ---- Content encodings. ---- */

static size_t pack(const void *data, size_t size, void *packed, size_t room, int window)
{
	z_stream z = {0};

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *) (uintptr_t) data;
	z.avail_in = (uInt) size;
	z.next_out = packed;
	z.avail_out = (uInt) room;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	(void) deflateEnd(&z);
	return room - z.avail_out;
}

static void both_encodings_come_off(void **state)
{
	static const int windows[] = {15, 15 + 16};
	struct world *w = *state;
	char packed[200];

	for (size_t i = 0; i < ARRAY_SIZE(windows); i++) {
		struct inflate *z = inflate_new();
		size_t size = pack("hello hello hello", 17, packed, sizeof packed, windows[i]);
		int r = 0;

		empty(w);
		for (size_t at = 0; at < size; at++) {
			assert_int_equal(r, 0);
			(void) evbuffer_add(w->in, packed + at, 1);
			r = inflate_take(z, w->in, w->out, 100);
		}
		assert_int_equal(r, 1);
		assert_holds(w->out, "hello hello hello");
		inflate_free(z);
	}
}

static void a_bomb_is_not_let_off(void **state)
{
	struct world *w = *state;
	size_t size = 32 * 1024 * 1024, given = 0;
	cleanup_free char *zeros = xcalloc(size, 1);
	cleanup_free char *packed = xcalloc(100 * 1024, 1);
	struct inflate *z = inflate_new();
	int r = 0;

	(void) evbuffer_add(w->in, packed, pack(zeros, size, packed, 100 * 1024, 15 + 16));
	while (r == 0) {
		r = inflate_take(z, w->in, w->out, 1000);
		assert_true(evbuffer_get_length(w->out) <= 1000 + 16 * 1024);
		given += evbuffer_get_length(w->out);
		(void) evbuffer_drain(w->out, evbuffer_get_length(w->out));
	}
	assert_int_equal(r, -E2BIG);
	assert_true(given < size / 4);
	inflate_free(z);
}

static void what_is_no_encoding_is_refused(void **state)
{
	struct world *w = *state;
	struct inflate *z = inflate_new();

	(void) evbuffer_add(w->in, "hello", 5);
	assert_int_equal(inflate_take(z, w->in, w->out, 100), -EBADMSG);
	inflate_free(z);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(chunks_come_off_in_any_pieces, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_follows_a_body_is_left, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(loose_chunks_are_refused, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(extensions_and_trailers_are_bounded, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(no_more_than_the_maximum_is_let_through, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(no_more_than_the_room_is_moved, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(only_an_open_body_ends_with_the_connection, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_written_is_ours, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(both_encodings_come_off, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_bomb_is_not_let_off, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_no_encoding_is_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
