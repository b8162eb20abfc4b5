#include "base/own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

/* The folder of the running program, without a slash at its end. */
static int own_folder(char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	char *slash;

	if (n <= 0)
		return n < 0 ? -errno : -EINVAL;
	buf[n] = '\0';
	slash = strrchr(buf, '/');
	if (slash != NULL)
		*slash = '\0';
	return 0;
}

int own_program(const char *const *places, char **path)
{
	char folder[PATH_MAX];
	int r = own_folder(folder, sizeof folder);

	for (; r == 0 && *places != NULL; places++) {
		cleanup_free char *text = xasprintf("%s/%s", folder, *places);
		cleanup_fd int fd = open(text, O_PATH | O_CLOEXEC);

		if (fd >= 0) {
			*path = take_ptr(&text);
			return 0;
		}
	}
	return r < 0 ? r : -ENOENT;
}
