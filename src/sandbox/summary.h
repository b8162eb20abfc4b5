/* Two views of a plan as JSON: all of it for its owner (--plan), and the part that code inside may know
 * (/run/zwinger/policy.json). */
#pragma once

#include "sandbox/plan.h"

/* Limits and reach, no path of the host. Owned by the caller. */
char *summary_to_json(const struct plan *plan);
