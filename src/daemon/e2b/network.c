/* What E2B says of the network, as rules of a policy. There, all is open that is not denied; here nothing is but what the ceiling
 * opens. So a request gets the ceiling's rules, or those of them that lead where it asks to go. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/e2b.h"
#include "policy/network-parts.h"

enum { ENTRIES_MAX = 256 };

static bool refuse_network(struct e2b_refusal *ret, unsigned status, const char *fmt, const char *text)
{
	ret->status = status;
	/* NOLINTNEXTLINE: the formats are those below */
	(void) snprintf(ret->message, sizeof ret->message, "network: %s%s%.150s", fmt, text != NULL ? ": " : "",
			text != NULL ? text : "");
	return false;
}

/* ---- Rules as a policy writes them. ---- */

static json_t *texts(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		(void) json_array_append_new(list, json_string(v->items[i]));
	return list;
}

/* The rule of the ceiling, for `target` alone if one is given. Without its secret: nobody has asked for that. */
static json_t *rule_to_json(const struct policy_rule *rule, const char *target)
{
	static const char *const protocols[] = {
	    [NET_TCP] = "tcp", [NET_TLS] = "tls", [NET_HTTP] = "http", [NET_HTTPS] = "https", [NET_UDP] = "udp"};
	json_t *o = json_object(), *ports = json_array();

	if (rule->preset != NULL) {
		json_decref(ports);
		(void) json_object_set_new(o, "preset", json_string(rule->preset));
		return o;
	}
	if (rule->host != NULL)
		(void) json_object_set_new(o, "host", json_string(target != NULL ? target : rule->host));
	else
		(void) json_object_set_new(o, "address", json_string(target != NULL ? target : rule->address));
	for (size_t i = 0; i < rule->port_count; i++)
		(void) json_array_append_new(ports, json_sprintf("%u-%u", rule->ports[i].first, rule->ports[i].last));
	(void) json_object_set_new(o, "ports", ports);
	(void) json_object_set_new(o, "protocol", json_string(protocols[rule->protocol]));
	if (rule->has_methods)
		(void) json_object_set_new(o, "methods", texts(&rule->methods));
	if (rule->has_paths)
		(void) json_object_set_new(o, "paths", texts(&rule->paths));
	if (rule->request_max != ZW_UNLIMITED)
		(void) json_object_set_new(o, "request_max", json_integer((json_int_t) rule->request_max));
	return o;
}

static json_t *all_rules(const struct policy *ceiling)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ceiling->network.allow_count; i++)
		(void) json_array_append_new(list, rule_to_json(&ceiling->network.allow[i], NULL));
	return list;
}

static bool leads_to(const struct policy_rule *rule, const char *target, const struct net_prefix *prefix)
{
	struct net_prefix outer;
	char name[NETWORK_NAME_SIZE];

	if (prefix == NULL)
		return rule->host != NULL && network_pattern(target, strlen(target), name) == 0 &&
		       (strcmp(rule->host, name) == 0 ||
			network_pattern_covers(rule->host, strncmp(name, "*.", 2) == 0 ? name + 2 : name) > 0);
	return rule->address != NULL && network_prefix_parse(rule->address, &outer) && network_special_covers(&outer, prefix);
}

/* Adds the ceiling's rules that lead to `target`; false: none does. */
static bool add_rules(const struct policy *ceiling, const char *target, json_t *list)
{
	struct net_prefix prefix;
	bool is_address = network_prefix_parse(target, &prefix), any = false;

	for (size_t i = 0; i < ceiling->network.allow_count; i++) {
		const struct policy_rule *rule = &ceiling->network.allow[i];

		if (!leads_to(rule, target, is_address ? &prefix : NULL))
			continue;
		(void) json_array_append_new(list, rule_to_json(rule, target));
		any = true;
	}
	return any;
}

static json_t *policy_of(const struct policy *ceiling, json_t *rules)
{
	json_t *hosts = json_object();

	for (size_t i = 0; i < ceiling->network.host_count; i++)
		(void) json_object_set_new(hosts, ceiling->network.hosts[i].name, json_string(ceiling->network.hosts[i].target));
	return json_pack("{s{so so}}", "network", "allow", rules, "hosts", hosts);
}

/* ---- What is asked. ---- */

struct asked {
	const json_t *allow, *deny; /* lists, or NULL */
	bool all_denied, some_denied, names;
};

static bool is_everything(const char *text)
{
	return strcmp(text, "0.0.0.0/0") == 0 || strcmp(text, "::/0") == 0;
}

static bool read_list(const json_t *network, const char *name, const json_t **ret_list, struct e2b_refusal *ret)
{
	const json_t *list = json_object_get(network, name);

	if (list == NULL || json_is_null(list))
		return true;
	if (!json_is_array(list) || json_array_size(list) > ENTRIES_MAX)
		return refuse_network(ret, 400, "expected a list of at most 256 texts", name);
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!json_is_string(json_array_get(list, i)))
			return refuse_network(ret, 400, "expected a list of texts", name);
	*ret_list = list;
	return true;
}

static bool read_asked(const json_t *network, struct asked *ret_asked, struct e2b_refusal *ret)
{
	struct net_prefix prefix;
	char name[NETWORK_NAME_SIZE];

	if (!read_list(network, "allowOut", &ret_asked->allow, ret) || !read_list(network, "denyOut", &ret_asked->deny, ret))
		return false;
	for (size_t i = 0; i < json_array_size(ret_asked->deny); i++) {
		const char *text = json_string_value(json_array_get(ret_asked->deny, i));

		if (!network_prefix_parse(text, &prefix))
			return refuse_network(ret, 400, "denyOut takes addresses and ranges alone", text);
		ret_asked->all_denied |= strcmp(text, "0.0.0.0/0") == 0;
		ret_asked->some_denied |= !is_everything(text);
	}
	for (size_t i = 0; i < json_array_size(ret_asked->allow); i++) {
		const char *text = json_string_value(json_array_get(ret_asked->allow, i));

		if (network_prefix_parse(text, &prefix))
			continue;
		if (network_pattern(text, strlen(text), name) < 0)
			return refuse_network(ret, 400, "allowOut: no address, range or name", text);
		ret_asked->names = true;
	}
	return true;
}

/* What would need work that is not done here. */
static bool check_unsupported(const json_t *network, struct e2b_refusal *ret)
{
	static const char *const names[] = {"rules", "egressProxy"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const json_t *value = json_object_get(network, names[i]);

		if (value != NULL && !json_is_null(value) && !(json_is_object(value) && json_object_size(value) == 0) &&
		    !(json_is_array(value) && json_array_size(value) == 0))
			return refuse_network(ret, 501, "this is not supported", names[i]);
	}
	return true;
}

static bool opens_everything(const struct policy *ceiling)
{
	for (size_t i = 0; i < ceiling->network.allow_count; i++)
		if (ceiling->network.allow[i].address != NULL && is_everything(ceiling->network.allow[i].address))
			return true;
	return false;
}

bool e2b_network_policy(const struct policy *ceiling, const json_t *allow_internet_access, const json_t *network, bool own,
			json_t **ret_policy, struct e2b_refusal *ret)
{
	struct asked asked = {0};
	bool denied, said;
	json_t *rules;

	*ret_policy = NULL;
	if (!check_unsupported(network, ret) || !read_asked(network, &asked, ret))
		return false;
	denied = asked.all_denied || json_is_false(allow_internet_access);
	said = denied || asked.some_denied || json_array_size(asked.allow) > 0 || json_is_true(allow_internet_access);
	if (asked.names && !denied)
		return refuse_network(ret, 400, "names in allowOut need \"0.0.0.0/0\" in denyOut", NULL);
	if (!denied && asked.some_denied && ceiling->network.allow_count > 0)
		return refuse_network(ret, 501, "single ranges cannot be denied; deny 0.0.0.0/0 and allow what is needed", NULL);
	if (!denied && json_is_true(allow_internet_access) && !opens_everything(ceiling))
		return refuse_network(ret, 403, "access to the whole internet is above the ceiling of this service", NULL);
	if (!said && (!own || ceiling->network.allow_count == 0))
		return true;
	if (!denied && json_array_size(asked.allow) == 0) {
		*ret_policy = policy_of(ceiling, all_rules(ceiling));
		return true;
	}
	rules = denied ? json_array() : all_rules(ceiling);
	for (size_t i = 0; i < json_array_size(asked.allow); i++) {
		const char *text = json_string_value(json_array_get(asked.allow, i));

		/* Without a denial the ceiling's rules are there anyhow: this only asks whether they lead there. */
		json_t *into = denied ? rules : json_array();
		bool any = add_rules(ceiling, text, into);

		if (!denied)
			json_decref(into);
		if (any)
			continue;
		json_decref(rules);
		return refuse_network(ret, 403, "this is above the ceiling of this service, which opens nothing that leads there",
				      text);
	}
	*ret_policy = policy_of(ceiling, rules);
	return true;
}

json_t *e2b_network_entries(const json_t *allow_internet_access, const json_t *network)
{
	struct e2b_refusal refusal;
	struct asked asked = {0};

	if (!read_asked(network, &asked, &refusal) || (!asked.all_denied && !json_is_false(allow_internet_access)))
		return json_null();
	return asked.allow != NULL ? json_deep_copy(asked.allow) : json_array();
}

bool e2b_network_equal(const struct policy *a, const struct policy *b)
{
	json_t *one = all_rules(a), *other = all_rules(b);
	bool equal = json_equal(one, other);

	json_decref(one);
	json_decref(other);
	return equal;
}
