#include "daemon/text-carry.h"

#include <string.h>

#include "base/mem.h"
#include "sandbox/encode.h"

size_t text_carry_keep(struct text_carry *c, const char *data, size_t size)
{
	size_t tail = utf8_incomplete_tail(data, size);

	c->size = tail < sizeof c->bytes ? tail : 0;
	memcpy(c->bytes, data + size - c->size, c->size);
	return size - c->size;
}

char *text_carry_join(struct text_carry *c, const char *data, size_t size, bool last, size_t *ret_size)
{
	char *joined = xcalloc(c->size + size + 1, 1);

	memcpy(joined, c->bytes, c->size);
	if (size > 0)
		memcpy(joined + c->size, data, size);
	size += c->size;
	c->size = 0;
	if (!last)
		size = text_carry_keep(c, joined, size);
	joined[size] = '\0';
	*ret_size = size;
	return joined;
}
