/* The network part of a plan: the rules, which names have which address from the start, where the broker listens, what the
 * sandbox is told by its environment and files. */
#pragma once

#include "policy/network.h"
#include "policy/policy.h"
#include "sandbox/plan.h"

/* Fills plan->network and what follows from it; leaves it NULL when the policy opens nothing and publishes nothing. Faults go
 * into `errors`. The environment that the clients of rule sets need is added with `set`, which keeps what the policy itself says.
 */
void network_plan(const struct policy *policy, struct plan *plan, struct policy_errors *errors);
void network_plan_done(struct plan *plan);

/* The address that stands for an exact name, or NULL text for other names: "198.18.1.0". */
const char *network_plan_name_at(const struct plan *plan, uint32_t address);

/* Is a connection to this address and port one that ends in a socket of the broker, who records it? */
bool network_plan_listens(const struct plan *plan, const struct net_address *a, uint16_t port);

/* Where the bundle of certificates lies inside, when plan->trust is set. */
#define TRUST_BUNDLE "/run/zwinger/ca-certificates.crt"
#define TRUST_JAVA "/run/zwinger/java-cacerts"
