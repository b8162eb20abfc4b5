/* A writable mount on a temporary folder, and what the record says about it. For test-changes and test-sweep. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants the four above before it */
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/changes.h"
#include "sandbox/plan.h"
#include "sandbox/tree.h"

/* One mount on a folder "in" of a temporary folder; "decoy" beside it is what must stay untouched. */
struct world {
	char base[64];
	int base_fd, fd; /* of the temporary folder, of "in" */
	struct plan_mount mount;
	struct plan plan;
	struct snapshot *before;
	struct changes changes;
	struct zw_error e;
	int result;
};

static inline int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	(void) snprintf(w->base, sizeof w->base, "/tmp/zw-test-changes-XXXXXX");
	assert_non_null(mkdtemp(w->base));
	w->base_fd = open(w->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->base_fd >= 0);
	assert_int_equal(mkdirat(w->base_fd, "in", 0755), 0);
	assert_int_equal(mkdirat(w->base_fd, "decoy", 0755), 0);
	w->fd = openat(w->base_fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w->mount = (struct plan_mount){
	    .kind = PLAN_WRITE,
	    .source = xasprintf("%s/in", w->base),
	    .target = xstrdup("/out"),
	    .writable = true,
	    .is_dir = true,
	    .size = ZW_UNLIMITED,
	    .fd = openat(w->base_fd, "in", O_PATH | O_DIRECTORY | O_CLOEXEC),
	};
	w->plan.mounts = &w->mount;
	w->plan.mount_count = 1;
	w->plan.audit_files = AUDIT_FILES_ON;
	*state = w;
	return 0;
}

static inline int tear_down(void **state)
{
	struct world *w = *state;

	w->before = snapshot_free(w->before);
	changes_done(&w->changes);
	fd_close(&w->fd);
	fd_close(&w->mount.fd);
	fd_close(&w->base_fd);
	free(w->mount.source);
	free(w->mount.target);
	assert_int_equal(tree_remove(AT_FDCWD, w->base), 0);
	free(w);
	return 0;
}

static inline void before(struct world *w)
{
	assert_int_equal(snapshot_take(&w->plan, &w->before, &w->e), 0);
	assert_non_null(w->before);
}

static inline void after(struct world *w)
{
	w->result = snapshot_compare(w->before, &w->plan, &w->changes, &w->e);
	if (w->result < 0)
		print_message("# %s\n", w->e.text);
}

static inline void write_at(int dirfd, const char *name, const char *text)
{
	cleanup_fd int fd = openat(dirfd, name, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static inline bool is_there(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline mode_t mode_of(int dirfd, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static inline void assert_list(const struct change_list *list, const char *const *want)
{
	size_t n = 0;

	while (want[n] != NULL)
		n++;
	for (size_t i = 0; i < list->count && list->count != n; i++)
		print_message("# has %s\n", list->paths[i]);
	assert_int_equal(list->count, n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(list->paths[i], want[i]);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static inline const struct removed *removed_at(const struct changes *c, const char *path)
{
	for (size_t i = 0; i < c->removed_count; i++)
		if (strcmp(c->removed[i].path, path) == 0)
			return &c->removed[i];
	return NULL;
}

static inline void assert_removed(const struct world *w, const char *path, const char *what)
{
	const struct removed *r = removed_at(&w->changes, path);

	if (r == NULL)
		print_message("# %s was not removed\n", path);
	assert_string_equal(r != NULL ? r->what : "", what);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
