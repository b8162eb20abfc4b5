/* Work on the files of one sandbox: requests to its zwinger-files, answers to callbacks. Used by every interface of the daemon.
 *
 * Everything happens in the event loop and never waits. A request is a `files_call` until its `end` callback, which comes exactly
 * once unless it was canceled, and always as the last. Requests beyond what runs at once (a few of those that take long, so that
 * short ones are never behind them) wait in order in a queue that has an end.
 *
 * Contents pass through pipes of ours; no descriptor ever comes out of a sandbox (files-protocol.h says why). Callbacks may make
 * and cancel calls, and free the client. Not thread safe. */
#pragma once

#include <event2/event.h>

#include "base/err.h"
#include "daemon/files-decode.h"

struct files_client;
struct files_call;

struct files_ask {
	enum files_type type; /* not FILES_COMMIT or FILES_CANCEL */
	unsigned flags;       /* enum files_flags */
	const char *path, *other;
	size_t path_size, other_size; /* 1 (other: 0) to FILES_PATH_MAX - 1 bytes, without NUL */
	const void *data;             /* with FILES_WHOLE */
	size_t data_size;
	const void *metadata; /* with FILES_METADATA, of WRITE: as in struct files_entry */
	size_t metadata_size; /* at most FILES_METADATA_MAX */
	uint32_t mode, limit, depth;
	uint64_t offset, length; /* of READ */
};

struct files_change {
	enum files_event_kind kind;
	const char *path; /* "" with an overflow */
	bool folder;
	const struct files_entry *entry; /* or NULL */
};

/* How a call ended. What is pointed to is gone when the callback returns. */
struct files_end {
	int error; /* 0; a positive errno, or an enum files_error: the sandbox's answer; ESHUTDOWN: the program is gone, or broke
		      its protocol; EMFILE, ENFILE, ENOMEM: it, or we, lacked something */
	bool created;      /* WRITE, MKDIR: it was not there before */
	bool more;         /* LIST: go on behind the last entry, its path as `other` */
	uint64_t bytes;    /* READ, PACK: so many must have come out of the pipe when it ends, or the content is not whole; WRITE,
				    UNPACK: taken */
	uint32_t uid, gid; /* USER */
	const struct files_entry *entry; /* STAT, WRITE, MKDIR, MOVE: there when error is 0; else NULL */
};

struct files_callbacks {
	/* READ: `fd` is the end to read from, `range` what will come, `entry` the file (a regular one). `end` may come before all
	 * was read, and the pipe may end before `end`. The content is whole when both agree; a hostile program can send more,
	 * less, or never end: stop at range->length, and do not wait for ever. WRITE: `fd` is the end to write to; close it, then
	 * files_commit. WATCH: from now on changes are told; `fd` is -EBADF. `fd` is non-blocking, and the receiver's. */
	void (*opened)(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry);
	void (*entry)(void *ctx, const struct files_entry *entry); /* LIST */
	/* WATCH. They come as fast as the sandbox makes them: who passes them on slower must drop some and say so. */
	void (*change)(void *ctx, const struct files_change *change);
	void (*end)(void *ctx, const struct files_end *end);
};

/* What START gets (agent/channel.h): stdin, stdout, stderr and channel. Close them when they were sent. */
struct files_ends {
	int in, out, err, channel;
};

/* `gone` (may be NULL) is called once, after all calls have ended, when the program's end of the line closes or speaks nonsense.
 */
int files_client_new(struct event_base *base, void (*gone)(void *ctx, const char *why), void *ctx, struct files_client **ret,
		     struct files_ends *ret_ends, struct zw_error *e);
/* Drops all calls without a callback. The program ends when its requests do. NULL is fine. */
void files_client_free(struct files_client *c);
/* To be called when the program has ended: code inside may still hold its end of the line. Calls end with ESHUTDOWN. */
void files_client_end(struct files_client *c, const char *why);

/* 0 and *ret (may be NULL), or -EINVAL (no such request), -EAGAIN (too many wait), -ENOMEM, -ESHUTDOWN. No callback comes before
 * it returns. All callbacks but `end` may be NULL where they cannot come. */
int files_call(struct files_client *c, const struct files_ask *ask, const struct files_callbacks *callbacks, void *ctx,
	       struct files_call **ret);
/* WRITE, UNPACK, after `opened`: everything is in the pipe, `bytes` in all. Once. */
void files_commit(struct files_call *call, uint64_t bytes);
/* No callback will come any more. A WRITE leaves nothing behind unless it is committed already. */
void files_cancel(struct files_call *call);
