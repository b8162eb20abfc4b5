/* Resource limits of the calling process (getrlimit(2)). */
#pragma once

#include <stdint.h>
#include <sys/resource.h>

/* Sets soft and hard limit of `resource` to `value`, or to the present hard limit when that is lower: without CAP_SYS_RESOURCE a
 * hard limit cannot be raised, and a sandbox never needs more than its caller has. Async-signal-safe, for use between clone and
 * exec. Returns what now holds (INT64_MAX for RLIM_INFINITY) or negative errno. */
int64_t rlimit_apply(int resource, rlim_t value);

/* The same for the soft limit alone; the hard one stays. For a limit that the system-call filter keeps from being set again. */
int rlimit_apply_soft(int resource, rlim_t value);
