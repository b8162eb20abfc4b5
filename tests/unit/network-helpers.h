/* What the tests of the network rules share. */
#pragma once

#include "policy-helpers.h"

#include "policy/network-parts.h"

/* A size that goes with its bytes, NUL among them. */
#define BYTES(s) s, sizeof(s) - 1

static inline uint32_t next_random(uint32_t *state) /* the same numbers in each run */
{
	*state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
	return *state >> 8;
}

static inline struct network network_of(const char *policy)
{
	struct policy p = policy_of(policy);
	struct policy_errors errors = {0};
	struct network n = {0};

	if (network_from_policy(&p, &n, &errors) != 0) {
		print_policy_errors(&errors);
		fail_msg("expected a network: %s", policy);
	}
	assert_int_equal(errors.count, 0);
	policy_done(&p);
	return n;
}

static inline struct net_address address_of(const char *text)
{
	struct net_prefix p;

	if (!network_prefix_parse(text, &p))
		fail_msg("%s is no address", text);
	return p.address;
}

static inline struct net_prefix prefix_of(const char *text)
{
	struct net_prefix p;

	if (!network_prefix_parse(text, &p))
		fail_msg("%s is no prefix", text);
	return p;
}
