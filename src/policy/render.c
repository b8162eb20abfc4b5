/* A tree written down as JSON again, for a reader elsewhere: paths of the host are made absolute by the folder of their source,
 * and short forms that hold one are written in full. */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "policy/node.h"
#include "policy/schema.h"

static json_t *render(const struct node *n, const char *pattern);

static json_t *render_text(const struct node *n, const struct row *row)
{
	const char *dir = n->source != NULL ? n->source->dir : NULL;
	cleanup_free char *joined = NULL;
	bool path = row != NULL && (row->type == VALUE_PATH || (row->type == VALUE_ROOT && n->text[0] == '.'));

	if (!path || n->text[0] == '/' || dir == NULL)
		return json_string(n->text);
	joined = xasprintf("%s/%s", dir, n->text);
	return json_string(joined);
}

static json_t *render_map(const struct node *n, const char *pattern)
{
	const struct row *row = schema_find(pattern);
	json_t *map = json_object();

	for (size_t i = 0; i < n->count; i++) {
		const char *key = n->members[i].key;
		cleanup_free char *below = *pattern == '\0'                          ? xstrdup(key)
					   : row != NULL && row->type == VALUE_NAMED ? xasprintf("%s.*", pattern)
										     : xasprintf("%s.%s", pattern, key);
		json_t *value = render(n->members[i].value, below);

		if (value != NULL)
			(void) json_object_set_new(map, key, value);
	}
	return map;
}

static json_t *render_list(const struct node *n, const char *pattern)
{
	cleanup_free char *below = xasprintf("%s[]", pattern);
	const struct row *row = schema_find(pattern);
	json_t *list = json_array();

	for (size_t i = 0; i < n->count; i++) {
		const struct node *item = n->members[i].value;
		struct fault f = {0};
		struct node *full = NULL;

		if (row != NULL && row->expand != NULL && item->type == NODE_TEXT)
			full = row->expand(item, &f);
		(void) json_array_append_new(list, render(full != NULL ? full : item, below));
		node_free(full);
	}
	return list;
}

/* NULL: nothing stands there. */
static json_t *render(const struct node *n, const char *pattern)
{
	const struct row *row = schema_find(pattern);
	struct fault f = {0};
	struct node *full;
	json_t *value;

	switch (n->type) {
	case NODE_NULL:
		return json_null();
	case NODE_BOOL:
		return json_boolean(strcmp(n->text, "true") == 0);
	case NODE_NUMBER:
		value = json_loads(n->text, JSON_DECODE_ANY, NULL);
		return value != NULL ? value : json_string(n->text);
	case NODE_TEXT:
		full = row != NULL && row->type == VALUE_SECTION && row->expand != NULL ? row->expand(n, &f) : NULL;
		value = full != NULL ? render_map(full, pattern) : render_text(n, row);
		node_free(full);
		return value;
	case NODE_LIST:
		return render_list(n, pattern);
	case NODE_MAP:
		return render_map(n, pattern);
	case NODE_EMPTY:
	case NODE_BAD:
		break;
	}
	return NULL;
}

char *node_to_json(const struct node *root)
{
	json_t *document = render(root, "");
	char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9));

	json_decref(document);
	return text;
}
