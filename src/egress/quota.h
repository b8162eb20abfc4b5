/* network.limits: what a run may send, receive, ask and open, and how fast. */
#pragma once

#include "egress/broker.h"

struct quota;

struct quota *quota_new(struct broker *b);
void quota_free(struct quota *q);
/* Counts a new connection or request. False when the limit is reached: the refusal has been recorded, and the supervisor told. */
bool quota_connection(struct quota *q, const struct target *t);
bool quota_request(struct quota *q, const struct target *t);
/* Sends the totals to the supervisor if they have changed since it last heard of them. */
void quota_report(struct quota *q);
/* Counts bytes of a flow (f->sent, f->received and the run's). False when a limit is passed: the flow is to be reset. */
bool quota_sent(struct flow *f, uint64_t bytes);
bool quota_received(struct flow *f, uint64_t bytes);
/* network.limits.rate: how many bytes may be moved now; 0: none before *ret_wait microseconds are over. This only asks: what is
 * then counted with quota_sent and quota_received uses the allowance up. */
size_t quota_allowance(struct quota *q, size_t wanted, usec_t *ret_wait);
