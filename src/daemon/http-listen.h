/* Sockets that accept, and what happens when there is no room: the longest idle connection makes way, else the new one gets 503.
 */
#pragma once

#include "base/err.h"
#include "daemon/listen-address.h"

struct http_server;
struct http_listener;
struct http_listeners;

struct http_listeners *http_listeners_new(struct http_server *s);
/* Closes, and removes the names of Unix sockets. */
struct http_listeners *http_listeners_free(struct http_listeners *l);

/* Binds and listens, without accepting yet. `tls` asks for TLS on TCP. Of a name's several addresses one must work; a port of 0
 * is the same for all of them. Unix sockets are made with mode 0600. */
int http_listen(struct http_listeners *l, const struct listen_address *a, bool tls, struct zw_error *e);
/* The socket of the state directory, where the user of the daemon needs no key. Replaces what a killed daemon has left. */
int http_listen_owner(struct http_listeners *l, int dirfd, const char *name, struct zw_error *e);

/* "127.0.0.1:7575", "unix:/path" of what listens, in the order of the calls; NULL behind the last one. */
const char *http_listening(const struct http_listeners *l, size_t index, const struct sockaddr_storage **ret_address);
int http_listeners_start(struct http_listeners *l, struct zw_error *e);
/* Of new connections; may change at any time. The listeners keep a reference. */
struct ssl_ctx_st;
void http_listeners_set_tls(struct http_listeners *l, struct ssl_ctx_st *context);
