/* What a terminal is shown. All texts of a daemon or a sandbox pass through here, where bytes that would steer a terminal are
 * escaped. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

enum { EXIT_REFUSED = 125, SHOW_MAX = 4096 };

/* 0, or EXIT_REFUSED after one line on standard error. */
int show_text(const char *text);
int show_json(const json_t *value); /* one line */

/* Escaped and cut to `max` bytes; owned by the caller. */
char *show_safe(const char *text, size_t max);

/* "-" when the member is absent or null; texts escaped, numbers as they are. Owned by the caller. */
char *show_member(const json_t *object, const char *name);
/* "12 MiB"; "-" when it is not known. */
char *show_size(const json_t *value);

/* A table with columns as wide as they need to be: add the head, then rows of as many cells, which are taken over. */
struct table {
	size_t columns, count;
	char **cells;
};

void table_add(struct table *t, char *cell);
char *table_text(const struct table *t); /* owned by the caller */
void table_done(struct table *t);
