/* The isolation levels of this build. */
#pragma once

#include "policy/policy.h"
#include "sandbox/sandbox.h"

extern const struct isolation_ops isolation_process;
extern const struct isolation_ops isolation_container;

/* NULL for a level that is not built yet. */
const struct isolation_ops *isolation_find(enum isolation_level level);
