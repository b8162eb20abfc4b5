/* Where groups are made and what is written into them, on trees of plain files; the parsers of what the kernel says. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

#define NAME "zwinger-1-0123456789abcdef"

enum {
	MEMORY = CGROUP_BIT(CGROUP_MEMORY),
	PIDS = CGROUP_BIT(CGROUP_PIDS),
	CPU = CGROUP_BIT(CGROUP_CPU),
	IO = CGROUP_BIT(CGROUP_IO)
};

/* /tmp/X/top/{slice/{scope}}, each with the three files the v2 code looks at. */
struct tree {
	char path[64];
	int dir, top;
};

static const char *const groups[] = {"top", "top/slice", "top/slice/scope"};
static const char *const files[] = {"cgroup.controllers", "cgroup.subtree_control", "cgroup.procs"};

static void put(int dir, const char *group, const char *file, const char *text)
{
	char path[128];
	cleanup_fd int fd = -EBADF;

	(void) snprintf(path, sizeof path, "%s/%s", group, file);
	fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static const char *get(int dir, const char *file)
{
	static char text[256];
	ssize_t n = fd_read_file_at(dir, file, text, sizeof text);

	assert_true(n >= 0);
	return text;
}

static int set_up(void **state)
{
	struct tree *t = xcalloc(1, sizeof *t);

	(void) snprintf(t->path, sizeof t->path, "/tmp/zwinger-test-XXXXXX");
	assert_non_null(mkdtemp(t->path));
	t->dir = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		assert_int_equal(mkdirat(t->dir, groups[i], 0700), 0);
		for (size_t j = 0; j < ARRAY_SIZE(files); j++)
			put(t->dir, groups[i], files[j], "");
	}
	t->top = openat(t->dir, "top", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = t;
	return 0;
}

static int tear_down(void **state)
{
	struct tree *t = *state;

	for (size_t i = ARRAY_SIZE(groups); i-- > 0;) {
		char path[128];

		(void) snprintf(path, sizeof path, "%s/" NAME, groups[i]);
		(void) unlinkat(t->dir, path, AT_REMOVEDIR);
		for (size_t j = 0; j < ARRAY_SIZE(files); j++) {
			(void) snprintf(path, sizeof path, "%s/%s", groups[i], files[j]);
			(void) unlinkat(t->dir, path, 0);
		}
		assert_int_equal(unlinkat(t->dir, groups[i], AT_REMOVEDIR), 0);
	}
	fd_close(&t->top);
	fd_close(&t->dir);
	assert_int_equal(rmdir(t->path), 0);
	free(t);
	return 0;
}

static struct cgroup_place own_group(const struct tree *t, const char *rel)
{
	return (struct cgroup_place){
	    .version = CGROUP_V2, .root = t->top, .rel = rel, .path = (char *) (uintptr_t) "/slice/scope"};
}

/* Makes the group and returns in which directory: "top", "slice", "scope", or "" when none. */
static const char *make_in(const struct tree *t, const char *rel, unsigned wanted, unsigned *ret_controllers,
			   struct zw_error *why)
{
	struct cgroup_place place = own_group(t, rel);
	struct cgroup_part part;
	const char *found = "";

	if (cgroup_v2_make(&place, NAME, wanted, &part, why) < 0)
		return "";
	*ret_controllers = part.controllers & wanted;
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		struct stat here, there;

		assert_int_equal(fstatat(t->dir, groups[i], &here, 0), 0);
		assert_int_equal(fstat(part.base, &there), 0);
		if (here.st_ino == there.st_ino)
			found = strrchr(groups[i], '/') != NULL ? strrchr(groups[i], '/') + 1 : groups[i];
	}
	fd_close(&part.group);
	fd_close(&part.base);
	assert_int_equal(part.leaf, -EBADF);
	return found;
}

static void the_nearest_ancestor_that_hands_out_all_is_taken(void **state)
{
	struct tree *t = *state;
	struct zw_error why = {0};
	unsigned held;

	put(t->dir, "top", "cgroup.subtree_control", "cpuset cpu io memory pids\n");
	put(t->dir, "top/slice", "cgroup.subtree_control", "memory pids\n");
	assert_string_equal(make_in(t, "slice/scope", MEMORY | PIDS, &held, &why), "slice");
	assert_int_equal(held, MEMORY | PIDS);
	assert_string_equal(why.text, "");
}

static void an_ancestor_further_up_serves_when_a_near_one_lacks_something(void **state)
{
	struct tree *t = *state;
	unsigned held;

	put(t->dir, "top", "cgroup.subtree_control", "cpu io memory pids\n");
	put(t->dir, "top/slice", "cgroup.subtree_control", "memory pids\n");
	assert_string_equal(make_in(t, "slice/scope", MEMORY | PIDS | CPU, &held, NULL), "top");
	assert_int_equal(held, MEMORY | PIDS | CPU);
}

static void a_group_that_may_hand_out_is_told_to(void **state)
{
	struct tree *t = *state;
	unsigned held;

	put(t->dir, "top/slice/scope", "cgroup.controllers", "cpu memory pids\n");
	put(t->dir, "top/slice/scope", "cgroup.subtree_control", "memory\n");
	assert_string_equal(make_in(t, "slice/scope", MEMORY | PIDS | CPU, &held, NULL), "scope");
	assert_int_equal(held, MEMORY | PIDS | CPU);
	/* Only what is missing is asked for; the kernel adds it to what is there. */
	assert_string_equal(get(t->dir, "top/slice/scope/cgroup.subtree_control"), "+pids +cpu ");
}

static void without_all_the_gravest_are_kept(void **state)
{
	struct tree *t = *state;
	struct zw_error why = {0};
	unsigned held;

	put(t->dir, "top", "cgroup.subtree_control", "pids cpu\n");
	put(t->dir, "top/slice", "cgroup.subtree_control", "memory\n");
	assert_string_equal(make_in(t, "slice/scope", MEMORY | PIDS | CPU | IO, &held, &why), "slice");
	assert_int_equal(held, MEMORY);
	assert_non_null(strstr(why.text, "/slice/scope"));
}

static void without_any_controller_the_group_is_still_made(void **state)
{
	struct tree *t = *state;
	struct zw_error why = {0};
	unsigned held = 1;

	assert_string_equal(make_in(t, "slice/scope", MEMORY, &held, &why), "scope");
	assert_int_equal(held, 0);
	assert_non_null(strstr(why.text, "cgroup.subtree_control"));
	assert_string_equal(make_in(t, "slice", 0, &held, &why), "slice");
	assert_string_equal(make_in(t, "", 0, &held, &why), "top");
}

static void a_group_that_may_not_be_joined_is_passed_over(void **state)
{
	struct tree *t = *state;
	unsigned held;

	if (geteuid() == 0)
		skip(); /* root may open anything */
	put(t->dir, "top", "cgroup.subtree_control", "memory\n");
	put(t->dir, "top/slice", "cgroup.subtree_control", "memory\n");
	assert_int_equal(fchmodat(t->dir, "top/slice/cgroup.procs", 0400, 0), 0);
	assert_string_equal(make_in(t, "slice/scope", MEMORY, &held, NULL), "top");
	assert_int_equal(held, MEMORY);
}

static int new_files(int dir, const char *const *names, size_t count)
{
	int group;

	(void) mkdirat(dir, "top/" NAME, 0700);
	group = openat(dir, "top/" NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(group >= 0);
	for (size_t i = 0; i < count; i++)
		put(group, ".", names[i], "");
	return group;
}

static void remove_files(int group, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_int_equal(unlinkat(group, names[i], 0), 0);
	fd_close(&group);
}

static void limits_are_written_in_the_words_of_version_2(void **state)
{
	static const char *const names[] = {"memory.max", "memory.swap.max", "pids.max", "cpu.max"};
	struct tree *t = *state;
	struct cgroup_limits l = {.memory = 1 << 20, .swap = 0, .processes = 64, .cpu_quota = 50000};
	int group = new_files(t->dir, names, ARRAY_SIZE(names));
	struct zw_error why = {0};

	assert_int_equal(cgroup_v2_ops.limit[CGROUP_MEMORY](group, &l, &why), 0);
	assert_int_equal(cgroup_v2_ops.limit[CGROUP_PIDS](group, &l, &why), 0);
	assert_int_equal(cgroup_v2_ops.limit[CGROUP_CPU](group, &l, &why), 0);
	assert_string_equal(get(group, "memory.max"), "1048576");
	assert_string_equal(get(group, "memory.swap.max"), "0");
	assert_string_equal(get(group, "pids.max"), "65");
	assert_string_equal(get(group, "cpu.max"), "50000 100000");
	remove_files(group, names, ARRAY_SIZE(names));
}

static void limits_are_written_in_the_words_of_version_1(void **state)
{
	static const char *const names[] = {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max",
					    "cpu.cfs_quota_us"};
	struct tree *t = *state;
	struct cgroup_limits l = {.memory = 1 << 20, .swap = 1 << 20, .processes = 64, .cpu_quota = 5};
	int group = new_files(t->dir, names, ARRAY_SIZE(names));
	struct zw_error why = {0};

	assert_int_equal(cgroup_v1_ops.limit[CGROUP_MEMORY](group, &l, &why), 0);
	assert_int_equal(cgroup_v1_ops.limit[CGROUP_PIDS](group, &l, &why), 0);
	assert_int_equal(cgroup_v1_ops.limit[CGROUP_CPU](group, &l, &why), 0);
	assert_string_equal(get(group, "memory.limit_in_bytes"), "1048576");
	assert_string_equal(get(group, "memory.memsw.limit_in_bytes"), "2097152");
	assert_string_equal(get(group, "pids.max"), "65");
	assert_string_equal(get(group, "cpu.cfs_quota_us"), "1000");
	remove_files(group, names, ARRAY_SIZE(names));
}

static void without_swap_accounting_version_1_turns_swapping_off(void **state)
{
	static const char *const names[] = {"memory.limit_in_bytes", "memory.swappiness"};
	struct tree *t = *state;
	struct cgroup_limits l = {.memory = 1 << 20, .swap = 0};
	int group = new_files(t->dir, names, ARRAY_SIZE(names));
	struct zw_error why = {0};

	assert_int_equal(cgroup_v1_ops.limit[CGROUP_MEMORY](group, &l, &why), 0);
	assert_string_equal(get(group, "memory.swappiness"), "0");
	remove_files(group, names, ARRAY_SIZE(names));
}

static void a_limit_without_its_file_is_an_error_that_names_it(void **state)
{
	struct tree *t = *state;
	struct cgroup_limits l = {.memory = 1 << 20, .processes = 1, .cpu_quota = 5000};
	struct zw_error why = {0};

	assert_true(cgroup_v2_ops.limit[CGROUP_MEMORY](t->top, &l, &why) < 0);
	assert_non_null(strstr(why.text, "memory.max"));
	assert_true(cgroup_v1_ops.limit[CGROUP_PIDS](t->top, &l, &why) < 0);
	assert_non_null(strstr(why.text, "pids.max"));
	assert_true(cgroup_v2_ops.limit[CGROUP_CPU](t->top, &l, &why) < 0);
	assert_non_null(strstr(why.text, "cpu.max"));
}

static uint64_t figure(const struct cgroup_ops *ops, const char *file, const char *key, const char *text)
{
	for (size_t i = 0; i < ops->figures.count; i++) {
		const struct cgroup_figure *f = &ops->figures.rows[i];

		if (strcmp(f->file, file) == 0 && (key == NULL || strcmp(f->key, key) == 0))
			return cgroup_figure_of(f, text);
	}
	fail();
	return 0;
}

static void figures_are_read_as_the_kernel_writes_them(void **state)
{
	static const char v1_io[] = "254:0 Read 4096\n254:0 Write 8192\n254:0 Sync 12288\n254:0 Total 12288\n"
				    "253:0 Read 1\n253:0 Write 2\nTotal 12291\n";
	static const char v2_io[] = "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n253:0 rbytes=1 wbytes=2\n";

	(void) state;
	assert_int_equal(figure(&cgroup_v2_ops, "cpu.stat", NULL, "usage_usec 42\nuser_usec 40\nsystem_usec 2\n"), 42);
	assert_int_equal(figure(&cgroup_v1_ops, "cpuacct.usage", NULL, "42999\n"), 42);
	assert_int_equal(
	    figure(&cgroup_v2_ops, "memory.events", NULL, "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1\n"), 2);
	assert_int_equal(figure(&cgroup_v1_ops, "memory.oom_control", NULL, "oom_kill_disable 1\nunder_oom 0\noom_kill 3\n"), 3);
	assert_int_equal(figure(&cgroup_v2_ops, "pids.peak", NULL, "5\n"), 4);
	assert_int_equal(figure(&cgroup_v2_ops, "pids.current", NULL, "0\n"), 0);
	assert_int_equal(figure(&cgroup_v2_ops, "pids.events", NULL, "max 7\n"), 7);
	assert_int_equal(figure(&cgroup_v1_ops, "blkio.throttle.io_service_bytes", "Read ", v1_io), 4097);
	assert_int_equal(figure(&cgroup_v1_ops, "blkio.throttle.io_service_bytes", "Write ", v1_io), 8194);
	assert_int_equal(figure(&cgroup_v1_ops, "blkio.throttle.io_service_bytes", "Read ", "Total 0\n"), 0);
	assert_int_equal(figure(&cgroup_v2_ops, "io.stat", "rbytes=", v2_io), 4097);
	assert_int_equal(figure(&cgroup_v2_ops, "io.stat", "wbytes=", v2_io), 8194);
}

static void a_figure_that_is_not_there_is_unknown_and_not_zero(void **state)
{
	(void) state;
	assert_true(figure(&cgroup_v1_ops, "memory.oom_control", NULL, "oom_kill_disable 0\nunder_oom 0\n") == ZW_UNLIMITED);
	assert_true(figure(&cgroup_v2_ops, "cpu.stat", NULL, "") == ZW_UNLIMITED);
	assert_true(figure(&cgroup_v2_ops, "memory.peak", NULL, "max\n") == ZW_UNLIMITED);
	assert_true(figure(&cgroup_v2_ops, "memory.peak", NULL, "18446744073709551616\n") == ZW_UNLIMITED);
}

/* A place as it is known before its directory is looked for. */
static void look_for(struct cgroup_places *p, const char *path, const char *mountinfo)
{
	p->at[0] = (struct cgroup_place){
	    .version = CGROUP_V1, .controllers = MEMORY, .path = xstrdup(path), .names = xstrdup("memory"), .root = -EBADF};
	p->count = 1;
	p->mountinfo = xstrdup(mountinfo);
}

static void mountinfo_tells_which_part_of_a_hierarchy_is_shown(void **state)
{
	static const char *const unusable[] = {
	    "35 31 0:32 /elsewhere /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
	    "35 31 0:32 /dock /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
	    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,pids\n",
	    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup2 cgroup rw,memory\n",
	    "35 31 0:32 / /tmp rw - cgroup cgroup rw,memory\n", /* covered by something else */
	    "35 31 0:32 / /nowhere rw - cgroup cgroup rw,memory\n",
	    "35 31 0:32 - cgroup cgroup rw,memory\n",
	    " - cgroup\n - cgroup cgroup\n",
	    "",
	};
	struct cgroup_places p = {.count = 0};
	struct stat st;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(unusable); i++) {
		look_for(&p, "/docker/abc", unusable[i]);
		assert_true(cgroup_place_open(&p, &p.at[0]) < 0);
		cgroup_places_done(&p);
	}
	if (stat("/sys/fs/cgroup/memory/memory.limit_in_bytes", &st) < 0 && errno == ENOENT &&
	    stat("/sys/fs/cgroup/memory/tasks", &st) < 0)
		skip(); /* no v1 hierarchy to point at */
	look_for(&p, "/docker/abc",
		 "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
		 "34 31 0:31 / /tmp rw master:1 - cgroup cgroup rw,memory\n"
		 "35 31 0:32 /docker /sys/fs/cgroup/memory rw,relatime shared:9 master:1 - cgroup cgroup rw,memory\n");
	assert_int_equal(cgroup_place_open(&p, &p.at[0]), 0);
	assert_string_equal(p.at[0].rel, "abc");
	cgroup_places_done(&p);
	look_for(&p, "/docker/abc", "35 31 0:32 /docker/abc /sys/fs/cgroup/\\155emory rw - cgroup cgroup rw,memory\n");
	assert_int_equal(cgroup_place_open(&p, &p.at[0]), 0);
	assert_string_equal(p.at[0].rel, "");
	cgroup_places_done(&p);
}

static void parents_end_at_the_top(void **state)
{
	char rel[] = "a/b/c";

	(void) state;
	assert_true(cgroup_parent(rel));
	assert_string_equal(rel, "a/b");
	assert_true(cgroup_parent(rel));
	assert_true(cgroup_parent(rel));
	assert_string_equal(rel, "");
	assert_false(cgroup_parent(rel));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(the_nearest_ancestor_that_hands_out_all_is_taken, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(an_ancestor_further_up_serves_when_a_near_one_lacks_something, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_group_that_may_hand_out_is_told_to, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(without_all_the_gravest_are_kept, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(without_any_controller_the_group_is_still_made, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_group_that_may_not_be_joined_is_passed_over, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(limits_are_written_in_the_words_of_version_2, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(limits_are_written_in_the_words_of_version_1, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(without_swap_accounting_version_1_turns_swapping_off, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_limit_without_its_file_is_an_error_that_names_it, set_up, tear_down),
	    cmocka_unit_test(figures_are_read_as_the_kernel_writes_them),
	    cmocka_unit_test(a_figure_that_is_not_there_is_unknown_and_not_zero),
	    cmocka_unit_test(mountinfo_tells_which_part_of_a_hierarchy_is_shown),
	    cmocka_unit_test(parents_end_at_the_top),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
