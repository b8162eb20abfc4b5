/* Forms of files: the type of the body in the first line, the body behind it, in pieces whose size its first byte says. */
#include <event2/buffer.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line = memchr(data, '\n', size);
	cleanup_free char *type = line != NULL ? xstrndup((const char *) data, (size_t) (line - data)) : NULL;
	struct evbuffer *in = evbuffer_new(), *out = evbuffer_new();
	enum multipart_event event = MULTIPART_MORE;
	struct multipart m;
	size_t at = line != NULL ? (size_t) (line - data) + 1 : size, step = at < size ? 1U + data[at] : 1;

	if (type == NULL || !multipart_begin(&m, type))
		event = MULTIPART_BAD;
	while (event != MULTIPART_BAD && event != MULTIPART_END) {
		if (event == MULTIPART_MORE) {
			size_t n = size - at < step ? size - at : step;

			if (n == 0)
				break;
			(void) evbuffer_add(in, data + at, n);
			at += n;
		}
		event = multipart_next(&m, in, out);
		if (event == MULTIPART_PART && (strlen(m.name) >= sizeof m.name || strlen(m.filename) >= sizeof m.filename))
			__builtin_trap();
	}
	evbuffer_free(in);
	evbuffer_free(out);
	return 0;
}
