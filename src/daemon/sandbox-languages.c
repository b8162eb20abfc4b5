#include "daemon/sandbox-languages.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/drivers.h"

/* As sandbox/root.c shows them. */
static const char *const host_shows[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"};
static const char *const root_hides[] = {"proc", "sys", "dev", "tmp", "run", "home", "root", "var"};

static bool begins_with_one(const char *path, const char *const *names, size_t count)
{
	size_t size = strcspn(path, "/");

	for (size_t i = 0; i < count; i++)
		if (strlen(names[i]) == size && strncmp(path, names[i], size) == 0)
			return true;
	return false;
}

/* A link may lead to where nothing is shown from. */
static bool is_shown(const char *root, int fd)
{
	char name[32], path[PATH_MAX];
	size_t skip = root != NULL ? strlen(root) : 0;
	ssize_t n;

	(void) snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	n = readlink(name, path, sizeof path - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	if (root != NULL && (strncmp(path, root, skip) != 0 || path[skip] != '/'))
		return true; /* the root was named by a link; it cannot lead out of it */
	return root != NULL ? !begins_with_one(path + skip + 1, root_hides, ARRAY_SIZE(root_hides))
			    : begins_with_one(path + 1, host_shows, ARRAY_SIZE(host_shows));
}

static bool is_there(int folder, const char *root, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	cleanup_fd int fd = (int) syscall(SYS_openat2, folder, path, &how, sizeof how);

	return fd >= 0 && is_shown(root, fd);
}

static bool has_program(int folder, const char *root, const char *name)
{
	static const char *const folders[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};
	char path[64];

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		(void) snprintf(path, sizeof path, "%s/%s", folders[i], name);
		if (is_there(folder, root, path))
			return true;
	}
	return false;
}

static bool has_types(int folder, const char *root)
{
	static const char *const places[] = {"/usr/share/nodejs", "/usr/lib/node_modules", "/usr/local/lib/node_modules"};
	static const char *const packages[] = {"typescript", "esbuild"};
	char path[64];

	if (has_program(folder, root, "esbuild"))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		for (size_t k = 0; k < ARRAY_SIZE(packages); k++) {
			(void) snprintf(path, sizeof path, "%s/%s", places[i], packages[k]);
			if (is_there(folder, root, path))
				return true;
		}
	return false;
}

bool language_is_there(const char *root, const struct driver *d)
{
	cleanup_fd int folder = open(root != NULL ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return folder >= 0 && has_program(folder, root, d->needs) && (!d->typed || has_types(folder, root));
}
