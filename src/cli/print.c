#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

enum { EXIT_REFUSED = 125 };

int cli_write(int fd, const char *text, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, text, size);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			(void) poll(&p, 1, -1); /* what it says shows in the next write */
		} else if (n < 0 && errno != EINTR) {
			return -errno;
		} else if (n > 0) {
			text += n;
			size -= (size_t) n;
		}
	}
	return 0;
}

int cli_print(const char *text)
{
	int r = cli_write(STDOUT_FILENO, text, strlen(text));

	if (r == 0)
		return 0;
	log_error("cannot write to standard output: %s", strerror(-r));
	return EXIT_REFUSED;
}
