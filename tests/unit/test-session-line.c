/* The supervisor's end of the line to the daemon. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/session-line.h"

struct ends {
	struct session_line line;
	int daemon;
};

static void open_ends(struct ends *e)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(session_line_open(&e->line, fds[0]), 0);
	assert_int_equal(fd_nonblock(fds[1]), 0);
	e->daemon = fds[1];
}

static void close_ends(struct ends *e)
{
	session_line_close(&e->line);
	fd_close(&e->daemon);
}

/* The next message as the daemon gets it, NULL when there is none. */
static json_t *read_daemon(const struct ends *e, int *ret_fd)
{
	cleanup_free char *text = xcalloc(1, SESSION_MESSAGE_MAX + 1);
	size_t room = 1;
	ssize_t n;

	*ret_fd = -EBADF;
	n = fd_recv(e->daemon, text, SESSION_MESSAGE_MAX + 1, ret_fd, &room);
	assert_true(n <= SESSION_MESSAGE_MAX);
	return n > 0 ? json_loadb(text, (size_t) n, 0, NULL) : NULL;
}

static void a_message_is_taken_with_its_descriptors(void **state)
{
	static const char text[] = "{\"t\":\"start\",\"id\":3}";
	int fds[SESSION_FDS_MAX], sent[2] = {0, 1};
	json_t *m = NULL;
	struct ends e;
	size_t count;

	(void) state;
	open_ends(&e);
	assert_int_equal(session_line_receive(&e.line, &m, fds, &count), 0);
	assert_int_equal(fd_send(e.daemon, text, strlen(text), sent, 2), 0);
	assert_int_equal(session_line_receive(&e.line, &m, fds, &count), 1);
	assert_int_equal(count, 2);
	assert_int_equal(json_integer_value(json_object_get(m, "id")), 3);
	json_decref(m);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	fd_close(&e.daemon);
	assert_int_equal(session_line_receive(&e.line, &m, fds, &count), -EPIPE);
	close_ends(&e);
}

static void what_is_no_message_is_told_apart(void **state)
{
	static const char *const bad[] = {
	    "{", "[]", "1", "\"text\"", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}", "{\"a\":\"\\u0000\"}", "{} {}"};
	int fds[SESSION_FDS_MAX], zero = 0;
	struct ends e;
	size_t count;

	(void) state;
	open_ends(&e);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		json_t *m = NULL;

		assert_int_equal(fd_send(e.daemon, bad[i], strlen(bad[i]), &zero, 1), 0);
		assert_int_equal(session_line_receive(&e.line, &m, fds, &count), -EPROTO);
	}
	close_ends(&e);
}

static void answers_wait_for_a_slow_daemon_and_events_are_dropped(void **state)
{
	cleanup_free char *pad = xcalloc(1, 10001);
	unsigned answers = 0, events = 0;
	json_int_t lost = 0;
	struct ends e;
	int fd;

	(void) state;
	memset(pad, 'x', 10000);
	open_ends(&e);
	for (int i = 0; i < 300; i++)
		session_line_tell(&e.line, json_pack("{ss ss}", "t", "event", "pad", pad));
	assert_true(e.line.lost > 0);
	assert_true(e.line.bytes < 512U * 1024);
	for (int i = 0; i < 50; i++)
		session_line_send(&e.line, json_pack("{ss si}", "t", "done", "id", i), NULL);
	assert_false(session_line_is_idle(&e.line));
	for (;;) {
		json_t *m = read_daemon(&e, &fd);
		const char *type = json_string_value(json_object_get(m, "t"));

		if (m == NULL)
			break;
		if (strcmp(type, "done") == 0)
			assert_int_equal(json_integer_value(json_object_get(m, "id")), answers++);
		else
			events++;
		json_decref(m);
		session_line_flush(&e.line);
	}
	assert_int_equal(answers, 50);
	assert_true(events > 10 && events < 300);
	session_line_tell(&e.line, json_pack("{ss}", "t", "event"));
	for (json_t *m = read_daemon(&e, &fd); m != NULL; m = read_daemon(&e, &fd)) {
		lost += json_integer_value(json_object_get(m, "count"));
		json_decref(m);
	}
	assert_int_equal(events + lost, 300);
	close_ends(&e);
}

static void requests_wait_while_answers_do(void **state)
{
	cleanup_free char *pad = xcalloc(1, 100001);
	int fds[SESSION_FDS_MAX];
	json_t *m = NULL;
	struct ends e;
	size_t count;

	(void) state;
	memset(pad, 'x', 100000);
	open_ends(&e);
	for (int i = 0; i < 20; i++)
		session_line_send(&e.line, json_pack("{ss}", "pad", pad), NULL);
	assert_int_equal(fd_send(e.daemon, "{}", 2, NULL, 0), 0);
	assert_int_equal(session_line_receive(&e.line, &m, fds, &count), 0);
	assert_null(m);
	close_ends(&e);
}

static void a_message_that_is_too_long_is_shortened_and_says_so(void **state)
{
	json_t *list = json_array(), *m;
	struct ends e;
	int fd;

	(void) state;
	open_ends(&e);
	for (int i = 0; i < 5000; i++)
		(void) json_array_append_new(list, json_string("a denial of something with a name that is not short at all"));
	session_line_send(&e.line, json_pack("{ss so s[i]}", "t", "ended", "denials", list, "files", 1), NULL);
	m = read_daemon(&e, &fd);
	assert_non_null(m);
	assert_true(json_is_true(json_object_get(m, "shortened")));
	assert_true(json_array_size(json_object_get(m, "denials")) > 1000);
	assert_int_equal(json_array_size(json_object_get(m, "files")), 1);
	json_decref(m);
	close_ends(&e);
}

static void a_descriptor_goes_along_and_is_ours_no_more(void **state)
{
	int fds[2], fd;
	struct ends e;
	json_t *m;

	(void) state;
	open_ends(&e);
	assert_int_equal(pipe(fds), 0);
	session_line_send(&e.line, json_pack("{ss}", "t", "started"), &fds[1]);
	assert_int_equal(fds[1], -EBADF);
	m = read_daemon(&e, &fd);
	assert_non_null(m);
	json_decref(m);
	assert_int_equal(write(fd, "x", 1), 1);
	fd_close(&fd);
	assert_int_equal(pipe(fds + 0), 0);
	fd_close(&e.daemon);
	session_line_send(&e.line, json_pack("{ss}", "t", "started"), &fds[1]); /* nobody is there */
	assert_int_equal(fds[1], -EBADF);
	fd_close(&fds[0]);
	assert_true(session_line_is_idle(&e.line));
	close_ends(&e);
}

/* One that is killed has read nothing of the last, and its own last word counts. */
static void the_last_words_of_a_daemon_are_read(void **state)
{
	int fds[SESSION_FDS_MAX];
	json_t *m = NULL;
	struct ends e;
	size_t count;

	(void) state;
	open_ends(&e);
	session_line_send(&e.line, json_pack("{ss}", "t", "unread"), NULL);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fd_send(e.daemon, "{\"id\":1}", 8, NULL, 0), 0);
	fd_close(&e.daemon);
	session_line_send(&e.line, json_pack("{ss}", "t", "for nobody"), NULL);
	assert_true(session_line_is_idle(&e.line));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(session_line_receive(&e.line, &m, fds, &count), 1);
		json_decref(m);
		session_line_send(&e.line, json_pack("{ss}", "t", "for nobody"), NULL);
	}
	assert_int_equal(session_line_receive(&e.line, &m, fds, &count), -EPIPE);
	close_ends(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_message_is_taken_with_its_descriptors),
	    cmocka_unit_test(what_is_no_message_is_told_apart),
	    cmocka_unit_test(answers_wait_for_a_slow_daemon_and_events_are_dropped),
	    cmocka_unit_test(requests_wait_while_answers_do),
	    cmocka_unit_test(a_message_that_is_too_long_is_shortened_and_says_so),
	    cmocka_unit_test(a_descriptor_goes_along_and_is_ours_no_more),
	    cmocka_unit_test(the_last_words_of_a_daemon_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
