/* multipart/form-data (RFC 7578), read as it comes in. Strict: the first boundary stands at the very beginning, lines end with
 * CRLF, and what is no such body is refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct evbuffer;

enum { MULTIPART_BOUNDARY_MAX = 70, MULTIPART_HEAD_MAX = 16 * 1024, MULTIPART_NAME_SIZE = 256, MULTIPART_FILENAME_SIZE = 4096 };

enum multipart_event {
	MULTIPART_MORE,     /* more input is needed */
	MULTIPART_PART,     /* a part begins: name and filename are set */
	MULTIPART_DATA,     /* some of its content was moved to `out` */
	MULTIPART_PART_END, /* it is whole */
	MULTIPART_END,      /* so is the body; what follows was dropped */
	MULTIPART_BAD,
};

struct multipart {
	char mark[4 + MULTIPART_BOUNDARY_MAX + 1]; /* CRLF, "--" and the boundary */
	size_t mark_size;
	int state;
	char name[MULTIPART_NAME_SIZE];
	char filename[MULTIPART_FILENAME_SIZE]; /* with its folders; "" when there is none */
};

/* False when the content type is not multipart/form-data with a boundary. */
bool multipart_begin(struct multipart *m, const char *content_type);
/* The next thing in `in`, which is removed from it. */
enum multipart_event multipart_next(struct multipart *m, struct evbuffer *in, struct evbuffer *out);
