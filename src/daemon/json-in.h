/* JSON of requests: one strict reading of bytes that come from a peer. RFC 8259 and no more; besides that refused, each with the
 * place where it stands ("policy.limits.memory", "command[2]"): a member that is there twice, NUL in a member's name, text that
 * is not UTF-8, half of a surrogate pair, a number that is not finite or, written whole, does not fit 64 bits, more depth or more
 * values than a request of ours can need.
 *
 * What is in the document is then held against the table of the members that the request knows. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

enum { JSON_IN_DEPTH_MAX = 64, JSON_IN_VALUES_MAX = 100000, JSON_FAULTS_MAX = 16, JSON_PATH_SIZE = 256 };

struct json_fault {
	char path[JSON_PATH_SIZE]; /* "" is the document itself */
	char message[200];
	char expected[100];  /* "" when nothing is to be said */
	char suggestion[80]; /* "" when there is none */
};

struct json_faults {
	struct json_fault items[JSON_FAULTS_MAX];
	size_t count; /* more are not noted */
};

/* A fault of a handler's own. `expected` may be NULL. */
void json_fault_add(struct json_faults *f, const char *path, const char *expected, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The list `errors` of a problem document; NULL when there is no fault. Owned by the caller. */
json_t *json_faults_list(const struct json_faults *f);

/* The document, owned by the caller; NULL with one fault. Any value may stand at the top. */
json_t *json_in_parse(const char *text, size_t size, struct json_faults *f);

/* Kinds of a value, or-ed. */
enum {
	JSON_IN_TEXT = 1,
	JSON_IN_NUMBER = 2, /* whole or not */
	JSON_IN_WHOLE = 4,
	JSON_IN_BOOL = 8,
	JSON_IN_OBJECT = 16,
	JSON_IN_LIST = 32,
	JSON_IN_NULL = 64,
	JSON_IN_REQUIRED = 128, /* must be there */
	JSON_IN_NUL = 256,      /* its texts may hold NUL: read them with json_string_length */
	JSON_IN_TEXTS = 512,    /* a list of texts, or an object whose values are texts, alone */
};

struct json_field {
	const char *name; /* NULL ends a table */
	unsigned kinds;
};

/* Is the document an object with the members of the table alone, each of its kind? NUL is refused in all texts, however deep, of
 * fields without JSON_IN_NUL. A NULL table: any object. True when no fault was added. */
bool json_in_check(const json_t *document, const struct json_field *fields, struct json_faults *f);

/* The text of a member, NULL when it is not there (or null). */
const char *json_in_text(const json_t *object, const char *name);

/* Durations: "300s", "1.5s", "200ms", or a number of seconds; sizes: "512M", or a number of bytes. False with a fault at `path`.
 * The result of "null" and of what is not there is left to the caller: `value` is a text or a number. */
bool json_in_usec(const json_t *value, const char *path, usec_t *ret, struct json_faults *f);
bool json_in_size(const json_t *value, const char *path, uint64_t *ret, struct json_faults *f);
