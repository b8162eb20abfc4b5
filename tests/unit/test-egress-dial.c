/* Where connections really go: in a network of the test's own, with a name server that says anything. */
#include "egress-fixture.h"
#include "egress-zone.h"
#include "egress/dial.h"
#include "egress/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>

#define PUBLIC "93.184.216.34"
#define PUBLIC2 "93.184.216.35"
#define PUBLIC3 "93.184.216.36"
#define PRIVATE "10.9.8.7"
#define METADATA "169.254.169.254"

static const char *const addresses[] = {PUBLIC, PUBLIC2, PUBLIC3, PRIVATE, METADATA, NULL};
static const char *const silent[] = {"93.184.216.41", "93.184.216.42", "93.184.216.43", "93.184.216.44", "93.184.216.45"};

#define ONE(name_, address)                                                                                                      \
	{.name = name_, .type = ZONE_A, .records = {{NULL, ZONE_A, 0, address}}},                                                \
	{                                                                                                                        \
		.name = name_, .type = ZONE_AAAA                                                                                 \
	}

static const struct zone_entry entries[] = {
    ONE("public.example", PUBLIC),
    ONE("private.example", PRIVATE),
    ONE("metadata.example", METADATA),
    ONE("loopback.example", "127.0.0.1"),
    ONE("host.example", "0.0.0.0"),
    ONE("unreachable.example", "203.0.114.1"),
    {.name = "mapped.example", .type = ZONE_A},
    {.name = "mapped.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_AAAA, 0, "::ffff:10.9.8.7"}}},
    {.name = "nat64.example", .type = ZONE_A},
    {.name = "nat64.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_AAAA, 0, "64:ff9b::a09:807"}}},
    {.name = "alias.example",
     .type = ZONE_A,
     .records = {{NULL, ZONE_CNAME, 0, "localhost"}, {"localhost", ZONE_A, 0, "127.0.0.1"}}},
    {.name = "alias.example", .type = ZONE_AAAA},
    /* First what it should be, then not. */
    {.name = "rebind.example", .type = ZONE_A, .uses = 1, .records = {{NULL, ZONE_A, 0, PUBLIC}}},
    {.name = "rebind.example", .type = ZONE_A, .uses = 1, .records = {{NULL, ZONE_A, 0, "127.0.0.1"}}},
    {.name = "rebind.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 0, METADATA}}},
    {.name = "rebind.example", .type = ZONE_AAAA},
    {.name = "mixed.example",
     .type = ZONE_A,
     .records = {{NULL, ZONE_A, 0, "127.0.0.1"}, {NULL, ZONE_A, 0, METADATA}, {NULL, ZONE_A, 0, PUBLIC}}},
    {.name = "mixed.example", .type = ZONE_AAAA, .records = {{NULL, ZONE_AAAA, 0, "::1"}}},
    {.name = "several.example",
     .type = ZONE_A,
     .records = {{NULL, ZONE_A, 0, PUBLIC3}, {NULL, ZONE_A, 0, PUBLIC2}, {NULL, ZONE_A, 0, PUBLIC}}},
    {.name = "several.example", .type = ZONE_AAAA},
    {.name = "many.example",
     .type = ZONE_A,
     .records = {{NULL, ZONE_A, 0, "93.184.216.41"},
		 {NULL, ZONE_A, 0, "93.184.216.42"},
		 {NULL, ZONE_A, 0, "93.184.216.43"},
		 {NULL, ZONE_A, 0, "93.184.216.44"},
		 {NULL, ZONE_A, 0, "93.184.216.45"},
		 {NULL, ZONE_A, 0, PUBLIC}}},
    {.name = "many.example", .type = ZONE_AAAA},
    {.name = "failed.example", .type = ZONE_A, .records = {{NULL, ZONE_A, 0, PUBLIC3}, {NULL, ZONE_A, 0, PRIVATE}}},
    {.name = "failed.example", .type = ZONE_AAAA},
    {.name = "silent.example", .type = ZONE_A, .silent = true},
    {.name = "silent.example", .type = ZONE_AAAA, .silent = true},
    {0},
};

static bool own_network;

struct world {
	struct event_base *base;
	struct network network;
	struct broker broker;
	struct zone zone;
	struct flow flow;
	unsigned calls;
	int fd;
	int listeners[5]; /* by index of `addresses`, at one port */
	uint16_t port;
	char resolv[40];
	int open_before;
};

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void dialled(void *ctx, int fd)
{
	struct world *w = ctx;

	w->calls++;
	w->fd = fd;
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);
	struct zw_error e = {0};
	int fd;

	*state = w;
	if (!own_network)
		return 0;
	w->base = event_base_new();
	w->broker = (struct broker){.base = w->base, .network = &w->network};
	w->fd = -EBADF;
	zone_start(&w->zone, w->base, entries);
	(void) snprintf(w->resolv, sizeof w->resolv, "/tmp/zwinger-dial-XXXXXX");
	fd = mkostemp(w->resolv, O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", 50), 0);
	fd_close(&fd);
	for (size_t i = 0; i < ARRAY_SIZE(w->listeners); i++)
		w->listeners[i] = -EBADF;
	w->listeners[0] = serve_at(PUBLIC, 0, SOCK_STREAM);
	w->port = port_of(w->listeners[0]);
	allow(&w->network, "*.example", NULL, w->port, NET_TCP);
	w->broker.resolver = resolver_new_with(&w->broker, &(struct resolver_files){w->resolv, "/nonexistent", w->zone.port}, &e);
	assert_non_null(w->broker.resolver);
	refusals.count = 0;
	w->open_before = count_fds();
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	if (own_network) {
		fd_close(&w->fd);
		resolver_free(w->broker.resolver);
		zone_stop(&w->zone);
		for (size_t i = 0; i < ARRAY_SIZE(w->listeners); i++)
			fd_close(&w->listeners[i]);
		network_done(&w->network);
		event_base_free(w->base);
		(void) unlink(w->resolv);
	}
	free(w);
	return 0;
}

static void listen_at(struct world *w, size_t i)
{
	w->listeners[i] = serve_at(addresses[i], w->port, SOCK_STREAM);
	w->open_before++;
}

/* Is anybody waiting at a listener? */
static bool was_called(const struct world *w, size_t i)
{
	int fd = accept4(w->listeners[i], NULL, NULL, SOCK_CLOEXEC);
	bool called = fd >= 0;

	fd_close(&fd);
	return called;
}

static void aim(struct world *w, const char *name, const char *address)
{
	fd_close(&w->fd);
	w->calls = 0;
	w->flow = (struct flow){.broker = &w->broker, .rule = -1, .target = {.port = w->port}};
	if (name != NULL)
		(void) snprintf(w->flow.target.name, sizeof w->flow.target.name, "%s", name);
	else
		w->flow.target.address = address_of(address);
}

static void run_until_called(struct world *w)
{
	usec_t end = now_monotonic() + 20 * USEC_PER_SEC;

	while (w->calls == 0 && now_monotonic() < end)
		event_base_loop(w->base, EVLOOP_ONCE);
	assert_int_equal(w->calls, 1);
}

static void dial(struct world *w, const char *name, bool udp)
{
	aim(w, name, NULL);
	(void) dial_start(&w->flow, udp, dialled, w);
	assert_int_equal(w->calls, 0);
	run_until_called(w);
}

/* The peer of the socket that came back, which must be the address in the flow. */
static void expect_connected(struct world *w, const char *address, uint16_t port)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof peer;
	struct net_address a, wanted = address_of(address);
	uint16_t peer_port;

	assert_true(w->fd >= 0);
	assert_string_equal(w->flow.error, "");
	assert_int_equal(getpeername(w->fd, (struct sockaddr *) &peer, &size), 0);
	network_address_from((struct sockaddr *) &peer, &a, &peer_port);
	assert_true(network_address_equal(&a, &wanted));
	assert_true(network_address_equal(&w->flow.dialled, &wanted));
	assert_int_equal(peer_port, port);
	assert_int_equal(w->flow.dialled_port, port);
	assert_true((fcntl(w->fd, F_GETFL) & O_NONBLOCK) != 0);
	assert_true((fcntl(w->fd, F_GETFD) & FD_CLOEXEC) != 0);
	assert_int_equal(count_fds(), w->open_before + 1);
}

static void expect_refused(struct world *w, const char *name, const char *address, const char *kind)
{
	const struct refused *r;

	refusals.count = 0;
	dial(w, name, false);
	assert_int_equal(w->fd, -1);
	assert_int_equal(refusals.count, 1);
	r = last_refusal();
	assert_string_equal(r->kind, "network");
	assert_string_equal(r->host, name);
	assert_string_equal(r->address, address);
	assert_int_equal(r->port, w->port);
	assert_non_null(strstr(r->why, kind));
	assert_non_null(strstr(w->flow.error, kind));
	assert_int_equal(w->flow.dialled.family, AF_UNSPEC);
	assert_int_equal(count_fds(), w->open_before);
}

#define NEED_NETWORK(w)                                                                                                          \
	do {                                                                                                                     \
		if (!own_network)                                                                                                \
			skip();                                                                                                  \
	} while ((void) (w), 0)

static void a_public_address_is_dialled(void **state)
{
	struct world *w = *state;
	int on = 0;
	socklen_t size = sizeof on;

	NEED_NETWORK(w);
	dial(w, "public.example", false);
	expect_connected(w, PUBLIC, w->port);
	assert_int_equal(getsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
	assert_true(on != 0);
	assert_true(was_called(w, 0));
	assert_int_equal(refusals.count, 0);
}

static void what_is_not_public_is_refused_and_never_dialled(void **state)
{
	struct world *w = *state;
	cleanup_fd int loopback = -EBADF;

	NEED_NETWORK(w);
	listen_at(w, 3);
	listen_at(w, 4);
	loopback = serve_at("127.0.0.1", w->port, SOCK_STREAM);
	w->open_before++;
	expect_refused(w, "private.example", PRIVATE, "private");
	expect_refused(w, "metadata.example", METADATA, "metadata");
	expect_refused(w, "loopback.example", "127.0.0.1", "loopback");
	expect_refused(w, "alias.example", "127.0.0.1", "loopback");
	expect_refused(w, "host.example", "0.0.0.0", "this host");
	expect_refused(w, "mapped.example", PRIVATE, "private");
	expect_refused(w, "nat64.example", "64:ff9b::a09:807", "private");
	assert_false(was_called(w, 3));
	assert_false(was_called(w, 4));
	assert_int_equal(accept(loopback, NULL, NULL), -1);
}

static void a_name_that_moves_is_judged_each_time(void **state)
{
	struct world *w = *state;

	NEED_NETWORK(w);
	listen_at(w, 4);
	dial(w, "rebind.example", false);
	expect_connected(w, PUBLIC, w->port);
	fd_close(&w->fd);
	expect_refused(w, "rebind.example", "127.0.0.1", "loopback");
	expect_refused(w, "rebind.example", METADATA, "metadata");
	assert_false(was_called(w, 4));
}

static void of_mixed_answers_only_the_public_is_dialled(void **state)
{
	struct world *w = *state;

	NEED_NETWORK(w);
	listen_at(w, 4);
	dial(w, "mixed.example", false);
	expect_connected(w, PUBLIC, w->port);
	assert_false(was_called(w, 4));
	assert_int_equal(refusals.count, 0);
}

static void an_address_rule_lets_a_name_lie_there(void **state)
{
	struct world *w = *state;

	NEED_NETWORK(w);
	listen_at(w, 3);
	allow(&w->network, NULL, "10.9.8.0/24", w->port, NET_TCP);
	dial(w, "private.example", false);
	expect_connected(w, PRIVATE, w->port);
	expect_refused(w, "metadata.example", METADATA, "metadata");
}

static void the_host_map_replaces_dns(void **state)
{
	struct world *w = *state;
	cleanup_fd int service = serve_at("127.0.0.1", 0, SOCK_STREAM);

	NEED_NETWORK(w);
	w->open_before++;
	listen_at(w, 3);
	map_host(&w->network, "public.example", "127.0.0.1", port_of(service));
	map_host(&w->network, "nowhere.example", PRIVATE, 0);
	dial(w, "public.example", false);
	expect_connected(w, "127.0.0.1", port_of(service));
	fd_close(&w->fd);
	dial(w, "nowhere.example", false);
	expect_connected(w, PRIVATE, w->port);
	assert_int_equal(w->zone.asked_udp, 0);
}

static void an_address_is_dialled_as_it_is(void **state)
{
	struct world *w = *state;

	NEED_NETWORK(w);
	listen_at(w, 3);
	aim(w, NULL, PRIVATE);
	(void) dial_start(&w->flow, false, dialled, w);
	run_until_called(w);
	assert_int_equal(w->fd, -1); /* no rule names it */
	assert_string_equal(last_refusal()->host, PRIVATE);
	allow(&w->network, NULL, PRIVATE, w->port, NET_TCP);
	aim(w, NULL, PRIVATE);
	(void) dial_start(&w->flow, false, dialled, w);
	assert_int_equal(w->calls, 0);
	run_until_called(w);
	expect_connected(w, PRIVATE, w->port);
	assert_int_equal(w->zone.asked_udp, 0);
}

static void failures_are_told_and_are_no_denial(void **state)
{
	struct world *w = *state;

	NEED_NETWORK(w);
	fd_close(&w->listeners[0]);
	w->open_before--;
	dial(w, "public.example", false);
	assert_int_equal(w->fd, -1);
	assert_string_equal(w->flow.error, "cannot connect to " PUBLIC ": Connection refused");
	dial(w, "unreachable.example", false);
	assert_string_equal(w->flow.error, "cannot connect to 203.0.114.1: Network is unreachable");
	dial(w, "unknown.example", false);
	assert_string_equal(w->flow.error, "cannot resolve the name: no such name");
	dial(w, "silent.example", false);
	assert_string_equal(w->flow.error, "cannot resolve the name: the name servers do not answer");
	assert_int_equal(refusals.count, 0);
	assert_int_equal(w->flow.dialled.family, AF_UNSPEC);
	dial(w, "failed.example", false); /* one refuses, one may not be dialled */
	assert_string_equal(w->flow.error, "cannot connect to " PUBLIC3 ": Connection refused");
	assert_int_equal(refusals.count, 1);
	assert_int_equal(count_fds(), w->open_before);
}

enum { FILLERS = 4 };

/* A listener that lets nobody in: its queue is full, so the kernel drops what asks to connect. The last descriptor is the
 * listener. */
static void fill(struct world *w, const char *address, int fds[FILLERS + 1])
{
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of(address, w->port, &to);

	fds[FILLERS] = serve_at(address, w->port, SOCK_STREAM);
	assert_int_equal(listen(fds[FILLERS], 0), 0);
	for (size_t k = 0; k < FILLERS; k++) {
		fds[k] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void) connect(fds[k], (struct sockaddr *) &to, size);
	}
	w->open_before += FILLERS + 1;
}

static void unfill(int fds[FILLERS + 1])
{
	for (size_t k = 0; k <= FILLERS; k++)
		fd_close(&fds[k]);
}

static void the_next_address_is_tried_after_failure_or_a_quarter_second(void **state)
{
	struct world *w = *state;
	int filler[FILLERS + 1];
	usec_t began;

	NEED_NETWORK(w);
	dial(w, "several.example", false); /* two of three refuse */
	expect_connected(w, PUBLIC, w->port);
	fd_close(&w->fd);
	fill(w, PUBLIC3, filler); /* the first is silent, the second refuses */
	began = now_monotonic();
	dial(w, "several.example", false);
	assert_true(now_monotonic() - began >= 240 * USEC_PER_MSEC);
	expect_connected(w, PUBLIC, w->port);
	unfill(filler);
}

static void many_silent_addresses_take_few_descriptors(void **state)
{
	struct world *w = *state;
	int filler[ARRAY_SIZE(silent)][FILLERS + 1], most = 0;

	NEED_NETWORK(w);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		fill(w, silent[i], filler[i]);
	aim(w, "many.example", NULL);
	(void) dial_start(&w->flow, false, dialled, w);
	while (w->calls == 0) {
		event_base_loop(w->base, EVLOOP_ONCE);
		if (w->calls == 0 && count_fds() - w->open_before > most)
			most = count_fds() - w->open_before;
	}
	assert_int_equal(most, 4);
	expect_connected(w, PUBLIC, w->port);
	for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
		unfill(filler[i]);
}

static void a_cancelled_dial_calls_nobody_and_leaves_nothing(void **state)
{
	const char *const names[] = {"public.example", "mapped-host.example", "private.example", "several.example"};
	struct world *w = *state;
	const struct timeval some = {.tv_usec = 20000};
	int filler[FILLERS + 1];

	NEED_NETWORK(w);
	fill(w, PUBLIC3, filler);
	map_host(&w->network, "mapped-host.example", PUBLIC, 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		/* At every stage: after so many turns of the loop. */
		for (unsigned turns = 0; turns < 4; turns++) {
			struct dial *d;

			aim(w, names[i], NULL);
			d = dial_start(&w->flow, false, dialled, w);
			for (unsigned k = 0; k < turns && w->calls == 0; k++)
				event_base_loop(w->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
			if (w->calls > 0)
				continue;
			dial_cancel(d);
			event_base_loopexit(w->base, &some);
			event_base_dispatch(w->base);
			assert_int_equal(w->calls, 0);
			assert_int_equal(count_fds(), w->open_before);
		}
	}
	unfill(filler);
}

static void a_datagram_socket_is_connected(void **state)
{
	struct world *w = *state;
	int type = 0;
	socklen_t size = sizeof type;

	NEED_NETWORK(w);
	allow(&w->network, "public.example", NULL, w->port, NET_UDP);
	dial(w, "public.example", true);
	expect_connected(w, PUBLIC, w->port);
	assert_int_equal(getsockopt(w->fd, SOL_SOCKET, SO_TYPE, &type, &size), 0);
	assert_int_equal(type, SOCK_DGRAM);
}

static void expect_congestion_control(struct world *w, const char *wanted)
{
	char name[16] = "";
	socklen_t size = sizeof name - 1;

	assert_true(w->fd >= 0);
	assert_int_equal(getsockopt(w->fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
	assert_string_equal(name, wanted);
	fd_close(&w->fd);
}

static void what_the_host_has_chosen_for_the_world_is_not_used_on_loopback(void **state)
{
	struct world *w = *state;
	static const char path[] = "/proc/sys/net/ipv4/tcp_congestion_control";
	cleanup_fd int service = serve_at("127.0.0.1", 0, SOCK_STREAM);
	char world[32] = "";

	NEED_NETWORK(w);
	(void) fd_write_file_at(AT_FDCWD, path, "cubic"); /* a kernel may have reno and one more */
	assert_true(fd_read_file_at(AT_FDCWD, path, world, sizeof world) > 0);
	world[strcspn(world, "\n")] = '\0';
	if (strcmp(world, "reno") == 0)
		skip();
	dial(w, "public.example", false);
	expect_congestion_control(w, world);
	map_host(&w->network, "public.example", "127.0.0.1", port_of(service));
	dial(w, "public.example", false);
	expect_congestion_control(w, "reno");
}

/* With one local port to choose from, a connection to that port is one to itself. */
static void a_socket_that_meets_itself_is_no_connection(void **state)
{
	struct world *w = *state;
	static const char path[] = "/proc/sys/net/ipv4/ip_local_port_range";
	char before[64];

	NEED_NETWORK(w);
	map_host(&w->network, "public.example", "127.0.0.1", 33333);
	if (fd_read_file_at(AT_FDCWD, path, before, sizeof before) < 0 || fd_write_file_at(AT_FDCWD, path, "33333 33333") < 0)
		skip();
	dial(w, "public.example", false);
	assert_int_equal(fd_write_file_at(AT_FDCWD, path, before), 0);
	assert_int_equal(w->fd, -1);
	assert_string_equal(w->flow.error, "cannot connect to 127.0.0.1: Connection refused");
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH(a_public_address_is_dialled),
	    WITH(what_is_not_public_is_refused_and_never_dialled),
	    WITH(a_name_that_moves_is_judged_each_time),
	    WITH(of_mixed_answers_only_the_public_is_dialled),
	    WITH(an_address_rule_lets_a_name_lie_there),
	    WITH(the_host_map_replaces_dns),
	    WITH(an_address_is_dialled_as_it_is),
	    WITH(failures_are_told_and_are_no_denial),
	    WITH(the_next_address_is_tried_after_failure_or_a_quarter_second),
	    WITH(many_silent_addresses_take_few_descriptors),
	    WITH(a_cancelled_dial_calls_nobody_and_leaves_nothing),
	    WITH(a_datagram_socket_is_connected),
	    WITH(what_the_host_has_chosen_for_the_world_is_not_used_on_loopback),
	    WITH(a_socket_that_meets_itself_is_no_connection),
	};

	own_network = enter_own_network(addresses);
	return cmocka_run_group_tests_name("egress-dial", tests, NULL, NULL);
}
