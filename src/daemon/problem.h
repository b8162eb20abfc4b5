/* Errors as application/problem+json (RFC 9457): what went wrong, by a code that clients hold on to, a sentence that says what
 * happened and one that says what to do. No host path in either, nothing that the peer did not know. */
#pragma once

#include <jansson.h>

enum problem_code {
	PROBLEM_BAD_REQUEST,
	PROBLEM_INVALID_POLICY,
	PROBLEM_NOT_A_REGULAR_FILE,
	PROBLEM_NOT_A_DIRECTORY,
	PROBLEM_IS_A_DIRECTORY,
	PROBLEM_UNAUTHORIZED,
	PROBLEM_FORBIDDEN,
	PROBLEM_ABOVE_CEILING,
	PROBLEM_PERMISSION_DENIED,
	PROBLEM_NOT_FOUND,
	PROBLEM_METHOD_NOT_ALLOWED,
	PROBLEM_CONFLICT,
	PROBLEM_SANDBOX_ENDED,
	PROBLEM_TOO_LARGE,
	PROBLEM_UNSUPPORTED_MEDIA_TYPE,
	PROBLEM_MISDIRECTED,
	PROBLEM_NOT_ENFORCEABLE,
	PROBLEM_IDEMPOTENCY_KEY_REUSED,
	PROBLEM_BUSY,
	PROBLEM_UNAVAILABLE,
	PROBLEM_INSUFFICIENT_STORAGE,
	PROBLEM_INTERNAL,
	PROBLEM_NOT_SUPPORTED,
	PROBLEM_MAX
};

struct problem {
	enum problem_code code;
	unsigned status; /* 0: that of the code */
	char message[600];
	const char *hint;     /* NULL: none; text that outlives the call */
	unsigned retry_after; /* seconds; 0: not said. "busy" and "unavailable" say 1 then */
	json_t *errors;       /* a list, or NULL; stays the caller's */
	int exit_code;        /* of a command that could not be executed, as a shell tells it; 0: not said */
};

const char *problem_name(enum problem_code code);
unsigned problem_status(const struct problem *p);

/* The document as text, owned by the caller; NULL: no memory. Bytes of the message that are not UTF-8 are replaced. */
char *problem_json(const struct problem *p, const char *request_id);
