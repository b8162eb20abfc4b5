/* What a run may send, receive, ask and open, and how fast. The line to the supervisor is this file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "egress/control.h"
#include "egress/quota.h"

struct world {
	struct network network;
	struct broker broker;
	struct flow flow;
};

/* What the control line was told. */
struct control {
	size_t refusals, limits, usages;
	char why[160], which[32];
	bool kill;
	uint64_t sent, received;
};

void control_refusal(struct control *c, const struct refusal *r)
{
	c->refusals++;
	(void) snprintf(c->why, sizeof c->why, "%s", r->why);
}

void control_limit(struct control *c, const char *which, bool kill)
{
	c->limits++;
	(void) snprintf(c->which, sizeof c->which, "%s", which);
	c->kill = kill;
}

void control_usage(struct control *c, uint64_t sent, uint64_t received)
{
	c->usages++;
	c->sent = sent;
	c->received = received;
}

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->network.limits.bytes_out = w->network.limits.bytes_in = w->network.limits.requests = ZW_UNLIMITED;
	w->network.limits.connections = w->network.limits.rate = ZW_UNLIMITED;
	w->broker.network = &w->network;
	w->broker.control = xcalloc(1, sizeof(struct control));
	w->broker.base = event_base_new();
	w->broker.quota = quota_new(&w->broker);
	w->flow.broker = &w->broker;
	(void) snprintf(w->flow.target.name, sizeof w->flow.target.name, "api.example.org");
	w->flow.target.port = 443;
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	quota_free(w->broker.quota);
	event_base_free(w->broker.base);
	free(w->broker.control);
	free(w);
	return 0;
}

/* After limits were set: the bucket is filled by them. */
static void renew(struct world *w)
{
	quota_free(w->broker.quota);
	w->broker.quota = quota_new(&w->broker);
}

static void test_without_limits_nothing_is_refused(void **state)
{
	struct world *w = *state;
	usec_t wait = 1;

	for (int i = 0; i < 1000; i++) {
		assert_true(quota_connection(w->broker.quota, &w->flow.target));
		assert_true(quota_request(w->broker.quota, &w->flow.target));
	}
	assert_true(quota_sent(&w->flow, UINT64_C(1) << 50));
	assert_true(quota_received(&w->flow, UINT64_C(1) << 50));
	assert_int_equal(quota_allowance(w->broker.quota, 12345, &wait), 12345);
	assert_int_equal(wait, 0);
	assert_int_equal(w->broker.control->refusals, 0);
}

static void test_no_byte_more_than_bytes_out_is_let_go(void **state)
{
	struct world *w = *state;

	w->network.limits.bytes_out = 100;
	assert_true(quota_sent(&w->flow, 60));
	assert_true(quota_sent(&w->flow, 40));
	assert_int_equal(w->broker.control->refusals, 0);
	assert_false(quota_sent(&w->flow, 1));
	assert_int_equal(w->flow.sent, 100);
	assert_int_equal(w->broker.control->refusals, 1);
	assert_string_equal(w->broker.control->why, "network.limits.bytes_out is used up: 100");
	assert_string_equal(w->broker.control->which, "bytes_out");
	assert_false(w->broker.control->kill);
	/* What comes after is refused at once, and the supervisor is not told again. */
	assert_false(quota_connection(w->broker.quota, &w->flow.target));
	assert_false(quota_request(w->broker.quota, &w->flow.target));
	assert_int_equal(w->broker.control->limits, 1);
	assert_int_equal(w->broker.control->refusals, 3);
}

static void test_sums_beyond_all_numbers_are_refused(void **state)
{
	struct world *w = *state;

	w->network.limits.bytes_out = UINT64_MAX - 1;
	assert_true(quota_sent(&w->flow, UINT64_MAX - 2));
	assert_false(quota_sent(&w->flow, UINT64_MAX - 2));
}

static void test_received_bytes_count_even_when_they_are_too_many(void **state)
{
	struct world *w = *state;

	w->network.limits.bytes_in = 10;
	w->network.limits.on_limit = NETWORK_LIMIT_KILL;
	assert_false(quota_received(&w->flow, 25));
	assert_int_equal(w->flow.received, 25);
	assert_string_equal(w->broker.control->which, "bytes_in");
	assert_true(w->broker.control->kill);
	quota_report(w->broker.quota);
	assert_int_equal(w->broker.control->received, 25);
}

static void test_connections_and_requests_are_counted(void **state)
{
	struct world *w = *state;

	w->network.limits.connections = 2;
	w->network.limits.requests = 1;
	assert_true(quota_connection(w->broker.quota, &w->flow.target));
	assert_true(quota_connection(w->broker.quota, &w->flow.target));
	assert_false(quota_connection(w->broker.quota, &w->flow.target));
	assert_string_equal(w->broker.control->which, "connections");
	assert_true(quota_request(w->broker.quota, &w->flow.target));
	assert_false(quota_request(w->broker.quota, &w->flow.target));
	assert_string_equal(w->broker.control->which, "requests");
}

static void test_a_limit_of_none_allows_none(void **state)
{
	struct world *w = *state;

	w->network.limits.connections = 0;
	assert_false(quota_connection(w->broker.quota, &w->flow.target));
	w->network.limits.bytes_out = 0;
	assert_false(quota_sent(&w->flow, 1));
}

static void test_usage_is_told_when_it_changed_and_only_then(void **state)
{
	struct world *w = *state;

	quota_report(w->broker.quota);
	assert_int_equal(w->broker.control->usages, 0);
	assert_true(quota_sent(&w->flow, 7));
	assert_int_equal(event_base_loop(w->broker.base, EVLOOP_ONCE), 0);
	assert_int_equal(w->broker.control->usages, 1);
	assert_int_equal(w->broker.control->sent, 7);
	quota_report(w->broker.quota);
	assert_int_equal(w->broker.control->usages, 1);
}

/* As a relay does it: move what is allowed, wait as told. Bounds are wide: the machine may be slow, never fast. */
static void test_the_rate_holds_over_time(void **state)
{
	struct world *w = *state;
	usec_t begin, took;
	uint64_t moved = 0;

	w->network.limits.rate = 400000;
	renew(w);
	begin = now_monotonic();
	while (moved < 200000) {
		usec_t wait;
		size_t now = quota_allowance(w->broker.quota, 65536, &wait);

		assert_true(now > 0 || wait > 0);
		assert_true(wait < USEC_PER_SEC);
		if (now == 0)
			continue; /* asking again and again must not create allowance */
		assert_true(quota_sent(&w->flow, now));
		moved += now;
	}
	took = now_monotonic() - begin;
	/* A tenth of a second's worth was there from the beginning: 160,000 bytes need 0.4 s. */
	assert_true(took >= 390000);
	assert_true(took < 3 * USEC_PER_SEC);
}

static void test_a_datagram_may_go_into_debt(void **state)
{
	struct world *w = *state;
	usec_t wait = 0;

	w->network.limits.rate = 10000;
	renew(w);
	assert_true(quota_allowance(w->broker.quota, 9000, &wait) > 0);
	assert_true(quota_sent(&w->flow, 9000));
	assert_int_equal(quota_allowance(w->broker.quota, 1, &wait), 0);
	assert_in_range(wait, 500000, 900000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_without_limits_nothing_is_refused, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_no_byte_more_than_bytes_out_is_let_go, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_sums_beyond_all_numbers_are_refused, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_received_bytes_count_even_when_they_are_too_many, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_connections_and_requests_are_counted, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_limit_of_none_allows_none, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_usage_is_told_when_it_changed_and_only_then, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_the_rate_holds_over_time, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_a_datagram_may_go_into_debt, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
