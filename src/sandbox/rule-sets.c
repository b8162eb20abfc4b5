#include "sandbox/rule-sets.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/hex.h"
#include "base/mem.h"
#include "policy/syntax.h"
#include "sandbox/environment.h"
#include "sandbox/rule-sets-internal.h"

enum { GET_BODY_MAX = 0, POST_BODY_MAX = 16 * 1024 * 1024 };

/* ---- For inside. ---- */

void rule_set_define(struct rule_set *s, const char *name, const char *value)
{
	struct rule_set_inside *in = s->inside;

	in->variables = xrealloc(in->variables, in->variable_count + 1, sizeof *in->variables);
	in->variables[in->variable_count++] = (struct policy_env){.name = xstrdup(name), .value = xstrdup(value)};
}

void rule_set_add_file(struct rule_set *s, const char *path, const struct buf *text)
{
	struct rule_set_inside *in = s->inside;

	in->files = xrealloc(in->files, in->file_count + 1, sizeof *in->files);
	in->files[in->file_count++] = (struct plan_file){.path = xstrdup(path),
							 .data = xstrndup(text->size > 0 ? text->data : "", text->size),
							 .size = text->size,
							 .mode = 0444};
}

void rule_set_inside_done(struct rule_set_inside *inside)
{
	for (size_t i = 0; i < inside->variable_count; i++) {
		free(inside->variables[i].name);
		free(inside->variables[i].value);
	}
	for (size_t i = 0; i < inside->file_count; i++) {
		free(inside->files[i].path);
		free(inside->files[i].data);
	}
	free(inside->variables);
	free(inside->files);
	*inside = (struct rule_set_inside){0};
}

const char *rule_set_variable(const struct rule_set *s, const char *name)
{
	size_t size = strlen(name);

	for (char *const *v = s->from->environment; *v != NULL; v++)
		if (strncmp(*v, name, size) == 0 && (*v)[size] == '=')
			return (*v)[size + 1] != '\0' ? *v + size + 1 : NULL;
	return NULL;
}

/* ---- URLs. ---- */

bool rule_set_is_web(const char *url)
{
	return strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
}

/* A URL without what may be a secret in it, for messages: up to the authority's last '@', and from a query on. */
static char *harmless(const char *url)
{
	const char *host = strstr(url, "://");
	const char *at = NULL;
	size_t size;

	host = host != NULL ? host + 3 : url;
	for (const char *p = host; *p != '\0' && *p != '/' && *p != '?' && *p != '#'; p++)
		if (*p == '@')
			at = p + 1;
	size = strcspn(at != NULL ? at : host, "?#");
	return xasprintf("%.*s%.*s", (int) (host - url), url, (int) (size < 200 ? size : 200), at != NULL ? at : host);
}

static int refuse(const char *what, const char *url, const char *why, struct zw_error *e)
{
	cleanup_free char *shown = harmless(url);

	return zw_error(e, EINVAL, "%s is %s: %s", what, shown, why);
}

/* Rules are compared with decoded paths. False for what a rule cannot say. */
static bool decode_path(const char *path, size_t size, char *ret, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < size; i++) {
		int c = (unsigned char) path[i];

		if (c == '%') {
			if (i + 2 >= size || hex_digit(path[i + 1]) < 0 || hex_digit(path[i + 2]) < 0)
				return false;
			c = hex_digit(path[i + 1]) * 16 + hex_digit(path[i + 2]);
			i += 2;
			if (c == '/')
				return false;
		}
		if (c <= 0x20 || c == 0x7f || c == '*' || c == '%' || c == '\\' || n + 1 >= room)
			return false;
		ret[n++] = (char) c;
	}
	while (n > 0 && ret[n - 1] == '/')
		n--;
	ret[n] = '\0';
	return true;
}

static bool parse_host(const char *text, size_t size, struct source_url *ret)
{
	struct net_address a;
	bool bracketed = size > 2 && text[0] == '[' && text[size - 1] == ']';

	if (bracketed) {
		text++;
		size -= 2;
	}
	ret->is_address = network_address(text, size, &a) == 0;
	if (bracketed != (ret->is_address && a.family == AF_INET6))
		return false;
	if (!ret->is_address)
		return network_name(text, size, ret->host) == 0;
	(void) network_address_text(&a, ret->host);
	return true;
}

static bool parse_authority(const char *text, size_t size, struct source_url *ret)
{
	const char *colon = memrchr(text, ':', size);
	char port[8];
	size_t digits;

	ret->port = ret->https ? 443 : 80;
	if (colon == NULL || memchr(colon, ']', size - (size_t) (colon - text)) != NULL)
		return parse_host(text, size, ret);
	digits = size - (size_t) (colon + 1 - text);
	if (digits >= sizeof port)
		return false;
	(void) snprintf(port, sizeof port, "%.*s", (int) digits, colon + 1);
	return syntax_port(port, &ret->port) && parse_host(text, (size_t) (colon - text), ret);
}

static bool is_this_machine(const struct source_url *u)
{
	size_t size = strlen(u->host);

	if (u->is_address)
		return strncmp(u->host, "127.", 4) == 0 || strcmp(u->host, "::1") == 0 || strcmp(u->host, "0.0.0.0") == 0 ||
		       strcmp(u->host, "::") == 0;
	return strcmp(u->host, "localhost") == 0 || (size > 10 && strcmp(u->host + size - 10, ".localhost") == 0);
}

/* ---- Proxies. ---- */

int rule_set_no_proxy(const char *what, struct zw_error *e)
{
	return zw_error(
	    e, EINVAL,
	    "%s names a proxy, and a rule set connects directly: name the package source in a rule of your own, or take the "
	    "proxy out (for one source: no_proxy)",
	    what);
}

/* "a.test,.b.test,*": whole names or their ends, as curl, requests and npm read it. */
static bool is_excepted(const char *list, const char *host)
{
	size_t length = strlen(host);

	while (*list != '\0') {
		size_t size;

		list += strspn(list, ", \t.");
		size = strcspn(list, ", \t");
		if (size == 1 && *list == '*')
			return true;
		if (size > 0 && size <= length && strncasecmp(host + length - size, list, size) == 0 &&
		    (size == length || host[length - size - 1] == '.'))
			return true;
		list += size;
	}
	return false;
}

static int check_proxy(const struct rule_set *s, const struct source_url *u, struct zw_error *e)
{
	static const char *const names[2][4] = {{"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"},
						{"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}};
	const char *except = rule_set_variable(s, "no_proxy");

	if (except == NULL)
		except = rule_set_variable(s, "NO_PROXY");
	if (except != NULL && is_excepted(except, u->host))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(names[0]); i++)
		if (rule_set_variable(s, names[u->https][i]) != NULL)
			return rule_set_no_proxy(names[u->https][i], e);
	return 0;
}

int rule_set_url(const struct rule_set *s, const char *what, const char *url, struct source_url *ret, struct zw_error *e)
{
	struct source_url u = {.https = strncasecmp(url, "https://", 8) == 0};
	const char *authority = url + (u.https ? 8 : 7);
	size_t size, path;

	if (!rule_set_is_web(url) || strlen(url) >= sizeof u.text)
		return refuse(what, url, "expected a URL that starts with https:// or http://", e);
	size = strcspn(authority, "/?#");
	if (memchr(authority, '@', size) != NULL)
		return refuse(
		    what, url,
		    "it holds a user name or password, which the code inside would see; take them out, and give them with "
		    "`secrets` and a rule of your own for this host with `secret` (header: Authorization)",
		    e);
	path = strcspn(authority + size, "?#");
	if (authority[size + path] != '\0')
		return refuse(what, url, "expected a URL without \"?\" and \"#\"; a token belongs to `secrets`", e);
	if (!parse_authority(authority, size, &u) || !decode_path(authority + size, path, u.path, sizeof u.path))
		return refuse(what, url, "expected https://HOST[:PORT]/PATH with a host name or address that a rule can have", e);
	if (is_this_machine(&u))
		return refuse(
		    what, url,
		    "that is this machine itself, which is another one inside; give the service a name in network.hosts and "
		    "use that name",
		    e);
	(void) snprintf(u.text, sizeof u.text, "%s", url);
	*ret = u;
	return check_proxy(s, ret, e);
}

/* ---- Rules. ---- */

static void free_rules(struct rule_set *s)
{
	for (size_t i = 0; i < s->rule_count; i++) {
		struct policy_rule *r = &s->rules[i];

		for (size_t k = 0; k < r->paths.count; k++)
			free(r->paths.items[k]);
		free(r->paths.items);
		free(r->methods.items[0]);
		free(r->methods.items);
		free(r->ports);
		free(r->host);
		free(r->address);
	}
	free(s->rules);
}

static struct policy_rule *find_rule(struct rule_set *s, const struct source_url *u, const char *method)
{
	for (size_t i = 0; i < s->rule_count; i++) {
		struct policy_rule *r = &s->rules[i];

		if ((r->protocol == NET_HTTPS) == u->https && strcmp(r->host != NULL ? r->host : r->address, u->host) == 0 &&
		    r->ports[0].first == u->port && strcmp(r->methods.items[0], method) == 0)
			return r;
	}
	return NULL;
}

static struct policy_rule *make_rule(struct rule_set *s, const struct source_url *u, const char *method)
{
	struct policy_rule *r;

	s->rules = xrealloc(s->rules, s->rule_count + 1, sizeof *s->rules);
	r = &s->rules[s->rule_count++];
	*r = (struct policy_rule){
	    .protocol = u->https ? NET_HTTPS : NET_HTTP,
	    .has_methods = true,
	    .has_paths = true,
	    /* What a client has to say to download is short; nobody shall carry much out in it. */
	    .request_max = strcmp(method, "GET") == 0 ? GET_BODY_MAX : POST_BODY_MAX,
	    .port_count = 1,
	};
	*(u->is_address ? &r->address : &r->host) = xstrdup(u->host);
	r->ports = xcalloc(1, sizeof *r->ports);
	r->ports[0] = (struct port_range){.first = u->port, .last = u->port};
	r->methods.items = xcalloc(1, sizeof *r->methods.items);
	r->methods.items[r->methods.count++] = xstrdup(method);
	return r;
}

static bool has_path(const struct policy_rule *r, const char *path)
{
	for (size_t i = 0; i < r->paths.count; i++)
		if (strcmp(r->paths.items[i], path) == 0)
			return true;
	return false;
}

int rule_set_allow(struct rule_set *s, const struct source_url *u, const char *method, const char *path, struct zw_error *e)
{
	const char *verb = method != NULL ? method : "GET";
	struct policy_rule *r = find_rule(s, u, verb);

	if (r == NULL && s->rule_count == RULE_SET_RULES_MAX)
		return zw_error(e, E2BIG, "more than %d package sources are configured; name those that are needed in rules",
				RULE_SET_RULES_MAX);
	if (r == NULL)
		r = make_rule(s, u, verb);
	if (path == NULL)
		r->has_paths = false;
	else if (r->paths.count == RULE_SET_PATHS_MAX)
		return zw_error(e, E2BIG, "more than %d paths of %s are configured; name those that are needed in rules",
				RULE_SET_PATHS_MAX, u->host);
	if (path == NULL || has_path(r, path))
		return 0;
	r->paths.items = xrealloc(r->paths.items, r->paths.count + 1, sizeof *r->paths.items);
	r->paths.items[r->paths.count++] = xstrdup(path);
	return 0;
}

/* Where one source needs the whole host, the paths of the others say nothing more. */
static int hand_over(const struct rule_set *s, const char *label, struct network *n, struct zw_error *e)
{
	for (size_t i = 0; i < s->rule_count; i++) {
		struct policy_rule r = s->rules[i];
		int result;

		if (!r.has_paths)
			r.paths = (struct strv){0};
		result = network_add_rule(n, &r, label, e);
		if (result < 0)
			return result;
	}
	return 0;
}

/* ---- Rule sets. ---- */

static const struct {
	const char *name;
	int (*collect)(struct rule_set *s, struct zw_error *e);
} sets[] = {
    {"@pip", rule_set_pip},
    {"@npm", rule_set_npm},
    {"@apt", rule_set_apt},
    {"@git-https", rule_set_git},
};

int rule_set_collect(const char *preset, const char *label, const struct rule_set_source *from, struct network *n,
		     struct rule_set_inside *ret, struct zw_error *e)
{
	struct rule_set_inside inside = {0};
	struct rule_set s = {.from = from, .inside = &inside};
	size_t i = 0;
	int r;

	while (i < ARRAY_SIZE(sets) && strcmp(sets[i].name, preset) != 0)
		i++;
	if (i == ARRAY_SIZE(sets))
		return zw_error(e, EINVAL, "there is no rule set %s", preset);
	r = sets[i].collect(&s, e);
	if (r == 0)
		r = hand_over(&s, label, n, e);
	free_rules(&s);
	if (r < 0) {
		(void) zw_context(e, "%s", preset);
		rule_set_inside_done(&inside);
		return r;
	}
	*ret = inside;
	return 0;
}

/* ---- A plan. ---- */

static const char *workspace_of(const struct plan *plan)
{
	for (size_t i = 0; i < plan->mount_count; i++)
		if (plan->mounts[i].kind == PLAN_WORKSPACE)
			return plan->mounts[i].source;
	return NULL;
}

static void take_files(struct plan *plan, struct rule_set_inside *inside)
{
	plan->files = xrealloc(plan->files, plan->file_count + inside->file_count + 1, sizeof *plan->files);
	for (size_t i = 0; i < inside->file_count; i++)
		plan->files[plan->file_count++] = inside->files[i];
	inside->file_count = 0;
}

static void take_binds(struct plan *plan, const struct rule_set_inside *inside)
{
	plan->binds = xrealloc(plan->binds, plan->bind_count + inside->bind_count + 1, sizeof *plan->binds);
	for (size_t i = 0; i < inside->bind_count; i++)
		plan->binds[plan->bind_count++] =
		    (struct plan_bind){.source = xstrdup(inside->binds[i]), .target = xstrdup(inside->binds[i]), .is_dir = true};
}

int rule_set_expand(const char *preset, struct plan *plan, struct zw_error *e)
{
	/* What runs inside is looked for first where it is inside. */
	static const char inside_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	const char *path = getenv("PATH");
	cleanup_free char *search = xasprintf("%s:%s", inside_path, path != NULL ? path : "");
	const struct rule_set_source from = {
	    .environment = environ, .root = "", .search = search, .workspace = workspace_of(plan)};
	cleanup_free char *label = xasprintf("network.allow (%s)", preset);
	struct rule_set_inside inside = {0};
	int r = rule_set_collect(preset, label, &from, plan->network, &inside, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < inside.variable_count; i++)
		environment_default(plan, inside.variables[i].name, inside.variables[i].value);
	take_files(plan, &inside);
	take_binds(plan, &inside);
	rule_set_inside_done(&inside);
	return 0;
}
