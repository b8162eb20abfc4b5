/* The stub resolver: what each question is answered, what is recorded of it, and that hostile messages get no more than an error.
 */
#include "egress-fixture.h"
#include "egress/names.h"
#include "egress/query.h"
#include "egress/stub.h"

#include <arpa/inet.h>

static struct {
	char name[NETWORK_NAME_SIZE];
	uint32_t address;
	unsigned count;
} given;

static int open_connections;

void control_name(struct control *c, const char *name, uint32_t address)
{
	(void) c;
	given.count++;
	given.address = address;
	(void) snprintf(given.name, sizeof given.name, "%s", name);
}

void connections_count(struct broker *b, int change)
{
	(void) b;
	open_connections += change;
}

void reset_close(int fd)
{
	const struct linger now = {.l_onoff = 1};

	(void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

static int set_up(void **state)
{
	struct broker *b = xcalloc(1, sizeof *b);

	b->base = event_base_new();
	assert_non_null(b->base);
	b->network = xcalloc(1, sizeof *b->network);
	b->names = names_new();
	allow(b->network, "api.example.org", NULL, 443, NET_TCP);
	allow(b->network, "*.mirror.example", NULL, 443, NET_TCP);
	allow(b->network, "db.localhost", NULL, 5432, NET_TCP);
	refusals.count = 0;
	given.count = 0;
	open_connections = 0;
	*state = b;
	return 0;
}

static int tear_down(void **state)
{
	struct broker *b = *state;

	stub_free(b->stub);
	assert_int_equal(open_connections, 0);
	names_free(b->names);
	network_done(b->network);
	free(b->network);
	event_base_free(b->base);
	free(b);
	return 0;
}

/* ---- Messages. ---- */

struct message {
	unsigned char bytes[1024];
	size_t size;
};

static void put(struct message *m, const void *bytes, size_t size)
{
	assert_true(m->size + size <= sizeof m->bytes);
	memcpy(m->bytes + m->size, bytes, size);
	m->size += size;
}

#define PUT(m, literal) put(m, literal, sizeof(literal) - 1)

static void put16(struct message *m, unsigned v)
{
	const unsigned char b[] = {(unsigned char) (v >> 8), (unsigned char) v};

	put(m, b, 2);
}

static struct message header(unsigned flags, unsigned questions, unsigned additional)
{
	struct message m = {.size = 0};

	put16(&m, 0xbeef);
	put16(&m, flags);
	put16(&m, questions);
	put16(&m, 0);
	put16(&m, 0);
	put16(&m, additional);
	return m;
}

/* Labels between dots; "" is the root. */
static void put_question(struct message *m, const char *name, unsigned type)
{
	while (*name != '\0') {
		size_t label = strcspn(name, ".");
		unsigned char length = (unsigned char) label;

		put(m, &length, 1);
		put(m, name, label);
		name += label + (name[label] == '.');
	}
	put(m, "", 1);
	put16(m, type);
	put16(m, 1);
}

static struct message question(const char *name, unsigned type)
{
	struct message m = header(0x0100, 1, 0);

	put_question(&m, name, type);
	return m;
}

struct reply {
	unsigned char bytes[QUERY_ANSWER_SIZE];
	size_t size;
	unsigned code, records;
	unsigned type, ttl, length; /* of the record */
	size_t data;                /* offset of its data */
};

static unsigned at16(const unsigned char *p)
{
	return (unsigned) (p[0] << 8 | p[1]);
}

/* Reads the one record behind a question of `question_size` bytes. */
static void read_record(struct reply *r, size_t question_size)
{
	const unsigned char *p = r->bytes + 12 + question_size;

	assert_int_equal(at16(p), 0xc00c);
	r->type = at16(p + 2);
	assert_int_equal(at16(p + 4), 1);
	r->ttl = at16(p + 6) << 16 | at16(p + 8);
	r->length = at16(p + 10);
	r->data = (size_t) (p - r->bytes) + 12;
	assert_true(12 + question_size + 12 + r->length <= r->size);
}

static struct reply send_message(struct broker *b, const struct message *m)
{
	struct reply r = {.size = 0};

	r.size = stub_answer(b, m->bytes, m->size, r.bytes);
	if (r.size == 0)
		return r;
	assert_true(r.size >= 12 && r.size <= QUERY_ANSWER_SIZE);
	assert_int_equal(at16(r.bytes), 0xbeef);
	assert_int_equal(r.bytes[2] & 0x80, 0x80);
	r.code = r.bytes[3] & 0xf;
	r.records = at16(r.bytes + 6);
	assert_int_equal(at16(r.bytes + 8), 0);
	return r;
}

static struct reply ask(struct broker *b, const char *name, unsigned type)
{
	struct message m = question(name, type);
	struct reply r = send_message(b, &m);

	assert_true(r.size > 0);
	assert_int_equal(at16(r.bytes + 4), 1);
	assert_memory_equal(r.bytes + 12, m.bytes + 12, m.size - 12); /* the question as it was asked */
	if (r.records == 1)
		read_record(&r, m.size - 12);
	return r;
}

static void expect_nothing(struct broker *b, const char *name, unsigned type)
{
	struct reply r = ask(b, name, type);

	assert_int_equal(r.code, QUERY_NOERROR);
	assert_int_equal(r.records, 0);
}

static void expect_denied(struct broker *b, const char *name, unsigned type)
{
	struct reply r = ask(b, name, type);

	assert_int_equal(r.code, QUERY_NXDOMAIN);
	assert_int_equal(r.records, 0);
}

static void expect_address(struct broker *b, const char *name, uint32_t address)
{
	struct reply r = ask(b, name, QUERY_A);
	uint32_t found;

	assert_int_equal(r.code, QUERY_NOERROR);
	assert_int_equal(r.records, 1);
	assert_int_equal(r.type, QUERY_A);
	assert_int_equal(r.length, 4);
	memcpy(&found, r.bytes + r.data, 4);
	assert_int_equal(ntohl(found), address);
}

/* ---- Names. ---- */

static void an_allowed_name_has_one_address(void **state)
{
	struct broker *b = *state;
	struct reply r = ask(b, "api.example.org", QUERY_A);

	assert_int_equal(r.ttl, 60);
	assert_int_equal(given.count, 1);
	assert_string_equal(given.name, "api.example.org");
	expect_address(b, "API.Example.ORG", given.address);
	assert_int_equal(given.count, 1);
	expect_address(b, "a.mirror.example", given.address + 1);
	assert_int_equal(given.count, 2);
	assert_int_equal(refusals.count, 0);
}

static void other_types_of_an_allowed_name_have_no_data(void **state)
{
	const unsigned types[] = {QUERY_AAAA, 65 /* HTTPS */, 64 /* SVCB */, 16 /* TXT */, 15 /* MX */, 2, 6, 251, 252, 0, 65535};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		expect_nothing(*state, "api.example.org", types[i]);
	assert_int_equal(given.count, 0);
	assert_int_equal(refusals.count, 0);
}

static void any_other_name_is_denied_and_recorded(void **state)
{
	struct broker *b = *state;

	expect_denied(b, "evil.example", QUERY_A);
	assert_int_equal(refusals.count, 1);
	assert_string_equal(last_refusal()->kind, "dns");
	assert_string_equal(last_refusal()->host, "evil.example");
	expect_denied(b, "mirror.example", QUERY_A); /* a wildcard is for what lies below */
	expect_denied(b, "xapi.example.org", QUERY_A);
	expect_denied(b, "api.example.org.evil.example", QUERY_A);
	expect_denied(b, "org", QUERY_A);
	expect_denied(b, "", 2);
	assert_int_equal(refusals.count, 6);
	assert_int_equal(given.count, 0);
}

static void one_lookup_for_several_types_counts_once(void **state)
{
	struct broker *b = *state;

	expect_denied(b, "evil.example", QUERY_A);
	expect_denied(b, "EVIL.example", QUERY_AAAA); /* resolvers vary the case */
	expect_denied(b, "evil.example", 65);
	assert_int_equal(refusals.count, 1);
	expect_denied(b, "evil.example", QUERY_AAAA);
	assert_int_equal(refusals.count, 2);
	expect_denied(b, "evil.example", QUERY_A);
	assert_int_equal(refusals.count, 2);
	expect_denied(b, "other.example", QUERY_A);
	assert_int_equal(refusals.count, 3);
}

static void more_names_than_are_kept_are_all_recorded(void **state)
{
	for (unsigned i = 0; i < 300; i++) {
		char name[32];

		(void) snprintf(name, sizeof name, "n%u.evil.example", i);
		expect_denied(*state, name, QUERY_A);
		expect_denied(*state, name, QUERY_AAAA);
	}
	assert_int_equal(refusals.count, 300);
}

static void localhost_is_this_sandbox(void **state)
{
	struct broker *b = *state;
	struct reply r;

	expect_address(b, "localhost", INADDR_LOOPBACK);
	expect_address(b, "x.LOCALHOST", INADDR_LOOPBACK);
	r = ask(b, "localhost", QUERY_AAAA);
	assert_int_equal(r.length, 16);
	assert_memory_equal(r.bytes + r.data, &in6addr_loopback, 16);
	expect_nothing(b, "localhost", 16);
	assert_int_equal(refusals.count + given.count, 0);
	expect_denied(b, "notlocalhost", QUERY_A);
	(void) ask(b, "db.localhost", QUERY_A); /* a rule covers it */
	assert_string_equal(given.name, "db.localhost");
}

static void a_given_address_has_its_name_backwards(void **state)
{
	struct broker *b = *state;
	char name[64];
	struct reply r;

	(void) ask(b, "api.example.org", QUERY_A);
	(void) snprintf(name, sizeof name, "%u.%u.%u.%u.in-addr.arpa", given.address & 255, given.address >> 8 & 255,
			given.address >> 16 & 255, given.address >> 24);
	r = ask(b, name, QUERY_PTR);
	assert_int_equal(r.records, 1);
	assert_int_equal(r.type, QUERY_PTR);
	assert_int_equal(r.length, 17);
	assert_memory_equal(r.bytes + r.data, "\3api\7example\3org", 17);
	expect_nothing(b, name, QUERY_A);
}

static void other_addresses_backwards_are_no_denial(void **state)
{
	struct broker *b = *state;

	expect_denied(b, "4.3.2.1.in-addr.arpa", QUERY_PTR);
	expect_denied(b, "9.9.18.198.in-addr.arpa", QUERY_PTR);
	expect_denied(b, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa", QUERY_PTR);
	assert_int_equal(refusals.count, 0);
	/* These only end alike. */
	expect_denied(b, "c2VjcmV0.in-addr.arpa", QUERY_PTR);
	expect_denied(b, "256.3.2.1.in-addr.arpa", QUERY_PTR);
	expect_denied(b, "04.3.2.1.in-addr.arpa", QUERY_PTR);
	expect_denied(b, "5.4.3.2.1.in-addr.arpa", QUERY_PTR);
	expect_denied(b, "c2VjcmV0.ip6.arpa", QUERY_PTR);
	assert_int_equal(refusals.count, 5);
}

static void a_name_without_canonical_form_is_denied(void **state)
{
	struct broker *b = *state;
	struct message m = header(0x0100, 1, 0);

	/* Labels with a dot, a NUL and a line feed: as text, the first would be the allowed name. */
	PUT(&m, "\13api.example\3org\0\0\1\0\1");
	assert_int_equal(send_message(b, &m).code, QUERY_NXDOMAIN);
	assert_string_equal(last_refusal()->host, "api\\046example.org");
	m = header(0x0100, 1, 0);
	PUT(&m, "\20api.example.org\0\0\0\1\0\1");
	assert_int_equal(send_message(b, &m).code, QUERY_NXDOMAIN);
	assert_string_equal(last_refusal()->host, "api\\046example\\046org\\000");
	m = header(0x0100, 1, 0);
	PUT(&m, "\3api\7example\3org\1\n\0\0\1\0\1");
	assert_int_equal(send_message(b, &m).code, QUERY_NXDOMAIN);
	assert_string_equal(last_refusal()->host, "api.example.org.\\010");
	expect_denied(b, "127.0.0.1", QUERY_A);
	expect_denied(b, "0x7f.1", QUERY_A);
	assert_int_equal(refusals.count, 5);
	assert_int_equal(given.count, 0);
}

/* ---- Messages that are not as they should be. ---- */

static void expect_code(struct broker *b, const struct message *m, unsigned code)
{
	struct reply r = send_message(b, m);

	assert_true(r.size > 0);
	assert_int_equal(r.code, code);
	assert_int_equal(r.records, 0);
}

static void what_is_no_query_gets_no_answer(void **state)
{
	struct message m = question("api.example.org", QUERY_A);
	unsigned char answer[QUERY_ANSWER_SIZE];

	for (size_t size = 0; size < 12; size++)
		assert_int_equal(stub_answer(*state, m.bytes, size, answer), 0);
	m.bytes[2] |= 0x80; /* a response: two stubs would answer each other for ever */
	assert_int_equal(stub_answer(*state, m.bytes, m.size, answer), 0);
}

static void malformed_queries_are_format_errors(void **state)
{
	struct broker *b = *state;
	struct message m = question("api.example.org", QUERY_A), cut;

	for (cut = m, cut.size = 12; cut.size < m.size; cut.size++)
		expect_code(b, &cut, QUERY_FORMERR);
	PUT(&m, "x"); /* something behind */
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0100, 0, 0);
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0100, 2, 0);
	put_question(&m, "api.example.org", QUERY_A);
	put_question(&m, "evil.example", QUERY_A);
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0100, 1, 0); /* a pointer, to itself and to an ordinary name behind */
	PUT(&m, "\xc0\x0c\0\1\0\1");
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0100, 1, 0);
	PUT(&m, "\3api\xc0\x16\0\1\0\1\7example\3org\0");
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0300, 1, 0); /* truncated */
	put_question(&m, "api.example.org", QUERY_A);
	expect_code(b, &m, QUERY_FORMERR);
	assert_int_equal(given.count + refusals.count, 0);
}

static void names_may_have_255_bytes_and_no_more(void **state)
{
	char name[300] = "";

	for (unsigned i = 0; i < 3; i++)
		strcat(name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.");
	strcat(name, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
	assert_int_equal(strlen(name), 253);
	expect_denied(*state, name, QUERY_A);
	strcat(name, "a");
	struct message m = question(name, QUERY_A);
	expect_code(*state, &m, QUERY_FORMERR);
}

static void other_operations_and_classes_are_refused(void **state)
{
	struct broker *b = *state;
	struct message m = question("api.example.org", QUERY_A);

	m.bytes[m.size - 1] = 3; /* CHAOS */
	expect_code(b, &m, QUERY_REFUSED);
	for (unsigned opcode = 1; opcode < 16; opcode++) {
		m = header(opcode << 11, 1, 0);
		put_question(&m, "api.example.org", QUERY_A);
		expect_code(b, &m, QUERY_NOTIMP);
	}
	assert_int_equal(given.count + refusals.count, 0);
}

static void edns_is_understood(void **state)
{
	struct broker *b = *state;
	struct message m = header(0x0120, 1, 1);
	struct reply r;

	put_question(&m, "api.example.org", QUERY_A);
	PUT(&m, "\0\0\x29\x10\0\0\0\x80\0\0\x0c\0\x0a\0\x08"
		"cookie12");
	r = send_message(b, &m);
	assert_int_equal(r.code, QUERY_NOERROR);
	assert_int_equal(r.records, 1);
	assert_int_equal(at16(r.bytes + 10), 1);
	assert_memory_equal(r.bytes + r.size - 11, "\0\0\x29\x04\xd0\0\0\x80\0\0\0", 11);
	m.bytes[m.size - 17] = 1; /* version 1: BADVERS, in the OPT's upper byte */
	r = send_message(b, &m);
	assert_int_equal(r.code, 0);
	assert_int_equal(r.records, 0);
	assert_memory_equal(r.bytes + r.size - 11, "\0\0\x29\x04\xd0\1\0\x80\0\0\0", 11);
	m = header(0x0100, 1, 2); /* two of them */
	put_question(&m, "api.example.org", QUERY_A);
	PUT(&m, "\0\0\x29\x10\0\0\0\0\0\0\0\0\0\x29\x10\0\0\0\0\0\0\0");
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0100, 1, 1); /* longer than the message */
	put_question(&m, "api.example.org", QUERY_A);
	PUT(&m, "\0\0\x29\x10\0\0\0\0\0\0\1");
	expect_code(b, &m, QUERY_FORMERR);
	m = header(0x0100, 1, 0xffff);
	put_question(&m, "api.example.org", QUERY_A);
	expect_code(b, &m, QUERY_FORMERR);
}

/* ---- Sockets. ---- */

static void run_for(struct broker *b, unsigned msec)
{
	const struct timeval tv = {.tv_usec = (suseconds_t) msec * 1000};

	event_base_loopexit(b->base, &tv);
	event_base_dispatch(b->base);
}

static void datagrams_are_answered_to_their_sender(void **state)
{
	struct broker *b = *state;
	cleanup_fd int server = serve_at("127.0.0.1", 0, SOCK_DGRAM), client = serve_at("127.0.0.1", 0, SOCK_DGRAM);
	struct message m = question("api.example.org", QUERY_A);
	unsigned char answer[QUERY_ANSWER_SIZE];
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of("127.0.0.1", port_of(server), &to);

	assert_int_equal(connect(client, (struct sockaddr *) &to, size), 0);
	stub_udp_ready(b, server); /* nothing there */
	assert_int_equal(send(client, "", 0, 0), 0);
	assert_int_equal(send(client, "x", 1, 0), 1);
	assert_int_equal(send(client, m.bytes, m.size, 0), m.size);
	stub_udp_ready(b, server);
	assert_true(recv(client, answer, sizeof answer, 0) > (ssize_t) m.size);
	assert_int_equal(recv(client, answer, sizeof answer, 0), -1);
}

static void a_flood_of_datagrams_is_taken_in_parts(void **state)
{
	struct broker *b = *state;
	cleanup_fd int server = serve_at("127.0.0.1", 0, SOCK_DGRAM), client = serve_at("127.0.0.1", 0, SOCK_DGRAM);
	struct message m = question("api.example.org", QUERY_A);
	unsigned char answer[QUERY_ANSWER_SIZE];
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of("127.0.0.1", port_of(server), &to);
	unsigned answers = 0;

	assert_int_equal(connect(client, (struct sockaddr *) &to, size), 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(send(client, m.bytes, m.size, 0), m.size);
	stub_udp_ready(b, server);
	while (recv(client, answer, sizeof answer, 0) > 0)
		answers++;
	assert_in_range(answers, 1, 64);
}

/* A connection of which we hold the other end. */
static int connect_stub(struct broker *b)
{
	cleanup_fd int listener = serve_at("127.0.0.1", 0, SOCK_STREAM);
	struct sockaddr_storage to;
	socklen_t size = sockaddr_of("127.0.0.1", port_of(listener), &to);
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), server;

	assert_int_equal(connect(client, (struct sockaddr *) &to, size), 0);
	server = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(server >= 0);
	assert_int_equal(fd_nonblock(client), 0);
	stub_tcp_start(b, server);
	return client;
}

static struct message framed(const struct message *m)
{
	struct message f = {.size = 0};

	put16(&f, (unsigned) m->size);
	put(&f, m->bytes, m->size);
	return f;
}

static void a_stream_carries_several_queries_in_any_pieces(void **state)
{
	struct broker *b = *state;
	cleanup_fd int client = connect_stub(b);
	struct message m = question("api.example.org", QUERY_A), f = framed(&m);
	unsigned char answers[1024];
	size_t one = 2 + m.size + 16;

	for (size_t i = 0; i < f.size; i++) {
		assert_int_equal(send(client, f.bytes + i, 1, MSG_NOSIGNAL), 1);
		run_for(b, 1);
	}
	put(&f, f.bytes, f.size); /* two in one piece */
	assert_int_equal(send(client, f.bytes, f.size, MSG_NOSIGNAL), f.size);
	assert_int_equal(shutdown(client, SHUT_WR), 0); /* answers still come */
	run_for(b, 20);
	assert_int_equal(recv(client, answers, sizeof answers, 0), 3 * one);
	assert_int_equal(at16(answers), one - 2);
	assert_int_equal(at16(answers + 2 * one), one - 2);
	assert_int_equal(recv(client, answers, sizeof answers, 0), 0);
	assert_int_equal(open_connections, 0);
}

static void a_stream_that_is_no_dns_is_closed(void **state)
{
	struct broker *b = *state;
	cleanup_fd int client = connect_stub(b), short_one = connect_stub(b);
	char c;

	assert_int_equal(send(client, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18); /* a length of 18,245 */
	assert_int_equal(send(short_one, "\0\3abc", 5, MSG_NOSIGNAL), 5);
	run_for(b, 20);
	assert_true(recv(client, &c, 1, 0) <= 0);
	assert_true(recv(short_one, &c, 1, 0) <= 0);
	assert_int_equal(open_connections, 0);
}

static void streams_are_at_most_64(void **state)
{
	struct broker *b = *state;
	int clients[70];
	char c;

	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		clients[i] = connect_stub(b);
	assert_int_equal(open_connections, 64);
	assert_int_equal(recv(clients[69], &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		fd_close(&clients[i]);
	run_for(b, 20);
	assert_int_equal(open_connections, 0);
}

static void who_never_reads_is_cut_off(void **state)
{
	struct broker *b = *state;
	cleanup_fd int client = connect_stub(b);
	struct message m = question("api.example.org", QUERY_A), f = framed(&m);
	bool ended = false;

	for (unsigned i = 0; i < 400000 && !ended; i++) {
		ended = send(client, f.bytes, f.size, MSG_NOSIGNAL) < 0 && errno != EAGAIN;
		if (i % 512 == 0)
			event_base_loop(b->base, EVLOOP_NONBLOCK);
	}
	assert_true(ended);
	assert_int_equal(open_connections, 0);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WITH(an_allowed_name_has_one_address),
	    WITH(other_types_of_an_allowed_name_have_no_data),
	    WITH(any_other_name_is_denied_and_recorded),
	    WITH(one_lookup_for_several_types_counts_once),
	    WITH(more_names_than_are_kept_are_all_recorded),
	    WITH(localhost_is_this_sandbox),
	    WITH(a_given_address_has_its_name_backwards),
	    WITH(other_addresses_backwards_are_no_denial),
	    WITH(a_name_without_canonical_form_is_denied),
	    WITH(what_is_no_query_gets_no_answer),
	    WITH(malformed_queries_are_format_errors),
	    WITH(names_may_have_255_bytes_and_no_more),
	    WITH(other_operations_and_classes_are_refused),
	    WITH(edns_is_understood),
	    WITH(datagrams_are_answered_to_their_sender),
	    WITH(a_flood_of_datagrams_is_taken_in_parts),
	    WITH(a_stream_carries_several_queries_in_any_pieces),
	    WITH(a_stream_that_is_no_dns_is_closed),
	    WITH(streams_are_at_most_64),
	    WITH(who_never_reads_is_cut_off),
	};

	return cmocka_run_group_tests_name("egress-stub", tests, NULL, NULL);
}
