#include "mount-fixture.h"

static void nothing_is_done_without_writable_mounts(void **state)
{
	struct world *w = *state;

	w->mount.writable = false;
	assert_int_equal(snapshot_take(&w->plan, &w->before, &w->e), 0);
	assert_null(w->before);
	after(w);
	assert_int_equal(w->result, 0);
	assert_true(w->changes.known);
}

static void created_modified_and_deleted_paths_are_told_apart(void **state)
{
	struct world *w = *state;
	const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

	write_at(w->fd, "same", "x");
	write_at(w->fd, "grown", "x");
	write_at(w->fd, "touched", "x");
	write_at(w->fd, "hidden", "abc");
	write_at(w->fd, "gone", "x");
	write_at(w->fd, "becomes-dir", "x");
	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	write_at(w->fd, "dir/leaf", "x");
	assert_int_equal(mkdirat(w->fd, "gone-dir", 0755), 0);
	assert_int_equal(mkdirat(w->fd, "gone-dir/sub", 0755), 0);
	write_at(w->fd, "gone-dir/sub/leaf", "x");
	write_at(w->fd, "gone-dir/zeta", "x");
	assert_int_equal(utimensat(w->fd, "hidden", old, 0), 0);
	before(w);
	usleep(10000); /* one tick of the file systems' clock, so that the change time can tell */
	write_at(w->fd, "grown", "xy");
	assert_int_equal(fchmodat(w->fd, "touched", 0600, 0), 0);
	write_at(w->fd, "hidden", "abd"); /* same size, and the old time is set again */
	assert_int_equal(utimensat(w->fd, "hidden", old, 0), 0);
	assert_int_equal(unlinkat(w->fd, "gone", 0), 0);
	assert_int_equal(unlinkat(w->fd, "becomes-dir", 0), 0);
	assert_int_equal(mkdirat(w->fd, "becomes-dir", 0755), 0);
	write_at(w->fd, "becomes-dir/new", "x");
	write_at(w->fd, "dir/new", "x");
	assert_int_equal(tree_remove(w->fd, "gone-dir"), 0);
	after(w);
	assert_int_equal(w->result, 0);
	assert_true(w->changes.known);
	assert_list(&w->changes.created, LIST("/out/becomes-dir/new", "/out/dir/new"));
	assert_list(&w->changes.modified, LIST("/out/becomes-dir", "/out/grown", "/out/hidden", "/out/touched"));
	assert_list(&w->changes.deleted,
		    LIST("/out/gone", "/out/gone-dir", "/out/gone-dir/sub", "/out/gone-dir/sub/leaf", "/out/gone-dir/zeta"));
	assert_int_equal(w->changes.removed_count, 0);
}

static void awkward_names_come_out_byte_for_byte(void **state)
{
	struct world *w = *state;
	char longest[256], path[300];

	memset(longest, 'n', 255);
	longest[255] = '\0';
	(void) snprintf(path, sizeof path, "/out/%s", longest);
	before(w);
	write_at(w->fd, "new\nline", "");
	write_at(w->fd, "bad\xff", "");
	write_at(w->fd, "-dash", "");
	write_at(w->fd, "per%41cent", "");
	write_at(w->fd, "\xe6\x8a\xa5 x", "");
	write_at(w->fd, longest, "");
	after(w);
	assert_list(&w->changes.created,
		    LIST("/out/-dash", "/out/bad\xff", "/out/new\nline", path, "/out/per%41cent", "/out/\xe6\x8a\xa5 x"));
}

static void a_mount_of_one_file_is_watched(void **state)
{
	struct world *w = *state;

	write_at(w->fd, "one", "x");
	fd_close(&w->mount.fd);
	w->mount.fd = openat(w->fd, "one", O_PATH | O_CLOEXEC);
	w->mount.is_dir = false;
	before(w);
	usleep(10000);
	write_at(w->fd, "one", "y");
	assert_int_equal(fchmodat(w->fd, "one", 04755, 0), 0);
	after(w);
	assert_int_equal(w->result, 0);
	assert_list(&w->changes.modified, LIST("/out"));
	assert_removed(w, "/out", "set-user-ID bit");
	assert_int_equal(mode_of(w->fd, "one"), 0755);
}

static void a_tree_of_ten_thousand_levels_is_swept_to_the_ground(void **state)
{
	enum { LEVELS = 10000 };
	struct world *w = *state;
	cleanup_fd int at = openat(w->fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int bottom = -EBADF;
	struct rlimit old, few;

	before(w);
	for (int i = 0; i < LEVELS; i++) {
		int next;

		assert_int_equal(mkdirat(at, "d", 0755), 0);
		if (i == LEVELS / 2)
			assert_int_equal(symlinkat("..", at, "up"), 0);
		next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&at);
		at = next;
	}
	write_at(at, "sh", "x");
	assert_int_equal(fchmodat(at, "sh", 04755, 0), 0);
	assert_int_equal(symlinkat("/etc", at, "out"), 0);
	bottom = take_fd(&at);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){.rlim_cur = 128, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	after(w);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(w->result, 0);
	assert_int_equal(mode_of(bottom, "sh"), 0755);
	assert_false(is_there(bottom, "out"));
	assert_true(w->changes.known);
	assert_int_equal(w->changes.created.count + w->changes.created.more, LEVELS + 2);
	/* And it can be taken for the state before, and its end seen. */
	changes_done(&w->changes);
	w->before = snapshot_free(w->before);
	before(w);
	assert_int_equal(tree_remove(w->fd, "d"), 0);
	after(w);
	assert_int_equal(w->changes.deleted.count + w->changes.deleted.more, LEVELS + 2);
}

static void what_lies_deeper_than_any_path_is_swept_too(void **state)
{
	enum { LEVELS = 5000 };
	struct world *w = *state;
	cleanup_fd int at = openat(w->fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[251];

	memset(name, 'x', 250);
	name[250] = '\0';
	before(w);
	for (int i = 0; i < LEVELS; i++) { /* 1.25 million bytes of path */
		int next;

		assert_int_equal(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&at);
		at = next;
	}
	assert_int_equal(symlinkat("../../x", at, "near"), 0);
	assert_int_equal(symlinkat("/etc", at, "out"), 0);
	after(w);
	assert_int_equal(w->result, 0);
	assert_true(is_there(at, "near"));
	assert_false(is_there(at, "out"));
	assert_int_equal(w->changes.created.count + w->changes.created.more, LEVELS + 1);
	assert_int_equal(w->changes.removed_more, 1);
}

static void lists_are_cut_and_counted(void **state)
{
	struct world *w = *state;
	char name[32];

	before(w);
	for (int i = 0; i < CHANGES_MAX + 7; i++) {
		(void) snprintf(name, sizeof name, "f%05d", i);
		assert_int_equal(mkfifoat(w->fd, name, 0600), 0);
		(void) snprintf(name, sizeof name, "g%05d", i);
		write_at(w->fd, name, "");
	}
	after(w);
	assert_int_equal(w->changes.created.count, CHANGES_MAX);
	assert_int_equal(w->changes.created.more, 7);
	assert_int_equal(w->changes.removed_count, CHANGES_MAX);
	assert_int_equal(w->changes.removed_more, 7);
	assert_string_equal(w->changes.created.paths[0], "/out/g00000");
}

static void overlapping_mounts_tell_a_path_once(void **state)
{
	struct world *w = *state;
	struct plan_mount two[2] = {w->mount, w->mount};

	w->plan.mounts = two;
	w->plan.mount_count = 2;
	before(w);
	write_at(w->fd, "a", "x");
	after(w);
	assert_list(&w->changes.created, LIST("/out/a"));
	w->plan.mounts = &w->mount;
	w->plan.mount_count = 1;
}

static void a_hundred_thousand_files_take_well_under_a_second(void **state)
{
	struct world *w = *state;
	char name[64];
	usec_t t[3];

	for (int d = 0; d < 100; d++) {
		cleanup_fd int dir = -EBADF;

		(void) snprintf(name, sizeof name, "dir%03d", d);
		assert_int_equal(mkdirat(w->fd, name, 0755), 0);
		dir = openat(w->fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		for (int i = 0; i < 1000; i++) {
			(void) snprintf(name, sizeof name, "file-%04d.txt", i);
			if (mknodat(dir, name, S_IFREG | 0644, 0) < 0 && errno == ENOSPC)
				skip(); /* a small machine */
			assert_true(is_there(dir, name));
		}
	}
	t[0] = now_monotonic();
	before(w);
	t[1] = now_monotonic();
	after(w);
	t[2] = now_monotonic();
	print_message("# snapshot %u ms, comparison %u ms\n", (unsigned) ((t[1] - t[0]) / 1000),
		      (unsigned) ((t[2] - t[1]) / 1000));
	assert_true(w->changes.known);
	assert_int_equal(w->changes.created.count + w->changes.modified.count + w->changes.deleted.count, 0);
	assert_true(t[1] - t[0] < 2 * USEC_PER_SEC); /* a loaded machine; alone it is a fifth of a second */
	assert_true(t[2] - t[1] < 2 * USEC_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(nothing_is_done_without_writable_mounts),
	    TEST(created_modified_and_deleted_paths_are_told_apart),
	    TEST(awkward_names_come_out_byte_for_byte),
	    TEST(a_mount_of_one_file_is_watched),
	    TEST(a_tree_of_ten_thousand_levels_is_swept_to_the_ground),
	    TEST(what_lies_deeper_than_any_path_is_swept_too),
	    TEST(lists_are_cut_and_counted),
	    TEST(overlapping_mounts_tell_a_path_once),
	    TEST(a_hundred_thousand_files_take_well_under_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
