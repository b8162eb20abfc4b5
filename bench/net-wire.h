/* What net-client asks of net-server. The plain services speak it bare, or (HELLO) after one TLS record, a ClientHello, which the
 * server skips: that is all of TLS that a rule of protocol tls looks at, so that what follows costs no cryptography on either
 * side. A connection begins with one byte:
 *
 *	ASK_ECHO     the server sends it back; any number of times
 *	ASK_IN       a uint32_t of milliseconds follows; the server sends for so long and closes
 *	ASK_OUT      the client sends chunks, the first byte of each of which says whether another one follows; the server answers
 *	             with a uint64_t, the bytes that came. (An end of file would do, if every relay passed it on alone.)
 *
 * The TLS service speaks HTTP/1.1: GET /N gives a body of N bytes, POST takes one and answers with a short one. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ASK_ECHO = 'e', ASK_IN = 'i', ASK_OUT = 'o' };

/* Bytes that one call moves, of plain connections and of TLS ones (there a record is 16 KiB anyway). */
enum { CHUNK = 256 * 1024, TLS_CHUNK = 64 * 1024 };

enum { CHUNK_LAST, CHUNK_MORE };

enum { HEAD_MAX = 8192 };

static inline uint64_t now_ns(void)
{
	struct timespec t;

	(void) clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t) t.tv_sec * 1000000000U + (uint64_t) t.tv_nsec;
}

static inline bool send_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = send(fd, p, size, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		size -= (size_t) n;
	}
	return true;
}

static inline bool receive_all(int fd, void *data, size_t size)
{
	return size == 0 || recv(fd, data, size, MSG_WAITALL) == (ssize_t) size;
}
