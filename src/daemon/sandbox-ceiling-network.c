/* A rule is within the ceiling when one rule of the ceiling covers everything that it opens. What cannot be compared is above. */
#include "daemon/sandbox-ceiling-network.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"

static bool same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool covers_host(const char *c, const char *p)
{
	if (strcmp(c, p) == 0)
		return true;
	/* "*.example.org" covers "a.example.org" and "*.a.example.org". */
	return strncmp(c, "*.", 2) == 0 && network_pattern_covers(c, strncmp(p, "*.", 2) == 0 ? p + 2 : p) > 0;
}

/* A wide range means public addresses alone, a narrow one within it may name others. */
static bool covers_address(const char *c, const char *p)
{
	struct net_prefix outer, inner;

	return network_prefix_parse(c, &outer) && network_prefix_parse(p, &inner) && network_special_covers(&outer, &inner);
}

static bool covers_port(const struct policy_rule *c, unsigned port)
{
	for (size_t i = 0; i < c->port_count; i++)
		if (port >= c->ports[i].first && port <= c->ports[i].last)
			return true;
	return false;
}

static bool covers_ports(const struct policy_rule *c, const struct policy_rule *p)
{
	for (size_t i = 0; i < p->port_count; i++)
		for (unsigned port = p->ports[i].first; port <= p->ports[i].last; port++)
			if (!covers_port(c, port))
				return false;
	return true;
}

static bool covers_list(bool has, const struct strv *c, bool asked, const struct strv *p)
{
	if (!has)
		return true;
	for (size_t i = 0; i < p->count; i++)
		if (!ceiling_strv_has(c, p->items[i]))
			return false;
	return asked;
}

static bool covers_protocol(enum net_protocol c, enum net_protocol p)
{
	return c == p || (c == NET_TCP && p != NET_UDP) || (c == NET_TLS && p == NET_HTTPS);
}

static bool covers_secret(const struct policy_secret_use *c, const struct policy_secret_use *p)
{
	return p->name == NULL || (same(c->name, p->name) && same(c->header, p->header) && same(c->format, p->format) &&
				   same(c->placeholder, p->placeholder));
}

static bool covers(const struct policy_rule *c, const struct policy_rule *p)
{
	if (c->preset != NULL || p->preset != NULL)
		return same(c->preset, p->preset) && covers_secret(&c->secret, &p->secret);
	if ((c->host != NULL) != (p->host != NULL) || (c->address != NULL) != (p->address != NULL))
		return false;
	if (c->host != NULL ? !covers_host(c->host, p->host) : c->address == NULL || !covers_address(c->address, p->address))
		return false;
	return covers_protocol(c->protocol, p->protocol) && covers_ports(c, p) &&
	       covers_list(c->has_methods, &c->methods, p->has_methods, &p->methods) &&
	       covers_list(c->has_paths, &c->paths, p->has_paths, &p->paths) && p->request_max <= c->request_max &&
	       covers_secret(&c->secret, &p->secret);
}

static bool is_opened(const struct policy *c, const struct policy_rule *rule)
{
	for (size_t i = 0; i < c->network.allow_count; i++)
		if (covers(&c->network.allow[i], rule))
			return true;
	return false;
}

static bool has_host(const struct policy *c, const struct policy_host *h)
{
	for (size_t i = 0; i < c->network.host_count; i++)
		if (same(c->network.hosts[i].name, h->name) && same(c->network.hosts[i].target, h->target))
			return true;
	return false;
}

static bool has_published(const struct policy *c, const struct policy_publish *p)
{
	for (size_t i = 0; i < c->network.publish_count; i++) {
		const struct policy_publish *q = &c->network.publish[i];

		if (same(q->bind, p->bind) && q->host_port == p->host_port && q->port == p->port)
			return true;
	}
	return false;
}

static bool has_secret(const struct policy *c, const struct policy_secret *s)
{
	for (size_t i = 0; i < c->secret_count; i++) {
		const struct policy_secret *q = &c->secrets[i];
		bool equal = same(q->name, s->name) && same(q->env, s->env) && same(q->file, s->file) &&
			     q->command.count == s->command.count;

		for (size_t k = 0; equal && k < s->command.count; k++)
			equal = same(q->command.items[k], s->command.items[k]);
		if (equal)
			return true;
	}
	return false;
}

void ceiling_check_network(json_t *list, const struct policy *c, const struct policy *p)
{
	char path[96];

	for (size_t i = 0; i < p->network.allow_count; i++) {
		const struct policy_rule *r = &p->network.allow[i];

		(void) snprintf(path, sizeof path, "network.allow[%zu]", i);
		if (!is_opened(c, r))
			ceiling_point(list, path,
				      r->host != NULL      ? r->host
				      : r->address != NULL ? r->address
							   : r->preset,
				      "nothing that covers it");
	}
	for (size_t i = 0; i < p->network.host_count; i++)
		if (!has_host(c, &p->network.hosts[i])) {
			(void) snprintf(path, sizeof path, "network.hosts.%.64s", p->network.hosts[i].name);
			ceiling_point(list, path, p->network.hosts[i].target, "none");
		}
	for (size_t i = 0; i < p->network.publish_count; i++)
		if (!has_published(c, &p->network.publish[i])) {
			char port[16];

			(void) snprintf(path, sizeof path, "network.publish[%zu]", i);
			(void) snprintf(port, sizeof port, "%u", p->network.publish[i].port);
			ceiling_point(list, path, port, "none");
		}
	for (size_t i = 0; i < p->secret_count; i++)
		if (!has_secret(c, &p->secrets[i])) {
			(void) snprintf(path, sizeof path, "secrets.%.64s", p->secrets[i].name);
			ceiling_point(list, path, "a secret of the host", "none");
		}
	if (p->network.ca_file != NULL && !same(p->network.ca_file, c->network.ca_file))
		ceiling_point(list, "network.ca_file", p->network.ca_file, "none");
}
