#include "cli/result-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

int result_file_open(const char *path, struct result_file *ret, struct zw_error *e)
{
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	cleanup_free char *folder_path = slash == NULL   ? xstrdup(".")
					 : slash == path ? xstrdup("/")
							 : xstrndup(path, (size_t) (slash - path));
	cleanup_fd int folder = -EBADF;
	struct stat st;
	int fd;

	/* A link is followed and not replaced: /dev/stdout is one. */
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		/* Emptied when it is written: whether the link may be followed is known only when the policy is. */
		fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			return zw_errno(e, errno, "cannot open %s for the result", path);
		*ret = (struct result_file){.path = path, .folder = -EBADF, .fd = fd};
		return 0;
	}
	folder = open(folder_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0 || name[0] == '\0')
		return zw_errno(e, name[0] == '\0' ? EISDIR : errno, "cannot write the result to %s", path);
	fd = openat(folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
	if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)
		return zw_errno(e, errno, "cannot write the result to %s", path);
	*ret = (struct result_file){.path = path, .folder = take_fd(&folder), .name = xstrdup(name), .fd = fd < 0 ? -EBADF : fd};
	return 0;
}

static int random_name(const struct result_file *f, char **ret)
{
	uint32_t random;

	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return -errno;
	*ret = xasprintf(".%.200s.%08x", f->name, random);
	return 0;
}

int result_file_write(struct result_file *f, const char *text, struct zw_error *e)
{
	cleanup_free char *temporary = NULL;
	char self[32];
	int r = 0;

	if (f->folder >= 0)
		r = random_name(f, &temporary);
	if (r == 0 && f->fd < 0) {
		f->fd = openat(f->folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		r = f->fd < 0 ? -errno : 0;
	} else if (r == 0 && f->folder >= 0) {
		/* linkat(2): AT_EMPTY_PATH would need a capability, the name in /proc does not. */
		(void) snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
		r = linkat(AT_FDCWD, self, f->folder, temporary, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
	}
	if (f->folder < 0)
		(void) !ftruncate(f->fd, 0); /* only a regular file can be */
	if (r == 0)
		r = fd_write_all(f->fd, text, strlen(text));
	if (r == 0)
		r = fd_write_all(f->fd, "\n", 1);
	if (r == 0 && f->folder >= 0 && renameat(f->folder, temporary, f->folder, f->name) < 0)
		r = -errno;
	if (r < 0 && temporary != NULL)
		(void) unlinkat(f->folder, temporary, 0);
	return r < 0 ? zw_errno(e, -r, "cannot write the result to %s", f->path) : 0;
}

void result_file_done(struct result_file *f)
{
	fd_close(&f->fd);
	fd_close(&f->folder);
	free(f->name);
	f->name = NULL;
}
