/* Output comes in pieces that may cut a character in two: its beginning is carried over to the next piece. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text_carry {
	char bytes[4];
	size_t size;
};

/* How many of these bytes can be told now; the rest, the beginning of a character, is carried. Nothing is carried before. */
size_t text_carry_keep(struct text_carry *c, const char *data, size_t size);
/* What can be told now of `data` (NULL with size 0) and of what was carried; with `last` everything. Owned by the caller, with a
 * NUL behind *ret_size bytes, of which none need be UTF-8. */
char *text_carry_join(struct text_carry *c, const char *data, size_t size, bool last, size_t *ret_size);
