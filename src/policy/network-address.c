/* Addresses and prefixes: text, sockets, membership. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"
#include "policy/syntax.h"
#include "policy/text.h"

static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

unsigned network_family_bits(sa_family_t family)
{
	return family == AF_INET ? 32 : family == AF_INET6 ? 128 : 0;
}

static unsigned char *bytes_of(struct net_address *a)
{
	return a->family == AF_INET ? (unsigned char *) &a->v4 : a->v6.s6_addr;
}

struct net_address network_address_plain(const struct net_address *a)
{
	struct net_address v4 = {.family = AF_INET};

	if (a->family != AF_INET6 || memcmp(a->v6.s6_addr, mapped, sizeof mapped) != 0)
		return *a;
	memcpy(&v4.v4, a->v6.s6_addr + sizeof mapped, sizeof v4.v4);
	return v4;
}

bool network_address_equal(const struct net_address *a, const struct net_address *b)
{
	struct net_address x = network_address_plain(a), y = network_address_plain(b);

	return x.family == y.family && memcmp(bytes_of(&x), bytes_of(&y), network_family_bits(x.family) / 8) == 0;
}

/* ---- Text. ---- */

/* The longest run of zero groups, the first of equals; one alone is not shortened (RFC 5952 section 4.2). */
static void find_zeros(const unsigned groups[8], unsigned *ret_at, unsigned *ret_size)
{
	*ret_at = 8;
	*ret_size = 1;
	for (unsigned i = 0; i < 8; i++) {
		unsigned size = 0;

		while (i + size < 8 && groups[i + size] == 0)
			size++;
		if (size > *ret_size) {
			*ret_at = i;
			*ret_size = size;
		}
		i += size;
	}
}

/* Not inet_ntop(3): C libraries differ in what they shorten and in what they write with dots, and the supervisor and the broker
 * may use different ones. */
static void v6_text(const struct in6_addr *v6, char buf[NET_ADDRESS_TEXT])
{
	unsigned groups[8], zeros, zero_size;
	size_t used = 0;

	for (unsigned i = 0; i < 8; i++)
		groups[i] = (unsigned) v6->s6_addr[2 * i] << 8 | v6->s6_addr[2 * i + 1];
	find_zeros(groups, &zeros, &zero_size);
	for (unsigned i = 0; i < 8; i++) {
		if (i == zeros) {
			used += (size_t) snprintf(buf + used, NET_ADDRESS_TEXT - used, "::");
			i += zero_size - 1;
			continue;
		}
		used += (size_t) snprintf(buf + used, NET_ADDRESS_TEXT - used, "%s%x",
					  used > 0 && buf[used - 1] != ':' ? ":" : "", groups[i]);
	}
}

const char *network_address_text(const struct net_address *a, char buf[NET_ADDRESS_TEXT])
{
	struct net_address plain = network_address_plain(a);
	const unsigned char *b = bytes_of(&plain);

	if (plain.family == AF_INET)
		(void) snprintf(buf, NET_ADDRESS_TEXT, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
	else if (plain.family == AF_INET6)
		v6_text(&plain.v6, buf);
	else
		(void) snprintf(buf, NET_ADDRESS_TEXT, "none");
	return buf;
}

int network_address(const char *text, size_t size, struct net_address *ret)
{
	char copy[NET_ADDRESS_TEXT] = "", usual[NET_ADDRESS_TEXT];
	struct net_address a = {0};

	if (size == 0 || size >= sizeof copy || memchr(text, '\0', size) != NULL)
		return -EINVAL;
	memcpy(copy, text, size);
	a.family = strchr(copy, ':') != NULL ? AF_INET6 : AF_INET;
	if (inet_pton(a.family, copy, bytes_of(&a)) != 1)
		return -EINVAL;
	/* One text for one address: what is compared, recorded and dialled cannot differ by its spelling. */
	if (strcmp(network_address_text(&a, usual), copy) != 0)
		return -EINVAL;
	*ret = a;
	return 0;
}

/* ---- Prefixes. ---- */

bool network_prefix_parse(const char *text, struct net_prefix *ret)
{
	char host[NET_ADDRESS_TEXT];
	size_t size = strcspn(text, "/");
	struct net_prefix p = {0};
	uint64_t bits;

	if (size >= sizeof host)
		return false;
	(void) snprintf(host, sizeof host, "%.*s", (int) size, text);
	p.address.family = strchr(host, ':') != NULL ? AF_INET6 : AF_INET;
	if (inet_pton(p.address.family, host, bytes_of(&p.address)) != 1)
		return false;
	p.bits = network_family_bits(p.address.family);
	if (text[size] == '/') {
		if (parse_whole(text + size + 1, &bits) < 0 || bits > p.bits)
			return false;
		p.bits = (unsigned) bits;
	}
	if (p.address.family == AF_INET6 && p.bits >= 96 && network_address_plain(&p.address).family == AF_INET) {
		p.address = network_address_plain(&p.address);
		p.bits -= 96;
	}
	*ret = p;
	return true;
}

const char *network_prefix_text(const struct net_prefix *p, char buf[NET_PREFIX_TEXT])
{
	char host[NET_ADDRESS_TEXT];

	(void) snprintf(buf, NET_PREFIX_TEXT, "%s/%u", network_address_text(&p->address, host), p->bits);
	return buf;
}

bool network_prefix_trim(struct net_prefix *p)
{
	unsigned char *bytes = bytes_of(&p->address);
	bool found = false;

	for (unsigned bit = p->bits; bit < network_family_bits(p->address.family); bit++) {
		unsigned char mask = (unsigned char) (0x80 >> (bit % 8));

		found = found || (bytes[bit / 8] & mask) != 0;
		bytes[bit / 8] &= (unsigned char) ~mask;
	}
	return found;
}

bool network_prefix_equal(const struct net_prefix *a, const struct net_prefix *b)
{
	return a->bits == b->bits && network_address_equal(&a->address, &b->address);
}

bool network_prefix_has(const struct net_prefix *p, const struct net_address *a)
{
	struct net_address x = p->address, y = network_address_plain(a);
	unsigned whole = p->bits / 8, rest = p->bits % 8;
	unsigned char mask = (unsigned char) (0xff00 >> rest);

	if (x.family != y.family || p->bits > network_family_bits(x.family))
		return false;
	if (memcmp(bytes_of(&x), bytes_of(&y), whole) != 0)
		return false;
	return rest == 0 || ((bytes_of(&x)[whole] ^ bytes_of(&y)[whole]) & mask) == 0;
}

bool network_endpoint_parse(const char *text, struct net_address *ret, uint16_t *ret_port)
{
	const char *colon = strrchr(text, ':');
	bool brackets = text[0] == '[';
	cleanup_free char *host = NULL;
	struct net_prefix p;
	uint16_t port = 0;

	if (brackets && colon != NULL && colon > text + 2 && colon[-1] == ']')
		host = xstrndup(text + 1, (size_t) (colon - text - 2));
	else if (!brackets && colon != NULL && strchr(text, ':') == colon)
		host = xstrndup(text, (size_t) (colon - text));
	else
		colon = NULL;
	if (strchr(text, '/') != NULL || !network_prefix_parse(host != NULL ? host : text, &p))
		return false;
	if (colon != NULL && (brackets != (strchr(host, ':') != NULL) || !syntax_port(colon + 1, &port)))
		return false;
	*ret = p.address;
	*ret_port = port;
	return true;
}

/* ---- Sockets. ---- */

void network_address_from(const struct sockaddr *sa, struct net_address *ret, uint16_t *ret_port)
{
	struct net_address a = {.family = AF_UNSPEC};
	uint16_t port = 0;

	if (sa->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, sa, sizeof in);
		a = (struct net_address){.family = AF_INET, .v4 = in.sin_addr};
		port = ntohs(in.sin_port);
	} else if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, sa, sizeof in6);
		a = (struct net_address){.family = AF_INET6, .v6 = in6.sin6_addr};
		port = ntohs(in6.sin6_port);
	}
	*ret = network_address_plain(&a);
	if (ret_port != NULL)
		*ret_port = port;
}

socklen_t network_address_to(const struct net_address *a, uint16_t port, struct sockaddr_storage *ret)
{
	struct net_address plain = network_address_plain(a);

	*ret = (struct sockaddr_storage){.ss_family = plain.family};
	if (plain.family == AF_INET) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = plain.v4};

		memcpy(ret, &in, sizeof in);
		return sizeof in;
	}
	if (plain.family == AF_INET6) {
		struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = plain.v6};

		memcpy(ret, &in6, sizeof in6);
		return sizeof in6;
	}
	return 0;
}
