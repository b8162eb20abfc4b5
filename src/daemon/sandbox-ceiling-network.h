/* The network's and the secrets' share of the ceiling. */
#pragma once

#include <jansson.h>

#include "policy/policy.h"

void ceiling_check_network(json_t *list, const struct policy *c, const struct policy *p);

/* ---- sandbox-ceiling.c, for both. ---- */

void ceiling_point(json_t *list, const char *path, const char *asked, const char *allowed);
bool ceiling_strv_has(const struct strv *v, const char *text);
