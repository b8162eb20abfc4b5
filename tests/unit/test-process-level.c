/* The process level's decisions that need no sandbox: paths, identity, what is held by what. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "isolation/level.h"
#include "isolation/notes.h"
#include "isolation/process.h"
#include "kernel/landlock.h"

static struct plan_mount mount_of(const char *source, const char *target, bool writable)
{
	return (struct plan_mount){.source = (char *) (uintptr_t) source,
				   .target = (char *) (uintptr_t) target,
				   .writable = writable,
				   .is_dir = true,
				   .size = ZW_UNLIMITED,
				   .fd = -EBADF,
				   .owner_uid = 12345,
				   .owner_gid = 12345};
}

static int check(struct plan_mount *mounts, size_t count, struct zw_error *e)
{
	const struct plan plan = {.mounts = mounts, .mount_count = count};
	const struct identity id = {.kind = IDENTITY_CALLER};

	return process_check_paths(&plan, &id, e);
}

static void paths_are_the_same_inside_and_outside(void **state)
{
	struct plan_mount m = mount_of("/data", "/data", false);
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(check(&m, 1, &e), 0);
	m = mount_of("/data", "/work", false);
	assert_int_equal(check(&m, 1, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "/data:/data"));
	m = mount_of("/data", "/data", true);
	m.size = 1 << 20;
	assert_int_equal(check(&m, 1, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "container"));
}

static void a_read_only_folder_in_a_writable_one_is_refused(void **state)
{
	struct plan_mount m[2] = {mount_of("/a", "/a", true), mount_of("/a/b", "/a/b", false)};
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(check(m, 2, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, "/a/b"));
	m[1] = mount_of("/ab", "/ab", false);
	assert_int_equal(check(m, 2, &e), 0);
	m[0] = mount_of("/a/b", "/a/b", true);
	m[1] = mount_of("/a", "/a", false);
	assert_int_equal(check(m, 2, &e), 0);
}

static void another_root_is_refused(void **state)
{
	static char root[] = "/srv/image";
	const struct plan plan = {.root = root};
	const struct identity id = {.kind = IDENTITY_CALLER};
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(process_check_paths(&plan, &id, &e), -ENOTSUP);
	assert_non_null(strstr(e.text, root));
}

static void a_folder_that_another_uid_cannot_reach_is_refused(void **state)
{
	char dir[] = "/tmp/zwinger-test-XXXXXX";
	cleanup_free char *inner = NULL;
	struct plan_mount m;
	struct plan plan = {.mounts = &m, .mount_count = 1};
	const struct identity other = {.kind = IDENTITY_FRESH, .uid = 4000000, .gid = 4000000}, self = {.kind = IDENTITY_CALLER};
	struct zw_error e = {0};

	(void) state;
	assert_non_null(mkdtemp(dir));
	inner = xasprintf("%s/data", dir);
	m = mount_of(inner, inner, false);
	assert_int_equal(process_check_paths(&plan, &other, &e), -EACCES);
	assert_non_null(strstr(e.text, inner));
	assert_int_equal(process_check_paths(&plan, &self, &e), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void the_identity_follows_the_writable_folders(void **state)
{
	struct plan_mount m[2] = {mount_of("/a", "/a", true), mount_of("/b", "/b", true)};
	struct plan plan = {.mounts = m, .mount_count = 2};
	struct identity id;

	(void) state;
	identity_decide(&plan, &id);
	if (geteuid() != 0) {
		assert_int_equal(id.kind, IDENTITY_CALLER);
		assert_int_equal(id.uid, geteuid());
		return;
	}
	assert_int_equal(id.kind, IDENTITY_OWNER);
	assert_int_equal(id.uid, 12345);
	m[1].owner_uid = 12346;
	identity_decide(&plan, &id);
	assert_int_equal(id.kind, IDENTITY_ROOT);
	m[1].owner_uid = 0;
	identity_decide(&plan, &id);
	assert_int_equal(id.kind, IDENTITY_ROOT);
	m[1].everybody_writes = true;
	identity_decide(&plan, &id);
	assert_int_equal(id.kind, IDENTITY_OWNER);
	m[0].writable = false;
	identity_decide(&plan, &id);
	assert_int_equal(id.kind, IDENTITY_FRESH);
}

static uid_t uid_in_child(int out[2])
{
	struct identity id = {.kind = IDENTITY_FRESH};
	struct zw_error e = {0};
	uid_t uid = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(identity_take(&id, &e) == 0 && write(out[1], &id.uid, sizeof id.uid) == sizeof id.uid ? 0 : 1);
	assert_int_equal(read(out[0], &uid, sizeof uid), sizeof uid);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return uid;
}

static void a_uid_of_its_own_is_given_to_each_supervisor(void **state)
{
	int out[2];
	uid_t a, b;

	(void) state;
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	a = uid_in_child(out);
	b = uid_in_child(out);
	assert_true(a != b && a > 60000 && b > 60000);
	(void) close(out[0]);
	(void) close(out[1]);
}

static char *copy(const char *text)
{
	return xstrdup(text);
}

static void home_and_scratch_are_one_private_folder(void **state)
{
	char **env = xcalloc(4, sizeof *env);
	struct plan plan = {
	    .id = copy("zw-test"), .home = copy("/home/sandbox"), .cwd = copy("/home/sandbox"), .env = env, .envc = 3};
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(setenv("TMPDIR", "/var/tmp//", 1), 0);
	env[0] = copy("HOME=/home/sandbox");
	env[1] = copy("TMPDIR=/chosen");
	env[2] = copy("PATH=/bin");
	assert_int_equal(isolation_process.prepare(&plan, &e), 0);
	assert_string_equal(plan.home, geteuid() == 0 ? "/tmp/zwinger-zw-test" : "/var/tmp/zwinger-zw-test");
	assert_string_equal(plan.cwd, plan.home);
	assert_string_equal(plan.env[0] + 5, plan.home);
	assert_string_equal(plan.env[1], "TMPDIR=/chosen"); /* what the policy says stays */
	assert_int_equal(plan.envc, 4);
	assert_non_null(strstr(plan.env[3], "policy.json"));
	plan.root_fd = -EBADF;
	plan_done(&plan);
}

static void nothing_asked_for_is_left_without_a_word(void **state)
{
	struct plan plan = {.scratch_size = 1 << 20,
			    .limits = {.open_files = 10, .file_size = 10, .cgroup = {.processes = 10}, .kernel = true}};
	struct control_state controls[CONTROL_MAX] = {0};
	struct zw_error e = {0};

	(void) state;
	if (landlock_abi() < 1)
		skip();
	assert_int_equal(isolation_process.probe(&plan, controls, &e), 0);
	assert_string_equal(controls[CONTROL_NETWORK].mechanism, "seccomp");
	assert_string_equal(controls[CONTROL_OPEN_FILES].mechanism, "rlimit");
	assert_string_equal(controls[CONTROL_SCRATCH].mechanism, "none");
	for (size_t i = 0; i < CONTROL_MAX; i++) {
		if (controls[i].mechanism != NULL && strcmp(controls[i].mechanism, "none") == 0)
			assert_true(controls[i].why != NULL && strlen(controls[i].why) > 20);
		free(controls[i].why);
	}
}

static void every_control_has_its_sentences(void **state)
{
	size_t count;
	const struct isolation_note *notes = isolation_process_notes(&count);

	(void) state;
	assert_int_equal(count, CONTROL_MAX);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(notes[i].control, i);
		assert_true(strlen(notes[i].holds) > 10);
		assert_non_null(notes[i].leaves);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(paths_are_the_same_inside_and_outside),
	    cmocka_unit_test(a_read_only_folder_in_a_writable_one_is_refused),
	    cmocka_unit_test(another_root_is_refused),
	    cmocka_unit_test(a_folder_that_another_uid_cannot_reach_is_refused),
	    cmocka_unit_test(the_identity_follows_the_writable_folders),
	    cmocka_unit_test(a_uid_of_its_own_is_given_to_each_supervisor),
	    cmocka_unit_test(home_and_scratch_are_one_private_folder),
	    cmocka_unit_test(nothing_asked_for_is_left_without_a_word),
	    cmocka_unit_test(every_control_has_its_sentences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
