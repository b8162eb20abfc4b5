/* The MCP server: what its parts share.
 *
 *	transport (http.c, stdio.c) -> protocol.c -> call.c -> a tool (tool-*.c) -> sandboxes, processes, files
 *
 * An OWNER has named sandboxes and calls: the process of the stdio form, a session of a revision with handshake, or, where the
 * protocol is stateless, the key. A CALL is one tools/call from its message to its answer. It has a sandbox (boxes.c), which is
 * made on first use and lives until nobody has used it for a while; a tool works in it and ends the call with mcp_call_end(). A
 * client that cancels or leaves makes the call stop its work; it ends as always, but nothing is sent any more.
 *
 * No argument of a tool reaches the policy: it is the operator's (--policy), within the ceiling. Everything happens in the event
 * loop. Not thread safe. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/mcp/message.h"
#include "daemon/sandbox.h"
#include "daemon/text-carry.h"

struct daemon;
struct evbuffer;
struct event;
struct mcp_call;
struct request;

enum {
	MCP_NAME_MAX = 64,             /* bytes of a sandbox's or context's name */
	MCP_BOXES_MAX = 64,            /* sandboxes of one owner */
	MCP_CALLS_MAX = 256,           /* calls under way of one owner */
	MCP_STREAM_MAX = 1024 * 1024,  /* of each output stream in structuredContent */
	MCP_SHOWN_MAX = 64 * 1024,     /* of each stream in the text block */
	MCP_READ_DEFAULT = 256 * 1024, /* of read_file */
	MCP_READ_MAX = 8 * 1024 * 1024,
	MCP_LIST_MAX = 1000,
	MCP_DENIALS_MAX = 100,
};
#define MCP_IDLE (30 * 60 * USEC_PER_SEC)
#define MCP_TIMEOUT_MAX (24 * 3600.0) /* seconds a call may ask for */

/* Oldest last. The first one is stateless. */
enum mcp_revision { MCP_2026_07_28, MCP_2025_11_25, MCP_2025_06_18, MCP_2025_03_26, MCP_REVISION_MAX };
extern const char *const mcp_revision_names[MCP_REVISION_MAX];

struct mcp_box {
	struct mcp_box *next;
	struct mcp_owner *owner;
	char *name;
	char id[SANDBOX_ID_SIZE]; /* of its sandbox; "": none yet */
	bool starting;
	bool again; /* the one before has ended: its files are gone, which the next call is told */
	unsigned users;
	struct mcp_call *waiting;
};

struct mcp_owner {
	struct daemon *daemon;
	const char *label; /* in the metadata of its sandboxes; static */
	struct mcp_box *boxes;
	struct mcp_call *calls;
	size_t call_count;
};

struct mcp_tool {
	const char *name, *title, *description;
	const char *input, *output; /* JSON: properties of the schema */
	const char *required;       /* JSON: a list */
	const char *output_required;
	bool read_only;
	void (*run)(struct mcp_call *c, struct sandbox *s);
};

/* Where the messages of a call go. */
struct mcp_line {
	/* Takes over `message`. The last one comes once; NULL with it: there is no answer, because it was canceled. */
	void (*send)(void *to, json_t *message, bool last);
	void *to;
	struct mcp_call **handle; /* is the call as long as that lives; may be NULL */
};

struct mcp_call {
	struct mcp_call *next, *next_waiting;
	struct mcp_owner *owner;
	enum mcp_revision revision;
	json_t *id, *token, *arguments; /* token: of progress, or NULL */
	const struct mcp_tool *tool;
	struct mcp_line line;

	struct mcp_box *box;
	char sandbox_id[SANDBOX_ID_SIZE];
	json_t *denials; /* what its work was denied: [{"kind", ..., "count", "rule", "allow"}] */
	bool again;      /* the sandbox is a new one in place of one that has ended */
	bool canceled;
	void (*stop)(struct mcp_call *c); /* of the tool: stops the work, which leads to mcp_call_end() now or later */
	void *work;                       /* the tool's */

	struct evbuffer *shown; /* output that no progress has told yet */
	struct text_carry carry;
	uint64_t told; /* bytes so far */
	struct event *timer;
};

/* ---- protocol.c ---- */

/* From a transport. One of the three: */
enum mcp_verdict {
	MCP_NOTHING,  /* a notification or a response: there is no answer */
	MCP_ANSWERED, /* *ret_answer, to be sent at once; owned by the caller */
	MCP_CALLED,   /* a call is under way, which sends its answer by itself (it may have ended already) */
};
enum mcp_verdict mcp_handle(struct mcp_owner *o, enum mcp_revision revision, const struct mcp_message *m,
			    const struct mcp_line *line, json_t **ret_answer);
/* The revision that a message names in its _meta: 0 and *ret, -ENOENT when it names none, -EINVAL with the error to send. */
int mcp_revision_of(const struct mcp_message *m, enum mcp_revision *ret, json_t **ret_error);
enum mcp_revision mcp_revision_named(const char *name); /* MCP_REVISION_MAX: none of ours */
/* The revision that `initialize` agrees on: the one asked for, else 2025-11-25. */
enum mcp_revision mcp_negotiate(const struct mcp_message *m);
json_t *mcp_unsupported(json_t *id, const char *asked);

/* ---- call.c ---- */

/* Nothing is sent for it any more; its work stops. */
void mcp_call_cancel(struct mcp_call *c);
/* Output of the program, for progress. */
void mcp_call_output(struct mcp_call *c, const char *data, size_t size);
/* Takes over all three; frees the call. `images` is a list of content blocks, or NULL. */
void mcp_call_end(struct mcp_call *c, json_t *structured, json_t *text, json_t *images, bool is_error);
/* One that got nowhere: `structured` (may be NULL) gets what the tool's schema asks for. */
void mcp_call_fail(struct mcp_call *c, json_t *structured, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
struct mcp_call *mcp_call_new(struct mcp_owner *o, const struct mcp_tool *tool, const struct mcp_message *m,
			      const struct mcp_line *line);
void mcp_call_begin(struct mcp_call *c);
struct mcp_call *mcp_call_find(struct mcp_owner *o, const json_t *id);
/* Frees it without a word; for the end of the daemon. */
void mcp_call_drop(struct mcp_call *c);

const char *mcp_argument(const struct mcp_call *c, const char *name); /* a text, or NULL */
/* timeout_seconds, ZW_UNLIMITED without. */
usec_t mcp_timeout(const struct mcp_call *c);

/* ---- boxes.c ---- */

/* The sandbox of the call, now or later: mcp_call_ready(), or the call fails. */
void mcp_box_enter(struct mcp_call *c, const char *name);
void mcp_box_leave(struct mcp_call *c);
void mcp_call_ready(struct mcp_call *c, struct sandbox *s);
/* Cancels its calls and ends its sandboxes. What is left of it goes when they have. */
void mcp_owner_end(struct mcp_owner *o, const char *reason);
bool mcp_owner_is_idle(struct mcp_owner *o); /* nothing lives in it */
void mcp_owner_done(struct mcp_owner *o);    /* without a word to anyone; for the end of the daemon */

/* ---- tools.c ---- */

json_t *mcp_tools_list(enum mcp_revision revision);
const struct mcp_tool *mcp_tool_find(const char *name);
/* NULL, or what is wrong with the arguments; `ret` has room for it. */
const char *mcp_tool_check(const struct mcp_tool *tool, const json_t *arguments, char *ret, size_t size);

/* ---- denials.c ---- */

/* Takes down what is in `list` (of the result document; may be NULL) more than in `before` (the same, or NULL). */
void mcp_denials_add(json_t *denials, const json_t *list, const json_t *before);
/* The list as sentences. */
void mcp_denials_tell(const json_t *denials, struct evbuffer *text);

/* ---- content.c ---- */

/* The bytes as text of at most `max` bytes: more are left out in the middle, which the text says and *ret_cut. Drains `data`. */
json_t *mcp_stream(struct evbuffer *data, size_t max, bool *ret_cut);
/* Parts of a text block. */
void mcp_say(struct evbuffer *text, const json_t *part, const char *label);
void mcp_say_line(struct evbuffer *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What is said first: that the sandbox is a new one. */
struct evbuffer *mcp_text_begin(const struct mcp_call *c);
/* The text, with the denials of the call at its end. Frees `text`. */
json_t *mcp_text_end(struct mcp_call *c, struct evbuffer *text);

/* ---- tool-*.c ---- */

void mcp_run_code(struct mcp_call *c, struct sandbox *s);
void mcp_run_command(struct mcp_call *c, struct sandbox *s);
void mcp_read_file(struct mcp_call *c, struct sandbox *s);
void mcp_write_file(struct mcp_call *c, struct sandbox *s);
void mcp_list_files(struct mcp_call *c, struct sandbox *s);
void mcp_sandbox_info(struct mcp_call *c, struct sandbox *s);

/* ---- http.c, stdio.c ---- */

struct mcp_http;
/* The route /mcp. */
void mcp_http_add(struct daemon *d);
struct mcp_http *mcp_http_free(struct mcp_http *h);

struct mcp_stdio;
/* Serves standard input and output; the end of the input ends the daemon. */
int mcp_stdio_start(struct daemon *d, struct zw_error *e);
/* Writes what is left, as far as somebody reads it soon. */
struct mcp_stdio *mcp_stdio_free(struct mcp_stdio *s);

/* ---- command.c: `zwinger mcp` ---- */

int mcp_command(int argc, char **argv);
