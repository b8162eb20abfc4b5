/* Where the daemon listens: what an operator writes, and which sockets that means. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"

struct listen_socket {
	struct sockaddr_storage address;
	socklen_t size;
	bool loopback; /* reached from this machine alone */
};

struct listen_address {
	char *text;                    /* as written */
	char *unix_path;               /* absolute or not; NULL: TCP */
	char *host;                    /* NULL: every address, or a Unix socket */
	uint16_t port;                 /* 0: a free one */
	struct listen_socket *sockets; /* TCP */
	size_t socket_count;
};

/* "HOST:PORT", "[V6]:PORT", ":PORT", "unix:PATH". Names are looked up. -EINVAL: not of that form; -ENOENT: there is no such name.
 */
int listen_address_parse(const char *text, struct listen_address *ret, struct zw_error *e);
void listen_address_done(struct listen_address *a);
/* All of its sockets are local. */
bool listen_address_is_local(const struct listen_address *a);

enum { ADDRESS_TEXT_SIZE = 64 };
/* "10.0.0.1" or "::1", IPv4-mapped ones as IPv4; *ret_port may be NULL. "" for other families. Returns buf. */
const char *address_text(const struct sockaddr_storage *address, char buf[ADDRESS_TEXT_SIZE], uint16_t *ret_port);
/* "10.0.0.1:80", "[::1]:80". Returns buf. */
const char *address_and_port(const struct sockaddr_storage *address, char buf[ADDRESS_TEXT_SIZE]);
