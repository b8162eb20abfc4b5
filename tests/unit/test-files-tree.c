/* Listing, removing and moving trees. */
#include "files-fixture.h"

/* ---- Listing. ---- */

static void make_tree(const struct rig *g)
{
	static const char *const folders[] = {"b", "b/c", "b.d", "e", "e/empty"};
	static const char *const files[] = {"a", "b/1", "b/c/2", "b/z", "b.d/3", "e/4", "f"};

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		assert_int_equal(mkdir(in_home(g, folders[i]), 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		make_file(g, files[i], "x");
	assert_int_equal(symlink("e", in_home(g, "to-e")), 0);
}

static const char *const whole_tree[] = {"a",     "b", "b/1", "b/c",     "b/c/2", "b/z", "b.d",
					 "b.d/3", "e", "e/4", "e/empty", "f",     "to-e"};

/* Lists page by page, and compares. */
static void assert_listed(struct rig *g, const char *path, uint32_t depth, uint32_t limit, const char *const *names, size_t count)
{
	char last[FILES_PATH_MAX] = "";
	bool more = true;
	size_t at = 0;

	while (more) {
		struct reply r;

		ask(g, (struct files_ask){.type = FILES_LIST, .path = path, .other = last, .depth = depth, .limit = limit}, &r);
		assert_int_equal(r.error, 0);
		assert_true(r.count <= limit);
		for (size_t i = 0; i < r.count; i++, at++) {
			assert_true(at < count);
			assert_string_equal(r.entries[i].path, in_home(g, names[at]));
			(void) snprintf(last, sizeof last, "%s", r.entries[i].path);
		}
		more = r.more;
		reply_reset(&r);
	}
	assert_int_equal(at, count);
}

static void folders_are_listed_depth_first_by_bytes(void **state)
{
	static const char *const top[] = {"a", "b", "b.d", "e", "f", "to-e"};
	static const char *const two[] = {"a", "b", "b/1", "b/c", "b/z", "b.d", "b.d/3", "e", "e/4", "e/empty", "f", "to-e"};
	struct rig *g = *state;
	struct reply r;

	make_tree(g);
	for (uint32_t limit = 1; limit <= 14; limit++) {
		assert_listed(g, ".", 1, limit, top, ARRAY_SIZE(top));
		assert_listed(g, g->home, 2, limit, two, ARRAY_SIZE(two));
		assert_listed(g, ".", 50, limit, whole_tree, ARRAY_SIZE(whole_tree));
	}
	ask(g, (struct files_ask){.type = FILES_LIST, .path = "to-e"}, &r); /* the folder asked for may be a link */
	assert_int_equal(r.count, 2);
	assert_string_equal(r.entries[0].path, in_home(g, "to-e/4"));
	reply_reset(&r);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_LIST, .path = "a"}), ENOTDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_LIST, .path = "none"}), ENOENT);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_LIST, .path = "b", .other = "/etc"}), EINVAL);
}

static void a_page_goes_on_where_things_have_gone(void **state)
{
	struct rig *g = *state;
	static const char *const rest[] = {"b.d", "b.d/3", "e", "e/4", "e/empty", "f", "to-e"};
	char last[FILES_PATH_MAX];
	struct reply r;

	make_tree(g);
	(void) snprintf(last, sizeof last, "%s", in_home(g, "b/c/2"));
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "b", .flags = FILES_RECURSIVE}), 0);
	ask(g, (struct files_ask){.type = FILES_LIST, .path = ".", .other = last, .depth = 9}, &r);
	assert_int_equal(r.count, ARRAY_SIZE(rest));
	for (size_t i = 0; i < r.count; i++)
		assert_string_equal(r.entries[i].path, in_home(g, rest[i]));
	reply_reset(&r);
}

/* More names than one batch keeps, in an order that is not theirs. */
static void a_huge_folder_is_listed_in_pages(void **state)
{
	enum { COUNT = 30000 };
	struct rig *g = *state;
	char last[FILES_PATH_MAX] = "", name[64];
	size_t at = 0;
	bool more = true;

	assert_int_equal(mkdir(in_home(g, "d"), 0755), 0);
	for (unsigned i = 0; i < COUNT; i++) {
		(void) snprintf(name, sizeof name, "d/a-rather-long-name-of-a-file-%06u", i * 7919 % COUNT);
		assert_int_equal(mknod(in_home(g, name), S_IFREG | 0600, 0), 0);
	}
	while (more) {
		struct reply r;

		ask(g, (struct files_ask){.type = FILES_LIST, .path = "d", .other = last, .limit = 1000}, &r);
		assert_int_equal(r.error, 0);
		for (size_t i = 0; i < r.count; i++, at++) {
			(void) snprintf(name, sizeof name, "d/a-rather-long-name-of-a-file-%06zu", at);
			assert_string_equal(r.entries[i].path, in_home(g, name));
		}
		(void) snprintf(last, sizeof last, "%s", r.count > 0 ? r.entries[r.count - 1].path : "");
		more = r.more;
		reply_reset(&r);
	}
	assert_int_equal(at, COUNT);
}

/* Many levels, each with more names of the longest kind than its own share of the store. */
static void deep_trees_are_listed_in_order(void **state)
{
	enum { LEVELS = 12, NAMES = 40 };
	struct rig *g = *state;
	char path[FILES_PATH_MAX], last[FILES_PATH_MAX] = "", previous[FILES_PATH_MAX] = "";
	size_t length, count = 0;
	bool more = true;

	length = (size_t) snprintf(path, sizeof path, "%s", g->home);
	for (unsigned level = 0; level < LEVELS; level++) {
		for (unsigned i = 0; i < NAMES; i++) {
			(void) snprintf(path + length, sizeof path - length, "/%0200u", i * 7 % NAMES);
			assert_int_equal(mkdir(path, 0755), 0);
		}
		(void) snprintf(path + length, sizeof path - length, "/%0200u", NAMES / 2);
		length += 201;
	}
	while (more) {
		struct reply r;

		ask(g, (struct files_ask){.type = FILES_LIST, .path = ".", .other = last, .depth = 64, .limit = 100}, &r);
		assert_int_equal(r.error, 0);
		for (size_t i = 0; i < r.count; i++) {
			assert_true(strcmp(previous, r.entries[i].path) < 0); /* no byte of a name lies below the slash */
			(void) snprintf(previous, sizeof previous, "%s", r.entries[i].path);
		}
		count += r.count;
		memcpy(last, previous, sizeof last);
		more = r.more;
		reply_reset(&r);
	}
	assert_int_equal(count, LEVELS * NAMES);
}

/* ---- Removing. ---- */

static void trees_are_removed_links_are_not_followed(void **state)
{
	struct rig *g = *state;

	make_tree(g);
	assert_int_equal(symlink("../f", in_home(g, "e/link")), 0);
	assert_int_equal(symlink("../b", in_home(g, "e/link-to-folder")), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "e"}), ENOTEMPTY);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "to-e", .flags = FILES_RECURSIVE}), 0);
	assert_true(is_there(g, "e/4"));
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "e/empty"}), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "e", .flags = FILES_RECURSIVE}), 0);
	assert_false(is_there(g, "e"));
	assert_true(is_there(g, "f"));
	assert_true(is_there(g, "b/1"));
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "f"}), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "f"}), ENOENT);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "/", .flags = FILES_RECURSIVE}), EBUSY);
}

static void trees_deeper_than_any_path_are_removed(void **state)
{
	struct rig *g = *state;
	cleanup_fd int at = open(g->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < 3000; i++) {
		int next;

		assert_int_equal(mkdirat(at, "folder", 0755), 0);
		assert_int_equal(mkdirat(at, "another", 0755), 0);
		next = openat(at, "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		fd_close(&at);
		at = next;
	}
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "folder", .flags = FILES_RECURSIVE}), 0);
	assert_false(is_there(g, "folder"));
	assert_true(is_there(g, "another"));
}

static void what_cannot_be_removed_is_told(void **state)
{
	struct rig *g = *state;

	if (geteuid() == 0)
		skip();
	make_tree(g);
	assert_int_equal(chmod(in_home(g, "b/c"), 0555), 0); /* lint: by-name our own temporary folder */
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = "b", .flags = FILES_RECURSIVE}), EACCES);
	assert_true(is_there(g, "b/c/2"));
	assert_int_equal(chmod(in_home(g, "b/c"), 0755), 0); /* lint: by-name our own temporary folder */
}

/* ---- Moving. ---- */

static void things_are_moved(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_tree(g);
	ask(g, (struct files_ask){.type = FILES_MOVE, .path = "b", .other = "new/place/b"}, &r);
	assert_int_equal(r.error, 0);
	assert_string_equal(r.entry.path, in_home(g, "new/place/b"));
	assert_true(is_there(g, "new/place/b/c/2"));
	assert_false(is_there(g, "b"));
	reply_reset(&r);
	make_file(g, "a", "new");
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "a", .other = "f"}), EEXIST);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "a", .other = "f", .flags = FILES_REPLACE}),
			 0);
	assert_file(g, "f", "new");
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "none", .other = "x/y"}), ENOENT);
	assert_false(is_there(g, "x"));
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "e", .other = "e/empty/e"}), EINVAL);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "f", .other = "e", .flags = FILES_REPLACE}),
			 EISDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "/", .other = "e/x"}), EBUSY);
}

static void trees_are_moved_across_file_systems(void **state)
{
	struct rig *g = *state;
	struct reply r;
	struct stat st, before;
	char other[64], destination[128];
	int fd;

	other_home(g, other);
	(void) snprintf(destination, sizeof destination, "%s/moved", other);
	make_tree(g);
	assert_int_equal(symlink("../f", in_home(g, "b/link")), 0);
	assert_int_equal(mkfifo(in_home(g, "b/fifo"), 0640), 0);
	fd = open(in_home(g, "b/sparse"), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_int_equal(pwrite(fd, "middle", 6, 64 << 20), 6);
	assert_int_equal(ftruncate(fd, 128 << 20), 0);
	fd_close(&fd);
	assert_int_equal(stat(in_home(g, "b/sparse"), &before), 0);
	ask(g, (struct files_ask){.type = FILES_MOVE, .path = "b", .other = destination}, &r);
	assert_int_equal(r.error, 0);
	assert_false(is_there(g, "b"));
	reply_reset(&r);
	(void) snprintf(destination, sizeof destination, "%s/moved/sparse", other);
	assert_int_equal(stat(destination, &st), 0);
	assert_int_equal(st.st_size, 128 << 20);
	assert_true(st.st_blocks < 4096);
	assert_int_equal(st.st_mode, S_IFREG | 0755);
	assert_int_equal(st.st_mtim.tv_sec, before.st_mtim.tv_sec);
	assert_int_equal(st.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	/* And back, beside what is there. */
	ask(g, (struct files_ask){.type = FILES_MOVE, .path = destination, .other = "sparse"}, &r);
	assert_int_equal(r.error, 0);
	reply_reset(&r);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = in_home(g, "a"), .other = destination}), 0);
	(void) snprintf(destination, sizeof destination, "%s/moved/fifo", other);
	assert_int_equal(stat(destination, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	(void) snprintf(destination, sizeof destination, "%s/moved/c/2", other);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "f", .other = destination}), EEXIST);
	assert_true(is_there(g, "f"));
	assert_int_equal(
	    ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "f", .other = destination, .flags = FILES_REPLACE}), 0);
	assert_false(is_there(g, "f"));
	ask(g, (struct files_ask){.type = FILES_LIST, .path = other, .depth = 9}, &r);
	assert_int_equal(r.count, 8); /* moved, 1, c, c/2, fifo, link, sparse (now a), z: and nothing of ours */
	reply_reset(&r);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_REMOVE, .path = other, .flags = FILES_RECURSIVE}), 0);
}

static void a_move_that_fails_leaves_all_as_it_was(void **state)
{
	struct rig *g = *state;
	char other[64], destination[128], path[256] = "deep";
	struct reply r;

	other_home(g, other);
	(void) snprintf(destination, sizeof destination, "%s/moved", other);
	assert_int_equal(mkdir(in_home(g, path), 0755), 0);
	make_file(g, "deep/file", "x");
	for (size_t at = 4; at < 180; at += 2) { /* deeper than a copy goes */
		memcpy(path + at, "/d", 3);
		assert_int_equal(mkdir(in_home(g, path), 0755), 0);
	}
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MOVE, .path = "deep", .other = destination}), ELOOP);
	assert_file(g, "deep/file", "x");
	assert_true(is_there(g, path));
	ask(g, (struct files_ask){.type = FILES_LIST, .path = other}, &r);
	assert_int_equal(r.count, 0);
	reply_reset(&r);
	assert_int_equal(rmdir(other), 0);
}

int main(void)
{
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)
	const struct CMUnitTest tests[] = {
	    WITH_RIG(folders_are_listed_depth_first_by_bytes),  WITH_RIG(a_page_goes_on_where_things_have_gone),
	    WITH_RIG(a_huge_folder_is_listed_in_pages),         WITH_RIG(deep_trees_are_listed_in_order),
	    WITH_RIG(trees_are_removed_links_are_not_followed), WITH_RIG(trees_deeper_than_any_path_are_removed),
	    WITH_RIG(what_cannot_be_removed_is_told),           WITH_RIG(things_are_moved),
	    WITH_RIG(trees_are_moved_across_file_systems),      WITH_RIG(a_move_that_fails_leaves_all_as_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
