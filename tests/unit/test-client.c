/* What a client makes of a daemon's bytes: events in pieces, output, ends. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "client/exec-output.h"
#include "client/sse-in.h"

enum { LINE_MOST = 64 };

struct seen {
	struct buf text;
	int stop_after; /* 0: never */
};

static int note(void *ctx, const char *event, const char *data, size_t size)
{
	struct seen *s = ctx;

	assert_int_equal(data[size], 0);
	(void) buf_addf(&s->text, "<%s|", event);
	(void) buf_add(&s->text, data, size);
	(void) buf_adds(&s->text, ">");
	return s->stop_after > 0 && --s->stop_after == 0 ? 7 : 0;
}

static void expect(const char *stream, const char *events, const char *id)
{
	size_t size = strlen(stream);

	for (size_t piece = 1; piece <= size; piece++) {
		struct seen seen = {.text = buf_new(4096)};
		struct sse_in s;

		sse_in_init(&s, LINE_MOST, note, &seen);
		for (size_t at = 0; at < size; at += piece)
			assert_int_equal(sse_in_take(&s, stream + at, piece < size - at ? piece : size - at), 0);
		assert_string_equal(seen.text.data != NULL ? seen.text.data : "", events);
		assert_string_equal(s.id, id);
		sse_in_done(&s);
		buf_done(&seen.text);
	}
}

static void events_come_in_any_pieces(void **state)
{
	(void) state;
	expect("id: 7\nevent: stdout\ndata: {\"text\":\"a\"}\n\n", "<stdout|{\"text\":\"a\"}>", "7");
	expect("event:a\rdata:1\r\rdata:2\r\n\r\n", "<a|1><message|2>", "");
	expect(": comment\n\ndata: one\ndata:  two\n\n", "<message|one\n two>", "");
	expect("id: 1\ndata: x\n\nid: 2\n\n", "<message|x>", "2");
	expect("data\n\nnonsense\nretry: 5\n\n", "<message|>", "");
	expect("id: 1\ndata: whole\n\nid: 2\ndata: half\n", "<message|whole>", "1");
}

static void an_event_without_end_is_left(void **state)
{
	char line[LINE_MOST + 8];
	struct seen seen = {.text = buf_new(4096)};
	struct sse_in s;
	int r = 0;

	(void) state;
	memset(line, 'x', sizeof line);
	sse_in_init(&s, LINE_MOST, note, &seen);
	assert_int_equal(sse_in_take(&s, line, sizeof line), -E2BIG);
	sse_in_done(&s);
	sse_in_init(&s, LINE_MOST, note, &seen);
	for (int i = 0; i < LINE_MOST && r == 0; i++)
		r = sse_in_take(&s, "data: 0123456789\n", 17);
	assert_int_equal(r, -E2BIG);
	assert_true(s.data.size <= LINE_MOST);
	sse_in_done(&s);
	buf_done(&seen.text);
}

static void a_new_connection_forgets_the_half_and_keeps_the_id(void **state)
{
	struct seen seen = {.text = buf_new(4096), .stop_after = 2};
	struct sse_in s;
	static const char first[] = "id: 5\ndata: a\n\nid: 6\nevent: e\ndata: ha", second[] = "data: b\n\ndata: c\n\n";

	(void) state;
	sse_in_init(&s, LINE_MOST, note, &seen);
	assert_int_equal(sse_in_take(&s, first, strlen(first)), 0);
	sse_in_again(&s);
	assert_string_equal(s.id, "5");
	assert_int_equal(sse_in_take(&s, second, strlen(second)), 7);
	assert_string_equal(seen.text.data, "<message|a><message|b>");
	sse_in_done(&s);
	buf_done(&seen.text);
}

static void output(const char *stream, int result, const char *out, const char *err)
{
	struct exec_output o;

	exec_output_init(&o, false);
	assert_int_equal(sse_in_take(&o.sse, stream, strlen(stream)), result);
	assert_int_equal(o.streams[0].waiting.size, strlen(out));
	assert_memory_equal(o.streams[0].waiting.data != NULL ? o.streams[0].waiting.data : "", out, strlen(out));
	assert_int_equal(o.streams[1].waiting.size, strlen(err));
	assert_memory_equal(o.streams[1].waiting.data != NULL ? o.streams[1].waiting.data : "", err, strlen(err));
	assert_int_equal(o.fault != NULL, result < 0);
	exec_output_done(&o);
}

static void output_is_decoded_or_refused(void **state)
{
	(void) state;
	output("event: stdout\ndata: {\"text\":\"a\\u00e9\"}\n\nevent: stderr\ndata: {\"base64\":\"/w==\"}\n\n", 0, "a\xc3\xa9",
	       "\xff");
	output("event: tty\ndata: {\"text\":\"x\",\"more\":1}\n\nevent: other\ndata: {\n\n", 0, "x", "");
	output("event: stdout\ndata: {\"other\":1}\n\nevent: exit\ndata: {\"exit_code\":3}\n\n", 0, "", "");
	output("event: stdout\ndata: {\"base64\":\"!\"}\n\n", -EBADMSG, "", "");
	output("event: stdout\ndata: [1]\n\n", -EBADMSG, "", "");
	output("event: stdout\ndata: {\"text\":\"a\",\"text\":\"b\"}\n\n", -EBADMSG, "", "");
	output("event: exit\ndata: nothing\n\n", -EBADMSG, "", "");
}

static void status(const char *text, int expected)
{
	json_t *process = json_loads(text, 0, NULL);

	assert_non_null(process);
	assert_int_equal(exec_output_status(process), expected);
	json_decref(process);
}

static void ends_become_an_exit_status(void **state)
{
	(void) state;
	status("{\"status\":\"exited\",\"exit_code\":3}", 3);
	status("{\"status\":\"signaled\",\"exit_code\":null,\"signal\":15}", 143);
	status("{\"status\":\"timeout\",\"signal\":9}", 124);
	status("{\"status\":\"out_of_memory\",\"signal\":9}", 137);
	status("{\"status\":\"output_limit\"}", 122);
	status("{\"status\":\"canceled\"}", 137);
	status("{\"exit_code\":256}", 137);
	status("{\"exit_code\":-1,\"signal\":\"9\"}", 137);
	status("{}", 137);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(events_come_in_any_pieces),
	    cmocka_unit_test(an_event_without_end_is_left),
	    cmocka_unit_test(a_new_connection_forgets_the_half_and_keeps_the_id),
	    cmocka_unit_test(output_is_decoded_or_refused),
	    cmocka_unit_test(ends_become_an_exit_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
