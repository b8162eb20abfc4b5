#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants the four above before it */
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/mount.h"
#include "sandbox/changes.h"
#include "sandbox/plan.h"
#include "sandbox/tree.h"
#include "sandbox/upper.h"

/* "in" is the folder of the mount, "place" where the child sees it, "decoy" what must stay untouched. */
struct world {
	char base[64];
	int base_fd, fd;
	uint64_t size;
	bool userns;
	struct plan_mount mount;
	struct changes changes;
	struct zw_error e;
	int upper, result;
};

static int make_world(void **state, bool userns)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->userns = userns;
	w->size = 8 << 20;
	w->upper = w->mount.fd = -EBADF;
	(void) snprintf(w->base, sizeof w->base, "/tmp/zw-test-upper-XXXXXX");
	assert_non_null(mkdtemp(w->base));
	w->base_fd = open(w->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->base_fd >= 0);
	assert_int_equal(mkdirat(w->base_fd, "in", 0755), 0);
	assert_int_equal(mkdirat(w->base_fd, "place", 0755), 0);
	assert_int_equal(mkdirat(w->base_fd, "decoy", 0755), 0);
	w->fd = openat(w->base_fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = w;
	return 0;
}

static int set_up_userns(void **state)
{
	return make_world(state, true);
}

static int set_up_root(void **state)
{
	if (geteuid() != 0) {
		*state = NULL;
		return 0;
	}
	return make_world(state, false);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	if (w == NULL)
		return 0;
	changes_done(&w->changes);
	fd_close(&w->upper);
	fd_close(&w->fd);
	fd_close(&w->mount.fd);
	fd_close(&w->base_fd);
	free(w->mount.source);
	free(w->mount.target);
	assert_int_equal(tree_remove(AT_FDCWD, w->base), 0);
	free(w);
	return 0;
}

/* ---- what runs inside: plain exits with a line number when something is wrong ---- */

#define CHECK(x)                                                                                                                 \
	do {                                                                                                                     \
		if (!(x))                                                                                                        \
			return -__LINE__;                                                                                        \
	} while (0)

static int put(int dirfd, const char *name, const char *text)
{
	cleanup_fd int fd = openat(dirfd, name, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

static int map_ids(uid_t uid, gid_t gid)
{
	char map[64];

	CHECK(fd_write_file_at(AT_FDCWD, "/proc/self/setgroups", "deny") == 0);
	(void) snprintf(map, sizeof map, "%u %u 1", uid, uid);
	CHECK(fd_write_file_at(AT_FDCWD, "/proc/self/uid_map", map) == 0);
	(void) snprintf(map, sizeof map, "%u %u 1", gid, gid);
	CHECK(fd_write_file_at(AT_FDCWD, "/proc/self/gid_map", map) == 0);
	return 0;
}

/* What a code() returns when the kernel is too old for it. */
#define NOT_HERE 77

/* Folders of the host can be replaced inside only where the overlay can mark them. */
static bool can_replace_folders(int merged)
{
	return fsetxattr(merged, "user.zwinger-test", "y", 1, 0) == 0 ||
	       fsetxattr(merged, "trusted.zwinger-test", "y", 1, 0) == 0;
}

static int run_inside(const struct world *w, int sock, int (*code)(int dirfd))
{
	cleanup_fd int lower = -EBADF, place = -EBADF, again = -EBADF;
	int mount = -EBADF, upper = -EBADF, r;
	uid_t uid = getuid();
	gid_t gid = getgid();

	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	CHECK(unshare(CLONE_NEWNS | (w->userns ? CLONE_NEWUSER : 0)) == 0);
	if (w->userns)
		CHECK(map_ids(uid, gid) == 0);
	CHECK(mount_isolate() == 0);
	CHECK(chdir(w->base) == 0);
	lower = mount_clone_tree(AT_FDCWD, "in");
	place = open("place", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(lower >= 0 && place >= 0);
	r = upper_mount(lower, w->size, w->userns, place, uid, gid, &mount, &upper);
	if (r < 0) {
		(void) fprintf(stderr, "# upper_mount: %s\n", strerror(-r));
		return r;
	}
	CHECK(openat(AT_FDCWD, "in", O_PATH | O_CLOEXEC) >= 0); /* the working directory is what it was */
	CHECK(mount_attach(mount, place, "") == 0);
	again = open("place", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(again >= 0);
	CHECK(fd_send(sock, "u", 1, &upper, 1) == 0);
	return code(again);
}

static void run(struct world *w, int (*code)(int dirfd))
{
	int pair[2], status = 0;
	size_t n = 1;
	char byte;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int r = run_inside(w, pair[1], code);

		if (r < 0)
			(void) fprintf(stderr, "# inside: line %d\n", -r);
		_exit(r < 0 ? 1 : r);
	}
	fd_close(&pair[1]);
	assert_int_equal(fd_recv(pair[0], &byte, 1, &w->upper, &n), 1);
	assert_int_equal(n, 1);
	fd_close(&pair[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_HERE)
		skip();
	assert_int_equal(status, 0);
	w->mount = (struct plan_mount){
	    .kind = PLAN_WRITE,
	    .source = xasprintf("%s/in", w->base),
	    .target = xstrdup("/out"),
	    .writable = true,
	    .is_dir = true,
	    .size = w->size,
	    .fd = openat(w->base_fd, "in", O_PATH | O_DIRECTORY | O_CLOEXEC),
	};
}

static void commit_as(struct world *w, uid_t uid, gid_t gid)
{
	w->result = upper_commit(w->upper, &w->mount, uid, gid, &w->changes, &w->e);
	if (w->result < 0)
		print_message("# %s\n", w->e.text);
}

/* As root the files get an owner, else they are the caller's. */
static void commit(struct world *w)
{
	commit_as(w, w->userns ? (uid_t) -1 : getuid(), w->userns ? (gid_t) -1 : getgid());
}

/* ---- looking at what came out ---- */

static bool is_there(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static struct stat stat_of(int dirfd, const char *name)
{
	struct stat st = {0};

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		print_message("# %s is missing\n", name);
	return st;
}

static void assert_text(int dirfd, const char *name, const char *want)
{
	char text[256] = "";

	assert_true(fd_read_file_at(dirfd, name, text, sizeof text) >= 0);
	assert_string_equal(text, want);
}

static void assert_noted(const struct world *w, const char *path, const char *what)
{
	for (size_t i = 0; i < w->changes.removed_count; i++)
		if (strcmp(w->changes.removed[i].path, path) == 0 && strcmp(w->changes.removed[i].what, what) == 0)
			return;
	fail_msg("%s is not noted as \"%s\"", path, what);
}

static struct world *world_of(void **state)
{
	if (*state == NULL)
		skip(); /* the variant of root */
	return *state;
}

/* ---- */

static int edit(int d)
{
	CHECK(put(d, "new", "new") == 0);
	CHECK(put(d, "changed", "after") == 0);
	CHECK(fchmodat(d, "mode", 0600, 0) == 0);
	CHECK(unlinkat(d, "gone", 0) == 0);
	CHECK(mkdirat(d, "dir/sub", 0750) == 0);
	CHECK(put(d, "dir/sub/leaf", "leaf") == 0);
	CHECK(renameat(d, "renamed", d, "dir/renamed") == 0);
	return 0;
}

static void edits_come_out(void **state)
{
	struct world *w = world_of(state);

	assert_int_equal(put(w->fd, "changed", "before"), 0);
	assert_int_equal(put(w->fd, "same", "same"), 0);
	assert_int_equal(put(w->fd, "mode", "mode"), 0);
	assert_int_equal(put(w->fd, "gone", "gone"), 0);
	assert_int_equal(put(w->fd, "renamed", "renamed"), 0);
	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	assert_int_equal(put(w->fd, "dir/old", "old"), 0);
	run(w, edit);
	assert_false(is_there(w->fd, "new")); /* nothing is outside before */
	assert_text(w->fd, "changed", "before");
	commit(w);
	assert_int_equal(w->result, 0);
	assert_text(w->fd, "new", "new");
	assert_text(w->fd, "changed", "after");
	assert_text(w->fd, "same", "same");
	assert_int_equal(stat_of(w->fd, "mode").st_mode & 07777, 0600);
	assert_false(is_there(w->fd, "gone"));
	assert_int_equal(stat_of(w->fd, "dir/sub").st_mode & 07777, 0750);
	assert_text(w->fd, "dir/sub/leaf", "leaf");
	assert_text(w->fd, "dir/old", "old");
	assert_text(w->fd, "dir/renamed", "renamed");
	assert_false(is_there(w->fd, "renamed"));
	assert_int_equal(stat_of(w->fd, "new").st_uid, geteuid());
	assert_int_equal(w->changes.removed_count, 0);
}

static int replace(int d)
{
	if (!can_replace_folders(d))
		return NOT_HERE;
	CHECK(tree_remove(d, "gone-dir") == 0);
	CHECK(tree_remove(d, "was-dir") == 0);
	CHECK(put(d, "was-dir", "file now") == 0);
	CHECK(unlinkat(d, "was-file", 0) == 0);
	CHECK(mkdirat(d, "was-file", 0755) == 0);
	CHECK(put(d, "was-file/x", "x") == 0);
	CHECK(tree_remove(d, "dir") == 0);
	CHECK(mkdirat(d, "dir", 0711) == 0);
	CHECK(put(d, "dir/new", "new") == 0);
	return 0;
}

static void a_replaced_folder_has_nothing_of_the_old_one(void **state)
{
	struct world *w = world_of(state);

	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	assert_int_equal(mkdirat(w->fd, "dir/sub", 0755), 0);
	assert_int_equal(put(w->fd, "dir/sub/old", "old"), 0);
	assert_int_equal(put(w->fd, "dir/old", "old"), 0);
	assert_int_equal(mkdirat(w->fd, "gone-dir", 0755), 0);
	assert_int_equal(put(w->fd, "gone-dir/x", "x"), 0);
	assert_int_equal(mkdirat(w->fd, "was-dir", 0755), 0);
	assert_int_equal(put(w->fd, "was-dir/x", "x"), 0);
	assert_int_equal(put(w->fd, "was-file", "file"), 0);
	run(w, replace);
	commit(w);
	assert_int_equal(w->result, 0);
	assert_false(is_there(w->fd, "gone-dir"));
	assert_text(w->fd, "was-dir", "file now");
	assert_text(w->fd, "was-file/x", "x");
	assert_text(w->fd, "dir/new", "new");
	assert_false(is_there(w->fd, "dir/old"));
	assert_false(is_there(w->fd, "dir/sub"));
	assert_int_equal(stat_of(w->fd, "dir").st_mode & 07777, 0711);
}

static int plant(int d)
{
	CHECK(put(d, "keep", "keep") == 0);
	CHECK(mkfifoat(d, "queue", 0644) == 0);
	CHECK(symlinkat("/etc/passwd", d, "abs") == 0);
	CHECK(symlinkat("../../x", d, "climb") == 0);
	CHECK(symlinkat("keep", d, "near") == 0);
	CHECK(symlinkat("nowhere", d, "dangling") == 0);
	CHECK(symlinkat("self", d, "self") == 0);
	CHECK(put(d, "sh", "sh") == 0 && fchmodat(d, "sh", 06755, 0) == 0);
	CHECK(mkdirat(d, "sgid", 0755) == 0 && fchmodat(d, "sgid", 03777, 0) == 0);
	CHECK(put(d, "unreadable", "x") == 0 && fchmodat(d, "unreadable", 0, 0) == 0);
	CHECK(mkdirat(d, "closed", 0755) == 0 && put(d, "closed/x", "x") == 0 && fchmodat(d, "closed", 0, 0) == 0);
	CHECK(mkdirat(d, "read-only", 0755) == 0 && put(d, "read-only/x", "x") == 0 && fchmodat(d, "read-only", 0555, 0) == 0);
	CHECK(unlinkat(d, "covered", 0) == 0 && mkfifoat(d, "covered", 0644) == 0);
	CHECK(unlinkat(d, "link", 0) == 0 && symlinkat("/etc/shadow", d, "link") == 0);
	CHECK(mknodat(d, "white", S_IFCHR | 0666, 0) < 0); /* nobody can make the overlay's own mark */
	return 0;
}

static void what_must_not_come_out_stays_behind(void **state)
{
	struct world *w = world_of(state);

	assert_int_equal(put(w->fd, "covered", "x"), 0);
	assert_int_equal(symlinkat("/etc/hosts", w->fd, "link"), 0);
	assert_int_equal(symlinkat("/etc/hosts", w->fd, "mine"), 0);
	run(w, plant);
	commit(w);
	assert_int_equal(w->result, 0);
	assert_noted(w, "/out/queue", "named pipe");
	assert_noted(w, "/out/covered", "named pipe");
	assert_noted(w, "/out/abs", "link that leads out");
	assert_noted(w, "/out/climb", "link that leads out");
	assert_noted(w, "/out/link", "link that leads out");
	assert_noted(w, "/out/sh", "set-user-ID bit");
	assert_false(is_there(w->fd, "queue"));
	assert_false(is_there(w->fd, "covered")); /* the run had removed it */
	assert_false(is_there(w->fd, "abs"));
	assert_false(is_there(w->fd, "climb"));
	assert_false(is_there(w->fd, "link"));
	assert_true(is_there(w->fd, "mine"));
	assert_text(w->fd, "near", "keep");
	assert_true(is_there(w->fd, "dangling"));
	assert_true(is_there(w->fd, "self"));
	assert_int_equal(stat_of(w->fd, "sh").st_mode & 07777, 0755);
	assert_int_equal(stat_of(w->fd, "sgid").st_mode & 07777, 0777);
	assert_int_equal(stat_of(w->fd, "unreadable").st_mode & 07777, 0);
	assert_int_equal(stat_of(w->fd, "unreadable").st_size, 1);
	assert_int_equal(stat_of(w->fd, "closed").st_mode & 07777, 0);
	assert_int_equal(stat_of(w->fd, "read-only").st_mode & 07777, 0555);
	assert_text(w->fd, "read-only/x", "x");
	assert_int_equal(fchmodat(w->fd, "closed", 0700, 0), 0);
	assert_text(w->fd, "closed/x", "x");
}

static int fill(int d)
{
	char block[4096];
	cleanup_fd int fd = openat(d, "big", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	uint64_t written = 0;

	memset(block, 'x', sizeof block);
	for (;;) {
		ssize_t n = write(fd, block, sizeof block);

		if (n < 0 && errno == ENOSPC)
			break;
		CHECK(n > 0 && written < (9 << 20));
		written += (uint64_t) n;
	}
	CHECK(written > (7 << 20) && written <= (8 << 20));
	return 0;
}

static void a_full_mount_is_no_space_inside(void **state)
{
	struct world *w = world_of(state);

	run(w, fill);
	commit(w);
	assert_int_equal(w->result, 0);
	assert_true(stat_of(w->fd, "big").st_size > (7 << 20));
}

/* The names of one file and the hole in another would be far more than the mount's size. */
static int expand(int d)
{
	cleanup_fd int fd = openat(d, "first", O_CREAT | O_WRONLY | O_CLOEXEC, 0644), sparse = -EBADF;
	cleanup_free char *megabyte = xcalloc(1, 1 << 20);
	char name[32];

	memset(megabyte, 'm', 1 << 20);
	CHECK(fd_write_all(fd, megabyte, 1 << 20) == 0);
	CHECK(mkdirat(d, "names", 0755) == 0);
	for (int i = 0; i < 100; i++) {
		(void) snprintf(name, sizeof name, "names/%d", i);
		CHECK(linkat(d, "first", d, name, 0) == 0);
	}
	sparse = openat(d, "sparse", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	CHECK(ftruncate(sparse, INT64_C(1) << 33) == 0);
	CHECK(pwrite(sparse, "end", 3, (INT64_C(1) << 32) + 5) == 3);
	return 0;
}

static void hard_links_and_holes_take_no_more_room_outside(void **state)
{
	struct world *w = world_of(state);
	char text[4] = "";
	int fd;

	run(w, expand);
	commit(w);
	assert_int_equal(w->result, 0);
	assert_int_equal(stat_of(w->fd, "first").st_nlink, 101);
	assert_int_equal(stat_of(w->fd, "names/99").st_ino, stat_of(w->fd, "first").st_ino);
	assert_int_equal(stat_of(w->fd, "sparse").st_size, INT64_C(1) << 33);
	assert_true(stat_of(w->fd, "sparse").st_blocks < 1024);
	fd = openat(w->fd, "sparse", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, text, 3, (INT64_C(1) << 32) + 5), 3);
	(void) close(fd);
	assert_string_equal(text, "end");
}

static int name_things(int d)
{
	char longest[256];

	memset(longest, 'n', 255);
	longest[255] = '\0';
	CHECK(put(d, "new\nline", "1") == 0);
	CHECK(put(d, "bad\xff", "2") == 0);
	CHECK(put(d, longest, "3") == 0);
	CHECK(put(d, "-rf", "4") == 0);
	return 0;
}

static void awkward_names_come_out_too(void **state)
{
	struct world *w = world_of(state);
	char longest[256];

	memset(longest, 'n', 255);
	longest[255] = '\0';
	run(w, name_things);
	commit(w);
	assert_int_equal(w->result, 0);
	assert_text(w->fd, "new\nline", "1");
	assert_text(w->fd, "bad\xff", "2");
	assert_text(w->fd, longest, "3");
	assert_text(w->fd, "-rf", "4");
}

static int dig(int d)
{
	cleanup_fd int at = openat(d, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < 1000; i++) {
		int next;

		CHECK(mkdirat(at, "d", 0755) == 0);
		if (i == 500)
			CHECK(put(at, "half-way", "x") == 0);
		next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		CHECK(next >= 0);
		fd_close(&at);
		at = next;
	}
	CHECK(put(at, "bottom", "x") == 0);
	return 0;
}

static void deep_trees_come_out(void **state)
{
	struct world *w = world_of(state);
	int at = openat(w->fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	run(w, dig);
	commit(w);
	assert_int_equal(w->result, 0);
	for (int i = 0; i < 1000; i++) {
		int next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);

		assert_true(next >= 0);
		if (i == 500)
			assert_true(is_there(at, "half-way"));
		(void) close(at);
		at = next;
	}
	assert_true(is_there(at, "bottom"));
	(void) close(at);
}

static int edit_less(int d)
{
	CHECK(mkdirat(d, "dir/sub", 0755) == 0);
	CHECK(put(d, "dir/sub/leaf", "leaf") == 0);
	CHECK(symlinkat("leaf", d, "dir/sub/link") == 0);
	return 0;
}

static void files_belong_to_whom_they_are_given(void **state)
{
	struct world *w = world_of(state);

	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	run(w, edit_less);
	commit_as(w, 12345, 23456);
	assert_int_equal(w->result, 0);
	assert_int_equal(stat_of(w->fd, "dir/sub").st_uid, 12345);
	assert_int_equal(stat_of(w->fd, "dir/sub/leaf").st_uid, 12345);
	assert_int_equal(stat_of(w->fd, "dir/sub/leaf").st_gid, 23456);
	assert_int_equal(stat_of(w->fd, "dir/sub/link").st_uid, 12345);
	assert_int_equal(stat_of(w->fd, "dir").st_uid, 0); /* it was there before */
}

static int write_two(int d)
{
	CHECK(put(d, "locked/new", "x") == 0);
	CHECK(put(d, "zfine", "x") == 0);
	return 0;
}

static void what_cannot_be_written_is_told_and_the_rest_is_written(void **state)
{
	struct world *w = world_of(state);

	assert_int_equal(mkdirat(w->fd, "locked", 0755), 0);
	run(w, write_two);
	/* Meanwhile the host has put a link in the folder's place: it is not followed, and what is there belongs to the run. */
	assert_int_equal(unlinkat(w->fd, "locked", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("../decoy", w->fd, "locked"), 0);
	commit(w);
	assert_int_equal(w->result, 0);
	assert_text(w->fd, "zfine", "x");
	assert_text(w->fd, "locked/new", "x");
	assert_false(is_there(w->base_fd, "decoy/new"));
}

static int write_much(int d)
{
	CHECK(put(d, "a", "x") == 0);
	CHECK(put(d, "b", "0123456789") == 0);
	CHECK(put(d, "c", "x") == 0);
	return 0;
}

static void nothing_beyond_the_size_is_written(void **state)
{
	struct world *w = world_of(state);

	run(w, write_much);
	w->mount.size = 0; /* as if the upper folder held more than it can */
	commit(w);
	assert_int_equal(w->result, -EFBIG);
	assert_int_equal(w->changes.removed_count, 3);
	assert_noted(w, "/out/b", "could not be written back");
	assert_false(is_there(w->fd, "a"));
}

/* A thread of the host swaps the folder for a link to the decoy all the while. */
struct swapper {
	int fd;
	atomic_bool stop;
	atomic_ulong swaps;
};

static void *swap(void *arg)
{
	struct swapper *s = arg;

	while (!s->stop)
		if (renameat2(s->fd, "in/dir", s->fd, "trap", RENAME_EXCHANGE) == 0)
			s->swaps++;
	return NULL;
}

static int write_in_dir(int d)
{
	CHECK(put(d, "dir/new", "new") == 0);
	CHECK(mkdirat(d, "dir/sub", 0755) == 0);
	CHECK(put(d, "dir/sub/leaf", "leaf") == 0);
	CHECK(unlinkat(d, "dir/victim", 0) == 0);
	return 0;
}

static void a_swapped_folder_never_leads_to_the_decoy(void **state)
{
	struct world *w = world_of(state);
	struct swapper s = {.fd = w->base_fd};
	pthread_t thread;

	assert_int_equal(put(w->base_fd, "decoy/victim", "x"), 0);
	assert_int_equal(mkdirat(w->fd, "dir", 0755), 0);
	assert_int_equal(put(w->fd, "dir/victim", "x"), 0);
	run(w, write_in_dir);
	assert_int_equal(symlinkat("../decoy", w->base_fd, "trap"), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
	for (int i = 0; i < 3000; i++) {
		struct changes c = {0};

		(void) upper_commit(w->upper, &w->mount, (uid_t) -1, (gid_t) -1, &c, NULL);
		changes_done(&c);
		if (!is_there(w->base_fd, "trap"))
			(void) !symlinkat("../decoy", w->base_fd, "trap");
	}
	s.stop = true;
	assert_int_equal(pthread_join(thread, NULL), 0);
	print_message("# %lu swaps\n", (unsigned long) s.swaps);
	assert_true(is_there(w->base_fd, "decoy/victim"));
	assert_false(is_there(w->base_fd, "decoy/new"));
	assert_false(is_there(w->base_fd, "decoy/sub"));
}

#define TEST(f)                                                                                                                  \
	cmocka_unit_test_setup_teardown(f, set_up_userns, tear_down), cmocka_unit_test_setup_teardown(f, set_up_root, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(edits_come_out),
	    TEST(a_replaced_folder_has_nothing_of_the_old_one),
	    TEST(what_must_not_come_out_stays_behind),
	    TEST(a_full_mount_is_no_space_inside),
	    TEST(hard_links_and_holes_take_no_more_room_outside),
	    TEST(awkward_names_come_out_too),
	    TEST(deep_trees_come_out),
	    TEST(files_belong_to_whom_they_are_given),
	    TEST(what_cannot_be_written_is_told_and_the_rest_is_written),
	    TEST(nothing_beyond_the_size_is_written),
	    TEST(a_swapped_folder_never_leads_to_the_decoy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
