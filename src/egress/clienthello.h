/* The first message of a TLS client, read from the bytes of its connection: RFC 8446 (4.1.2 and 5.1), RFC 6066 (3), RFC 7301.
 * They are hostile. The reader is strict where two readers could differ: the message ends with its record, extensions that matter
 * come once, lengths fit exactly, and a server name is one host name in a form that has a canonical one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/network.h"

enum {
	CLIENTHELLO_SIZE_MAX = 16 * 1024, /* with the headers of its records */
	CLIENTHELLO_ALPN_MAX = 256,
};

enum clienthello_result {
	CLIENTHELLO_OK,
	CLIENTHELLO_MORE,      /* so far it is the beginning of one */
	CLIENTHELLO_NOT_TLS,   /* what comes is no TLS handshake at all */
	CLIENTHELLO_MALFORMED, /* or longer than CLIENTHELLO_SIZE_MAX */
};

struct clienthello {
	bool has_name;                /* the server_name extension is there */
	char name[NETWORK_NAME_SIZE]; /* canonical */
	bool ech; /* Encrypted ClientHello, also an empty promise of one (GREASE), and its forerunner ESNI: whether the
		     name that counts is another one is known to the far end alone */
	unsigned char alpn[CLIENTHELLO_ALPN_MAX]; /* as on the wire: each protocol with its length before it */
	size_t alpn_size;
};

/* Reads what has come so far, all of it from the first byte. `ret` is complete with CLIENTHELLO_OK only. Bytes after the record
 * in which the message ends (early data) are not looked at. */
enum clienthello_result clienthello_parse(const void *data, size_t size, struct clienthello *ret);
/* Why a ClientHello is not for this name ("" when an address was asked for: then it must carry no name), or NULL when it is.
 * Static text. */
const char *clienthello_objection(const struct clienthello *h, const char *name);
