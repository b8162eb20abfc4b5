/* The body of a call of Connect: an envelope, and the message in it; or a stream of them. */
#include <event2/buffer.h>
#include <stdint.h>

#include "daemon/e2b/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte says how many come at a time. */
static void read_stream(const uint8_t *data, size_t size)
{
	struct evbuffer *in = evbuffer_new();
	size_t step = size > 0 ? data[0] + 1U : 1, before;
	int r = 0;

	for (size_t at = 1; in != NULL && r >= 0 && at < size; at += step) {
		if (evbuffer_add(in, data + at, size - at < step ? size - at : step) < 0)
			break;
		do {
			const char *why = NULL;
			json_t *m = NULL;

			before = evbuffer_get_length(in);
			r = connect_next(in, &m, &why);
			if ((r > 0) != (m != NULL) || (r < 0) != (why != NULL) || (r == 0 && evbuffer_get_length(in) != before))
				__builtin_trap();
			json_decref(m);
		} while (r > 0);
	}
	if (in != NULL)
		evbuffer_free(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = NULL;

	read_stream(data, size);
	for (int enveloped = 0; enveloped < 2; enveloped++) {
		json_t *m = connect_parse((const char *) data, size, enveloped != 0, &why);

		if (m == NULL && why == NULL)
			__builtin_trap(); /* nobody would be told */
		json_decref(m);
	}
	return 0;
}
