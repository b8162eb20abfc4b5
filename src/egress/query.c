#include "egress/query.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	HEADER_SIZE = 12,
	LABEL_MAX = 63,
	CLASS_IN = 1,
	ADDITIONAL_MAX = 4, /* EDNS and a signature are all that a query can carry */
	EDNS_SIZE = 1232,   /* what we say that we take; nobody will ask for it */

	FLAG_RESPONSE = 0x8000,
	FLAG_OPCODE = 0x7800,
	FLAG_TRUNCATED = 0x0200,
	FLAG_RECURSION_WANTED = 0x0100,
	FLAG_RECURSION_OFFERED = 0x0080,
	FLAG_CHECKING_DISABLED = 0x0010,
	EDNS_DNSSEC_OK = 0x8000,
};

/* ---- Reading. ---- */

struct reader {
	const unsigned char *at, *end;
};

static size_t left(const struct reader *r)
{
	return (size_t) (r->end - r->at);
}

static bool read_u16(struct reader *r, uint16_t *ret)
{
	if (left(r) < 2)
		return false;
	*ret = (uint16_t) (r->at[0] << 8 | r->at[1]);
	r->at += 2;
	return true;
}

/* Passes over a name. Compression is refused: the first name of a message has nothing to point at, and a name that is read where
 * it stands cannot be two names. */
static bool read_name(struct reader *r, const unsigned char **ret, size_t *ret_size)
{
	const unsigned char *start = r->at;

	for (;;) {
		size_t label;

		if (left(r) < 1 || r->at[0] > LABEL_MAX)
			return false;
		label = r->at[0];
		if (left(r) < 1 + label || (size_t) (r->at - start) + 1 + label > QUERY_NAME_WIRE)
			return false;
		r->at += 1 + label;
		if (label == 0)
			break;
	}
	*ret = start;
	*ret_size = (size_t) (r->at - start);
	return true;
}

static bool is_plain(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The name for people, and whether it can have a canonical form: a dot inside a label would become a border of labels in the
 * text, so that what is asked for and what is checked were two names. */
static bool write_text(struct query *q)
{
	const unsigned char *at = q->name;
	bool plain = true;
	size_t n = 0;

	for (size_t label = *at++; label != 0; label = *at++) {
		if (n > 0)
			q->text[n++] = '.';
		for (; label > 0; label--, at++) {
			if (is_plain(*at)) {
				q->text[n++] = (char) *at;
				continue;
			}
			plain = false;
			n += (size_t) snprintf(q->text + n, sizeof q->text - n, "\\%03u", *at);
		}
	}
	if (n == 0)
		q->text[n++] = '.';
	q->text[n] = '\0';
	return plain;
}

static bool read_question(struct reader *r, struct query *q)
{
	const unsigned char *name;
	size_t size;

	if (!read_name(r, &name, &size) || !read_u16(r, &q->type) || !read_u16(r, &q->class))
		return false;
	memcpy(q->name, name, size);
	q->name_size = size;
	if (!write_text(q) || network_name(q->text, strlen(q->text), q->canonical) < 0)
		q->canonical[0] = '\0';
	return true;
}

/* One record behind the question. An OPT says what the asker understands of EDNS; its options, like other records, mean nothing
 * to us. */
static int read_additional(struct reader *r, struct query *q)
{
	uint16_t type, class, upper, lower, size;
	const unsigned char *name;
	size_t name_size;

	if (!read_name(r, &name, &name_size) || !read_u16(r, &type) || !read_u16(r, &class) || !read_u16(r, &upper) ||
	    !read_u16(r, &lower) || !read_u16(r, &size) || left(r) < size)
		return QUERY_FORMERR;
	r->at += size;
	if (type != QUERY_OPT)
		return QUERY_NOERROR;
	if (q->edns || name_size != 1)
		return QUERY_FORMERR;
	q->edns = true;
	q->dnssec_ok = (lower & EDNS_DNSSEC_OK) != 0;
	return (upper & 0xff) == 0 ? QUERY_NOERROR : QUERY_BADVERS;
}

/* The counts of the header's four sections are `counts`. */
static int read_body(struct reader *r, const uint16_t counts[4], struct query *q)
{
	int code = QUERY_NOERROR;

	if (counts[0] != 1 || counts[1] != 0 || counts[2] != 0 || counts[3] > ADDITIONAL_MAX || !read_question(r, q))
		return QUERY_FORMERR;
	for (uint16_t i = 0; i < counts[3] && code == QUERY_NOERROR; i++)
		code = read_additional(r, q);
	if (code == QUERY_NOERROR && left(r) != 0)
		return QUERY_FORMERR;
	return code;
}

int query_parse(const void *message, size_t size, struct query *ret)
{
	struct reader r = {message, (const unsigned char *) message + size};
	uint16_t counts[4];
	int code;

	*ret = (struct query){0};
	if (size < HEADER_SIZE || !read_u16(&r, &ret->id) || !read_u16(&r, &ret->flags) || (ret->flags & FLAG_RESPONSE) != 0)
		return -EBADMSG;
	for (size_t i = 0; i < 4; i++)
		(void) read_u16(&r, &counts[i]); /* the header is there */
	if ((ret->flags & FLAG_OPCODE) != 0)
		return QUERY_NOTIMP;
	if (size > QUERY_SIZE_MAX || (ret->flags & FLAG_TRUNCATED) != 0)
		return QUERY_FORMERR;
	code = read_body(&r, counts, ret);
	if (code != QUERY_NOERROR)
		return code;
	return ret->class == CLASS_IN ? QUERY_NOERROR : QUERY_REFUSED;
}

/* ---- Reverse look-ups. ---- */

static bool cut_suffix(const char *name, const char *suffix, size_t *ret_size)
{
	size_t size = strlen(name), tail = strlen(suffix);

	if (size <= tail || strcmp(name + size - tail, suffix) != 0)
		return false;
	*ret_size = size - tail;
	return true;
}

/* "4.3.2.1": a decimal number of one usual form, 0 to 255. */
static bool read_octet(const char **at, const char *end, uint32_t *ret)
{
	const char *start = *at;
	uint32_t value = 0;

	for (; *at < end && **at >= '0' && **at <= '9' && *at - start < 3; (*at)++)
		value = value * 10 + (uint32_t) (**at - '0');
	if (*at == start || value > 255 || (*start == '0' && *at - start > 1))
		return false;
	*ret = value;
	return true;
}

static bool reverse_v4(const char *name, size_t size, uint32_t *ret)
{
	const char *at = name, *end = name + size;
	uint32_t address = 0;

	for (unsigned i = 0; i < 4; i++) {
		uint32_t octet;

		if (i > 0 && (at >= end || *at++ != '.'))
			return false;
		if (!read_octet(&at, end, &octet))
			return false;
		address |= octet << 8 * i;
	}
	*ret = address;
	return at == end;
}

static bool reverse_v6(const char *name, size_t size)
{
	if (size != 63)
		return false;
	for (size_t i = 0; i < size; i++) {
		if (i % 2 == 1 ? name[i] != '.' : strchr("0123456789abcdef", name[i]) == NULL)
			return false;
	}
	return true;
}

bool query_reverse(const char *canonical, uint32_t *ret_address, bool *ret_reverse)
{
	bool v4 = false, v6 = false;
	size_t size;

	if (cut_suffix(canonical, ".in-addr.arpa", &size))
		v4 = reverse_v4(canonical, size, ret_address);
	else if (cut_suffix(canonical, ".ip6.arpa", &size))
		v6 = reverse_v6(canonical, size);
	*ret_reverse = v4 || v6;
	return v4;
}

/* ---- Writing. The sizes of QUERY_ANSWER_SIZE hold the largest there can be. ---- */

static void put_u16(unsigned char **at, uint32_t value)
{
	*(*at)++ = (unsigned char) (value >> 8);
	*(*at)++ = (unsigned char) value;
}

static void put_u32(unsigned char **at, uint32_t value)
{
	put_u16(at, value >> 16);
	put_u16(at, value);
}

static void put_bytes(unsigned char **at, const void *bytes, size_t size)
{
	memcpy(*at, bytes, size);
	*at += size;
}

/* A canonical name: its labels have 1 to 63 bytes, and with their lengths no more than QUERY_NAME_WIRE. */
static void put_name(unsigned char **at, const char *name)
{
	while (*name != '\0') {
		size_t label = strcspn(name, ".");

		*(*at)++ = (unsigned char) label;
		put_bytes(at, name, label);
		name += label;
		if (*name == '.')
			name++;
	}
	*(*at)++ = 0;
}

static void put_record(unsigned char **at, const struct query_answer *a)
{
	unsigned char *length;

	put_u16(at, 0xc000 | HEADER_SIZE); /* the name of the question */
	put_u16(at, a->type);
	put_u16(at, CLASS_IN);
	put_u32(at, a->ttl);
	length = *at;
	*at += 2;
	if (a->type == QUERY_PTR)
		put_name(at, a->name);
	else
		put_bytes(at, a->address, a->type == QUERY_AAAA ? 16 : 4);
	put_u16(&length, (uint32_t) (*at - length - 2));
}

static void put_edns(unsigned char **at, const struct query *q, enum query_code code)
{
	*(*at)++ = 0;
	put_u16(at, QUERY_OPT);
	put_u16(at, EDNS_SIZE);
	put_u16(at, (uint32_t) code >> 4 << 8);
	put_u16(at, q->dnssec_ok ? EDNS_DNSSEC_OK : 0);
	put_u16(at, 0);
}

size_t query_answer(const struct query *q, const struct query_answer *a, unsigned char ret[QUERY_ANSWER_SIZE])
{
	bool question = q->name_size > 0, record = question && a->code == QUERY_NOERROR && a->type != 0;
	uint32_t kept = q->flags & (FLAG_OPCODE | FLAG_RECURSION_WANTED | FLAG_CHECKING_DISABLED);
	unsigned char *at = ret;

	put_u16(&at, q->id);
	put_u16(&at, FLAG_RESPONSE | FLAG_RECURSION_OFFERED | kept | ((uint32_t) a->code & 0xf));
	put_u16(&at, question);
	put_u16(&at, record);
	put_u16(&at, 0);
	put_u16(&at, q->edns);
	if (question) {
		put_bytes(&at, q->name, q->name_size);
		put_u16(&at, q->type);
		put_u16(&at, q->class);
	}
	if (record)
		put_record(&at, a);
	if (q->edns)
		put_edns(&at, q, a->code);
	return (size_t) (at - ret);
}
