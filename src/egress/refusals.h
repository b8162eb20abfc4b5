/* Refusals of a short while, equal ones counted together: code that tries the same thing in a loop is one line of the record. */
#pragma once

#include "egress/control.h"

enum { REFUSALS_MAX = 256, REFUSALS_INTERVAL_USEC = 50000 };

struct refusals;

/* send(ctx, refusal, count) is called from the loop, at most REFUSALS_INTERVAL_USEC after the first of them was added. When it
 * returns false (no room), the refusal is kept, and tried again with refusals_send. */
struct refusals *refusals_new(struct event_base *base, bool (*send)(void *ctx, const struct refusal *r, uint64_t count),
			      void *ctx);
void refusals_free(struct refusals *t);
/* Copies what it keeps. With REFUSALS_MAX different ones waiting, further ones of a kind are counted together as host "(others)".
 */
void refusals_add(struct refusals *t, const struct refusal *r);
/* Sends all that wait, as far as there is room. */
void refusals_send(struct refusals *t);
