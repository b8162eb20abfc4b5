/* The ceiling point by point: what lies on it passes, what lies above is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/sandbox-ceiling.h"
#include "daemon/sandbox-policy.h"

/* Policies below a ceiling of this text. */
static struct sandbox_policies below(const char *ceiling)
{
	char path[] = "/tmp/t-ceiling-XXXXXX";
	struct sandbox_policies p = {0};
	struct zw_error e = {0};
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, ceiling, strlen(ceiling)), (ssize_t) strlen(ceiling));
	(void) close(fd);
	if (sandbox_policies_init(&p, path, NULL, NULL, &e) < 0)
		fail_msg("%s", e.text);
	(void) unlink(path);
	return p;
}

/* The path of the one point above, "" when there is none; owned by the caller. */
static char *point(const struct sandbox_policies *p, const char *policy)
{
	json_t *wish = json_loads(policy, 0, NULL);
	struct sandbox_policy made = {0};
	struct problem problem = {0};
	char *path;

	assert_non_null(wish);
	if (sandbox_policy_make(p, wish, NULL, &made, &problem) == 0) {
		path = xstrdup("");
		sandbox_policy_done(&made);
	} else {
		if (problem.code != PROBLEM_ABOVE_CEILING)
			fail_msg("%s: %s", policy, problem.message);
		assert_int_equal(json_array_size(problem.errors), 1);
		path = xstrdup(json_string_value(json_object_get(json_array_get(problem.errors, 0), "path")));
		json_decref(problem.errors);
	}
	json_decref(wish);
	return path;
}

static void check(const char *ceiling, const char *const rows[][2])
{
	struct sandbox_policies p = below(ceiling);

	for (size_t i = 0; rows[i][0] != NULL; i++) {
		cleanup_free char *got = point(&p, rows[i][0]);

		if (strcmp(got, rows[i][1]) != 0)
			fail_msg("%s below %s: got \"%s\", expected \"%s\"", rows[i][0], ceiling, got, rows[i][1]);
	}
	sandbox_policies_done(&p);
}

static void numbers_have_a_most(void **state)
{
	static const char *const rows[][2] = {
	    {"{\"limits\":{\"memory\":\"128M\"}}", ""},
	    {"{\"limits\":{\"memory\":134217729}}", "limits.memory"},
	    {"{\"limits\":{\"memory\":null}}", "limits.memory"},
	    {"{\"limits\":{\"time\":\"10s\"}}", ""},
	    {"{\"limits\":{\"time\":\"10.1s\"}}", "limits.time"},
	    {"{\"limits\":{\"cpus\":1.5}}", ""},
	    {"{\"limits\":{\"cpus\":1.6}}", "limits.cpus"},
	    {"{\"limits\":{\"cpus\":null}}", "limits.cpus"},
	    {"{}", ""}, /* the defaults are lowered */
	    {NULL, NULL},
	};

	(void) state;
	check("{\"version\":1,\"limits\":{\"memory\":\"128M\",\"time\":\"10s\",\"cpus\":1.5}}", rows);
}

static void rules_cover_what_they_open(void **state)
{
	static const char *const rows[][2] = {
	    {"{\"network\":{\"allow\":[\"a.example.org\"]}}", ""},
	    {"{\"network\":{\"allow\":[\"*.a.example.org\"]}}", ""},
	    {"{\"network\":{\"allow\":[\"example.org\"]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[\"a.example.org:80\"]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[\"badexample.org\"]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[\"*.org\"]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[{\"address\":\"10.1.2.0/24\",\"ports\":[5432]}]}}", ""},
	    {"{\"network\":{\"allow\":[{\"address\":\"10.0.0.0/15\",\"ports\":[5432]}]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[{\"address\":\"10.1.2.3\",\"ports\":[\"5432-5433\"]}]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[{\"host\":\"api.test\",\"protocol\":\"https\",\"methods\":[\"GET\"]}]}}", ""},
	    {"{\"network\":{\"allow\":[{\"host\":\"api.test\",\"protocol\":\"https\",\"methods\":[\"GET\",\"POST\"]}]}}",
	     "network.allow[0]"},
	    {"{\"network\":{\"allow\":[{\"host\":\"api.test\",\"protocol\":\"https\"}]}}", "network.allow[0]"},
	    {"{\"network\":{\"allow\":[\"api.test\"]}}", "network.allow[0]"}, /* tcp sees no requests */
	    {"{\"network\":{\"allow\":[\"@pip\"]}}", "network.allow[0]"},
	    {"{\"network\":{\"hosts\":{\"a.example.org\":\"127.0.0.1\"}}}", "network.hosts.a.example.org"},
	    {NULL, NULL},
	};

	(void) state;
	check("{\"version\":1,\"network\":{\"allow\":[\"*.example.org\",{\"address\":\"10.1.0.0/16\",\"ports\":[5432]},"
	      "{\"host\":\"api.test\",\"protocol\":\"https\",\"methods\":[\"GET\"]}]}}",
	      rows);
}

static void walls_may_be_stronger_alone(void **state)
{
	static const char *const rows[][2] = {
	    {"{\"isolation\":\"container\"}", ""},
	    {"{\"isolation\":\"microvm\"}", ""},
	    {"{\"isolation\":\"process\"}", "isolation"},
	    {"{\"enforcement\":\"best-effort\"}", "enforcement"},
	    {"{\"syscalls\":{\"profile\":\"strict\"}}", ""},
	    {"{\"syscalls\":{\"profile\":\"debug\"}}", "syscalls.profile"},
	    {"{\"syscalls\":{\"allow\":[\"mount\"]}}", "syscalls.allow[0]"},
	    {"{\"root\":\"/srv\"}", "root"},
	    {"{\"env\":{\"pass\":[\"HOME\"]}}", "env.pass[0]"},
	    {"{\"env\":{\"set\":{\"A\":\"b\"}}}", ""},
	    {NULL, NULL},
	};

	(void) state;
	check("{\"version\":1}", rows);
}

/* What is let through is written down for another process, which has to read the same. */
static void what_passes_reads_the_same_again(void **state)
{
	static const char *const policies[] = {
	    "{\"limits\":{\"memory\":\"1.5G\",\"time\":\"250ms\",\"cpus\":0.25},\"env\":{\"set\":{\"A\":\"b: c\",\"N\":\"1\"}}}",
	    "{\"network\":{\"allow\":[\"a.example.org:8000-8010,443\",\"[2001:db8::1]:22\"]}}",
	    "{\"filesystem\":{\"read\":[\"/usr:/data\"]}}",
	    "{\"syscalls\":{\"deny\":[\"ptrace\"]},\"process\":{\"hostname\":\"yes\",\"user\":1000}}",
	};
	struct sandbox_policies p = below("{\"version\":1,\"filesystem\":{\"read\":[\"/usr:/data\"]},"
					  "\"network\":{\"allow\":[{\"host\":\"*.example.org\",\"ports\":[443,\"8000-8010\"]},"
					  "\"[2001:db8::1]:22\"]}}");

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		json_t *wish = json_loads(policies[i], 0, NULL), *read;
		struct sandbox_policy made = {0}, again = {0};
		struct problem problem = {0};

		if (sandbox_policy_make(&p, wish, NULL, &made, &problem) < 0)
			fail_msg("%s: %s", policies[i], problem.message);
		read = json_loads(made.text, 0, NULL);
		assert_non_null(read);
		assert_int_equal(sandbox_policy_make(&p, read, NULL, &again, &problem), 0);
		assert_string_equal(again.text, made.text);
		sandbox_policy_done(&made);
		sandbox_policy_done(&again);
		json_decref(read);
		json_decref(wish);
	}
	sandbox_policies_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(numbers_have_a_most),
	    cmocka_unit_test(rules_cover_what_they_open),
	    cmocka_unit_test(walls_may_be_stronger_alone),
	    cmocka_unit_test(what_passes_reads_the_same_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
