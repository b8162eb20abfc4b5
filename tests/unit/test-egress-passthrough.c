/* protocol tls: what was checked is what goes upstream, and what is refused reaches nobody. */
#include "egress-fixture.h"
#include "egress/dial.h"

#include <errno.h>
#include <fcntl.h>

/* A ClientHello with one extension: server_name, of a name of 15 bytes. */
#define HELLO_HEAD                                                                                                               \
	"\x16\3\1\0\x47\1\0\0\x43\3\3"                                                                                           \
	"0123456789abcdef0123456789abcdef"                                                                                       \
	"\0\0\2\x13\1\1\0\0\x18"
static const char hello_right[] = HELLO_HEAD "\0\0\0\x14\0\x12\0\0\x0f"
					     "api.example.org";
static const char hello_wrong[] = HELLO_HEAD "\0\0\0\x14\0\x12\0\0\x0f"
					     "www.example.org";
static const char hello_ech[] = HELLO_HEAD "\xfe\x0d\0\x14\0\x12\0\0\x0f"
					   "api.example.org";

static struct {
	unsigned pairs, closed, resets, dials;
	int client, upstream;
	char first[1024], error[200];
	size_t first_size;
	void (*done)(void *, int);
	void *ctx;
} seen;

void relay_pair(struct flow *f, int client, int upstream, const void *first, size_t first_size)
{
	(void) f;
	seen.pairs++;
	seen.client = client;
	seen.upstream = upstream;
	assert_true(first_size <= sizeof seen.first);
	memcpy(seen.first, first, first_size);
	seen.first_size = first_size;
}

void flow_close(struct flow *f)
{
	seen.closed++;
	(void) snprintf(seen.error, sizeof seen.error, "%s", f->error);
}

void reset_close(int fd)
{
	const struct linger now = {.l_onoff = 1};

	seen.resets++;
	(void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

struct dial *dial_start(struct flow *f, bool udp, void (*done)(void *ctx, int fd), void *ctx)
{
	static char handle;

	(void) f;
	assert_false(udp);
	seen.dials++;
	seen.done = done;
	seen.ctx = ctx;
	return (struct dial *) &handle;
}

void dial_cancel(struct dial *d)
{
	assert_non_null(d);
	seen.done = NULL;
}

struct world {
	struct event_base *base;
	struct network network;
	struct broker broker;
	struct flow flow;
	int client;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);
	cleanup_fd int listener = serve_at("127.0.0.1", 0, SOCK_STREAM);
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of("127.0.0.1", port_of(listener), &to);
	int server;

	w->base = event_base_new();
	w->broker = (struct broker){.base = w->base, .network = &w->network};
	w->flow = (struct flow){.broker = &w->broker, .rule = -1, .target = {.name = "api.example.org", .port = 443}};
	w->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(w->client, (struct sockaddr *) &to, size), 0);
	server = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(server >= 0);
	memset(&seen, 0, sizeof seen);
	seen.client = seen.upstream = -EBADF;
	refusals.count = 0;
	passthrough_start(&w->flow, server);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	fd_close(&w->client);
	fd_close(&seen.client);
	fd_close(&seen.upstream);
	event_base_free(w->base);
	free(w);
	return 0;
}

static void run_for(struct world *w, unsigned msec)
{
	const struct timeval tv = {.tv_usec = (suseconds_t) msec * 1000};

	event_base_loopexit(w->base, &tv);
	event_base_dispatch(w->base);
}

static void say(struct world *w, const void *data, size_t size)
{
	assert_int_equal(send(w->client, data, size, MSG_NOSIGNAL), size);
	run_for(w, 5);
}

static void expect_reset(struct world *w)
{
	char c;

	assert_int_equal(seen.resets, 1);
	assert_int_equal(seen.closed, 1);
	assert_int_equal(seen.pairs, 0);
	assert_int_equal(recv(w->client, &c, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void expect_refused(struct world *w, const char *why)
{
	expect_reset(w);
	assert_int_equal(seen.dials, 0);
	assert_int_equal(refusals.count, 1);
	assert_string_equal(last_refusal()->kind, "network");
	assert_string_equal(last_refusal()->host, "api.example.org");
	assert_int_equal(last_refusal()->port, 443);
	assert_non_null(strstr(last_refusal()->why, why));
	assert_true(seen.error[0] != '\0');
}

static void the_very_bytes_that_were_checked_go_upstream(void **state)
{
	struct world *w = *state;
	const size_t size = sizeof hello_right - 1;

	for (size_t i = 0; i < size - 1; i++)
		say(w, hello_right + i, 1);
	assert_int_equal(seen.dials, 0);
	assert_int_equal(send(w->client, hello_right + size - 1, 1, MSG_NOSIGNAL | MSG_MORE), 1);
	say(w, "early data", 10);
	assert_int_equal(seen.dials, 1);
	seen.done(seen.ctx, open("/dev/null", O_RDWR | O_CLOEXEC));
	assert_int_equal(seen.pairs, 1);
	assert_int_equal(seen.first_size, size + 10);
	assert_memory_equal(seen.first, hello_right, size);
	assert_memory_equal(seen.first + size, "early data", 10);
	assert_int_equal(seen.closed + seen.resets, 0); /* the relay's now */
	assert_int_equal(refusals.count, 0);
}

static void nothing_is_read_on_while_dialling(void **state)
{
	struct world *w = *state;
	char rest[16];

	say(w, hello_right, sizeof hello_right - 1);
	assert_int_equal(seen.dials, 1);
	say(w, "more", 4);
	seen.done(seen.ctx, open("/dev/null", O_RDWR | O_CLOEXEC));
	assert_int_equal(seen.first_size, sizeof hello_right - 1);
	assert_int_equal(recv(seen.client, rest, sizeof rest, 0), 4);
}

static void another_name_is_refused(void **state)
{
	say(*state, hello_wrong, sizeof hello_wrong - 1);
	expect_refused(*state, "another server");
}

static void encrypted_client_hello_is_refused(void **state)
{
	say(*state, hello_ech, sizeof hello_ech - 1);
	expect_refused(*state, "Encrypted Client Hello");
}

static void what_is_no_tls_is_refused_at_once(void **state)
{
	say(*state, "GET", 3);
	expect_refused(*state, "does not begin with TLS");
}

static void a_malformed_hello_is_refused(void **state)
{
	say(*state, "\x16\3\1\0\0", 5);
	expect_refused(*state, "well-formed");
}

static void an_end_before_the_hello_is_no_denial(void **state)
{
	struct world *w = *state;

	say(w, hello_right, 20);
	assert_int_equal(shutdown(w->client, SHUT_WR), 0);
	run_for(w, 5);
	expect_reset(w);
	assert_int_equal(refusals.count, 0);
	assert_non_null(strstr(seen.error, "before its ClientHello was whole"));
}

static void what_cannot_be_dialled_is_reset(void **state)
{
	struct world *w = *state;

	say(w, hello_right, sizeof hello_right - 1);
	(void) snprintf(w->flow.error, sizeof w->flow.error, "the dial's reason");
	seen.done(seen.ctx, -1);
	expect_reset(w);
	assert_string_equal(seen.error, "the dial's reason");
}

/* The rules have changed: with `error` set, by whoever cuts. */
static void it_can_be_cut_before_and_while_it_is_dialled(void **state)
{
	struct world *w = *state;

	(void) snprintf(w->flow.error, sizeof w->flow.error, "changed");
	w->flow.cut(w->flow.owner);
	expect_reset(w);
	assert_string_equal(seen.error, "changed");
	assert_int_equal(seen.dials, 0);
	assert_int_equal(tear_down(state), 0);
	assert_int_equal(set_up(state), 0);
	w = *state;
	say(w, hello_right, sizeof hello_right - 1);
	assert_int_equal(seen.dials, 1);
	w->flow.cut(w->flow.owner);
	expect_reset(w);
	assert_null(seen.done); /* it was canceled */
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH(the_very_bytes_that_were_checked_go_upstream),
	    WITH(nothing_is_read_on_while_dialling),
	    WITH(another_name_is_refused),
	    WITH(encrypted_client_hello_is_refused),
	    WITH(what_is_no_tls_is_refused_at_once),
	    WITH(a_malformed_hello_is_refused),
	    WITH(an_end_before_the_hello_is_no_denial),
	    WITH(what_cannot_be_dialled_is_reset),
	    WITH(it_can_be_cut_before_and_while_it_is_dialled),
	};

	return cmocka_run_group_tests_name("egress-passthrough", tests, NULL, NULL);
}
