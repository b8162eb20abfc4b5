#include "egress/inflate.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdint.h>
#include <zlib.h>

#include "base/mem.h"

enum { PIECE = 16 * 1024, WINDOW_ANY = 15 + 32 /* zlib or gzip, by what the header says */ };

struct inflate {
	z_stream z;
	uint64_t taken, given;
	bool done, any_ratio;
};

struct inflate *inflate_new(void)
{
	struct inflate *z = xcalloc(1, sizeof *z);

	if (inflateInit2(&z->z, WINDOW_ANY) != Z_OK) {
		free(z);
		return NULL;
	}
	return z;
}

void inflate_any_ratio(struct inflate *z)
{
	z->any_ratio = true;
}

void inflate_free(struct inflate *z)
{
	if (z == NULL)
		return;
	(void) inflateEnd(&z->z);
	free(z);
}

/* Decodes one piece of at most PIECE bytes. */
static int step(struct inflate *z, struct evbuffer *in, struct evbuffer *out, size_t *ret_given)
{
	unsigned char piece[PIECE];
	struct evbuffer_iovec v = {.iov_base = NULL};
	size_t taken, given;
	int r;

	(void) evbuffer_peek(in, 1, NULL, &v, 1);
	z->z.next_in = v.iov_base;
	z->z.avail_in = v.iov_len < PIECE ? (uInt) v.iov_len : PIECE;
	taken = z->z.avail_in;
	z->z.next_out = piece;
	z->z.avail_out = PIECE;
	r = inflate(&z->z, Z_NO_FLUSH);
	taken -= z->z.avail_in;
	given = PIECE - z->z.avail_out;
	(void) evbuffer_drain(in, taken); /* it was seen to hold that much */
	(void) evbuffer_add(out, piece, given);
	z->taken += taken;
	z->given += given;
	*ret_given = given;
	if (r == Z_STREAM_END)
		return 1;
	if (r == Z_BUF_ERROR || (r == Z_OK && taken == 0 && given == 0))
		return -EAGAIN;
	return r == Z_OK ? 0 : -EBADMSG;
}

int inflate_take(struct inflate *z, struct evbuffer *in, struct evbuffer *out, size_t room)
{
	while (!z->done) {
		size_t given = 0;
		int r;

		if (room == 0)
			return 0;
		r = step(z, in, out, &given);
		if (!z->any_ratio && z->given > INFLATE_FREE && z->given / INFLATE_RATIO_MAX > z->taken)
			return -E2BIG;
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		z->done = r == 1;
		room -= given < room ? given : room;
	}
	return 1;
}
