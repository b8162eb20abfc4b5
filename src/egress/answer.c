#include "egress/answer.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "egress/authority.h"

static const char *reason_of(unsigned status)
{
	static const struct {
		unsigned status;
		const char *reason;
	} table[] = {
	    {400, "Bad Request"},
	    {403, "Forbidden"},
	    {408, "Request Timeout"},
	    {413, "Content Too Large"},
	    {417, "Expectation Failed"},
	    {421, "Misdirected Request"},
	    {429, "Too Many Requests"},
	    {431, "Request Header Fields Too Large"},
	    {501, "Not Implemented"},
	    {502, "Bad Gateway"},
	    {505, "HTTP Version Not Supported"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].status == status)
			return table[i].reason;
	return "Refused";
}

void answer_put(const struct answer *a, struct evbuffer *out)
{
	(void) evbuffer_add_printf(out,
				   "HTTP/1.1 %u %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
				   "Cache-Control: no-store\r\n%s\r\n",
				   a->status, reason_of(a->status), strlen(a->line) + 1, a->close ? "Connection: close\r\n" : "");
	if (!a->head_only)
		(void) evbuffer_add_printf(out, "%s\n", a->line);
}

/* Would the rule, with its methods or paths left out of account, allow it? */
static bool allows(const struct network_rule *rule, bool methods, bool paths, const char *method, const char *path,
		   size_t path_size)
{
	struct network_rule alone = *rule;
	struct network n = {.rules = &alone, .rule_count = 1};
	size_t index = 0;

	alone.has_methods = methods && rule->has_methods;
	alone.has_paths = paths && rule->has_paths;
	return network_match_request(&n, &index, 1, method, path, path_size) >= 0;
}

static const char *list(const struct strv *v, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < v->count && at + 1 < size; i++) {
		int n = snprintf(buf + at, size - at, "%s%s", i > 0 ? ", " : "", v->items[i]);

		at += n > 0 ? (size_t) n : 0;
	}
	return v->count > 0 ? buf : "none";
}

void answer_denied_request(const struct flow *f, const char *method, const char *path, size_t path_size, int *ret_rule, char *why)
{
	const struct network *n = f->broker->network;
	const struct network_rule *rule;
	char host[AUTHORITY_TEXT], allowed[128];
	int shown = (int) (path_size < 160 ? path_size : 160);
	bool method_lacks = false;

	*ret_rule = f->rule_count > 0 ? (int) f->rules[0] : -1;
	for (size_t i = 0; i < f->rule_count && !method_lacks; i++) {
		method_lacks = allows(&n->rules[f->rules[i]], false, true, method, path, path_size);
		if (method_lacks || allows(&n->rules[f->rules[i]], true, false, method, path, path_size))
			*ret_rule = (int) f->rules[i];
	}
	(void) target_host(&f->target, true, host);
	if (*ret_rule < 0) {
		(void) snprintf(why, ANSWER_LINE, "%s %s%.*s is not allowed", method, host, shown, path);
		return;
	}
	rule = &n->rules[*ret_rule];
	if (!method_lacks && !allows(rule, false, false, method, path, path_size))
		(void) snprintf(
		    why, ANSWER_LINE,
		    "%s %s%.*s has a path that no rule may match (a backslash, . or .., a control character or a broken escape)",
		    method, host, shown, path);
	else if (method_lacks)
		(void) snprintf(why, ANSWER_LINE, "%s %s%.*s is not allowed: %s has that path, but only for the methods %s",
				method, host, shown, path, rule->label, list(&rule->methods, allowed, sizeof allowed));
	else
		(void) snprintf(why, ANSWER_LINE, "%s %s%.*s is not allowed: the nearest rule, %s, has only the paths %s", method,
				host, shown, path, rule->label, list(&rule->paths, allowed, sizeof allowed));
}

void answer_denied_target(const struct network *n, const struct target *t, char *why)
{
	char host[AUTHORITY_TEXT];
	int nearest = t->name[0] != '\0' ? network_nearest_rule(n, t->name, t->port) : -1;

	(void) target_authority(t, 0, host);
	if (nearest >= 0)
		(void) snprintf(why, ANSWER_LINE, "%s is not in network.allow; the nearest rule is %s", host,
				n->rules[nearest].label);
	else
		(void) snprintf(why, ANSWER_LINE, "%s is not in network.allow", host);
}

void answer_how_to_ask(const char *why, char *line)
{
	(void) snprintf(line, ANSWER_LINE,
			"zwinger: %.500s; to ask for it, have the owner of this sandbox extend network.allow in its policy", why);
}
