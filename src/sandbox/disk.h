/* How much lies in the folders that a sandbox may write to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/sandbox.h"

/* Bytes of disk (blocks, not lengths) in all writable mounts that have no size of their own, and in files without a name that the
 * sandbox's processes hold open or mapped there. Nothing is followed and no other mount entered. */
uint64_t disk_used(const struct sandbox *s);

/* Process level: has the private folder grown beyond the plan's size or number of files? *ret_left is how many bytes are left of
 * the size. Folders that the sandbox has closed to us are opened up for the look. */
bool disk_scratch_over(const struct sandbox *s, uint64_t *ret_left);
