/* One end of a byte stream in the supervisor's loop. The caller's descriptors are open file descriptions shared with others (a
 * shell, the other side of a pipeline): their flags must stay as they are, yet the loop must never block in read(2) or write(2).
 * So pipes and terminals are opened once more through /proc/self/fd, which gives a description of our own, sockets are used with
 * MSG_DONTWAIT, and where neither goes, at most PIPE_BUF bytes are written after poll(2), which for pipes is promised not to
 * block (pipe(7)). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum endpoint_kind {
	ENDPOINT_NONE,
	ENDPOINT_OWN,    /* non-blocking by O_NONBLOCK on a description of ours */
	ENDPOINT_SOCKET, /* non-blocking by MSG_DONTWAIT */
	ENDPOINT_SHARED, /* ask poll(2) first, write little */
	ENDPOINT_FILE,   /* regular file and the like: always ready */
};

struct endpoint {
	int fd; /* owned, -EBADF when closed */
	enum endpoint_kind kind;
	bool terminal;    /* of those that are read: the caller's terminal */
	uint32_t watched; /* events asked of epoll, 0: not in the set */
};

#define ENDPOINT_CLOSED ((struct endpoint){.fd = -EBADF})

/* Takes over an fd that is ours alone, and makes it non-blocking. */
int endpoint_own(int fd, struct endpoint *ret);
/* Makes an endpoint of the caller's fd without changing anything that the caller can see. */
int endpoint_borrow(int fd, bool for_writing, struct endpoint *ret);
void endpoint_close(struct endpoint *e, int epoll);

/* As read(2) and write(2), with negative errno; -EAGAIN when it would block. */
ssize_t endpoint_read(const struct endpoint *e, void *buf, size_t size);
ssize_t endpoint_write(const struct endpoint *e, const void *buf, size_t size);

/* Asks epoll for exactly `events` (0: take it out, because EPOLLHUP and EPOLLERR cannot be turned off and would keep the loop
 * busy). */
int endpoint_watch(struct endpoint *e, int epoll, uint32_t events, uint64_t tag);
