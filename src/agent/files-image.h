/* The program file of zwinger-files, which is part of the daemon. */
#pragma once

#include <stdint.h>

#include "base/err.h"

extern const unsigned char files_image[];
extern const uint64_t files_image_size;

/* A sealed memfd (close-on-exec) with the program, for START_PROGRAM. The fd is the caller's; any number of starts may use it. */
int files_memfd(struct zw_error *e);
