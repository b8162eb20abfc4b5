/* TLS at both ends of an https rule. Towards the sandbox with a certificate of this run's CA, whose key never leaves this process
 * and whose name constraints are the rules' names; towards the world with full verification of chain and name (no revocation
 * lists). OpenSSL 3 by libevent's bufferevents (BEV_OPT_CLOSE_ON_FREE, deferred callbacks). HTTP/1.1 alone is offered by ALPN.
 *
 * No file is opened after tls_new: OpenSSL reads no configuration and no engine, its provider is the built-in one, its random
 * numbers come from getrandom(2).
 *
 * Speed. libevent reads 4096 bytes at a time unless the read watermark says otherwise: set a high one of 64 KiB or more. It must
 * be SSL_write without partial writes that libevent calls: never set SSL_MODE_ENABLE_PARTIAL_WRITE, libevent 2.1 would lose
 * bytes.
 *
 * The end of a connection. A peer that says close_notify gives BEV_EVENT_EOF. One that just closes, or is cut off by somebody
 * between, gives BEV_EVENT_ERROR, and tls_was_cut is true: a body that is delimited by the end of the connection is then
 * incomplete and must not be passed on as whole; after a body of known length, or between requests, it is an ordinary end. To end
 * in order oneself: tls_close. For a reset: SO_LINGER 0 on bufferevent_getfd, then bufferevent_free. */
#pragma once

#include <event2/bufferevent.h>
#include <stdbool.h>

#include "egress/broker.h"

struct tls;

/* Before the broker is confined: reads the host's trust store (or that of SSL_CERT_FILE) and network.ca_file, makes the CA,
 * called after broker.id. Certificates of the trust store are decoded when a connection first asks for them. NULL with a
 * sentence. */
struct tls *tls_new(struct broker *b, struct zw_error *e);
/* After bufferevent_free for the last one; libevent may do that later, when the event base is freed. */
void tls_free(struct tls *t);
/* Memory files for the sandbox, sealed: the bundle in PEM, and the JKS key store (password "changeit"): the certificates that are
 * trusted upstream, and the CA of this run. Owned by the caller. Negative errno with a sentence. */
int tls_trust_bundle(struct tls *t, struct zw_error *e);
int tls_trust_java(struct tls *t, struct zw_error *e);
const char *tls_ca_pem(const struct tls *t);

/* Server side for `name` (canonical, or an address in its usual form): handshake in progress. A ClientHello whose SNI is absent
 * or another name fails (why in tls_error); for an address it must be absent or that address. Takes over fd, also when it fails;
 * NULL: no memory. */
struct bufferevent *tls_accept(struct tls *t, int fd, const char *name);
/* Client side: verified against `name` (or the address, for address rules) and the trust store. Takes over fd, also when it
 * fails; NULL: no memory. */
struct bufferevent *tls_connect(struct tls *t, int fd, const char *name);
/* Why a handshake failed or a connection broke, after BEV_EVENT_ERROR or an early BEV_EVENT_EOF: a sentence without full stop
 * into buf. */
void tls_error(struct bufferevent *bev, char *buf, size_t size);
/* After BEV_EVENT_ERROR: the peer closed in order, but without close_notify, as many servers do. Then tls_was_cut is true as
 * well. */
bool tls_was_closed(struct bufferevent *bev);
/* What the broker had against the ClientHello of tls_accept, valid as long as `bev`; NULL when it refused none. */
const char *tls_objection(struct bufferevent *bev);
/* After BEV_EVENT_ERROR: the peer's bytes ended without close_notify, or by a reset. */
bool tls_was_cut(struct bufferevent *bev);
/* The orderly end: close_notify once the socket takes it (for at most some seconds), then bufferevent_free. The output must have
 * been drained. No callback of `bev` is called any more. */
void tls_close(struct bufferevent *bev);
