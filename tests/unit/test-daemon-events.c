/* Logs of events: what they keep, and what all sandboxes keep together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/event-log.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"

static json_t *members_of(size_t size)
{
	char *text = xcalloc(size + 1, 1);
	json_t *o;

	memset(text, 'x', size);
	o = json_pack("{ss}", "text", text);
	free(text);
	return o;
}

static void add(struct event_log *log, size_t size)
{
	struct event_entry *e = event_entry_new("denial", members_of(size));

	assert_non_null(e);
	event_log_add(log, e);
	event_entry_unref(e);
}

static void test_the_oldest_go_first(void **state)
{
	struct event_log *log = event_log_new(100, 10000, 1);
	size_t full;

	(void) state;
	assert_int_equal(event_log_bytes(log), 0);
	for (size_t i = 0; i < 1000; i++)
		add(log, 400);
	full = event_log_bytes(log);
	assert_in_range(full, 8000, 14000);
	event_log_shed(log, full);
	assert_int_equal(event_log_bytes(log), full);
	event_log_shed(log, full / 2);
	assert_in_range(event_log_bytes(log), full / 4, full / 2);
	event_log_shed(log, 0);
	assert_int_equal(event_log_bytes(log), 0);
	add(log, 400);
	assert_in_range(event_log_bytes(log), 400, 1000);
	event_log_free(log);
}

enum { SANDBOXES = 120 };

static void test_all_together_have_a_bound(void **state)
{
	struct sandboxes all = {0};
	struct sandbox *s = xcalloc(SANDBOXES + 1, sizeof *s), *modest = &s[SANDBOXES];
	size_t most = 0, sum = 0, small;

	(void) state;
	for (size_t i = 0; i <= SANDBOXES; i++) {
		s[i].all = &all;
		s[i].older = all.newest;
		all.newest = &s[i];
	}
	sandbox_event(modest, "created", members_of(100));
	small = event_log_bytes(modest->events);
	for (size_t n = 0; n < 70; n++)
		for (size_t i = 0; i < SANDBOXES; i++) {
			sandbox_event(&s[i], "denial", members_of(15000));
			most = all.event_bytes > most ? all.event_bytes : most;
		}
	assert_in_range(most, 60 * 1024 * 1024, 64 * 1024 * 1024);
	assert_int_equal(event_log_bytes(modest->events), small);
	for (size_t i = 0; i <= SANDBOXES; i++) {
		sum += event_log_bytes(s[i].events);
		assert_true(event_log_bytes(s[i].events) > 0);
	}
	assert_int_equal(sum, all.event_bytes);
	for (size_t i = 0; i <= SANDBOXES; i++)
		sandbox_events_free(&s[i]);
	assert_int_equal(all.event_bytes, 0);
	event_log_free(all.events);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_oldest_go_first),
	    cmocka_unit_test(test_all_together_have_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
