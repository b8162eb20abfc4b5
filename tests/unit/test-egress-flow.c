/* From a target to the rules that cover it, and the sentence that says why none does. The control line is this file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "egress/control.h"
#include "egress/narrow.h"
#include "egress/quota.h"

/* What it was told. */
struct control {
	size_t refusals, connections;
	char why[400], kind[16], host[256], label[64];
	int rule;
	uint64_t sent;
};

void control_refusal(struct control *c, const struct refusal *r)
{
	c->refusals++;
	(void) snprintf(c->why, sizeof c->why, "%s", r->why);
	(void) snprintf(c->kind, sizeof c->kind, "%s", r->kind);
	(void) snprintf(c->host, sizeof c->host, "%s", r->host);
	c->rule = r->rule;
}

void control_flow_gone(struct control *c)
{
	(void) c;
}

void control_connection(struct control *c, const struct flow *f)
{
	c->connections++;
	c->rule = f->rule;
	c->sent = f->sent;
}

void control_limit(struct control *c, const char *which, bool kill)
{
	(void) c, (void) which, (void) kill;
}

void control_usage(struct control *c, uint64_t sent, uint64_t received)
{
	(void) c, (void) sent, (void) received;
}

void connections_count(struct broker *b, int change)
{
	b->connections = change < 0 ? b->connections - 1 : b->connections + 1;
}

/* Which protocol was started. */
#define STARTS(name)                                                                                                             \
	void name(struct flow *f, int fd)                                                                                        \
	{                                                                                                                        \
		(void) snprintf(f->error, sizeof f->error, #name);                                                               \
		(void) fd;                                                                                                       \
	}
STARTS(relay_start)
STARTS(passthrough_start)
STARTS(http_start)

struct world {
	struct network network;
	struct broker broker;
	struct control control;
};

static void add(struct world *w, const char *host, const char *address, uint16_t first, uint16_t last, enum net_protocol protocol)
{
	struct port_range range = {.first = first, .last = last};
	struct policy_rule rule = {.host = (char *) (uintptr_t) host,
				   .address = (char *) (uintptr_t) address,
				   .ports = &range,
				   .port_count = 1,
				   .protocol = protocol,
				   .request_max = ZW_UNLIMITED};
	struct zw_error e = {0};
	char label[32];

	(void) snprintf(label, sizeof label, "network.allow[%zu]", w->network.rule_count);
	if (network_add_rule(&w->network, &rule, label, &e) < 0)
		fail_msg("%s", e.text);
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->network.limits.bytes_out = w->network.limits.bytes_in = w->network.limits.requests = ZW_UNLIMITED;
	w->network.limits.connections = w->network.limits.rate = ZW_UNLIMITED;
	w->broker.network = &w->network;
	w->broker.control = &w->control;
	w->broker.base = event_base_new();
	w->broker.quota = quota_new(&w->broker);
	LIST_INIT(&w->broker.flows);
	add(w, "api.example.org", NULL, 443, 443, NET_HTTPS);
	add(w, "db.example.org", NULL, 5432, 5440, NET_TCP);
	add(w, "*.mirror.example.org", NULL, 443, 443, NET_TLS);
	add(w, NULL, "10.1.0.0/16", 5432, 5432, NET_TCP);
	add(w, "time.example.org", NULL, 123, 123, NET_UDP);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	quota_free(w->broker.quota);
	event_base_free(w->broker.base);
	network_done(&w->network);
	free(w);
	return 0;
}

static struct target target(const char *host, uint16_t port)
{
	struct target t = {.port = port};

	if (network_address(host, strlen(host), &t.address) < 0)
		(void) snprintf(t.name, sizeof t.name, "%s", host);
	return t;
}

static void test_an_allowed_target_gets_its_rule_and_protocol(void **state)
{
	static const struct {
		const char *host;
		uint16_t port;
		bool udp;
		int rule;
		const char *started;
	} rows[] = {
	    {"api.example.org", 443, false, -1, "http_start"}, /* each request has a rule of its own */
	    {"db.example.org", 5433, false, 1, "relay_start"}, {"a.mirror.example.org", 443, false, 2, "passthrough_start"},
	    {"10.1.2.3", 5432, false, 3, "relay_start"},       {"time.example.org", 123, true, 4, NULL},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct target t = target(rows[i].host, rows[i].port);
		struct flow *f = flow_open(&w->broker, &t, rows[i].udp);

		if (f == NULL)
			fail_msg("%s was refused: %s", rows[i].host, w->control.why);
		assert_int_equal(f->rule, rows[i].rule);
		assert_int_equal(w->broker.connections, 1);
		if (rows[i].started != NULL) {
			flow_start(f, -EBADF);
			assert_string_equal(f->error, rows[i].started);
		}
		flow_close(f);
		assert_int_equal(w->broker.connections, 0);
		assert_true(LIST_EMPTY(&w->broker.flows));
		assert_int_equal(w->control.connections, i + 1);
	}
	assert_int_equal(w->control.refusals, 0);
}

static void test_a_refusal_says_which_rule_is_near(void **state)
{
	static const struct {
		const char *host;
		uint16_t port;
		bool udp;
		int rule;
		const char *why;
	} rows[] = {
	    {"api.example.org", 80, false, 0, "api.example.org:80 is not in network.allow (network.allow[0] covers port 443)"},
	    {"db.example.org", 22, false, 1,
	     "db.example.org:22 is not in network.allow (network.allow[1] covers ports 5432-5440)"},
	    {"10.1.2.3", 22, false, 3, "10.1.2.3:22 is not in network.allow (network.allow[3] covers port 5432)"},
	    {"10.2.2.3", 5432, false, -1, "10.2.2.3:5432 is not in network.allow"},
	    {"2001:db8::1", 443, false, -1, "[2001:db8::1]:443 is not in network.allow"},
	    {"time.example.org", 123, false, 4,
	     "time.example.org:123 is not in network.allow (network.allow[4] covers it for UDP alone)"},
	    {"db.example.org", 5432, true, 1,
	     "db.example.org:5432 is not in network.allow (network.allow[1] covers it for TCP alone)"},
	    {"mirror.example.org", 443, false, 2,
	     "mirror.example.org:443 is not in network.allow (network.allow[2] covers *.mirror.example.org port 443)"},
	    {"quite.another.test", 443, false, -1, "quite.another.test:443 is not in network.allow"},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct target t = target(rows[i].host, rows[i].port);

		assert_null(flow_open(&w->broker, &t, rows[i].udp));
		assert_int_equal(w->control.refusals, i + 1);
		assert_string_equal(w->control.why, rows[i].why);
		assert_string_equal(w->control.host, rows[i].host);
		assert_string_equal(w->control.kind, "network");
		assert_int_equal(w->control.rule, rows[i].rule);
	}
	assert_int_equal(w->broker.connections, 0);
}

static void test_no_rules_allow_nothing(void **state)
{
	struct world *w = *state;
	struct target t = target("api.example.org", 443);

	network_done(&w->network);
	w->network = (struct network){0};
	assert_null(flow_open(&w->broker, &t, false));
	assert_string_equal(w->control.why, "api.example.org:443 is not in network.allow");
}

static void test_the_limit_of_connections_refuses(void **state)
{
	struct world *w = *state;
	struct target t = target("db.example.org", 5432);
	struct flow *f;

	w->network.limits.connections = 1;
	f = flow_open(&w->broker, &t, false);
	assert_non_null(f);
	flow_close(f);
	assert_null(flow_open(&w->broker, &t, false));
	assert_string_equal(w->control.why, "network.limits.connections is used up: 1");
}

static void test_the_newest_requests_are_kept(void **state)
{
	struct world *w = *state;
	struct target t = target("api.example.org", 443);
	struct flow *f = flow_open(&w->broker, &t, false);
	char path[32], *longest = xcalloc(1, 5000);

	for (int i = 0; i < 250; i++) {
		(void) snprintf(path, sizeof path, "/%d", i);
		flow_add_request(f, "GET", path, strlen(path))->status = i;
	}
	assert_int_equal(f->request_count, 250);
	assert_string_equal(f->requests[249 % FLOW_REQUESTS_MAX].path, "/249");
	assert_string_equal(f->requests[250 % FLOW_REQUESTS_MAX].path, "/150");
	memset(longest, 'a', 4999);
	assert_int_equal(strlen(flow_add_request(f, "AMETHODNAMETHATISFARTOOLONG", longest, 4999)->path), 1024);
	free(longest);
	flow_close(f);
}

static bool opens(struct world *w, const char *host, uint16_t port, bool udp)
{
	struct target t = target(host, port);
	struct flow *f = flow_open(&w->broker, &t, udp);

	flow_close(f);
	return f != NULL;
}

static int leave(struct world *w, const char *entries)
{
	json_t *list = json_loads(entries, JSON_DECODE_ANY, NULL);
	int r;

	assert_non_null(list);
	r = narrow_set(&w->broker, list);
	json_decref(list);
	return r;
}

static void test_what_is_left_of_the_rules_is_a_part_of_them(void **state)
{
	struct world *w = *state;

	assert_int_equal(
	    leave(w, "[\"DB.example.org\", \"*.a.mirror.example.org\", \"10.1.2.0/24\", \"0.0.0.0/0\", \"free.test\"]"), 0);
	assert_true(opens(w, "db.example.org", 5432, false));
	assert_false(opens(w, "db.example.org", 22, false)); /* the rules' ports */
	assert_true(opens(w, "x.a.mirror.example.org", 443, false));
	assert_false(opens(w, "x.b.mirror.example.org", 443, false));
	assert_false(opens(w, "api.example.org", 443, false));
	assert_string_equal(w->control.why,
			    "api.example.org is not among what is left of network.allow since the rules were changed");
	assert_false(opens(w, "free.test", 443, false)); /* was never open */
	assert_string_equal(w->control.why, "free.test:443 is not in network.allow");
	assert_false(opens(w, "10.2.0.1", 5432, false));
	assert_false(opens(w, "time.example.org", 123, true));
	assert_int_equal(leave(w, "[]"), 0);
	assert_false(opens(w, "db.example.org", 5432, false));
	assert_false(opens(w, "10.1.2.3", 5432, false));
	assert_int_equal(leave(w, "[\"10.1.2.3\"]"), 0);
	assert_true(opens(w, "10.1.2.3", 5432, false));
	assert_false(opens(w, "10.1.2.4", 5432, false));
	assert_int_equal(leave(w, "[\"a b\"]"), -EPROTO);
	assert_int_equal(leave(w, "[5]"), -EPROTO);
	assert_int_equal(leave(w, "\"x\""), -EPROTO);
	assert_true(opens(w, "10.1.2.3", 5432, false)); /* as before */
	assert_int_equal(leave(w, "null"), 0);
	assert_true(opens(w, "10.1.2.4", 5432, false));
	assert_true(opens(w, "time.example.org", 123, true));
}

static void close_flow(void *owner)
{
	flow_close(owner);
}

static void test_connections_that_are_not_left_are_cut(void **state)
{
	static const struct {
		const char *host;
		uint16_t port;
		bool stays;
	} rows[] = {{"db.example.org", 5432, true}, {"api.example.org", 443, false}, {"10.1.2.3", 5432, false}};
	struct world *w = *state;
	struct target peer = target("192.0.2.1", 4000);
	struct flow *f[ARRAY_SIZE(rows)], *published = flow_open_published(&w->broker, &peer, "127.0.0.1:8080");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct target t = target(rows[i].host, rows[i].port);

		f[i] = flow_open(&w->broker, &t, false);
		assert_non_null(f[i]);
		f[i]->cut = close_flow;
		f[i]->owner = f[i];
	}
	assert_int_equal(leave(w, "[\"db.example.org\"]"), 0);
	assert_int_equal(w->broker.connections, 2);
	assert_int_equal(w->control.connections, 2);
	flow_close(f[0]);
	flow_close(published);
	assert_int_equal(leave(w, "null"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_an_allowed_target_gets_its_rule_and_protocol, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_refusal_says_which_rule_is_near, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_no_rules_allow_nothing, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_limit_of_connections_refuses, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_newest_requests_are_kept, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_what_is_left_of_the_rules_is_a_part_of_them, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_connections_that_are_not_left_are_cut, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
