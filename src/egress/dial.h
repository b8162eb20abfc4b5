/* Connects to where a target really is: network.hosts, DNS (resolver), the address itself; judged by network_may_dial after
 * resolution, in the very form that is dialled. */
#pragma once

#include "egress/broker.h"

struct dial;

/* Calls done() exactly once, never from within this call, unless dial_cancel came first: a connected non-blocking socket (the
 * caller's) with f->dialled set, or -1 with f->error set (and the refusal recorded when the rules forbid the address). `udp`
 * makes a connected datagram socket. */
struct dial *dial_start(struct flow *f, bool udp, void (*done)(void *ctx, int fd), void *ctx);
/* Ends it without a callback; the handle is no longer valid once done() is called. At most 8 addresses are tried, 4 at once,
 * until 75 s after the last was begun; what the rules forbid is passed over, and recorded when nothing else could be reached. */
void dial_cancel(struct dial *d);
