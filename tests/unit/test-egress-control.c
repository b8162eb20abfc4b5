/* The line to the supervisor: what is sent, what is counted together, and that a supervisor which reads slowly, or never, holds
 * nothing up. The supervisor is this file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/control.h"
#include "egress/listen.h"
#include "egress/outbox.h"
#include "egress/publish.h"
#include "egress/secrets.h"

struct secrets {
	char name[32], value[32];
	bool revoked;
};

/* What came in, for the parts that are not linked here. */
struct listeners {
	size_t count;
	uint16_t port;
	bool udp;
	int result;
};

int secrets_set(struct secrets *s, const char *name, const char *value, size_t size)
{
	(void) snprintf(s->name, sizeof s->name, "%s", name);
	(void) snprintf(s->value, sizeof s->value, "%.*s", (int) size, value != NULL ? value : "");
	s->revoked = value == NULL;
	return 0;
}

int listen_add(struct listeners *l, const struct net_address *a, uint16_t port, bool udp, int fd)
{
	assert_int_equal(a->family, AF_INET);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	(void) close(fd);
	l->count++;
	l->port = port;
	l->udp = udp;
	return l->result;
}

int publish_add(struct publish *p, uint16_t port, const char *label, int fd)
{
	(void) p, (void) label;
	assert_int_equal(port, 8080);
	(void) close(fd);
	return 0;
}

void quota_report(struct quota *q);
void quota_report(struct quota *q)
{
	(void) q;
}

struct world {
	struct network network;
	struct network_rule rule;
	struct secrets secrets;
	struct listeners listeners;
	struct broker broker;
	int supervisor;
	json_t *message;
	char buf[1 << 17];
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);
	struct timeval patience = {.tv_sec = 10};
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	w->supervisor = pair[0];
	assert_int_equal(setsockopt(w->supervisor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
	w->rule.label = (char *) (uintptr_t) "network.allow[0]";
	w->network.rules = &w->rule;
	w->network.rule_count = 1;
	w->broker.network = &w->network;
	w->broker.secrets = &w->secrets;
	w->broker.listeners = &w->listeners;
	w->broker.base = event_base_new();
	LIST_INIT(&w->broker.flows);
	assert_int_equal(event_base_priority_init(w->broker.base, 2), 0);
	w->broker.control = control_new(&w->broker, pair[1]);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	control_free(w->broker.control);
	event_base_free(w->broker.base);
	json_decref(w->message);
	(void) close(w->supervisor);
	free(w);
	return 0;
}

static void turn(struct world *w)
{
	assert_true(event_base_loop(w->broker.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
}

/* The next message, which must be of that kind. */
static json_t *expect(struct world *w, const char *kind)
{
	ssize_t n = recv(w->supervisor, w->buf, sizeof w->buf, 0);

	if (n <= 0)
		fail_msg("no message where %s was expected", kind);
	assert_true(n <= CONTROL_MESSAGE_MAX);
	json_decref(w->message);
	w->message = json_loadb(w->buf, (size_t) n, JSON_REJECT_DUPLICATES, NULL);
	if (w->message == NULL)
		fail_msg("no JSON: %.*s", (int) n, w->buf);
	assert_string_equal(json_string_value(json_object_get(w->message, "t")), kind);
	return w->message;
}

static bool silent(struct world *w)
{
	return recv(w->supervisor, w->buf, sizeof w->buf, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

static json_int_t number(const json_t *message, const char *key)
{
	return json_integer_value(json_object_get(message, key));
}

static const char *string(const json_t *message, const char *key)
{
	const char *s = json_string_value(json_object_get(message, key));

	return s != NULL ? s : "(none)";
}

static void say(struct world *w, const char *text, const int *fds, size_t count)
{
	assert_int_equal(fd_send(w->supervisor, text, strlen(text), fds, count), 0);
}

static int memory_file(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	return fd;
}

static void refuse(struct world *w, const char *host, const char *path)
{
	const struct refusal r = {
	    .kind = "http", .host = host, .port = 443, .method = "GET", .path = path, .rule = 0, .why = "not this"};

	control_refusal(w->broker.control, &r);
}

/* ---- Before the loop. ---- */

static void test_the_configuration_is_read_from_its_file(void **state)
{
	struct world *w = *state;
	struct control_config config;
	struct zw_error e = {0};
	int fd = memory_file("{\"network\": {\"rules\": []}, \"id\": \"zw-1\", \"java\": false}");

	say(w, "{\"t\": \"config\"}", &fd, 1);
	assert_int_equal(control_config(w->broker.control, &config, &e), 0);
	assert_string_equal(config.network, "{\"rules\":[]}");
	assert_string_equal(config.id, "zw-1");
	assert_false(config.java);
	control_config_done(&config);
	(void) close(fd);
}

static void test_what_is_no_configuration_is_an_error(void **state)
{
	static const char *const messages[] = {"{\"t\": \"end\"}", "[]", "{", "{\"t\": \"config\", \"t\": \"config\"}"};
	static const char *const files[] = {
	    "", "[]", "{\"id\": \"x\"}",
	    "{\"network\": {}, \"id\": \"0123456789012345678901234567890123456789012345678901234567890123\"}"};
	struct world *w = *state;
	struct control_config config;
	struct zw_error e = {0};
	int fd = memory_file("{\"network\": {}}");

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		say(w, messages[i], &fd, 1);
		assert_true(control_config(w->broker.control, &config, &e) < 0);
	}
	say(w, "{\"t\": \"config\"}", NULL, 0);
	assert_true(control_config(w->broker.control, &config, &e) < 0);
	(void) close(fd);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		fd = memory_file(files[i]);
		say(w, "{\"t\": \"config\"}", &fd, 1);
		assert_true(control_config(w->broker.control, &config, &e) < 0);
		(void) close(fd);
	}
	assert_int_equal(shutdown(w->supervisor, SHUT_RDWR), 0);
	assert_int_equal(control_config(w->broker.control, &config, &e), -EPIPE);
}

static void test_ready_carries_the_trust_files(void **state)
{
	struct world *w = *state;
	struct zw_error e = {0};
	int bundle = memory_file("PEM"), java = memory_file("JKS"), fds[4];
	size_t count = 4;
	char text[256] = "", content[8] = "";

	assert_int_equal(control_ready(w->broker.control, "CERT", bundle, java, &e), 0);
	assert_true(fd_recv(w->supervisor, text, sizeof text - 1, fds, &count) > 0);
	assert_int_equal(count, 2);
	assert_string_equal(text, "{\"t\":\"ready\",\"ca\":\"CERT\",\"java\":true}");
	assert_int_equal(pread(fds[1], content, 3, 0), 3);
	assert_string_equal(content, "JKS");
	assert_int_equal(control_ready(w->broker.control, NULL, -EBADF, -EBADF, &e), 0);
	(void) expect(w, "ready");
	assert_true(json_is_null(json_object_get(w->message, "ca")));
	for (size_t i = 0; i < 2; i++)
		(void) close(fds[i]);
	(void) close(bundle);
	(void) close(java);
}

/* ---- What comes in. ---- */

static void test_listeners_come_with_their_sockets(void **state)
{
	struct world *w = *state;
	int fds[2] = {memory_file(""), memory_file("")};

	control_start(w->broker.control);
	say(w,
	    "{\"t\": \"listeners\", \"listeners\": [{\"address\": \"0.0.0.0\", \"port\": 443, \"udp\": false}, "
	    "{\"address\": \"198.18.0.1\", \"port\": 53, \"udp\": true}]}",
	    fds, 2);
	turn(w);
	assert_int_equal(w->listeners.count, 2);
	assert_int_equal(w->listeners.port, 53);
	assert_true(w->listeners.udp);
	assert_false(event_base_got_break(w->broker.base));
	(void) close(fds[0]);
	(void) close(fds[1]);
}

static void test_sixty_four_sockets_come_at_once(void **state)
{
	enum { COUNT = CONTROL_FDS_MAX };
	struct world *w = *state;
	cleanup_buf struct buf text = buf_new(65536);
	union {
		char buf[CMSG_SPACE(sizeof(int) * COUNT)];
		struct cmsghdr align;
	} ancillary = {0};
	struct msghdr msg = {.msg_iovlen = 1, .msg_control = ancillary.buf, .msg_controllen = sizeof ancillary.buf};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	struct iovec iov;
	int fds[COUNT], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	control_start(w->broker.control);
	(void) buf_adds(&text, "{\"t\":\"listeners\",\"listeners\":[");
	for (int i = 0; i < COUNT; i++) {
		(void) buf_addf(&text, "%s{\"address\":\"0.0.0.0\",\"port\":%d,\"udp\":false}", i > 0 ? "," : "", i + 1);
		fds[i] = null;
	}
	(void) buf_adds(&text, "]}");
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fds)};
	memcpy(CMSG_DATA(c), fds, sizeof fds);
	iov = (struct iovec){.iov_base = text.data, .iov_len = text.size};
	msg.msg_iov = &iov;
	assert_true(sendmsg(w->supervisor, &msg, 0) > 0);
	turn(w);
	assert_int_equal(w->listeners.count, COUNT);
	(void) close(null);
}

static void test_secrets_are_set_and_revoked(void **state)
{
	struct world *w = *state;

	control_start(w->broker.control);
	say(w, "{\"t\": \"secret\", \"name\": \"token\", \"value\": \"s3cret\"}", NULL, 0);
	turn(w);
	assert_string_equal(w->secrets.name, "token");
	assert_string_equal(w->secrets.value, "s3cret");
	say(w, "{\"t\": \"secret\", \"name\": \"token\", \"value\": null}", NULL, 0);
	turn(w);
	assert_true(w->secrets.revoked);
}

static void test_what_must_not_be_sent_ends_the_loop(void **state)
{
	static const char *const messages[] = {
	    "{",
	    "[]",
	    "{\"t\": \"config\"}",
	    "{\"t\": 7}",
	    "{\"t\": \"listeners\", \"listeners\": [{\"address\": \"0.0.0.0\", \"port\": 443}]}", /* without a socket */
	    "{\"t\": \"secret\", \"value\": \"x\"}",
	    "{\"t\": \"secret\", \"name\": \"x\", \"value\": 5}",
	    "{\"t\": \"inbound\", \"id\": 1}", /* nobody asked */
	};

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		struct world *w;

		(void) tear_down(state);
		(void) set_up(state);
		w = *state;
		control_start(w->broker.control);
		say(w, messages[i], NULL, 0);
		turn(w);
		if (!event_base_got_break(w->broker.base))
			fail_msg("it went on after %s", messages[i]);
	}
}

static void test_a_listener_that_is_none_ends_the_loop(void **state)
{
	struct world *w = *state;
	int fd = memory_file("");

	control_start(w->broker.control);
	w->listeners.result = -ENOTSOCK;
	say(w, "{\"t\": \"listeners\", \"listeners\": [{\"address\": \"0.0.0.0\", \"port\": 443, \"udp\": false}]}", &fd, 1);
	turn(w);
	assert_true(event_base_got_break(w->broker.base));
	(void) close(fd);
}

static void test_the_supervisor_is_gone(void **state)
{
	struct world *w = *state;

	control_start(w->broker.control);
	assert_int_equal(shutdown(w->supervisor, SHUT_RDWR), 0);
	turn(w);
	assert_true(event_base_got_break(w->broker.base));
}

static void inbound_done(void *ctx, int fd)
{
	int *given = ctx;

	*given = fd;
}

static void test_connections_inside_are_asked_for_by_number(void **state)
{
	struct world *w = *state;
	int first = -1000, second = -1000, fd = memory_file("");
	char text[64];
	json_int_t id;

	control_start(w->broker.control);
	control_inbound(w->broker.control, 8080, inbound_done, &first);
	id = number(expect(w, "inbound"), "id");
	assert_int_equal(number(w->message, "port"), 8080);
	control_inbound(w->broker.control, 8081, inbound_done, &second);
	assert_int_not_equal(number(expect(w, "inbound"), "id"), id);
	(void) snprintf(text, sizeof text, "{\"t\": \"inbound\", \"id\": %d}", (int) id);
	say(w, text, &fd, 1);
	turn(w);
	assert_true(first >= 0);
	assert_int_equal(second, -1000);
	(void) snprintf(text, sizeof text, "{\"t\": \"inbound\", \"id\": %d, \"error\": \"no\"}", (int) id + 1);
	say(w, text, NULL, 0);
	turn(w);
	assert_int_equal(second, -EBADF);
	(void) close(first);
	(void) close(fd);
}

/* ---- What goes out. ---- */

static void test_equal_refusals_are_one_with_a_count(void **state)
{
	struct world *w = *state;

	control_start(w->broker.control);
	for (int i = 0; i < 1000; i++)
		refuse(w, "api.example.org", "/a");
	refuse(w, "api.example.org", "/b");
	assert_true(silent(w));
	assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
	assert_int_equal(number(expect(w, "denied"), "count"), 1000);
	assert_string_equal(string(w->message, "kind"), "http");
	assert_string_equal(string(w->message, "host"), "api.example.org");
	assert_string_equal(string(w->message, "path"), "/a");
	assert_string_equal(string(w->message, "rule"), "network.allow[0]");
	assert_int_equal(number(w->message, "port"), 443);
	assert_int_equal(number(expect(w, "denied"), "count"), 1);
	assert_true(silent(w));
	refuse(w, "api.example.org", "/a");
	assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
	assert_int_equal(number(expect(w, "denied"), "count"), 1);
}

static void test_no_flood_of_different_refusals_is_lost_count_of(void **state)
{
	struct world *w = *state;
	json_int_t sum = 0, messages = 0;
	char host[32];

	control_start(w->broker.control);
	for (int i = 0; i < 5000; i++) {
		(void) snprintf(host, sizeof host, "x%d.example.org", i);
		refuse(w, host, "/");
	}
	assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
	while (sum < 5000) {
		sum += number(expect(w, "denied"), "count");
		messages++;
		turn(w);
	}
	assert_int_equal(sum, 5000);
	assert_int_equal(messages, 257);
	assert_string_equal(string(w->message, "host"), "(others)");
}

static void test_any_bytes_make_a_valid_message(void **state)
{
	struct world *w = *state;
	char longest[4096];

	control_start(w->broker.control);
	refuse(w, "\xff\xfe\x01name\n\"\\", "/\xc3\x28");
	memset(longest, '\1', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	refuse(w, longest, longest);
	assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
	assert_string_equal(string(expect(w, "denied"), "host"), "??\x01name\n\"\\");
	assert_true(strlen(string(expect(w, "denied"), "host")) <= 255);
	assert_true(strlen(string(w->message, "path")) <= 1024);
}

static struct flow *flow_of(struct world *w, struct flow *f, const char *name)
{
	*f = (struct flow){
	    .broker = &w->broker, .protocol = NET_HTTPS, .rule = 0, .sent = 10, .received = 20, .began = now_monotonic()};
	(void) snprintf(f->target.name, sizeof f->target.name, "%s", name);
	f->target.port = 443;
	return f;
}

static void test_a_connection_is_recorded_with_its_newest_requests(void **state)
{
	struct world *w = *state;
	struct flow_request *requests = xcalloc(FLOW_REQUESTS_MAX, sizeof *requests);
	char path[1025];
	struct flow f;
	json_t *list;

	memset(path, 7, sizeof path - 1); /* control bytes: six bytes each in JSON */
	path[sizeof path - 1] = '\0';
	control_start(w->broker.control);
	(void) flow_of(w, &f, "api.example.org");
	f.requests = requests;
	for (f.request_count = 0; f.request_count < 250; f.request_count++) {
		struct flow_request *r = &requests[f.request_count % FLOW_REQUESTS_MAX];

		*r = (struct flow_request){.method = "GET", .path = path, .status = (int) f.request_count};
	}
	control_connection(w->broker.control, &f);
	list = json_object_get(expect(w, "connection"), "requests");
	assert_int_equal(number(w->message, "request_count"), 250);
	assert_in_range(json_array_size(list), 5, FLOW_REQUESTS_MAX - 1); /* as many as fit */
	assert_int_equal(number(json_array_get(list, json_array_size(list) - 1), "status"), 249);
	for (size_t i = 0; i < FLOW_REQUESTS_MAX; i++)
		requests[i].path = (char *) (uintptr_t) "/";
	control_connection(w->broker.control, &f);
	list = json_object_get(expect(w, "connection"), "requests");
	assert_int_equal(json_array_size(list), FLOW_REQUESTS_MAX);
	assert_int_equal(number(json_array_get(list, 0), "status"), 150);
	assert_string_equal(string(w->message, "rule"), "network.allow[0]");
	assert_string_equal(string(w->message, "protocol"), "https");
	assert_int_equal(number(w->message, "sent"), 10);
	free(requests);
}

static void test_a_published_connection_says_so(void **state)
{
	struct world *w = *state;
	struct flow f;

	control_start(w->broker.control);
	(void) flow_of(w, &f, "");
	f.target.address = (struct net_address){.family = AF_INET, .v4 = {htonl(INADDR_LOOPBACK)}};
	f.target.port = 8080;
	f.published = "127.0.0.1:9000";
	control_connection(w->broker.control, &f);
	assert_string_equal(string(expect(w, "connection"), "host"), "127.0.0.1");
	assert_string_equal(string(w->message, "protocol"), "publish");
	assert_string_equal(string(w->message, "rule"), "127.0.0.1:9000");
	assert_true(json_is_true(json_object_get(w->message, "inbound")));
}

/* Nobody reads: nothing blocks, memory is bounded, and in the end the sums are right. */
static void test_a_slow_supervisor_costs_detail_and_nothing_else(void **state)
{
	enum { COUNT = 40000, NAMES = 3000 };
	struct world *w = *state;
	json_int_t sum = 0, sent = 0, messages = 0;
	bool merged = false, limit = false;
	char name[64];

	control_start(w->broker.control);
	for (int i = 0; i < COUNT; i++) {
		struct flow f;

		(void) snprintf(name, sizeof name, "x%d.example.org", i % NAMES);
		control_connection(w->broker.control, flow_of(w, &f, name));
		turn(w);
	}
	control_limit(w->broker.control, "bytes_out", true);
	while (sum < COUNT || !limit) {
		const json_t *count;
		ssize_t n;

		turn(w);
		n = recv(w->supervisor, w->buf, sizeof w->buf, 0);
		assert_true(n > 0);
		json_decref(w->message);
		w->message = json_loadb(w->buf, (size_t) n, 0, NULL);
		messages++;
		if (strcmp(string(w->message, "t"), "limit") == 0) {
			limit = true;
			continue;
		}
		count = json_object_get(w->message, "count");
		merged = merged || json_integer_value(count) > 1;
		sum += count != NULL ? json_integer_value(count) : 1;
		sent += number(w->message, "sent");
	}
	assert_int_equal(sum, COUNT);
	assert_int_equal(sent, 10 * COUNT);
	assert_true(merged && limit);
	assert_true(messages < COUNT);
}

static void test_the_end_reports_what_is_open_and_says_bye(void **state)
{
	struct world *w = *state;
	struct flow f;

	control_start(w->broker.control);
	LIST_INSERT_HEAD(&w->broker.flows, flow_of(w, &f, "api.example.org"), link);
	refuse(w, "other.example.org", "/");
	say(w, "{\"t\": \"end\"}", NULL, 0);
	turn(w);
	assert_true(event_base_got_break(w->broker.base));
	control_finish(w->broker.control);
	assert_string_equal(string(expect(w, "connection"), "host"), "api.example.org");
	assert_string_equal(string(expect(w, "denied"), "host"), "other.example.org");
	(void) expect(w, "bye");
	assert_true(silent(w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_the_configuration_is_read_from_its_file, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_what_is_no_configuration_is_an_error, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_ready_carries_the_trust_files, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_listeners_come_with_their_sockets, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_sixty_four_sockets_come_at_once, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_secrets_are_set_and_revoked, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_what_must_not_be_sent_ends_the_loop, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_listener_that_is_none_ends_the_loop, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_supervisor_is_gone, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_connections_inside_are_asked_for_by_number, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_equal_refusals_are_one_with_a_count, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_no_flood_of_different_refusals_is_lost_count_of, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_any_bytes_make_a_valid_message, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_connection_is_recorded_with_its_newest_requests, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_published_connection_says_so, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_slow_supervisor_costs_detail_and_nothing_else, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_end_reports_what_is_open_and_says_bye, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
