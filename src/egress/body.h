/* Bodies of HTTP messages: taken out of the framing they came in, and framed anew. What is sent on was written here; the framing
 * of a peer is never copied. Bytes move between evbuffers without copying where they can. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evbuffer;

enum body_kind { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };

struct body {
	enum body_kind kind;
	uint64_t left;  /* of the length or of the chunk */
	uint64_t total; /* bytes of content so far */
	uint64_t max;   /* of content; ZW_UNLIMITED */
	int state;      /* of the chunked coding */
	unsigned line;  /* bytes of the line that is being read */
	unsigned trailers;
	bool done;
};

/* `length` is for BODY_LENGTH. */
void body_begin(struct body *b, enum body_kind kind, uint64_t length, uint64_t max);

/* Moves content, at most `room` bytes of it, from the framed bytes `in` to the end of `out`, and removes the framing. b->done is
 * true when the body is whole; what follows in `in` is not touched. 0; -EBADMSG: not the coding it should be; -E2BIG: more than
 * `max` (what was moved up to then is within it). */
int body_take(struct body *b, struct evbuffer *in, struct evbuffer *out, size_t room);
/* No more bytes will come, and `in` is empty. 0 when the body is whole by that, else -EPIPE. */
int body_end(struct body *b);

/* Appends all of `content` to `out` as one piece of a body of that kind; `content` is empty then. */
void body_put(enum body_kind kind, struct evbuffer *content, struct evbuffer *out);
/* The end of the body. */
void body_put_end(enum body_kind kind, struct evbuffer *out);
