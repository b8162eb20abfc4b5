/* Moving bytes: nothing lost, nothing reordered, ends and resets passed on, and memory not a matter of who reads slowly. Dialling
 * is this file; the sockets are TCP on the loopback device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/dial.h"
#include "egress/pipes.h"
#include "egress/quota.h"

enum { CHUNK = 64 * 1024, PATIENCE_USEC = 10000000 };

struct control {
	size_t limits;
};

struct refusal;
void control_refusal(struct control *c, const struct refusal *r);
void control_limit(struct control *c, const char *which, bool kill);
void control_usage(struct control *c, uint64_t sent, uint64_t received);

void control_refusal(struct control *c, const struct refusal *r)
{
	(void) c, (void) r;
}

void control_limit(struct control *c, const char *which, bool kill)
{
	(void) which, (void) kill;
	c->limits++;
}

void control_usage(struct control *c, uint64_t sent, uint64_t received)
{
	(void) c, (void) sent, (void) received;
}

/* What a closed flow had. */
struct closed {
	bool yes;
	uint64_t sent, received;
	char error[120];
};

struct dial {
	void (*done)(void *ctx, int fd);
	void *ctx;
};

struct world {
	struct broker broker; /* first: flows lead back here */
	struct network network;
	struct control control;
	struct dial dial;
	struct closed closed;
	int client, server;           /* what the test holds */
	int near_client, near_server; /* the relay's ends */
	size_t descriptors;
};

void flow_close(struct flow *f)
{
	struct world *w = (struct world *) (void *) f->broker;

	w->closed = (struct closed){.yes = true, .sent = f->sent, .received = f->received};
	memcpy(w->closed.error, f->error, sizeof w->closed.error);
	free(f);
}

void reset_close(int fd)
{
	const struct linger none = {.l_onoff = 1};

	if (fd < 0)
		return;
	(void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
	(void) close(fd);
}

struct dial *dial_start(struct flow *f, bool udp, void (*done)(void *ctx, int fd), void *ctx)
{
	struct world *w = (struct world *) (void *) f->broker;

	assert_false(udp);
	w->dial = (struct dial){.done = done, .ctx = ctx};
	return &w->dial;
}

void dial_cancel(struct dial *d)
{
	d->done = NULL;
}

static size_t count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t count = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		count++;
	(void) closedir(d);
	return count;
}

/* A connection through the loopback device; both ends are non-blocking. */
static void connect_pair(int *ret_a, int *ret_b)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t size = sizeof sa;
	cleanup_fd int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(listener, (struct sockaddr *) &sa, sizeof sa), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *) &sa, &size), 0);
	*ret_a = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(*ret_a, (struct sockaddr *) &sa, size), 0);
	*ret_b = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(*ret_b >= 0);
	assert_int_equal(fd_nonblock(*ret_a), 0);
}

static int set_up(void **state)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct world *w = xcalloc(1, sizeof *w);

	(void) sigaction(SIGPIPE, &ignore, NULL);
	w->descriptors = count_descriptors();
	w->network.limits.bytes_out = w->network.limits.bytes_in = w->network.limits.requests = ZW_UNLIMITED;
	w->network.limits.connections = w->network.limits.rate = ZW_UNLIMITED;
	w->broker.network = &w->network;
	w->broker.control = &w->control;
	w->broker.base = event_base_new();
	w->broker.quota = quota_new(&w->broker);
	w->broker.pipes = pipes_new();
	connect_pair(&w->client, &w->near_client);
	connect_pair(&w->server, &w->near_server);
	*state = w;
	return 0;
}

static void turn(struct world *w)
{
	assert_true(event_base_loop(w->broker.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

static void until_closed(struct world *w)
{
	usec_t end = now_monotonic() + PATIENCE_USEC;

	while (!w->closed.yes && now_monotonic() < end)
		turn(w);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	fd_close(&w->client);
	fd_close(&w->server);
	until_closed(w);
	quota_free(w->broker.quota);
	pipes_free(w->broker.pipes);
	event_base_free(w->broker.base);
	assert_true(w->closed.yes);
	assert_int_equal(count_descriptors(), w->descriptors); /* none was lost */
	free(w);
	return 0;
}

static struct flow *make_flow(struct world *w)
{
	struct flow *f = xcalloc(1, sizeof *f);

	f->broker = &w->broker;
	return f;
}

static void begin(struct world *w)
{
	relay_pair(make_flow(w), w->near_client, w->near_server, NULL, 0);
}

/* Reads exactly `size` bytes while the loop turns; -1 as their count stands for an error, which is returned. */
static int receive(struct world *w, int fd, void *buf, size_t size)
{
	usec_t end = now_monotonic() + PATIENCE_USEC;
	size_t have = 0;

	while (have < size) {
		ssize_t n = recv(fd, (char *) buf + have, size - have, 0);

		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EAGAIN)
			return -errno;
		if (n > 0)
			have += (size_t) n;
		turn(w);
		if (now_monotonic() > end)
			return -ETIMEDOUT;
	}
	return 0;
}

static void assert_receives(struct world *w, int fd, const char *text)
{
	char buf[256] = "";

	assert_int_equal(receive(w, fd, buf, strlen(text)), 0);
	assert_string_equal(buf, text);
}

static void assert_sends(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t) strlen(text));
}

static void test_bytes_pass_both_ways_and_are_counted(void **state)
{
	struct world *w = *state;

	begin(w);
	assert_sends(w->client, "question");
	assert_receives(w, w->server, "question");
	assert_sends(w->server, "the answer");
	assert_receives(w, w->client, "the answer");
	fd_close(&w->client);
	fd_close(&w->server);
	until_closed(w);
	assert_true(w->closed.yes);
	assert_int_equal(w->closed.sent, 8);
	assert_int_equal(w->closed.received, 10);
	assert_string_equal(w->closed.error, "");
}

static void test_an_end_is_passed_on_and_the_other_way_goes_on(void **state)
{
	struct world *w = *state;
	char c;

	begin(w);
	assert_sends(w->client, "all of it");
	assert_int_equal(shutdown(w->client, SHUT_WR), 0);
	assert_receives(w, w->server, "all of it");
	assert_int_equal(receive(w, w->server, &c, 1), -EPIPE);
	for (int i = 0; i < 3; i++) {
		assert_sends(w->server, "still here");
		assert_receives(w, w->client, "still here");
	}
	assert_false(w->closed.yes);
	fd_close(&w->server);
	assert_int_equal(receive(w, w->client, &c, 1), -EPIPE);
	assert_true(w->closed.yes);
	assert_string_equal(w->closed.error, "");
}

static void test_the_tail_before_a_close_arrives(void **state)
{
	struct world *w = *state;
	char *sent = xcalloc(1, CHUNK), *got = xcalloc(1, CHUNK), c;

	begin(w);
	for (size_t i = 0; i < CHUNK; i++)
		sent[i] = (char) (i * 7);
	assert_sends(w->client, "unread by the server");
	turn(w);
	assert_int_equal(send(w->server, sent, CHUNK, MSG_NOSIGNAL), CHUNK);
	fd_close(&w->server); /* with unread bytes: the kernel sends a reset behind the data */
	assert_int_equal(receive(w, w->client, got, CHUNK), 0);
	assert_memory_equal(sent, got, CHUNK);
	assert_int_equal(receive(w, w->client, &c, 1), -ECONNRESET);
	free(sent);
	free(got);
}

static void test_a_reset_is_passed_on_as_a_reset(void **state)
{
	struct world *w = *state;
	char c;

	begin(w);
	assert_sends(w->client, "x");
	assert_receives(w, w->server, "x");
	reset_close(w->server);
	w->server = -EBADF;
	assert_int_equal(receive(w, w->client, &c, 1), -ECONNRESET);
	assert_string_equal(w->closed.error, "the other side: Connection reset by peer");
}

static void test_a_reset_from_inside_reaches_the_server(void **state)
{
	struct world *w = *state;
	char c;

	begin(w);
	turn(w);
	reset_close(w->client);
	w->client = -EBADF;
	assert_int_equal(receive(w, w->server, &c, 1), -ECONNRESET);
	assert_string_equal(w->closed.error, "the sandbox's side: Connection reset by peer");
}

static void test_writing_to_a_side_that_is_gone_resets_the_writer(void **state)
{
	struct world *w = *state;
	usec_t end = now_monotonic() + PATIENCE_USEC;
	ssize_t n = 0;

	begin(w);
	assert_sends(w->server, "bye");
	assert_receives(w, w->client, "bye");
	fd_close(&w->server); /* an orderly end, but nobody is there to read */
	while (n >= 0 && now_monotonic() < end) {
		n = send(w->client, "more", 4, MSG_NOSIGNAL);
		turn(w);
	}
	assert_int_equal(n, -1);
	assert_true(errno == ECONNRESET || errno == EPIPE);
}

/* As much as the kernel takes; returns how much that was. */
static size_t stuff(struct world *w, int fd, const char *data, size_t size)
{
	size_t sent = 0;

	for (int idle = 0; idle < 50;) {
		ssize_t n = send(fd, data + sent % size, size - sent % size, MSG_NOSIGNAL);

		idle = n > 0 ? 0 : idle + 1;
		sent += n > 0 ? (size_t) n : 0;
		turn(w);
	}
	return sent;
}

static void test_a_reader_that_does_not_read_stops_the_writer(void **state)
{
	struct world *w = *state;
	char *data = xcalloc(1, CHUNK), *got = xcalloc(1, CHUNK), c;
	size_t sent, received = 0;

	for (size_t i = 0; i < CHUNK; i++)
		data[i] = (char) (i * 31);
	begin(w);
	sent = stuff(w, w->client, data, CHUNK);
	assert_in_range(sent, CHUNK, (size_t) 64 << 20);
	/* The other way is not held up by it. */
	assert_sends(w->server, "meanwhile");
	assert_receives(w, w->client, "meanwhile");
	assert_int_equal(shutdown(w->client, SHUT_WR), 0);
	while (received < sent) {
		size_t size = sent - received < CHUNK ? sent - received : CHUNK;

		assert_int_equal(receive(w, w->server, got, size), 0);
		assert_memory_equal(got, data, size);
		received += size;
	}
	assert_int_equal(receive(w, w->server, &c, 1), -EPIPE);
	free(data);
	free(got);
}

static void test_idle_connections_hold_no_pipe(void **state)
{
	struct world *w = *state;
	size_t before;

	begin(w);
	before = count_descriptors();
	assert_sends(w->client, "x");
	assert_receives(w, w->server, "x");
	assert_sends(w->server, "y");
	assert_receives(w, w->client, "y");
	assert_int_equal(count_descriptors(), before); /* the spare one was there at once */
}

static void test_first_bytes_go_before_all_others(void **state)
{
	struct world *w = *state;

	assert_sends(w->client, "second");
	relay_pair(make_flow(w), w->near_client, w->near_server, "first ", 6);
	assert_receives(w, w->server, "first second");
	fd_close(&w->client);
	fd_close(&w->server);
	until_closed(w);
	assert_int_equal(w->closed.sent, 12);
}

static void test_one_that_is_cut_resets_both(void **state)
{
	struct world *w = *state;
	struct flow *f = make_flow(w);
	char c;

	relay_pair(f, w->near_client, w->near_server, NULL, 0);
	assert_sends(w->client, "x");
	assert_receives(w, w->server, "x");
	(void) snprintf(f->error, sizeof f->error, "changed");
	f->cut(f->owner);
	assert_int_equal(receive(w, w->server, &c, 1), -ECONNRESET);
	assert_int_equal(receive(w, w->client, &c, 1), -ECONNRESET);
	assert_string_equal(w->closed.error, "changed");
}

static void test_one_that_is_cut_while_dialling_is_reset(void **state)
{
	struct world *w = *state;
	struct flow *f = make_flow(w);
	char c;

	relay_start(f, w->near_client);
	assert_non_null(w->dial.done);
	f->cut(f->owner);
	assert_null(w->dial.done);
	assert_int_equal(receive(w, w->client, &c, 1), -ECONNRESET);
	fd_close(&w->near_server);
}

static void test_a_limit_of_bytes_resets_both(void **state)
{
	struct world *w = *state;
	char c;

	w->network.limits.bytes_out = 5;
	begin(w);
	assert_sends(w->client, "12345");
	assert_receives(w, w->server, "12345");
	assert_sends(w->client, "6");
	assert_int_equal(receive(w, w->server, &c, 1), -ECONNRESET);
	assert_int_equal(receive(w, w->client, &c, 1), -ECONNRESET);
	assert_int_equal(w->control.limits, 1);
	assert_int_equal(w->closed.sent, 5);
}

static void test_the_rate_slows_it_down(void **state)
{
	struct world *w = *state;
	char *data = xcalloc(1, CHUNK);
	usec_t began;

	w->network.limits.rate = 100000;
	quota_free(w->broker.quota);
	w->broker.quota = quota_new(&w->broker);
	began = now_monotonic();
	begin(w);
	assert_int_equal(send(w->client, data, 50000, MSG_NOSIGNAL), 50000);
	assert_int_equal(receive(w, w->server, data, 50000), 0);
	assert_true(now_monotonic() - began >= 380000); /* 10,000 at once, the rest at the rate */
	free(data);
}

static void test_dialling_ends_in_a_relay_or_a_reset(void **state)
{
	struct world *w = *state;
	char c;

	relay_start(make_flow(w), w->near_client);
	assert_sends(w->client, "early");
	turn(w);
	w->dial.done(w->dial.ctx, w->near_server);
	assert_receives(w, w->server, "early");
	fd_close(&w->client);
	fd_close(&w->server);
	until_closed(w);
	assert_true(w->closed.yes);
	w->closed.yes = false;
	connect_pair(&w->client, &w->near_client);
	relay_start(make_flow(w), w->near_client);
	turn(w);
	w->dial.done(w->dial.ctx, -1);
	assert_true(w->closed.yes);
	assert_int_equal(receive(w, w->client, &c, 1), -ECONNRESET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_bytes_pass_both_ways_and_are_counted, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_an_end_is_passed_on_and_the_other_way_goes_on, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_tail_before_a_close_arrives, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_reset_is_passed_on_as_a_reset, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_reset_from_inside_reaches_the_server, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_writing_to_a_side_that_is_gone_resets_the_writer, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_reader_that_does_not_read_stops_the_writer, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_idle_connections_hold_no_pipe, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_first_bytes_go_before_all_others, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_one_that_is_cut_resets_both, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_one_that_is_cut_while_dialling_is_reset, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_limit_of_bytes_resets_both, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_rate_slows_it_down, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_dialling_ends_in_a_relay_or_a_reset, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
