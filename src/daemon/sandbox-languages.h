/* Which languages the root of a sandbox has, as far as that can be seen from outside. */
#pragma once

#include <stdbool.h>

struct driver;

/* Whether the program that tells it is where commands are looked up, and is shown. `root`: the policy's, NULL for the host's
 * system tree. What a policy's folders add is not looked at. Types can be taken away where a package for it is there; that node
 * itself can is known only once a context is asked for. */
bool language_is_there(const char *root, const struct driver *d);
