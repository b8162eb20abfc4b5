#include "egress/authority.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int parse_port(const char *text, size_t size, uint16_t *ret)
{
	unsigned port = 0;

	if (size == 0 || size > 5)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		port = port * 10 + (unsigned) (text[i] - '0');
	}
	if (port == 0 || port > 65535 || text[0] == '0')
		return -EINVAL;
	*ret = (uint16_t) port;
	return 0;
}

static int parse_host(const char *text, size_t size, struct authority *ret)
{
	bool brackets = size >= 2 && text[0] == '[' && text[size - 1] == ']';

	if (brackets && (network_address(text + 1, size - 2, &ret->address) < 0 || ret->address.family != AF_INET6))
		return -EINVAL;
	if (brackets)
		return 0;
	if (network_address(text, size, &ret->address) == 0)
		return ret->address.family == AF_INET ? 0 : -EINVAL; /* colons want brackets */
	ret->address = (struct net_address){.family = AF_UNSPEC};
	return network_name(text, size, ret->name);
}

int authority_parse(const char *text, size_t size, struct authority *ret)
{
	struct authority a = {.address.family = AF_UNSPEC};
	const char *colon = size > 0 ? memrchr(text, ':', size) : NULL;
	size_t host = size;

	if (colon != NULL && text[size - 1] != ']') {
		host = (size_t) (colon - text);
		if (parse_port(colon + 1, size - host - 1, &a.port) < 0)
			return -EINVAL;
	}
	if (host == 0 || parse_host(text, host, &a) < 0)
		return -EINVAL;
	*ret = a;
	return 0;
}

static bool same_address(const struct net_address *a, const struct net_address *b)
{
	if (a->family != b->family)
		return false;
	return a->family == AF_INET ? a->v4.s_addr == b->v4.s_addr : memcmp(&a->v6, &b->v6, sizeof a->v6) == 0;
}

bool authority_agrees(const struct authority *a, const struct target *t)
{
	if (a->port != 0 && a->port != t->port)
		return false;
	if (t->name[0] != '\0')
		return strcmp(a->name, t->name) == 0;
	return a->name[0] == '\0' && same_address(&a->address, &t->address);
}

bool target_same(const struct target *a, const struct target *b)
{
	return a->port == b->port && strcmp(a->name, b->name) == 0 &&
	       (a->name[0] != '\0' || same_address(&a->address, &b->address));
}

void authority_target(const struct names *names, const struct authority *a, uint16_t port, struct target *ret)
{
	const char *name = NULL;

	*ret = (struct target){.address = a->address, .port = a->port != 0 ? a->port : port};
	if (names != NULL && a->address.family == AF_INET)
		name = names_lookup(names, ntohl(a->address.v4.s_addr));
	if (name == NULL)
		name = a->name;
	if (name[0] != '\0')
		ret->address = (struct net_address){.family = AF_UNSPEC};
	(void) snprintf(ret->name, sizeof ret->name, "%s", name);
}

const char *target_host(const struct target *t, bool brackets, char buf[AUTHORITY_TEXT])
{
	char address[NET_ADDRESS_TEXT];

	if (t->name[0] != '\0')
		(void) snprintf(buf, AUTHORITY_TEXT, "%s", t->name);
	else
		(void) snprintf(buf, AUTHORITY_TEXT, brackets && t->address.family == AF_INET6 ? "[%s]" : "%s",
				network_address_text(&t->address, address));
	return buf;
}

const char *target_authority(const struct target *t, uint16_t usual, char buf[AUTHORITY_TEXT])
{
	size_t n;

	(void) target_host(t, true, buf);
	n = strlen(buf);
	if (t->port != usual)
		(void) snprintf(buf + n, AUTHORITY_TEXT - n, ":%u", t->port);
	return buf;
}

/* ---- Targets. ---- */

static int refuse(struct head_fault *fault, unsigned status, const char *why)
{
	*fault = (struct head_fault){.status = status, .why = why};
	return -EBADMSG;
}

static void split_query(const char *text, size_t size, struct request_target *ret)
{
	const char *mark = size > 0 ? memchr(text, '?', size) : NULL;
	size_t path = mark != NULL ? (size_t) (mark - text) : size;

	ret->path = (struct slice){.data = text, .size = path};
	ret->query = (struct slice){.data = text + path, .size = size - path};
}

static bool skip_scheme(struct slice *s, bool *ret_https)
{
	if (s->size > 7 && slice_is((struct slice){.data = s->data, .size = 7}, "http://")) {
		*ret_https = false;
		*s = (struct slice){.data = s->data + 7, .size = s->size - 7};
		return true;
	}
	if (s->size > 8 && slice_is((struct slice){.data = s->data, .size = 8}, "https://")) {
		*ret_https = true;
		*s = (struct slice){.data = s->data + 8, .size = s->size - 8};
		return true;
	}
	return false;
}

static int parse_absolute(const struct head *h, struct request_target *ret, struct head_fault *fault)
{
	struct slice s = h->target;
	size_t authority = 0;

	if (!skip_scheme(&s, &ret->https))
		return refuse(fault, 400, "the target is neither a path nor an http or https URI");
	ret->form = REQUEST_ABSOLUTE;
	while (authority < s.size && s.data[authority] != '/' && s.data[authority] != '?')
		authority++;
	if (authority_parse(s.data, authority, &ret->authority) < 0)
		return refuse(fault, 400, "the authority of the target is not a plain name or address with a port");
	split_query(s.data + authority, s.size - authority, ret);
	if (ret->path.size == 0 && ret->query.size == 0 && slice_same(h->method, "OPTIONS"))
		ret->path = (struct slice){.data = "*", .size = 1};
	else if (ret->path.size == 0)
		ret->path = (struct slice){.data = "/", .size = 1};
	return 0;
}

int request_target_parse(const struct head *h, struct request_target *ret, struct head_fault *fault)
{
	*ret = (struct request_target){.form = REQUEST_ORIGIN};
	if (memchr(h->target.data, '#', h->target.size) != NULL)
		return refuse(fault, 400, "the target has a fragment");
	if (slice_same(h->method, "CONNECT")) {
		ret->form = REQUEST_AUTHORITY;
		if (authority_parse(h->target.data, h->target.size, &ret->authority) < 0 || ret->authority.port == 0)
			return refuse(fault, 400, "the target of CONNECT is not a plain name or address with a port");
		return 0;
	}
	if (h->target.data[0] == '/') {
		split_query(h->target.data, h->target.size, ret);
		return 0;
	}
	if (slice_same(h->target, "*")) {
		ret->form = REQUEST_ASTERISK;
		ret->path = h->target;
		return slice_same(h->method, "OPTIONS") ? 0 : refuse(fault, 400, "the target * is for OPTIONS alone");
	}
	return parse_absolute(h, ret, fault);
}

int request_check_host(const struct head *h, const struct request_target *r, const struct target *t, struct head_fault *fault)
{
	size_t count;
	const struct head_field *host = head_field(h, "host", &count);
	struct authority a;

	if (count > 1)
		return refuse(fault, 400, "Host is there more than once");
	if (count == 0 && h->minor > 0)
		return refuse(fault, 400, "Host is missing");
	if (r->form == REQUEST_ABSOLUTE && !authority_agrees(&r->authority, t))
		return refuse(fault, 421, "the target names another host than the connection");
	if (host == NULL)
		return 0;
	if (authority_parse(host->value.data, host->value.size, &a) < 0)
		return refuse(fault, 400, "Host is not a plain name or address");
	if (!authority_agrees(&a, t))
		return refuse(fault, 421, "Host names another host than the connection");
	return 0;
}
