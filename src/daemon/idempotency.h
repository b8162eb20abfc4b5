/* Idempotency-Key: a client that does not know whether its request arrived sends it again under the same key, and gets the first
 * answer, not a second sandbox. A key belongs to who sends it and to the route. Answers are kept in the store for 24 hours, so
 * that they also hold after a restart; what is under way is only known here.
 *
 * Kept are answers that would be the same again: not those about a passing state (409, 429, 5xx). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/store.h"

struct exchange;
struct idempotency;

struct idempotency *idempotency_new(struct store *store);
struct idempotency *idempotency_free(struct idempotency *i);

/* True: the handler is to be run. False: the request has ended (an answer repeated, or refused). */
bool idempotency_begin(struct exchange *x, const void *body, size_t size);
/* The handler's answer; called before it is sent. */
void idempotency_keep(struct exchange *x, unsigned status, const char *type, const void *body, size_t size);
/* The request ends, with or without an answer. */
void idempotency_end(struct exchange *x);
