/* The pipe of a WRITE or an UNPACK: what comes, and whether it is all. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "agent/files/files.h"

bool all_has_come(const struct job *j)
{
	return j->committed && (j->ended || j->count >= j->length);
}

size_t take_piece(struct files *f, struct job *j, char *to, size_t size, enum step *ret)
{
	ssize_t n = j->ended ? 0 : read(j->pipe, to, size);

	if (n > 0)
		return (size_t) n;
	if (j->ended)
		*ret = wait_for(j, -1, 0); /* for COMMIT or CANCEL */
	else if (n < 0 && errno == EAGAIN)
		*ret = wait_for(j, j->pipe, POLLIN);
	else if (n < 0 && errno != EINTR)
		*ret = done(f, j, errno);
	else
		*ret = STEP_AGAIN;
	j->ended |= n == 0;
	return 0;
}
