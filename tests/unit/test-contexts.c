/* The state machine of a context, against an interpreter that the test itself plays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/contexts.h"

struct fake {
	struct event_base *base;
	struct context *context;
	struct context_ends ends; /* the interpreter's side */
	unsigned starts, kills, interrupts, changes;
	bool answers_signals;
	bool refuse, deaf; /* deaf: a kill is told later, by the test */
};

struct told {
	char text[2][4096];
	size_t size[2];
	unsigned begins, results, errors, ends;
	enum execution_status status;
	char reason[200], error[100], result[400];
	struct execution_end end;
	char order[64];          /* o, r, e, d as they came */
	struct context *free_on; /* freed by the callback of that kind */
	char free_when;
};

static void fake_close(struct fake *f)
{
	fd_close(&f->ends.out);
	fd_close(&f->ends.err);
	fd_close(&f->ends.channel);
}

static int fake_start(void *owner, struct context *c, struct context_ends *ends, struct zw_error *e)
{
	struct fake *f = owner;

	(void) c;
	f->starts++;
	if (f->refuse) {
		fd_close(&ends->out);
		fd_close(&ends->err);
		fd_close(&ends->channel);
		return zw_error(e, ENOENT, "python3 is not there");
	}
	fake_close(f);
	f->ends = *ends;
	return 0;
}

static void fake_interrupt(void *owner, struct context *c)
{
	struct fake *f = owner;

	f->interrupts++;
	if (f->answers_signals)
		context_signaled(c);
}

static void fake_kill(void *owner, struct context *c)
{
	struct fake *f = owner;

	f->kills++;
	if (f->deaf)
		return;
	fake_close(f);
	context_ended(c, &(struct context_death){.exit_code = -1, .signal = SIGKILL});
}

static void fake_changed(void *owner, struct context *c)
{
	(void) c;
	((struct fake *) owner)->changes++;
}

static const struct context_ops ops = {fake_start, fake_interrupt, fake_kill, fake_changed};

static void note(struct told *t, char what)
{
	size_t n = strlen(t->order);

	if (n + 1 < sizeof t->order)
		t->order[n] = what;
	if (t->free_on != NULL && t->free_when == what)
		context_free(t->free_on);
}

static void on_begin(void *ctx, unsigned count, bool fresh)
{
	struct told *t = ctx;

	(void) count;
	(void) fresh;
	t->begins++;
	note(t, 'b');
}

static void on_output(void *ctx, unsigned stream, const char *data, size_t size)
{
	struct told *t = ctx;

	if (t->size[stream] + size < sizeof t->text[stream])
		memcpy(t->text[stream] + t->size[stream], data, size);
	t->size[stream] += size;
	note(t, 'o');
}

static void on_result(void *ctx, json_t *result)
{
	struct told *t = ctx;
	cleanup_free char *text = json_dumps(result, JSON_COMPACT);

	t->results++;
	(void) snprintf(t->result, sizeof t->result, "%s", text);
	note(t, 'r');
}

static void on_error(void *ctx, const char *name, const char *value, const char *traceback)
{
	struct told *t = ctx;

	t->errors++;
	(void) snprintf(t->error, sizeof t->error, "%s|%s|%s", name, value, traceback);
	note(t, 'e');
}

static void on_end(void *ctx, const struct execution_end *end)
{
	struct told *t = ctx;

	t->ends++;
	t->end = *end;
	t->status = end->status;
	(void) snprintf(t->reason, sizeof t->reason, "%s", end->reason == NULL ? "" : end->reason);
	note(t, 'd');
}

static const struct execution_callbacks callbacks = {on_begin, on_output, on_result, on_error, on_end};

static struct fake *setup(const char *language)
{
	struct fake *f = xcalloc(1, sizeof *f);

	f->ends = (struct context_ends){-EBADF, -EBADF, -EBADF};
	f->base = event_base_new();
	assert_int_equal(context_new(f->base, driver_find(language), false, &ops, f, &f->context, NULL), 0);
	return f;
}

static void teardown(struct fake *f)
{
	f->deaf = true;
	context_free(f->context);
	fake_close(f);
	event_base_free(f->base);
	free(f);
}

/* Everything that can happen without waiting. */
static void run(struct fake *f)
{
	for (int i = 0; i < 100; i++)
		(void) event_base_loop(f->base, EVLOOP_NONBLOCK);
}

/* Waits for the clock until it has ended. */
static void wait_end(struct fake *f, const struct told *t, unsigned ends)
{
	for (int i = 0; i < 100 && t->ends < ends; i++)
		(void) event_base_loop(f->base, EVLOOP_ONCE);
}

/* For somebody who may be gone. */
static bool may_say(struct fake *f, const char *body)
{
	char frame[2048];
	int n = snprintf(frame, sizeof frame, "%zu\n%s", strlen(body), body);

	return send(f->ends.channel, frame, (size_t) n, MSG_NOSIGNAL) == n;
}

static void says(struct fake *f, const char *body)
{
	assert_true(may_say(f, body));
}

static void prints(struct fake *f, int fd, const char *text)
{
	(void) f;
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
}

static void ready(struct fake *f)
{
	run(f);
	says(f, "{\"t\":\"ready\",\"driver\":\"native\"}");
	run(f);
}

/* What was sent to the interpreter up to now ends with this. */
static void assert_got(struct fake *f, const char *end)
{
	static char data[1 << 20];
	size_t size = 0;

	for (;;) {
		ssize_t n = recv(f->ends.channel, data + size, sizeof data - 1 - size, MSG_DONTWAIT);

		if (n <= 0)
			break;
		size += (size_t) n;
		run(f);
	}
	data[size] = '\0';
	assert_true(size >= strlen(end));
	assert_string_equal(data + size - strlen(end), end);
}

static struct execution *execute_for(struct fake *f, struct told *t, usec_t timeout, uint64_t output_max, bool kills)
{
	const struct execution_ask ask = {"1+1", 3, NULL, timeout, output_max, kills};
	struct execution *x = NULL;

	assert_int_equal(context_execute(f->context, &ask, &callbacks, t, &x), 0);
	return x;
}

static struct execution *execute(struct fake *f, struct told *t)
{
	return execute_for(f, t, ZW_UNLIMITED, 1 << 20, false);
}

static void an_execution_starts_the_interpreter_and_is_told_in_order(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	assert_int_equal(context_state(f->context), CONTEXT_DEAD);
	(void) execute(f, &t);
	assert_int_equal(f->starts, 0); /* nothing happens before the caller has its pointer */
	ready(f);
	assert_got(f, "{\"t\":\"execute\",\"id\":1,\"env\":{},\"code\":\"1+1\"}");
	assert_int_equal(context_state(f->context), CONTEXT_BUSY);
	prints(f, f->ends.out, "before\n");
	says(f, "{\"t\":\"result\",\"id\":1,\"result\":{\"main\":true,\"text\":\"'a'\",\"png\":5,\"bogus\":1}}");
	prints(f, f->ends.err, "after\n");
	says(f, "{\"t\":\"error\",\"id\":1,\"error\":{\"name\":\"E\",\"value\":\"v\",\"traceback\":\"t\"}}");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"error\",\"interrupted\":false}");
	run(f);
	assert_int_equal(t.ends, 1);
	assert_int_equal(t.status, EXECUTION_ERROR);
	assert_string_equal(t.result, "{\"text\":\"a\",\"main\":true}");
	assert_string_equal(t.error, "E|v|t");
	assert_memory_equal(t.text[0], "before\n", 7);
	assert_memory_equal(t.text[1], "after\n", 6);
	assert_true(t.end.fresh && !t.end.restarted && t.end.count == 1);
	assert_int_equal(context_state(f->context), CONTEXT_IDLE);
	teardown(f);
}

static void output_comes_before_the_message_that_follows_it(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	prints(f, f->ends.out, "x");
	says(f, "{\"t\":\"result\",\"id\":1,\"result\":{\"main\":true}}");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"ok\"}");
	run(f);
	assert_string_equal(t.order, "bord");
	teardown(f);
}

static void one_runs_and_others_wait(void **state)
{
	struct fake *f = setup("python");
	struct told a = {0}, b = {0};

	(void) state;
	(void) execute(f, &a);
	(void) execute(f, &b);
	ready(f);
	assert_int_equal(a.begins, 1);
	assert_int_equal(b.begins, 0);
	says(f, "{\"t\":\"done\",\"id\":2,\"status\":\"ok\"}"); /* not yet */
	run(f);
	assert_int_equal(b.ends, 0);
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"ok\"}");
	run(f);
	assert_int_equal(a.ends, 1);
	assert_int_equal(b.begins, 1);
	says(f, "{\"t\":\"done\",\"id\":2,\"status\":\"ok\"}");
	run(f);
	assert_int_equal(b.ends, 1);
	assert_true(a.end.fresh && !b.end.fresh);
	teardown(f);
}

static void the_queue_has_an_end(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};
	const struct execution_ask ask = {"", 0, NULL, ZW_UNLIMITED, 1, false};
	struct execution *x;

	(void) state;
	for (int i = 0; i < CONTEXT_QUEUE_MAX; i++)
		(void) execute(f, &t);
	assert_int_equal(context_execute(f->context, &ask, &callbacks, &t, &x), -EAGAIN);
	teardown(f);
}

static void a_timeout_interrupts_and_keeps_what_yields(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute_for(f, &t, 20 * USEC_PER_MSEC, 100, false);
	ready(f);
	(void) event_base_loop(f->base, EVLOOP_ONCE);
	run(f);
	assert_got(f, "{\"t\":\"interrupt\",\"id\":1}");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"interrupted\",\"interrupted\":true}");
	run(f);
	assert_int_equal(t.status, EXECUTION_TIMEOUT);
	assert_string_equal(t.reason, "it took longer than 20 ms");
	assert_false(t.end.restarted);
	assert_int_equal(f->kills, 0);
	teardown(f);
}

static void what_does_not_yield_costs_the_interpreter(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0}, next = {0};

	(void) state;
	(void) execute_for(f, &t, 20 * USEC_PER_MSEC, 100, false);
	ready(f);
	wait_end(f, &t, 1);
	assert_int_equal(t.status, EXECUTION_TIMEOUT);
	assert_true(t.end.restarted);
	assert_true(t.end.took >= CONTEXT_GRACE);
	assert_int_equal(f->kills, 1);
	assert_int_equal(f->starts, 2); /* a fresh one at once */
	(void) execute(f, &next);
	ready(f);
	says(f, "{\"t\":\"done\",\"id\":2,\"status\":\"ok\"}");
	run(f);
	assert_true(next.end.fresh);
	assert_int_equal(next.end.count, 1);
	teardown(f);
}

static void an_interrupt_that_comes_too_late_changes_nothing(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	context_interrupt(f->context);
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"ok\",\"interrupted\":false}");
	run(f);
	assert_int_equal(t.status, EXECUTION_OK);
	context_interrupt(f->context); /* nothing runs */
	(void) execute(f, &t);
	run(f);
	assert_got(f, "\"code\":\"1+1\"}");
	teardown(f);
}

static void nothing_runs_while_a_signal_is_on_its_way(void **state)
{
	struct fake *f = setup("bash");
	struct told a = {0}, b = {0};

	(void) state;
	(void) execute(f, &a);
	(void) execute(f, &b);
	ready(f);
	context_interrupt(f->context);
	assert_int_equal(f->interrupts, 1);
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"error\",\"exit_status\":130,\"interrupted\":false}");
	run(f);
	assert_int_equal(a.status, EXECUTION_INTERRUPTED);
	assert_int_equal(b.begins, 0);
	context_signaled(f->context);
	assert_int_equal(b.begins, 1);
	teardown(f);
}

static void a_shell_gets_several_signals_before_it_is_killed(void **state)
{
	struct fake *f = setup("bash");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	f->answers_signals = true;
	context_interrupt(f->context);
	wait_end(f, &t, 1);
	assert_int_equal(f->interrupts, 4);
	assert_int_equal(t.status, EXECUTION_INTERRUPTED);
	assert_true(t.end.restarted);
	assert_int_equal(f->kills, 1);
	teardown(f);
}

static void a_client_that_leaves_interrupts_and_hears_nothing_more(void **state)
{
	struct fake *f = setup("python");
	struct told a = {0}, b = {0};
	struct execution *x = execute(f, &a), *y = execute(f, &b);

	(void) state;
	ready(f);
	execution_cancel(y);
	execution_cancel(x);
	run(f);
	assert_got(f, "{\"t\":\"interrupt\",\"id\":1}");
	prints(f, f->ends.out, "x");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"interrupted\",\"interrupted\":true}");
	run(f);
	assert_int_equal(a.ends + b.ends + a.size[0], 0);
	assert_int_equal(context_state(f->context), CONTEXT_IDLE);
	teardown(f);
}

static void a_death_is_told_and_the_next_starts_afresh(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0}, next = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	prints(f, f->ends.out, "last words");
	says(f, "{\"t\":\"error\",\"id\":1,\"error\":{\"name\":\"E\"}}");
	f->deaf = true;
	fake_close(f);
	context_ended(f->context, &(struct context_death){.exit_code = 4});
	assert_int_equal(t.status, EXECUTION_DIED);
	assert_string_equal(t.reason, "the interpreter ended with exit code 4");
	assert_memory_equal(t.text[0], "last words", 10);
	assert_string_equal(t.error, "E||");
	assert_true(t.end.restarted);
	assert_int_equal(context_state(f->context), CONTEXT_DEAD);
	assert_string_equal(context_fault(f->context), "the interpreter ended with exit code 4");
	assert_int_equal(f->starts, 1);
	(void) execute(f, &next);
	ready(f);
	assert_int_equal(f->starts, 2);
	says(f, "{\"t\":\"done\",\"id\":2,\"status\":\"ok\"}");
	run(f);
	assert_true(next.end.fresh);
	teardown(f);
}

static void the_owner_knows_better_why_it_died(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	context_ended(f->context, &(struct context_death){.exit_code = -1, .signal = SIGKILL, .reason = "memory ran out"});
	assert_int_equal(t.status, EXECUTION_DIED);
	assert_string_equal(t.reason, "memory ran out");
	teardown(f);
}

static void the_exit_of_a_shell_is_a_result(void **state)
{
	struct fake *f = setup("bash");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	fd_close(&f->ends.channel); /* as exec does */
	run(f);
	assert_int_equal(f->kills, 0);
	prints(f, f->ends.out, "x");
	context_ended(f->context, &(struct context_death){.exit_code = 3});
	assert_int_equal(t.status, EXECUTION_ERROR);
	assert_string_equal(t.reason, "the shell ended with exit status 3");
	assert_true(t.end.restarted);
	assert_int_equal(t.size[0], 1);
	teardown(f);
}

static void an_interpreter_that_never_comes_up_refuses_what_waits(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	(void) execute(f, &t);
	run(f);
	context_ended(f->context, &(struct context_death){.exit_code = 127, .reason = "python3 is not there"});
	assert_int_equal(t.ends, 2);
	assert_int_equal(t.status, EXECUTION_DIED);
	assert_string_equal(t.reason, "python3 is not there");
	assert_int_equal(f->starts, 1);
	f->refuse = true;
	(void) execute(f, &t);
	run(f);
	assert_int_equal(t.ends, 3);
	assert_string_equal(t.reason, "python3 is not there");
	teardown(f);
}

static void output_is_cut_and_counted(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute_for(f, &t, ZW_UNLIMITED, 5, false);
	ready(f);
	prints(f, f->ends.out, "1234567890");
	prints(f, f->ends.err, "123");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"ok\"}");
	run(f);
	assert_int_equal(t.size[0], 5);
	assert_int_equal(t.end.bytes[0], 10);
	assert_true(t.end.truncated[0] && !t.end.truncated[1]);
	assert_int_equal(t.status, EXECUTION_OK);
	teardown(f);
}

static void output_over_a_limit_that_kills_ends_it(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute_for(f, &t, ZW_UNLIMITED, 5, true);
	ready(f);
	prints(f, f->ends.out, "1234567890");
	run(f);
	assert_got(f, "{\"t\":\"interrupt\",\"id\":1}");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"interrupted\",\"interrupted\":true}");
	run(f);
	assert_int_equal(t.status, EXECUTION_OUTPUT_LIMIT);
	teardown(f);
}

static void output_between_executions_comes_with_the_next(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	assert_int_equal(context_start(f->context, NULL), 0);
	ready(f);
	prints(f, f->ends.out, "late");
	run(f);
	(void) execute(f, &t);
	run(f);
	assert_int_equal(t.size[0], 4);
	assert_string_equal(t.order, "bo");
	teardown(f);
}

static void a_restart_cancels_what_runs_and_keeps_what_waits(void **state)
{
	struct fake *f = setup("python");
	struct told a = {0}, b = {0};

	(void) state;
	(void) execute(f, &a);
	(void) execute(f, &b);
	ready(f);
	context_restart(f->context);
	assert_int_equal(a.status, EXECUTION_CANCELED);
	assert_string_equal(a.reason, "the context was restarted");
	assert_int_equal(f->starts, 2);
	ready(f);
	says(f, "{\"t\":\"done\",\"id\":2,\"status\":\"ok\"}");
	run(f);
	assert_int_equal(b.ends, 1);
	assert_true(b.end.fresh);
	context_restart(f->context); /* an idle one */
	assert_int_equal(f->starts, 3);
	teardown(f);
}

static void nonsense_ends_the_interpreter(void **state)
{
	static const char *const frames[] = {
	    "x\n{}",      "-1\n", "99999999\n",  "123456789", "3\n[1]", "2\n{}", "12\n{\"t\":\"done\"}",
	    "5\n{\"t\":", "\n",   "16777217\n{", "4\nnull",   "2\n{x"};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
		struct fake *f = setup("python");
		struct told t = {0};

		(void) execute(f, &t);
		ready(f);
		assert_int_equal(send(f->ends.channel, frames[i], strlen(frames[i]), 0), (ssize_t) strlen(frames[i]));
		run(f);
		assert_int_equal(t.ends, 1);
		assert_int_equal(t.status, EXECUTION_DIED);
		assert_int_equal(f->kills, 1);
		teardown(f);
	}
}

static void a_language_that_is_not_there_is_told_as_that(void **state)
{
	struct fake *f = setup("ts");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	run(f);
	says(f, "{\"t\":\"unsupported\",\"reason\":\"this node cannot\"}");
	run(f);
	assert_int_equal(t.status, EXECUTION_DIED);
	assert_string_equal(t.reason, "this node cannot");
	teardown(f);
}

static void holding_stops_the_interpreter_but_not_its_end(void **state)
{
	struct fake *f = setup("python");
	struct told t = {0};

	(void) state;
	(void) execute(f, &t);
	ready(f);
	context_hold(f->context, true);
	prints(f, f->ends.out, "x");
	says(f, "{\"t\":\"done\",\"id\":1,\"status\":\"ok\"}");
	run(f);
	assert_int_equal(t.size[0] + t.ends, 0);
	context_hold(f->context, false);
	run(f);
	assert_int_equal(t.size[0] + t.ends, 2);
	teardown(f);
}

static void a_callback_may_free_the_context(void **state)
{
	(void) state;
	(void) sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	for (const char *when = "bored"; *when != '\0'; when++) {
		struct fake *f = setup("python");
		struct told t = {.free_on = f->context, .free_when = *when};

		f->deaf = true;
		(void) execute(f, &t);
		ready(f);
		(void) !write(f->ends.out, "x", 1);
		(void) may_say(f, "{\"t\":\"result\",\"id\":1,\"result\":{\"main\":true}}");
		(void) may_say(f, "{\"t\":\"error\",\"id\":1,\"error\":{}}");
		(void) may_say(f, "{\"t\":\"done\",\"id\":1,\"status\":\"ok\"}");
		run(f);
		assert_non_null(strchr(t.order, *when));
		fake_close(f);
		event_base_free(f->base);
		free(f);
	}
}

/* ---- Of a daemon before this one. ---- */

static void take_over(struct fake *f, bool busy, unsigned serial)
{
	const struct context_past past = {.alive = true, .ready = true, .busy = busy, .serial = serial, .count = serial};
	struct context_ends ours;
	int out[2], err[2], channel[2];

	assert_int_equal(pipe(out), 0);
	assert_int_equal(pipe(err), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, channel), 0);
	ours = (struct context_ends){.out = out[0], .err = err[0], .channel = channel[0]};
	f->ends = (struct context_ends){.out = out[1], .err = err[1], .channel = channel[1]};
	assert_int_equal(context_take_over(f->context, &past, &ours, NULL), 0);
	run(f);
}

static void works_on(struct fake *f, unsigned id, unsigned count)
{
	struct told t = {0};
	char text[80];

	(void) execute(f, &t);
	run(f);
	(void) snprintf(text, sizeof text, "\"id\":%u,\"env\":{},\"code\":\"1+1\"}", id);
	assert_got(f, text);
	(void) snprintf(text, sizeof text, "{\"t\":\"done\",\"id\":%u,\"status\":\"ok\"}", id);
	says(f, text);
	run(f);
	assert_int_equal(t.ends, 1);
	assert_int_equal(t.status, EXECUTION_OK);
	assert_int_equal(t.end.count, count);
	assert_false(t.end.fresh);
	assert_int_equal(f->kills + f->starts, 0);
}

/* The daemon before has read a part of what the interpreter said, up to any byte. */
static void a_message_of_which_a_part_is_gone_is_passed_over(void **state)
{
	static const char said[] = "63\n{\"t\":\"result\",\"id\":7,\"result\":{\"text\":\"a 12 {}}\\n{3\",\"main\":0}}";

	(void) state;
	for (size_t cut = 0; cut < sizeof said - 1; cut++) {
		struct fake *f = setup("python");

		assert_int_equal(sizeof said - 1 - 3, 63);
		take_over(f, true, 7);
		assert_int_equal(context_state(f->context), CONTEXT_BUSY);
		assert_got(f, "{\"t\":\"interrupt\",\"id\":7}");
		assert_int_equal(send(f->ends.channel, said + cut, sizeof said - 1 - cut, MSG_NOSIGNAL),
				 (ssize_t) (sizeof said - 1 - cut));
		run(f);
		says(f, "{\"t\":\"done\",\"id\":7,\"status\":\"interrupted\",\"interrupted\":true}");
		run(f);
		assert_int_equal(context_state(f->context), CONTEXT_IDLE);
		works_on(f, 8, 8);
		teardown(f);
	}
}

static void idle_contexts_go_on(void **state)
{
	struct fake *f = setup("python");

	(void) state;
	take_over(f, false, 3);
	assert_int_equal(context_state(f->context), CONTEXT_IDLE);
	works_on(f, 4, 4);
	works_on(f, 5, 5);
	teardown(f);
}

/* What was noted as under way had not begun, or was over: nothing is said about it. */
static void silence_is_no_reason_to_end_an_interpreter_that_answers(void **state)
{
	struct fake *f = setup("bash");
	struct told t = {0};

	(void) state;
	take_over(f, true, 2);
	assert_int_equal(f->interrupts, 1);
	context_signaled(f->context);
	(void) execute(f, &t);
	for (char c; recv(f->ends.channel, &c, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;)
		(void) event_base_loop(f->base, EVLOOP_ONCE); /* until the grace is over */
	run(f);
	assert_got(f, "{\"t\":\"execute\",\"id\":3,\"env\":{},\"code\":\"\"}");
	says(f, "{\"t\":\"done\",\"id\":3,\"status\":\"ok\"}");
	run(f);
	assert_got(f, "{\"t\":\"execute\",\"id\":4,\"env\":{},\"code\":\"1+1\"}");
	says(f, "{\"t\":\"done\",\"id\":4,\"status\":\"ok\"}");
	run(f);
	assert_int_equal(t.status, EXECUTION_OK);
	assert_int_equal(t.end.count, 3); /* nobody is told of what we asked */
	assert_int_equal(f->kills, 0);
	teardown(f);
}

static void languages_have_short_names(void **state)
{
	(void) state;
	assert_string_equal(driver_find(" JS\n")->language, "javascript");
	assert_string_equal(driver_find("Python")->language, "python");
	assert_null(driver_find(""));
	assert_null(driver_find("python3 -c"));
	assert_null(driver_find("brainfuck-with-a-long-name"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_execution_starts_the_interpreter_and_is_told_in_order),
	    cmocka_unit_test(output_comes_before_the_message_that_follows_it),
	    cmocka_unit_test(one_runs_and_others_wait),
	    cmocka_unit_test(the_queue_has_an_end),
	    cmocka_unit_test(a_timeout_interrupts_and_keeps_what_yields),
	    cmocka_unit_test(what_does_not_yield_costs_the_interpreter),
	    cmocka_unit_test(an_interrupt_that_comes_too_late_changes_nothing),
	    cmocka_unit_test(nothing_runs_while_a_signal_is_on_its_way),
	    cmocka_unit_test(a_shell_gets_several_signals_before_it_is_killed),
	    cmocka_unit_test(a_client_that_leaves_interrupts_and_hears_nothing_more),
	    cmocka_unit_test(a_death_is_told_and_the_next_starts_afresh),
	    cmocka_unit_test(the_owner_knows_better_why_it_died),
	    cmocka_unit_test(the_exit_of_a_shell_is_a_result),
	    cmocka_unit_test(an_interpreter_that_never_comes_up_refuses_what_waits),
	    cmocka_unit_test(output_is_cut_and_counted),
	    cmocka_unit_test(output_over_a_limit_that_kills_ends_it),
	    cmocka_unit_test(output_between_executions_comes_with_the_next),
	    cmocka_unit_test(a_restart_cancels_what_runs_and_keeps_what_waits),
	    cmocka_unit_test(nonsense_ends_the_interpreter),
	    cmocka_unit_test(a_language_that_is_not_there_is_told_as_that),
	    cmocka_unit_test(holding_stops_the_interpreter_but_not_its_end),
	    cmocka_unit_test(a_callback_may_free_the_context),
	    cmocka_unit_test(idle_contexts_go_on),
	    cmocka_unit_test(a_message_of_which_a_part_is_gone_is_passed_over),
	    cmocka_unit_test(silence_is_no_reason_to_end_an_interpreter_that_answers),
	    cmocka_unit_test(languages_have_short_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
