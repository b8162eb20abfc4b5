/* Paths: text to text, and the few steps that make or find what a path names. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/files/files.h"

/* Adds the components of `text` to the clean path in `ret`. */
static int add_components(const char *text, size_t size, char *ret, size_t *length)
{
	for (size_t at = 0; at < size;) {
		const char *name = text + at, *slash = memchr(name, '/', size - at);
		size_t n = slash != NULL ? (size_t) (slash - name) : size - at;

		at += n + 1;
		if (n == 0 || (n == 1 && name[0] == '.'))
			continue;
		if (n == 2 && name[0] == '.' && name[1] == '.') {
			while (*length > 0 && ret[--*length] != '/')
				;
			continue;
		}
		if (*length + 1 + n >= FILES_PATH_MAX)
			return ENAMETOOLONG;
		ret[(*length)++] = '/';
		memcpy(ret + *length, name, n);
		*length += n;
	}
	return 0;
}

int path_clean(const char *home, const char *text, size_t size, char *ret)
{
	size_t length = 0;
	int r = 0;

	if (size == 0 || memchr(text, '\0', size) != NULL)
		return EINVAL;
	if (text[0] != '/')
		r = add_components(home, strlen(home), ret, &length);
	if (r == 0)
		r = add_components(text, size, ret, &length);
	if (r != 0)
		return r;
	if (length == 0)
		ret[length++] = '/';
	ret[length] = '\0';
	return 0;
}

const char *path_name(const char *path)
{
	return strrchr(path, '/') + 1; /* clean paths have one */
}

int path_join(const char *folder, const char *name, char *ret)
{
	size_t length = strlen(folder), n = strlen(name);

	if (length > 0 && folder[length - 1] == '/')
		length--;
	if (length + 1 + n >= FILES_PATH_MAX)
		return ENAMETOOLONG;
	memmove(ret, folder, length);
	ret[length] = '/';
	memcpy(ret + length + 1, name, n + 1);
	return 0;
}

/* Makes every folder on the way to `path`, itself included. Those that are there already say EEXIST, also on read-only file
 * systems. */
static int make_folders(char *path)
{
	for (char *p = path + 1;; p++) {
		char here = *p;
		int r;

		if (here != '/' && here != '\0')
			continue;
		*p = '\0';
		r = mkdir(path, 0755) < 0 && errno != EEXIST ? errno : 0;
		*p = here;
		if (r != 0)
			return r;
		if (here == '\0')
			return 0;
	}
}

int path_open_parent(const char *path, bool make, int *ret)
{
	char parent[FILES_PATH_MAX];
	size_t length = (size_t) (path_name(path) - path);
	int r;

	memcpy(parent, path, length);
	if (length > 1)
		length--; /* but for that of the root */
	parent[length] = '\0';
	*ret = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret >= 0)
		return 0;
	if (errno != ENOENT || !make)
		return errno;
	r = make_folders(parent);
	if (r != 0)
		return r;
	*ret = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return *ret >= 0 ? 0 : errno;
}

/* What `text`, found as the link `path`, names. ".." stays: the kernel resolves it behind links. */
static int join_link(char *path, const char *text, size_t size)
{
	size_t folder = text[0] == '/' ? 0 : (size_t) (path_name(path) - path);

	if (folder + size >= FILES_PATH_MAX)
		return ENAMETOOLONG;
	memcpy(path + folder, text, size);
	path[folder + size] = '\0';
	while (size > 1 && path[folder + size - 1] == '/') /* open(2) would want a folder */
		path[folder + --size] = '\0';
	return 0;
}

int path_follow(const char *path, char *ret)
{
	char text[FILES_PATH_MAX];

	memcpy(ret, path, strlen(path) + 1);
	for (int links = 0; links < 40; links++) {
		ssize_t n = readlink(ret, text, sizeof text - 1);
		int r;

		if (n < 0)
			return errno == EINVAL || errno == ENOENT ? 0 : errno;
		if (n == 0)
			return ENOENT;
		r = join_link(ret, text, (size_t) n);
		if (r != 0)
			return r;
	}
	return ELOOP;
}

int rename_new(int from, const char *name, int to, const char *as)
{
	return (int) syscall(SYS_renameat2, from, name, to, as, 1U /* RENAME_NOREPLACE; musl has neither */);
}

int temp_name(char ret[TEMP_NAME_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char random[8];

	if (getrandom(random, sizeof random, 0) != (ssize_t) sizeof random)
		return EIO;
	memcpy(ret, TEMP_PREFIX, sizeof TEMP_PREFIX);
	for (size_t i = 0; i < sizeof random; i++) {
		ret[sizeof TEMP_PREFIX - 1 + 2 * i] = digits[random[i] >> 4];
		ret[sizeof TEMP_PREFIX + 2 * i] = digits[random[i] & 15];
	}
	ret[TEMP_NAME_SIZE - 1] = '\0';
	return 0;
}

bool is_temp_name(const char *name)
{
	return strncmp(name, TEMP_PREFIX, sizeof TEMP_PREFIX - 1) == 0 && strlen(name) == TEMP_NAME_SIZE - 1 &&
	       strspn(name + sizeof TEMP_PREFIX - 1, "0123456789abcdef") == 16;
}
