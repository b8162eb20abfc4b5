/* Policies of a stranger: each gets an error, soon, and never a crash, a hang or much memory. */
#include "policy-helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* `count` times `unit`, then `end`; NUL-terminated and owned by the caller. */
static char *repeat(const char *start, const char *unit, size_t count, const char *end)
{
	size_t ns = strlen(start), nu = strlen(unit), ne = strlen(end);
	char *text = xcalloc(ns + nu * count + ne + 1, 1), *p = text + ns;

	memcpy(text, start, ns);
	for (size_t i = 0; i < count; i++, p += nu)
		memcpy(p, unit, nu);
	memcpy(p, end, ne);
	return text;
}

static void assert_refused_repeated(const char *start, const char *unit, size_t count, const char *end, const char *words)
{
	char *text = repeat(start, unit, count, end);

	assert_refused(text, 0, NULL, words);
	free(text);
}

static void deep_nesting_is_refused(void **state)
{
	(void) state;
	assert_refused_repeated("a: ", "[", 100000, "", "nested too deeply");
	assert_refused_repeated("a: ", "{b: ", 33, "", "nested too deeply");
	assert_refused_repeated("", "- ", 100000, "x", "nested too deeply");
	assert_refused_repeated("{\"a\": ", "[", 100000, "", "nested too deeply");
	assert_refused_repeated("", "{\"a\":", 33, "1", "nested too deeply");
}

static void too_many_values_are_refused(void **state)
{
	(void) state;
	assert_refused_repeated("env: {pass: [", "a,", 400000, "b]}", "too many values");
	assert_refused_repeated("{\"a\": [", "1,", 400000, "1]}", "too many values");
}

static void anchors_and_aliases_are_refused(void **state)
{
	(void) state;
	assert_refused("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n", 2, NULL, "anchors");
	assert_refused("a: &a [*a]\n", 1, NULL, "anchors");
	assert_refused("<<: {a: b}\n", 1, "<<", "unknown key");
	assert_refused("network: {allow: [*.example.org]}", 1, NULL, "in quotes");
	assert_refused("network: {allow: [@pip]}", 1, NULL, "in quotes");
}

static void tags_are_refused(void **state)
{
	(void) state;
	assert_refused("a: !!python/object/apply:os.system [id]\n", 1, NULL, "tags are not part");
	assert_refused("name: !!binary aGk=\n", 1, NULL, "tags are not part");
	assert_refused("--- !x\nname: a\n", 1, NULL, "tags are not part");
}

static void keys_are_texts_and_there_once(void **state)
{
	(void) state;
	assert_refused("name: a\nlimits: {}\nname: b\n", 3, NULL, "there twice");
	assert_refused("limits: {memory: 1G, memory: 2G}\n", 1, NULL, "there twice");
	assert_refused("? [a]\n: b\n", 1, NULL, "expected a text as key");
	assert_refused("? {a: b}\n: b\n", 1, NULL, "expected a text as key");
	assert_refused("1: b\n", 1, NULL, "in quotes");
	assert_refused("null: b\n", 1, NULL, "in quotes");
	assert_refused("\"\": b\n", 1, NULL, "unknown key");
	assert_refused("\"limits.memory\": 1G\n", 1, "limits.memory", "unknown key");
	assert_refused("\"filesystem.read[]\": {source: a}\n", 1, NULL, "unknown key");
	assert_refused("secrets: {\"*\": {env: A}}\n", 1, "secrets.*", "letters");
	assert_refused_repeated("", "k", 1000, ": 1", "unknown key");
	assert_refused_repeated("{\"", "k", 200000, "\": 1}", "unknown key");
	assert_refused_repeated("limits: {memory: \"", "1", 200000, "\"}", "expected a size");
}

static void one_document_only(void **state)
{
	struct policy p;

	(void) state;
	assert_refused("name: a\n---\nname: b\n", 2, NULL, "second document");
	assert_refused("name: a\n...\n---\nname: b\n", 3, NULL, "second document");
	p = policy_of("---\nname: a\n...\n");
	policy_done(&p);
	p = policy_of("# nothing\n");
	policy_done(&p);
}

static void assert_bytes_refused(const char *text, size_t size, unsigned line, const char *words)
{
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};

	assert_int_equal(policy_stack_add_text(s, "p", text, size, &errors), -EINVAL);
	if (!has_error(&errors, line, NULL, words))
		print_policy_errors(&errors);
	assert_true(has_error(&errors, line, NULL, words));
	policy_errors_done(&errors);
	policy_stack_free(s);
}

static void bytes_that_are_not_text_are_refused(void **state)
{
	static const char nul[] = "name: a\nroot: h\0st\n",
			  utf16[] = "\xff\xfe"
				    "a\0:\0",
			  overlong[] = "name: \xc0\xaf", surrogate[] = "name: \xed\xa0\x80";

	(void) state;
	assert_bytes_refused(nul, sizeof nul - 1, 2, "expected UTF-8 text, got the byte 0x00");
	assert_bytes_refused(utf16, sizeof utf16 - 1, 1, "expected UTF-8");
	assert_bytes_refused(overlong, sizeof overlong - 1, 1, "0xc0");
	assert_bytes_refused(surrogate, sizeof surrogate - 1, 1, "0xed");
	assert_bytes_refused("name: \xf4\x90\x80\x80", 10, 1, "0xf4");
	assert_bytes_refused("name: \xe2\x82", 8, 1, "0xe2");
	assert_bytes_refused("{\"a\": \"\xff\"}", 10, 1, "0xff");
	assert_refused("name: \"a\\0b\"\n", 1, NULL, "NUL");
	assert_refused("{\"name\": \"a\\u0000b\"}", 1, NULL, "expected JSON");
	assert_refused("{\"name\": \"\\ud800\"}", 1, NULL, "expected JSON");
	assert_refused("name: \"a\nb: c\n", 0, NULL, "not YAML");
	assert_refused("a: b: c\n", 1, NULL, "not YAML");
	assert_refused("limits:\n\tmemory: 1G\n", 2, NULL, "spaces, not tabs");
}

static void messages_cannot_drive_a_terminal(void **state)
{
	struct policy_errors errors = {0};
	struct policy p;

	(void) state;
	assert_int_not_equal(
	    resolve_text("{\"a\\u001b[2Jb\": 1, \"isolation\": \"\\u001b]0;x\\u0007\\u202e\\u009b\"}", &p, &errors), 0);
	for (size_t i = 0; i < errors.count; i++) {
		char *text = policy_error_text(&errors.items[i]);

		for (const char *c = text; *c != '\0'; c++)
			assert_true((unsigned char) *c >= 0x20 && (unsigned char) *c != 0x9b);
		assert_null(strstr(text, "\xe2\x80\xae"));
		free(text);
	}
	policy_errors_done(&errors);
}

static void many_faults_are_bounded(void **state)
{
	char *text = xstrdup("env:\n");
	struct policy_errors errors = {0};
	struct policy p;
	size_t size = 5;
	usec_t start = now_monotonic();

	(void) state;
	text = xrealloc(text, 400000, 1);
	for (int i = 0; i < 9000; i++)
		size += (size_t) snprintf(text + size, 400000 - size, "  unknown%d: x\n", i);
	assert_int_not_equal(resolve_text(text, &p, &errors), 0);
	assert_int_equal(errors.count, 1001);
	assert_non_null(strstr(errors.items[1000].message, "not listed"));
	assert_true(now_monotonic() - start < 20 * USEC_PER_SEC);
	policy_errors_done(&errors);
	free(text);
}

static void assert_file_refused(const char *path, const char *words)
{
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};

	assert_int_equal(policy_stack_add(s, path, &errors), -EINVAL);
	if (!has_error(&errors, 0, NULL, words))
		print_policy_errors(&errors);
	assert_true(has_error(&errors, 0, NULL, words));
	policy_errors_done(&errors);
	policy_stack_free(s);
}

static void only_files_and_pipes_of_a_megabyte_are_read(void **state)
{
	char dir[] = "/tmp/zw-policy-XXXXXX", *path;
	struct rusage before, after;
	int fd;

	(void) state;
	assert_non_null(mkdtemp(dir));
	path = xasprintf("%s/p.yaml", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 100 << 20), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	assert_file_refused(path, "at most 1048576 bytes, got 104857600");
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	assert_true(after.ru_maxrss - before.ru_maxrss < 8192); /* KiB: it was not read in */
	assert_file_refused(dir, "a directory");
	assert_file_refused("/dev/null", "a device");
	assert_file_refused("/dev/zero", "a device");
	assert_file_refused("/proc/self/exe", "link of /proc");
	assert_file_refused("/nonexistent/x", "No such file");
	assert_file_refused("", "No such file");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	free(path);
}

static void a_named_pipe_is_read_to_its_end(void **state)
{
	char dir[] = "/tmp/zw-policy-XXXXXX", *path;
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};
	struct policy p;
	pid_t child;

	(void) state;
	assert_non_null(mkdtemp(dir));
	path = xasprintf("%s/pipe", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	child = fork();
	if (child == 0) {
		int fd = open(path, O_WRONLY | O_CLOEXEC);

		_exit(fd >= 0 && write(fd, "name: piped\n", 12) == 12 ? 0 : 1);
	}
	assert_int_equal(policy_stack_add(s, path, &errors), 0);
	assert_int_equal(policy_stack_resolve(s, &p, &errors), 0);
	assert_string_equal(p.name, "piped");
	policy_done(&p);
	policy_stack_free(s);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(deep_nesting_is_refused),
	    cmocka_unit_test(too_many_values_are_refused),
	    cmocka_unit_test(anchors_and_aliases_are_refused),
	    cmocka_unit_test(tags_are_refused),
	    cmocka_unit_test(keys_are_texts_and_there_once),
	    cmocka_unit_test(one_document_only),
	    cmocka_unit_test(bytes_that_are_not_text_are_refused),
	    cmocka_unit_test(messages_cannot_drive_a_terminal),
	    cmocka_unit_test(many_faults_are_bounded),
	    cmocka_unit_test(only_files_and_pipes_of_a_megabyte_are_read),
	    cmocka_unit_test(a_named_pipe_is_read_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
