/* JSON. jansson is the judge of what is JSON (surrogate pairs, escapes, numbers, duplicate keys); a scan over the text beforehand
 * bounds depth and size and notes the line of each token. Walking jansson's tree in document order then meets the tokens in
 * order. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "policy/source.h"
#include "policy/text.h"

struct token {
	unsigned line;
	unsigned start, end; /* offsets in the text */
};

struct scan {
	const char *text;
	struct token *tokens; /* every key, scalar, "{" and "[" in document order */
	size_t count, next;
	const struct source *source;
};

static int fail(const struct source *source, unsigned line, struct policy_errors *errors, const char *message)
{
	policy_errors_add(errors, source->label, line, NULL, NULL, "%s", message);
	return -EINVAL;
}

static void scan_add(struct scan *s, unsigned line, size_t start, size_t end)
{
	if ((s->count & (s->count - 1)) == 0)
		s->tokens = xrealloc(s->tokens, s->count == 0 ? 1 : s->count * 2, sizeof *s->tokens);
	s->tokens[s->count++] = (struct token){.line = line, .start = (unsigned) start, .end = (unsigned) end};
}

/* The first byte behind the string that starts at i. */
static size_t string_end(const char *text, size_t size, size_t i)
{
	for (i++; i < size && text[i] != '"'; i++)
		if (text[i] == '\\')
			i++;
	return i < size ? i + 1 : size;
}

static int scan_text(struct scan *s, size_t size, struct policy_errors *errors)
{
	unsigned line = 1, depth = 0;
	size_t i = 0;

	while (i < size) {
		char c = s->text[i];
		size_t end = i + 1;

		if (c == '"')
			end = string_end(s->text, size, i);
		else if (strchr(" \t\r\n{}[],:", c) == NULL)
			end = i + strcspn(s->text + i, " \t\r\n{}[],:\"");
		if (strchr(" \t\r\n}],:", c) == NULL)
			scan_add(s, line, i, end);
		if (c == '{' || c == '[')
			depth++;
		else if ((c == '}' || c == ']') && depth > 0)
			depth--;
		if (depth > NODE_DEPTH_MAX)
			return fail(s->source, line, errors, "the document is nested too deeply");
		if (s->count > 2 * NODE_COUNT_MAX)
			return fail(s->source, line, errors, "the document has too many values");
		for (; i < end; i++)
			line += s->text[i] == '\n';
	}
	return 0;
}

static struct token take_token(struct scan *s)
{
	return s->next < s->count ? s->tokens[s->next++] : (struct token){0};
}

static struct node *convert(struct scan *s, json_t *value);

static struct node *convert_object(struct scan *s, json_t *value, unsigned line)
{
	struct node *n = node_new(NODE_MAP, NULL, line, s->source);

	/* jansson keeps the order of insertion, which is that of the document. */
	for (void *i = json_object_iter(value); i != NULL; i = json_object_iter_next(value, i)) {
		unsigned key_line = take_token(s).line;

		node_add(n, json_object_iter_key(i), key_line, convert(s, json_object_iter_value(i)));
	}
	return n;
}

static struct node *convert_array(struct scan *s, json_t *value, unsigned line)
{
	struct node *n = node_new(NODE_LIST, NULL, line, s->source);

	for (size_t i = 0; i < json_array_size(value); i++)
		node_add(n, NULL, 0, convert(s, json_array_get(value, i)));
	return n;
}

static struct node *convert(struct scan *s, json_t *value)
{
	struct token t = take_token(s);
	cleanup_free char *text = NULL;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return convert_object(s, value, t.line);
	case JSON_ARRAY:
		return convert_array(s, value, t.line);
	case JSON_STRING:
		return node_new(NODE_TEXT, json_string_value(value), t.line, s->source);
	case JSON_TRUE:
		return node_new(NODE_BOOL, "true", t.line, s->source);
	case JSON_FALSE:
		return node_new(NODE_BOOL, "false", t.line, s->source);
	case JSON_INTEGER:
	case JSON_REAL:
		text = xstrndup(s->text + t.start, t.end - t.start);
		return node_new(NODE_NUMBER, text, t.line, s->source);
	case JSON_NULL:
		break;
	}
	return node_new(NODE_NULL, "null", t.line, s->source);
}

static int parse_scanned(struct scan *s, size_t size, struct node **ret, struct policy_errors *errors)
{
	json_error_t error;
	json_t *value = json_loadb(s->text, size, JSON_REJECT_DUPLICATES, &error);
	cleanup_free char *reason = NULL;

	if (value == NULL) {
		reason = text_escape(error.text, 100);
		policy_errors_add(errors, s->source->label, error.line > 0 ? (unsigned) error.line : 0, NULL, NULL,
				  "expected JSON, since the document starts with \"{\": %s", reason);
		return -EINVAL;
	}
	*ret = convert(s, value);
	json_decref(value);
	return 0;
}

int json_parse(const struct source *source, const char *text, size_t size, struct node **ret, struct policy_errors *errors)
{
	struct scan s = {.text = text, .source = source};
	int r = scan_text(&s, size, errors);

	if (r == 0)
		r = parse_scanned(&s, size, ret, errors);
	free(s.tokens);
	return r;
}
