/* Denials are counted by what they are, and bounded in number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sandbox/denials.h"
#include "sandbox/sandbox.h"

static void the_same_denial_is_one_entry(void **state)
{
	struct denials d = {0};

	(void) state;
	assert_int_equal(denials_add(&d, &(struct denial){.kind = "syscall", .name = "mount"}), 1);
	assert_int_equal(denials_add(&d, &(struct denial){.kind = "syscall", .name = "mount"}), 2);
	assert_int_equal(denials_add(&d, &(struct denial){.kind = "syscall", .name = "ptrace"}), 1);
	assert_int_equal(d.count, 2);
	assert_int_equal(d.total, 3);
	denials_done(&d);
}

static void kind_host_and_port_tell_apart(void **state)
{
	struct denials d = {0};

	(void) state;
	(void) denials_add(&d, &(struct denial){.kind = "network", .host = "10.0.0.1", .port = 443});
	(void) denials_add(&d, &(struct denial){.kind = "network", .host = "10.0.0.1", .port = 80});
	(void) denials_add(&d, &(struct denial){.kind = "network", .host = "10.0.0.2", .port = 443});
	(void) denials_add(&d, &(struct denial){.kind = "dns", .host = "10.0.0.1", .port = 443});
	(void) denials_add(&d, &(struct denial){.kind = "network", .name = "10.0.0.1", .port = 443});
	assert_int_equal(d.count, 5);
	denials_done(&d);
	assert_int_equal(d.count, 0);
}

static void a_count_is_taken_over(void **state)
{
	struct denials d = {0};

	(void) state;
	assert_int_equal(denials_add(&d, &(struct denial){.kind = "process", .name = "processes", .count = 7}), 7);
	assert_int_equal(d.items[0].count, 7);
	denials_done(&d);
}

static void the_number_of_entries_is_bounded(void **state)
{
	struct denials d = {0};
	char name[16];

	(void) state;
	for (unsigned i = 0; i < DENIALS_MAX + 50; i++) {
		(void) snprintf(name, sizeof name, "path-%u", i);
		assert_int_equal(denials_add(&d, &(struct denial){.kind = "file", .name = name}), i < DENIALS_MAX ? 1 : 0);
	}
	assert_int_equal(d.count, DENIALS_MAX);
	assert_int_equal(d.other, 50);
	assert_int_equal(d.total, DENIALS_MAX + 50);
	denials_done(&d);
}

static void long_names_are_cut_and_still_the_same(void **state)
{
	struct denials d = {0};
	char name[2000];

	(void) state;
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	assert_int_equal(denials_add(&d, &(struct denial){.kind = "file", .name = name}), 1);
	assert_int_equal(denials_add(&d, &(struct denial){.kind = "file", .name = name}), 2);
	assert_true(strlen(d.items[0].name) < 1000);
	denials_done(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_same_denial_is_one_entry),
	    cmocka_unit_test(kind_host_and_port_tell_apart),
	    cmocka_unit_test(a_count_is_taken_over),
	    cmocka_unit_test(the_number_of_entries_is_bounded),
	    cmocka_unit_test(long_names_are_cut_and_still_the_same),
	};

	return cmocka_run_group_tests_name("denials", tests, NULL, NULL);
}
