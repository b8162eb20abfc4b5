/* @npm: the registries that npm is configured for (the general one and those of scopes), and the environment that makes npm
 * inside use the same ones, fail fast, and leave out what is no download: audit, funding, notices of updates. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "sandbox/rule-sets-internal.h"

#define NPMRC_INSIDE "/etc/npmrc"

enum { SCOPES_MAX = 64 };

struct registry {
	char *scope; /* "@scope", NULL for the general one */
	char *url, *where;
};

struct npm {
	struct rule_set *s;
	struct registry general;
	struct registry scopes[SCOPES_MAX];
	size_t scope_count;
};

/* npm takes its variables in any case of letters ("NPM_CONFIG_REGISTRY"). */
static const char *npm_variable(const struct npm *n, const char *name)
{
	size_t size = strlen(name);

	for (char *const *v = n->s->from->environment; *v != NULL; v++)
		if (strncasecmp(*v, "npm_config_", 11) == 0 && strncasecmp(*v + 11, name, size) == 0 && (*v)[11 + size] == '=' &&
		    (*v)[12 + size] != '\0')
			return *v + 12 + size;
	return NULL;
}

static void set(struct registry *r, const char *url, const char *where)
{
	free(r->url);
	free(r->where);
	r->url = xstrdup(url);
	r->where = xstrdup(where);
}

/* ---- Configuration files. ---- */

/* The files are read from the strongest to the weakest: what is set stays. */
static int note_registry(struct npm *n, const char *scope, const char *url, const char *where, struct zw_error *e)
{
	if (strstr(url, "${") != NULL)
		return zw_error(e, EINVAL, "%s: a registry that is made of variables (${...}) is not read; write it out", where);
	if (scope == NULL) {
		if (n->general.url == NULL)
			set(&n->general, url, where);
		return 0;
	}
	for (size_t i = 0; i < n->scope_count; i++)
		if (strcmp(n->scopes[i].scope, scope) == 0)
			return 0;
	if (n->scope_count == SCOPES_MAX)
		return zw_error(e, E2BIG, "%s: more than %d scopes have registries of their own", where, SCOPES_MAX);
	n->scopes[n->scope_count].scope = xstrdup(scope);
	set(&n->scopes[n->scope_count++], url, where);
	return 0;
}

static bool says_nothing(const char *value)
{
	return value[0] == '\0' || strcmp(value, "null") == 0 || strcmp(value, "false") == 0;
}

static int note(struct npm *n, char *key, const char *value, const char *where, struct zw_error *e)
{
	char *colon = strrchr(key, ':');

	if ((strcmp(key, "proxy") == 0 || strcmp(key, "https-proxy") == 0) && !says_nothing(value)) {
		cleanup_free char *what = xasprintf("%s of npm (%s)", key, where);

		return rule_set_no_proxy(what, e);
	}
	if (strcmp(key, "registry") == 0)
		return note_registry(n, NULL, value, where, e);
	if (key[0] != '@' || colon == NULL || strcmp(colon, ":registry") != 0)
		return 0;
	*colon = '\0';
	return note_registry(n, key, value, where, e);
}

static char *unquote(char *value)
{
	size_t size = strlen(value);

	if (size < 2 || (value[0] != '"' && value[0] != '\'') || value[size - 1] != value[0])
		return value;
	value[size - 1] = '\0';
	return value + 1;
}

/* Lines of key = value; a [section] starts keys that are none of npm's. Tokens for registries stand here too
 * ("//host/:_authToken"): nothing of them is kept. */
static int read_npmrc(struct npm *n, const char *path, struct zw_error *e)
{
	cleanup_free char *text = NULL;
	int r = rule_set_read(n->s, path, &text, e);
	char *rest = text;

	while (r > 0) {
		char *line = rule_set_line(&rest), *equals;

		if (line == NULL)
			break;
		line = rule_set_trim(line);
		if (line[0] == '[')
			break;
		equals = strchr(line, '=');
		if (line[0] == '\0' || line[0] == '#' || line[0] == ';' || equals == NULL)
			continue;
		*equals = '\0';
		r = note(n, rule_set_trim(line), unquote(rule_set_trim(equals + 1)), path, e) < 0 ? -EINVAL : r;
	}
	return r < 0 ? r : 0;
}

static int read_user(struct npm *n, struct zw_error *e)
{
	const char *named = npm_variable(n, "userconfig"), *home = rule_set_variable(n->s, "HOME");
	cleanup_free char *own = home != NULL ? xasprintf("%s/.npmrc", home) : NULL;

	if (named == NULL)
		named = own;
	return named != NULL && named[0] == '/' ? read_npmrc(n, named, e) : 0;
}

/* As npm finds it: PREFIX/etc/npmrc, where PREFIX/bin/node is the node that runs it. */
static int read_global(struct npm *n, struct zw_error *e)
{
	const char *named = npm_variable(n, "globalconfig"), *folder = n->s->from->search;

	if (named != NULL)
		return named[0] == '/' ? read_npmrc(n, named, e) : 0;
	while (*folder != '\0') {
		size_t size = strcspn(folder, ":");
		cleanup_free char *node = xasprintf("%.*s/node", (int) size, folder);
		char real[PATH_MAX], *end;

		if (folder[0] == '/' && realpath(node, real) != NULL) {
			for (int i = 0; i < 2; i++) { /* less "/bin/node" */
				end = strrchr(real, '/');
				if (end != NULL)
					*end = '\0';
			}
			end = real + strlen(real);
			(void) snprintf(end, sizeof real - (size_t) (end - real), "/etc/npmrc");
			return read_npmrc(n, real, e);
		}
		folder += size;
		folder += *folder == ':' ? 1 : 0;
	}
	return 0;
}

static int read_variables(struct npm *n, struct zw_error *e)
{
	static const char *const names[][2] = {{"registry", "registry"}, {"proxy", "proxy"}, {"https_proxy", "https-proxy"}};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
		const char *value = npm_variable(n, names[i][0]);
		cleanup_free char *where = xasprintf("npm_config_%s", names[i][0]);
		cleanup_free char *key = xstrdup(names[i][1]);

		if (value != NULL)
			r = note(n, key, value, where, e);
	}
	return r;
}

/* npm knows its own default, and what its packager set. */
static int ask_npm(struct npm *n, struct zw_error *e)
{
	static const char *const argv[] = {"npm", "config", "get", "registry", NULL};
	char answer[RULE_SET_ANSWER_MAX];

	if (rule_set_ask(n->s, argv, answer) < 0 || !rule_set_is_web(rule_set_trim(answer)))
		return zw_error(e, ENOENT,
				"npm has no registry configured, and no npm is installed on this host to ask for its own: set "
				"npm_config_registry");
	set(&n->general, rule_set_trim(answer), "its own default");
	return 0;
}

/* ---- Rules. ---- */

/* The whole host: a package of a scope is asked for as "@scope%2fname", and no path with an encoded slash can be told in a rule.
 */
static int allow(struct npm *n, const struct registry *r, struct zw_error *e)
{
	cleanup_free char *what =
	    xasprintf("registry %s%sof npm (%s)", r->scope != NULL ? r->scope : "", r->scope != NULL ? " " : "", r->where);
	struct source_url u;
	int result = rule_set_url(n->s, what, r->url, &u, e);

	return result < 0 ? result : rule_set_allow(n->s, &u, NULL, NULL, e);
}

/* Scopes have no variable that a shell would pass on, so they come in a file. */
static int define_scopes(struct npm *n, struct zw_error *e)
{
	cleanup_buf struct buf text = buf_new(RULE_SET_FILE_MAX);

	for (size_t i = 0; i < n->scope_count; i++) {
		int r = allow(n, &n->scopes[i], e);

		if (r == 0)
			r = buf_addf(&text, "%s:registry=%s\n", n->scopes[i].scope, n->scopes[i].url);
		if (r < 0)
			return r;
	}
	if (text.size == 0)
		return 0;
	rule_set_add_file(n->s, NPMRC_INSIDE, &text);
	rule_set_define(n->s, "npm_config_globalconfig", NPMRC_INSIDE);
	return 0;
}

static int collect(struct npm *n, struct zw_error *e)
{
	static const char *const fixed[][2] = {
	    {"npm_config_fetch_retries", "0"}, {"npm_config_fetch_timeout", "15000"},   {"npm_config_audit", "false"},
	    {"npm_config_fund", "false"},      {"npm_config_update_notifier", "false"},
	};
	int r = read_variables(n, e);

	if (r == 0)
		r = read_user(n, e);
	if (r == 0)
		r = read_global(n, e);
	if (r == 0 && n->general.url == NULL)
		r = ask_npm(n, e);
	if (r == 0)
		r = allow(n, &n->general, e);
	if (r == 0)
		r = define_scopes(n, e);
	if (r < 0)
		return r;
	rule_set_define(n->s, "npm_config_registry", n->general.url);
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		rule_set_define(n->s, fixed[i][0], fixed[i][1]);
	return 0;
}

static void registry_done(struct registry *r)
{
	free(r->scope);
	free(r->url);
	free(r->where);
}

int rule_set_npm(struct rule_set *s, struct zw_error *e)
{
	struct npm n = {.s = s};
	int r = collect(&n, e);

	registry_done(&n.general);
	for (size_t i = 0; i < n.scope_count; i++)
		registry_done(&n.scopes[i]);
	return r;
}
