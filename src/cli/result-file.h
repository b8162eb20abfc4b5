/* The file of --result: complete or not there. Claimed before the run, so that a place that cannot be written to stops it. */
#pragma once

#include "base/err.h"

struct result_file {
	const char *path;
	int folder; /* O_PATH, -EBADF: written directly (a pipe, a device, a link) */
	char *name; /* in the folder */
	int fd;     /* without a name yet, or the thing itself; -EBADF: made at the end, where the file system has no O_TMPFILE */
};

int result_file_open(const char *path, struct result_file *ret, struct zw_error *e);
/* Writes text and a newline, and puts the file in place. */
int result_file_write(struct result_file *f, const char *text, struct zw_error *e);
void result_file_done(struct result_file *f);
