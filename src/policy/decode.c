#include "policy/decode.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/decode-values.h"
#include "policy/schema.h"
#include "policy/text.h"

enum { KEY_MAX = 64, PATTERN_MAX = 160 };

/* ---- Lists and maps. ---- */

static bool is_list(struct decoder *d, const struct row *row, const struct node *node, const char *key)
{
	cleanup_free char *hint = NULL;

	if (node->type == NODE_LIST)
		return true;
	if ((node->type == NODE_TEXT || node->type == NODE_NUMBER) && strlen(node->text) < 64)
		hint = xasprintf("[%s]", node->text);
	else if (node->type == NODE_EMPTY || node->type == NODE_NULL)
		hint = xstrdup("[]");
	decode_wrong_value(d, row, node, key, hint);
	return false;
}

static void decode_strings(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	struct strv v = {0};
	struct row item = *row;

	if (!is_list(d, row, node, key))
		return;
	item.type = VALUE_TEXT;
	item.nullable = false;
	v.items = xcalloc(node->count + 1, sizeof *v.items);
	for (size_t i = 0; i < node->count; i++) {
		cleanup_free char *item_key = xasprintf("%s[%zu]", key, i);
		char *text = decode_checked_text(d, &item, node->members[i].value, item_key);

		if (text != NULL)
			v.items[v.count++] = text;
	}
	decode_put(base, row, &v);
}

static void decode_ports(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	struct port_range *ports;
	size_t count = 0;

	if (!is_list(d, row, node, key))
		return;
	ports = xcalloc(node->count + 1, sizeof *ports);
	for (size_t i = 0; i < node->count; i++) {
		const struct node *item = node->members[i].value;
		cleanup_free char *item_key = xasprintf("%s[%zu]", key, i), *got = NULL;

		if ((item->type == NODE_NUMBER || item->type == NODE_TEXT) &&
		    syntax_port_range(item->text, &ports[count].first, &ports[count].last)) {
			count++;
			continue;
		}
		got = node_describe(item);
		decode_error(d, item, item_key, NULL, "expected a port from 1 to 65535 or a range such as \"8000-8010\", got %s",
			     got);
	}
	decode_put(base, row, &ports);
	memcpy(base + row->count, &count, sizeof count);
}

static void set_defaults(const char *prefix, char *base);
static void decode_struct(struct decoder *d, const char *prefix, const struct node *map, char *base, const char *key,
			  bool short_form);

/* A map, or its short form, into one struct. */
static void decode_record(struct decoder *d, const struct row *row, const char *prefix, const struct node *node, char *record,
			  const char *key)
{
	bool scalar = node->type != NODE_MAP && node->type != NODE_LIST && node->type != NODE_BAD;
	struct node *expanded = NULL;
	struct fault f = {0};

	if (scalar && row->expand != NULL) {
		expanded = row->expand(node, &f);
		if (expanded == NULL) {
			decode_wrong_syntax(d, node, key, &f);
			return;
		}
	} else if (node->type != NODE_MAP || row->scalar_only) {
		cleanup_free char *got = node_describe(node);

		if (node->type != NODE_BAD)
			decode_error(d, node, key, NULL, "expected a %s, got %s", row->scalar_only ? "text" : "map", got);
		return;
	}
	decode_struct(d, prefix, expanded != NULL ? expanded : node, record, key, expanded != NULL);
	if (row->finish != NULL)
		row->finish(d, record, expanded != NULL ? expanded : node, key);
	node_free(expanded);
}

static void decode_records(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	cleanup_free char *prefix = xasprintf("%s[]", row->key);
	char *records;

	if (!is_list(d, row, node, key))
		return;
	records = xcalloc(node->count + 1, row->element);
	for (size_t i = 0; i < node->count; i++) {
		cleanup_free char *item_key = xasprintf("%s[%zu]", key, i);

		set_defaults(prefix, records + i * row->element);
		decode_record(d, row, prefix, node->members[i].value, records + i * row->element, item_key);
	}
	decode_put(base, row, &records);
	memcpy(base + row->count, &node->count, sizeof node->count);
}

/* Names that differ as they are written may be the same: Example.org and example.org. */
static bool is_taken(const char *records, size_t element, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(*(char *const *) (records + i * element), name) == 0)
			return true;
	return false;
}

static void decode_named(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	cleanup_free char *prefix = xasprintf("%s.*", row->key);
	char *records;

	if (node->type == NODE_EMPTY)
		return;
	if (node->type != NODE_MAP) {
		decode_wrong_value(d, row, node, key, NULL);
		return;
	}
	records = xcalloc(node->count + 1, row->element);
	for (size_t i = 0; i < node->count; i++) {
		const struct node_member *m = &node->members[i];
		cleanup_free char *shown = text_escape(m->key, KEY_MAX), *item_key = xasprintf("%s.%s", key, shown);
		char *record = records + i * row->element, *name = xstrdup(m->key);
		struct node at = {.type = NODE_TEXT, .text = m->key, .line = m->key_line, .source = m->value->source};
		struct fault f = {0};

		if (!row->check(&name, &f))
			decode_wrong_syntax(d, &at, item_key, &f);
		else if (is_taken(records, row->element, i, name))
			decode_error(d, &at, item_key, NULL, "the name %s is there twice", name);
		*(char **) record = name;
		set_defaults(prefix, record);
		decode_record(d, row, prefix, m->value, record, item_key);
	}
	decode_put(base, row, &records);
	memcpy(base + row->count, &node->count, sizeof node->count);
}

/* ---- One key. ---- */

static void decode_value(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	if (row->present > 0)
		*(bool *) (base + row->present) = true;
	if (decode_scalar(d, row, node, base, key))
		return;
	if (row->type == VALUE_STRINGS)
		decode_strings(d, row, node, base, key);
	else if (row->type == VALUE_PORTS)
		decode_ports(d, row, node, base, key);
	else if (row->type == VALUE_RECORDS)
		decode_records(d, row, node, base, key);
	else if (row->type == VALUE_NAMED)
		decode_named(d, row, node, base, key);
}

static void decode_section(struct decoder *d, const char *pattern, const struct node *node, char *base, const char *key)
{
	static const struct row plain = {.type = VALUE_SECTION};
	const struct row *row = schema_find(pattern);

	if (node->type == NODE_EMPTY || node->type == NODE_BAD)
		return; /* "limits:" with everything below it commented out */
	if (row != NULL && row->present > 0)
		*(bool *) (base + row->present) = true;
	if (node->type == NODE_MAP)
		decode_struct(d, pattern, node, base, key, false);
	else if (row != NULL && row->expand != NULL && node->type != NODE_LIST && node->type != NODE_NULL)
		decode_record(d, row, pattern, node, base, key);
	else
		decode_wrong_value(d, row != NULL ? row : &plain, node, key, NULL);
}

static void set_defaults(const char *prefix, char *base)
{
	struct policy_errors none = {0};
	struct decoder d = {.errors = &none};
	size_t count;
	const struct row *rows = schema_rows(&count);

	for (size_t i = 0; i < count; i++) {
		struct node node = {.text = (char *) (uintptr_t) rows[i].def};

		if (rows[i].def == NULL || !schema_belongs(&rows[i], prefix))
			continue;
		node.type = node_plain_type(rows[i].def);
		decode_value(&d, &rows[i], &node, base, rows[i].key);
	}
	policy_errors_done(&none); /* the unit tests see to it that there are none */
}

/* ---- The keys of a map. ---- */

struct known_keys {
	struct nearest nearest;
	char word[KEY_MAX + 1], best[KEY_MAX + 1];
	char list[320];
};

static void collect_key(void *ctx, const char *name, size_t size)
{
	struct known_keys *k = ctx;
	char word[KEY_MAX + 1];
	size_t used = strlen(k->list), before = k->nearest.distance;
	bool had = k->nearest.best != NULL;

	if (size > KEY_MAX)
		return;
	(void) snprintf(word, sizeof word, "%.*s", (int) size, name);
	/* Members of a section come one after the other, so that looking at the end of the list finds repetitions. */
	if (used < size || strcmp(k->list + used - size, word) != 0 || (used > size && k->list[used - size - 1] != ' '))
		(void) snprintf(k->list + used, sizeof k->list - used, "%s%s", used > 0 ? ", " : "", word);
	nearest_try(&k->nearest, word);
	if (k->nearest.best == word) {
		if (!had || k->nearest.distance < before)
			(void) snprintf(k->best, sizeof k->best, "%s", word);
		k->nearest.best = k->best;
	}
}

static void unknown_key(struct decoder *d, const char *prefix, const struct node_member *m, const char *key)
{
	struct node at = {.line = m->key_line, .source = m->value->source};
	struct known_keys k = {0};
	const char *hint;

	(void) snprintf(k.word, sizeof k.word, "%s", m->key);
	k.nearest = nearest_to(k.word);
	if (strlen(m->key) <= KEY_MAX)
		schema_each_key(prefix, collect_key, &k);
	hint = k.nearest.best != NULL ? k.nearest.best : schema_key_ending(k.word);
	if (hint != NULL || k.list[0] == '\0')
		decode_error(d, &at, key, hint, "unknown key");
	else
		decode_error(d, &at, key, NULL, "unknown key; expected one of %s", k.list);
}

static void check_required(struct decoder *d, const char *prefix, const struct node *map, const char *key)
{
	size_t count, size = strlen(prefix);
	const struct row *rows = schema_rows(&count);

	for (size_t i = 0; i < count && size > 0; i++) {
		const char *name = rows[i].key + size + 1;

		if (rows[i].required && schema_belongs(&rows[i], prefix) && strchr(name, '.') == NULL &&
		    node_get(map, name) == NULL)
			decode_error(d, map, key, NULL, "%s is missing: %s", name,
				     rows[i].help != NULL ? rows[i].help : decode_expected(&rows[i]));
	}
}

static void decode_member(struct decoder *d, const char *prefix, const struct node_member *m, char *base, const char *key,
			  bool short_form)
{
	const char *dot = *prefix != '\0' ? "." : "", *key_dot = *key != '\0' ? "." : "";
	cleanup_free char *shown = text_escape(m->key, KEY_MAX);
	cleanup_free char *full = short_form ? xstrdup(key) : xasprintf("%s%s%s", key, key_dot, shown);
	char pattern[PATTERN_MAX];
	const struct row *row;

	/* A key with a dot, bracket or star is never one of ours, however it would read as a pattern. */
	if (strlen(m->key) > KEY_MAX || strpbrk(m->key, ".[*") != NULL || *m->key == '\0') {
		unknown_key(d, prefix, m, full);
		return;
	}
	(void) snprintf(pattern, sizeof pattern, "%s%s%s", prefix, dot, m->key);
	row = schema_find(pattern);
	if (row != NULL && row->type != VALUE_SECTION)
		decode_value(d, row, m->value, base, full);
	else if (schema_is_section(pattern))
		decode_section(d, pattern, m->value, base, full);
	else
		unknown_key(d, prefix, m, full);
}

static void decode_struct(struct decoder *d, const char *prefix, const struct node *map, char *base, const char *key,
			  bool short_form)
{
	for (size_t i = 0; i < map->count; i++)
		decode_member(d, prefix, &map->members[i], base, key, short_form);
	check_required(d, prefix, map, key);
}

void decode_policy(const struct node *root, struct policy *ret, struct policy_errors *errors)
{
	static const struct row plain = {.type = VALUE_SECTION};
	struct decoder d = {.errors = errors};

	*ret = (struct policy){0};
	set_defaults("", (char *) ret);
	if (root->type == NODE_MAP)
		decode_struct(&d, "", root, (char *) ret, "", false);
	else
		decode_wrong_value(&d, &plain, root, NULL, NULL);
}
