/* The supervisor's receiver against an agent that says anything. The first byte of the input says how many bytes go with each
 * write, and whether a descriptor comes along. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/channel.h"
#include "base/fd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes all messages that are there. What is handed out must be what the protocol allows. */
static int take_all(struct channel *c)
{
	for (;;) {
		struct msg_in m = {.fd = -EBADF};
		struct zw_error e = {0};
		int r = channel_receive(c, &m, &e);

		if (r <= 0) {
			if (r < 0 && (e.code != r || e.text[0] == '\0'))
				abort();
			return r;
		}
		if (m.type != MSG_STARTED && m.type != MSG_EXEC_FAILED && m.type != MSG_EXITED && m.type != MSG_CONNECTED)
			abort();
		if (m.type == MSG_STARTED && m.started.pid <= 0)
			abort();
		if (m.fd >= 0 && m.type != MSG_STARTED && (m.type != MSG_CONNECTED || m.connected.error != 0))
			abort();
		fd_close(&m.fd);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct channel c;
	int fds[2], passed;
	size_t step;

	if (size < 2 || size > 65536 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return 0;
	if (channel_init(&c, fds[0], NULL) < 0)
		abort();
	passed = open("/dev/null", O_RDONLY | O_CLOEXEC); /* not an end of the channel, which would keep itself open in flight */
	step = (size_t) (data[0] & 0x7f) + 1;
	for (size_t at = 1; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		if (fd_send(fds[1], data + at, n, &passed, (data[0] & 0x80) != 0 && at > 1 ? 1 : 0) < 0)
			break;
		if (take_all(&c) < 0)
			break;
	}
	fd_close(&passed);
	fd_close(&fds[1]);
	if (take_all(&c) >= 0) /* the end is told, or a breach */
		abort();
	channel_done(&c);
	fd_close(&fds[0]);
	return 0;
}
