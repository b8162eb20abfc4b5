/* The stack of documents and flags that a policy is made of. Each document is decoded alone when it comes (so that a fault is
 * told although a later document covers it), and all of them merged at the end. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "policy/decode.h"
#include "policy/schema.h"
#include "policy/source.h"
#include "policy/text.h"

/* Of the name of a file in messages; it may hold any byte. */
enum { LABEL_MAX = 4096 };

struct policy_stack {
	struct node **documents; /* lowest first */
	size_t document_count;
	struct node *flags;      /* one map; on top of all documents */
	struct node *resolved;   /* all of them merged; NULL before */
	struct source **sources; /* of all trees */
	size_t source_count;
	char *cwd; /* NULL when it is gone or out of reach */
	bool stdin_used;
};

struct policy_stack *policy_stack_new(void)
{
	struct policy_stack *s = xcalloc(1, sizeof *s);

	s->cwd = getcwd(NULL, 0);
	/* "(unreachable)/..." is what the kernel says of a folder outside of our root. */
	if (s->cwd != NULL && s->cwd[0] != '/') {
		free(s->cwd);
		s->cwd = NULL;
	}
	s->flags = node_new(NODE_MAP, NULL, 0, NULL);
	return s;
}

void policy_stack_free(struct policy_stack *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->document_count; i++)
		node_free(s->documents[i]);
	for (size_t i = 0; i < s->source_count; i++) {
		free(s->sources[i]->label);
		free(s->sources[i]->dir);
		free(s->sources[i]);
	}
	node_free(s->flags);
	if (s->resolved != NULL)
		node_free(s->resolved);
	free(s->documents);
	free(s->sources);
	free(s->cwd);
	free(s);
}

/* Takes over both strings; `dir` may be NULL. */
static const struct source *add_source(struct policy_stack *s, char *label, char *dir)
{
	struct source *source = xcalloc(1, sizeof *source);

	*source = (struct source){.label = label, .dir = dir};
	s->sources = xrealloc(s->sources, s->source_count + 1, sizeof *s->sources);
	s->sources[s->source_count++] = source;
	return source;
}

static char *copy(const char *text)
{
	return text != NULL ? xstrdup(text) : NULL;
}

/* The folder of a file, absolute. */
static char *folder_of(const struct policy_stack *s, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t size = slash != NULL ? (size_t) (slash - path) : 0;

	if (path[0] == '/')
		return size == 0 ? xstrdup("/") : xstrndup(path, size);
	if (s->cwd == NULL)
		return NULL;
	return size == 0 ? xstrdup(s->cwd) : xasprintf("%s/%.*s", s->cwd, (int) size, path);
}

static int add_document(struct policy_stack *s, const struct source *source, const char *text, size_t size,
			struct policy_errors *errors)
{
	struct node *root;
	struct policy alone;
	int r = source_parse(source, text, size, &root, errors);

	if (r < 0)
		return -EINVAL;
	decode_policy(root, &alone, errors);
	policy_done(&alone);
	if (root->type != NODE_MAP) {
		node_free(root);
		return -EINVAL;
	}
	s->documents = xrealloc(s->documents, s->document_count + 1, sizeof *s->documents);
	s->documents[s->document_count++] = root;
	return 0;
}

static int add_preset(struct policy_stack *s, const char *name, struct policy_errors *errors)
{
	size_t count;
	const struct policy_preset *presets = policy_presets(&count);
	struct nearest n = nearest_to(name);
	cleanup_free char *shown = NULL;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(presets[i].name, name) == 0)
			return add_document(s, add_source(s, xstrdup(name), copy(s->cwd)), presets[i].text,
					    strlen(presets[i].text), errors);
		nearest_try(&n, presets[i].name);
	}
	shown = text_escape(name, 64);
	policy_errors_add(errors, shown, 0, NULL, n.best,
			  "there is no built-in policy of this name (zwinger policy presets lists them)");
	return -EINVAL;
}

int policy_stack_add(struct policy_stack *s, const char *ref, struct policy_errors *errors)
{
	cleanup_free char *text = NULL, *label = text_escape(ref, LABEL_MAX);
	bool is_stdin = strcmp(ref, "-") == 0;
	size_t size;

	if (ref[0] == '@')
		return add_preset(s, ref, errors);
	if (is_stdin && s->stdin_used) {
		policy_errors_add(errors, ref, 0, NULL, NULL, "standard input can be read once only");
		return -EINVAL;
	}
	s->stdin_used = s->stdin_used || is_stdin;
	if (source_read(ref, label, &text, &size, errors) < 0)
		return -EINVAL;
	return add_document(s, add_source(s, take_ptr(&label), is_stdin ? copy(s->cwd) : folder_of(s, ref)), text, size, errors);
}

int policy_stack_add_text(struct policy_stack *s, const char *label, const char *text, size_t size, struct policy_errors *errors)
{
	cleanup_free char *terminated = NULL;

	/* The parsers rely on a NUL behind the text; what is too long is not copied first. */
	if (size <= SOURCE_SIZE_MAX) {
		terminated = xcalloc(size + 1, 1);
		memcpy(terminated, text, size);
	}
	return add_document(s, add_source(s, text_escape(label, LABEL_MAX), copy(s->cwd)), terminated != NULL ? terminated : text,
			    size, errors);
}

/* ---- Flags. ---- */

static bool is_list_type(enum value_type type)
{
	return type == VALUE_STRINGS || type == VALUE_RECORDS || type == VALUE_PORTS;
}

/* Words of YAML have no meaning where any text is wanted: --hostname null is a host of that name. */
static enum node_type flag_type(const struct row *row, const char *value)
{
	if (row->type == VALUE_TEXT || row->type == VALUE_PATH || row->type == VALUE_ROOT || row->type == VALUE_SECTION)
		return NODE_TEXT;
	return node_plain_type(value);
}

static bool apply_flag(struct node *flags, const struct row *row, const char *value, const struct source *source, struct fault *f)
{
	struct node *list;

	if (row->apply != NULL)
		return row->apply(flags, row, value, source, f);
	if (!is_list_type(row->type)) {
		node_put(flags, row->key, node_new(flag_type(row, value), value, 0, source));
		return true;
	}
	list = node_find(flags, row->key);
	if (list == NULL) {
		list = node_new(NODE_LIST, NULL, 0, source);
		node_put(flags, row->key, list);
	}
	node_add(list, NULL, 0, node_new(NODE_TEXT, value, 0, source));
	return true;
}

/* What the flag says alone, as a policy: are there faults in it? */
static bool flag_is_valid(const struct row *row, const char *value, const struct source *source, struct policy_errors *errors)
{
	struct node *alone = node_new(NODE_MAP, NULL, 0, source);
	struct fault f = {0};
	size_t before = errors->count;
	struct policy policy;

	if (apply_flag(alone, row, value, source, &f)) {
		decode_policy(alone, &policy, errors);
		policy_done(&policy);
	} else {
		cleanup_free char *got = text_quote(value);

		policy_errors_add(errors, source->label, 0, row->key, f.suggestion[0] != '\0' ? f.suggestion : NULL, "%s, got %s",
				  f.message, got);
	}
	node_free(alone);
	return errors->count == before;
}

int policy_stack_add_flag(struct policy_stack *s, const char *flag, const char *value, struct policy_errors *errors)
{
	const struct row *row = schema_flag(flag);
	const struct source *source;
	struct fault f = {0};
	size_t offset;

	if (row == NULL)
		return -ENOENT;
	source = add_source(s, xasprintf("flag %s", flag), copy(s->cwd));
	if ((row->value != NULL) != (value != NULL)) {
		policy_errors_add(errors, source->label, 0, row->key, NULL,
				  row->value != NULL ? "expected a value: %s %s" : "takes no value", flag, row->value);
		return -EINVAL;
	}
	if (value == NULL)
		value = row->flag_value;
	if (!text_is_utf8(value, strlen(value), &offset) && row->type != VALUE_NAMED) {
		policy_errors_add(errors, source->label, 0, row->key, NULL, "expected UTF-8 text");
		return -EINVAL;
	}
	if (!flag_is_valid(row, value, source, errors))
		return -EINVAL;
	return apply_flag(s->flags, row, value, source, &f) ? 0 : -EINVAL;
}

/* ---- The whole. ---- */

int policy_stack_resolve(struct policy_stack *s, struct policy *ret, struct policy_errors *errors)
{
	struct node *root = node_new(NODE_MAP, NULL, 0, NULL);
	struct policy policy;

	for (size_t i = 0; i <= s->document_count; i++) {
		struct node *merged = node_merge(root, i < s->document_count ? s->documents[i] : s->flags);

		node_free(root);
		root = merged;
	}
	decode_policy(root, &policy, errors);
	validate_policy(root, &policy, errors);
	if (s->resolved != NULL)
		node_free(s->resolved);
	s->resolved = root;
	if (errors->count > 0) {
		policy_done(&policy);
		return -EINVAL;
	}
	*ret = policy;
	return 0;
}

char *policy_stack_json(const struct policy_stack *s)
{
	return s->resolved != NULL ? node_to_json(s->resolved) : NULL;
}

/* One step of a key: "read" or "[1]" of "filesystem.read[1].source". NULL when the node has no such member. */
static const struct node *step_down(const struct node *n, const char **key)
{
	size_t size = strcspn(*key + 1, ".[") + 1;
	cleanup_free char *name = NULL;

	if (**key == '[') {
		char *end;
		unsigned long index = strtoul(*key + 1, &end, 10);

		*key = *end == ']' ? end + 1 : end;
		return n->type == NODE_LIST && index < n->count ? n->members[index].value : NULL;
	}
	if (**key == '.') {
		(*key)++;
		size--;
	}
	name = xstrndup(*key, size);
	*key += size;
	return node_get(n, name);
}

static const struct node *nearest_node(const struct node *root, const char *key)
{
	const struct node *n = root;

	while (*key != '\0') {
		const struct node *next = step_down(n, &key);

		if (next == NULL)
			break;
		n = next;
	}
	return n != root ? n : NULL;
}

void policy_stack_locate(const struct policy_stack *s, struct policy_errors *errors)
{
	for (size_t i = 0; s->resolved != NULL && i < errors->count; i++) {
		struct policy_error *e = &errors->items[i];
		const struct node *n = e->file == NULL && e->key != NULL ? nearest_node(s->resolved, e->key) : NULL;

		if (n == NULL || n->source == NULL)
			continue;
		e->file = xstrdup(n->source->label);
		e->line = n->line;
	}
}
