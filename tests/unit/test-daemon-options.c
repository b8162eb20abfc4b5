/* What `zwinger serve` is told by flags and by its file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/serve-options.h"

static int read_flags(struct serve_options *o, struct zw_error *e, size_t count, const char *const *words)
{
	char *argv[16] = {0};
	int r;

	argv[0] = xstrdup("serve");
	for (size_t i = 0; i < count; i++)
		argv[i + 1] = xstrdup(words[i]);
	r = serve_options_read((int) count + 1, argv, o, e);
	for (size_t i = 0; i <= count; i++)
		free(argv[i]);
	return r;
}

#define READ(o, e, ...)                                                                                                          \
	read_flags(o, e, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *const[]){__VA_ARGS__})

static void flags_are_read(void **state)
{
	struct serve_options o;
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(READ(&o, &e, "--listen", "127.0.0.1:0", "--listen=unix:/x", "--drain", "90", "--max-timeout=1h",
			      "--allow-plain-http"),
			 0);
	assert_int_equal(o.listen.count, 2);
	assert_string_equal(o.listen.items[1], "unix:/x");
	assert_int_equal(o.drain, 90 * USEC_PER_SEC);
	assert_int_equal(o.max_timeout, 3600 * USEC_PER_SEC);
	assert_int_equal(o.max_sandboxes, 1000);
	assert_string_equal(o.on_restart, "end");
	assert_true(o.allow_plain_http);
	serve_options_done(&o);
}

static void wrong_flags_are_refused_with_their_name(void **state)
{
	static const struct {
		const char *words[3], *part;
	} rows[] = {
	    {{"--lisen", "x"}, "--listen"},
	    {{"--drain", "soon"}, "--drain: expected a duration"},
	    {{"--max-sandboxes", "0"}, "--max-sandboxes"},
	    {{"--on-restart", "maybe"}, "end|adopt"},
	    {{"--tls", "yes"}, "self-signed"},
	    {{"--tls-cert", "x"}, "--tls-key is missing"},
	    {{"--state"}, "needs a value"},
	    {{"--state", ""}, "got nothing"},
	    {{"--allow-plain-http=yes"}, "takes no value"},
	    {{"extra"}, "no flag"},
	    {{"--config", "/nonexistent/file"}, "/nonexistent/file"},
	};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct serve_options o;
		struct zw_error e = {0};
		size_t count = 0;

		while (count < 3 && rows[i].words[count] != NULL)
			count++;
		assert_true(read_flags(&o, &e, count, rows[i].words) < 0);
		if (strstr(e.text, rows[i].part) == NULL)
			fail_msg("%s: %s", rows[i].words[0], e.text);
		serve_options_done(&o);
	}
}

static void write_file(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void flags_count_more_than_the_file(void **state)
{
	char path[] = "/tmp/test-options-XXXXXX";
	struct serve_options o;
	struct zw_error e = {0};
	int fd = mkostemp(path, O_CLOEXEC);

	(void) state;
	fd_close(&fd);
	write_file(path, "listen: [127.0.0.1:1, '[::1]:1']\nallow_host: a.example\ndrain: 5s\nmax_sandboxes: "
			 "7\nallow_plain_http: true\nstate: rel\n");
	assert_int_equal(READ(&o, &e, "--config", path, "--listen", "127.0.0.1:2", "--drain=6s"), 0);
	assert_int_equal(o.listen.count, 1);
	assert_string_equal(o.listen.items[0], "127.0.0.1:2");
	assert_string_equal(o.allow_hosts.items[0], "a.example");
	assert_int_equal(o.drain, 6 * USEC_PER_SEC);
	assert_int_equal(o.max_sandboxes, 7);
	assert_string_equal(o.state, "/tmp/rel");
	serve_options_done(&o);
	(void) unlink(path);
}

static void faults_of_the_file_have_their_line(void **state)
{
	static const struct {
		const char *text, *part;
	} rows[] = {
	    {"listen: x:1\ndrian: 5s\n", ":2: there is no key \"drian\" (did you mean \"drain\"?)"},
	    {"max-timeout: 1h\n", "there is no key"},
	    {"config: x\n", "there is no key"},
	    {"drain: [5s]\n", ":1: drain: expected one value"},
	    {"drain:\n", "expected D"},
	    {"allow_plain_http: maybe\n", "true or false"},
	    {"{\"drain\": \"x\"}", "duration"},
	};
	char path[] = "/tmp/test-options-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	(void) state;
	fd_close(&fd);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct serve_options o;
		struct zw_error e = {0};

		write_file(path, rows[i].text);
		assert_true(READ(&o, &e, "--config", path) < 0);
		if (strstr(e.text, rows[i].part) == NULL)
			fail_msg("%s: %s", rows[i].text, e.text);
		serve_options_done(&o);
	}
	(void) unlink(path);
}

static void help_names_every_flag(void **state)
{
	cleanup_free char *text = serve_options_help();

	(void) state;
	for (size_t i = 0; serve_option_at(i) != NULL; i++)
		if (strstr(text, serve_option_at(i)->name) == NULL)
			fail_msg("%s", serve_option_at(i)->name);
}

/* The man page beside the source, when the test knows where that is. */
static void the_man_page_names_every_flag(void **state)
{
	const char *path = getenv("ZWINGER_SERVE_MAN");
	cleanup_fd int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -EBADF;
	cleanup_free char *text = NULL;
	size_t size;

	(void) state;
	if (fd < 0)
		skip();
	assert_int_equal(fd_read_all(fd, 1 << 20, &text, &size), 0);
	for (size_t i = 0; serve_option_at(i) != NULL; i++) {
		cleanup_free char *flag = xasprintf("Fl -%s", serve_option_at(i)->name);

		if (strstr(text, flag) == NULL)
			fail_msg("%s", flag);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(flags_are_read),
	    cmocka_unit_test(wrong_flags_are_refused_with_their_name),
	    cmocka_unit_test(flags_count_more_than_the_file),
	    cmocka_unit_test(faults_of_the_file_have_their_line),
	    cmocka_unit_test(help_names_every_flag),
	    cmocka_unit_test(the_man_page_names_every_flag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
