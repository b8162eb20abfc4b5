/* Reading, writing and describing files inside. */
#include "files-fixture.h"

#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- Reading. ---- */

static void a_file_is_read_whole(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_file(g, "a.txt", "some text");
	ask(g, (struct files_ask){.type = FILES_READ, .path = "a.txt", .length = UINT64_MAX}, &r);
	assert_int_equal(r.error, 0);
	assert_string_equal(r.data, "some text");
	assert_int_equal(r.bytes, 9);
	assert_int_equal(r.range.length, 9);
	assert_string_equal(r.file.path, in_home(g, "a.txt"));
	assert_int_equal(r.file.entry.size, 9);
	assert_int_equal(r.file.entry.mode, S_IFREG | 0644);
	reply_reset(&r);
}

static void a_part_of_a_file_is_read(void **state)
{
	static const struct {
		uint64_t offset, length;
		unsigned flags;
		const char *text; /* NULL: FILES_BAD_RANGE */
	} cases[] = {
	    {0, 3, 0, "012"},
	    {4, 2, 0, "45"},
	    {8, 100, 0, "89"},
	    {10, 1, 0, ""},
	    {11, 1, 0, NULL},
	    {UINT64_MAX, UINT64_MAX, 0, NULL},
	    {3, UINT64_MAX, FILES_FROM_END, "789"},
	    {100, UINT64_MAX, FILES_FROM_END, "0123456789"},
	    {3, 1, FILES_FROM_END, "7"},
	};
	struct rig *g = *state;

	make_file(g, "digits", "0123456789");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct files_ask a = {.type = FILES_READ, .path = "digits"};
		struct reply r;

		a.offset = cases[i].offset;
		a.length = cases[i].length;
		a.flags = cases[i].flags;
		ask(g, a, &r);
		assert_int_equal(r.error, cases[i].text != NULL ? 0 : FILES_BAD_RANGE);
		assert_string_equal(r.data, cases[i].text != NULL ? cases[i].text : "");
		assert_int_equal(r.file.entry.size, 10); /* also for the answer that says so */
		reply_reset(&r);
	}
}

static void generated_files_are_read_to_their_end(void **state)
{
	struct rig *g = *state;
	struct reply r;

	ask(g, (struct files_ask){.type = FILES_READ, .path = "/proc/self/status", .length = UINT64_MAX}, &r);
	assert_int_equal(r.error, 0);
	assert_true(r.range.length == UINT64_MAX);
	assert_non_null(strstr(r.data, "Name:\tzwinger-files\n"));
	assert_int_equal(r.bytes, r.data_size);
	reply_reset(&r);
	make_file(g, "empty", "");
	ask(g, (struct files_ask){.type = FILES_READ, .path = "empty", .length = UINT64_MAX}, &r);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.data_size, 0);
	reply_reset(&r);
}

static void what_is_no_file_is_refused_at_once(void **state)
{
	struct rig *g = *state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_fd int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(mkfifo(in_home(g, "fifo"), 0600), 0);
	(void) snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", g->home);
	assert_int_equal(bind(sock, (struct sockaddr *) &address, sizeof address), 0);
	assert_int_equal(symlink("fifo", in_home(g, "link")), 0);
	assert_int_equal(symlink("loop", in_home(g, "loop")), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "fifo"}), FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "link"}), FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "socket"}), FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "/dev/zero"}), FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "/proc/self/fd/1"}), FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "."}), EISDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "loop"}), ELOOP);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "none"}), ENOENT);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_READ, .path = "fifo/x"}), ENOTDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_WRITE, .flags = FILES_WHOLE, .path = "fifo"}),
			 FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_WRITE, .flags = FILES_WHOLE, .path = "link"}),
			 FILES_NOT_REGULAR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_WRITE, .flags = FILES_WHOLE, .path = "."}), EISDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_WRITE, .flags = FILES_WHOLE, .path = "/"}), EISDIR);
}

static void a_slow_reader_keeps_nobody_waiting(void **state)
{
	struct rig *g = *state;
	struct reply slow, fast;

	make_file(g, "small", "small");
	assert_int_equal(truncate(in_home(g, "small"), 5), 0);
	make_file(g, "large", "");
	assert_int_equal(truncate(in_home(g, "large"), 8 << 20), 0);
	begin(g, (struct files_ask){.type = FILES_READ, .path = "large", .length = UINT64_MAX}, &slow, NULL);
	while (!slow.opened)
		run_once(g);
	for (int i = 0; i < 50; i++) {
		ask(g, (struct files_ask){.type = FILES_READ, .path = "small", .length = UINT64_MAX}, &fast);
		assert_string_equal(fast.data, "small");
		reply_reset(&fast);
	}
	assert_false(slow.ended);
	while (drain(&slow))
		;
	reply_reset(&slow);
}

static void a_reader_that_leaves_ends_the_call(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_file(g, "large", "");
	assert_int_equal(truncate(in_home(g, "large"), 8 << 20), 0);
	begin(g, (struct files_ask){.type = FILES_READ, .path = "large", .length = UINT64_MAX}, &r, NULL);
	while (!r.opened)
		run_once(g);
	fd_close(&r.fd);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, EPIPE);
	reply_reset(&r);
}

static void a_file_that_shrinks_is_told(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_file(g, "large", "");
	assert_int_equal(truncate(in_home(g, "large"), 8 << 20), 0);
	begin(g, (struct files_ask){.type = FILES_READ, .path = "large", .length = UINT64_MAX}, &r, NULL);
	while (!r.opened)
		run_once(g);
	assert_int_equal(r.range.length, 8 << 20);
	assert_int_equal(truncate(in_home(g, "large"), 1 << 20), 0);
	while (drain(&r))
		if (!r.ended)
			(void) event_base_loop(g->base, EVLOOP_NONBLOCK);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, FILES_SHORT);
	assert_int_equal(r.bytes, r.data_size);
	reply_reset(&r);
}

/* ---- Writing. ---- */

static void write_whole(struct rig *g, const char *path, const char *text, unsigned flags, uint32_t mode, struct reply *r)
{
	ask(g,
	    (struct files_ask){.type = FILES_WRITE,
			       .flags = FILES_WHOLE | flags,
			       .path = path,
			       .data = text,
			       .data_size = strlen(text),
			       .mode = mode},
	    r);
}

static void a_file_is_written_at_once(void **state)
{
	struct rig *g = *state;
	struct reply r;

	write_whole(g, "new/deep/file", "one", 0, 0, &r);
	assert_int_equal(r.error, 0);
	assert_true(r.created);
	assert_int_equal(r.bytes, 3);
	assert_int_equal(r.entry.entry.mode, S_IFREG | 0644);
	assert_string_equal(r.entry.path, in_home(g, "new/deep/file"));
	assert_file(g, "new/deep/file", "one");
	reply_reset(&r);
	write_whole(g, "new/deep/file", "two!", FILES_MODE, 0600, &r);
	assert_false(r.created);
	assert_int_equal(r.entry.entry.mode, S_IFREG | 0600);
	assert_int_equal(r.entry.entry.size, 4);
	reply_reset(&r);
	write_whole(g, "new/deep/file", "three", 0, 0, &r); /* keeps the mode */
	assert_int_equal(r.entry.entry.mode, S_IFREG | 0600);
	reply_reset(&r);
	write_whole(g, "new/deep/file", "four", FILES_IF_ABSENT, 0, &r);
	assert_int_equal(r.error, EEXIST);
	reply_reset(&r);
	assert_file(g, "new/deep/file", "three");
	ask(g, (struct files_ask){.type = FILES_LIST, .path = "new/deep"}, &r);
	assert_int_equal(r.count, 1); /* nothing is left beside it */
	reply_reset(&r);
}

static void a_link_is_written_through(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_file(g, "target", "old");
	assert_int_equal(mkdir(in_home(g, "folder"), 0755), 0);
	assert_int_equal(symlink("../target", in_home(g, "folder/link")), 0);
	assert_int_equal(symlink("fresh", in_home(g, "folder/dangling")), 0);
	assert_int_equal(symlink("no/such/fresh", in_home(g, "nowhere")), 0);
	write_whole(g, "folder/link", "new", 0, 0, &r);
	assert_int_equal(r.error, 0);
	assert_file(g, "target", "new");
	reply_reset(&r);
	write_whole(g, "folder/dangling", "made", 0, 0, &r);
	assert_true(r.created);
	assert_file(g, "folder/fresh", "made");
	reply_reset(&r);
	write_whole(g, "folder/dangling", "made", FILES_IF_ABSENT, 0, &r);
	assert_int_equal(r.error, EEXIST);
	reply_reset(&r);
	write_whole(g, "nowhere", "made", 0, 0, &r);
	assert_int_equal(r.error, ENOENT);
	assert_false(is_there(g, "no"));
	reply_reset(&r);
}

static void a_file_that_may_not_be_written_is_not_replaced(void **state)
{
	struct rig *g = *state;
	struct reply r;

	if (geteuid() == 0)
		skip();
	make_file(g, "locked", "old");
	assert_int_equal(chmod(in_home(g, "locked"), 0444), 0); /* lint: by-name our own temporary folder */
	write_whole(g, "locked", "new", 0, 0, &r);
	assert_int_equal(r.error, EACCES);
	assert_file(g, "locked", "old");
	reply_reset(&r);
}

static struct files_call *begin_write(struct rig *g, const char *path, struct reply *r)
{
	struct files_call *call;

	begin(g, (struct files_ask){.type = FILES_WRITE, .path = path}, r, &call);
	while (!r->opened && !r->ended)
		run_once(g);
	return call;
}

/* Into the non-blocking pipe, however long it takes. */
static void feed(struct rig *g, struct reply *r, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t n = write(r->fd, data, size);

		if (n < 0 && errno == EAGAIN) {
			(void) event_base_loop(g->base, EVLOOP_NONBLOCK);
			continue;
		}
		assert_true(n > 0);
		data += n;
		size -= (size_t) n;
	}
}

static void a_streamed_file_appears_when_it_is_whole(void **state)
{
	enum { SIZE = 3 << 20 };
	struct rig *g = *state;
	cleanup_free char *data = xcalloc(1, SIZE);
	struct files_call *call;
	struct reply r, other;

	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char) (i * 7 + i / 251);
	make_file(g, "file", "old");
	call = begin_write(g, "file", &r);
	feed(g, &r, data, SIZE);
	assert_file(g, "file", "old");
	ask(g, (struct files_ask){.type = FILES_LIST, .path = "."}, &other);
	assert_int_equal(other.count, 1); /* what is under way is not shown */
	reply_reset(&other);
	fd_close(&r.fd);
	assert_file(g, "file", "old");
	files_commit(call, SIZE);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.bytes, SIZE);
	assert_int_equal(r.entry.entry.size, SIZE);
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_READ, .path = "file", .length = UINT64_MAX}, &r);
	assert_int_equal(r.data_size, SIZE);
	assert_memory_equal(r.data, data, SIZE);
	reply_reset(&r);
}

static void a_write_that_is_not_whole_leaves_nothing(void **state)
{
	struct rig *g = *state;
	struct files_call *call;
	struct reply r, other;

	call = begin_write(g, "file", &r);
	feed(g, &r, "half", 4);
	fd_close(&r.fd);
	files_commit(call, 5);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, FILES_SHORT);
	reply_reset(&r);
	call = begin_write(g, "file", &r);
	feed(g, &r, "too much", 8);
	files_commit(call, 3);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, FILES_SHORT);
	reply_reset(&r);
	call = begin_write(g, "file", &r);
	feed(g, &r, "more", 4);
	files_cancel(call);
	ask(g, (struct files_ask){.type = FILES_STAT, .path = "."}, &other); /* behind the cancellation */
	reply_reset(&other);
	assert_false(r.ended);
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_LIST, .path = "."}, &r);
	assert_int_equal(r.count, 0);
	reply_reset(&r);
	assert_int_equal(rmdir(g->home), 0); /* really nothing */
	assert_int_equal(mkdir(g->home, 0700), 0);
}

static void the_end_of_the_line_clears_up(void **state)
{
	struct rig *g = *state;
	struct reply r;
	int status;

	(void) begin_write(g, "file", &r);
	feed(g, &r, "half", 4);
	files_client_free(g->client);
	g->client = NULL;
	assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
	assert_int_equal(status, 0);
	g->pid = 0;
	assert_false(r.ended);
	reply_reset(&r);
	assert_int_equal(rmdir(g->home), 0);
	assert_int_equal(mkdir(g->home, 0700), 0);
}

static void a_limit_of_file_sizes_is_an_error(void **state)
{
	struct rig *g = *state;
	const struct rlimit limit = {1000, 1000};
	cleanup_free char *text = xcalloc(1, 2001);
	struct reply r;

	memset(text, 'x', 2000);
	assert_int_equal(prlimit(g->pid, RLIMIT_FSIZE, &limit, NULL), 0);
	write_whole(g, "file", text, 0, 0, &r);
	assert_int_equal(r.error, EFBIG);
	reply_reset(&r);
	(void) begin_write(g, "file", &r);
	feed(g, &r, text, 2000);
	while (!r.ended)
		run_once(g);
	assert_int_equal(r.error, EFBIG);
	assert_int_equal(r.bytes, 1000);
	reply_reset(&r);
	assert_int_equal(rmdir(g->home), 0);
	assert_int_equal(mkdir(g->home, 0700), 0);
}

/* ---- Paths and descriptions. ---- */

static void paths_are_cleaned_by_their_text(void **state)
{
	struct rig *g = *state;
	const char *const same[] = {"a/b", "./a//b/", "a/x/../b", "a/../../../../../../../..%/a/b", "a/./b/."};

	assert_int_equal(mkdir(in_home(g, "a"), 0755), 0);
	make_file(g, "a/b", "");
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		char path[512];
		const char *percent = strchr(same[i], '%');
		struct reply r;

		if (percent != NULL)
			(void) snprintf(path, sizeof path, "%.*s%s%s", (int) (percent - same[i]), same[i], g->home, percent + 1);
		else
			(void) snprintf(path, sizeof path, "%s", same[i]);
		ask(g, (struct files_ask){.type = FILES_STAT, .path = path}, &r);
		assert_int_equal(r.error, 0);
		assert_string_equal(r.entry.path, in_home(g, "a/b"));
		reply_reset(&r);
	}
	{
		struct reply r;

		ask(g, (struct files_ask){.type = FILES_STAT, .path = "/.."}, &r);
		assert_string_equal(r.entry.path, "/");
		reply_reset(&r);
	}
}

static void long_and_odd_names_are_served(void **state)
{
	struct rig *g = *state;
	char name[256], path[FILES_PATH_MAX];
	struct reply r;

	memset(name, 'n', 255);
	name[255] = '\0';
	write_whole(g, name, "x", 0, 0, &r);
	assert_int_equal(r.error, 0);
	reply_reset(&r);
	write_whole(g, "\xff\xfe bytes\n\"\\", "y", 0, 0, &r);
	assert_int_equal(r.error, 0);
	assert_string_equal(r.entry.path, in_home(g, "\xff\xfe bytes\n\"\\"));
	reply_reset(&r);
	memset(path, 'p', sizeof path - 1);
	path[sizeof path - 1] = '\0';
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_STAT, .path = path}), ENAMETOOLONG);
	for (size_t i = 1; i < sizeof path - 1; i += 2)
		path[i] = '/';
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_STAT, .path = path}), ENAMETOOLONG);
	path[0] = '/';
	for (size_t i = 1; i < sizeof path - 1; i++)
		path[i] = i % 2 != 0 ? 'p' : '/';
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_STAT, .path = path}), ENOENT);
}

static void links_are_described_not_followed(void **state)
{
	struct rig *g = *state;
	struct reply r;

	make_file(g, "file", "text");
	assert_int_equal(symlink("./file", in_home(g, "link")), 0);
	assert_int_equal(symlink("link", in_home(g, "link-to-link")), 0);
	assert_int_equal(symlink("nothing", in_home(g, "broken")), 0);
	ask(g, (struct files_ask){.type = FILES_STAT, .path = "link-to-link"}, &r);
	assert_true(S_ISLNK(r.entry.entry.mode));
	assert_string_equal(r.entry.target, "link");
	assert_int_equal(r.entry.entry.target_mode, S_IFREG | 0644);
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_STAT, .path = "link-to-link", .flags = FILES_REAL}, &r);
	assert_string_equal(r.entry.target, in_home(g, "file"));
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_STAT, .path = "broken", .flags = FILES_REAL}, &r);
	assert_string_equal(r.entry.target, "nothing");
	assert_int_equal(r.entry.entry.target_mode, 0);
	reply_reset(&r);
}

static void names_of_users_come_from_the_files_inside(void **state)
{
	struct rig *g = *state;
	struct reply r;

	ask(g, (struct files_ask){.type = FILES_STAT, .path = "/"}, &r);
	assert_string_equal(r.entry.user, "root");
	assert_string_equal(r.entry.group, "root");
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_USER, .path = "nobody"}, &r);
	assert_int_equal(r.error, 0);
	assert_int_equal(r.uid, getpwnam("nobody")->pw_uid);
	assert_int_equal(r.gid, getpwnam("nobody")->pw_gid);
	reply_reset(&r);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_USER, .path = "no-such-user"}), ENOENT);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_USER, .path = "root:x"}), ENOENT);
}

static void folders_are_made_with_their_parents(void **state)
{
	struct rig *g = *state;
	struct reply r;

	ask(g, (struct files_ask){.type = FILES_MKDIR, .path = "x/y/z"}, &r);
	assert_true(r.created);
	assert_int_equal(r.entry.entry.mode, S_IFDIR | 0755);
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_MKDIR, .path = "x/y/z", .flags = FILES_MODE, .mode = 0700}, &r);
	assert_int_equal(r.error, 0);
	assert_false(r.created);
	assert_int_equal(r.entry.entry.mode, S_IFDIR | 0755);
	reply_reset(&r);
	ask(g, (struct files_ask){.type = FILES_MKDIR, .path = "open", .flags = FILES_MODE, .mode = 0777}, &r);
	assert_int_equal(r.entry.entry.mode, S_IFDIR | 0777);
	reply_reset(&r);
	make_file(g, "file", "");
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MKDIR, .path = "file"}), ENOTDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MKDIR, .path = "file/below"}), ENOTDIR);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MKDIR, .path = "/"}), 0);
	assert_int_equal(symlink("x/y", in_home(g, "link")), 0);
	assert_int_equal(symlink("none", in_home(g, "broken")), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MKDIR, .path = "link"}), 0);
	assert_int_equal(ask_error(g, (struct files_ask){.type = FILES_MKDIR, .path = "broken"}), EEXIST);
}

/* ---- Much at once. ---- */

static void many_calls_at_once_are_all_answered(void **state)
{
	enum { COUNT = 600 };
	struct rig *g = *state;
	cleanup_free struct reply *replies = xcalloc(COUNT, sizeof *replies);
	size_t good = 0;

	for (size_t i = 0; i < COUNT; i++) {
		struct files_ask a = {.type = FILES_WRITE, .flags = FILES_WHOLE, .data = "data", .data_size = 4};
		char path[16];

		(void) snprintf(path, sizeof path, "f%zu", i / 3);
		a.path = path;
		if (i % 3 == 1)
			a = (struct files_ask){.type = FILES_LIST, .path = "."};
		if (i % 3 == 2)
			a = (struct files_ask){.type = FILES_STAT, .path = path};
		begin(g, a, &replies[i], NULL);
	}
	for (size_t i = 0; i < COUNT; i++) {
		while (!replies[i].ended)
			run_once(g);
		good += replies[i].error == 0;
		reply_reset(&replies[i]);
	}
	assert_true(good >= COUNT * 2 / 3); /* a description may overtake the write */
	assert_file(g, "f199", "data");
}

int main(void)
{
#define WITH_RIG(test) cmocka_unit_test_setup_teardown(test, rig_set_up, rig_tear_down)
	const struct CMUnitTest tests[] = {
	    WITH_RIG(a_file_is_read_whole),
	    WITH_RIG(a_part_of_a_file_is_read),
	    WITH_RIG(generated_files_are_read_to_their_end),
	    WITH_RIG(what_is_no_file_is_refused_at_once),
	    WITH_RIG(a_slow_reader_keeps_nobody_waiting),
	    WITH_RIG(a_reader_that_leaves_ends_the_call),
	    WITH_RIG(a_file_that_shrinks_is_told),
	    WITH_RIG(a_file_is_written_at_once),
	    WITH_RIG(a_link_is_written_through),
	    WITH_RIG(a_file_that_may_not_be_written_is_not_replaced),
	    WITH_RIG(a_streamed_file_appears_when_it_is_whole),
	    WITH_RIG(a_write_that_is_not_whole_leaves_nothing),
	    WITH_RIG(the_end_of_the_line_clears_up),
	    WITH_RIG(a_limit_of_file_sizes_is_an_error),
	    WITH_RIG(paths_are_cleaned_by_their_text),
	    WITH_RIG(long_and_odd_names_are_served),
	    WITH_RIG(links_are_described_not_followed),
	    WITH_RIG(names_of_users_come_from_the_files_inside),
	    WITH_RIG(folders_are_made_with_their_parents),
	    WITH_RIG(many_calls_at_once_are_all_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
