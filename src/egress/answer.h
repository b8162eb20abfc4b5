/* What the broker itself answers to a request: a status and one line of plain text for whoever reads it, a person or an agent. */
#pragma once

#include "egress/broker.h"

struct evbuffer;

enum { ANSWER_LINE = 700 };

struct answer {
	unsigned status;
	bool close;     /* the connection ends behind it */
	bool head_only; /* to a HEAD request: no body */
	const char *line;
};

void answer_put(const struct answer *a, struct evbuffer *out);

/* Why a request is not allowed, which rule comes nearest, and how to ask. `path` without query. Sets *ret_rule to that rule's
 * index in f->broker->network, and `why` (ANSWER_LINE bytes) to the sentence for the record and the line. */
void answer_denied_request(const struct flow *f, const char *method, const char *path, size_t path_size, int *ret_rule,
			   char *why);
/* The same for a target that no rule covers. */
void answer_denied_target(const struct network *n, const struct target *t, char *why);
/* "why" and how to ask, as the line of an answer: ANSWER_LINE bytes. */
void answer_how_to_ask(const char *why, char *line);
