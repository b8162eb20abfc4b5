/* zwinger cp: both directions. Each returns 0, or EXIT_REFUSED after lines that say what was not copied; what can be copied is.
 */
#pragma once

#include "client/remote.h"

struct copy {
	struct remote *remote;
	const char *id, *user; /* user may be NULL */
	size_t entries;        /* seen until now */
};

enum { COPY_DEPTH_MAX = 128, COPY_ENTRIES_MAX = 1000000 };

/* "/v1/sandboxes/ID/files..."; owned by the caller. */
char *copy_path(const struct copy *c, const char *what, const char *path);
/* A type and mode of an entry: "file", 0644. False when it has none of ours. */
bool copy_entry_is(const json_t *entry, const char *type);
mode_t copy_entry_mode(const json_t *entry);

int copy_into(struct copy *c, const char *from, const char *path); /* `from`: here; "-" is standard input */
int copy_out_of(struct copy *c, const char *path, const char *to); /* `to`: here; "-" is standard output */
