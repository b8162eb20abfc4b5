/* Metadata of files: given, told, replaced, and kept by what moves and copies. */
#include <sys/xattr.h>

#include "files-fixture.h"

#define SET(text) .flags = FILES_WHOLE | FILES_METADATA, .metadata = (text), .metadata_size = sizeof(text) - 1

/* Skips where the file system of the temporary folder keeps none. */
static void write_with(struct rig *g, struct files_ask a)
{
	struct reply r;

	a.type = FILES_WRITE;
	ask(g, a, &r);
	if (r.error == EOPNOTSUPP) {
		reply_reset(&r);
		skip();
	}
	assert_int_equal(r.error, 0);
	reply_reset(&r);
}

/* `expected` is a set of at most one pair: a file system tells its attributes in any order. */
static void assert_has(struct rig *g, const char *path, const char *expected, size_t size)
{
	struct reply r;

	ask(g, (struct files_ask){.type = FILES_STAT, .flags = FILES_METADATA, .path = path}, &r);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.entry.entry.metadata_size, size);
	assert_memory_equal(r.entry.entry.metadata, expected, size);
	reply_reset(&r);
}

#define ASSERT_HAS(g, path, text) assert_has(g, path, text, sizeof(text) - 1)

static void metadata_are_given_told_and_replaced(void **state)
{
	struct rig *g = *state;
	struct reply r;
	char value[8];

	write_with(g, (struct files_ask){SET("author\0me\0"), .path = "file"});
	ASSERT_HAS(g, "file", "author\0me\0");
	assert_int_equal(getxattr(in_home(g, "file"), "user.e2b.author", value, sizeof value), 2);
	assert_memory_equal(value, "me", 2);
	assert_int_equal(symlink("file", in_home(g, "link")), 0);
	ASSERT_HAS(g, "link", "author\0me\0");
	ask(g, (struct files_ask){.type = FILES_STAT, .path = "file"}, &r); /* nobody asked */
	assert_int_equal(r.entry.entry.metadata_size, 0);
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_LIST, .flags = FILES_METADATA, .path = "."}, &r);
	assert_int_equal(r.count, 2);
	for (size_t i = 0; i < r.count; i++)
		assert_int_equal(r.entries[i].entry.metadata_size, 10);
	reply_reset(&r);
	write_with(g, (struct files_ask){SET("a\0\0b\0x\0"), .path = "file"});
	ask(g, (struct files_ask){.type = FILES_STAT, .flags = FILES_METADATA, .path = "file"}, &r);
	assert_int_equal(r.entry.entry.metadata_size, 7);
	reply_reset(&r);
	write_with(g, (struct files_ask){SET(""), .path = "file"});
	ASSERT_HAS(g, "file", "");
}

static void a_file_that_its_owner_may_not_write_has_metadata_too(void **state)
{
	struct rig *g = *state;
	struct stat st;

	write_with(g, (struct files_ask){.flags = FILES_WHOLE | FILES_METADATA | FILES_MODE,
					 .mode = 0444,
					 .metadata = "a\0b\0",
					 .metadata_size = 4,
					 .path = "file"});
	ASSERT_HAS(g, "file", "a\0b\0");
	assert_int_equal(stat(in_home(g, "file"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0444);
}

static void metadata_that_are_none_are_refused(void **state)
{
	struct rig *g = *state;
	struct files_ask a = {.type = FILES_WRITE, .path = "x"};
	struct reply r;

	write_with(g, (struct files_ask){SET("a\0b\0"), .path = "probe"});
	for (int i = 0; i < 2; i++) {
		char set[FILES_METADATA_NAME_MAX + 4] = "";

		/* A name without a value, and one that is too long. */
		memset(set, 'n', i == 0 ? 1 : FILES_METADATA_NAME_MAX + 1);
		a.flags = FILES_WHOLE | FILES_METADATA;
		a.metadata = set;
		a.metadata_size = i == 0 ? 2 : sizeof set;
		ask(g, a, &r);
		assert_int_equal(r.error, EINVAL);
		reply_reset(&r);
	}
	assert_false(is_there(g, "x"));
	a.path_size = 1;
	a.metadata = "a";
	a.metadata_size = 1;
	assert_int_equal(files_call(g->client, &a, &test_callbacks, NULL, NULL), -EINVAL);
	a.metadata_size = FILES_METADATA_MAX + 1;
	assert_int_equal(files_call(g->client, &a, &test_callbacks, NULL, NULL), -EINVAL);
	a.metadata = "a\0b\0";
	a.metadata_size = 4;
	a.flags = FILES_WHOLE;
	assert_int_equal(files_call(g->client, &a, &test_callbacks, NULL, NULL), -EINVAL);
}

static void what_code_inside_has_set_is_bounded(void **state)
{
	struct rig *g = *state;
	char name[32], value[1000];
	struct reply r;

	write_with(g, (struct files_ask){SET("a\0b\0"), .path = "file"});
	memset(value, 'v', sizeof value);
	assert_int_equal(setxattr(in_home(g, "file"), "user.e2b.nul", "x\0y", 3, 0), 0);
	assert_int_equal(setxattr(in_home(g, "file"), "user.other", "x", 1, 0), 0);
	for (int i = 0; i < 20; i++) {
		(void) snprintf(name, sizeof name, "user.e2b.%d", i);
		if (setxattr(in_home(g, "file"), name, value, sizeof value, 0) < 0)
			break; /* not all file systems have room for so much */
	}
	ask(g, (struct files_ask){.type = FILES_STAT, .flags = FILES_METADATA, .path = "file"}, &r);
	assert_int_equal(r.error, 0);
	assert_in_range(r.entry.entry.metadata_size, 4, FILES_METADATA_MAX);
	assert_null(memmem(r.entry.entry.metadata, r.entry.entry.metadata_size, "nul", 4));
	assert_null(memmem(r.entry.entry.metadata, r.entry.entry.metadata_size, "other", 6));
	assert_non_null(memmem(r.entry.entry.metadata, r.entry.entry.metadata_size, "a\0b", 4));
	reply_reset(&r);
}

static void moving_keeps_metadata_across_file_systems_too(void **state)
{
	struct rig *g = *state;
	char other[64], path[128];

	write_with(g, (struct files_ask){SET("a\0b\0"), .path = "d/file"});
	assert_int_equal(setxattr(in_home(g, "d"), "user.e2b.c", "d", 1, 0), 0);
	assert_int_equal(chmod(in_home(g, "d/file"), 0444), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "d/file", .other = "d/moved"}), 0);
	ASSERT_HAS(g, "d/moved", "a\0b\0");
	other_home(g, other);
	(void) snprintf(path, sizeof path, "%s/d", other);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "d", .other = path}), 0);
	ASSERT_HAS(g, path, "c\0d\0");
	(void) snprintf(path, sizeof path, "%s/d/moved", other);
	ASSERT_HAS(g, path, "a\0b\0");
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = other, .flags = FILES_RECURSIVE}), 0);
}

static void a_copied_tree_keeps_metadata(void **state)
{
	struct rig *g = *state;
	struct files_call *out, *in;
	struct reply from, to;
	char data[65536];
	uint64_t sum = 0;
	ssize_t n;

	write_with(g, (struct files_ask){SET("a\0b\0"), .path = "d/e/file", .data = "text", .data_size = 4});
	write_with(g, (struct files_ask){SET(""), .path = "d/none"});
	assert_int_equal(setxattr(in_home(g, "d/e"), "user.e2b.c", "d", 1, 0), 0);
	assert_int_equal(mkdir(in_home(g, "copy"), 0755), 0);
	begin(g, (struct files_ask){.type = FILES_PACK, .path = "d"}, &from, &out);
	begin(g, (struct files_ask){.type = FILES_UNPACK, .path = "copy"}, &to, &in);
	while (!from.opened || !to.opened)
		run_once(g);
	while ((n = read(from.fd, data, sizeof data)) != 0) {
		if (n < 0) {
			run_until(g, from.fd);
			continue;
		}
		assert_int_equal(fd_write_all(to.fd, data, (size_t) n), 0);
		sum += (uint64_t) n;
	}
	while (!from.ended)
		run_once(g);
	assert_int_equal(from.error, 0);
	fd_close(&to.fd);
	files_commit(in, sum);
	while (!to.ended)
		run_once(g);
	assert_int_equal(to.error, 0);
	reply_reset(&from);
	reply_reset(&to);
	ASSERT_HAS(g, "copy/e/file", "a\0b\0");
	assert_file(g, "copy/e/file", "text");
	ASSERT_HAS(g, "copy/e", "c\0d\0");
	ASSERT_HAS(g, "copy/none", "");
}

int main(void)
{
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)
	const struct CMUnitTest tests[] = {
	    WITH_RIG(metadata_are_given_told_and_replaced),
	    WITH_RIG(a_file_that_its_owner_may_not_write_has_metadata_too),
	    WITH_RIG(metadata_that_are_none_are_refused),
	    WITH_RIG(what_code_inside_has_set_is_bounded),
	    WITH_RIG(moving_keeps_metadata_across_file_systems_too),
	    WITH_RIG(a_copied_tree_keeps_metadata),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
