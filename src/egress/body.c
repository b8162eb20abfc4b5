#include "egress/body.h"

#include <errno.h>
#include <event2/buffer.h>
#include <string.h>

#include "base/clock.h"
#include "base/hex.h"

/* The chunked coding, byte by byte outside of the data: a line with the size in hexadecimal and perhaps an extension, the data,
 * CR LF; behind the last chunk (size 0) trailer lines, which are dropped, and an empty line. */
enum chunk_state {
	CHUNK_SIZE,
	CHUNK_PADDING, /* spaces behind the size, which some senders write; another digit there would be read in two ways */
	CHUNK_EXTENSION,
	CHUNK_SIZE_LF,
	CHUNK_DATA,
	CHUNK_DATA_CR,
	CHUNK_DATA_LF,
	TRAILER_START,
	TRAILER,
	TRAILER_LF,
	LAST_LF
};

enum { CHUNK_DIGITS_MAX = 15, CHUNK_LINE_MAX = 256, TRAILERS_MAX = 8192, COPY_MAX = 4096 };

void body_begin(struct body *b, enum body_kind kind, uint64_t length, uint64_t max)
{
	*b = (struct body){.kind = kind, .left = kind == BODY_LENGTH ? length : 0, .max = max, .state = CHUNK_SIZE};
	b->done = kind == BODY_NONE || (kind == BODY_LENGTH && length == 0);
}

/* Moves up to `wanted` bytes of content. */
static int move(struct body *b, uint64_t wanted, struct evbuffer *in, struct evbuffer *out, size_t *room)
{
	size_t n = evbuffer_get_length(in);
	bool over;

	if (n > *room)
		n = *room;
	if (n > wanted)
		n = (size_t) wanted;
	over = b->max != ZW_UNLIMITED && n > b->max - b->total;
	if (over)
		n = (size_t) (b->max - b->total);
	if (n > 0 && evbuffer_remove_buffer(in, out, n) != (int) n)
		return -EBADMSG;
	b->total += n;
	*room -= n;
	if (b->kind != BODY_UNTIL_CLOSE)
		b->left -= n;
	return over ? -E2BIG : 0;
}

static int enter(struct body *b, enum chunk_state state)
{
	b->state = (int) state;
	b->line = 0;
	return 0;
}

static bool printable(unsigned char c)
{
	return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static int take_size(struct body *b, unsigned char c)
{
	int digit = hex_digit(c);

	if (digit >= 0) {
		b->left = b->left * 16 + (uint64_t) digit;
		return ++b->line <= CHUNK_DIGITS_MAX ? 0 : -EBADMSG;
	}
	if (b->line == 0)
		return -EBADMSG;
	if (c == '\r')
		return enter(b, CHUNK_SIZE_LF);
	if (c == ' ' || c == '\t')
		return enter(b, CHUNK_PADDING);
	return c == ';' ? enter(b, CHUNK_EXTENSION) : -EBADMSG;
}

static int take_padding(struct body *b, unsigned char c)
{
	if (c == '\r')
		return enter(b, CHUNK_SIZE_LF);
	if (c == ';')
		return enter(b, CHUNK_EXTENSION);
	return (c == ' ' || c == '\t') && ++b->line <= CHUNK_LINE_MAX ? 0 : -EBADMSG;
}

static int take_trailer(struct body *b, unsigned char c, bool first)
{
	if (++b->trailers > TRAILERS_MAX)
		return -EBADMSG;
	if (c == '\r')
		return enter(b, first ? LAST_LF : TRAILER_LF);
	b->state = TRAILER;
	return printable(c) ? 0 : -EBADMSG;
}

/* One byte of the framing. */
static int take_framing(struct body *b, unsigned char c)
{
	switch ((enum chunk_state) b->state) {
	case CHUNK_SIZE:
		return take_size(b, c);
	case CHUNK_PADDING:
		return take_padding(b, c);
	case CHUNK_EXTENSION:
		if (c == '\r')
			return enter(b, CHUNK_SIZE_LF);
		return printable(c) && ++b->line <= CHUNK_LINE_MAX ? 0 : -EBADMSG;
	case CHUNK_SIZE_LF:
		return c == '\n' ? enter(b, b->left > 0 ? CHUNK_DATA : TRAILER_START) : -EBADMSG;
	case CHUNK_DATA_CR:
		return c == '\r' ? enter(b, CHUNK_DATA_LF) : -EBADMSG;
	case CHUNK_DATA_LF:
		return c == '\n' ? enter(b, CHUNK_SIZE) : -EBADMSG;
	case TRAILER_START:
		return take_trailer(b, c, true);
	case TRAILER:
		return take_trailer(b, c, false);
	case TRAILER_LF:
		return c == '\n' ? enter(b, TRAILER_START) : -EBADMSG;
	case LAST_LF:
		b->done = c == '\n';
		return b->done ? 0 : -EBADMSG;
	case CHUNK_DATA:
		break;
	}
	return -EBADMSG;
}

/* Takes framing until data begins, the body is whole, or there is no more. */
static int take_framings(struct body *b, struct evbuffer *in)
{
	while (!b->done && b->state != CHUNK_DATA) {
		struct evbuffer_iovec v;
		const unsigned char *bytes;
		size_t used = 0;
		int r = 0;

		if (evbuffer_peek(in, 1, NULL, &v, 1) < 1 || v.iov_len == 0)
			return 0;
		bytes = v.iov_base;
		while (r == 0 && used < v.iov_len && !b->done && b->state != CHUNK_DATA)
			r = take_framing(b, bytes[used++]);
		(void) evbuffer_drain(in, used); /* it was seen to hold that much */
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_chunked(struct body *b, struct evbuffer *in, struct evbuffer *out, size_t room)
{
	for (;;) {
		int r = take_framings(b, in);

		if (r < 0 || b->done || b->state != CHUNK_DATA)
			return r;
		if (room == 0 || evbuffer_get_length(in) == 0)
			return 0;
		r = move(b, b->left, in, out, &room);
		if (r < 0)
			return r;
		if (b->left == 0)
			(void) enter(b, CHUNK_DATA_CR);
	}
}

int body_take(struct body *b, struct evbuffer *in, struct evbuffer *out, size_t room)
{
	int r;

	if (b->done)
		return 0;
	switch (b->kind) {
	case BODY_LENGTH:
		r = move(b, b->left, in, out, &room);
		b->done = b->left == 0;
		return r;
	case BODY_CHUNKED:
		return take_chunked(b, in, out, room);
	case BODY_UNTIL_CLOSE:
		return move(b, UINT64_MAX, in, out, &room);
	case BODY_NONE:
		break;
	}
	return 0;
}

int body_end(struct body *b)
{
	if (b->kind == BODY_UNTIL_CLOSE)
		b->done = true;
	return b->done ? 0 : -EPIPE;
}

/* Small pieces are copied behind what is there: libevent makes a TLS record, and perhaps a packet, of each link of a chain. */
static void put_content(struct evbuffer *content, size_t size, struct evbuffer *out)
{
	char copy[COPY_MAX];

	if (size > sizeof copy) {
		(void) evbuffer_add_buffer(out, content);
		return;
	}
	(void) evbuffer_remove(content, copy, size);
	(void) evbuffer_add(out, copy, size);
}

void body_put(enum body_kind kind, struct evbuffer *content, struct evbuffer *out)
{
	size_t n = evbuffer_get_length(content);

	if (n == 0)
		return;
	if (kind == BODY_CHUNKED)
		(void) evbuffer_add_printf(out, "%zx\r\n", n);
	put_content(content, n, out);
	if (kind == BODY_CHUNKED)
		(void) evbuffer_add(out, "\r\n", 2);
}

void body_put_end(enum body_kind kind, struct evbuffer *out)
{
	if (kind == BODY_CHUNKED)
		(void) evbuffer_add(out, "0\r\n\r\n", 5);
}
