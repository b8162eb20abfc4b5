/* Asks a program of the host: runs it and takes what it writes to its standard output. It runs in a process group of its own, so
 * that what it starts can be ended with it, reads nothing, and is ended when its time is over. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/clock.h"

struct program_call {
	const char *program; /* a path, or with `search` a name that is looked up in PATH */
	char *const *argv, *const *environment;
	bool search;
	bool quiet;         /* standard error goes to /dev/null, not to the caller's */
	const char *folder; /* to run in, NULL: the caller's */
	usec_t patience;
};

/* The bytes (fewer than `room`), or negative errno: of the start when *ret_started is false; else -ETIMEDOUT, -E2BIG, of reading,
 * or -ECHILD when the program did not exit with 0. */
ssize_t program_output(const struct program_call *call, char *buf, size_t room, bool *ret_started);
