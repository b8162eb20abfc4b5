/* Parts of the result document, for others that say the same of a sandbox. Each is a new reference. */
#pragma once

#include <jansson.h>

#include "sandbox/result.h"

json_t *result_usage(const struct result *r);
json_t *result_enforcement(const struct control_state controls[CONTROL_MAX]);
json_t *result_not_enforced(const struct control_state controls[CONTROL_MAX]); /* NULL: everything is */
json_t *result_denials(const struct denials *d);
json_t *result_files(const struct result *r);
json_t *result_errors(const struct policy_errors *errors);
