/* The certificates that are trusted upstream: the host's trust store and network.ca_file. Read once, before the broker is
 * confined; of some 150 certificates only those are decoded that a chain asks for, since decoding all takes longer than the start
 * of a sandbox. */
#pragma once

#include <openssl/x509_vfy.h>
#include <stddef.h>

#include "base/err.h"

struct trust;

enum {
	TRUST_FILE_MAX = 8 * 1024 * 1024,  /* bytes of one file */
	TRUST_CERTIFICATE_MAX = 64 * 1024, /* bytes of one certificate in DER; longer ones are left out */
	TRUST_COUNT_MAX = 8192,
};

/* Reads SSL_CERT_FILE, or without it the first of the usual bundles of the host, and `ca_file` (NULL: none). NULL with a sentence
 * when a file that was named cannot be read or holds no certificate, and when there is nothing to trust at all. */
struct trust *trust_new(const char *ca_file, struct zw_error *e);
struct trust *trust_free(struct trust *t);

/* The certificates in DER: how many, and one of them (allocated, owned by the caller), whose size is returned. */
size_t trust_count(const struct trust *t);
size_t trust_get(const struct trust *t, size_t index, unsigned char **ret);

/* Writes all in PEM: the blocks of the files, without what stood between them. 0 or negative errno. */
int trust_write_pem(const struct trust *t, int fd);
/* A sealed memory file that begins with what trust_write_pem wrote: takes the place of the copy here, if it can be mapped. */
void trust_map(struct trust *t, int fd);

/* Makes `store` find these certificates; once a trust. If trust_free comes before the store is freed (connections that are still
 * being closed hold it), `t` lives until then. 0 or -ENOMEM. */
int trust_attach(struct trust *t, X509_STORE *store);
