/* Writing below a folder by names that a stranger chose: no name leads out of it, no link is followed, nothing but regular files,
 * folders and harmless links is made. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* One component of a path: not empty, not "." or "..", without "/". */
bool beneath_name_is_good(const char *name);
/* The folder `name` in `parent`, made with mode 0700 when it is not there; a descriptor, or negative errno (-ELOOP, -ENOTDIR:
 * something else is there). */
int beneath_folder(int parent, const char *name);
/* A new file without a place; beneath_place gives it the name in `parent`, in place of what has it (a link itself, not where it
 * leads), with the permission bits of `mode`. A descriptor, or negative errno. *ret_temporary is owned by the caller. */
int beneath_file(int parent, char **ret_temporary);
int beneath_place(int parent, int fd, const char *temporary, const char *name, mode_t mode);
/* A link that is relative and, `depth` folders below the top, cannot lead above it whatever other links of this kind there are:
 * ".." stands only at its beginning, at most `depth` times. */
bool beneath_link_is_inside(const char *target, size_t depth);
int beneath_link(int parent, const char *name, const char *target);
