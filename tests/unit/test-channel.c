/* The supervisor's side of the agent protocol against an agent that is right, slow, wrong or hostile. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/channel.h"
#include "base/fd.h"
#include "base/mem.h"

struct pair {
	struct channel channel;
	int ours, agent;
};

static int set_up(void **state)
{
	struct pair *p = xcalloc(1, sizeof *p);
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	p->ours = fds[0];
	p->agent = fds[1];
	assert_int_equal(channel_init(&p->channel, p->ours, NULL), 0);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct pair *p = *state;

	channel_done(&p->channel);
	fd_close(&p->ours);
	fd_close(&p->agent);
	free(p);
	return 0;
}

struct raw {
	struct msg_header header;
	unsigned char body[64];
};

static size_t make(struct raw *r, uint16_t type, uint32_t id, const void *body, size_t size)
{
	r->header = (struct msg_header){.size = (uint32_t) size, .type = type, .id = id};
	memcpy(r->body, body, size);
	return sizeof r->header + size;
}

static int receive(struct pair *p, struct msg_in *m)
{
	struct zw_error e = {0};
	int r = channel_receive(&p->channel, m, &e);

	if (r < 0)
		assert_true(e.text[0] != '\0' && e.code == r);
	return r;
}

/* Open descriptors of this process. */
static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void messages_arrive_whole(void **state)
{
	struct pair *p = *state;
	struct raw r;
	struct msg_in m;
	size_t n;

	assert_int_equal(receive(p, &m), 0);
	n = make(&r, MSG_STARTED, 7, &(struct msg_started){.pid = 42}, sizeof(struct msg_started));
	assert_int_equal(write(p->agent, &r, n), (ssize_t) n);
	n = make(&r, MSG_EXITED, 7, &(struct msg_exited){.status = 3 << 8, .utime = 5, .stime = 6, .max_rss = 4096},
		 sizeof(struct msg_exited));
	assert_int_equal(write(p->agent, &r, n), (ssize_t) n);
	n = make(&r, MSG_EXEC_FAILED, 8, &(struct msg_exec_failed){.error = ENOENT, .stage = EXEC_STAGE_EXEC},
		 sizeof(struct msg_exec_failed));
	assert_int_equal(write(p->agent, &r, n), (ssize_t) n);

	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.type, MSG_STARTED);
	assert_int_equal(m.id, 7);
	assert_int_equal(m.started.pid, 42);
	assert_int_equal(m.fd, -EBADF);
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.type, MSG_EXITED);
	assert_int_equal(m.exited.status, 3 << 8);
	assert_int_equal(m.exited.max_rss, 4096);
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.type, MSG_EXEC_FAILED);
	assert_int_equal(m.id, 8);
	assert_int_equal(m.exec_failed.error, ENOENT);
	assert_int_equal(receive(p, &m), 0);
	fd_close(&p->agent);
	assert_int_equal(receive(p, &m), -EPIPE);
	assert_int_equal(receive(p, &m), -EPIPE);
}

static void messages_may_come_byte_by_byte(void **state)
{
	struct pair *p = *state;
	struct raw r;
	struct msg_in m;
	size_t n = make(&r, MSG_EXITED, 1, &(struct msg_exited){.status = 9}, sizeof(struct msg_exited));

	for (size_t i = 0; i < n; i++) {
		assert_int_equal(receive(p, &m), 0);
		assert_int_equal(write(p->agent, (const char *) &r + i, 1), 1);
	}
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.exited.status, 9);
}

static void an_end_within_a_message_is_no_message(void **state)
{
	struct pair *p = *state;
	struct raw r;
	struct msg_in m;
	size_t n = make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = 1}, sizeof(struct msg_started));

	assert_int_equal(write(p->agent, &r, n - 1), (ssize_t) n - 1);
	fd_close(&p->agent);
	assert_int_equal(receive(p, &m), -EPIPE);
}

/* Sends one message, expects a breach of the protocol, and that nothing is believed any more. */
static void expect_breach(const struct raw *r, size_t n)
{
	void *state;
	struct pair *p;
	struct msg_in m;
	struct raw good;
	size_t size = make(&good, MSG_STARTED, 1, &(struct msg_started){.pid = 5}, sizeof(struct msg_started));

	(void) set_up(&state);
	p = state;
	assert_int_equal(write(p->agent, r, n), (ssize_t) n);
	assert_int_equal(receive(p, &m), -EPROTO);
	assert_int_equal(write(p->agent, &good, size), (ssize_t) size);
	assert_int_equal(receive(p, &m), -EPROTO);
	(void) tear_down(&state);
}

static void wrong_headers_break_the_channel(void **state)
{
	static const uint16_t types[] = {0, MSG_START, MSG_SIGNAL, MSG_RESIZE, MSG_CONNECT, 0x80, 0x85, 0xffff};
	struct raw r;
	size_t n;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		n = make(&r, types[i], 1, &(struct msg_started){.pid = 5}, sizeof(struct msg_started));
		expect_breach(&r, n);
	}
	n = make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = 5}, sizeof(struct msg_started));
	for (uint32_t size = 0; size < 64; size++) {
		r.header.size = size;
		if (size != sizeof(struct msg_started))
			expect_breach(&r, n);
	}
	r.header.size = UINT32_MAX;
	expect_breach(&r, n);
	r.header.size = sizeof(struct msg_started);
	r.header.reserved = 1;
	expect_breach(&r, n);
}

/* Sends CONNECTED with a descriptor, or without one when `fd` is negative. */
static void send_connected(const struct pair *p, int error, int fd)
{
	struct raw r;
	size_t n = make(&r, MSG_CONNECTED, 9, &(struct msg_connected){.error = error}, sizeof(struct msg_connected));

	assert_int_equal(fd_send(p->agent, &r, n, &fd, fd >= 0 ? 1 : 0), 0);
}

static void a_connection_inside_comes_with_its_socket(void **state)
{
	struct pair *p = *state;
	struct msg_in m;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	send_connected(p, 0, fd);
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.type, MSG_CONNECTED);
	assert_int_equal(m.id, 9);
	assert_true(m.fd >= 0);
	fd_close(&m.fd);
	send_connected(p, ECONNREFUSED, -1);
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.connected.error, ECONNREFUSED);
	assert_true(m.fd < 0);
	fd_close(&fd);
}

/* Whatever a hostile agent passes in place of a TCP socket ends the channel, and is closed. */
static void other_descriptors_are_no_connections(void **state)
{
	int fds[] = {socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
		     open("/dev/null", O_RDWR | O_CLOEXEC), -1};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		struct pair *p;
		struct msg_in m;
		void *own;
		int before;

		(void) set_up(&own);
		p = own;
		before = count_fds();
		send_connected(p, 0, fds[i]);
		assert_int_equal(receive(p, &m), -EPROTO);
		assert_int_equal(count_fds(), before);
		(void) tear_down(&own);
		fd_close(&fds[i]);
	}
}

static void wrong_fields_break_the_channel(void **state)
{
	static const int32_t pids[] = {0, -1, INT32_MIN};
	static const struct msg_exec_failed failures[] = {{0, 0}, {-1, 0}, {4096, 0}, {1, EXEC_STAGE_EXEC + 1}, {1, UINT32_MAX}};
	static const struct msg_exited ends[] = {
	    {.status = 0x7f},    {.status = 0x137f},    {.status = 0xffff},    {.status = -1},
	    {.status = 0x10000}, {.status = 0x10009},   {.status = 65},        {.status = 0x0109},
	    {.reserved = 1},     {.utime = UINT64_MAX}, {.stime = UINT64_MAX}, {.max_rss = UINT64_MAX},
	};
	struct raw r;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		expect_breach(&r, make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = pids[i]}, sizeof(struct msg_started)));
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
		expect_breach(&r, make(&r, MSG_EXEC_FAILED, 1, &failures[i], sizeof failures[i]));
	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		expect_breach(&r, make(&r, MSG_EXITED, 1, &ends[i], sizeof ends[i]));
}

static void every_real_end_is_accepted(void **state)
{
	struct pair *p = *state;
	struct msg_in m;
	struct raw r;

	for (int code = 0; code < 256; code++) {
		size_t n = make(&r, MSG_EXITED, 1, &(struct msg_exited){.status = code << 8}, sizeof(struct msg_exited));

		assert_int_equal(write(p->agent, &r, n), (ssize_t) n);
		assert_int_equal(receive(p, &m), 1);
	}
	for (int sig = 1; sig <= 64; sig++)
		for (int core = 0; core <= 0x80; core += 0x80) {
			size_t n = make(&r, MSG_EXITED, 1, &(struct msg_exited){.status = sig | core}, sizeof(struct msg_exited));

			assert_int_equal(write(p->agent, &r, n), (ssize_t) n);
			assert_int_equal(receive(p, &m), 1);
		}
}

static void a_terminal_comes_with_its_message(void **state)
{
	struct pair *p = *state;
	cleanup_fd int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct raw r;
	struct msg_in m;
	size_t n;

	if (master < 0)
		skip();
	n = make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = 1}, sizeof(struct msg_started));
	assert_int_equal(write(p->agent, &r, n), (ssize_t) n);
	n = make(&r, MSG_STARTED, 2, &(struct msg_started){.pid = 2}, sizeof(struct msg_started));
	assert_int_equal(fd_send(p->agent, &r, n, &master, 1), 0);
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.id, 1);
	assert_int_equal(m.fd, -EBADF);
	assert_int_equal(receive(p, &m), 1);
	assert_int_equal(m.id, 2);
	assert_true(m.fd >= 0);
	assert_true((fcntl(m.fd, F_GETFD) & FD_CLOEXEC) != 0);
	fd_close(&m.fd);
}

static void what_is_no_terminal_is_closed(void **state)
{
	struct pair *p = *state;
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int before = count_fds();
	struct raw r;
	struct msg_in m;
	size_t n = make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = 1}, sizeof(struct msg_started));

	assert_int_equal(fd_send(p->agent, &r, n, &null, 1), 0);
	assert_int_equal(receive(p, &m), -EPROTO);
	assert_int_equal(count_fds(), before);
}

/* Descriptors in number, at the wrong message or in its middle: refused, and none stays open. */
static void surplus_descriptors_are_closed(void **state)
{
	const int many[16] = {0};

	(void) state;
	for (int kind = 0; kind < 4; kind++) {
		void *s;
		struct pair *p;
		struct msg_in m;
		struct raw r;
		int before = count_fds();
		size_t n = make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = 1}, sizeof(struct msg_started));

		(void) set_up(&s);
		p = s;
		switch (kind) {
		case 0:
			assert_int_equal(fd_send(p->agent, &r, n, many, 2), 0);
			break;
		case 1:
			assert_int_equal(fd_send(p->agent, &r, n, many, 16), 0);
			break;
		case 2:
			n = make(&r, MSG_EXITED, 1, &(struct msg_exited){.status = 0}, sizeof(struct msg_exited));
			assert_int_equal(fd_send(p->agent, &r, n, many, 1), 0);
			break;
		default:
			assert_int_equal(write(p->agent, &r, 5), 5);
			assert_int_equal(fd_send(p->agent, (const char *) &r + 5, n - 5, many, 1), 0);
			break;
		}
		assert_int_equal(receive(p, &m), -EPROTO);
		(void) tear_down(&s);
		assert_int_equal(count_fds(), before);
	}
}

static void half_a_message_with_a_descriptor_leaks_nothing(void **state)
{
	void *s;
	struct pair *p;
	struct msg_in m;
	struct raw r;
	int before = count_fds(), null = 0;

	(void) state;
	(void) make(&r, MSG_STARTED, 1, &(struct msg_started){.pid = 1}, sizeof(struct msg_started));
	(void) set_up(&s);
	p = s;
	assert_int_equal(fd_send(p->agent, &r, 3, &null, 1), 0);
	assert_int_equal(receive(p, &m), 0);
	(void) tear_down(&s);
	assert_int_equal(count_fds(), before);
}

static void garbage_never_becomes_a_message(void **state)
{
	unsigned seed = 12345;

	(void) state;
	for (int round = 0; round < 200; round++) {
		void *s;
		struct pair *p;
		struct msg_in m;
		unsigned char noise[300];
		int r;

		(void) set_up(&s);
		p = s;
		for (size_t i = 0; i < sizeof noise; i++)
			noise[i] = (unsigned char) (rand_r(&seed) >> 8);
		assert_int_equal(write(p->agent, noise, sizeof noise), (ssize_t) sizeof noise);
		r = receive(p, &m);
		assert_int_equal(r, -EPROTO);
		(void) tear_down(&s);
	}
}

static void a_start_is_encoded_as_the_protocol_says(void **state)
{
	struct pair *p = *state;
	const char *const argv[] = {"prog", "", "b c", NULL};
	const char *const env[] = {"A=1", NULL};
	static const char text[] = "/w\0prog\0\0b c\0A=1";
	const struct start_request start = {.id = 9,
					    .flags = START_ONE_SHOT,
					    .cwd = "/w",
					    .argv = (char *const *) (uintptr_t) argv,
					    .env = (char *const *) (uintptr_t) env,
					    .in = 0,
					    .out = 1,
					    .err = 2};
	struct msg_header header;
	struct msg_start fixed;
	char body[256];
	int fds[4];
	size_t nfds = 4;

	assert_int_equal(channel_send_start(&p->channel, &start, NULL), 0);
	assert_int_equal(fd_recv(p->agent, &header, sizeof header, fds, &nfds), sizeof header);
	assert_int_equal(nfds, 3);
	for (size_t i = 0; i < nfds; i++)
		fd_close(&fds[i]);
	assert_int_equal(header.type, MSG_START);
	assert_int_equal(header.id, 9);
	assert_int_equal(header.size, sizeof fixed + sizeof text);
	assert_int_equal(read(p->agent, &fixed, sizeof fixed), sizeof fixed);
	assert_int_equal(fixed.argc, 3);
	assert_int_equal(fixed.envc, 1);
	assert_int_equal(fixed.flags, START_ONE_SHOT);
	assert_int_equal(read(p->agent, body, sizeof body), sizeof text);
	assert_memory_equal(body, text, sizeof text);
}

static void what_cannot_be_sent_is_refused(void **state)
{
	struct pair *p = *state;
	cleanup_free char *big = xcalloc(1, MSG_BODY_MAX + 1);
	char *argv[] = {big, NULL}, *none[] = {NULL};
	struct start_request start = {.cwd = "/", .argv = argv, .env = none, .flags = START_TTY};
	struct zw_error e = {0};

	memset(big, 'x', MSG_BODY_MAX);
	assert_int_equal(channel_send_start(&p->channel, &start, &e), -E2BIG);
	start.argv = none;
	assert_int_equal(channel_send_start(&p->channel, &start, &e), -EINVAL);
	fd_close(&p->agent);
	assert_int_equal(channel_send_signal(&p->channel, 1, 15, true, &e), -EPIPE);
	assert_int_equal(channel_send_resize(&p->channel, 1, 24, 80, &e), -EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(messages_arrive_whole, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(messages_may_come_byte_by_byte, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(an_end_within_a_message_is_no_message, set_up, tear_down),
	    cmocka_unit_test(wrong_headers_break_the_channel),
	    cmocka_unit_test_setup_teardown(a_connection_inside_comes_with_its_socket, set_up, tear_down),
	    cmocka_unit_test(other_descriptors_are_no_connections),
	    cmocka_unit_test(wrong_fields_break_the_channel),
	    cmocka_unit_test_setup_teardown(every_real_end_is_accepted, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_terminal_comes_with_its_message, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_is_no_terminal_is_closed, set_up, tear_down),
	    cmocka_unit_test(surplus_descriptors_are_closed),
	    cmocka_unit_test(half_a_message_with_a_descriptor_leaks_nothing),
	    cmocka_unit_test(garbage_never_becomes_a_message),
	    cmocka_unit_test_setup_teardown(a_start_is_encoded_as_the_protocol_says, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(what_cannot_be_sent_is_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
