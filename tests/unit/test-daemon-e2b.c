/* The parsers of the E2B interface: forms of files, the metadata filter, paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/e2b.h"
#include "daemon/e2b/file-metadata.h"
#include "daemon/e2b/multipart.h"
#include "daemon/snapshots.h"

#define TYPE "multipart/form-data; boundary=b1"
#define HEAD(name, filename) "Content-Disposition: form-data; name=\"" name "\"; filename=\"" filename "\"\r\n\r\n"

/* "name|filename|content;" of each part, then "." for a good end, "+" for more, "!" for bad; fed `step` bytes at a time. */
static char *read_all(const char *type, const char *body, size_t step)
{
	struct multipart m;
	struct evbuffer *in = evbuffer_new(), *out = evbuffer_new(), *text = evbuffer_new();
	size_t size = strlen(body), at = 0;
	enum multipart_event event = MULTIPART_MORE;
	char *found;

	if (!multipart_begin(&m, type))
		event = MULTIPART_BAD;
	while (event != MULTIPART_END && event != MULTIPART_BAD) {
		event = multipart_next(&m, in, out);
		if (event == MULTIPART_PART)
			(void) evbuffer_add_printf(text, "%s|%s|", m.name, m.filename);
		else if (event == MULTIPART_DATA)
			(void) evbuffer_add_buffer(text, out);
		else if (event == MULTIPART_PART_END)
			(void) evbuffer_add(text, ";", 1);
		else if (event == MULTIPART_MORE && at == size)
			break;
		else if (event == MULTIPART_MORE) {
			size_t n = size - at < step ? size - at : step;

			(void) evbuffer_add(in, body + at, n);
			at += n;
		}
	}
	(void) evbuffer_add(text, event == MULTIPART_END ? "." : event == MULTIPART_BAD ? "!" : "+", 1);
	size = evbuffer_get_length(text);
	found = xcalloc(size + 1, 1);
	(void) evbuffer_remove(text, found, size);
	evbuffer_free(in);
	evbuffer_free(out);
	evbuffer_free(text);
	return found;
}

static void check(const char *type, const char *body, const char *expected)
{
	static const size_t steps[] = {1, 2, 3, 7, 64, 100000};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		cleanup_free char *found = read_all(type, body, steps[i]);

		assert_string_equal(found, expected);
	}
}

static void forms_are_read_however_they_come_in(void **state)
{
	(void) state;
	check(TYPE, "--b1\r\n" HEAD("file", "a/b.txt") "hello\r\n--b1--\r\n", "file|a/b.txt|hello;.");
	check(TYPE, "--b1\r\n" HEAD("file", "") "\r\n--b1\r\n" HEAD("x", "y") "z\r\n--b1--", "file||;x|y|z;.");
	check(TYPE, "--b1\r\n" HEAD("file", "f") "\r\n--b\r\n--b0\r\n-\r\n--b1--", "file|f|\r\n--b\r\n--b0\r\n-;.");
	check("Multipart/Form-Data;charset=x; BOUNDARY=\"b1\"", "--b1\r\n" HEAD("file", "f") "1\r\n--b1--", "file|f|1;.");
	check(TYPE, "--b1\r\ncontent-type: a/b\r\nCONTENT-disposition: form-data; name=file\r\nX: y\r\n\r\n1\r\n--b1--",
	      "file||1;.");
}

static void names_of_files_are_unquoted(void **state)
{
	(void) state;
	check(TYPE, "--b1\r\n" HEAD("file", "a%22b%0D%0Ac%41") "\r\n--b1--", "file|a\"b\r\nc%41|;.");
	check(TYPE, "--b1\r\n" HEAD("file", "a\\\"b\\\\c\\d") "\r\n--b1--", "file|a\"b\\c\\d|;.");
	check(TYPE,
	      "--b1\r\n" HEAD("file", "gr\xc3\xbc\xc3\x9f"
				      "e; name=x") "\r\n--b1--",
	      "file|gr\xc3\xbc\xc3\x9f"
	      "e; name=x|;.");
}

static void what_is_no_form_is_refused(void **state)
{
	static const char *const types[] = {"text/plain",
					    "multipart/form-data",
					    "multipart/form-data; boundary=",
					    "multipart/form-data; boundary",
					    "multipart/form-datax; boundary=b1",
					    "multipart/mixed; boundary=b1"};
	static const char *const bodies[] = {"x--b1\r\n" HEAD("file", "f"),
					     "--b1x\r\n",
					     "--b1\r\nContent-Type: a/b\r\n\r\n1",
					     "--b1\r\nContent-Disposition: attachment; name=\"file\"\r\n\r\n",
					     "--b1\r\nContent-Disposition: form-data\r\n\r\n",
					     "--b1\r\nContent-Disposition: form-data; name=\"a\r\n\r\n",
					     "--b1\r\nContent-Disposition: form-data; name\r\n\r\n"};
	cleanup_free char *long_type = xasprintf("multipart/form-data; boundary=%0*d", MULTIPART_BOUNDARY_MAX + 1, 7);
	cleanup_free char *long_head = xasprintf("--b1\r\nX: %0*d\r\n", MULTIPART_HEAD_MAX, 7);

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		check(types[i], "--b1--", "!");
	check(long_type, "--b1--", "!");
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
		check(TYPE, bodies[i], "!");
	check(TYPE, long_head, "!");
	check(TYPE, "--b1\r\n" HEAD("file", "f") "1\r\n--b", "file|f|1+");
}

static void check_filter(const char *form, const char *expected)
{
	json_t *filter = e2b_metadata_filter(form);
	cleanup_free char *text = filter != NULL ? json_dumps(filter, JSON_COMPACT | JSON_SORT_KEYS) : xstrdup("none");

	json_decref(filter);
	assert_string_equal(text, expected);
}

static void metadata_is_decoded_twice_behind_the_query(void **state)
{
	(void) state;
	check_filter("a%2520b=c%2526d&k=%25C3%25BC", "{\"a b\":\"c&d\",\"k\":\"\xc3\xbc\"}");
	check_filter("user=abc&app=prod", "{\"app\":\"prod\",\"user\":\"abc\"}");
	check_filter("a+b=%252B", "{\"a b\":\"+\"}");
	check_filter("a=50%&b=%zz", "{\"a\":\"50%\",\"b\":\"%zz\"}");
	check_filter("a=%2500", "{\"a\":\"%00\"}");
	check_filter("", "{}");
	check_filter("a&&=b", "{\"\":\"b\",\"a\":\"\"}");
	check_filter("a=%25FF", "none");
}

static void paths_are_below_home_or_absolute(void **state)
{
	static const char *const rows[][2] = {{"/a/b", "/a/b"}, {"a", "a"},    {"~", "."},
					      {"~/", "."},      {"~//x", "x"}, {"a/~b", "a/~b"}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(e2b_path(rows[i][0]), rows[i][1]);
	assert_null(e2b_path("~root/x"));
	assert_null(e2b_path(""));
	assert_null(e2b_path(NULL));
}

static void snapshots_are_called_by_name_and_tag(void **state)
{
	static const char *const rows[][3] = {{"a", "a", "default"},           {"a:b", "a", "b"},     {"team/a", "a", "default"},
					      {"t/u/a.B_-1:c", "a.B_-1", "c"}, {"..:..", "..", ".."}, {"a/b:c", "b", "c"}},
				 *const bad[] = {"",     ":",   "a:",   ":a",   "a:b:c",  "a b", "a:b c", "a/",
						 "a/:b", "a\n", "a:\n", "\xff", "a:\xff", "%41", "a:*",   "\xc3\xbc"};
	char longest[2 * SNAPSHOT_NAME_SIZE];
	struct snapshot_key key;
	bool tagged;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_true(e2b_snapshot_key(rows[i][0], &key, &tagged));
		assert_string_equal(key.name, rows[i][1]);
		assert_string_equal(key.tag, rows[i][2]);
		assert_int_equal(tagged, strchr(rows[i][0], ':') != NULL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(e2b_snapshot_key(bad[i], &key, &tagged));
	memset(longest, 'n', sizeof longest);
	longest[SNAPSHOT_NAME_SIZE - 1] = '\0';
	assert_true(e2b_snapshot_key(longest, &key, &tagged));
	longest[SNAPSHOT_NAME_SIZE - 1] = 'n';
	longest[SNAPSHOT_NAME_SIZE] = '\0';
	assert_false(e2b_snapshot_key(longest, &key, &tagged));
	longest[1] = ':';
	assert_true(e2b_snapshot_key(longest, &key, &tagged) == (strlen(longest + 2) < SNAPSHOT_NAME_SIZE));
}

static void assert_metadata(const char *set, size_t size, const char *expected)
{
	json_t *o = file_metadata_to_json(set, size);
	cleanup_free char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : xstrdup("none");

	assert_string_equal(text, expected);
	json_decref(o);
}

static void metadata_of_files_are_bounded(void **state)
{
	static struct file_metadata m;
	char name[FILES_METADATA_NAME_MAX + 2], value[FILE_METADATA_BYTES_MAX + 1];

	(void) state;
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	memset(value, 'v', sizeof value - 1);
	value[sizeof value - 1] = '\0';
	assert_null(file_metadata_add(&m, "Author", "Me ~"));
	assert_null(file_metadata_add(&m, "empty", ""));
	assert_metadata(m.set, m.size, "{\"author\":\"Me ~\",\"empty\":\"\"}");
	assert_non_null(file_metadata_add(&m, "AUTHOR", "other"));
	assert_non_null(file_metadata_add(&m, "", "x"));
	assert_non_null(file_metadata_add(&m, name, "x"));
	assert_null(file_metadata_add(&m, name + 1, "x"));
	assert_non_null(file_metadata_add(&m, "a", "\x7f"));
	assert_non_null(file_metadata_add(&m, "a", "\t"));
	assert_non_null(file_metadata_add(&m, "\xc3\xa4", "x"));
	assert_int_equal(m.count, 3);
	m = (struct file_metadata){0};
	assert_non_null(file_metadata_add(&m, "a", value));
	assert_null(file_metadata_add(&m, "a", value + 1)); /* the most, with the name */
	assert_non_null(file_metadata_add(&m, "b", ""));
	m = (struct file_metadata){0};
	for (int i = 0; i < FILE_METADATA_COUNT_MAX; i++) {
		(void) snprintf(name, sizeof name, "%d", i);
		assert_null(file_metadata_add(&m, name, ""));
	}
	assert_non_null(file_metadata_add(&m, "more", ""));
	assert_metadata("", 0, "none");
	assert_metadata("\xff\0a\xfe\0", 5, "{\"\\\\xff\":\"a\\\\xfe\"}");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(forms_are_read_however_they_come_in), cmocka_unit_test(names_of_files_are_unquoted),
	    cmocka_unit_test(what_is_no_form_is_refused),          cmocka_unit_test(metadata_is_decoded_twice_behind_the_query),
	    cmocka_unit_test(paths_are_below_home_or_absolute),    cmocka_unit_test(snapshots_are_called_by_name_and_tag),
	    cmocka_unit_test(metadata_of_files_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
