/* Content encodings gzip and deflate, taken off a body that streams by, so that it can be looked into. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct evbuffer;
struct inflate;

/* What 1 MiB of zeros would compress to is far below; a body that expands further than this from the first MiB on is a bomb. */
enum { INFLATE_RATIO_MAX = 200, INFLATE_FREE = 1024 * 1024 };

struct inflate *inflate_new(void); /* NULL: no memory */
/* No bomb is looked for: for who passes on what comes, piece by piece, to where a limit holds. */
void inflate_any_ratio(struct inflate *z);
void inflate_free(struct inflate *z); /* takes NULL */

/* Decodes from `in` to the end of `out`, about `room` bytes at most. 1: the stream is whole (what follows in `in` is no part of
 * it); 0: more may come, from `in` if it is not empty and there was no room; -EBADMSG: not such a stream; -E2BIG: a bomb. */
int inflate_take(struct inflate *z, struct evbuffer *in, struct evbuffer *out, size_t room);
