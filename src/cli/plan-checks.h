/* Between a policy and a run or session with it: what neither the policy nor the plan knows by itself. */
#pragma once

#include "policy/policy.h"
#include "sandbox/plan.h"

/* What this build does not have yet. 0, or -EINVAL with an entry in `errors` for each. */
int plan_check_built(const struct policy *policy, struct policy_errors *errors);
/* Lets the isolation level write into the plan what it does differently: paths and environment above all. */
int plan_prepare_level(struct plan *plan, struct policy_errors *errors);
/* Code that ran before may have left a link in its folder under a name that the policy shows: it would choose what is shown. */
int plan_check_sources(const struct plan *plan, struct policy_errors *errors);
