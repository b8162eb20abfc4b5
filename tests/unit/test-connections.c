/* Connections that the broker reports: what is kept of them, and what is only summed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sandbox/connections.h"

static json_t *report(const char *host, int port, int sent, int received)
{
	return json_pack("{ss ss si ss ss si si si ss}", "t", "connection", "host", host, "port", port, "protocol", "tcp",
			 "address", "192.0.2.1", "sent", sent, "received", received, "usec", 1500000, "rule", "network.allow[0]");
}

static json_t *add(struct connections *c, json_t *message)
{
	json_t *entry = connections_add(c, message);

	json_decref(message);
	return entry;
}

static json_int_t number(const json_t *entry, const char *key)
{
	return json_integer_value(json_object_get(entry, key));
}

static void a_connection_is_an_entry_of_the_document(void **state)
{
	struct connections c = {0};
	json_t *list, *entry;

	(void) state;
	(void) add(&c, report("a.example", 443, 10, 20));
	list = connections_to_json(&c);
	assert_int_equal(json_array_size(list), 1);
	entry = json_array_get(list, 0);
	assert_string_equal(json_string_value(json_object_get(entry, "host")), "a.example");
	assert_int_equal(number(entry, "port"), 443);
	assert_int_equal(number(entry, "sent"), 10);
	assert_int_equal(number(entry, "received"), 20);
	assert_true(json_real_value(json_object_get(entry, "seconds")) > 1.49);
	assert_string_equal(json_string_value(json_object_get(entry, "rule")), "network.allow[0]");
	assert_null(json_object_get(entry, "t"));
	json_decref(list);
	connections_done(&c);
}

static void further_ones_are_summed_by_host_and_port(void **state)
{
	struct connections c = {0};
	json_t *list, *last;

	(void) state;
	for (int i = 0; i < CONNECTIONS_MAX + 50; i++)
		(void) add(&c, report("a.example", 443, 1, 2));
	for (int i = 0; i < 7; i++)
		(void) add(&c, report("b.example", 80, 3, 0));
	list = connections_to_json(&c);
	assert_int_equal(json_array_size(list), CONNECTIONS_MAX + 2);
	last = json_array_get(list, CONNECTIONS_MAX);
	assert_int_equal(number(last, "count"), 50);
	assert_int_equal(number(last, "received"), 100);
	last = json_array_get(list, CONNECTIONS_MAX + 1);
	assert_string_equal(json_string_value(json_object_get(last, "host")), "b.example");
	assert_int_equal(number(last, "count"), 7);
	assert_int_equal(number(last, "sent"), 21);
	assert_int_equal(c.total, CONNECTIONS_MAX + 57);
	json_decref(list);
	connections_done(&c);
}

static void the_number_of_sums_is_bounded(void **state)
{
	struct connections c = {0};
	json_t *list;

	(void) state;
	for (int i = 0; i < CONNECTIONS_MAX + CONNECTION_SUMS_MAX + 10; i++) {
		char host[32];

		(void) snprintf(host, sizeof host, "h%d.example", i);
		(void) add(&c, report(host, 443, 1, 1));
	}
	list = connections_to_json(&c);
	assert_int_equal(json_array_size(list), CONNECTIONS_MAX + CONNECTION_SUMS_MAX);
	assert_int_equal(c.more, 10);
	json_decref(list);
	connections_done(&c);
}

static void what_makes_no_sense_is_left_out(void **state)
{
	struct connections c = {0};
	char *text = calloc(1, 5000);
	json_t *list;

	(void) state;
	memset(text, 'x', 4999);
	assert_null(add(&c, json_pack("{ss}", "t", "connection")));
	assert_null(add(&c, report("a.example", 70000, 0, 0)));
	assert_null(add(&c, report(text, 443, 0, 0)));
	assert_null(add(&c, json_array()));
	assert_non_null(
	    add(&c, json_pack("{ss si ss so}", "host", "a.example", "port", 1, "sent", "many", "requests", json_true())));
	list = connections_to_json(&c);
	assert_int_equal(json_array_size(list), 1);
	assert_int_equal(number(json_array_get(list, 0), "sent"), 0);
	assert_null(json_object_get(json_array_get(list, 0), "requests"));
	json_decref(list);
	connections_done(&c);
	free(text);
}

static void requests_without_an_answer_have_no_status(void **state)
{
	struct connections c = {0};
	json_t *requests =
	    json_pack("[{ss ss si}{ss ss}]", "method", "GET", "path", "/a", "status", 200, "method", "PUT", "path", "/b");
	json_t *entry;

	(void) state;
	entry = add(&c, json_pack("{ss si so si}", "host", "a.example", "port", 443, "requests", requests, "request_count", 2));
	requests = json_object_get(entry, "requests");
	assert_int_equal(json_array_size(requests), 2);
	assert_int_equal(number(json_array_get(requests, 0), "status"), 200);
	assert_true(json_is_null(json_object_get(json_array_get(requests, 1), "status")));
	assert_int_equal(number(entry, "request_count"), 2);
	connections_done(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_connection_is_an_entry_of_the_document),
	    cmocka_unit_test(further_ones_are_summed_by_host_and_port),
	    cmocka_unit_test(the_number_of_sums_is_bounded),
	    cmocka_unit_test(what_makes_no_sense_is_left_out),
	    cmocka_unit_test(requests_without_an_answer_have_no_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
