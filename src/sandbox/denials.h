/* Denials, counted by what was denied (kind, name, host, port, method, path), bounded in number however hostile the inside is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct denial;

struct denial_entry {
	const char *kind;  /* static */
	char *name, *host; /* owned, NULL when not known */
	char *address, *method, *path, *rule, *why;
	unsigned port;
	uint64_t count;
};

#define DENIALS_MAX 256 /* different ones kept; further ones are counted in `other` */

struct denials {
	struct denial_entry *items;
	size_t count;
	uint64_t other, total;
};

/* Counts one. Returns how often this very denial has now been seen (0: only counted in `other`). `kind` must be static. */
uint64_t denials_add(struct denials *d, const struct denial *what);
void denials_done(struct denials *d);
