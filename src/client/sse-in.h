/* Server-sent events as they arrive, in pieces of any size (HTML standard, section 9.2.6). Pure; the bytes are a stranger's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { SSE_LINE_MAX = 1024 * 1024, SSE_WORD_MAX = 255 };

struct sse_in {
	struct buf line, data;
	char event[SSE_WORD_MAX + 1], id[SSE_WORD_MAX + 1]; /* id: of the last whole event that had any, for Last-Event-ID */
	char next_id[SSE_WORD_MAX + 1];                     /* of the event that is coming */
	bool after_cr, begun;
	/* `data` is NUL-terminated. Not 0: stop, and sse_in_take returns it. */
	int (*event_is)(void *ctx, const char *event, const char *data, size_t size);
	void *ctx;
};

/* `most`: bytes of a line, and of the data of an event. */
void sse_in_init(struct sse_in *s, size_t most, int (*event_is)(void *ctx, const char *event, const char *data, size_t size),
		 void *ctx);
void sse_in_done(struct sse_in *s);
/* 0, -E2BIG when a line or an event is larger than that, or what the callback returned. */
int sse_in_take(struct sse_in *s, const char *data, size_t size);
/* A new connection: what was cut off is forgotten, the last id is not. */
void sse_in_again(struct sse_in *s);
