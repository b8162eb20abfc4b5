#include "egress/narrow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"

struct entry {
	bool named;
	char pattern[NETWORK_NAME_SIZE];
	struct net_prefix prefix;
};

struct narrowing {
	size_t count;
	struct entry entries[];
};

static bool read_entry(const char *text, struct entry *ret)
{
	if (text == NULL)
		return false;
	ret->named = !network_prefix_parse(text, &ret->prefix);
	return !ret->named || network_pattern(text, strlen(text), ret->pattern) == 0;
}

bool narrow_leaves_name(const struct broker *b, const char *canonical)
{
	const struct narrowing *n = b->narrowing;

	if (n == NULL)
		return true;
	for (size_t i = 0; i < n->count; i++)
		if (n->entries[i].named && network_pattern_covers(n->entries[i].pattern, canonical) > 0)
			return true;
	return false;
}

static bool leaves_address(const struct narrowing *n, const struct net_address *a)
{
	for (size_t i = 0; i < n->count; i++) {
		const struct entry *e = &n->entries[i];

		if (!e->named && e->prefix.address.family == a->family && network_prefix_has(&e->prefix, a))
			return true;
	}
	return false;
}

bool narrow_leaves(const struct broker *b, const struct target *t)
{
	if (b->narrowing == NULL)
		return true;
	return t->name[0] != '\0' ? narrow_leaves_name(b, t->name) : leaves_address(b->narrowing, &t->address);
}

static size_t rules_for(const struct broker *b, const struct target *t, bool udp, size_t *ret, size_t room)
{
	if (t->name[0] != '\0')
		return network_rules_for_name(b->network, t->name, t->port, udp, ret, room);
	return network_rules_for_address(b->network, &t->address, t->port, udp, ret, room);
}

size_t narrow_rules(const struct broker *b, const struct target *t, bool udp, size_t *ret, size_t room)
{
	return narrow_leaves(b, t) ? rules_for(b, t, udp, ret, room) : 0;
}

bool narrow_why(const struct broker *b, const struct target *t, bool udp, char *ret, size_t size)
{
	char host[NET_ADDRESS_TEXT];

	if (narrow_leaves(b, t) || rules_for(b, t, udp, NULL, 0) == 0)
		return false;
	(void) snprintf(ret, size, "%s is not among what is left of network.allow since the rules were changed",
			t->name[0] != '\0' ? t->name : network_address_text(&t->address, host));
	return true;
}

/* Each frees itself alone. Those of published ports are not the sandbox's. */
static void cut_others(struct broker *b)
{
	struct flow *f, *next;

	for (f = LIST_FIRST(&b->flows); f != NULL; f = next) {
		next = LIST_NEXT(f, link);
		if (f->published != NULL || f->cut == NULL || narrow_leaves(b, &f->target))
			continue;
		(void) snprintf(f->error, sizeof f->error, "the rules were changed, and no longer allow it");
		f->cut(f->owner);
	}
}

int narrow_set(struct broker *b, const json_t *entries)
{
	size_t count = json_array_size(entries);
	struct narrowing *n;

	if (!json_is_null(entries) && (!json_is_array(entries) || count > NARROW_ENTRIES_MAX))
		return -EPROTO;
	n = json_is_null(entries) ? NULL : xcalloc(1, sizeof *n + count * sizeof n->entries[0]);
	for (size_t i = 0; n != NULL && i < count; i++)
		if (!read_entry(json_string_value(json_array_get(entries, i)), &n->entries[n->count++])) {
			free(n);
			return -EPROTO;
		}
	free(b->narrowing);
	b->narrowing = n;
	cut_others(b);
	return 0;
}
