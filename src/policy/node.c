#include "policy/node.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "policy/text.h"

struct node *node_new(enum node_type type, const char *text, unsigned line, const struct source *source)
{
	struct node *n = xcalloc(1, sizeof *n);

	*n = (struct node){.type = type, .line = line, .source = source, .text = text != NULL ? xstrdup(text) : NULL};
	return n;
}

void node_free(struct node *n)
{
	if (n == NULL)
		return;
	for (size_t i = 0; i < n->count; i++) {
		free(n->members[i].key);
		node_free(n->members[i].value);
	}
	free(n->members);
	free(n->text);
	free(n);
}

struct node *node_clone(const struct node *n)
{
	struct node *c = node_new(n->type, n->text, n->line, n->source);

	for (size_t i = 0; i < n->count; i++)
		node_add(c, n->members[i].key, n->members[i].key_line, node_clone(n->members[i].value));
	return c;
}

static const char *skip_digits(const char *p)
{
	while (*p >= '0' && *p <= '9')
		p++;
	return p;
}

/* A number of JSON (RFC 8259). YAML knows more spellings (0x1f, 0o17, .5, 1_000); they are text here, and an error where a number
 * is wanted. */
static bool is_number(const char *p)
{
	const char *end;

	if (*p == '-')
		p++;
	end = skip_digits(p);
	if (end == p || (*p == '0' && end != p + 1))
		return false;
	if (*end == '.') {
		p = end + 1;
		end = skip_digits(p);
		if (end == p)
			return false;
	}
	if (*end == 'e' || *end == 'E') {
		p = end + 1;
		if (*p == '+' || *p == '-')
			p++;
		end = skip_digits(p);
		if (end == p)
			return false;
	}
	return *end == '\0';
}

enum node_type node_plain_type(const char *text)
{
	if (*text == '\0')
		return NODE_EMPTY;
	if (strcmp(text, "null") == 0)
		return NODE_NULL;
	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
		return NODE_BOOL;
	return is_number(text) ? NODE_NUMBER : NODE_TEXT;
}

void node_add(struct node *n, const char *key, unsigned key_line, struct node *value)
{
	/* Room doubles: the count is a power of two exactly when the room is used up. */
	if ((n->count & (n->count - 1)) == 0)
		n->members = xrealloc(n->members, n->count == 0 ? 1 : n->count * 2, sizeof *n->members);
	n->members[n->count++] =
	    (struct node_member){.key = key != NULL ? xstrdup(key) : NULL, .key_line = key_line, .value = value};
}

static struct node_member *member_of(const struct node *n, const char *key, size_t size)
{
	if (n == NULL || n->type != NODE_MAP)
		return NULL;
	for (size_t i = 0; i < n->count; i++)
		if (strncmp(n->members[i].key, key, size) == 0 && n->members[i].key[size] == '\0')
			return &n->members[i];
	return NULL;
}

struct node *node_get(const struct node *n, const char *key)
{
	struct node_member *m = member_of(n, key, strlen(key));

	return m != NULL ? m->value : NULL;
}

struct node *node_find(const struct node *root, const char *path)
{
	const struct node *n = root;

	for (;;) {
		size_t size = strcspn(path, ".");
		struct node_member *m = member_of(n, path, size);

		if (m == NULL)
			return NULL;
		if (path[size] == '\0')
			return m->value;
		n = m->value;
		path += size + 1;
	}
}

void node_put(struct node *root, const char *path, struct node *value)
{
	struct node *n = root;

	for (;;) {
		size_t size = strcspn(path, ".");
		bool last = path[size] == '\0';
		struct node_member *m = member_of(n, path, size);

		if (m == NULL) {
			cleanup_free char *key = xstrndup(path, size);

			node_add(n, key, 0, node_new(NODE_MAP, NULL, 0, n->source));
			m = &n->members[n->count - 1];
		}
		if (last || m->value->type != NODE_MAP) {
			node_free(m->value);
			m->value = last ? value : node_new(NODE_MAP, NULL, 0, n->source);
		}
		if (last)
			return;
		n = m->value;
		path += size + 1;
	}
}

static struct node *merge(const struct node *base, const struct node *over, bool whole_members)
{
	struct node *n;

	if (base->type == NODE_MAP && over->type == NODE_EMPTY)
		return node_clone(base); /* "limits:" with nothing behind says nothing */
	if (base->type != NODE_MAP || over->type != NODE_MAP)
		return node_clone(over);
	n = node_clone(base);
	for (size_t i = 0; i < over->count; i++) {
		const struct node_member *o = &over->members[i];
		struct node_member *m = member_of(n, o->key, strlen(o->key));
		struct node *merged;

		if (m == NULL) {
			node_add(n, o->key, o->key_line, node_clone(o->value));
			continue;
		}
		merged = whole_members ? node_clone(o->value) : merge(m->value, o->value, strcmp(o->key, "secrets") == 0);
		node_free(m->value);
		m->value = merged;
		m->key_line = o->key_line;
	}
	return n;
}

struct node *node_merge(const struct node *base, const struct node *over)
{
	return merge(base, over, false);
}

char *node_describe(const struct node *n)
{
	switch (n->type) {
	case NODE_NULL:
		return xstrdup("null");
	case NODE_EMPTY:
	case NODE_BAD:
		return xstrdup("nothing");
	case NODE_BOOL:
		return xstrdup(n->text);
	case NODE_NUMBER:
		return text_escape(n->text, 40);
	case NODE_TEXT:
		return text_quote(n->text);
	case NODE_LIST:
		return xstrdup("a list");
	case NODE_MAP:
		return xstrdup("a map");
	}
	return xstrdup("something else");
}
