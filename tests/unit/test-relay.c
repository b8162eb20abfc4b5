/* Streams: nothing lost, nothing reordered, backpressure, the limit at a whole character, and the caller's descriptors as they
 * were. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/relay.h"

struct world {
	int epoll;
	int source; /* write here what the sandbox says */
	int sink;   /* read here what the caller gets */
	int given;  /* the caller's descriptor */
	struct relay relay;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void) signal(SIGPIPE, SIG_IGN);
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_true(w->epoll >= 0);
	w->source = w->sink = w->given = -EBADF;
	w->relay = (struct relay){.from = ENDPOINT_CLOSED, .to = ENDPOINT_CLOSED, .ended = true};
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	relay_close(&w->relay, w->epoll, NULL);
	fd_close(&w->source);
	fd_close(&w->sink);
	fd_close(&w->given);
	fd_close(&w->epoll);
	free(w);
	return 0;
}

static struct endpoint source_pipe(struct world *w)
{
	struct endpoint from;
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	w->source = p[1];
	assert_int_equal(endpoint_own(p[0], &from), 0);
	return from;
}

static void open_pipes(struct world *w, uint64_t limit)
{
	struct endpoint from = source_pipe(w), to;
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	w->sink = p[0];
	w->given = p[1];
	assert_int_equal(fd_nonblock(w->sink), 0);
	assert_int_equal(endpoint_borrow(w->given, true, &to), 0);
	relay_init(&w->relay, from, to, limit);
}

static void say(struct world *w, const char *text, size_t size)
{
	assert_int_equal(fd_write_all(w->source, text, size), 0);
}

static void end_source(struct world *w)
{
	fd_close(&w->source);
}

static struct stream_result finish(struct world *w)
{
	struct stream_result result = {0};

	while (relay_step(&w->relay, w->epoll))
		;
	relay_close(&w->relay, w->epoll, &result);
	return result;
}

static size_t hear(struct world *w, char *buf, size_t size)
{
	ssize_t n = read(w->sink, buf, size);

	return n < 0 ? 0 : (size_t) n;
}

static void bytes_pass_at_once_and_unchanged(void **state)
{
	static const char bytes[] = "A\xff\xfe"
				    "B\0C\n";
	struct world *w = *state;
	struct stream_result r;
	char buf[64];

	open_pipes(w, ZW_UNLIMITED);
	say(w, bytes, sizeof bytes - 1);
	assert_true(relay_step(&w->relay, w->epoll));
	assert_int_equal(hear(w, buf, sizeof buf), sizeof bytes - 1);
	assert_memory_equal(buf, bytes, sizeof bytes - 1);
	end_source(w);
	r = finish(w);
	assert_int_equal(r.bytes, sizeof bytes - 1);
	assert_int_equal(r.dropped, 0);
}

static void a_reader_that_does_not_read_holds_the_source(void **state)
{
	struct world *w = *state;
	cleanup_free char *big = xcalloc(1, 65536);
	char buf[65536];
	size_t heard = 0, said = 0;

	open_pipes(w, ZW_UNLIMITED);
	assert_int_equal(fd_nonblock(w->source), 0);
	for (int i = 0; i < 64; i++) {
		ssize_t n = write(w->source, big, 65536);

		said += n > 0 ? (size_t) n : 0;
		(void) relay_step(&w->relay, w->epoll);
	}
	/* Two pipes and one chunk are full. */
	assert_true(said <= 3 * 65536);
	assert_false(relay_step(&w->relay, w->epoll));
	assert_int_equal(relay_watch(&w->relay, w->epoll, 0), 0);
	assert_int_equal(w->relay.from.watched, 0);
	assert_int_equal(w->relay.to.watched, EPOLLOUT);
	end_source(w);
	for (;;) {
		size_t n = hear(w, buf, sizeof buf);

		heard += n;
		if (!relay_step(&w->relay, w->epoll) && n == 0)
			break;
	}
	assert_int_equal(heard, said);
	assert_true(relay_done(&w->relay));
}

static void a_reader_that_goes_away_closes_the_source(void **state)
{
	struct world *w = *state;
	struct stream_result r;

	open_pipes(w, ZW_UNLIMITED);
	fd_close(&w->sink);
	say(w, "x", 1);
	assert_true(relay_step(&w->relay, w->epoll));
	assert_true(relay_done(&w->relay));
	assert_int_equal(write(w->source, "y", 1), -1);
	assert_int_equal(errno, EPIPE);
	r = finish(w);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.dropped, 1);
}

static void a_full_disk_is_told(void **state)
{
	struct world *w = *state;
	struct endpoint from = source_pipe(w), to;
	struct stream_result r;

	w->given = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(w->given >= 0);
	assert_int_equal(endpoint_borrow(w->given, true, &to), 0);
	relay_init(&w->relay, from, to, ZW_UNLIMITED);
	say(w, "abc", 3);
	(void) relay_step(&w->relay, w->epoll);
	r = finish(w);
	assert_int_equal(r.error, ENOSPC);
	assert_int_equal(r.dropped, 3);
}

static void flags_of_the_caller_stay(void **state)
{
	struct world *w = *state;
	int pair[2];
	struct endpoint e;

	open_pipes(w, ZW_UNLIMITED);
	assert_int_equal(fcntl(w->given, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(w->relay.to.kind, ENDPOINT_OWN);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(endpoint_borrow(pair[0], true, &e), 0);
	assert_int_equal(e.kind, ENDPOINT_SOCKET);
	assert_int_equal(fcntl(pair[0], F_GETFL) & O_NONBLOCK, 0);
	endpoint_close(&e, w->epoll);
	(void) close(pair[0]);
	(void) close(pair[1]);
}

static void over_the_limit_is_dropped_and_counted(void **state)
{
	struct world *w = *state;
	struct stream_result r;
	char buf[64];

	open_pipes(w, 10);
	say(w, "0123456", 7);
	(void) relay_step(&w->relay, w->epoll);
	say(w, "789abcdef", 9);
	(void) relay_step(&w->relay, w->epoll);
	say(w, "more", 4);
	(void) relay_step(&w->relay, w->epoll);
	end_source(w);
	r = finish(w);
	assert_int_equal(hear(w, buf, sizeof buf), 10);
	assert_memory_equal(buf, "0123456789", 10);
	assert_int_equal(r.bytes, 20);
	assert_int_equal(r.dropped, 10);
}

/* Each split of the text over two writes, each limit: what arrives is whole characters, as many as fit. */
static void the_limit_never_cuts_a_character(void **state)
{
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xc3\xa9";
	static const size_t borders[] = {0, 1, 3, 6, 10, 11, 13};
	const size_t size = sizeof text - 1;
	struct world *w = *state;

	for (size_t limit = 0; limit <= size + 1; limit++)
		for (size_t split = 0; split <= size; split++) {
			struct stream_result r;
			size_t want = 0;
			char buf[64];

			for (size_t i = 0; i < ARRAY_SIZE(borders); i++)
				if (borders[i] <= limit)
					want = borders[i];
			open_pipes(w, limit);
			if (split > 0)
				say(w, text, split);
			(void) relay_step(&w->relay, w->epoll);
			if (split < size)
				say(w, text + split, size - split);
			(void) relay_step(&w->relay, w->epoll);
			end_source(w);
			r = finish(w);
			assert_int_equal(hear(w, buf, sizeof buf), want);
			assert_memory_equal(buf, text, want);
			assert_int_equal(r.bytes, size);
			assert_int_equal(r.dropped, size - want);
			fd_close(&w->sink);
			fd_close(&w->given);
		}
}

static void a_character_never_finished_is_handed_on_at_the_end(void **state)
{
	struct world *w = *state;
	struct stream_result r;
	char buf[64];

	open_pipes(w, 4);
	say(w, "ab\xe2\x82", 4);
	(void) relay_step(&w->relay, w->epoll);
	assert_int_equal(hear(w, buf, sizeof buf), 2);
	end_source(w);
	r = finish(w);
	assert_int_equal(hear(w, buf, sizeof buf), 2);
	assert_memory_equal(buf, "\xe2\x82", 2);
	assert_int_equal(r.dropped, 0);
}

static struct stream_result capture(size_t limit, const char *text, size_t size, size_t step)
{
	struct capture c = {.limit = limit};
	struct stream_result r = {0};

	for (size_t at = 0; at < size; at += step)
		capture_add(&c, text + at, size - at < step ? size - at : step);
	capture_finish(&c, &r);
	return r;
}

static void a_capture_keeps_all_up_to_the_limit(void **state)
{
	struct stream_result r = capture(10, "0123456789", 10, 3);

	(void) state;
	assert_int_equal(r.text.size, 10);
	assert_memory_equal(r.text.data, "0123456789", 10);
	assert_int_equal(r.dropped, 0);
	buf_done(&r.text);
	r = capture(10, "", 0, 1);
	assert_int_equal(r.text.size, 0);
	buf_done(&r.text);
	r = capture(0, "abc", 3, 1);
	assert_int_equal(r.text.size, 0);
	assert_int_equal(r.dropped, 3);
	buf_done(&r.text);
}

static void a_capture_keeps_head_and_tail_whatever_the_steps(void **state)
{
	char text[1000];

	(void) state;
	for (size_t i = 0; i < sizeof text; i++)
		text[i] = (char) ('a' + i % 26);
	for (size_t limit = 1; limit < 40; limit++)
		for (size_t step = 1; step < 60; step += 7) {
			struct stream_result r = capture(limit, text, sizeof text, step);
			size_t head = limit / 2, tail = limit - head;

			assert_int_equal(r.bytes, sizeof text);
			assert_int_equal(r.head, head);
			assert_int_equal(r.text.size, limit);
			assert_int_equal(r.dropped, sizeof text - limit);
			assert_memory_equal(r.text.data, text, head);
			assert_memory_equal(r.text.data + head, text + sizeof text - tail, tail);
			buf_done(&r.text);
		}
}

static void a_capture_is_cut_at_whole_characters(void **state)
{
	char text[600];

	(void) state;
	for (size_t i = 0; i < sizeof text; i += 3)
		memcpy(text + i, "\xe2\x82\xac", 3);
	for (size_t limit = 6; limit < 60; limit++) {
		struct stream_result r = capture(limit, text, sizeof text, 11);

		assert_int_equal(r.head % 3, 0);
		assert_int_equal(r.text.size % 3, 0);
		assert_true(r.text.size + 4 >= limit);
		assert_int_equal(r.dropped, sizeof text - r.text.size);
		buf_done(&r.text);
	}
}

static void a_file_as_input_is_pumped_as_the_other_end_takes_it(void **state)
{
	struct world *w = *state;
	char name[] = "/tmp/zw-test-relay-XXXXXX", buf[65536];
	struct endpoint from, to;
	size_t heard = 0;
	int p[2], file = mkostemp(name, O_CLOEXEC);

	assert_true(file >= 0);
	(void) unlink(name);
	assert_int_equal(ftruncate(file, 1 << 20), 0);
	assert_int_equal(endpoint_borrow(file, false, &from), 0);
	assert_int_equal(from.kind, ENDPOINT_FILE);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	w->sink = p[0];
	assert_int_equal(fd_nonblock(w->sink), 0);
	assert_int_equal(endpoint_own(p[1], &to), 0);
	relay_init(&w->relay, from, to, ZW_UNLIMITED);
	assert_int_equal(relay_watch(&w->relay, w->epoll, 0), 0);
	assert_int_equal(w->relay.to.watched, EPOLLOUT);
	while (!relay_done(&w->relay)) {
		(void) relay_step(&w->relay, w->epoll);
		heard += hear(w, buf, sizeof buf);
	}
	heard += hear(w, buf, sizeof buf);
	assert_int_equal(heard, 1 << 20);
	(void) close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(bytes_pass_at_once_and_unchanged, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_reader_that_does_not_read_holds_the_source, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_reader_that_goes_away_closes_the_source, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_full_disk_is_told, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(flags_of_the_caller_stay, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(over_the_limit_is_dropped_and_counted, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_limit_never_cuts_a_character, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_character_never_finished_is_handed_on_at_the_end, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_file_as_input_is_pumped_as_the_other_end_takes_it, set_up, tear_down),
	    cmocka_unit_test(a_capture_keeps_all_up_to_the_limit),
	    cmocka_unit_test(a_capture_keeps_head_and_tail_whatever_the_steps),
	    cmocka_unit_test(a_capture_is_cut_at_whole_characters),
	};

	return cmocka_run_group_tests_name("relay", tests, NULL, NULL);
}
