/* DNS messages as the stub resolver (stub.h) reads and writes them: RFC 1035, EDNS of RFC 6891. What is read is one query from
 * inside the sandbox and hostile; what is written is one answer, with one record at most, so that none is ever truncated. Nothing
 * is allocated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/network.h"

enum {
	QUERY_SIZE_MAX = 4096, /* longer ones are refused unread */
	QUERY_NAME_WIRE = 255,
	QUERY_TEXT_SIZE = 4 * QUERY_NAME_WIRE + 1,
	/* Header, question, record (owner by pointer, fixed part, a name of its own), OPT. */
	QUERY_ANSWER_SIZE = 12 + QUERY_NAME_WIRE + 4 + 12 + QUERY_NAME_WIRE + 11,
};

enum query_type {
	QUERY_A = 1,
	QUERY_PTR = 12,
	QUERY_AAAA = 28,
	QUERY_OPT = 41,
	QUERY_ANY = 255,
};

enum query_code {
	QUERY_NOERROR = 0,
	QUERY_FORMERR = 1,
	QUERY_SERVFAIL = 2,
	QUERY_NXDOMAIN = 3,
	QUERY_NOTIMP = 4,
	QUERY_REFUSED = 5,
	QUERY_BADVERS = 16, /* the upper bits lie in the OPT record */
};

struct query {
	uint16_t id, flags;                  /* of the header, as they came */
	unsigned char name[QUERY_NAME_WIRE]; /* of the question, as it came; 0 bytes when it could not be read */
	size_t name_size;
	uint16_t type, class;
	bool edns, dnssec_ok;
	char canonical[NETWORK_NAME_SIZE]; /* "" when the name has no canonical form: then no rule can cover it */
	char text[QUERY_TEXT_SIZE];        /* for records: printable ASCII, other bytes as \DDD */
};

/* Reads a query. Negative: no answer may be sent, since it is none (shorter than a header, or a response: answering those could
 * go on for ever). Otherwise the code to answer: QUERY_NOERROR when it is one that can be looked up, else what is wrong with it.
 */
int query_parse(const void *message, size_t size, struct query *ret);

/* The address that a name below in-addr.arpa stands for (host byte order): true. `ret_reverse` says whether it is a well-formed
 * name of a reverse look-up at all, of either family. */
bool query_reverse(const char *canonical, uint32_t *ret_address, bool *ret_reverse);

/* What to answer: a code and at most one record, whose data is an address of 4 or 16 bytes, or for QUERY_PTR a canonical name. */
struct query_answer {
	enum query_code code;
	uint16_t type; /* of the record, 0: none */
	uint32_t ttl;
	unsigned char address[16];
	const char *name;
};

/* Writes the answer to `q`; returns its size. Without a record and an error it says "the name exists, but has nothing of that
 * type"; it carries no SOA, so no cache keeps what it denies (RFC 2308, 5). */
size_t query_answer(const struct query *q, const struct query_answer *a, unsigned char ret[QUERY_ANSWER_SIZE]);
