#include "mount-fixture.h"

static void without_the_record_only_the_removal_is_done(void **state)
{
	struct world *w = *state;

	w->plan.audit_files = AUDIT_FILES_OFF;
	before(w);
	write_at(w->fd, "new", "x");
	assert_int_equal(symlinkat("/etc/passwd", w->fd, "link"), 0);
	after(w);
	assert_false(w->changes.known);
	assert_int_equal(w->changes.created.count, 0);
	assert_removed(w, "/out/link", "link that leads out");
	assert_false(is_there(w->fd, "link"));
}

static void set_id_bits_are_taken_from_what_the_run_made(void **state)
{
	struct world *w = *state;

	write_at(w->fd, "old", "x");
	assert_int_equal(fchmodat(w->fd, "old", 04755, 0), 0);
	write_at(w->fd, "changed", "x");
	before(w);
	write_at(w->fd, "shell", "x");
	assert_int_equal(fchmodat(w->fd, "shell", 06755, 0), 0);
	write_at(w->fd, "secret", "x");
	assert_int_equal(fchmodat(w->fd, "secret", 04111, 0), 0); /* cannot be opened by its owner */
	assert_int_equal(fchmodat(w->fd, "changed", 02755, 0), 0);
	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	assert_int_equal(fchmodat(w->fd, "dir", 02777, 0), 0);
	assert_int_equal(mkdirat(w->fd, "dir/sub", 0755), 0);
	after(w);
	assert_int_equal(w->result, 0);
	assert_int_equal(mode_of(w->fd, "old"), 04755);
	assert_int_equal(mode_of(w->fd, "shell"), 0755);
	assert_int_equal(mode_of(w->fd, "secret"), 0111);
	assert_int_equal(mode_of(w->fd, "changed"), 0755);
	assert_int_equal(mode_of(w->fd, "dir"), 0777);
	assert_int_equal(mode_of(w->fd, "dir/sub"), 0755);
	assert_removed(w, "/out/shell", "set-user-ID bit");
	assert_removed(w, "/out/changed", "set-group-ID bit");
	assert_removed(w, "/out/dir", "set-group-ID bit");
	assert_null(removed_at(&w->changes, "/out/old"));
	assert_list(&w->changes.created, LIST("/out/dir", "/out/dir/sub", "/out/secret", "/out/shell"));
}

static void set_id_bits_hidden_below_a_closed_folder_are_found(void **state)
{
	struct world *w = *state;
	const mode_t modes[] = {0, 0400, 0100, 0200};

	before(w);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		char dir[8], file[16];

		(void) snprintf(dir, sizeof dir, "d%zu", i);
		(void) snprintf(file, sizeof file, "d%zu/sh", i);
		assert_int_equal(mkdirat(w->fd, dir, 0755), 0);
		write_at(w->fd, file, "x");
		assert_int_equal(fchmodat(w->fd, file, 04755, 0), 0);
		assert_int_equal(fchmodat(w->fd, dir, modes[i], 0), 0);
	}
	after(w);
	assert_int_equal(w->result, 0);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		char dir[8], file[16];

		(void) snprintf(dir, sizeof dir, "d%zu", i);
		(void) snprintf(file, sizeof file, "d%zu/sh", i);
		assert_int_equal(mode_of(w->fd, dir), modes[i]);
		assert_int_equal(fchmodat(w->fd, dir, 0700, 0), 0);
		assert_int_equal(mode_of(w->fd, file), 0755);
	}
}

static void a_shared_group_folder_goes_on_handing_its_group_down(void **state)
{
	struct world *w = *state;

	assert_int_equal(mkdirat(w->fd, "shared", 0755), 0);
	assert_int_equal(fchmodat(w->fd, "shared", 02775, 0), 0);
	before(w);
	assert_int_equal(mkdirat(w->fd, "shared/new", 0755), 0);
	after(w);
	assert_int_equal(mode_of(w->fd, "shared") & 02000, 02000);
	assert_int_equal(mode_of(w->fd, "shared/new") & 02000, 02000);
	assert_int_equal(w->changes.removed_count, 0);
}

static void bind_socket(int dirfd, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	cleanup_fd int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char cwd[512];

	assert_non_null(getcwd(cwd, sizeof cwd));
	assert_int_equal(fchdir(dirfd), 0);
	(void) snprintf(a.sun_path, sizeof a.sun_path, "%s", name);
	assert_int_equal(bind(s, (const void *) &a, sizeof a), 0);
	assert_int_equal(chdir(cwd), 0);
}

static void special_files_leave_a_write_mount(void **state)
{
	struct world *w = *state;

	assert_int_equal(mkfifoat(w->fd, "old-pipe", 0644), 0);
	before(w);
	assert_int_equal(mkfifoat(w->fd, "queue", 0644), 0);
	bind_socket(w->fd, "door.sock");
	write_at(w->fd, "keep.txt", "keep");
	after(w);
	assert_int_equal(w->result, 0);
	assert_removed(w, "/out/queue", "named pipe");
	assert_removed(w, "/out/door.sock", "socket");
	assert_true(is_there(w->fd, "old-pipe"));
	assert_false(is_there(w->fd, "queue"));
	assert_false(is_there(w->fd, "door.sock"));
	assert_list(&w->changes.created, LIST("/out/keep.txt"));
}

static void a_workspace_keeps_pipes_and_sockets(void **state)
{
	struct world *w = *state;

	w->mount.kind = PLAN_WORKSPACE;
	before(w);
	assert_int_equal(mkfifoat(w->fd, "queue", 0644), 0);
	bind_socket(w->fd, "door.sock");
	after(w);
	assert_int_equal(w->changes.removed_count, 0);
	assert_list(&w->changes.created, LIST("/out/door.sock", "/out/queue"));
}

static void device_nodes_leave_every_mount(void **state)
{
	struct world *w = *state;

	if (mknodat(w->fd, "try", S_IFCHR | 0666, makedev(1, 3)) < 0)
		skip();
	w->mount.kind = PLAN_WORKSPACE;
	before(w);
	assert_int_equal(mknodat(w->fd, "null", S_IFCHR | 0666, makedev(1, 3)), 0);
	assert_int_equal(mknodat(w->fd, "disk", S_IFBLK | 0666, makedev(7, 0)), 0);
	after(w);
	assert_removed(w, "/out/null", "device");
	assert_removed(w, "/out/disk", "device");
	assert_true(is_there(w->fd, "try"));
	assert_false(is_there(w->fd, "null"));
	assert_false(is_there(w->fd, "disk"));
}

/* A character device 0:0 may be made by anybody. */
static void a_whiteout_is_a_device_too(void **state)
{
	struct world *w = *state;

	before(w);
	if (mknodat(w->fd, "white", S_IFCHR | 0666, 0) < 0)
		skip();
	after(w);
	assert_removed(w, "/out/white", "device");
}

struct link_case {
	const char *name, *target;
	bool stays_in_write, stays_in_workspace;
};

static void check_links(struct world *w, const struct link_case *cases, size_t count, bool workspace)
{
	for (size_t i = 0; i < count; i++) {
		bool stays = workspace ? cases[i].stays_in_workspace : cases[i].stays_in_write;

		if (is_there(w->fd, cases[i].name) != stays)
			print_message("# %s -> %s\n", cases[i].name, cases[i].target);
		assert_int_equal(is_there(w->fd, cases[i].name), stays);
	}
}

static void links_that_lead_out(struct world *w, enum plan_mount_kind kind)
{
	cleanup_free char *self = xasprintf("%s/d/file", w->mount.source);
	cleanup_free char *odd_self = xasprintf("/.//%s/./d//file", w->mount.source + 1);
	cleanup_free char *up_self = xasprintf("%s/d/../../decoy", w->mount.source);
	cleanup_free char *sibling = xasprintf("%s2/x", w->mount.source);
	const struct link_case cases[] = {
	    {"abs", "/etc/passwd", false, false},
	    {"root", "/", false, false},
	    {"climb", "../../../../../../../../etc/passwd", false, false},
	    {"parent", "..", false, false},
	    {"decoy", "../decoy", false, false},
	    {"proc", "/proc/self/root", false, false},
	    {"inside-name", "/out/d/file", false, false}, /* right inside, but the host's /out is another */
	    {"self-name", self, true, true},
	    {"odd-self", odd_self, true, true},
	    {"up-self", up_self, false, false},
	    {"sibling", sibling, false, false},
	    {"sib", "d/file", true, true},
	    {"here", ".", true, true},
	    {"down-up", "d/../d/file", true, true},
	    {"dangling", "nowhere/at/all", true, true},
	    {"dangling-out", "nowhere/../../decoy", false, false},
	    {"itself", "itself", true, true},
	    {"loop-a", "loop-b", true, true},
	    {"loop-b", "loop-a", true, true},
	    {"d/up", "..", true, true},
	    {"d/up-up", "../..", false, false},
	    {"python", "/usr/bin/python3", false, true},
	    {"lib64", "/lib64/ld.so", false, true},
	    {"trick", "/usr/../etc/shadow", false, false},
	    {"library", "/library", false, false},
	    /* Links on the way. By names alone the last one of each stays inside. */
	    {"deep", "d/e", true, true},
	    {"via-deep", "deep/../file", true, true},
	    {"dot", ".", true, true},
	    {"via-dot", "dot/../decoy", false, false},
	    {"d/top", "..", true, true},
	    {"via-top", "d/top/../decoy", false, false},
	    {"usr", "/usr", false, true},
	    {"via-usr", "usr/bin/env", true, true}, /* nowhere once "usr" is removed; the system else */
	    {"usr-out", "usr/../etc/passwd", true, false},
	    {"empty-end", "d/e/", true, true},
	    {"through-file", "d/file/../../../decoy", false, false},
	};

	const struct removed *abs;

	w->mount.kind = kind;
	assert_int_equal(mkdirat(w->fd, "d", 0755), 0);
	assert_int_equal(mkdirat(w->fd, "d/e", 0755), 0);
	write_at(w->fd, "d/file", "x");
	before(w);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(symlinkat(cases[i].target, w->fd, cases[i].name), 0);
	after(w);
	assert_int_equal(w->result, 0);
	check_links(w, cases, ARRAY_SIZE(cases), kind == PLAN_WORKSPACE);
	abs = removed_at(&w->changes, "/out/abs");
	assert_string_equal(abs != NULL ? abs->target : "", "/etc/passwd");
}

static void links_that_lead_out_of_a_write_mount_are_removed(void **state)
{
	links_that_lead_out(*state, PLAN_WRITE);
}

static void a_workspace_keeps_links_into_the_system_tree(void **state)
{
	links_that_lead_out(*state, PLAN_WORKSPACE);
}

static void links_that_were_there_before_stay(void **state)
{
	struct world *w = *state;
	const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};

	assert_int_equal(symlinkat("/etc/hosts", w->fd, "mine"), 0);
	assert_int_equal(symlinkat("/etc/hosts", w->fd, "touched"), 0);
	assert_int_equal(symlinkat("/etc/hosts", w->fd, "again"), 0);
	assert_int_equal(symlinkat("/etc/hosts", w->fd, "changed"), 0);
	assert_int_equal(mkdirat(w->fd, "d", 0755), 0);
	assert_int_equal(symlinkat("../x", w->fd, "d/moved"), 0);
	before(w);
	assert_int_equal(utimensat(w->fd, "touched", now, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(unlinkat(w->fd, "again", 0), 0);
	assert_int_equal(symlinkat("/etc/hosts", w->fd, "again"), 0);
	assert_int_equal(unlinkat(w->fd, "changed", 0), 0);
	assert_int_equal(symlinkat("/etc/hosta", w->fd, "changed"), 0);
	assert_int_equal(linkat(w->fd, "mine", w->fd, "copy", 0), 0);
	assert_int_equal(renameat(w->fd, "d/moved", w->fd, "moved"), 0); /* the same link leads out from here */
	after(w);
	assert_true(is_there(w->fd, "mine"));
	assert_true(is_there(w->fd, "touched"));
	assert_true(is_there(w->fd, "again"));
	assert_false(is_there(w->fd, "changed"));
	assert_false(is_there(w->fd, "copy"));
	assert_false(is_there(w->fd, "moved"));
	assert_list(&w->changes.deleted, LIST("/out/changed", "/out/d/moved"));
}

static void a_hard_link_to_a_set_id_file_is_disarmed(void **state)
{
	struct world *w = *state;

	write_at(w->fd, "file", "x");
	before(w);
	assert_int_equal(fchmodat(w->fd, "file", 04755, 0), 0);
	assert_int_equal(linkat(w->fd, "file", w->fd, "other", 0), 0);
	after(w);
	assert_int_equal(mode_of(w->fd, "file"), 0755);
	assert_list(&w->changes.created, LIST("/out/other"));
	assert_list(&w->changes.modified, LIST("/out/file"));
}

static void bad_things_leave_a_read_only_folder(void **state)
{
	struct world *w = *state;

	before(w);
	assert_int_equal(mkdirat(w->fd, "d", 0755), 0);
	assert_int_equal(symlinkat("/etc", w->fd, "d/l"), 0);
	assert_int_equal(fchmodat(w->fd, "d", 0555, 0), 0);
	after(w);
	assert_int_equal(w->result, 0);
	assert_false(is_there(w->fd, "d/l"));
	assert_int_equal(mode_of(w->fd, "d"), 0555);
}

/* Somebody of the host who swaps a folder for a link to a decoy while the sweep goes through must not lead it there. */
struct swapper {
	int fd;
	atomic_bool stop;
	atomic_ulong swaps;
};

static void *swap(void *arg)
{
	struct swapper *s = arg;

	while (!s->stop) {
		if (renameat2(s->fd, "in/dir", s->fd, "trap", RENAME_EXCHANGE) == 0)
			s->swaps++;
	}
	return NULL;
}

static void ignore(int r)
{
	(void) r;
}

/* Something to remove, if that name is the folder just now. */
static void bait(int base, const char *name)
{
	cleanup_fd int dir = openat(base, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_fd int file = -EBADF;

	if (dir < 0)
		return;
	ignore(symlinkat("/etc", dir, "link"));
	ignore(mkfifoat(dir, "pipe", 0600));
	file = openat(dir, "sh", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ignore(fchmod(file, 04755));
}

static void a_swapped_folder_never_leads_to_the_decoy(void **state)
{
	struct world *w = *state;
	struct swapper s = {.fd = w->base_fd};
	pthread_t thread;
	int rounds = 0;

	write_at(w->base_fd, "decoy/sh", "x");
	assert_int_equal(fchmodat(w->base_fd, "decoy/sh", 04755, 0), 0);
	assert_int_equal(symlinkat("/etc", w->base_fd, "decoy/link"), 0);
	assert_int_equal(mkfifoat(w->base_fd, "decoy/pipe", 0600), 0);
	before(w);
	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	assert_int_equal(symlinkat("../decoy", w->base_fd, "trap"), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
	for (; rounds < 10000; rounds++) {
		struct changes c = {0};

		if (!is_there(w->base_fd, "trap") || !is_there(w->base_fd, "in/dir")) {
			/* the sweep has rightly removed the link: lay the trap anew */
			ignore(symlinkat("../decoy", w->fd, "dir"));
			ignore(symlinkat("../decoy", w->base_fd, "trap"));
		}
		bait(w->base_fd, "in/dir");
		bait(w->base_fd, "trap");
		(void) snapshot_compare(w->before, &w->plan, &c, NULL);
		changes_done(&c);
	}
	s.stop = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
	print_message("# %lu swaps in %d sweeps\n", (unsigned long) s.swaps, rounds);
	assert_int_equal(mode_of(w->base_fd, "decoy/sh"), 04755);
	assert_true(is_there(w->base_fd, "decoy/link"));
	assert_true(is_there(w->base_fd, "decoy/pipe"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(without_the_record_only_the_removal_is_done),
	    TEST(set_id_bits_are_taken_from_what_the_run_made),
	    TEST(set_id_bits_hidden_below_a_closed_folder_are_found),
	    TEST(a_shared_group_folder_goes_on_handing_its_group_down),
	    TEST(special_files_leave_a_write_mount),
	    TEST(a_workspace_keeps_pipes_and_sockets),
	    TEST(device_nodes_leave_every_mount),
	    TEST(a_whiteout_is_a_device_too),
	    TEST(links_that_lead_out_of_a_write_mount_are_removed),
	    TEST(a_workspace_keeps_links_into_the_system_tree),
	    TEST(links_that_were_there_before_stay),
	    TEST(a_hard_link_to_a_set_id_file_is_disarmed),
	    TEST(bad_things_leave_a_read_only_folder),
	    TEST(a_swapped_folder_never_leads_to_the_decoy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
