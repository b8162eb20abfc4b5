#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { FD_PASS_MAX = 64 };

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void) close(*fd);
	*fd = -EBADF;
	errno = saved;
}

int fd_sanitize_stdio(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		int null;

		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* Without O_CLOEXEC: 0 to 2 are handed on like the caller's own. */
		null = open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY); /* lint: stdio */
		if (null < 0)
			return -errno;
	}
	return 0;
}

int fd_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int fd_write_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		size -= (size_t) n;
	}
	return 0;
}

int fd_write_stream(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			(void) poll(&p, 1, -1); /* what it says shows in the next write */
		} else if (n < 0 && errno != EINTR) {
			return -errno;
		} else if (n > 0) {
			at += n;
			size -= (size_t) n;
		}
	}
	return 0;
}

int fd_write_file_at(int dirfd, const char *path, const char *text)
{
	size_t size = strlen(text);
	cleanup_fd int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, size);
	if (n < 0)
		return -errno;
	return (size_t) n == size ? 0 : -EIO;
}

ssize_t fd_read_file_at(int dirfd, const char *path, char *buf, size_t size)
{
	cleanup_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t have = 0;

	if (fd < 0)
		return -errno;
	while (have < size - 1) {
		ssize_t n = read(fd, buf + have, size - 1 - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t) n;
	}
	buf[have] = '\0';
	return (ssize_t) have;
}

int fd_read_all(int fd, size_t max, char **ret, size_t *ret_size)
{
	cleanup_free char *buf = NULL;
	size_t room = 0, have = 0;

	for (;;) {
		ssize_t n;

		if (have == room) {
			if (room > max)
				return -EFBIG;
			room = room == 0 ? 4096 : room * 2;
			if (room > max)
				room = max + 1; /* one more than allowed, to notice the excess */
			buf = xrealloc(buf, room + 1, 1);
		}
		n = read(fd, buf + have, room - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t) n;
		if (have > max)
			return -EFBIG;
	}
	buf[have] = '\0';
	*ret = take_ptr(&buf);
	*ret_size = have;
	return 0;
}

int fd_send(int sock, const void *data, size_t size, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *) (uintptr_t) data, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (nfds > FD_PASS_MAX)
		return -E2BIG;
	if (nfds > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t) n == size ? 0 : -EIO;
}

ssize_t fd_next_size(int sock)
{
	unsigned resets = 0;
	ssize_t n;

	do
		n = recv(sock, NULL, 0, MSG_PEEK | MSG_TRUNC);
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0))); /* as fd_recv */
	return n < 0 ? -errno : n;
}

ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t *nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof control.buf};
	size_t room = nfds != NULL ? *nfds : 0, have = 0;
	unsigned resets = 0;
	ssize_t n;

	/* A peer that has closed without having read all is told first, and once; what it said is there all the same. */
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
	if (nfds != NULL)
		*nfds = 0;
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
			if (have < room)
				fds[have++] = fd;
			else
				fd_close(&fd);
		}
	}
	if (nfds != NULL)
		*nfds = have;
	return n;
}
