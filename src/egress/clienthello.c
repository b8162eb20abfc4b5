#include "egress/clienthello.h"

#include <string.h>

enum {
	RECORD_HEADER = 5,
	RECORD_HANDSHAKE = 22,
	RECORD_MAX = 1 << 14,
	MESSAGE_HEADER = 4,
	MESSAGE_CLIENT_HELLO = 1,
	RANDOM_SIZE = 32,
	SESSION_ID_MAX = 32,

	EXTENSION_SERVER_NAME = 0,
	EXTENSION_ALPN = 16,
	EXTENSION_ECH_FIRST = 0xfe08, /* drafts of RFC 9849 */
	EXTENSION_ECH = 0xfe0d,
	EXTENSION_ESNI = 0xffce,
	NAME_TYPE_HOST = 0,
};

struct span {
	const unsigned char *at;
	size_t size;
};

/* ---- Records: the bytes of the message, put together. ---- */

/* The first bytes of a record, as many as there are, are those of a handshake record of SSL 3.0 or later. */
static bool looks_like_record(const unsigned char *p, size_t size)
{
	return (size < 1 || p[0] == RECORD_HANDSHAKE) && (size < 2 || p[1] == 3) && (size < 3 || p[2] <= 4);
}

/* Size of the whole message with its header as its first bytes have it, 0 while they are not there. */
static size_t message_size(const unsigned char *message, size_t have)
{
	if (have < MESSAGE_HEADER)
		return 0;
	return MESSAGE_HEADER + ((size_t) message[1] << 16 | (size_t) message[2] << 8 | message[3]);
}

/* Takes a record's payload; whether the message so far can be the beginning of a ClientHello. */
static enum clienthello_result take_payload(unsigned char *message, size_t *have, const unsigned char *payload, size_t size)
{
	size_t wanted;

	memcpy(message + *have, payload, size); /* all payloads together are shorter than CLIENTHELLO_SIZE_MAX */
	*have += size;
	wanted = message_size(message, *have);
	if (message[0] != MESSAGE_CLIENT_HELLO || wanted > CLIENTHELLO_SIZE_MAX)
		return CLIENTHELLO_MALFORMED;
	if (wanted == 0 || *have < wanted)
		return CLIENTHELLO_MORE;
	/* A second message in the same record: nothing that a client sends, and something that only one of two readers may see.
	 */
	return *have == wanted ? CLIENTHELLO_OK : CLIENTHELLO_MALFORMED;
}

/* Puts the message together. OK: `message` is whole, *ret_size bytes. */
static enum clienthello_result join_records(const unsigned char *data, size_t size, unsigned char *message, size_t *ret_size)
{
	enum clienthello_result r = CLIENTHELLO_MORE;
	size_t have = 0, limit = size < CLIENTHELLO_SIZE_MAX ? size : CLIENTHELLO_SIZE_MAX;

	for (size_t at = 0; r == CLIENTHELLO_MORE && at < limit;) {
		const unsigned char *p = data + at;
		size_t there = limit - at, length;

		if (!looks_like_record(p, there))
			return at == 0 ? CLIENTHELLO_NOT_TLS : CLIENTHELLO_MALFORMED;
		if (there < RECORD_HEADER)
			break;
		length = (size_t) p[3] << 8 | p[4];
		if (length == 0 || length > RECORD_MAX) /* RFC 8446, 5.1: no empty fragments of a handshake */
			return CLIENTHELLO_MALFORMED;
		if (there < RECORD_HEADER + length)
			break;
		r = take_payload(message, &have, p + RECORD_HEADER, length);
		at += RECORD_HEADER + length;
	}
	*ret_size = have;
	return r == CLIENTHELLO_MORE && size >= CLIENTHELLO_SIZE_MAX ? CLIENTHELLO_MALFORMED : r;
}

/* ---- The message. ---- */

static bool take(struct span *s, size_t size, struct span *ret)
{
	if (s->size < size)
		return false;
	*ret = (struct span){s->at, size};
	s->at += size;
	s->size -= size;
	return true;
}

static bool take_number(struct span *s, size_t bytes, size_t *ret)
{
	struct span number;
	size_t value = 0;

	if (!take(s, bytes, &number))
		return false;
	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | number.at[i];
	*ret = value;
	return true;
}

/* Bytes with their length before them, of `bytes` bytes. */
static bool take_vector(struct span *s, size_t bytes, struct span *ret)
{
	size_t size;

	return take_number(s, bytes, &size) && take(s, size, ret);
}

/* One entry, of the one type that there is, without the root's dot (RFC 6066 forbids it; servers differ in what they make of it).
 */
static bool read_server_name(struct span s, struct clienthello *h)
{
	struct span list, name;
	size_t type;

	if (h->has_name || !take_vector(&s, 2, &list) || s.size != 0)
		return false;
	if (!take_number(&list, 1, &type) || type != NAME_TYPE_HOST || !take_vector(&list, 2, &name) || list.size != 0)
		return false;
	if (name.size == 0 || name.at[name.size - 1] == '.' || network_name((const char *) name.at, name.size, h->name) < 0)
		return false;
	h->has_name = true;
	return true;
}

static bool read_alpn(struct span s, struct clienthello *h)
{
	struct span list, rest, protocol;

	if (h->alpn_size != 0 || !take_vector(&s, 2, &list) || s.size != 0 || list.size == 0 || list.size > sizeof h->alpn)
		return false;
	for (rest = list; rest.size > 0;) {
		if (!take_vector(&rest, 1, &protocol) || protocol.size == 0)
			return false;
	}
	memcpy(h->alpn, list.at, list.size);
	h->alpn_size = list.size;
	return true;
}

static bool read_extension(struct span *s, struct clienthello *h)
{
	struct span data;
	size_t type;

	if (!take_number(s, 2, &type) || !take_vector(s, 2, &data))
		return false;
	if ((type >= EXTENSION_ECH_FIRST && type <= EXTENSION_ECH) || type == EXTENSION_ESNI)
		h->ech = true;
	if (type == EXTENSION_SERVER_NAME)
		return read_server_name(data, h);
	return type != EXTENSION_ALPN || read_alpn(data, h);
}

static bool read_message(struct span s, struct clienthello *h)
{
	struct span skipped, session, suites, compressions, extensions;
	size_t version;

	if (!take(&s, MESSAGE_HEADER, &skipped) || !take_number(&s, 2, &version) || version >> 8 != 3 ||
	    !take(&s, RANDOM_SIZE, &skipped))
		return false;
	if (!take_vector(&s, 1, &session) || session.size > SESSION_ID_MAX)
		return false;
	if (!take_vector(&s, 2, &suites) || suites.size < 2 || suites.size % 2 != 0)
		return false;
	if (!take_vector(&s, 1, &compressions) || compressions.size == 0)
		return false;
	if (s.size == 0) /* as old clients have it: no extensions */
		return true;
	if (!take_vector(&s, 2, &extensions) || s.size != 0)
		return false;
	while (extensions.size > 0) {
		if (!read_extension(&extensions, h))
			return false;
	}
	return true;
}

enum clienthello_result clienthello_parse(const void *data, size_t size, struct clienthello *ret)
{
	unsigned char message[CLIENTHELLO_SIZE_MAX];
	size_t have = 0;
	enum clienthello_result r = join_records(data, size, message, &have);

	*ret = (struct clienthello){0};
	if (r == CLIENTHELLO_OK && !read_message((struct span){message, have}, ret))
		return CLIENTHELLO_MALFORMED;
	return r;
}

const char *clienthello_objection(const struct clienthello *h, const char *name)
{
	/* First of all: with it, what the server name says may be for show. */
	if (h->ech)
		return "the ClientHello carries Encrypted Client Hello, so the name that the server will serve cannot be "
		       "checked; "
		       "turn it off in the client, or use protocol tcp";
	if (name[0] == '\0')
		return h->has_name ? "the ClientHello names a server, but an address was asked for" : NULL;
	if (!h->has_name)
		return "the ClientHello names no server (no SNI), and the rule's protocol is tls";
	return strcmp(h->name, name) == 0 ? NULL : "the ClientHello names another server (SNI) than the name that was asked for";
}
