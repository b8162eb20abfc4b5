#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants the four above before it */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/result.h"
#include "sandbox/tree.h"

#define S(text) ((char[]){text}) /* a string that is not const, as the structures want it */

struct world {
	char base[64], file[96];
	int fd;
	struct audit *audit;
	struct zw_error e;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void) snprintf(w->base, sizeof w->base, "/tmp/zw-test-audit-XXXXXX");
	assert_non_null(mkdtemp(w->base));
	w->fd = open(w->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->fd >= 0);
	(void) snprintf(w->file, sizeof w->file, "%s/audit.jsonl", w->base);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	assert_int_equal(audit_close(w->audit, NULL), 0);
	fd_close(&w->fd);
	assert_int_equal(tree_remove(AT_FDCWD, w->base), 0);
	free(w);
	return 0;
}

static void tell(struct world *w, struct event e)
{
	struct observer o = audit_observer(w->audit);

	e.when = UINT64_C(1767225600123456);
	e.sandbox_id = "zw-test";
	o.event(o.ctx, &e);
}

/* Line `n` of the file, parsed. Every line must be an object of the schema. */
static json_t *line(struct world *w, size_t n)
{
	cleanup_fd int fd = openat(w->fd, "audit.jsonl", O_RDONLY | O_CLOEXEC);
	cleanup_free char *text = NULL;
	size_t size = 0;
	char *p, *end;
	json_t *object;

	assert_int_equal(fd_read_all(fd, 64 << 20, &text, &size), 0);
	p = text;
	while (n-- > 0) {
		p = strchr(p, '\n');
		assert_non_null(p);
		p++;
	}
	end = strchr(p, '\n');
	assert_non_null(end);
	*end = '\0';
	object = json_loads(p, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(object);
	assert_string_equal(json_string_value(json_object_get(object, "schema")), "zwinger.audit/1");
	assert_string_equal(json_string_value(json_object_get(object, "id")), "zw-test");
	assert_string_equal(json_string_value(json_object_get(object, "time")), "2026-01-01T00:00:00.123Z");
	return object;
}

static void assert_member(json_t *object, const char *key, const char *want)
{
	const char *is = json_string_value(json_object_get(object, key));

	assert_string_equal(is != NULL ? is : "(none)", want);
}

static void open_audit(struct world *w)
{
	assert_int_equal(audit_open(w->file, &w->audit, &w->e), 0);
}

static void lines_are_appended_and_the_file_is_private(void **state)
{
	struct world *w = *state;
	struct stat st;
	json_t *l;

	open_audit(w);
	tell(w, (struct event){.kind = EVENT_LIMIT, .text = "time"});
	assert_int_equal(audit_close(w->audit, &w->e), 0);
	open_audit(w);
	tell(w, (struct event){.kind = EVENT_EXEC, .text = "/bin/true", .pid = 7});
	assert_int_equal(fstatat(w->fd, "audit.jsonl", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	l = line(w, 0);
	assert_member(l, "event", "limit");
	assert_member(l, "limit", "time");
	json_decref(l);
	l = line(w, 1);
	assert_member(l, "event", "exec");
	assert_member(l, "path", "/bin/true");
	assert_int_equal(json_integer_value(json_object_get(l, "pid")), 7);
	json_decref(l);
}

static void text_from_inside_cannot_break_a_line(void **state)
{
	struct world *w = *state;
	struct denial d = {.kind = "file", .name = "a\n{\"b\":1}\xff\\x41\x01\xe2\x82", .comm = "\x1b[2J", .count = 3};
	json_t *l;

	open_audit(w);
	tell(w, (struct event){.kind = EVENT_DENIAL, .denial = &d});
	tell(w, (struct event){.kind = EVENT_DENIALS_SUMMARISED, .denial = &d});
	l = line(w, 0);
	assert_member(l, "event", "denial");
	assert_member(l, "name", "a\n{\"b\":1}\\xff\\\\x41\x01\\xe2\\x82");
	assert_member(l, "comm", "\x1b[2J");
	assert_null(json_object_get(l, "host"));
	assert_null(json_object_get(l, "port"));
	assert_int_equal(json_integer_value(json_object_get(l, "count")), 3);
	json_decref(l);
	l = line(w, 1);
	assert_member(l, "event", "denials_summarised");
	json_decref(l);
}

static void long_text_is_cut_at_a_character(void **state)
{
	struct world *w = *state;
	cleanup_free char *name = xcalloc(20001, 1);
	const char *is;
	json_t *l;

	for (size_t i = 0; i < 20000; i += 2)
		memcpy(name + i, "\xc3\xa9", 2);
	name[0] = 'x'; /* shifts the characters against the limit, and leaves half of one */
	name[1] = 'y';
	name[2] = 'z';
	memmove(name + 3, name + 4, 19996);
	open_audit(w);
	tell(w, (struct event){.kind = EVENT_EXEC, .text = name});
	l = line(w, 0);
	is = json_string_value(json_object_get(l, "path"));
	assert_non_null(is);
	assert_true(strlen(is) > 4000 && strlen(is) < 4110);
	assert_null(strstr(is, "\\x"));
	assert_string_equal(is + strlen(is) - 3, "…");
	json_decref(l);
}

static void a_start_tells_who_runs_what(void **state)
{
	struct world *w = *state;
	char *argv[] = {S("python3"), S("-c"), S("print('\xff')"), NULL};
	struct plan_mount mount = {.source = S("/srv/in\xff"), .target = S("/in"), .fd = -EBADF, .size = ZW_UNLIMITED};
	struct plan plan = {.id = S("zw-test"),
			    .name = S("report"),
			    .isolation = ISOLATION_CONTAINER,
			    .caller_uid = 42,
			    .argv = argv,
			    .argc = 3,
			    .cwd = S("/work"),
			    .home = S("/home/user"),
			    .hostname = S("zwinger"),
			    .mounts = &mount,
			    .mount_count = 1};
	json_t *l, *list;

	plan.limits.time = 30 * USEC_PER_SEC;
	open_audit(w);
	tell(w, (struct event){.kind = EVENT_START, .plan = &plan});
	l = line(w, 0);
	assert_member(l, "event", "start");
	assert_member(l, "policy", "report");
	assert_member(l, "isolation", "container");
	assert_int_equal(json_integer_value(json_object_get(l, "uid")), 42);
	list = json_object_get(l, "argv");
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(json_string_value(json_array_get(list, 2)), "print('\\xff')");
	assert_member(json_array_get(json_object_get(l, "mounts"), 0), "source", "/srv/in\\xff");
	assert_true(json_is_object(json_object_get(l, "limits")));
	json_decref(l);
}

static void files_and_end_follow_the_result(void **state)
{
	struct world *w = *state;
	struct result r;
	char *created[] = {S("/out/a"), S("/out/b\n")};
	struct removed gone = {.path = S("/out/l"), .what = "link that leads out", .target = S("/etc")};
	json_t *l, *list;

	result_init(&r);
	(void) snprintf(r.id, sizeof r.id, "zw-test");
	r.status = STATUS_EXITED;
	r.has_main_status = true;
	r.wait_status = 3 << 8;
	(void) snprintf(r.reason, sizeof r.reason, "exited with 3");
	r.changes = (struct changes){
	    .known = true, .created = {.paths = created, .count = 2, .more = 5}, .removed = &gone, .removed_count = 1};
	open_audit(w);
	tell(w, (struct event){.kind = EVENT_FILES, .result = &r});
	tell(w, (struct event){.kind = EVENT_END, .result = &r});
	r.changes.known = false;
	tell(w, (struct event){.kind = EVENT_FILES, .result = &r});
	l = line(w, 0);
	list = json_object_get(l, "created");
	assert_int_equal(json_integer_value(json_object_get(list, "count")), 7);
	assert_int_equal(json_integer_value(json_object_get(list, "more")), 5);
	assert_string_equal(json_string_value(json_array_get(json_object_get(list, "paths"), 1)), "/out/b\n");
	list = json_object_get(json_object_get(l, "removed"), "items");
	assert_member(json_array_get(list, 0), "target", "/etc");
	json_decref(l);
	l = line(w, 1);
	assert_member(l, "event", "end");
	assert_member(l, "status", "exited");
	assert_member(l, "reason", "exited with 3");
	assert_int_equal(json_integer_value(json_object_get(l, "exit_code")), 3);
	assert_true(json_is_object(json_object_get(l, "usage")));
	json_decref(l);
	l = line(w, 2);
	assert_true(json_is_null(json_object_get(l, "created"))); /* unknown is null, not empty */
	json_decref(l);
	r.changes = (struct changes){0};
	result_done(&r);
}

static void a_full_disk_is_told_once_at_the_end(void **state)
{
	struct world *w = *state;

	if (audit_open("/dev/full", &w->audit, &w->e) < 0)
		skip();
	tell(w, (struct event){.kind = EVENT_LIMIT, .text = "time"});
	tell(w, (struct event){.kind = EVENT_LIMIT, .text = "memory"});
	assert_int_equal(audit_close(w->audit, &w->e), -ENOSPC);
	w->audit = NULL;
	assert_non_null(strstr(w->e.text, "2 events"));
	assert_non_null(strstr(w->e.text, "/dev/full"));
}

static void a_pipe_without_a_reader_is_no_trap(void **state)
{
	struct world *w = *state;
	int reader;

	assert_int_equal(mkfifoat(w->fd, "audit.jsonl", 0600), 0);
	assert_int_equal(audit_open(w->file, &w->audit, &w->e), -ENXIO); /* and does not wait for one */
	reader = openat(w->fd, "audit.jsonl", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	open_audit(w);
	(void) close(reader);
	tell(w, (struct event){.kind = EVENT_LIMIT, .text = "time"}); /* SIGPIPE would end the test here */
	assert_int_equal(audit_close(w->audit, &w->e), -EPIPE);
	w->audit = NULL;
}

static void a_torn_line_does_not_spoil_the_next(void **state)
{
	struct world *w = *state;
	int reader, writer;
	char buf[65536];
	ssize_t n;

	assert_int_equal(mkfifoat(w->fd, "audit.jsonl", 0600), 0);
	reader = openat(w->fd, "audit.jsonl", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	writer = openat(w->fd, "audit.jsonl", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	(void) fcntl(writer, F_SETPIPE_SZ, 4096);
	open_audit(w);
	memset(buf, 'n', 4090);
	buf[4090] = '\0';
	tell(w, (struct event){.kind = EVENT_EXEC, .text = buf}); /* longer than the pipe: only its beginning fits */
	n = read(reader, buf, sizeof buf);
	assert_true(n > 0);
	tell(w, (struct event){.kind = EVENT_LIMIT, .text = "time"});
	n = read(reader, buf, sizeof buf - 1);
	assert_true(n > 0);
	buf[n] = '\0';
	assert_int_equal(buf[0], '\n');
	assert_memory_equal(buf + 1, "{\"schema\"", 9);
	assert_true(audit_close(w->audit, &w->e) < 0);
	w->audit = NULL;
	(void) close(reader);
	(void) close(writer);
}

static bool exposed(struct world *w, const struct plan *plan, const char *name)
{
	cleanup_free char *path = xasprintf("%s/%s", w->base, name);

	return audit_path_is_exposed(plan, path);
}

static void an_audit_file_that_the_inside_can_write_is_noticed(void **state)
{
	struct world *w = *state;
	struct plan_mount mounts[2] = {
	    {.kind = PLAN_WRITE, .writable = true, .is_dir = true, .source = S("out"), .target = S("/out")},
	    {.kind = PLAN_WRITE, .writable = true, .source = S("one"), .target = S("/one")}};
	struct plan plan = {.mounts = mounts, .mount_count = 2};

	assert_int_equal(mkdirat(w->fd, "out", 0755), 0);
	assert_int_equal(mkdirat(w->fd, "out/sub", 0755), 0);
	assert_int_equal(mkdirat(w->fd, "logs", 0755), 0);
	(void) close(openat(w->fd, "one", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	assert_int_equal(symlinkat("out/sub", w->fd, "alias"), 0);
	assert_int_equal(symlinkat("../out/new.jsonl", w->fd, "logs/pointer"), 0);
	assert_int_equal(symlinkat("loop", w->fd, "logs/loop"), 0);
	assert_int_equal(linkat(w->fd, "one", w->fd, "logs/one-too", 0), 0);
	mounts[0].fd = openat(w->fd, "out", O_PATH | O_CLOEXEC);
	mounts[1].fd = openat(w->fd, "one", O_PATH | O_CLOEXEC);
	assert_false(exposed(w, &plan, "audit.jsonl"));
	assert_false(exposed(w, &plan, "logs/audit.jsonl"));
	assert_true(exposed(w, &plan, "out/audit.jsonl"));
	assert_true(exposed(w, &plan, "out/sub/audit.jsonl"));
	assert_true(exposed(w, &plan, "alias/audit.jsonl"));
	assert_true(exposed(w, &plan, "logs/../out/audit.jsonl"));
	assert_true(exposed(w, &plan, "logs/pointer"));
	assert_true(exposed(w, &plan, "logs/loop"));
	assert_true(exposed(w, &plan, "one"));
	assert_true(exposed(w, &plan, "logs/one-too"));
	assert_true(exposed(w, &plan, "missing/audit.jsonl")); /* cannot be found out */
	mounts[0].writable = mounts[1].writable = false;
	assert_false(exposed(w, &plan, "out/audit.jsonl"));
	(void) close(mounts[0].fd);
	(void) close(mounts[1].fd);
}

/* 34 lines of a megabyte have found room in 32 MiB when the last began within them; one more says that it is the last. */
static void connections_cannot_fill_the_disk_of_the_log(void **state)
{
	enum { EACH = 1000 * 1000, TOLD = 35, MADE = 40 };
	struct world *w = *state;
	cleanup_free char *path = xcalloc(1, EACH + 1);
	json_t *connection, *l;
	struct stat st;

	memset(path, 'x', EACH);
	connection = json_pack("{ss ss}", "host", "api.test", "path", path);
	open_audit(w);
	for (size_t i = 0; i < MADE; i++)
		tell(w, (struct event){.kind = EVENT_CONNECTION, .connection = connection});
	tell(w, (struct event){.kind = EVENT_LIMIT, .text = "time"});
	json_decref(connection);
	assert_int_equal(fstatat(w->fd, "audit.jsonl", &st, 0), 0);
	assert_in_range(st.st_size, TOLD * EACH, (TOLD + 1) * EACH);
	l = line(w, TOLD - 2);
	assert_null(json_object_get(l, "last"));
	json_decref(l);
	l = line(w, TOLD - 1);
	assert_true(json_is_true(json_object_get(l, "last")));
	json_decref(l);
	l = line(w, TOLD);
	assert_member(l, "event", "limit");
	json_decref(l);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(lines_are_appended_and_the_file_is_private),
	    TEST(text_from_inside_cannot_break_a_line),
	    TEST(long_text_is_cut_at_a_character),
	    TEST(a_start_tells_who_runs_what),
	    TEST(files_and_end_follow_the_result),
	    TEST(a_full_disk_is_told_once_at_the_end),
	    TEST(a_pipe_without_a_reader_is_no_trap),
	    TEST(a_torn_line_does_not_spoil_the_next),
	    TEST(an_audit_file_that_the_inside_can_write_is_noticed),
	    TEST(connections_cannot_fill_the_disk_of_the_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
