/* The CA of one run and the certificates that it issues, one a name. Its key is made here and never leaves this process; what it
 * may sign is limited by critical name constraints to the names and addresses of the https rules.
 *
 * A constraint on a name includes what is below it (RFC 5280 4.2.1.10), so that "*.x.y" and "x.y" are both written "x.y": the
 * leading dot that would tell them apart is not in the standard for DNS names, and some verifiers refuse the whole certificate
 * for it. Which certificates are made is decided by the rules, not by the constraint. */
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stddef.h>

#include "base/err.h"
#include "policy/network.h"

struct leaf_ca;

enum {
	LEAF_CA_DAYS = 7,
	LEAF_DAYS = 2,        /* made anew when less than half of it is left */
	LEAF_CACHE_MAX = 128, /* certificates that are kept */
};

/* `run` names the run in the subject; NULL: a random name. NULL with a sentence. */
struct leaf_ca *leaf_ca_new(const struct network *n, const char *run, struct zw_error *e);
struct leaf_ca *leaf_ca_free(struct leaf_ca *ca);

/* The certificate of the CA. Valid as long as `ca`. */
const char *leaf_ca_pem(const struct leaf_ca *ca);
const unsigned char *leaf_ca_der(const struct leaf_ca *ca, size_t *ret_size);

/* The certificate for a canonical name or an address in its usual form, and its key. The caller takes references of its own
 * before the next call. 0 or -EIO. */
int leaf_for(struct leaf_ca *ca, const char *name, X509 **ret, EVP_PKEY **ret_key);
