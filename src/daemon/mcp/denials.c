/* What was denied during a call, as data and as sentences that say what would allow it: the policy is the operator's, so that a
 * model can tell people what to change, and need not try again. */
#include <event2/buffer.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/mcp/mcp.h"

static const char *const keys[] = {"kind", "name", "host", "port", "address", "method", "path"};

static bool is_same(const json_t *a, const json_t *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);

		if (x != y && !json_equal((json_t *) (uintptr_t) x, (json_t *) (uintptr_t) y))
			return false;
	}
	return true;
}

static const char *text_of(const json_t *d, const char *name)
{
	const char *text = json_string_value(json_object_get(d, name));

	return text != NULL ? text : "";
}

/* ---- Rule and remedy. ---- */

static json_t *network_remedy(const json_t *d)
{
	const char *host = text_of(d, "host");
	json_int_t port = json_integer_value(json_object_get(d, "port"));

	if (host[0] == '\0')
		return json_string("a rule in network.allow of the policy");
	if (port > 0)
		return json_sprintf("network.allow: [{host: \"%s\", ports: [%lld]}] in the policy", host, (long long) port);
	return json_sprintf("network.allow: [{host: \"%s\"}] in the policy", host);
}

static json_t *remedy(const json_t *d)
{
	const char *kind = text_of(d, "kind"), *name = text_of(d, "name");

	if (strcmp(kind, "network") == 0 || strcmp(kind, "dns") == 0)
		return network_remedy(d);
	if (strcmp(kind, "http") == 0)
		return json_sprintf("a rule of network.allow for \"%s\" whose methods and paths include %s %s",
				    text_of(d, "host"), text_of(d, "method"), text_of(d, "path"));
	if (strcmp(kind, "syscall") == 0)
		return json_sprintf("syscalls.allow: [%s] in the policy, where the operator's ceiling permits it", name);
	if (strcmp(kind, "file") == 0)
		return json_sprintf("an entry of filesystem.read or filesystem.write that covers %s", name);
	if (strcmp(kind, "process") == 0)
		return json_string("a higher limits.processes in the policy");
	return json_string("a change of the policy by the operator");
}

static json_t *rule(const json_t *d)
{
	const char *kind = text_of(d, "kind"), *said = text_of(d, "rule"), *why = text_of(d, "why");

	if (said[0] != '\0')
		return json_string(said);
	if (why[0] != '\0')
		return json_string(why);
	if (strcmp(kind, "network") == 0 || strcmp(kind, "dns") == 0)
		return json_string("network.allow has no rule for it");
	if (strcmp(kind, "syscall") == 0)
		return json_string("syscalls.profile does not have it");
	if (strcmp(kind, "process") == 0)
		return json_string("limits.processes");
	return json_string("the policy");
}

/* ---- The list. ---- */

static json_t *find(const json_t *list, const json_t *record)
{
	json_t *d;
	size_t i;

	json_array_foreach(list, i, d)
	{
		if (is_same(d, record))
			return d;
	}
	return NULL;
}

static json_t *denial_of(const json_t *record, json_int_t count)
{
	json_t *d = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (json_object_get(record, keys[i]) != NULL)
			(void) json_object_set(d, keys[i], json_object_get(record, keys[i]));
	(void) json_object_set_new(d, "count", json_integer(count));
	(void) json_object_set_new(d, "rule", rule(record));
	(void) json_object_set_new(d, "allow", remedy(record));
	return d;
}

static json_int_t count_of(const json_t *record)
{
	return json_integer_value(json_object_get(record, "count"));
}

void mcp_denials_add(json_t *denials, const json_t *list, const json_t *before)
{
	json_t *record;
	size_t i;

	json_array_foreach((json_t *) (uintptr_t) list, i, record)
	{
		json_int_t more = count_of(record) - count_of(find(before, record));
		json_t *known = find(denials, record);

		if (!json_is_object(record) || more <= 0)
			continue;
		if (known != NULL)
			(void) json_object_set_new(known, "count", json_integer(count_of(known) + more));
		else if (json_array_size(denials) < MCP_DENIALS_MAX)
			(void) json_array_append_new(denials, denial_of(record, more));
	}
}

static void tell(const json_t *d, struct evbuffer *text)
{
	const char *host = text_of(d, "host"), *name = text_of(d, "name"), *method = text_of(d, "method");
	json_int_t port = json_integer_value(json_object_get(d, "port"));

	(void) evbuffer_add_printf(text, "[denied by the sandbox: %s", text_of(d, "kind"));
	if (method[0] != '\0')
		(void) evbuffer_add_printf(text, " %s %s", method, text_of(d, "path"));
	if (host[0] != '\0')
		(void) evbuffer_add_printf(text, " %s", host);
	if (port > 0)
		(void) evbuffer_add_printf(text, ":%lld", (long long) port);
	if (name[0] != '\0')
		(void) evbuffer_add_printf(text, " %s", name);
	(void) evbuffer_add_printf(text, ". Rule: %s. Trying again does not help; this would allow it: %s]\n", text_of(d, "rule"),
				   text_of(d, "allow"));
}

void mcp_denials_tell(const json_t *denials, struct evbuffer *text)
{
	json_t *d;
	size_t i;

	json_array_foreach(denials, i, d) tell(d, text);
}
