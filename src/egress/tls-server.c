/* The side towards the sandbox: we are the server, for the one name of the connection. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "egress/tls-internal.h"

/* RFC 6066 section 3: a list with a 16-bit length, whose entries are a type and a name with a 16-bit length. One entry of type
 * host_name is what clients send; a second one is a way to be understood differently by two readers. */
int tls_read_sni(const unsigned char *extension, size_t size, char ret[NETWORK_NAME_SIZE])
{
	size_t list, name;

	if (size < 5)
		return -EINVAL;
	list = (size_t) extension[0] << 8 | extension[1];
	name = (size_t) extension[3] << 8 | extension[4];
	if (list != size - 2 || extension[2] != TLSEXT_NAMETYPE_host_name || name != size - 5)
		return -EINVAL;
	return network_name((const char *) extension + 5, name, ret);
}

/* Does the name that the client asks for agree with the one that the connection was made to? */
static bool sni_agrees(struct tls_side *side, const unsigned char *extension, size_t size)
{
	char asked[NETWORK_NAME_SIZE];
	struct net_address a;
	bool is_address = network_address(side->name, strlen(side->name), &a) == 0;

	if (extension == NULL) {
		if (!is_address)
			(void) snprintf(side->why, sizeof side->why, "the client sent no server name (SNI)");
		return is_address;
	}
	/* Addresses have no place in this extension, but some clients put them there. */
	if (is_address && size >= 5 && size - 5 == strlen(side->name) && memcmp(extension + 5, side->name, size - 5) == 0)
		return true;
	if (tls_read_sni(extension, size, asked) < 0)
		(void) snprintf(side->why, sizeof side->why, "the client sent a server name (SNI) that has no canonical form");
	else if (strcmp(asked, side->name) != 0)
		(void) snprintf(side->why, sizeof side->why, "the client asked for another server name (SNI): %.150s", asked);
	return side->why[0] == '\0';
}

/* Before OpenSSL looks at anything, and also when a session is to be resumed. */
static int on_client_hello(SSL *ssl, int *alert, void *ctx)
{
	struct tls_side *side = tls_side_of(ssl);
	const unsigned char *extension = NULL;
	size_t size = 0;

	(void) ctx;
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &extension, &size) != 1)
		extension = NULL;
	if (sni_agrees(side, extension, size))
		return SSL_CLIENT_HELLO_SUCCESS;
	*alert = SSL_AD_UNRECOGNIZED_NAME;
	return SSL_CLIENT_HELLO_ERROR;
}

static int on_alpn(SSL *ssl, const unsigned char **ret, unsigned char *ret_size, const unsigned char *offered, unsigned size,
		   void *ctx)
{
	static const unsigned char ours[] = "\x08http/1.1\x08http/1.0";
	unsigned char *chosen;
	struct tls_side *side = tls_side_of(ssl);

	(void) ctx;
	if (SSL_select_next_proto(&chosen, ret_size, ours, sizeof ours - 1, offered, size) == OPENSSL_NPN_NEGOTIATED) {
		*ret = chosen;
		return SSL_TLSEXT_ERR_OK;
	}
	(void) snprintf(side->why, sizeof side->why, "the client does not offer HTTP/1.1, which is what an https rule speaks");
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX *tls_server_context(struct tls *t)
{
	if (t->server != NULL)
		return t->server;
	t->server = tls_context_new(t, TLS_server_method());
	if (t->server == NULL)
		return NULL;
	SSL_CTX_set_client_hello_cb(t->server, on_client_hello, NULL);
	SSL_CTX_set_alpn_select_cb(t->server, on_alpn, NULL);
	/* Sessions are resumed by tickets, sealed with a key of this process; nothing is kept here. */
	(void) SSL_CTX_set_session_cache_mode(t->server, SSL_SESS_CACHE_OFF);
	(void) SSL_CTX_set_num_tickets(t->server, 1);
	return t->server;
}

/* The context of a session is its name: a ticket for one is none for another. */
static bool bind_sessions(SSL *ssl, const char *name)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	size_t size = 0;

	return EVP_Q_digest(NULL, "SHA256", NULL, name, strlen(name), digest, &size) == 1 && size <= SSL_MAX_SID_CTX_LENGTH &&
	       SSL_set_session_id_context(ssl, digest, (unsigned) size) == 1;
}

struct bufferevent *tls_accept(struct tls *t, int fd, const char *name)
{
	SSL *ssl = tls_ssl_new(t, tls_server_context(t), name, true);
	EVP_PKEY *key;
	X509 *leaf;

	if (ssl != NULL && (leaf_for(t->ca, name, &leaf, &key) < 0 || SSL_use_certificate(ssl, leaf) != 1 ||
			    SSL_use_PrivateKey(ssl, key) != 1 || !bind_sessions(ssl, name))) {
		SSL_free(ssl);
		ssl = NULL;
	}
	return tls_bufferevent(t, ssl, fd);
}
