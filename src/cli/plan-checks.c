#include "cli/plan-checks.h"

#include <errno.h>

#include "audit/audit.h"
#include "isolation/level.h"

static void note_unbuilt(void *ctx, const char *key, const char *sentence)
{
	policy_errors_add(ctx, NULL, 0, key, NULL, "%s", sentence);
}

int plan_check_built(const struct policy *policy, struct policy_errors *errors)
{
	return policy_unbuilt(policy, note_unbuilt, errors) > 0 ? -EINVAL : 0;
}

int plan_prepare_level(struct plan *plan, struct policy_errors *errors)
{
	const struct isolation_ops *ops = isolation_find(plan->isolation);
	struct zw_error e = {0};
	int r = ops != NULL && ops->prepare != NULL ? ops->prepare(plan, &e) : 0;

	if (r < 0)
		policy_errors_add(errors, NULL, 0, "isolation", NULL, "%s", e.text);
	return r;
}

int plan_check_sources(const struct plan *plan, struct policy_errors *errors)
{
	size_t faults = errors->count;

	for (size_t i = 0; i < plan->mount_count; i++)
		if (audit_path_is_led(plan, plan->mounts[i].source))
			policy_errors_add(errors, NULL, 0, "filesystem", NULL,
					  "%s leads through a link in a folder that the code inside can write to: name the "
					  "folder that is meant",
					  plan->mounts[i].source);
	return errors->count > faults ? -EACCES : 0;
}
