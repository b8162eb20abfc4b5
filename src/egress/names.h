/* Which address of 198.18.0.0/16 stands for which name: one a name, stable for the run, given out when the name is first asked
 * for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct names;

enum { NAMES_MAX = 32768 }; /* of a run: a guest that asks for ever more names below a wildcard gets no further ones */

struct names *names_new(void);
void names_free(struct names *n);
/* The address (host byte order) of a canonical name; made when there is none yet (*ret_new is true then). 0 when NAMES_MAX is
 * reached. */
uint32_t names_address(struct names *n, const char *name, bool *ret_new);
/* The name of an address, or NULL. Valid as long as `n`. */
const char *names_lookup(const struct names *n, uint32_t address);
