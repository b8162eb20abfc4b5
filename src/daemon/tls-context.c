#include "daemon/tls-context.h"

#include <errno.h>
#include <openssl/err.h>
#include <string.h>

#include "base/mem.h"

static int failed(struct zw_error *e, const char *what, const char *file)
{
	const char *why = ERR_reason_error_string(ERR_peek_last_error());

	(void) zw_error(e, EINVAL, "cannot %s %s: %s", what, file, why != NULL ? why : "OpenSSL gives no reason");
	ERR_clear_error();
	return -EINVAL;
}

int tls_start(struct zw_error *e)
{
	return OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) == 1 ? 0 : failed(e, "start", "OpenSSL");
}

static int on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_size, const unsigned char *offered, unsigned size,
		   void *arg)
{
	static const unsigned char ours[] = "\x08http/1.1";
	unsigned char *chosen;

	(void) ssl;
	(void) arg;
	if (SSL_select_next_proto(&chosen, ret_size, ours, sizeof ours - 1, offered, size) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*ret = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *make(void)
{
	SSL_CTX *c = SSL_CTX_new(TLS_server_method());

	if (c == NULL || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1) {
		SSL_CTX_free(c);
		return NULL;
	}
	(void) SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	(void) SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_alpn_select_cb(c, on_alpn, NULL);
	/* Sessions are resumed by tickets, sealed with a key of this process; nothing is kept here. */
	(void) SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	(void) SSL_CTX_set_num_tickets(c, 1);
	return c;
}

static int load(SSL_CTX *c, const char *cert, const char *key, struct zw_error *e)
{
	if (SSL_CTX_use_certificate_chain_file(c, cert) != 1)
		return failed(e, "read the certificate", cert);
	if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1)
		return failed(e, "read the private key", key);
	return SSL_CTX_check_private_key(c) == 1 ? 0 : failed(e, "use the private key for the certificate:", key);
}

/* A question for a passphrase would stop the daemon. */
static int no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	(void) buf;
	(void) size;
	(void) rwflag;
	(void) arg;
	return -1;
}

SSL_CTX *tls_context_load(const char *cert, const char *key, struct zw_error *e)
{
	SSL_CTX *c = make();

	if (c == NULL) {
		(void) failed(e, "start", "TLS");
		return NULL;
	}
	SSL_CTX_set_default_passwd_cb(c, no_passphrase);
	if (load(c, cert, key, e) < 0) {
		SSL_CTX_free(c);
		return NULL;
	}
	return c;
}

static SSL_CTX *make_client(void)
{
	SSL_CTX *c = SSL_CTX_new(TLS_client_method());

	if (c == NULL || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1) {
		SSL_CTX_free(c);
		return NULL;
	}
	/* Many servers close without a word of TLS; where an answer ends is for HTTP to say. */
	(void) SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	(void) SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_verify(c, SSL_VERIFY_NONE, NULL);
	(void) SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	return c;
}

SSL *tls_to_inside(void)
{
	struct zw_error e;
	SSL_CTX *c = tls_start(&e) == 0 ? make_client() : NULL;
	SSL *ssl = c != NULL ? SSL_new(c) : NULL;

	SSL_CTX_free(c); /* the connection keeps it */
	ERR_clear_error();
	return ssl;
}
