#include "egress/pipes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

enum { SPARE_MAX = 8, LARGE_MAX = 8 };

struct pipes {
	struct pipe_ends spare[SPARE_MAX];
	size_t count; /* of the spare ones */
	size_t made;  /* that there are, spare or borrowed */
};

struct pipes *pipes_new(void)
{
	return xcalloc(1, sizeof(struct pipes));
}

static void ends_close(struct pipes *p, struct pipe_ends *ends)
{
	if (ends->read >= 0)
		p->made--;
	fd_close(&ends->read);
	fd_close(&ends->write);
}

void pipes_free(struct pipes *p)
{
	if (p == NULL)
		return;
	while (p->count > 0)
		ends_close(p, &p->spare[--p->count]);
	free(p);
}

int pipes_borrow(struct pipes *p, struct pipe_ends *ret)
{
	int fds[2];

	if (p->count > 0) {
		*ret = p->spare[--p->count];
		return 0;
	}
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	if (p->made++ < LARGE_MAX)
		(void) fcntl(fds[1], F_SETPIPE_SZ, PIPE_WANTED); /* a small one works too */
	*ret = (struct pipe_ends){.read = fds[0], .write = fds[1]};
	return 0;
}

void pipes_return(struct pipes *p, struct pipe_ends *ends, size_t held)
{
	if (ends->read >= 0 && held == 0 && p->count < SPARE_MAX)
		p->spare[p->count++] = *ends;
	else
		ends_close(p, ends);
	*ends = PIPE_NONE;
}
