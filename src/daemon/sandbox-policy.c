#include "daemon/sandbox-policy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "daemon/sandbox-ceiling.h"

enum { TEMPLATE_NAME_MAX = 64, TEMPLATES_MAX = 1000 };

/* A text, or the preset of this name. */
static const struct {
	const char *name, *text, *preset;
} built_in[] = {
    {"base", "version: 1\nname: base\n", NULL},
    {"code-interpreter-v1",
     "version: 1\nname: code-interpreter-v1\n"
     "env: {set: {PYTHONUNBUFFERED: \"1\", PYTHONDONTWRITEBYTECODE: \"1\", MPLBACKEND: Agg}}\n",
     NULL},
    {"offline-tests", NULL, "@offline-tests"},
    {"python", NULL, "@python"},
    {"research", NULL, "@research"},
    {"tutor", NULL, "@tutor"},
};

int sandbox_policies_init(struct sandbox_policies *s, const char *ceiling, const char *operator_policy, const char *folder,
			  struct zw_error *e)
{
	int r = ceiling_read(ceiling, &s->ceiling, e);

	if (r < 0)
		return r;
	s->defaults = ceiling_defaults(&s->ceiling);
	s->operator_policy = operator_policy;
	s->folder = folder;
	return 0;
}

void sandbox_policies_done(struct sandbox_policies *s)
{
	policy_done(&s->ceiling);
	free(s->defaults);
	s->defaults = NULL;
}

int sandbox_policy_copy(const struct sandbox_policy *p, struct sandbox_policy *ret)
{
	*ret = *p;
	ret->text = xstrdup(p->text);
	ret->template = p->template != NULL ? xstrdup(p->template) : NULL;
	ret->root = p->root != NULL ? xstrdup(p->root) : NULL;
	return 0;
}

void sandbox_policy_done(struct sandbox_policy *p)
{
	free(p->text);
	free(p->template);
	free(p->root);
	*p = (struct sandbox_policy){0};
}

/* ---- Templates. ---- */

/* Such a name leads nowhere but into the folder. */
static bool is_template_name(const char *name)
{
	size_t size = strlen(name);

	return size > 0 && size <= TEMPLATE_NAME_MAX && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == size;
}

/* -ENOENT: there is none of this name. */
static int add_template(const struct sandbox_policies *s, struct policy_stack *stack, const char *name,
			struct policy_errors *errors)
{
	cleanup_free char *path = NULL;

	if (s->folder != NULL && is_template_name(name)) {
		path = xasprintf("%s/%s.yaml", s->folder, name);
		if (faccessat(AT_FDCWD, path, F_OK, 0) == 0)
			return policy_stack_add(stack, path, errors);
	}
	for (size_t i = 0; i < ARRAY_SIZE(built_in); i++) {
		if (strcmp(built_in[i].name, name) != 0)
			continue;
		if (built_in[i].preset != NULL)
			return policy_stack_add(stack, built_in[i].preset, errors);
		return policy_stack_add_text(stack, name, built_in[i].text, strlen(built_in[i].text), errors);
	}
	return -ENOENT;
}

bool sandbox_is_template(const struct sandbox_policies *s, const char *name)
{
	cleanup_free char *path = s->folder != NULL && is_template_name(name) ? xasprintf("%s/%s.yaml", s->folder, name) : NULL;

	if (path != NULL && faccessat(AT_FDCWD, path, F_OK, 0) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(built_in); i++)
		if (strcmp(built_in[i].name, name) == 0)
			return true;
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *) a, *(const char *const *) b);
}

static bool is_known(char *const *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

json_t *sandbox_templates(const struct sandbox_policies *s)
{
	char **names = xcalloc(TEMPLATES_MAX + ARRAY_SIZE(built_in), sizeof *names);
	DIR *folder = s->folder != NULL ? opendir(s->folder) : NULL;
	json_t *list = json_array();
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(built_in); i++)
		names[count++] = xstrdup(built_in[i].name);
	for (const struct dirent *d = folder != NULL ? readdir(folder) : NULL; d != NULL && count < TEMPLATES_MAX;
	     d = readdir(folder)) {
		size_t size = strlen(d->d_name);
		cleanup_free char *name =
		    size > 5 && strcmp(d->d_name + size - 5, ".yaml") == 0 ? xstrndup(d->d_name, size - 5) : NULL;

		if (name != NULL && is_template_name(name) && !is_known(names, count, name))
			names[count++] = take_ptr(&name);
	}
	if (folder != NULL)
		(void) closedir(folder);
	qsort(names, count, sizeof *names, by_name);
	for (size_t i = 0; i < count; i++) {
		(void) json_array_append_new(list, json_pack("{ss}", "name", names[i]));
		free(names[i]);
	}
	free(names);
	return list;
}

/* ---- One policy. ---- */

static json_t *text_or_null(const char *text)
{
	return text != NULL ? json_string(text) : json_null();
}

static void tell_errors(const struct policy_errors *errors, struct problem *p)
{
	p->code = PROBLEM_INVALID_POLICY;
	p->errors = json_array();
	for (size_t i = 0; i < errors->count; i++) {
		const struct policy_error *e = &errors->items[i];

		(void) json_array_append_new(p->errors,
					     json_pack("{so ss sn so}", "path", text_or_null(e->key), "message", e->message,
						       "expected", "suggestion", text_or_null(e->suggestion)));
	}
	if (errors->count > 0)
		(void) snprintf(p->message, sizeof p->message, "%s%s%s", errors->items[0].key != NULL ? errors->items[0].key : "",
				errors->items[0].key != NULL ? ": " : "", errors->items[0].message);
	else
		(void) snprintf(p->message, sizeof p->message, "the policy cannot be used");
}

static int add_policy(struct policy_stack *stack, const json_t *policy, struct policy_errors *errors)
{
	cleanup_free char *text = NULL;

	/* Anything else would be a path on the host. */
	if (json_is_string(policy)) {
		if (json_string_value(policy)[0] == '@')
			return policy_stack_add(stack, json_string_value(policy), errors);
		policy_errors_add(errors, NULL, 0, "policy", NULL,
				  "expected an object, or the name of a preset such as \"@python\"");
		return -EINVAL;
	}
	text = json_dumps(policy, JSON_COMPACT);
	if (text == NULL)
		return -EINVAL;
	return policy_stack_add_text(stack, "policy", text, strlen(text), errors);
}

static int add_all(const struct sandbox_policies *s, struct policy_stack *stack, const json_t *policy, const char *template,
		   struct policy_errors *errors)
{
	int r = policy_stack_add_text(stack, "defaults", s->defaults, strlen(s->defaults), errors);

	if (r == 0 && s->own != NULL)
		return policy_stack_add_text(stack, "policy", s->own, strlen(s->own), errors);
	if (r == 0 && template != NULL)
		r = add_template(s, stack, template, errors);
	if (r == 0 && policy != NULL)
		r = add_policy(stack, policy, errors);
	if (r == 0 && policy == NULL && template == NULL && s->operator_policy != NULL)
		r = policy_stack_add(stack, s->operator_policy, errors);
	return r;
}

static int check_ceiling(const struct policy *ceiling, const struct policy *policy, struct problem *p)
{
	json_t *points = ceiling_check(ceiling, policy);
	size_t count = json_array_size(points);

	if (count == 0) {
		json_decref(points);
		return 0;
	}
	p->code = PROBLEM_ABOVE_CEILING;
	p->errors = points;
	p->hint = "ask for no more than what is allowed, or ask the operator for a higher ceiling";
	(void) snprintf(p->message, sizeof p->message, "%s",
			json_string_value(json_object_get(json_array_get(points, 0), "message")));
	return -EINVAL;
}

/* What the stack says, if it may be said. */
static int resolve(const struct sandbox_policies *s, struct policy_stack *stack, const char *template,
		   struct policy_errors *errors, struct sandbox_policy *ret, struct problem *p)
{
	struct policy resolved = {0};
	int r = policy_stack_resolve(stack, &resolved, errors);

	if (r == 0)
		r = s->own == NULL ? check_ceiling(&s->ceiling, &resolved, p) : 0;
	else
		tell_errors(errors, p);
	if (r == 0)
		*ret = (struct sandbox_policy){
		    .text = policy_stack_json(stack),
		    .template = template != NULL ? xstrdup(template) : NULL,
		    .root = strcmp(resolved.root, "host") != 0 ? xstrdup(resolved.root) : NULL,
		    .isolation = resolved.isolation,
		    .time = resolved.limits.time,
		    .cpu_time = resolved.limits.cpu_time,
		    .output = resolved.limits.output,
		    .output_kill = resolved.limits.on_output_limit == OUTPUT_KILL,
		};
	policy_done(&resolved);
	return r;
}

int sandbox_policy_make(const struct sandbox_policies *s, const json_t *policy, const char *template, struct sandbox_policy *ret,
			struct problem *p)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	int r;

	if (json_is_null(policy))
		policy = NULL;
	r = add_all(s, stack, policy, template, &errors);
	if (r == -ENOENT) {
		p->code = PROBLEM_NOT_FOUND;
		(void) snprintf(p->message, sizeof p->message, "there is no template %.64s", template);
	} else if (r == 0) {
		r = resolve(s, stack, template, &errors, ret, p);
	} else {
		tell_errors(&errors, p);
	}
	policy_errors_done(&errors);
	policy_stack_free(stack);
	return r < 0 ? -EINVAL : 0;
}

int sandbox_policy_read(const char *text, struct policy *ret)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	int r = policy_stack_add_text(stack, "policy", text, strlen(text), &errors);

	if (r == 0)
		r = policy_stack_resolve(stack, ret, &errors);
	policy_errors_done(&errors);
	policy_stack_free(stack);
	return r < 0 ? -EINVAL : 0;
}

int sandbox_policy_remake(const struct sandbox_policies *s, const char *text, const json_t *policy, const char *template,
			  struct sandbox_policy *ret, struct problem *p)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	int r = policy_stack_add_text(stack, "policy", text, strlen(text), &errors);

	if (r == 0 && policy != NULL)
		r = add_policy(stack, policy, &errors);
	if (r == 0)
		r = resolve(s, stack, template, &errors, ret, p);
	else
		tell_errors(&errors, p);
	policy_errors_done(&errors);
	policy_stack_free(stack);
	return r < 0 ? -EINVAL : 0;
}
