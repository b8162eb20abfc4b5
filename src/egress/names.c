/* The names are chosen by the code inside: a tree, whose depth nobody can choose, not a hash table. */
#include "egress/names.h"

#include <assert.h>
#include <search.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "egress/broker.h"

static_assert(NETWORK_NAMES_FIRST + NAMES_MAX - 1 <= NETWORK_NAMES_LAST, "every name has an address");

struct named {
	uint32_t address;
	char name[];
};

struct names {
	void *tree; /* of struct named, by name */
	struct named **by_address;
	size_t count, room;
};

static int compare(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return strcmp(x->name, y->name);
}

struct names *names_new(void)
{
	return xcalloc(1, sizeof(struct names));
}

static void keep(void *named)
{
	(void) named; /* by_address owns it */
}

void names_free(struct names *n)
{
	if (n == NULL)
		return;
	tdestroy(n->tree, keep);
	for (size_t i = 0; i < n->count; i++)
		free(n->by_address[i]);
	free(n->by_address);
	free(n);
}

static struct named *named_new(const char *name)
{
	size_t size = strlen(name) + 1;
	struct named *e = xcalloc(1, sizeof *e + size);

	memcpy(e->name, name, size);
	return e;
}

static void append(struct names *n, struct named *e)
{
	if (n->count == n->room) {
		n->room = n->room == 0 ? 16 : n->room * 2;
		n->by_address = xrealloc(n->by_address, n->room, sizeof(struct named *));
	}
	e->address = NETWORK_NAMES_FIRST + (uint32_t) n->count;
	n->by_address[n->count++] = e;
}

uint32_t names_address(struct names *n, const char *name, bool *ret_new)
{
	cleanup_free struct named *key = named_new(name);
	struct named **found = tfind(key, &n->tree, compare);

	*ret_new = false;
	if (found != NULL)
		return (*found)->address;
	if (n->count == NAMES_MAX || tsearch(key, &n->tree, compare) == NULL)
		return 0;
	append(n, key);
	*ret_new = true;
	return take_ptr(&key)->address;
}

const char *names_lookup(const struct names *n, uint32_t address)
{
	if (address < NETWORK_NAMES_FIRST || address - NETWORK_NAMES_FIRST >= n->count)
		return NULL;
	return n->by_address[address - NETWORK_NAMES_FIRST]->name;
}
