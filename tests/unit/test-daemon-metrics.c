/* The numbers in Prometheus' text form, problems as documents, and lines of the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/problem.h"

static char *write_all(struct metrics *m)
{
	struct evbuffer *b = evbuffer_new();
	char *text;

	assert_int_equal(metrics_write(m, b), 0);
	text = xstrndup((const char *) evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
	return text;
}

static void samples_have_their_labels(void **state)
{
	struct metrics *m = metrics_new();
	cleanup_free char *text = NULL;

	(void) state;
	for (unsigned i = 0; i < 3; i++)
		metrics_add(m, METRIC_RUNS, METRIC_LABELS("exited"), 1);
	metrics_add(m, METRIC_RUNS, METRIC_LABELS("time\"out\\\n"), 1);
	metrics_set(m, METRIC_SANDBOXES_RUNNING, NULL, 7);
	metrics_add(m, METRIC_SANDBOXES_CPU_SECONDS, NULL, 1500000);
	text = write_all(m);
	assert_non_null(strstr(text, "# TYPE zwinger_runs_total counter\n"));
	assert_non_null(strstr(text, "zwinger_runs_total{status=\"exited\"} 3\n"));
	assert_non_null(strstr(text, "zwinger_runs_total{status=\"time\\\"out\\\\\\n\"} 1\n"));
	assert_non_null(strstr(text, "zwinger_sandboxes_running 7\n"));
	assert_non_null(strstr(text, "zwinger_sandboxes_paused 0\n"));
	assert_non_null(strstr(text, "zwinger_sandboxes_cpu_seconds_total 1.500000\n"));
	assert_non_null(strstr(text, "\nprocess_open_fds "));
	(void) metrics_free(m);
}

static void histograms_are_cumulative(void **state)
{
	struct metrics *m = metrics_new();
	cleanup_free char *text = NULL;

	(void) state;
	metrics_observe(m, METRIC_SANDBOX_START_SECONDS, NULL, 1500);
	metrics_observe(m, METRIC_SANDBOX_START_SECONDS, NULL, 2000);
	metrics_observe(m, METRIC_SANDBOX_START_SECONDS, NULL, 100 * USEC_PER_SEC);
	text = write_all(m);
	assert_non_null(strstr(text, "zwinger_sandbox_start_seconds_bucket{le=\"0.001\"} 0\n"));
	assert_non_null(strstr(text, "zwinger_sandbox_start_seconds_bucket{le=\"0.002\"} 2\n"));
	assert_non_null(strstr(text, "zwinger_sandbox_start_seconds_bucket{le=\"60\"} 2\n"));
	assert_non_null(strstr(text, "zwinger_sandbox_start_seconds_bucket{le=\"+Inf\"} 3\n"));
	assert_non_null(strstr(text, "zwinger_sandbox_start_seconds_sum 100.003500\n"));
	assert_non_null(strstr(text, "zwinger_sandbox_start_seconds_count 3\n"));
	(void) metrics_free(m);
}

static void the_number_of_samples_is_bounded(void **state)
{
	struct metrics *m = metrics_new();
	cleanup_free char *text = NULL;
	size_t lines = 0;

	(void) state;
	for (unsigned i = 0; i < METRIC_SAMPLES_MAX + 500; i++) {
		char label[100];

		(void) snprintf(label, sizeof label, "%u-%080u", i, 0U);
		for (unsigned n = 0; n < 2; n++)
			metrics_add(m, METRIC_DENIALS, METRIC_LABELS(label), 1);
	}
	text = write_all(m);
	for (const char *p = text; (p = strstr(p, "zwinger_denials_total{")) != NULL; p++)
		lines++;
	assert_int_equal(lines, METRIC_SAMPLES_MAX + 1);
	assert_non_null(strstr(text, "zwinger_denials_total{kind=\"other\"} 1000\n"));
	(void) metrics_free(m);
}

static void a_problem_says_what_and_what_to_do(void **state)
{
	const struct problem p = {.code = PROBLEM_BUSY, .message = "cut \xc3", .hint = "wait"};
	cleanup_free char *text = problem_json(&p, "id1");
	json_t *o = json_loads(text, 0, NULL);

	(void) state;
	assert_non_null(o);
	assert_int_equal(json_integer_value(json_object_get(o, "status")), 429);
	assert_string_equal(json_string_value(json_object_get(o, "code")), "busy");
	assert_string_equal(json_string_value(json_object_get(o, "message")), "cut ?");
	assert_string_equal(json_string_value(json_object_get(o, "hint")), "wait");
	assert_string_equal(json_string_value(json_object_get(o, "type")), "about:blank");
	assert_string_equal(json_string_value(json_object_get(o, "request_id")), "id1");
	assert_null(json_object_get(o, "errors"));
	json_decref(o);
}

static void lines_of_the_log_are_whole(void **state)
{
	char path[] = "/tmp/test-log-XXXXXX", nasty[300];
	int fd = mkostemp(path, O_CLOEXEC);
	struct zw_error e = {0};
	struct dlog *l = dlog_new(path, true, &e);
	cleanup_free char *text = NULL;
	size_t size;
	json_t *o;

	(void) state;
	assert_non_null(l);
	memset(nasty, '\x01', sizeof nasty - 1);
	nasty[sizeof nasty - 1] = '\0';
	memcpy(nasty, "\"\\\n\xff", 4);
	dlog(l, DLOG_INFO, "request", dlog_text("path", nasty), dlog_number("n", 5), dlog_seconds("seconds", 1500),
	     dlog_text("a", nasty), dlog_text("b", nasty), dlog_text("c", nasty), dlog_text("d", nasty));
	(void) dlog_free(l);
	assert_int_equal(fd_read_all(fd, 1 << 20, &text, &size), 0);
	assert_int_equal(text[size - 1], '\n');
	assert_ptr_equal(strchr(text, '\n'), text + size - 1);
	o = json_loads(text, 0, NULL);
	assert_non_null(o);
	assert_string_equal(json_string_value(json_object_get(o, "event")), "request");
	assert_int_equal(json_integer_value(json_object_get(o, "n")), 5);
	assert_true(json_real_value(json_object_get(o, "seconds")) == 0.0015);
	json_decref(o);
	fd_close(&fd);
	(void) unlink(path);
}

static void a_reader_that_does_not_read_costs_lines_and_no_time(void **state)
{
	int pair[2];
	struct zw_error e = {0};
	cleanup_fd int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	struct dlog *l = dlog_new(NULL, false, &e);
	char text[300] = {0};
	usec_t began = now_monotonic();

	(void) state;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	assert_true(dup2(pair[1], STDERR_FILENO) >= 0);
	memset(text, 'x', sizeof text - 1);
	for (unsigned i = 0; i < 1000; i++)
		dlog(l, DLOG_WARNING, "event", dlog_text("t", text));
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	assert_true(now_monotonic() - began < 2 * USEC_PER_SEC);
	(void) dlog_free(l);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(samples_have_their_labels),
	    cmocka_unit_test(histograms_are_cumulative),
	    cmocka_unit_test(the_number_of_samples_is_bounded),
	    cmocka_unit_test(a_problem_says_what_and_what_to_do),
	    cmocka_unit_test(lines_of_the_log_are_whole),
	    cmocka_unit_test(a_reader_that_does_not_read_costs_lines_and_no_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
