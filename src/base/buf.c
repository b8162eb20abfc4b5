#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

int buf_add(struct buf *b, const void *data, size_t size)
{
	if (size > b->max - b->size)
		return -E2BIG;
	if (b->size + size >= b->room) {
		size_t room = b->room < 128 ? 256 : b->room * 2;

		if (room < b->size + size + 1)
			room = b->size + size + 1;
		b->data = xrealloc(b->data, room, 1);
		b->room = room;
	}
	if (size > 0)
		memcpy(b->data + b->size, data, size);
	b->size += size;
	b->data[b->size] = '\0';
	return 0;
}

int buf_adds(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM;
	return buf_add(b, text, (size_t) n);
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){.max = b->max};
}
