/* The agent's program file, which is part of whatever starts sandboxes. */
#pragma once

#include <stdint.h>

#include "base/err.h"

extern const unsigned char agent_image[];
extern const uint64_t agent_image_size;

/* A sealed memfd (close-on-exec) with the agent: what runs inside is no file of the host, and cannot be changed from inside even
 * by one who gets hold of it (CVE-2019-5736). The fd is the caller's. It may be executed any number of times, also at once. */
int agent_memfd(struct zw_error *e);

/* The same for any program of ours. */
int program_memfd(const char *name, const unsigned char *image, uint64_t size, struct zw_error *e);
