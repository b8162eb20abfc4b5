/* Whether a path that a program inside tried to open is something that the host has and the sandbox hides. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* `path` as the process `pid` gave it, relative to `dirfd` of it; made absolute (as seen inside) in place. Only looks whether
 * names exist; opens nothing for reading, follows no magic link. `agent` is a process of the sandbox that sees its root. */
bool hidden_from_inside(pid_t agent, pid_t pid, int dirfd, char *path, size_t size);
