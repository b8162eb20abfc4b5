/* What the files of TLS share. */
#pragma once

#include <openssl/ssl.h>

#include "egress/leaf.h"
#include "egress/tls.h"
#include "egress/trust.h"

struct tls_sessions;

struct tls {
	struct broker *broker;
	struct leaf_ca *ca;
	struct trust *trust;
	SSL_CTX *server, *client;      /* made with the first connection */
	struct tls_sessions *sessions; /* of servers, to be resumed */
	int side_index;                /* where an SSL keeps its struct tls_side */
};

/* What we know of one TLS connection; freed with its SSL. */
struct tls_side {
	struct tls *tls;
	bool server;
	char name[NETWORK_NAME_SIZE]; /* that it must be for */
	char why[240];                /* our own reason to fail, "" */
	unsigned long error;          /* OpenSSL's first error, 0: not looked at, or none */
};

/* What both sides have in common. NULL: no memory. */
SSL_CTX *tls_context_new(struct tls *t, const SSL_METHOD *method);
SSL *tls_ssl_new(struct tls *t, SSL_CTX *context, const char *name, bool server);
struct tls_side *tls_side_of(const SSL *ssl);
/* Takes over `ssl` and fd. NULL when `ssl` is, or there is no memory. */
struct bufferevent *tls_bufferevent(struct tls *t, SSL *ssl, int fd);

SSL_CTX *tls_server_context(struct tls *t);
SSL_CTX *tls_client_context(struct tls *t);
void tls_sessions_free(struct tls_sessions *s);

/* The one host name of a server_name extension in canonical form. 0, or -EINVAL when it is anything else. tls-server.c */
int tls_read_sni(const unsigned char *extension, size_t size, char ret[NETWORK_NAME_SIZE]);
