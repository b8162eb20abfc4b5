/* The body of a call of Connect: an envelope, and the message in it. */
#include <stdint.h>

#include "daemon/e2b/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = NULL;

	for (int enveloped = 0; enveloped < 2; enveloped++) {
		json_t *m = connect_parse((const char *) data, size, enveloped != 0, &why);

		if (m == NULL && why == NULL)
			__builtin_trap(); /* nobody would be told */
		json_decref(m);
	}
	return 0;
}
