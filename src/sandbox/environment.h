/* The environment that a plan gives to the command. */
#pragma once

#include "sandbox/plan.h"

/* Sets or replaces. */
void environment_set(struct plan *plan, const char *name, const char *value);
/* Sets what is not set yet. */
void environment_default(struct plan *plan, const char *name, const char *value);
