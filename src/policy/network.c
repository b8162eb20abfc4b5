/* Rules from a policy or a rule set, checked one by one and together. */
#include "policy/network.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"
#include "policy/syntax.h"

enum { LABEL_MAX_BYTES = 200 };

/* ---- Release. ---- */

static void strv_done(struct strv *v)
{
	for (size_t i = 0; i < v->count; i++)
		free(v->items[i]);
	free(v->items);
	*v = (struct strv){0};
}

void network_rule_done(struct network_rule *r)
{
	free(r->pattern);
	free(r->ports);
	strv_done(&r->methods);
	strv_done(&r->paths);
	free(r->secret.name);
	free(r->secret.header);
	free(r->secret.format);
	free(r->secret.placeholder);
	free(r->label);
	*r = (struct network_rule){0};
}

void network_done(struct network *n)
{
	if (n == NULL)
		return;
	for (size_t i = 0; i < n->rule_count; i++)
		network_rule_done(&n->rules[i]);
	free(n->rules);
	for (size_t i = 0; i < n->host_count; i++)
		free(n->hosts[i].name);
	free(n->hosts);
	for (size_t i = 0; i < n->publish_count; i++)
		free(n->publish[i].bind);
	free(n->publish);
	free(n->ca_file);
	*n = (struct network){0};
}

/* ---- One rule. ---- */

static char *copy(const char *s)
{
	return s == NULL ? NULL : xstrdup(s);
}

static struct strv copy_strv(const struct strv *v)
{
	struct strv c = {.items = xcalloc(v->count + 1, sizeof *c.items), .count = v->count};

	for (size_t i = 0; i < v->count; i++)
		c.items[i] = xstrdup(v->items[i]);
	return c;
}

/* A text that may be absent, by the same check that a policy file meets; becomes canonical. */
static bool passes(syntax_check *check, char **text, struct fault *f)
{
	return *text == NULL || check(text, f);
}

static bool all_pass(syntax_check *check, const struct strv *v, struct fault *f)
{
	for (size_t i = 0; i < v->count; i++)
		if (!check(&v->items[i], f))
			return false;
	return true;
}

static bool wrong(struct fault *f, const char *message)
{
	(void) snprintf(f->message, sizeof f->message, "%s", message);
	return false;
}

static bool check_secret(struct policy_secret_use *s, struct fault *f)
{
	if (s->name == NULL)
		return (s->header == NULL && s->format == NULL && s->placeholder == NULL) || wrong(f, "the secret has no name");
	if ((s->header != NULL) == (s->placeholder != NULL))
		return wrong(f, "expected one of header and placeholder for the secret");
	if ((s->header != NULL) != (s->format != NULL))
		return wrong(f, "a header of a secret has a format, a placeholder has none");
	return passes(syntax_identifier, &s->name, f) && passes(syntax_header, &s->header, f) &&
	       passes(syntax_secret_format, &s->format, f) && passes(syntax_placeholder, &s->placeholder, f);
}

static bool check_ports(const struct network_rule *r, struct fault *f)
{
	for (size_t i = 0; i < r->port_count; i++)
		if (r->ports[i].first == 0 || r->ports[i].first > r->ports[i].last)
			return wrong(f, "expected ports from 1 to 65535");
	if (network_ports_count(r->ports, r->port_count) > NETWORK_PORTS_MAX)
		return wrong(f, "the rule has too many ports");
	return r->port_count > 0 || wrong(f, "the rule has no ports, so that it opens nothing");
}

static bool check_requests(const struct network_rule *r, struct fault *f)
{
	bool http = r->protocol == NET_HTTP || r->protocol == NET_HTTPS;

	if (!http && (r->has_methods || r->has_paths || r->request_max != ZW_UNLIMITED || r->secret.name != NULL))
		return wrong(f, "methods, paths, request_max and secret need protocol http or https, where requests are seen");
	if ((r->methods.count > 0 && !r->has_methods) || (r->paths.count > 0 && !r->has_paths))
		return wrong(f, "a list that is absent has entries");
	return all_pass(syntax_method, &r->methods, f) && all_pass(syntax_url_path, &r->paths, f);
}

static bool check_range(struct network_rule *r, const char *address, struct fault *f)
{
	const char *sealed;

	if (!network_prefix_parse(address, &r->prefix) || network_prefix_trim(&r->prefix))
		return wrong(f, "expected an IPv4 or IPv6 address, or a range such as 10.1.0.0/16");
	if (r->protocol == NET_TLS)
		return wrong(f, "protocol tls checks a name, and this rule has only an address");
	sealed = network_special_sealed(&r->prefix);
	if (sealed != NULL)
		(void) snprintf(f->message, sizeof f->message, "an address rule cannot open this range (%s)", sealed);
	return sealed == NULL;
}

static bool check_rule(struct network_rule *r, const char *address, struct fault *f)
{
	if ((r->pattern != NULL) == (address != NULL))
		return wrong(f, "expected a rule with either a host or an address");
	if ((unsigned) r->protocol > NET_UDP)
		return wrong(f, "unknown protocol");
	if (address != NULL && !check_range(r, address, f))
		return false;
	return passes(syntax_host_pattern, &r->pattern, f) && check_ports(r, f) && check_requests(r, f) &&
	       check_secret(&r->secret, f);
}

static struct network_rule rule_of(const struct policy_rule *rule, const char *label)
{
	struct network_rule r = {
	    .pattern = copy(rule->host),
	    .ports = xcalloc(rule->port_count + 1, sizeof *r.ports),
	    .port_count = rule->port_count,
	    .protocol = rule->protocol,
	    .methods = copy_strv(&rule->methods),
	    .paths = copy_strv(&rule->paths),
	    .has_methods = rule->has_methods,
	    .has_paths = rule->has_paths,
	    .request_max = rule->request_max,
	    .secret = {.name = copy(rule->secret.name),
		       .header = copy(rule->secret.header),
		       .format = copy(rule->secret.format),
		       .placeholder = copy(rule->secret.placeholder)},
	    .label = xstrdup(label),
	};

	if (rule->port_count > 0)
		memcpy(r.ports, rule->ports, rule->port_count * sizeof *r.ports);
	return r;
}

/* It goes into messages, records and terminals as it is. */
static bool is_label(const char *label)
{
	size_t size = strlen(label);

	for (size_t i = 0; i < size; i++)
		if (label[i] < 0x20 || label[i] > 0x7e)
			return false;
	return size > 0 && size <= LABEL_MAX_BYTES;
}

int network_add_rule(struct network *n, const struct policy_rule *rule, const char *label, struct zw_error *e)
{
	struct network_rule r;
	struct fault f = {0};

	if (!is_label(label))
		return zw_error(e, EINVAL, "a network rule has no printable label of at most %d bytes", LABEL_MAX_BYTES);
	if (n->rule_count >= NETWORK_RULES_MAX)
		return zw_error(e, EINVAL, "%s: more than %d network rules", label, NETWORK_RULES_MAX);
	if (rule->preset != NULL)
		return zw_error(e, EINVAL, "%s: a rule set stands for rules of its own", label);
	r = rule_of(rule, label);
	if (!check_rule(&r, rule->address, &f)) {
		network_rule_done(&r);
		return zw_error(e, EINVAL, "%s: %s", label, f.message);
	}
	/* Grows by doubling: a power of two is full. */
	if ((n->rule_count & (n->rule_count - 1)) == 0)
		n->rules = xrealloc(n->rules, n->rule_count > 0 ? n->rule_count * 2 : 1, sizeof *n->rules);
	n->rules[n->rule_count++] = r;
	return 0;
}

/* ---- All of a policy. ---- */

static void add_error(struct policy_errors *errors, const char *key, const char *message)
{
	policy_errors_add(errors, NULL, 0, key, NULL, "%s", message);
}

static void take_rules(const struct policy *p, struct network *n, struct policy_errors *errors)
{
	for (size_t i = 0; i < p->network.allow_count; i++) {
		cleanup_free char *label = xasprintf("network.allow[%zu]", i);
		struct zw_error e = {0};

		if (p->network.allow[i].preset == NULL && network_add_rule(n, &p->network.allow[i], label, &e) < 0)
			add_error(errors, label, e.text);
	}
}

static void take_hosts(const struct policy *p, struct network *n, struct policy_errors *errors)
{
	n->hosts = xcalloc(p->network.host_count + 1, sizeof *n->hosts);
	for (size_t i = 0; i < p->network.host_count; i++) {
		const struct policy_host *host = &p->network.hosts[i];
		struct network_host h = {0};
		cleanup_free char *key = xasprintf("network.hosts.%s", host->name);
		char name[NETWORK_NAME_SIZE];

		if (network_name(host->name, strlen(host->name), name) < 0 ||
		    !network_endpoint_parse(host->target, &h.address, &h.port)) {
			add_error(errors, key, "expected a host name, and an address or an address and a port");
			continue;
		}
		h.name = xstrdup(name);
		n->hosts[n->host_count++] = h;
	}
}

static void take_publish(const struct policy *p, struct network *n)
{
	n->publish = xcalloc(p->network.publish_count + 1, sizeof *n->publish);
	n->publish_count = p->network.publish_count;
	for (size_t i = 0; i < p->network.publish_count; i++) {
		n->publish[i] = p->network.publish[i];
		n->publish[i].bind = copy(p->network.publish[i].bind);
	}
}

int network_from_policy(const struct policy *p, struct network *ret, struct policy_errors *errors)
{
	struct network n = {.proxy_env = p->network.proxy_env, .ca_file = copy(p->network.ca_file)};
	size_t before = errors->count;
	struct zw_error e = {0};

	n.limits.bytes_out = p->network.limits.bytes_out;
	n.limits.bytes_in = p->network.limits.bytes_in;
	n.limits.requests = p->network.limits.requests;
	n.limits.connections = p->network.limits.connections;
	n.limits.rate = p->network.limits.rate;
	n.limits.on_limit = p->network.limits.on_limit;
	take_rules(p, &n, errors);
	take_hosts(p, &n, errors);
	take_publish(p, &n);
	if (network_check(&n, &e) < 0)
		add_error(errors, "network.allow", e.text);
	if (errors->count > before) {
		network_done(&n);
		return -EINVAL;
	}
	*ret = n;
	return 0;
}
