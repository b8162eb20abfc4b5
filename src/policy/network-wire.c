/* The rules on their way to the broker. What is read back passes the same checks as a policy, and a member that is not known is
 * refused: it might have been one that narrows. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "policy/network-parts.h"
#include "policy/schema.h"

enum { TEXT_MAX = 4096 };

/* ---- To JSON. ---- */

/* Counts beyond what JSON's integers hold here are beyond any run as well. */
static json_t *json_amount(uint64_t value)
{
	if (value == ZW_UNLIMITED)
		return json_null();
	return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t) value);
}

static json_t *json_text(const char *s)
{
	return s != NULL ? json_string(s) : json_null();
}

static json_t *json_strv(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		(void) json_array_append_new(list, json_string(v->items[i]));
	return list;
}

static json_t *json_ports(const struct network_rule *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->port_count; i++)
		(void) json_array_append_new(list, json_pack("[i,i]", r->ports[i].first, r->ports[i].last));
	return list;
}

static json_t *json_rule(const struct network_rule *r)
{
	char prefix[NET_PREFIX_TEXT];

	return json_pack("{s:o,s:o,s:o,s:i,s:o,s:o,s:o,s:{s:o,s:o,s:o,s:o},s:s}", "host", json_text(r->pattern), "address",
			 json_text(r->pattern == NULL ? network_prefix_text(&r->prefix, prefix) : NULL), "ports", json_ports(r),
			 "protocol", (int) r->protocol, "methods", r->has_methods ? json_strv(&r->methods) : json_null(), "paths",
			 r->has_paths ? json_strv(&r->paths) : json_null(), "request_max", json_amount(r->request_max), "secret",
			 "name", json_text(r->secret.name), "header", json_text(r->secret.header), "format",
			 json_text(r->secret.format), "placeholder", json_text(r->secret.placeholder), "label", r->label);
}

static json_t *json_host(const struct network_host *h)
{
	char address[NET_ADDRESS_TEXT];

	return json_pack("{s:s,s:s,s:i}", "name", h->name, "address", network_address_text(&h->address, address), "port",
			 h->port);
}

char *network_to_json(const struct network *n)
{
	json_t *rules = json_array(), *hosts = json_array(), *all;
	char *text;

	for (size_t i = 0; i < n->rule_count; i++)
		(void) json_array_append_new(rules, json_rule(&n->rules[i]));
	for (size_t i = 0; i < n->host_count; i++)
		(void) json_array_append_new(hosts, json_host(&n->hosts[i]));
	all = json_pack("{s:o,s:o,s:{s:o,s:o,s:o,s:o,s:o,s:b},s:b,s:o}", "rules", rules, "hosts", hosts, "limits", "bytes_out",
			json_amount(n->limits.bytes_out), "bytes_in", json_amount(n->limits.bytes_in), "requests",
			json_amount(n->limits.requests), "connections", json_amount(n->limits.connections), "rate",
			json_amount(n->limits.rate), "kill", n->limits.on_limit == NETWORK_LIMIT_KILL, "proxy_env", n->proxy_env,
			"ca_file", json_text(n->ca_file));
	text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return text;
}

/* ---- From JSON. ---- */

/* An object whose members are taken one by one; what is left in the end was not expected. */
struct reader {
	json_t *object;
	size_t taken;
	bool good;
};

static struct reader read_object(json_t *value)
{
	return (struct reader){.object = value, .good = json_is_object(value)};
}

static json_t *take(struct reader *r, const char *key)
{
	json_t *value = r->good ? json_object_get(r->object, key) : NULL;

	if (value == NULL)
		r->good = false;
	else
		r->taken++;
	return value;
}

static bool complete(const struct reader *r)
{
	return r->good && json_object_size(r->object) == r->taken;
}

/* A text is lent: it lives as long as its object. */
static char *take_text(struct reader *r, const char *key)
{
	json_t *value = take(r, key);

	if (json_is_null(value))
		return NULL;
	if (!json_is_string(value) || json_string_length(value) > TEXT_MAX ||
	    strlen(json_string_value(value)) != json_string_length(value)) {
		r->good = false;
		return NULL;
	}
	return (char *) (uintptr_t) json_string_value(value);
}

static uint64_t take_amount(struct reader *r, const char *key)
{
	json_t *value = take(r, key);

	if (json_is_integer(value) && json_integer_value(value) >= 0)
		return (uint64_t) json_integer_value(value);
	r->good = r->good && json_is_null(value);
	return ZW_UNLIMITED;
}

static unsigned take_number(struct reader *r, const char *key, unsigned max)
{
	uint64_t value = take_amount(r, key);

	r->good = r->good && value <= max;
	return r->good ? (unsigned) value : 0;
}

static bool take_bool(struct reader *r, const char *key)
{
	json_t *value = take(r, key);

	r->good = r->good && json_is_boolean(value);
	return json_is_true(value);
}

static json_t *take_list(struct reader *r, const char *key)
{
	json_t *value = take(r, key);

	r->good = r->good && json_is_array(value);
	return r->good ? value : NULL;
}

/* The texts are lent, the list of them is the caller's. */
static struct strv take_strv(struct reader *r, const char *key, bool *ret_present)
{
	json_t *list = take(r, key), *item;
	struct strv v = {0};
	size_t i;

	*ret_present = !json_is_null(list);
	if (!*ret_present)
		return v;
	r->good = r->good && json_is_array(list);
	v.items = xcalloc(json_array_size(list) + 1, sizeof *v.items);
	json_array_foreach(list, i, item)
	{
		if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item)) {
			r->good = false;
			break;
		}
		v.items[v.count++] = (char *) (uintptr_t) json_string_value(item);
	}
	return v;
}

static struct port_range *take_ports(struct reader *r, size_t *ret_count)
{
	json_t *list = take_list(r, "ports"), *item;
	struct port_range *ports = xcalloc(json_array_size(list) + 1, sizeof *ports);
	size_t i;

	*ret_count = 0;
	json_array_foreach(list, i, item)
	{
		json_int_t first = json_integer_value(json_array_get(item, 0)),
			   last = json_integer_value(json_array_get(item, 1));

		if (json_array_size(item) != 2 || first < 1 || first > last || last > UINT16_MAX) {
			r->good = false;
			break;
		}
		ports[(*ret_count)++] = (struct port_range){(uint16_t) first, (uint16_t) last};
	}
	return ports;
}

static void take_secret(struct reader *r, struct policy_secret_use *ret)
{
	struct reader s = read_object(take(r, "secret"));

	*ret = (struct policy_secret_use){.name = take_text(&s, "name"),
					  .header = take_text(&s, "header"),
					  .format = take_text(&s, "format"),
					  .placeholder = take_text(&s, "placeholder")};
	r->good = r->good && complete(&s);
}

static int read_rule(struct network *n, json_t *value, struct zw_error *e)
{
	struct reader r = read_object(value);
	struct policy_rule rule = {.host = take_text(&r, "host"), .address = take_text(&r, "address")};
	cleanup_free struct port_range *ports = take_ports(&r, &rule.port_count);
	cleanup_free char **methods = NULL, **paths = NULL;
	const char *label = take_text(&r, "label");

	rule.ports = ports;
	rule.protocol = take_number(&r, "protocol", NET_UDP);
	rule.methods = take_strv(&r, "methods", &rule.has_methods);
	methods = rule.methods.items;
	rule.paths = take_strv(&r, "paths", &rule.has_paths);
	paths = rule.paths.items;
	rule.request_max = take_amount(&r, "request_max");
	take_secret(&r, &rule.secret);
	if (!complete(&r) || label == NULL)
		return zw_error(e, EINVAL, "the network rules hold one that is not well formed");
	return network_add_rule(n, &rule, label, e);
}

static int read_host(struct network *n, json_t *value, struct zw_error *e)
{
	struct reader r = read_object(value);
	const char *name = take_text(&r, "name"), *address = take_text(&r, "address");
	struct network_host h = {.port = (uint16_t) take_number(&r, "port", UINT16_MAX)};
	char canonical[NETWORK_NAME_SIZE];

	if (!complete(&r) || name == NULL || address == NULL || network_name(name, strlen(name), canonical) < 0 ||
	    network_address(address, strlen(address), &h.address) < 0)
		return zw_error(e, EINVAL, "the network hosts hold one that is not well formed");
	h.name = xstrdup(canonical);
	n->hosts[n->host_count++] = h;
	return 0;
}

static void read_limits(struct reader *all, struct network *n)
{
	struct reader r = read_object(take(all, "limits"));

	n->limits.bytes_out = take_amount(&r, "bytes_out");
	n->limits.bytes_in = take_amount(&r, "bytes_in");
	n->limits.requests = take_amount(&r, "requests");
	n->limits.connections = take_amount(&r, "connections");
	n->limits.rate = take_amount(&r, "rate");
	n->limits.on_limit = take_bool(&r, "kill") ? NETWORK_LIMIT_KILL : NETWORK_LIMIT_DENY;
	all->good = all->good && complete(&r);
}

static int read_all(json_t *value, struct network *n, struct zw_error *e)
{
	struct reader r = read_object(value);
	json_t *rules = take_list(&r, "rules"), *hosts = take_list(&r, "hosts"), *item;
	const char *ca_file = take_text(&r, "ca_file");
	size_t i;
	int result = 0;

	read_limits(&r, n);
	n->proxy_env = take_bool(&r, "proxy_env");
	if (!complete(&r) || json_array_size(hosts) > NETWORK_RULES_MAX || (ca_file != NULL && ca_file[0] != '/'))
		return zw_error(e, EINVAL, "the network rules are not what was expected");
	n->ca_file = ca_file != NULL ? xstrdup(ca_file) : NULL;
	n->hosts = xcalloc(json_array_size(hosts) + 1, sizeof *n->hosts);
	json_array_foreach(rules, i, item) if (result == 0) result = read_rule(n, item, e);
	json_array_foreach(hosts, i, item) if (result == 0) result = read_host(n, item, e);
	return result < 0 ? result : network_check(n, e);
}

int network_from_json(const char *text, size_t size, struct network *ret, struct zw_error *e)
{
	struct network n = {0};
	json_error_t fault;
	json_t *value;
	int r;

	if (size > NETWORK_JSON_MAX)
		return zw_error(e, EINVAL, "the network rules are larger than %d bytes", NETWORK_JSON_MAX);
	value = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault);
	if (value == NULL)
		return zw_error(e, EINVAL, "the network rules are no JSON: %.100s", fault.text);
	r = read_all(value, &n, e);
	json_decref(value);
	if (r < 0) {
		network_done(&n);
		return r;
	}
	*ret = n;
	return 0;
}
