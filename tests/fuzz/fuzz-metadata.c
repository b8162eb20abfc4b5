/* The metadata filter of the E2B interface's lists. */
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "daemon/e2b/e2b.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *form = xstrndup((const char *) data, size);

	json_decref(e2b_metadata_filter(form));
	return 0;
}
