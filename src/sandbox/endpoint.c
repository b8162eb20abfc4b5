#include "sandbox/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int endpoint_own(int fd, struct endpoint *ret)
{
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0) /* a pipe or a terminal's master: there are no other flags to keep */
		return -errno;
	*ret = (struct endpoint){.fd = fd, .kind = ENDPOINT_OWN};
	return 0;
}

int endpoint_borrow(int fd, bool for_writing, struct endpoint *ret)
{
	struct endpoint e = ENDPOINT_CLOSED;
	char path[32];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		(void) snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		e.fd = open(path, (for_writing ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		e.kind = ENDPOINT_OWN;
		e.terminal = !for_writing && e.fd >= 0 && isatty(e.fd) == 1;
	}
	if (e.fd < 0) {
		/* No /proc, or a pipe that another user made and may not be opened by name. */
		e.kind = S_ISSOCK(st.st_mode)                          ? ENDPOINT_SOCKET
			 : S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode) ? ENDPOINT_SHARED
								       : ENDPOINT_FILE;
		e.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (e.fd < 0)
			return -errno;
		e.terminal = !for_writing && e.kind == ENDPOINT_SHARED && isatty(e.fd) == 1;
	}
	*ret = e;
	return 0;
}

void endpoint_close(struct endpoint *e, int epoll)
{
	(void) endpoint_watch(e, epoll, 0, 0);
	fd_close(&e->fd);
	e->kind = ENDPOINT_NONE;
}

static bool ready(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, 0) == 1;
}

ssize_t endpoint_read(const struct endpoint *e, void *buf, size_t size)
{
	ssize_t n;

	if (e->kind == ENDPOINT_SHARED && !ready(e->fd, POLLIN))
		return -EAGAIN;
	do
		n = e->kind == ENDPOINT_SOCKET ? recv(e->fd, buf, size, MSG_DONTWAIT) : read(e->fd, buf, size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t endpoint_write(const struct endpoint *e, const void *buf, size_t size)
{
	ssize_t n;

	if (e->kind == ENDPOINT_SHARED) {
		if (!ready(e->fd, POLLOUT))
			return -EAGAIN;
		size = size < PIPE_BUF ? size : PIPE_BUF;
	}
	do
		n = e->kind == ENDPOINT_SOCKET ? send(e->fd, buf, size, MSG_DONTWAIT | MSG_NOSIGNAL) : write(e->fd, buf, size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int endpoint_watch(struct endpoint *e, int epoll, uint32_t events, uint64_t tag)
{
	struct epoll_event ev = {.events = events, .data.u64 = tag};
	int op;

	if (e->fd < 0 || e->kind == ENDPOINT_FILE || e->watched == events)
		return 0;
	op = events == 0 ? EPOLL_CTL_DEL : e->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	if (epoll_ctl(epoll, op, e->fd, &ev) < 0) {
		if (errno != EPERM)
			return -errno;
		e->kind = ENDPOINT_FILE; /* a device without poll, such as /dev/zero */
		events = 0;
	}
	e->watched = events;
	return 0;
}
