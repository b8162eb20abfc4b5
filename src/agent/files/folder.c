/* Reading folders by the system call: libc's streams allocate. */
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <errno.h>

#include "agent/files/files.h"

ssize_t read_folder(int fd, char *piece, size_t size)
{
	long n = syscall(SYS_getdents64, fd, piece, size);

	return n < 0 ? -errno : (ssize_t) n;
}

const struct entry_head *next_entry(const char *piece, size_t size, size_t *at)
{
	while (*at < size) {
		const struct entry_head *e = (const struct entry_head *) (const void *) (piece + *at);

		*at += e->size;
		if (strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0)
			return e;
	}
	return NULL;
}
