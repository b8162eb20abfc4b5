/* Evidence to status: every ending of the contract told apart. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/protocol.h"
#include "sandbox/ending.h"

static char command[] = "tool", folder[] = "/work";
static char *argv[] = {command, NULL};

static struct plan usual_plan(void)
{
	struct plan p = {.argv = argv, .argc = 1, .cwd = folder};

	p.limits.time = 3 * USEC_PER_SEC;
	p.limits.cpu_time = 1 * USEC_PER_SEC;
	p.limits.cgroup.memory = UINT64_C(512) << 20;
	p.limits.cgroup.processes = 20;
	p.limits.output = 8 << 20;
	p.limits.disk = 1 << 20;
	return p;
}

static int exited(int code)
{
	return code << 8;
}

static struct result decide(struct evidence ev)
{
	struct plan plan = usual_plan();
	struct result r;

	result_init(&r);
	ending_decide(&ev, &plan, &r);
	return r;
}

static void assert_ending(struct evidence ev, enum run_status status, int exit_status, const char *reason)
{
	struct result r = decide(ev);

	assert_int_equal(r.status, status);
	assert_int_equal(result_exit_status(&r), exit_status);
	assert_string_equal(r.reason, reason);
	result_done(&r);
}

static void an_exit_is_an_exit(void **state)
{
	(void) state;
	assert_ending((struct evidence){.has_main_status = true, .wait_status = exited(3)}, STATUS_EXITED, 3, "exited with 3");
	assert_ending((struct evidence){.has_main_status = true, .wait_status = exited(137)}, STATUS_EXITED, 137,
		      "exited with 137");
}

static void a_plain_kill_has_nothing_to_do_with_memory(void **state)
{
	(void) state;
	assert_ending((struct evidence){.has_main_status = true, .wait_status = SIGKILL}, STATUS_SIGNALED, 137,
		      "killed by SIGKILL");
	assert_ending((struct evidence){.has_main_status = true, .wait_status = SIGSEGV | 0x80}, STATUS_SIGNALED, 139,
		      "killed by SIGSEGV");
	/* Nor has it when the count cannot be known. */
	assert_ending((struct evidence){.has_main_status = true, .wait_status = SIGKILL, .oom_kills = ZW_UNLIMITED},
		      STATUS_SIGNALED, 137, "killed by SIGKILL");
}

static void the_memory_limit_is_named_with_the_largest(void **state)
{
	(void) state;
	assert_ending((struct evidence){.has_main_status = true, .wait_status = SIGKILL, .oom_kills = 1, .largest = "python3"},
		      STATUS_OUT_OF_MEMORY, 137, "used 512 MiB of memory, its limit; the largest process was python3");
	assert_ending((struct evidence){.has_main_status = true, .wait_status = SIGKILL, .oom_kills = 1}, STATUS_OUT_OF_MEMORY,
		      137, "used 512 MiB of memory, its limit");
	/* The agent was killed along with everything. */
	assert_ending((struct evidence){.oom_kills = 2, .agent_signal = SIGKILL}, STATUS_OUT_OF_MEMORY, 137,
		      "used 512 MiB of memory, its limit");
}

static void a_kill_after_the_one_that_was_outlived_is_a_plain_one(void **state)
{
	(void) state;
	assert_ending((struct evidence){.has_main_status = true, .wait_status = SIGKILL, .oom_kills = 1, .oom_survived = 1},
		      STATUS_SIGNALED, 137, "killed by SIGKILL; before that the memory limit of 512 MiB ended 1 other process");
}

static void another_process_out_of_memory_is_mentioned(void **state)
{
	(void) state;
	assert_ending((struct evidence){.has_main_status = true, .wait_status = exited(0), .oom_kills = 2, .largest = "cc1"},
		      STATUS_EXITED, 0,
		      "exited with 0; before that the memory limit of 512 MiB ended 2 other processes, the largest then was cc1");
}

static void a_watchdog_tells_what_it_did(void **state)
{
	(void) state;
	assert_ending((struct evidence){.has_main_status = true,
					.wait_status = SIGKILL,
					.oom_kills = 1,
					.watchdog_killed_main = true,
					.memory_at_kill = UINT64_C(513) << 20,
					.largest = "hog"},
		      STATUS_OUT_OF_MEMORY, 137,
		      "used 513 MiB of memory, over its limit of 512 MiB; the largest process was hog");
}

static void times_up_never_mentions_memory(void **state)
{
	(void) state;
	assert_ending((struct evidence){.killed_for = KILLED_WALL_TIME, .oom_kills = 1, .largest = "x"}, STATUS_TIMEOUT, 124,
		      "ran for 3 s, its wall time limit");
	assert_ending((struct evidence){.killed_for = KILLED_WALL_TIME, .has_main_status = true, .wait_status = SIGKILL},
		      STATUS_TIMEOUT, 124, "ran for 3 s, its wall time limit");
	assert_ending((struct evidence){.killed_for = KILLED_CPU_TIME}, STATUS_CPU_TIMEOUT, 124,
		      "used 1 s of CPU time, its limit");
}

static void who_ended_in_the_last_moment_ended_by_himself(void **state)
{
	(void) state;
	assert_ending((struct evidence){.killed_for = KILLED_WALL_TIME, .has_main_status = true, .wait_status = exited(5)},
		      STATUS_EXITED, 5, "exited with 5");
}

static void too_much_output_stays_too_much(void **state)
{
	(void) state;
	assert_ending((struct evidence){.killed_for = KILLED_OUTPUT, .stream = "stdout"}, STATUS_OUTPUT_LIMIT, 122,
		      "wrote more than its output limit of 8 MiB to stdout");
	assert_ending(
	    (struct evidence){.killed_for = KILLED_OUTPUT, .stream = "stderr", .has_main_status = true, .wait_status = exited(0)},
	    STATUS_OUTPUT_LIMIT, 122, "wrote more than its output limit of 8 MiB to stderr");
	assert_ending((struct evidence){.killed_for = KILLED_DISK}, STATUS_OUTPUT_LIMIT, 122,
		      "wrote more than its disk limit of 1 MiB to writable folders");
	assert_ending((struct evidence){.killed_for = KILLED_PROCESSES}, STATUS_OUTPUT_LIMIT, 122,
		      "had more than 20 processes and threads, its limit");
}

static void canceled_by_the_signal_that_we_got(void **state)
{
	struct result r;

	(void) state;
	assert_ending((struct evidence){.cancel_signal = SIGTERM, .has_main_status = true, .wait_status = SIGTERM},
		      STATUS_CANCELED, 143, "canceled by SIGTERM");
	assert_ending((struct evidence){.cancel_signal = SIGINT, .has_main_status = true, .wait_status = exited(0)},
		      STATUS_CANCELED, 130, "canceled by SIGINT");
	assert_ending((struct evidence){.cancel_signal = SIGHUP, .killed_for = KILLED_CANCEL}, STATUS_CANCELED, 129,
		      "canceled by SIGHUP");
	r = decide((struct evidence){.cancel_signal = SIGTERM});
	assert_null(result_line(&r));
	/* The time limit struck while it was being asked to end: that is what ended it. */
	assert_ending((struct evidence){.cancel_signal = SIGTERM, .killed_for = KILLED_WALL_TIME}, STATUS_TIMEOUT, 124,
		      "ran for 3 s, its wall time limit");
}

static void a_command_that_cannot_start(void **state)
{
	(void) state;
	assert_ending((struct evidence){.exec_failed = true, .exec_errno = ENOENT, .exec_stage = EXEC_STAGE_EXEC}, STATUS_ERROR,
		      127, "tool: not found inside the sandbox");
	assert_ending((struct evidence){.exec_failed = true, .exec_errno = ENOEXEC, .exec_stage = EXEC_STAGE_EXEC}, STATUS_ERROR,
		      126,
		      "tool: cannot be executed: Exec format error (a script needs a first line such as #!/bin/sh, a program "
		      "must be of this architecture)");
	assert_ending((struct evidence){.exec_failed = true, .exec_errno = EACCES, .exec_stage = EXEC_STAGE_EXEC}, STATUS_ERROR,
		      126,
		      "tool: cannot be executed: Permission denied (it must be a file with its x bit set; chmod +x, or name its "
		      "interpreter)");
	assert_ending((struct evidence){.exec_failed = true, .exec_errno = ENOENT, .exec_stage = EXEC_STAGE_CWD}, STATUS_ERROR,
		      125, "cannot enter the working directory /work inside: No such file or directory; see process.cwd");
}

static void faults_say_what(void **state)
{
	(void) state;
	assert_ending(
	    (struct evidence){.fault = {.code = -EPROTO, .text = "the agent said nonsense"}, .killed_for = KILLED_FAULT},
	    STATUS_ERROR, 125, "the agent said nonsense");
	assert_ending((struct evidence){.agent_signal = SIGKILL}, STATUS_ERROR, 125,
		      "the first process of the sandbox was killed from outside by SIGKILL");
	assert_ending((struct evidence){.agent_code = 70}, STATUS_ERROR, 125,
		      "the first process of the sandbox ended (70) without a word about the command");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_exit_is_an_exit),
	    cmocka_unit_test(a_plain_kill_has_nothing_to_do_with_memory),
	    cmocka_unit_test(the_memory_limit_is_named_with_the_largest),
	    cmocka_unit_test(a_kill_after_the_one_that_was_outlived_is_a_plain_one),
	    cmocka_unit_test(another_process_out_of_memory_is_mentioned),
	    cmocka_unit_test(a_watchdog_tells_what_it_did),
	    cmocka_unit_test(times_up_never_mentions_memory),
	    cmocka_unit_test(who_ended_in_the_last_moment_ended_by_himself),
	    cmocka_unit_test(too_much_output_stays_too_much),
	    cmocka_unit_test(canceled_by_the_signal_that_we_got),
	    cmocka_unit_test(a_command_that_cannot_start),
	    cmocka_unit_test(faults_say_what),
	};

	return cmocka_run_group_tests_name("ending", tests, NULL, NULL);
}
