#include "sandbox/secret-exposure.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

/* A shorter value stands in many an innocent text; alone it is found nevertheless. */
enum { VALUE_MIN = 8, DEPTH_MAX = 256 };

/* ---- Files. What counts is the file, not by which name it is found. ---- */

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The place inside at which the file or folder itself is shown, or NULL. */
static const char *shown_as(const struct plan *plan, const struct stat *what, bool writable)
{
	struct stat st;

	for (size_t i = 0; i < plan->mount_count; i++) {
		const struct plan_mount *m = &plan->mounts[i];

		if ((m->writable || !writable) && fstat(m->fd, &st) == 0 && same_file(&st, what))
			return m->target;
	}
	for (size_t i = 0; !writable && i < plan->bind_count; i++)
		if (stat(plan->binds[i].source, &st) == 0 && same_file(&st, what))
			return plan->binds[i].target;
	return NULL;
}

/* The place inside below which the open file or folder is found, or NULL: one of the folders above it is shown. */
static const char *shown_below(const struct plan *plan, int fd, bool writable)
{
	cleanup_fd int at = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	struct stat here, before = {0};

	for (int depth = 0; depth < DEPTH_MAX && at >= 0 && fstat(at, &here) == 0; depth++) {
		const char *shown = shown_as(plan, &here, writable);
		int above;

		if (shown != NULL || (depth > 0 && same_file(&here, &before)))
			return shown;
		before = here;
		above = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		fd_close(&at);
		at = above;
	}
	return NULL;
}

static const char *path_shown(const struct plan *plan, const char *path, size_t size, bool writable)
{
	char folder[PATH_MAX];
	cleanup_fd int fd = -EBADF;

	if (size == 0 || size >= sizeof folder)
		return NULL;
	memcpy(folder, path, size);
	folder[size] = '\0';
	fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 ? shown_below(plan, fd, writable) : NULL;
}

/* The folders that the path leads through: whoever may write there may lead it elsewhere. */
static const char *way_shown(const struct plan *plan, const char *path, bool writable)
{
	const char *shown = NULL;

	if (path[0] != '/')
		shown = path_shown(plan, ".", 1, writable);
	for (const char *slash = strchr(path, '/'); slash != NULL && shown == NULL; slash = strchr(slash + 1, '/'))
		shown = path_shown(plan, path, slash == path ? 1 : (size_t) (slash - path), writable);
	return shown;
}

/* Where the file lies in the end. */
static const char *file_shown(const struct plan *plan, const char *path, bool writable)
{
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);
	char link[32], real[PATH_MAX];
	const char *shown;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL; /* who needs it will say so */
	shown = shown_as(plan, &st, writable);
	(void) snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, real, sizeof real - 1);
	if (shown != NULL || n <= 0 || real[0] != '/')
		return shown;
	real[n] = '\0';
	n = strrchr(real, '/') - real;
	return path_shown(plan, real, n > 0 ? (size_t) n : 1, writable);
}

static const char *in_reach(const struct plan *plan, const char *path)
{
	const char *shown = way_shown(plan, path, true);

	return shown != NULL ? shown : file_shown(plan, path, true);
}

int secret_source_hidden(const struct plan *plan, const struct secret_source *s, struct zw_error *e)
{
	const char *shown;

	if (s->file != NULL) {
		shown = file_shown(plan, s->file, false);
		if (shown != NULL)
			return zw_error(e, EPERM, "the secret %s: %s is seen inside below %s; keep it where the code cannot look",
					s->name, s->file, shown);
		shown = way_shown(plan, s->file, true);
		if (shown != NULL)
			return zw_error(e, EPERM,
					"the secret %s: the code inside may write below %s, and could lead %s elsewhere", s->name,
					shown, s->file);
	}
	/* What is found by the search path is the caller's affair. */
	if (s->command != NULL && strchr(s->command[0], '/') != NULL && (shown = in_reach(plan, s->command[0])) != NULL)
		return zw_error(e, EPERM, "the secret %s: the code inside may write below %s, and so change the program %s",
				s->name, shown, s->command[0]);
	return 0;
}

int secret_ca_hidden(const struct plan *plan, const char *ca_file, struct zw_error *e)
{
	const char *shown = ca_file != NULL ? in_reach(plan, ca_file) : NULL;

	return shown == NULL
		   ? 0
		   : zw_error(e, EPERM, "network.ca_file: the code inside may write below %s, and so choose whom %s trusts",
			      shown, ca_file);
}

/* ---- Values. ---- */

static bool holds(const char *text, size_t text_size, const char *value, size_t size)
{
	if (size < VALUE_MIN)
		return text_size == size && memcmp(text, value, size) == 0;
	return memmem(text, text_size, value, size) != NULL;
}

int secret_value_hidden(const struct plan *plan, const struct secret_source *s, const char *value, size_t size,
			struct zw_error *e)
{
	for (size_t i = 0; i < plan->envc; i++) {
		const char *equals = strchr(plan->env[i], '=');

		if (equals != NULL && holds(equals + 1, strlen(equals + 1), value, size))
			return zw_error(e, EPERM,
					"the secret %s: its value stands in the variable %.*s inside (env.pass or env.set)",
					s->name, (int) (equals - plan->env[i]), plan->env[i]);
	}
	for (size_t i = 0; i < plan->argc; i++)
		if (holds(plan->argv[i], strlen(plan->argv[i]), value, size))
			return zw_error(e, EPERM, "the secret %s: its value stands in the command", s->name);
	for (size_t i = 0; i < plan->file_count; i++)
		if (holds(plan->files[i].data, plan->files[i].size, value, size))
			return zw_error(e, EPERM, "the secret %s: its value stands in %s inside", s->name, plan->files[i].path);
	return 0;
}
