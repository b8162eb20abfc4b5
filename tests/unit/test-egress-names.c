/* Addresses for names: one each, stable, never more than there are, and none that was not given out stands for anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "egress/broker.h"
#include "egress/names.h"

static void test_a_name_keeps_its_address(void **state)
{
	struct names *n = names_new();
	bool made = false;
	uint32_t a, b;

	(void) state;
	a = names_address(n, "api.example.org", &made);
	assert_true(made);
	assert_int_equal(a, NETWORK_NAMES_FIRST);
	b = names_address(n, "db.example.org", &made);
	assert_true(made);
	assert_int_not_equal(a, b);
	assert_int_equal(names_address(n, "api.example.org", &made), a);
	assert_false(made);
	assert_string_equal(names_lookup(n, a), "api.example.org");
	assert_string_equal(names_lookup(n, b), "db.example.org");
	names_free(n);
}

static void test_other_addresses_stand_for_nothing(void **state)
{
	const uint32_t others[] = {
	    0, NETWORK_STUB_ADDRESS, NETWORK_NAMES_FIRST - 1, NETWORK_NAMES_FIRST + 1, NETWORK_NAMES_LAST, UINT32_MAX};
	struct names *n = names_new();
	bool made;

	(void) state;
	assert_null(names_lookup(n, NETWORK_NAMES_FIRST));
	(void) names_address(n, "api.example.org", &made);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		assert_null(names_lookup(n, others[i]));
	names_free(n);
}

static void test_there_is_an_end_to_new_names(void **state)
{
	struct names *n = names_new();
	bool made;
	char name[64];

	(void) state;
	for (int i = 0; i < NAMES_MAX; i++) {
		uint32_t a;

		(void) snprintf(name, sizeof name, "x%d.example.org", i);
		a = names_address(n, name, &made);
		assert_true(made && a >= NETWORK_NAMES_FIRST && a <= NETWORK_NAMES_LAST);
		assert_string_equal(names_lookup(n, a), name);
	}
	assert_int_equal(names_address(n, "one-more.example.org", &made), 0);
	assert_false(made);
	assert_int_equal(names_address(n, "x7.example.org", &made), NETWORK_NAMES_FIRST + 7);
	names_free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_name_keeps_its_address),
	    cmocka_unit_test(test_other_addresses_stand_for_nothing),
	    cmocka_unit_test(test_there_is_an_end_to_new_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
