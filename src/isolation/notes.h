/* What an isolation level holds a control by, and what that leaves open, in sentences for docs/security.md and `zwinger doctor`.
 */
#pragma once

#include <stddef.h>

#include "sandbox/sandbox.h"

struct isolation_note {
	enum control control;
	const char *holds;
	const char *leaves; /* "" when nothing */
};

/* One entry a control, in the order of enum control. */
const struct isolation_note *isolation_process_notes(size_t *ret_count);
