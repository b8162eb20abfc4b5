/* Keys on P-256 and signatures with ECDSA and SHA-256, by OpenSSL's functions for these alone. Its general ones (EVP) look every
 * algorithm up among all that there are, the first of each kind in half a millisecond, and the start of a sandbox waits for the
 * certificate of the CA. What is made here works with them as any other key does. */
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <stdbool.h>

enum { LEAF_KEY_ID_SIZE = 20 };

/* All random numbers of OpenSSL from getrandom(2), instead of from generators of its own that are seeded from there. For the
 * process; before the first key. False: OpenSSL refuses. */
bool leaf_key_random(void);

/* A new key, or NULL. */
EVP_PKEY *leaf_key_new(void);

/* Signs the certificate, in which all else has been set. */
bool leaf_key_sign(EVP_PKEY *key, X509 *x);

/* The key identifier (RFC 7093 section 2, method 1) of the certificate's public key. */
void leaf_key_id(const X509 *x, unsigned char ret[LEAF_KEY_ID_SIZE]);
