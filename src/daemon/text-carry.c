#include "daemon/text-carry.h"

#include <string.h>

#include "base/mem.h"
#include "sandbox/encode.h"

char *text_carry_join(struct text_carry *c, const char *data, size_t size, bool last, size_t *ret_size)
{
	char *joined = xcalloc(c->size + size + 1, 1);
	size_t tail;

	memcpy(joined, c->bytes, c->size);
	if (size > 0)
		memcpy(joined + c->size, data, size);
	size += c->size;
	tail = last ? 0 : utf8_incomplete_tail(joined, size);
	c->size = tail < sizeof c->bytes ? tail : 0;
	size -= c->size;
	memcpy(c->bytes, joined + size, c->size);
	joined[size] = '\0';
	*ret_size = size;
	return joined;
}
