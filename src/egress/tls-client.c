/* The side towards the world: we are the client, and verify the chain and the name of whoever answers. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "egress/tls-internal.h"

enum {
	CHAIN_MAX = 8, /* certificates between the server's and the trusted one */
	SESSIONS_MAX = 32,
	SESSION_SECONDS = 60 * 60, /* the certificate is verified anew when it is older */
};

/* The newest session with each name, in the order of use: the newest first. */
struct tls_sessions {
	struct {
		char *name;
		SSL_SESSION *session;
	} items[SESSIONS_MAX];
	size_t count;
};

static void drop(struct tls_sessions *s, size_t index)
{
	SSL_SESSION_free(s->items[index].session);
	free(s->items[index].name);
	s->count--;
	memmove(&s->items[index], &s->items[index + 1], (s->count - index) * sizeof s->items[0]);
}

static size_t find(const struct tls_sessions *s, const char *name)
{
	size_t i = 0;

	while (i < s->count && strcmp(s->items[i].name, name) != 0)
		i++;
	return i;
}

void tls_sessions_free(struct tls_sessions *s)
{
	while (s != NULL && s->count > 0)
		drop(s, s->count - 1);
	free(s);
}

/* Comes only after the peer has been verified. What is kept is a copy: OpenSSL makes the session of a connection unusable that is
 * freed without close_notify, as one whose upstream was reset is. */
static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
	const struct tls_side *side = tls_side_of(ssl);
	struct tls_sessions *s = side->tls->sessions;
	size_t have = find(s, side->name);
	SSL_SESSION *copy;

	if (SSL_SESSION_is_resumable(session) != 1 || SSL_get_verify_result(ssl) != X509_V_OK)
		return 0;
	copy = SSL_SESSION_dup(session);
	if (copy == NULL)
		return 0;
	if (have < s->count)
		drop(s, have);
	else if (s->count == SESSIONS_MAX)
		drop(s, s->count - 1);
	memmove(&s->items[1], &s->items[0], s->count * sizeof s->items[0]);
	s->items[0].name = xstrdup(side->name);
	s->items[0].session = copy;
	s->count++;
	return 0;
}

static void resume(struct tls *t, SSL *ssl, const char *name)
{
	size_t i = find(t->sessions, name);

	if (i == t->sessions->count)
		return;
	if (time(NULL) - SSL_SESSION_get_time(t->sessions->items[i].session) > SESSION_SECONDS)
		drop(t->sessions, i);
	else
		(void) SSL_set_session(ssl, t->sessions->items[i].session);
}

static SSL_CTX *context_new(struct tls *t)
{
	static const unsigned char protocols[] = "\x08http/1.1";
	SSL_CTX *c = tls_context_new(t, TLS_client_method());
	X509_VERIFY_PARAM *verify = c != NULL ? SSL_CTX_get0_param(c) : NULL;

	if (c == NULL)
		return NULL;
	/* A certificate that is in the trust store is trusted itself, whoever signed it: for servers whose own certificate is
	 * named by network.ca_file. */
	if (X509_VERIFY_PARAM_set_flags(verify, X509_V_FLAG_TRUSTED_FIRST | X509_V_FLAG_PARTIAL_CHAIN) != 1 ||
	    trust_attach(t->trust, SSL_CTX_get_cert_store(c)) < 0 ||
	    SSL_CTX_set_alpn_protos(c, protocols, sizeof protocols - 1) != 0) {
		SSL_CTX_free(c);
		return NULL;
	}
	X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_verify_depth(c, CHAIN_MAX); /* a hostile server is not to keep us busy with its chain */
	(void) SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(c, on_new_session);
	return c;
}

SSL_CTX *tls_client_context(struct tls *t)
{
	if (t->client == NULL) {
		t->client = context_new(t);
		if (t->client != NULL)
			t->sessions = xcalloc(1, sizeof *t->sessions);
	}
	return t->client;
}

/* RFC 6066: SNI is for names alone. */
static bool expect_peer(SSL *ssl, const char *name)
{
	struct net_address a;

	if (network_address(name, strlen(name), &a) == 0)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

struct bufferevent *tls_connect(struct tls *t, int fd, const char *name)
{
	SSL *ssl = tls_ssl_new(t, tls_client_context(t), name, false);

	if (ssl != NULL && !expect_peer(ssl, name)) {
		SSL_free(ssl);
		ssl = NULL;
	}
	if (ssl != NULL)
		resume(t, ssl, name);
	return tls_bufferevent(t, ssl, fd);
}
