/* The document zwinger.result/1, the exit status and the line. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "sandbox/plan.h"
#include "sandbox/result.h"

static json_t *document(const struct result *r, bool with_text)
{
	cleanup_free char *text = result_to_json(r, with_text);
	json_t *doc;

	assert_non_null(text);
	assert_null(strchr(text, '\n'));
	doc = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	assert_non_null(doc);
	return doc;
}

static const char *text_of(json_t *doc, const char *key)
{
	const char *s = json_string_value(json_object_get(doc, key));

	assert_non_null(s);
	return s;
}

static struct result finished(int wait_status)
{
	struct result r;

	result_init(&r);
	(void) snprintf(r.id, sizeof r.id, "zw-test");
	r.status = WIFSIGNALED(wait_status) ? STATUS_SIGNALED : STATUS_EXITED;
	r.has_main_status = true;
	r.wait_status = wait_status;
	(void) snprintf(r.reason, sizeof r.reason, "a reason");
	r.started_at = UINT64_C(1769860800123456);
	r.captured = true;
	return r;
}

static void put(struct stream_result *s, const void *data, size_t size)
{
	s->text = buf_new(1 << 20);
	assert_int_equal(buf_add(&s->text, data, size), 0);
	s->bytes = size;
}

static void an_exit_has_a_code_and_no_signal(void **state)
{
	struct result r = finished(3 << 8);
	json_t *doc = document(&r, true);

	(void) state;
	assert_string_equal(text_of(doc, "schema"), "zwinger.result/1");
	assert_string_equal(text_of(doc, "id"), "zw-test");
	assert_string_equal(text_of(doc, "status"), "exited");
	assert_string_equal(text_of(doc, "reason"), "a reason");
	assert_string_equal(text_of(doc, "isolation"), "container");
	assert_string_equal(text_of(doc, "started_at"), "2026-01-31T12:00:00.123Z");
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), 3);
	assert_true(json_is_null(json_object_get(doc, "signal")));
	assert_int_equal(result_exit_status(&r), 3);
	assert_null(result_line(&r));
	json_decref(doc);
	result_done(&r);
}

static void a_signal_has_a_name_and_no_code(void **state)
{
	struct result r = finished(SIGKILL);
	json_t *doc = document(&r, true);

	(void) state;
	assert_string_equal(text_of(doc, "signal"), "SIGKILL");
	assert_true(json_is_null(json_object_get(doc, "exit_code")));
	assert_int_equal(result_exit_status(&r), 137);
	json_decref(doc);
	result_done(&r);
}

static void unknown_figures_are_null(void **state)
{
	struct result r = finished(0);
	const char *key;
	json_t *doc, *value;

	(void) state;
	r.usage.oom_kills = 0;
	r.usage.wall = 1500000;
	doc = document(&r, true);
	json_object_foreach(json_object_get(doc, "usage"), key, value)
	{
		if (strcmp(key, "oom_kills") == 0)
			assert_int_equal(json_integer_value(value), 0);
		else if (strcmp(key, "wall_seconds") == 0)
			assert_true(json_real_value(value) > 1.49 && json_real_value(value) < 1.51);
		else
			assert_true(json_is_null(value));
	}
	assert_int_equal(json_object_size(json_object_get(doc, "usage")), 10);
	json_decref(doc);
	result_done(&r);
}

static void text_is_text_and_other_bytes_are_base64(void **state)
{
	struct result r = finished(0);
	json_t *doc, *out;

	(void) state;
	put(&r.out, "h\xc3\xa9\0z", 5);
	put(&r.err, "A\xff", 2);
	doc = document(&r, true);
	out = json_object_get(doc, "stdout");
	assert_int_equal(json_string_length(out), 5);
	assert_memory_equal(json_string_value(out), "h\xc3\xa9\0z", 5);
	assert_string_equal(text_of(doc, "stdout_encoding"), "utf-8");
	assert_string_equal(text_of(doc, "stderr"), "Qf8=");
	assert_string_equal(text_of(doc, "stderr_encoding"), "base64");
	assert_int_equal(json_integer_value(json_object_get(doc, "stderr_bytes")), 2);
	assert_true(json_is_false(json_object_get(doc, "stderr_truncated")));
	json_decref(doc);
	result_done(&r);
}

static void a_gap_is_marked(void **state)
{
	struct result r = finished(0);
	json_t *doc;

	(void) state;
	put(&r.out, "BEGINEND", 8);
	r.out.head = 5;
	r.out.dropped = 92;
	r.out.bytes = 100;
	doc = document(&r, true);
	assert_string_equal(text_of(doc, "stdout"), "BEGIN\n[zwinger: 92 bytes left out]\nEND");
	assert_true(json_is_true(json_object_get(doc, "stdout_truncated")));
	assert_int_equal(json_integer_value(json_object_get(doc, "stdout_bytes")), 100);
	json_decref(doc);
	result_done(&r);
}

static void without_text_there_are_only_counts(void **state)
{
	struct result r = finished(0);
	json_t *doc;

	(void) state;
	r.captured = false;
	r.out.bytes = 17;
	doc = document(&r, false);
	assert_null(json_object_get(doc, "stdout"));
	assert_null(json_object_get(doc, "stdout_encoding"));
	assert_int_equal(json_integer_value(json_object_get(doc, "stdout_bytes")), 17);
	json_decref(doc);
	result_done(&r);
}

static void enforcement_lists_what_was_asked_for(void **state)
{
	struct result r = finished(0);
	json_t *doc, *list;

	(void) state;
	r.controls[CONTROL_MEMORY].mechanism = "none";
	r.controls[CONTROL_MEMORY].why = xstrdup("there is no memory controller");
	r.controls[CONTROL_PROCESSES].mechanism = "cgroup2";
	doc = document(&r, true);
	list = json_object_get(doc, "enforcement");
	assert_int_equal(json_object_size(list), 2);
	assert_string_equal(text_of(list, "memory"), "none");
	assert_string_equal(text_of(list, "processes"), "cgroup2");
	list = json_object_get(doc, "not_enforced");
	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(text_of(json_array_get(list, 0), "control"), "memory");
	assert_string_equal(text_of(json_array_get(list, 0), "why"), "there is no memory controller");
	json_decref(doc);
	result_done(&r);
}

static void denials_have_only_the_fields_that_are_known(void **state)
{
	struct result r = finished(0);
	json_t *doc, *list;

	(void) state;
	(void) denials_add(&r.denials, &(struct denial){.kind = "syscall", .name = "mount"});
	(void) denials_add(&r.denials, &(struct denial){.kind = "network", .host = "192.0.2.1", .port = 443});
	(void) denials_add(&r.denials, &(struct denial){.kind = "file", .name = "/root/bad\xff\\name"});
	doc = document(&r, true);
	list = json_object_get(doc, "denials");
	assert_int_equal(json_array_size(list), 3);
	assert_int_equal(json_object_size(json_array_get(list, 0)), 3);
	assert_int_equal(json_object_size(json_array_get(list, 1)), 4);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 1), "port")), 443);
	assert_string_equal(text_of(json_array_get(list, 2), "name"), "/root/bad\\xff\\\\name");
	json_decref(doc);
	result_done(&r);
}

static void refusals_list_every_error(void **state)
{
	struct result r;
	json_t *doc, *list, *first;

	(void) state;
	result_init(&r);
	r.status = STATUS_REFUSED;
	policy_errors_add(&r.errors, "p.yaml", 7, "limits.memroy", "memory", "unknown key");
	policy_errors_add(&r.errors, NULL, 0, "limits.time", NULL, "expected a time");
	doc = document(&r, true);
	assert_string_equal(text_of(doc, "status"), "refused");
	assert_true(json_is_null(json_object_get(doc, "exit_code")));
	assert_true(json_is_null(json_object_get(doc, "started_at")));
	list = json_object_get(doc, "errors");
	assert_int_equal(json_array_size(list), 2);
	first = json_array_get(list, 0);
	assert_string_equal(text_of(first, "file"), "p.yaml");
	assert_int_equal(json_integer_value(json_object_get(first, "line")), 7);
	assert_string_equal(text_of(first, "key"), "limits.memroy");
	assert_string_equal(text_of(first, "message"), "unknown key");
	assert_string_equal(text_of(first, "suggestion"), "memory");
	assert_true(json_is_null(json_object_get(json_array_get(list, 1), "file")));
	assert_int_equal(result_exit_status(&r), 125);
	assert_non_null(result_line(&r));
	json_decref(doc);
	result_done(&r);
}

static void an_error_has_its_code_when_the_command_is_to_blame(void **state)
{
	struct result r;
	json_t *doc;

	(void) state;
	result_init(&r);
	r.exit_code = 127;
	doc = document(&r, true);
	assert_string_equal(text_of(doc, "status"), "error");
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), 127);
	assert_int_equal(result_exit_status(&r), 127);
	json_decref(doc);
	r.exit_code = 125;
	doc = document(&r, true);
	assert_true(json_is_null(json_object_get(doc, "exit_code")));
	json_decref(doc);
	result_done(&r);
}

static void files_are_null_when_not_known(void **state)
{
	struct result r = finished(0);
	json_t *doc, *files;

	(void) state;
	doc = document(&r, true);
	files = json_object_get(doc, "files");
	assert_true(json_is_null(json_object_get(files, "created")));
	json_decref(doc);
	r.changes.known = true;
	r.changes.created.paths = xcalloc(1, sizeof(char *));
	r.changes.created.paths[0] = xstrdup("/out/bad\xff.bin");
	r.changes.created.count = 1;
	doc = document(&r, true);
	files = json_object_get(doc, "files");
	assert_string_equal(json_string_value(json_array_get(json_object_get(files, "created"), 0)), "/out/bad\\xff.bin");
	assert_int_equal(json_array_size(json_object_get(files, "deleted")), 0);
	json_decref(doc);
	result_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_exit_has_a_code_and_no_signal),
	    cmocka_unit_test(a_signal_has_a_name_and_no_code),
	    cmocka_unit_test(unknown_figures_are_null),
	    cmocka_unit_test(text_is_text_and_other_bytes_are_base64),
	    cmocka_unit_test(a_gap_is_marked),
	    cmocka_unit_test(without_text_there_are_only_counts),
	    cmocka_unit_test(enforcement_lists_what_was_asked_for),
	    cmocka_unit_test(denials_have_only_the_fields_that_are_known),
	    cmocka_unit_test(refusals_list_every_error),
	    cmocka_unit_test(an_error_has_its_code_when_the_command_is_to_blame),
	    cmocka_unit_test(files_are_null_when_not_known),
	};

	return cmocka_run_group_tests_name("result", tests, NULL, NULL);
}
