/* A part of the rules, chosen while the sandbox runs: names and addresses that are left. The rules hold as before, and what is
 * asked for must be among these as well; so nothing can be opened that was not open at the start. */
#pragma once

#include <jansson.h>

#include "egress/broker.h"

enum { NARROW_ENTRIES_MAX = 256, NARROW_WHY_SIZE = 400 };

struct narrowing;

/* `entries`: a list of names, "*.name", addresses and ranges, or null: all that the rules have. Connections that are no longer
 * allowed are cut. 0 or -EPROTO, with nothing changed. */
int narrow_set(struct broker *b, const json_t *entries);
bool narrow_leaves(const struct broker *b, const struct target *t);
bool narrow_leaves_name(const struct broker *b, const char *canonical);

/* The rules that cover it, of those that are left; as network_rules_for_name. */
size_t narrow_rules(const struct broker *b, const struct target *t, bool udp, size_t *ret, size_t room);
/* Writes why it is refused when it is because of this. */
bool narrow_why(const struct broker *b, const struct target *t, bool udp, char *ret, size_t size);
