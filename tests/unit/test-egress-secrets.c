/* Secrets: the newest value is the one that is used, every one that ever was is known for redaction, and none is in a core dump.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "egress/secrets.h"

static void expect(const struct secrets *s, const char *name, const char *value)
{
	size_t size = 0;
	const char *have = secrets_get(s, name, &size);

	if (value == NULL) {
		assert_null(have);
		return;
	}
	assert_non_null(have);
	assert_string_equal(have, value);
	assert_int_equal(size, strlen(value));
}

static int set(struct secrets *s, const char *name, const char *value)
{
	return secrets_set(s, name, value, value != NULL ? strlen(value) : 0);
}

static void collect(void *ctx, const char *value, size_t size)
{
	char *text = ctx;

	assert_int_equal(strlen(value), size);
	(void) snprintf(text + strlen(text), 256 - strlen(text), "%s;", value);
}

static void newest_value_is_used(void **state)
{
	struct secrets *s = secrets_new();

	(void) state;
	expect(s, "token", NULL);
	assert_int_equal(set(s, "token", "first"), 0);
	assert_int_equal(set(s, "other", "else"), 0);
	expect(s, "token", "first");
	assert_int_equal(set(s, "token", "second"), 0);
	expect(s, "token", "second");
	expect(s, "other", "else");
	secrets_free(s);
}

static void revoked_one_has_no_value(void **state)
{
	struct secrets *s = secrets_new();

	(void) state;
	assert_int_equal(set(s, "token", NULL), 0);
	assert_int_equal(set(s, "token", "first"), 0);
	assert_int_equal(set(s, "token", NULL), 0);
	expect(s, "token", NULL);
	assert_int_equal(set(s, "token", "first"), 0);
	expect(s, "token", "first");
	secrets_free(s);
}

static void former_values_are_known_for_redaction(void **state)
{
	struct secrets *s = secrets_new();
	char text[256] = "";

	(void) state;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(set(s, "token", "first"), 0);
		assert_int_equal(set(s, "token", "second"), 0);
	}
	assert_int_equal(set(s, "token", NULL), 0);
	secrets_each(s, collect, text);
	assert_string_equal(text, "second;first;"); /* each once */
	secrets_free(s);
}

static void value_may_hold_any_byte_and_be_long(void **state)
{
	struct secrets *s = secrets_new();
	cleanup_free char *big = xcalloc(60000, 1);
	size_t size = 0;

	(void) state;
	memset(big, 'x', 59999);
	big[7] = '\0';
	assert_int_equal(secrets_set(s, "big", big, 60000), 0);
	assert_memory_equal(secrets_get(s, "big", &size), big, 60000);
	assert_int_equal(size, 60000);
	assert_int_equal(secrets_set(s, "empty", "", 0), 0);
	assert_non_null(secrets_get(s, "empty", &size));
	assert_int_equal(size, 0);
	secrets_free(s);
}

/* The flags of the mapping that holds an address, as /proc/self/smaps tells them. */
static void mapping_flags(const void *address, char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool here = false;

	assert_non_null(f);
	*ret = '\0';
	while (fgets(line, sizeof line, f) != NULL) {
		uintptr_t first, last;

		if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
			here = (uintptr_t) address >= first && (uintptr_t) address < last;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			(void) snprintf(ret, size, "%s", line);
	}
	(void) fclose(f);
}

static void value_is_in_no_core_dump_and_no_child(void **state)
{
	struct secrets *s = secrets_new();
	char flags[512];
	size_t size;

	(void) state;
	assert_int_equal(set(s, "token", "hidden"), 0);
	mapping_flags(secrets_get(s, "token", &size), flags, sizeof flags);
	assert_non_null(strstr(flags, " dd")); /* do not dump */
	assert_non_null(strstr(flags, " dc")); /* do not copy on fork */
	mapping_flags(s, flags, sizeof flags);
	assert_null(strstr(flags, " dd"));
	secrets_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(newest_value_is_used),
	    cmocka_unit_test(revoked_one_has_no_value),
	    cmocka_unit_test(former_values_are_known_for_redaction),
	    cmocka_unit_test(value_may_hold_any_byte_and_be_long),
	    cmocka_unit_test(value_is_in_no_core_dump_and_no_child),
	};

	return cmocka_run_group_tests_name("egress-secrets", tests, NULL, NULL);
}
