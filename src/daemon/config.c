/* The configuration file of `zwinger serve`: YAML or JSON, a map of options. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/serve-options.h"
#include "policy/source.h"
#include "policy/text.h"

static char *option_name(const char *key)
{
	char *name = xstrdup(key);

	/* In the file only "_" separates, so that each option has one name there. */
	for (char *p = name; *p != '\0'; p++)
		*p = *p == '_' ? '-' : *p == '-' ? '_' : *p;
	return name;
}

static int unknown_key(const char *key, struct zw_error *e)
{
	cleanup_free char *shown = text_quote(key);
	cleanup_free char *name = option_name(key);
	struct nearest n = nearest_to(name);

	for (size_t i = 0; serve_option_at(i) != NULL; i++)
		if (!serve_option_at(i)->flag_only)
			nearest_try(&n, serve_option_at(i)->name);
	if (n.best == NULL)
		return zw_error(e, EINVAL, "there is no key %s", shown);
	name = (free(name), option_name(n.best));
	return zw_error(e, EINVAL, "there is no key %s (did you mean \"%s\"?)", shown, name);
}

/* Paths in a file belong to its folder. */
static int set_scalar(struct serve_options *o, const struct serve_option *option, const struct node *value, struct zw_error *e)
{
	cleanup_free char *described = node_describe(value);
	cleanup_free char *path = NULL;

	if (value->type != NODE_TEXT && value->type != NODE_NUMBER && value->type != NODE_BOOL)
		return zw_error(e, EINVAL, "expected %s, got %s", option->value != NULL ? option->value : "true or false",
				described);
	if (option->kind == OPTION_PATH && value->text[0] != '/' && value->text[0] != '\0' && value->source->dir != NULL)
		path = xasprintf("%s/%s", value->source->dir, value->text);
	return serve_option_set(o, option, path != NULL ? path : value->text, e);
}

static int set_value(struct serve_options *o, const struct serve_option *option, const struct node *value, struct zw_error *e)
{
	if (value->type != NODE_LIST)
		return set_scalar(o, option, value, e);
	if (option->kind != OPTION_LIST)
		return zw_error(e, EINVAL, "expected one value, got a list");
	for (size_t i = 0; i < value->count; i++) {
		int r = set_scalar(o, option, value->members[i].value, e);

		if (r < 0)
			return r;
	}
	return 0;
}

static int set_member(struct serve_options *o, const char *path, const struct node_member *m, struct zw_error *e)
{
	cleanup_free char *name = option_name(m->key);
	const struct serve_option *option = serve_option_find(name, strlen(name));

	if (option == NULL || option->flag_only) {
		(void) unknown_key(m->key, e);
		return zw_context(e, "%s:%u", path, m->key_line);
	}
	return set_value(o, option, m->value, e) == 0 ? 0 : zw_context(e, "%s:%u: %s", path, m->key_line, m->key);
}

static int first_error(struct policy_errors *errors, struct zw_error *e)
{
	cleanup_free char *text = errors->count > 0 ? policy_error_text(&errors->items[0]) : NULL;

	policy_errors_done(errors);
	return zw_error(e, EINVAL, "%s", text != NULL ? text : "the configuration file cannot be read");
}

/* The folder of a file; NULL: the working directory. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? NULL : xstrndup(path, slash == path ? 1 : (size_t) (slash - path));
}

int config_read(const char *path, struct serve_options *o, struct zw_error *e)
{
	struct policy_errors errors = {0};
	cleanup_free char *text = NULL, *label = xstrdup(path), *dir = folder_of(path);
	const struct source source = {.label = label, .dir = dir};
	struct node *root = NULL;
	size_t size;
	int r = source_read(path, path, &text, &size, &errors);

	if (r == 0)
		r = source_parse(&source, text, size, &root, &errors);
	if (r < 0 || errors.count > 0) {
		node_free(root);
		return first_error(&errors, e);
	}
	for (size_t i = 0; i < root->count && r == 0; i++)
		r = set_member(o, path, &root->members[i], e);
	node_free(root);
	return r;
}
