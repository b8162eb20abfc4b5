/* The connections of a run, for the result: one entry each, and beyond CONNECTIONS_MAX one for each (host, port, protocol). */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { CONNECTIONS_MAX = 100, CONNECTION_SUMS_MAX = 256 };

struct connection_sum {
	char *host;
	unsigned port;
	char *protocol;
	uint64_t count, sent, received, requests, usec;
};

struct connections {
	json_t *list; /* array, NULL while empty: entries as in the document */
	struct connection_sum *sums;
	size_t sum_count;
	json_t *summed;       /* the newest that was only summed */
	uint64_t total, more; /* more: neither kept nor summed by name, because there were too many different ones */
};

/* `report` is a message "connection" of the broker, checked here: what is malformed is left out. Returns the entry (borrowed,
 * valid until the next call when it was only summed), NULL when the message makes no sense. */
json_t *connections_add(struct connections *c, const json_t *report);
/* The array for the document, a new reference. */
json_t *connections_to_json(const struct connections *c);
void connections_done(struct connections *c);
