/* What the root of a sandbox is made of, besides the policy's own mounts: the read-only system tree and the synthetic /etc. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sandbox/plan.h"

/* At the end of PATH: names that the host's system tree lacks. */
#define ROOT_LENT "/run/zwinger/bin"

/* Programs call `python`, which some systems have as python3 alone: then it is one more name for that. */
bool root_lends_python(const struct plan *plan);

/* Fills plan->binds, files and links from the host's tree (plan->root NULL) or a root directory. */
int root_describe(struct plan *plan, struct zw_error *e);
