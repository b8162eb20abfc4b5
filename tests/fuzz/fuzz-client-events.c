/* Server-sent events of any bytes, as a client takes them: the same in one piece and in many, within their bounds, and as the
 * output of a process without a fault of ours. The first byte says where the pieces end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "client/exec-output.h"
#include "client/sse-in.h"

enum { MOST = 4096, NOTED_MAX = 1024 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int note(void *ctx, const char *event, const char *data, size_t size)
{
	if (size > MOST || strlen(event) > SSE_WORD_MAX || data[size] != '\0')
		abort();
	(void) buf_addf(ctx, "%s %zu ", event, size);
	(void) buf_add(ctx, data, size);
	return 0;
}

static int take(struct sse_in *s, const char *data, size_t size, size_t piece)
{
	int r = 0;

	for (size_t at = 0; at < size && r == 0; at += piece)
		r = sse_in_take(s, data + at, piece < size - at ? piece : size - at);
	return r;
}

static void compare(const char *data, size_t size, size_t piece)
{
	struct buf whole = buf_new(NOTED_MAX), pieces = buf_new(NOTED_MAX);
	struct sse_in a, b;
	int r;

	sse_in_init(&a, MOST, note, &whole);
	sse_in_init(&b, MOST, note, &pieces);
	r = take(&a, data, size, size + 1);
	if (take(&b, data, size, piece) != r || whole.size != pieces.size ||
	    (whole.size > 0 && memcmp(whole.data, pieces.data, whole.size) != 0) || strcmp(a.id, b.id) != 0)
		abort();
	sse_in_again(&a);
	(void) take(&a, data, size, piece);
	sse_in_done(&a);
	sse_in_done(&b);
	buf_done(&whole);
	buf_done(&pieces);
}

static void as_output(const char *data, size_t size, size_t piece)
{
	struct exec_output o;

	exec_output_init(&o, piece % 2 == 0);
	if (take(&o.sse, data, size, piece) < 0 && o.fault == NULL && size < SSE_LINE_MAX)
		abort();
	if (o.end != NULL && (exec_output_status(o.end) < 0 || exec_output_status(o.end) > 255))
		abort();
	exec_output_done(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	compare((const char *) data + 1, size - 1, data[0] + 1U);
	as_output((const char *) data + 1, size - 1, data[0] + 1U);
	return 0;
}
