/* Where the values of secrets come from. Read by the supervisor, sent to the broker, kept nowhere. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "sandbox/plan.h"

enum { SECRET_MIN = 4, SECRET_MAX = 16 * 1024 };

/* The secrets that the rules of plan->network use, out of the policy's. */
void secret_sources_plan(const struct policy *policy, struct plan *plan);
void secret_sources_done(struct plan *plan);

/* The value, trimmed of one newline; wipe it with secret_wipe. 0 or negative errno with a sentence that does not hold the value.
 */
int secret_read(const struct secret_source *s, char **ret, size_t *ret_size, struct zw_error *e);
void secret_wipe(char **value, size_t size);
