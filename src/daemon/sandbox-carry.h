/* What a fork and a snapshot carry from one sandbox to another: HOME, /tmp, /var/tmp and /dev/shm (at process level HOME alone),
 * each up to where another file system is mounted; so folders of the host that both see are not copied. No process is carried. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/problem.h"
#include "policy/policy.h"

struct sandbox;

enum { CARRY_ROOTS_MAX = 4 };

size_t carry_root_count(enum isolation_level level);
/* As zwinger-files takes it. */
const char *carry_root(size_t index);
/* What one side answered (the `error` of struct files_end), in words: `packing` the original, else the new sandbox. */
void carry_problem(int error, bool packing, struct problem *p);
/* The copy is whole: shows the new sandbox, whose time begins now. 0, or -EINVAL with a problem: it cannot be. */
int carry_show(struct sandbox *s, struct problem *p);
