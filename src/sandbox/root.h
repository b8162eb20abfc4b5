/* What the root of a sandbox is made of, besides the policy's own mounts: the read-only system tree and the synthetic /etc. */
#pragma once

#include "base/err.h"
#include "sandbox/plan.h"

/* Fills plan->binds, files and links from the host's tree (plan->root NULL) or a root directory. */
int root_describe(struct plan *plan, struct zw_error *e);
