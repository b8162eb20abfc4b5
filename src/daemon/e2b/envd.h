/* The RPCs of a sandbox's own interface: what envd.c, envd-process.c and envd-filesystem.c share. */
#pragma once

#include "daemon/e2b/connect.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"

/* One call whose message has come. `message` is borrowed. A handler ends the request, now or later. */
struct envd_call {
	struct request *request;
	struct sandbox *sandbox; /* which runs */
	const json_t *message;
	int64_t user; /* as processes.h has it */
};

struct envd_method {
	const char *path;
	bool streams; /* the answer */
	void (*run)(const struct envd_call *c);
};

extern const struct envd_method envd_process_methods[], envd_filesystem_methods[]; /* a NULL path ends each */

/* Before a stream has begun: refuses in the form of the call (an end-of-stream error, or an answer). */
void envd_refuse(const struct envd_call *c, bool streams, enum connect_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
