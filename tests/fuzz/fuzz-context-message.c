/* What an interpreter of a context says: frames as they come in, and their bodies. */
#include <stddef.h>
#include <stdint.h>

#include "daemon/context-message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct evbuffer *in = evbuffer_new();
	size_t head = 0, body = 0;

	(void) evbuffer_add(in, data, size);
	while (context_message_size(in, &head, &body) > 0) {
		struct context_message m = {0};
		const char *text = (const char *) evbuffer_pullup(in, (ev_ssize_t) (head + body));

		(void) context_message_decode(text + head, body, &m);
		context_message_done(&m);
		(void) evbuffer_drain(in, head + body);
	}
	evbuffer_free(in);
	return 0;
}
