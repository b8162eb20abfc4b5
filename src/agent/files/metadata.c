/* Metadata of files, as extended attributes. Code inside may set any that it likes, so what is read is bounded here, and checked
 * once more by whoever gets it. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "agent/files/files.h"

#define PREFIX "user.e2b."
enum { PREFIX_SIZE = sizeof PREFIX - 1, LIST_MAX = 65536 /* the kernel's own bound of a list */ };

static ssize_t list_names(const char *path, int fd, char *ret, size_t size)
{
	return path != NULL ? listxattr(path, ret, size) : flistxattr(fd, ret, size);
}

static ssize_t get_value(const char *path, int fd, const char *name, char *ret, size_t size)
{
	return path != NULL ? getxattr(path, name, ret, size) : fgetxattr(fd, name, ret, size);
}

/* Adds one attribute to the `used` bytes of the set; returns how many there are then. */
static size_t add_one(const char *path, int fd, const char *name, char *ret, size_t used)
{
	const char *word = name + PREFIX_SIZE;
	size_t size = strlen(word) + 1;
	ssize_t n;

	if (size == 1 || used + size + 1 > FILES_METADATA_MAX)
		return used;
	/* Room for one byte is kept, since a size of 0 asks how much there is. */
	n = get_value(path, fd, name, ret + used + size, FILES_METADATA_MAX - used - size);
	if (n < 0 || (size_t) n >= FILES_METADATA_MAX - used - size || memchr(ret + used + size, '\0', (size_t) n) != NULL)
		return used; /* gone, too large, or none that can be told */
	memcpy(ret + used, word, size);
	ret[used + size + (size_t) n] = '\0';
	return used + size + (size_t) n + 1;
}

size_t metadata_read(const char *path, int fd, char *ret)
{
	char names[LIST_MAX];
	ssize_t n = list_names(path, fd, names, sizeof names);
	size_t used = 0;

	for (ssize_t at = 0; at < n; at += (ssize_t) strlen(names + at) + 1)
		if (strncmp(names + at, PREFIX, PREFIX_SIZE) == 0)
			used = add_one(path, fd, names + at, ret, used);
	return used;
}

static int set_one(int fd, const char *word, const char *value)
{
	char name[PREFIX_SIZE + FILES_METADATA_NAME_MAX + 1] = PREFIX;
	size_t size = strlen(word);

	if (size == 0 || size > FILES_METADATA_NAME_MAX)
		return EINVAL;
	memcpy(name + PREFIX_SIZE, word, size + 1);
	return fsetxattr(fd, name, value, strlen(value), 0) < 0 ? errno : 0;
}

static int set_all(int fd, const char *set, size_t size)
{
	for (size_t at = 0; at < size;) {
		const char *word = set + at, *value = word + strlen(word) + 1;
		int error = value < set + size ? set_one(fd, word, value) : EINVAL;

		if (error != 0)
			return error;
		at = (size_t) (value - set) + strlen(value) + 1;
	}
	return 0;
}

/* The kernel asks whether the file may be written to by its mode, however it was opened. */
static int set_all_of_locked(int fd, const char *set, size_t size)
{
	struct stat st;
	int error;

	if (fstat(fd, &st) < 0 || (st.st_mode & 0200) != 0 || fchmod(fd, (st.st_mode & 07777) | 0200) < 0)
		return EACCES;
	error = set_all(fd, set, size);
	return fchmod(fd, st.st_mode & 07777) < 0 && error == 0 ? errno : error;
}

int metadata_write(int fd, const char *set, size_t size)
{
	int error;

	if (size > 0 && set[size - 1] != '\0')
		return EINVAL;
	error = set_all(fd, set, size);
	return error == EACCES ? set_all_of_locked(fd, set, size) : error;
}

int metadata_copy(int from, int to)
{
	char set[FILES_METADATA_MAX];

	return metadata_write(to, set, metadata_read(NULL, from, set));
}
