/* From a tree to struct policy, by the rows of the schema. Every fault is collected; decoding goes on behind it. */
#pragma once

#include "policy/node.h"
#include "policy/policy.h"

struct decoder {
	struct policy_errors *errors;
};

/* Adds a fault at the place of a node. */
void decode_error(struct decoder *d, const struct node *at, const char *key, const char *suggestion, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Decodes a tree over the defaults. `ret` is always left in a state for policy_done; members whose value was faulty keep their
 * default or stay empty. Elements of lists keep their index, faulty ones included, so that they can be matched with their nodes.
 */
void decode_policy(const struct node *root, struct policy *ret, struct policy_errors *errors);

/* What only shows when the whole policy is known: references, duplicates. `root` is the tree `p` came from. */
void validate_policy(const struct node *root, const struct policy *p, struct policy_errors *errors);
