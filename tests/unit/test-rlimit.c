/* Resource limits, each tried in a child. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernel/rlimit.h"

/* Applies one after the other in a child; its exit code is 0 when each result and the limits after it are as expected. */
struct step {
	rlim_t value;
	int64_t expected;
};

static int apply_in_child(int resource, const struct step *steps, size_t count)
{
	int status = -1;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		for (size_t i = 0; i < count; i++) {
			struct rlimit now;

			if (rlimit_apply(resource, steps[i].value) != steps[i].expected || getrlimit(resource, &now) < 0)
				_exit(1 + (int) i);
			if (now.rlim_cur != now.rlim_max || (int64_t) now.rlim_cur != steps[i].expected)
				_exit(101 + (int) i);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status);
}

static void soft_and_hard_become_the_value(void **state)
{
	static const struct step steps[] = {{64, 64}, {32, 32}, {0, 0}};

	(void) state;
	assert_int_equal(apply_in_child(RLIMIT_NOFILE, steps, 3), 0);
}

static void a_hard_limit_is_never_raised(void **state)
{
	static const struct step steps[] = {{64, 64}, {128, 64}, {RLIM_INFINITY, 64}};

	(void) state;
	assert_int_equal(apply_in_child(RLIMIT_NOFILE, steps, 3), 0);
}

static void no_limit_stays_no_limit(void **state)
{
	struct rlimit now;
	int status = -1;
	pid_t child;

	(void) state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &now), 0);
	if (now.rlim_max != RLIM_INFINITY)
		skip();
	child = fork();
	if (child == 0)
		_exit(rlimit_apply(RLIMIT_FSIZE, RLIM_INFINITY) == INT64_MAX ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void an_unknown_resource_is_an_error(void **state)
{
	(void) state;
	assert_int_equal(rlimit_apply(9999, 1), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(soft_and_hard_become_the_value),
	    cmocka_unit_test(a_hard_limit_is_never_raised),
	    cmocka_unit_test(no_limit_stays_no_limit),
	    cmocka_unit_test(an_unknown_resource_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
