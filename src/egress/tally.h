/* Records of connections that found the control line full: those that differ in host, port, protocol and rule only by their
 * numbers are summed up, so that a slow supervisor costs detail and not memory. */
#pragma once

#include "egress/control.h"

enum { TALLY_MAX = 1024 };

/* What a record says. Strings are the caller's (tally_add) or the tally's (tally_send). */
struct connection_record {
	const char *host, *protocol, *rule, *error; /* rule, error: NULL for none */
	uint16_t port;
	bool inbound;
	uint64_t sent, received;
	usec_t usec;
	uint64_t requests;
	uint64_t count;
};

struct tally;

struct tally *tally_new(void);
void tally_free(struct tally *t);
/* With TALLY_MAX different ones, further ones are counted as host "(others)". */
void tally_add(struct tally *t, const struct connection_record *r);
/* Hands out records until send() returns false; that one is kept. */
void tally_send(struct tally *t, bool (*send)(void *ctx, const struct connection_record *r), void *ctx);
