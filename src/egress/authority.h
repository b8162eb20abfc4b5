/* Who a request is meant for: the authority of Host, of an absolute target and of CONNECT, each in the one canonical form in
 * which the rules are asked and names are dialled. */
#pragma once

#include "egress/broker.h"
#include "egress/head.h"
#include "egress/names.h"

struct authority {
	char name[NETWORK_NAME_SIZE]; /* "" for an address */
	struct net_address address;   /* AF_UNSPEC for a name */
	uint16_t port;                /* 0: not said */
};

/* "name", "name:port", "10.0.0.1:port", "[2001:db8::1]:port"; no user part, no zone. 0 or -EINVAL. */
int authority_parse(const char *text, size_t size, struct authority *ret);
/* Is it the target? A port that is not said agrees with every one: what is sent on names the port of the target. */
bool authority_agrees(const struct authority *a, const struct target *t);

/* The target that an authority means; `port` where it says none. An address that the stub gave out (`names` may be NULL) means
 * its name. */
void authority_target(const struct names *names, const struct authority *a, uint16_t port, struct target *ret);
bool target_same(const struct target *a, const struct target *b);

enum { AUTHORITY_TEXT = NETWORK_NAME_SIZE + 8 };
/* "name", "10.0.0.1" or, if `brackets`, "[2001:db8::1]". Returns buf. */
const char *target_host(const struct target *t, bool brackets, char buf[AUTHORITY_TEXT]);
/* What stands in Host: the port is left out when it is `usual`. Returns buf. */
const char *target_authority(const struct target *t, uint16_t usual, char buf[AUTHORITY_TEXT]);

enum request_form { REQUEST_ORIGIN, REQUEST_ABSOLUTE, REQUEST_ASTERISK, REQUEST_AUTHORITY };

/* A request target, taken apart. */
struct request_target {
	enum request_form form;
	struct slice path;          /* begins with '/', or is "*"; without the query */
	struct slice query;         /* with its '?', or empty */
	bool https;                 /* scheme of an absolute target */
	struct authority authority; /* of an absolute target or CONNECT */
};

/* 0 or -EBADMSG with `fault`. Does not look at Host. */
int request_target_parse(const struct head *h, struct request_target *ret, struct head_fault *fault);
/* Everything in the request that names a host must name `t`: the target and the only Host field (which HTTP/1.0 may lack). 0 or
 * -EBADMSG with `fault`. */
int request_check_host(const struct head *h, const struct request_target *r, const struct target *t, struct head_fault *fault);
