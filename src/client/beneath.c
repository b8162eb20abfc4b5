#include "client/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

enum { MODE_BITS = 0777, ATTEMPTS = 16 };

bool beneath_name_is_good(const char *name)
{
	return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strchr(name, '/') == NULL;
}

static int open_beneath(int parent, const char *name, unsigned long long flags, mode_t mode)
{
	struct open_how how = {.flags = flags | O_CLOEXEC | O_NOFOLLOW,
			       .mode = mode,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd = beneath_name_is_good(name) ? syscall(SYS_openat2, parent, name, &how, sizeof how) : (errno = EINVAL, -1);

	return fd >= 0 ? (int) fd : -errno;
}

int beneath_folder(int parent, const char *name)
{
	if (!beneath_name_is_good(name))
		return -EINVAL;
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	return open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0);
}

static char *temporary_name(void)
{
	unsigned long long number = 0;

	if (getrandom(&number, sizeof number, 0) != (ssize_t) sizeof number)
		number = (unsigned long long) getpid(); /* only for the name: O_EXCL decides */
	return xasprintf(".zwinger-%016llx", number);
}

int beneath_file(int parent, char **ret_temporary)
{
	int fd = -EEXIST;

	for (int i = 0; i < ATTEMPTS && fd == -EEXIST; i++) {
		cleanup_free char *name = temporary_name();

		fd = open_beneath(parent, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (fd >= 0)
			*ret_temporary = take_ptr(&name);
	}
	return fd;
}

int beneath_place(int parent, int fd, const char *temporary, const char *name, mode_t mode)
{
	int r = beneath_name_is_good(name) ? 0 : -EINVAL;

	if (r == 0 && fchmod(fd, mode & MODE_BITS) < 0)
		r = -errno;
	if (r == 0 && renameat(parent, temporary, parent, name) < 0)
		r = -errno;
	if (r < 0)
		(void) unlinkat(parent, temporary, 0);
	return r;
}

bool beneath_link_is_inside(const char *target, size_t depth)
{
	bool leading = true;

	if (target[0] == '\0' || target[0] == '/')
		return false;
	for (const char *p = target; *p != '\0'; p += strspn(p, "/")) {
		size_t size = strcspn(p, "/");

		if (size == 2 && p[0] == '.' && p[1] == '.') {
			if (!leading || depth-- == 0)
				return false;
		} else if (size != 1 || p[0] != '.') {
			leading = false;
		}
		p += size;
	}
	return true;
}

int beneath_link(int parent, const char *name, const char *target)
{
	cleanup_free char *temporary = temporary_name();
	int r;

	if (!beneath_name_is_good(name))
		return -EINVAL;
	if (symlinkat(target, parent, temporary) < 0)
		return -errno;
	if (renameat(parent, temporary, parent, name) == 0)
		return 0;
	r = -errno;
	(void) unlinkat(parent, temporary, 0);
	return r;
}
