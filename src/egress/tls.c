#include "egress/tls.h"

#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/jks.h"
#include "egress/leaf-key.h"
#include "egress/tls-internal.h"

enum {
	READ_MAX = 64 * 1024, /* bytes at once */
	CLOSE_SECONDS = 10,
};

/* ---- The state. ---- */

static void side_free(void *parent, void *side, CRYPTO_EX_DATA *data, int index, long number, void *pointer)
{
	(void) parent;
	(void) data;
	(void) index;
	(void) number;
	(void) pointer;
	free(side);
}

static struct tls *failed(struct tls *t, struct zw_error *e, const char *what)
{
	const char *why = ERR_reason_error_string(ERR_peek_error());

	(void) zw_error(e, EIO, "cannot %s: %s", what, why != NULL ? why : "OpenSSL gives no reason");
	ERR_clear_error();
	tls_free(t);
	return NULL;
}

struct tls *tls_new(struct broker *b, struct zw_error *e)
{
	struct tls *t = xcalloc(1, sizeof *t);

	*t = (struct tls){.broker = b, .side_index = -1};
	/* Neither openssl.cnf nor what it may name is loaded, now or later: whoever could write it would be inside this process.
	 */
	if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1 || !leaf_key_random())
		return failed(t, e, "start OpenSSL");
	t->side_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, side_free);
	if (t->side_index < 0)
		return failed(t, e, "start OpenSSL");
	t->trust = trust_new(b->network->ca_file, e);
	t->ca = t->trust != NULL ? leaf_ca_new(b->network, b->id, e) : NULL;
	if (t->ca == NULL) {
		tls_free(t);
		return NULL;
	}
	return t;
}

void tls_free(struct tls *t)
{
	if (t == NULL)
		return;
	tls_sessions_free(t->sessions);
	SSL_CTX_free(t->server);
	SSL_CTX_free(t->client);
	t->trust = trust_free(t->trust);
	t->ca = leaf_ca_free(t->ca);
	/* The index stays: connections that libevent is still about to free need it for their struct tls_side. */
	free(t);
}

const char *tls_ca_pem(const struct tls *t)
{
	return leaf_ca_pem(t->ca);
}

/* ---- Files for the sandbox. ---- */

static int memory_file(const char *name, struct zw_error *e)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? zw_errno(e, errno, "cannot make a memory file for the trusted certificates") : fd;
}

/* `r`: what writing it came to. */
static int finish(int r, int *fd, struct zw_error *e)
{
	if (r < 0)
		return zw_errno(e, -r, "cannot write the trusted certificates to a memory file");
	if (fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 || lseek(*fd, 0, SEEK_SET) < 0)
		return zw_errno(e, errno, "cannot seal the memory file with the trusted certificates");
	return take_fd(fd);
}

int tls_trust_bundle(struct tls *t, struct zw_error *e)
{
	const char *ca = leaf_ca_pem(t->ca);
	cleanup_fd int fd = memory_file("ca-certificates.crt", e);
	int r;

	if (fd < 0)
		return fd;
	r = trust_write_pem(t->trust, fd);
	r = finish(r == 0 ? fd_write_all(fd, ca, strlen(ca)) : r, &fd, e);
	if (r >= 0)
		trust_map(t->trust, r);
	return r;
}

static int write_key_store(const struct tls *t, int fd)
{
	size_t count = trust_count(t->trust), size;
	struct jks *store = jks_start(fd, (uint32_t) count + 1);
	usec_t now = now_realtime();
	const unsigned char *ca = leaf_ca_der(t->ca, &size);
	char alias[32];

	for (size_t i = 0; i < count; i++) {
		cleanup_free unsigned char *der = NULL;
		size_t der_size = trust_get(t->trust, i, &der);

		(void) snprintf(alias, sizeof alias, "host-%zu", i);
		jks_add(store, alias, now, der, der_size);
	}
	jks_add(store, "zwinger-run", now, ca, size);
	return jks_end(store);
}

int tls_trust_java(struct tls *t, struct zw_error *e)
{
	cleanup_fd int fd = memory_file("cacerts", e);

	return fd < 0 ? fd : finish(write_key_store(t, fd), &fd, e);
}

/* ---- What both sides have in common. ---- */

SSL_CTX *tls_context_new(struct tls *t, const SSL_METHOD *method)
{
	SSL_CTX *c = SSL_CTX_new(method);

	if (c == NULL || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1) {
		SSL_CTX_free(c);
		ERR_clear_error();
		return NULL;
	}
	(void) SSL_CTX_set_app_data(c, t);
	(void) SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
	/* An idle connection holds no buffers of 16 KiB. */
	(void) SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
	return c;
}

SSL *tls_ssl_new(struct tls *t, SSL_CTX *context, const char *name, bool server)
{
	SSL *ssl = context != NULL ? SSL_new(context) : NULL;
	struct tls_side *side;

	if (ssl == NULL)
		return NULL;
	side = xcalloc(1, sizeof *side);
	*side = (struct tls_side){.tls = t, .server = server};
	(void) snprintf(side->name, sizeof side->name, "%s", name);
	if (SSL_set_ex_data(ssl, t->side_index, side) != 1) {
		free(side);
		SSL_free(ssl);
		return NULL;
	}
	return ssl;
}

struct tls_side *tls_side_of(const SSL *ssl)
{
	const struct tls *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	return SSL_get_ex_data(ssl, t->side_index);
}

struct bufferevent *tls_bufferevent(struct tls *t, SSL *ssl, int fd)
{
	cleanup_fd int owned = fd;
	struct bufferevent *bev = NULL;

	if (ssl != NULL)
		bev = bufferevent_openssl_socket_new(
		    t->broker->base, fd, ssl, tls_side_of(ssl)->server ? BUFFEREVENT_SSL_ACCEPTING : BUFFEREVENT_SSL_CONNECTING,
		    BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
	ERR_clear_error();
	if (bev == NULL) {
		SSL_free(ssl);
		return NULL;
	}
	(void) take_fd(&owned);
	(void) bufferevent_set_max_single_read(bev, READ_MAX);
	bufferevent_openssl_set_allow_dirty_shutdown(bev, 0);
	return bev;
}

/* ---- Faults. ---- */

static unsigned long first_error(struct bufferevent *bev, struct tls_side *side)
{
	if (side->error == 0)
		side->error = bufferevent_get_openssl_error(bev);
	return side->error;
}

/* Alerts by which a client says that it does not trust our certificate. */
static bool is_distrust(int reason)
{
	return reason == SSL_R_TLSV1_ALERT_UNKNOWN_CA || reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE ||
	       reason == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN;
}

static void verification_error(const struct tls_side *side, long verdict, char *buf, size_t size)
{
	bool unknown = verdict == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
		       verdict == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN || verdict == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;

	/* The advice first: a record keeps some hundred bytes. */
	(void) snprintf(buf, size, "certificate refused: %s%s (%s)", X509_verify_cert_error_string(verdict),
			unknown ? "; a private CA is named by network.ca_file" : "", side->name);
}

/* SSL_is_init_finished is false again after a fatal error. */
static bool had_handshake(const SSL *ssl)
{
	char byte;

	return SSL_get_peer_finished(ssl, &byte, sizeof byte) > 0;
}

void tls_error(struct bufferevent *bev, char *buf, size_t size)
{
	SSL *ssl = bufferevent_openssl_get_ssl(bev);
	struct tls_side *side = tls_side_of(ssl);
	unsigned long error = first_error(bev, side);
	const char *reason = error != 0 ? ERR_reason_error_string(error) : NULL;
	long verdict = side->server ? X509_V_OK : SSL_get_verify_result(ssl);

	if (side->why[0] != '\0')
		(void) snprintf(buf, size, "%s", side->why);
	else if (verdict != X509_V_OK)
		verification_error(side, verdict, buf, size);
	else if (side->server && is_distrust(ERR_GET_REASON(error)))
		(void) snprintf(buf, size,
				"the client does not trust the CA of this run, which is in the bundle that SSL_CERT_FILE names");
	else if (tls_was_cut(bev))
		(void) snprintf(buf, size, "%s ended the connection %s", side->server ? "the client" : "the server",
				had_handshake(ssl) ? "without close_notify" : "during the TLS handshake");
	else
		(void) snprintf(buf, size, "TLS with %s failed: %s", side->server ? "the client" : "the server",
				reason != NULL ? reason : "the connection ended");
}

const char *tls_objection(struct bufferevent *bev)
{
	const struct tls_side *side = tls_side_of(bufferevent_openssl_get_ssl(bev));

	return side->server && side->why[0] != '\0' ? side->why : NULL;
}

bool tls_was_closed(struct bufferevent *bev)
{
	struct tls_side *side = tls_side_of(bufferevent_openssl_get_ssl(bev));

	return ERR_GET_REASON(first_error(bev, side)) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

bool tls_was_cut(struct bufferevent *bev)
{
	SSL *ssl = bufferevent_openssl_get_ssl(bev);
	unsigned long error = first_error(bev, tls_side_of(ssl));

	/* Without an error of OpenSSL's it was one of the socket. */
	return error == 0 ? (SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) == 0
			  : ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

/* ---- The orderly end. ---- */

struct closing {
	struct bufferevent *bev;
	struct event *writable;
};

/* True when close_notify is on its way, or can't be. */
static bool say_close(struct bufferevent *bev)
{
	SSL *ssl = bufferevent_openssl_get_ssl(bev);
	bool done = true;

	ERR_clear_error();
	if (SSL_is_init_finished(ssl)) {
		int r = SSL_shutdown(ssl);

		done = r >= 0 || SSL_get_error(ssl, r) != SSL_ERROR_WANT_WRITE;
	}
	ERR_clear_error();
	return done;
}

static void close_again(evutil_socket_t fd, short events, void *ctx)
{
	struct closing *c = ctx;
	struct timeval patience = {.tv_sec = CLOSE_SECONDS};

	(void) fd;
	if ((events & EV_TIMEOUT) == 0 && !say_close(c->bev) && event_add(c->writable, &patience) == 0)
		return;
	event_free(c->writable);
	bufferevent_free(c->bev);
	free(c);
}

void tls_close(struct bufferevent *bev)
{
	struct timeval patience = {.tv_sec = CLOSE_SECONDS};
	struct closing *c;

	bufferevent_setcb(bev, NULL, NULL, NULL, NULL);
	(void) bufferevent_disable(bev, EV_READ | EV_WRITE);
	if (say_close(bev)) {
		bufferevent_free(bev);
		return;
	}
	c = xcalloc(1, sizeof *c);
	c->bev = bev;
	c->writable = event_new(bufferevent_get_base(bev), bufferevent_getfd(bev), EV_WRITE, close_again, c);
	if (c->writable != NULL && event_add(c->writable, &patience) == 0)
		return;
	if (c->writable != NULL)
		event_free(c->writable);
	bufferevent_free(bev);
	free(c);
}
