/* File descriptors: always close-on-exec, 3 or above, -EBADF for none. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define cleanup_fd __attribute__((cleanup(fd_cleanup)))

/* Closes *fd if it is one, leaves -EBADF and errno untouched. */
void fd_close(int *fd);

static inline void fd_cleanup(int *fd)
{
	fd_close(fd);
}

static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -EBADF;
	return taken;
}

/* Makes sure that 0, 1 and 2 are open (on /dev/null if not), so that no fd of ours lands there. */
int fd_sanitize_stdio(void);

int fd_nonblock(int fd);

/* Writes all of it; retries EINTR and short writes. 0 or negative errno. */
int fd_write_all(int fd, const void *data, size_t size);
/* The same for a stream that somebody else may have made non-blocking: waits until it takes more. */
int fd_write_stream(int fd, const void *data, size_t size);

/* Writes a short string to a file below `dirfd` in one write(2), as procfs and cgroupfs want it. 0 or negative errno. */
int fd_write_file_at(int dirfd, const char *path, const char *text);

/* Reads up to size-1 bytes of a file below `dirfd` and adds a NUL. Returns the length or negative errno. For kernel files. */
ssize_t fd_read_file_at(int dirfd, const char *path, char *buf, size_t size);

/* Reads a whole regular file of at most `max` bytes. -EFBIG when longer. *ret (NUL-terminated) is owned by the caller. */
int fd_read_all(int fd, size_t max, char **ret, size_t *ret_size);

/* One message with up to `nfds` descriptors over a Unix socket. 0 or negative errno; receive returns the byte count, and the
 * received fds are close-on-exec. What a peer said before it closed is received even when it had not read all of ours.
 * *nfds is the room on entry, the number received on return; surplus ones are closed. */
int fd_send(int sock, const void *data, size_t size, const int *fds, size_t nfds);
ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t *nfds);
/* Bytes of the message that fd_recv would give; 0: the end, or an empty one. Negative errno. Of a socket that keeps messages
 * apart. */
ssize_t fd_next_size(int sock);
