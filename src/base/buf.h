/* A growable byte buffer that knows its ceiling from birth. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *data; /* NUL-terminated behind `size` when anything was added */
	size_t size, room, max;
};

#define cleanup_buf __attribute__((cleanup(buf_done)))

static inline struct buf buf_new(size_t max)
{
	return (struct buf){.max = max};
}

/* 0, or -E2BIG (nothing added) when the ceiling would be passed. */
int buf_add(struct buf *b, const void *data, size_t size);
int buf_adds(struct buf *b, const char *s);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_done(struct buf *b);
