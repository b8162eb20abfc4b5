/* Values of secrets: where they come from, and what is refused without being shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sandbox/secret-source.h"

static char name[] = "token";

static int read_secret(const struct secret_source *s, char **ret, struct zw_error *e)
{
	size_t size = 0;
	int r;

	*ret = NULL;
	*e = (struct zw_error){0};
	r = secret_read(s, ret, &size, e);
	if (r == 0)
		assert_int_equal(strlen(*ret), size);
	return r;
}

static void the_environment_gives_it(void **state)
{
	struct secret_source s = {.name = name, .env = (char[]){"ZWINGER_TEST_SECRET"}};
	struct zw_error e;
	char *value;

	(void) state;
	assert_int_equal(unsetenv(s.env), 0);
	assert_true(read_secret(&s, &value, &e) < 0);
	assert_non_null(strstr(e.text, "ZWINGER_TEST_SECRET"));
	assert_int_equal(setenv(s.env, "s3cret\n", 1), 0);
	assert_int_equal(read_secret(&s, &value, &e), 0);
	assert_string_equal(value, "s3cret");
	secret_wipe(&value, strlen(value));
	assert_null(value);
}

static void a_file_gives_it_without_its_last_newline(void **state)
{
	char path[] = "/tmp/zwinger-test-secret-XXXXXX";
	int fd = mkstemp(path);
	struct secret_source s = {.name = name, .file = path};
	struct zw_error e;
	char *value;

	(void) state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "of a file\n", 10), 10);
	assert_int_equal(read_secret(&s, &value, &e), 0);
	assert_string_equal(value, "of a file");
	secret_wipe(&value, strlen(value));
	assert_int_equal(unlink(path), 0);
	assert_true(read_secret(&s, &value, &e) < 0);
	assert_non_null(strstr(e.text, path));
	(void) close(fd);
}

static int from_shell(const char *script, char **ret, struct zw_error *e)
{
	cleanup_free char *text = xstrdup(script);
	char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, text, NULL};
	struct secret_source s = {.name = name, .command = argv};

	return read_secret(&s, ret, e);
}

static void a_command_gives_it(void **state)
{
	struct zw_error e;
	char *value;

	(void) state;
	assert_int_equal(from_shell("echo from a command", &value, &e), 0);
	assert_string_equal(value, "from a command");
	secret_wipe(&value, strlen(value));
	assert_true(from_shell("echo leaked-value; exit 3", &value, &e) < 0);
	assert_null(strstr(e.text, "leaked-value"));
	assert_true(from_shell("cat", &value, &e) < 0); /* its standard input is empty, and so is the value */
	assert_true(from_shell("head -c 100000 /dev/zero | tr '\\0' x", &value, &e) < 0);
}

static void what_no_header_can_carry_is_refused_unseen(void **state)
{
	static const char *const scripts[] = {"printf 'two\\nlines'", "printf 'carriage\\rreturn'", "printf 'a\\0b'", "printf ''",
					      "printf abc"};
	struct zw_error e;
	char *value;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		assert_true(from_shell(scripts[i], &value, &e) < 0);
		assert_null(value);
		assert_null(strstr(e.text, "lines"));
		assert_null(strstr(e.text, "return"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_environment_gives_it),
	    cmocka_unit_test(a_file_gives_it_without_its_last_newline),
	    cmocka_unit_test(a_command_gives_it),
	    cmocka_unit_test(what_no_header_can_carry_is_refused_unseen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
