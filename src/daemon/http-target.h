/* The target of a request, taken apart: the path into decoded segments, the query into decoded pairs. Nothing is resolved: a path
 * with "." or ".." (also percent-encoded), or with an encoded "/" or NUL inside a segment, names nothing here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { TARGET_SEGMENTS_MAX = 24, QUERY_PAIRS_MAX = 64 };

struct query_pair {
	const char *name, *value; /* decoded, NUL-terminated, without NUL inside; any other bytes */
};

struct target_parts {
	char *text;                                /* what the others point into; owned */
	const char *segments[TARGET_SEGMENTS_MAX]; /* of "/v1/keys": "v1", "keys"; "" behind a slash at the end */
	size_t segment_count;
	struct query_pair pairs[QUERY_PAIRS_MAX];
	size_t pair_count;
};

enum target_verdict {
	TARGET_GOOD,
	TARGET_NOWHERE, /* names nothing: 404 */
	TARGET_BAD,     /* malformed: 400 */
};

/* `path` begins with '/' and has no query; `query` (without '?') may be NULL. *ret is to be released in any case. *why is set
 * unless the verdict is good (static text). */
enum target_verdict target_parts_parse(const char *path, const char *query, struct target_parts *ret, const char **why);
void target_parts_done(struct target_parts *t);

/* The authority "name", "name:port", "10.0.0.1:80", "[::1]:80": the name in lower case without port, brackets and final dot, into
 * `ret` (size HOST_SIZE). False when it is none. */
enum { HOST_SIZE = 256 };
bool host_parse(const char *text, size_t size, char ret[HOST_SIZE]);
/* "localhost", "sbx.localhost", 127.0.0.0/8, ::1. */
bool host_is_loopback(const char *host);
