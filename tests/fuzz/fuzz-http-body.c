/* Chunked bodies, content encodings and redaction against any bytes. What comes off the framing and is framed again comes off
 * again the same; how the bytes are cut makes no difference; a value never survives redaction. The first byte of the input
 * chooses what is tried, the second how it is cut. */
#include <errno.h>
#include <event2/buffer.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "egress/body.h"
#include "egress/inflate.h"
#include "egress/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTENT_MAX = 1024 * 1024 };

static int unframe(struct body *b, const uint8_t *data, size_t size, size_t step, struct evbuffer *out)
{
	struct evbuffer *in = evbuffer_new();
	int r = 0;

	body_begin(b, BODY_CHUNKED, 0, CONTENT_MAX);
	for (size_t at = 0; at < size && r == 0 && !b->done; at += step) {
		(void) evbuffer_add(in, data + at, size - at < step ? size - at : step);
		r = body_take(b, in, out, SIZE_MAX);
	}
	evbuffer_free(in);
	return r;
}

static void assert_same(struct evbuffer *a, struct evbuffer *b)
{
	size_t size = evbuffer_get_length(a);

	if (size != evbuffer_get_length(b) || (size > 0 && memcmp(evbuffer_pullup(a, -1), evbuffer_pullup(b, -1), size) != 0))
		abort();
}

static void try_chunks(const uint8_t *data, size_t size, size_t step)
{
	struct evbuffer *whole = evbuffer_new(), *pieces = evbuffer_new(), *framed = evbuffer_new(), *copy = evbuffer_new();
	struct body a, b, c;
	int r = unframe(&a, data, size, SIZE_MAX / 2, whole), s = unframe(&b, data, size, step, pieces);

	if (r != s || a.done != b.done || a.total != b.total || a.total != evbuffer_get_length(whole))
		abort();
	assert_same(whole, pieces);
	(void) evbuffer_add_buffer_reference(copy, whole);
	body_put(BODY_CHUNKED, copy, framed);
	body_put_end(BODY_CHUNKED, framed);
	if (unframe(&c, evbuffer_pullup(framed, -1), evbuffer_get_length(framed), step, copy) != 0 || !c.done)
		abort();
	assert_same(whole, copy);
	evbuffer_free(whole);
	evbuffer_free(pieces);
	evbuffer_free(framed);
	evbuffer_free(copy);
}

static void try_inflate(const uint8_t *data, size_t size, size_t step)
{
	struct evbuffer *in = evbuffer_new(), *out = evbuffer_new();
	struct inflate *z = inflate_new();
	int r = 0;

	for (size_t at = 0; at < size && r == 0; at += step) {
		(void) evbuffer_add(in, data + at, size - at < step ? size - at : step);
		do {
			(void) evbuffer_drain(out, evbuffer_get_length(out));
			r = inflate_take(z, in, out, 4096);
			if (evbuffer_get_length(out) > 4096 + 16 * 1024)
				abort();
		} while (r == 0 && evbuffer_get_length(out) > 0);
	}
	evbuffer_free(in);
	evbuffer_free(out);
	inflate_free(z);
}

static void redact_all(struct redact *r, const uint8_t *data, size_t size, size_t step, struct evbuffer *out)
{
	struct evbuffer *in = evbuffer_new();

	for (size_t at = 0; at < size; at += step) {
		(void) evbuffer_add(in, data + at, size - at < step ? size - at : step);
		redact_stream(r, in, out, false);
		if (evbuffer_get_length(in) > redact_window(r))
			abort();
	}
	redact_stream(r, in, out, true);
	if (evbuffer_get_length(in) > 0)
		abort();
	evbuffer_free(in);
}

static void try_redact(const uint8_t *data, size_t size, size_t step)
{
	struct evbuffer *whole = evbuffer_new(), *pieces = evbuffer_new();
	struct redact *r = redact_new();

	if (!redact_add(r, "hunter2-hunter2", 15) || !redact_add(r, "a/b \"c\" <d>&%41", 15) || !redact_add(r, "hunter", 6))
		abort();
	redact_all(r, data, size, SIZE_MAX / 2, whole);
	redact_all(r, data, size, step, pieces);
	assert_same(whole, pieces);
	if (evbuffer_search(whole, "hunter", 6, NULL).pos >= 0)
		abort();
	evbuffer_free(whole);
	evbuffer_free(pieces);
	redact_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step;

	if (size < 3 || size > 65536)
		return 0;
	step = (size_t) data[1] + 1;
	switch (data[0] % 3) {
	case 0:
		try_chunks(data + 2, size - 2, step);
		break;
	case 1:
		try_inflate(data + 2, size - 2, step);
		break;
	default:
		try_redact(data + 2, size - 2, step);
		break;
	}
	return 0;
}
