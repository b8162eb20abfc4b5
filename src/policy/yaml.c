/* YAML, by libyaml's events, cut down to what a policy needs: one document of maps, lists and scalars. Anchors, aliases and tags
 * are refused, so that a document can neither grow while it is read nor name a type; the three words null, true and false are the
 * only ones with a meaning of their own. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#include "base/mem.h"
#include "policy/source.h"
#include "policy/text.h"

struct loader {
	yaml_parser_t parser;
	const struct source *source;
	struct policy_errors *errors;
	const char *text;
	size_t size, nodes;
};

static unsigned line_of(yaml_mark_t mark)
{
	return (unsigned) mark.line + 1;
}

static void complain(struct loader *l, unsigned line, const char *message)
{
	policy_errors_add(l->errors, l->source->label, line, NULL, NULL, "%s", message);
}

/* Two slips that everybody makes once: values that start with * or @ need quotes in YAML. */
static const char *syntax_hint(const struct loader *l)
{
	size_t at = l->parser.problem_mark.index;

	if (l->parser.context != NULL && strstr(l->parser.context, "alias") != NULL)
		return "; a value that starts with * or & must be in quotes";
	if (l->parser.problem != NULL && strstr(l->parser.problem, "cannot start any token") != NULL) {
		if (at < l->size && l->text[at] == '\t')
			return "; YAML is indented with spaces, not tabs";
		return "; a value that starts with @, ` or % must be in quotes";
	}
	return "";
}

static int syntax_error(struct loader *l)
{
	const char *problem = l->parser.problem != NULL ? l->parser.problem : "unreadable text";
	bool reader = l->parser.error == YAML_READER_ERROR;

	policy_errors_add(l->errors, l->source->label, reader ? 0 : line_of(l->parser.problem_mark), NULL, NULL,
			  "not YAML: %s%s%s%s", l->parser.context != NULL ? l->parser.context : "",
			  l->parser.context != NULL ? ", " : "", problem, syntax_hint(l));
	return -EINVAL;
}

static int next_event(struct loader *l, yaml_event_t *ret)
{
	return yaml_parser_parse(&l->parser, ret) ? 0 : syntax_error(l);
}

/* Tags and anchors leave the value readable: reported, and the rest goes on. */
static void refuse_extras(struct loader *l, unsigned line, const yaml_char_t *tag, const yaml_char_t *anchor)
{
	if (tag != NULL) {
		cleanup_free char *name = text_quote((const char *) tag);

		policy_errors_add(l->errors, l->source->label, line, NULL, NULL, "tags are not part of a policy, got %s", name);
	}
	if (anchor != NULL)
		complain(l, line, "anchors (&name) and aliases (*name) are not part of a policy; write the value out");
}

static int load_value(struct loader *l, yaml_event_t *event, unsigned depth, struct node **ret);

static int load_sequence(struct loader *l, unsigned line, unsigned depth, struct node **ret)
{
	struct node *list = node_new(NODE_LIST, NULL, line, l->source);

	for (;;) {
		yaml_event_t event;
		struct node *item;
		int r = next_event(l, &event);

		if (r == 0 && event.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&event);
			*ret = list;
			return 0;
		}
		if (r == 0)
			r = load_value(l, &event, depth, &item);
		if (r < 0) {
			node_free(list);
			return r;
		}
		node_add(list, NULL, 0, item);
	}
}

/* The key's text, or NULL when it cannot be one (reported). */
static const char *key_text(struct loader *l, const struct node *key)
{
	cleanup_free char *got = NULL;

	if (key->type == NODE_TEXT)
		return key->text;
	got = node_describe(key);
	policy_errors_add(l->errors, l->source->label, key->line, NULL, NULL, "expected a text as key, got %s%s", got,
			  key->type == NODE_LIST || key->type == NODE_MAP ? "" : "; put it in quotes");
	return NULL;
}

static void add_member(struct loader *l, struct node *map, struct node *key, struct node *value)
{
	const char *text = key_text(l, key);
	cleanup_free char *shown = NULL;

	if (text != NULL && node_get(map, text) == NULL) {
		node_add(map, text, key->line, value);
		return;
	}
	if (text != NULL) {
		shown = text_quote(text);
		policy_errors_add(l->errors, l->source->label, key->line, NULL, NULL, "the key %s is there twice in one map",
				  shown);
	}
	node_free(value);
}

/* Reads key and value; 1 at the end of the map. */
static int load_member(struct loader *l, struct node *map, unsigned depth)
{
	yaml_event_t event;
	struct node *key, *value;
	int r = next_event(l, &event);

	if (r < 0)
		return r;
	if (event.type == YAML_MAPPING_END_EVENT) {
		yaml_event_delete(&event);
		return 1;
	}
	r = load_value(l, &event, depth, &key);
	if (r < 0)
		return r;
	r = next_event(l, &event);
	if (r == 0)
		r = load_value(l, &event, depth, &value);
	if (r == 0)
		add_member(l, map, key, value);
	node_free(key);
	return r;
}

static int load_mapping(struct loader *l, unsigned line, unsigned depth, struct node **ret)
{
	struct node *map = node_new(NODE_MAP, NULL, line, l->source);

	for (;;) {
		int r = load_member(l, map, depth);

		if (r < 0) {
			node_free(map);
			return r;
		}
		if (r > 0) {
			*ret = map;
			return 0;
		}
	}
}

static struct node *load_scalar(struct loader *l, const yaml_event_t *event, unsigned line)
{
	const char *text = (const char *) event->data.scalar.value;
	bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

	/* A NUL in a quoted scalar ("\0") would end the text early and hide what follows. */
	if (strlen(text) != event->data.scalar.length) {
		complain(l, line, "a NUL character is not part of a policy");
		return node_new(NODE_BAD, NULL, line, l->source);
	}
	return node_new(plain ? node_plain_type(text) : NODE_TEXT, text, line, l->source);
}

/* Takes over the event. */
static int load_value(struct loader *l, yaml_event_t *event, unsigned depth, struct node **ret)
{
	unsigned line = line_of(event->start_mark);
	yaml_event_type_t type = event->type;

	if (type == YAML_SCALAR_EVENT) {
		refuse_extras(l, line, event->data.scalar.tag, event->data.scalar.anchor);
		*ret = load_scalar(l, event, line);
	} else if (type == YAML_ALIAS_EVENT) {
		refuse_extras(l, line, NULL, event->data.alias.anchor);
		*ret = node_new(NODE_BAD, NULL, line, l->source);
	} else if (type == YAML_SEQUENCE_START_EVENT) {
		refuse_extras(l, line, event->data.sequence_start.tag, event->data.sequence_start.anchor);
	} else if (type == YAML_MAPPING_START_EVENT) {
		refuse_extras(l, line, event->data.mapping_start.tag, event->data.mapping_start.anchor);
	}
	yaml_event_delete(event);
	if (++l->nodes > 2 * NODE_COUNT_MAX) {
		complain(l, line, "the document has too many values");
		if (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT)
			node_free(*ret);
		return -EINVAL;
	}
	if (type != YAML_SEQUENCE_START_EVENT && type != YAML_MAPPING_START_EVENT)
		return 0;
	if (depth >= NODE_DEPTH_MAX) {
		complain(l, line, "the document is nested too deeply");
		return -EINVAL;
	}
	return type == YAML_SEQUENCE_START_EVENT ? load_sequence(l, line, depth + 1, ret) : load_mapping(l, line, depth + 1, ret);
}

/* Skips the events that open the stream; *ret_empty when there is no document in it. */
static int find_document(struct loader *l, bool *ret_empty)
{
	for (;;) {
		yaml_event_t event;
		yaml_event_type_t type;
		int r = next_event(l, &event);

		if (r < 0)
			return r;
		type = event.type;
		yaml_event_delete(&event);
		if (type == YAML_STREAM_START_EVENT)
			continue;
		*ret_empty = type != YAML_DOCUMENT_START_EVENT;
		return 0;
	}
}

/* Behind the document nothing may follow. */
static int expect_end(struct loader *l)
{
	for (;;) {
		yaml_event_t event;
		yaml_event_type_t type;
		unsigned line;
		int r = next_event(l, &event);

		if (r < 0)
			return r;
		type = event.type;
		line = line_of(event.start_mark);
		yaml_event_delete(&event);
		if (type == YAML_STREAM_END_EVENT)
			return 0;
		if (type == YAML_DOCUMENT_START_EVENT) {
			complain(l, line, "a second document starts here; a policy is one document");
			return -EINVAL;
		}
	}
}

static int load_document(struct loader *l, struct node **ret)
{
	yaml_event_t event;
	struct node *root;
	bool empty;
	int r = find_document(l, &empty);

	if (r < 0)
		return r;
	if (empty) {
		*ret = node_new(NODE_MAP, NULL, 1, l->source);
		return 0;
	}
	r = next_event(l, &event);
	if (r == 0)
		r = load_value(l, &event, 0, &root);
	if (r < 0)
		return r;
	r = expect_end(l);
	if (r < 0) {
		node_free(root);
		return r;
	}
	if (root->type == NODE_EMPTY)
		root->type = NODE_MAP;
	*ret = root;
	return 0;
}

int yaml_parse(const struct source *source, const char *text, size_t size, struct node **ret, struct policy_errors *errors)
{
	struct loader l = {.source = source, .errors = errors, .text = text, .size = size};
	int r;

	if (!yaml_parser_initialize(&l.parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&l.parser, (const unsigned char *) text, size);
	/* Without this a first byte pair could turn the text into UTF-16, which nobody has looked at. */
	yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
	r = load_document(&l, ret);
	yaml_parser_delete(&l.parser);
	return r;
}
