/* Watching folders. */
#include "files-fixture.h"

static struct files_call *begin_watch(struct rig *g, const char *path, unsigned flags, struct reply *r)
{
	struct files_call *call;

	begin(g, (struct files_ask){.type = FILES_WATCH, .path = path, .flags = flags}, r, &call);
	while (!r->opened && !r->ended)
		run_once(g);
	assert_false(r->ended);
	return call;
}

/* Runs until the change has been told; what came before it stays in the list. */
static void await(struct rig *g, struct reply *r, enum files_event_kind kind, const char *path)
{
	for (size_t seen = 0;;) {
		for (; seen < r->change_count; seen++)
			if (r->changes[seen].kind == kind && strcmp(r->changes[seen].path, path) == 0)
				return;
		assert_false(r->ended);
		run_once(g);
	}
}

static size_t count_of(const struct reply *r, enum files_event_kind kind, const char *path)
{
	size_t count = 0;

	for (size_t i = 0; i < r->change_count; i++)
		count += r->changes[i].kind == kind && strcmp(r->changes[i].path, path) == 0;
	return count;
}

/* A change that comes after all others. */
static void fence(struct rig *g, struct reply *r)
{
	static unsigned number;
	char name[32];

	(void) snprintf(name, sizeof name, "fence-%u", number++);
	make_file(g, name, "");
	await(g, r, FILES_EVENT_CREATE, in_home(g, name));
}

static void changes_are_told(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_file(g, "old", "x");
	(void) begin_watch(g, ".", FILES_ENTRIES, &r);
	make_file(g, "new", "text");
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "new"));
	await(g, &r, FILES_EVENT_WRITE, in_home(g, "new"));
	assert_true(r.changes[r.change_count - 1].has_entry);
	assert_int_equal(r.changes[r.change_count - 1].size, 4);
	assert_int_equal(rename(in_home(g, "old"), in_home(g, "moved")), 0);
	await(g, &r, FILES_EVENT_RENAME, in_home(g, "old"));
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "moved"));
	assert_int_equal(truncate(in_home(g, "moved"), 0), 0);
	await(g, &r, FILES_EVENT_WRITE, in_home(g, "moved"));
	assert_int_equal(chmod(in_home(g, "moved"), 0600), 0); /* lint: by-name our own temporary folder */
	await(g, &r, FILES_EVENT_ATTRIBUTES, in_home(g, "moved"));
	assert_int_equal(unlink(in_home(g, "moved")), 0);
	await(g, &r, FILES_EVENT_REMOVE, in_home(g, "moved"));
	assert_int_equal(mkdir(in_home(g, "folder"), 0755), 0);
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "folder"));
	assert_true(r.changes[r.change_count - 1].folder);
	make_file(g, "folder/below", "");
	fence(g, &r);
	assert_int_equal(count_of(&r, FILES_EVENT_CREATE, in_home(g, "folder/below")), 0); /* not recursive */
	reply_reset(&r);
}

static void our_own_writes_look_like_writes(void **state)
{
	struct rig *g = *state;
	struct files_ask a = {.type = FILES_WRITE, .flags = FILES_WHOLE, .path = "file", .data = "text", .data_size = 4};
	struct reply r;

	(void) begin_watch(g, ".", 0, &r);
	assert_int_equal(ask_error(g, a), 0);
	assert_int_equal(ask_error(g, a), 0);
	fence(g, &r);
	assert_int_equal(count_of(&r, FILES_EVENT_CREATE, in_home(g, "file")), 1);
	assert_int_equal(count_of(&r, FILES_EVENT_WRITE, in_home(g, "file")), 2);
	assert_int_equal(r.change_count, 4); /* and the fence's own, nothing of the file that carries the bytes */
	reply_reset(&r);
}

static void trees_are_watched_as_they_grow(void **state)
{
	struct rig *g = *state;
	struct reply r;

	assert_int_equal(mkdir(in_home(g, "a"), 0755), 0);
	assert_int_equal(mkdir(in_home(g, "a/b"), 0755), 0);
	(void) begin_watch(g, ".", FILES_RECURSIVE, &r);
	make_file(g, "a/b/file", "x");
	await(g, &r, FILES_EVENT_WRITE, in_home(g, "a/b/file"));
	/* All at once, before anybody can have begun to watch. */
	assert_int_equal(mkdir(in_home(g, "n"), 0755), 0);
	assert_int_equal(mkdir(in_home(g, "n/m"), 0755), 0);
	make_file(g, "n/m/file", "x");
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "n"));
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "n/m"));
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "n/m/file"));
	make_file(g, "n/m/later", "x");
	await(g, &r, FILES_EVENT_WRITE, in_home(g, "n/m/later"));
	reply_reset(&r);
}

/* Beside HOME. */
static const char *away(const struct rig *g, const char *below)
{
	static char path[FILES_PATH_MAX];

	(void) snprintf(path, sizeof path, "%s-away%s", g->home, below);
	return path;
}

static void folders_that_move_keep_being_watched_under_their_new_name(void **state)
{
	struct rig *g = *state;
	struct reply r;

	assert_int_equal(mkdir(in_home(g, "a"), 0755), 0);
	assert_int_equal(mkdir(in_home(g, "a/b"), 0755), 0);
	assert_int_equal(mkdir(in_home(g, "c"), 0755), 0);
	(void) begin_watch(g, ".", FILES_RECURSIVE, &r);
	assert_int_equal(rename(in_home(g, "a"), in_home(g, "c/d")), 0);
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "c/d"));
	fence(g, &r);
	make_file(g, "c/d/b/file", "x");
	await(g, &r, FILES_EVENT_CREATE, in_home(g, "c/d/b/file"));
	assert_int_equal(count_of(&r, FILES_EVENT_CREATE, in_home(g, "a/b/file")), 0);
	/* Gone from the tree: silent from then on. */
	assert_int_equal(rename(in_home(g, "c/d"), away(g, "")), 0);
	await(g, &r, FILES_EVENT_RENAME, in_home(g, "c/d"));
	fence(g, &r);
	assert_int_equal(mknod(away(g, "/b/silent"), S_IFREG | 0600, 0), 0);
	fence(g, &r);
	for (size_t i = 0; i < r.change_count; i++)
		assert_null(strstr(r.changes[i].path, "silent"));
	assert_int_equal(rename(away(g, ""), in_home(g, "back")), 0);
	reply_reset(&r);
}

static void the_end_of_the_folder_ends_the_watch(void **state)
{
	struct rig *g = *state;
	struct reply r;

	assert_int_equal(mkdir(in_home(g, "a"), 0755), 0);
	(void) begin_watch(g, "a", FILES_RECURSIVE, &r);
	assert_int_equal(rmdir(in_home(g, "a")), 0);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, ENOENT);
	assert_int_equal(count_of(&r, FILES_EVENT_REMOVE, in_home(g, "a")), 1);
	reply_reset(&r);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_WATCH, .path = "a"}), ENOENT);
	make_file(g, "file", "");
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_WATCH, .path = "file"}), ENOTDIR);
}

static void a_canceled_watch_is_silent(void **state)
{
	struct rig *g = *state;
	struct files_call *call;
	struct reply r, other;

	call = begin_watch(g, ".", 0, &r);
	(void) begin_watch(g, ".", 0, &other);
	files_cancel(call);
	fence(g, &other);
	assert_int_equal(r.change_count, 0);
	assert_false(r.ended);
	reply_reset(&r);
	reply_reset(&other);
}

/* More than the kernel's queue keeps, while the program is stopped. */
static void lost_events_are_told(void **state)
{
	struct rig *g = *state;
	struct reply r;

	(void) begin_watch(g, ".", FILES_RECURSIVE, &r);
	assert_int_equal(kill(g->pid, SIGSTOP), 0);
	for (unsigned i = 0; i < 20000; i++) {
		make_file(g, "one", "");
		assert_int_equal(unlink(in_home(g, "one")), 0);
	}
	assert_int_equal(mkdir(in_home(g, "unseen"), 0755), 0);
	assert_int_equal(kill(g->pid, SIGCONT), 0);
	for (bool seen = false; !seen;) {
		run_once(g);
		for (size_t i = 0; i < r.change_count; i++) {
			seen |= r.changes[i].kind == FILES_EVENT_OVERFLOW;
			free(r.changes[i].path);
		}
		r.change_count = 0;
	}
	fence(g, &r);
	make_file(g, "unseen/file", "x");
	await(g, &r, FILES_EVENT_WRITE, in_home(g, "unseen/file"));
	reply_reset(&r);
}

static void too_large_a_tree_is_told(void **state)
{
	struct rig *g = *state;
	char name[32];
	struct reply r;

	for (unsigned i = 0; i < FILES_WATCH_FOLDERS + 10; i++) {
		(void) snprintf(name, sizeof name, "%u", i);
		assert_int_equal(mkdir(in_home(g, name), 0755), 0);
	}
	(void) begin_watch(g, ".", FILES_RECURSIVE, &r);
	assert_int_equal(r.change_count, 1);
	assert_int_equal(r.changes[0].kind, FILES_EVENT_OVERFLOW);
	fence(g, &r);
	reply_reset(&r);
}

int main(void)
{
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)
	const struct CMUnitTest tests[] = {
	    WITH_RIG(changes_are_told),
	    WITH_RIG(our_own_writes_look_like_writes),
	    WITH_RIG(trees_are_watched_as_they_grow),
	    WITH_RIG(folders_that_move_keep_being_watched_under_their_new_name),
	    WITH_RIG(the_end_of_the_folder_ends_the_watch),
	    WITH_RIG(a_canceled_watch_is_silent),
	    WITH_RIG(lost_events_are_told),
	    WITH_RIG(too_large_a_tree_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
