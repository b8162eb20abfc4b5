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
	bool streams; /* the answer, or the client's messages: both are in envelopes */
	void (*run)(const struct envd_call *c);
	/* In place of `run`, for one that reads the client's messages as they come. Ends the request. */
	void (*begin)(struct request *r, struct sandbox *s);
};

extern const struct envd_method envd_process_methods[], envd_filesystem_methods[]; /* a NULL path ends each */

/* Before a stream has begun: refuses in the form of the call (an end-of-stream error, or an answer). */
void envd_refuse(const struct envd_call *c, bool streams, enum connect_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- envd-process.c, envd-input.c ---- */

struct process;
/* The process that {"pid"} or {"tag"} names, with envd_running() one that has not ended; NULL with the request refused. */
struct process *envd_process(const struct envd_call *c, const json_t *which, bool streams);
struct process *envd_running(const struct envd_call *c, const json_t *which, bool streams);
void envd_send_input(const struct envd_call *c);
void envd_close_input(const struct envd_call *c);
void envd_stream_input(struct request *r, struct sandbox *s);

/* ---- envd-filesystem.c, envd-watch.c ---- */

struct files_change;
struct files_entry;
/* What an error of a files_call is here. Static words. */
enum connect_code envd_files_code(int error);
const char *envd_files_words(int error);
/* EntryInfo: a link has type and mode of where it leads. */
json_t *envd_entry_to_json(const struct files_entry *e);
/* The path `name` of the message as the program inside takes it; NULL with the request refused. */
const char *envd_path(const struct envd_call *c, const char *name, bool streams);
void envd_watch_directory(const struct envd_call *c);
void envd_create_watcher(const struct envd_call *c);
void envd_get_watcher_events(const struct envd_call *c);
void envd_remove_watcher(const struct envd_call *c);
