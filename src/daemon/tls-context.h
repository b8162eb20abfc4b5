/* TLS of the HTTP interface: a certificate that the operator gives, or one made here for first use. TLS 1.2 and later, HTTP/1.1
 * alone by ALPN, no renegotiation, nothing from openssl.cnf. */
#pragma once

#include <openssl/ssl.h>

#include "base/err.h"
#include "daemon/state.h"

/* Once, before anything else of OpenSSL. */
int tls_start(struct zw_error *e);
/* From PEM files: the certificate with its chain, the key that belongs to it. NULL with a sentence that names the file. */
SSL_CTX *tls_context_load(const char *cert, const char *key, struct zw_error *e);
/* For a connection to a server inside a sandbox, whose certificate says nothing: that it is the one inside is known by the way
 * there. NULL: there is not enough memory. */
SSL *tls_to_inside(void);
/* `names` (of `count`) are what clients will call the server: names and addresses. Makes tls/cert.pem and tls/key.pem in the
 * state directory unless both are there and hold for another day. */
int tls_self_signed(const struct state *state, const char *const *names, size_t count, struct zw_error *e);
