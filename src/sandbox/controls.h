/* By what each control of a plan is held: the level's own word, the control groups', and ours. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sandbox/sandbox.h"

/* Whether the plan asks for it. What it does not ask for is neither listed nor refused. */
bool control_asked(const struct plan *plan, enum control c);

/* Where a control is described in a policy: "limits.memory". */
const char *control_key(enum control c);

/* `controls` comes from the level's probe. Every control that is asked for gets its mechanism, or "none" and why; the others get
 * NULL. */
void controls_settle(const struct plan *plan, const struct cgroup *cgroup, struct control_state controls[CONTROL_MAX]);

bool control_is(const struct control_state *c, const char *mechanism);
