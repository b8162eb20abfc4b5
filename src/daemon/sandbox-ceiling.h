/* The operator's ceiling: no policy of a request may lie above it, on any point. What the ceiling's file does not say stays at
 * the default ceiling, which opens nothing of the host. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "policy/policy.h"

/* Reads --ceiling over the default (NULL: the default alone). 0, or -EINVAL with a sentence. */
int ceiling_read(const char *path, struct policy *ret, struct zw_error *e);

/* One entry {"path", "message", "asked", "allowed"} for each point on which the policy lies above the ceiling; an empty list: on
 * none. Owned by the caller. */
json_t *ceiling_check(const struct policy *ceiling, const struct policy *p);

/* What a policy of a session gets for what nobody says: the default, or the ceiling where that is lower. The text of a policy,
 * owned by the caller. */
char *ceiling_defaults(const struct policy *ceiling);

/* The numbers of it, for clients. Owned by the caller. */
json_t *ceiling_to_json(const struct policy *ceiling);
