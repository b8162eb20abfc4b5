/* The state directory: made with mode 0700, owned by the daemon's user, one daemon at a time. */
#pragma once

#include <stddef.h>

#include "base/err.h"

struct state {
	char *path;  /* absolute, without symbolic links: what SQLite and messages are given */
	int fd;      /* the directory */
	int lock_fd; /* -EBADF: not locked */
};

/* The default: /var/lib/zwinger for root, else $XDG_STATE_HOME/zwinger or ~/.local/state/zwinger. Owned by the caller; NULL with
 * a sentence when nothing says where home is. */
char *state_default(struct zw_error *e);

/* Opens the directory; makes it, and those above it, when it is not there. -EINVAL or -EPERM: refused for what it is (another
 * user's, writable by others); other codes: it could not be had. */
int state_open(const char *path, struct state *ret, struct zw_error *e);
/* -EBUSY with a sentence that names the process that has it. Held until state_done. */
int state_lock(struct state *s, struct zw_error *e);
void state_done(struct state *s);

/* Writes a file of mode 0600 whole or not at all: readers see the old or the new. `path` is relative to `dirfd`. */
int state_write_file(int dirfd, const char *path, const void *data, size_t size, struct zw_error *e);
