/* A stream of the sandbox: bytes from one end to the other, or into the result. Backpressure is passed on: as long as one chunk
 * has not been taken, nothing more is read. Nothing is allocated while bytes move, and nothing waits for more to come. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/endpoint.h"
#include "sandbox/result.h"

#define RELAY_CHUNK 65536u                /* a default pipe full */
#define CAPTURE_MAX (UINT64_C(256) << 20) /* of one stream, when the policy sets no limit */

/* Head and tail of a stream: all of it up to `limit`, then the first and the last half of that. */
struct capture {
	char *data;
	size_t limit, room, size;
	size_t oldest; /* where the ring in the second half begins, once the limit was passed */
	uint64_t total;
};

void capture_add(struct capture *c, const char *data, size_t size);
/* Hands the bytes over, cut at whole characters where there was a gap. */
void capture_finish(struct capture *c, struct stream_result *ret);

struct relay {
	struct endpoint from, to;
	bool capturing; /* into `capture`, not to `to` */
	bool paused;    /* read nothing now */
	bool edge;      /* `from` is the caller's terminal: watched edge-triggered, to be stepped until it would wait */
	bool ended;     /* nothing more will come from `from` */
	bool broken;    /* `to` does not take any more */
	struct capture capture;
	uint64_t limit; /* bytes that are handed on; further ones are read, counted and dropped */
	uint64_t bytes, handed, dropped;
	int error; /* errno of the write that failed for good (not EPIPE), 0 */
	char *chunk;
	size_t start, have; /* of the chunk: what has yet to be handed on */
	size_t held;        /* behind it: the beginning of a character that may not fit below the limit */
};

void relay_init(struct relay *r, struct endpoint from, struct endpoint to, uint64_t limit);
void relay_capture(struct relay *r, struct endpoint from, uint64_t limit);

/* Moves at most one chunk. True when it moved or ended something (call again to drain), false when it would have to wait. */
bool relay_step(struct relay *r, int epoll);
/* Nobody writes to the source any more: moves all that lies there, as far as the other end takes it, and waits for nothing else.
 */
void relay_drain(struct relay *r, int epoll);
/* Asks epoll for what the relay waits for. `tag` for the source, `tag` + 1 for the other end. */
int relay_watch(struct relay *r, int epoll, uint64_t tag);
/* Everything that came was handed on, or there is nobody to hand it to. */
bool relay_done(const struct relay *r);
void relay_close(struct relay *r, int epoll, struct stream_result *ret); /* ret may be NULL */
