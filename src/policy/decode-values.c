/* The values without members: numbers, words, texts, paths. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/decode-values.h"
#include "policy/text.h"

void decode_error(struct decoder *d, const struct node *at, const char *key, const char *suggestion, const char *fmt, ...)
{
	cleanup_free char *message = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&message, fmt, ap) < 0)
		message = NULL;
	va_end(ap);
	policy_errors_add(d->errors, at->source != NULL ? at->source->label : NULL, at->line, key,
			  suggestion != NULL && *suggestion != '\0' ? suggestion : NULL, "%s", message != NULL ? message : fmt);
}

/* "expected X, got Y": what a value of the row looks like, in words. */
const char *decode_expected(const struct row *row)
{
	switch (row->type) {
	case VALUE_BOOL:
		return "true or false";
	case VALUE_COUNT:
	case VALUE_ID:
		return "a whole number";
	case VALUE_SIZE:
		return "a size such as 512M or 1G";
	case VALUE_TIME:
		return "a time such as 30s, 500ms, 5m or 1h";
	case VALUE_CPUS:
		return "a number of processors such as 1 or 0.5";
	case VALUE_PORT:
		return "a port from 1 to 65535";
	case VALUE_TEXT:
		return "a text";
	case VALUE_CHOICE:
		return "a word";
	case VALUE_PATH:
		return "a path";
	case VALUE_ROOT:
		return "host, a directory or an image";
	case VALUE_STRINGS:
	case VALUE_PORTS:
	case VALUE_RECORDS:
		return "a list";
	case VALUE_NAMED:
	case VALUE_SECTION:
		return "a map";
	case VALUE_VERSION:
		return "1, the version of this format";
	}
	return "something else";
}

/* What people trip over: an empty value is not null, a bare number or word of YAML is not a text. */
static const char *remark(const struct row *row, const struct node *node)
{
	if (node->type == NODE_EMPTY && row->nullable)
		return " (null is a word)";
	if (row->type == VALUE_TEXT && (node->type == NODE_BOOL || node->type == NODE_NUMBER || node->type == NODE_NULL))
		return " (in quotes it is one)";
	if ((row->type == VALUE_COUNT || row->type == VALUE_CPUS || row->type == VALUE_ID) && node->type == NODE_TEXT &&
	    node_plain_type(node->text) == NODE_NUMBER)
		return " (without quotes it is one)";
	return "";
}

void decode_wrong_value(struct decoder *d, const struct row *row, const struct node *node, const char *key,
			const char *suggestion)
{
	cleanup_free char *got = NULL;

	if (node->type == NODE_BAD)
		return;
	got = node_describe(node);
	decode_error(d, node, key, suggestion, "expected %s%s, got %s%s", decode_expected(row), row->nullable ? ", or null" : "",
		     got, remark(row, node));
}

void decode_wrong_syntax(struct decoder *d, const struct node *node, const char *key, const struct fault *f)
{
	cleanup_free char *got = node_describe(node);

	decode_error(d, node, key, f->suggestion, "%s, got %s", f->message, got);
}

void decode_put(char *base, const struct row *row, const void *value)
{
	memcpy(base + row->offset, value, row->size);
}

void decode_put_text(char *base, const struct row *row, char *text)
{
	char **member = (char **) (base + row->offset);

	free(*member);
	*member = text;
}

/* ---- Scalars. ---- */

/* "512MB" → "512M", "30" or "30 sec" → "30s": the number with the unit that was probably meant. */
static const char *guess_unit(const struct node *node, const char *letters, char fallback, char *buf, size_t size)
{
	size_t digits = strspn(node->text, "0123456789.");
	const char *unit = node->text + digits;
	char letter, lower;

	if (digits == 0 || digits > 20)
		return NULL;
	unit += strspn(unit, " ");
	letter = *unit == '\0' ? fallback : *unit;
	if (letter == '\0')
		return NULL;
	for (const char *l = letters; *l != '\0'; l++) {
		lower = *l >= 'A' && *l <= 'Z' ? (char) (*l - 'A' + 'a') : *l;
		if (letter != *l && letter != lower && !(letter >= 'A' && letter <= 'Z' && letter - 'A' + 'a' == lower))
			continue;
		(void) snprintf(buf, size, "%.*s%c%s", (int) digits, node->text, *l,
				*l == 'm' && (unit[0] == 'm' || unit[0] == 'M') && (unit[1] == 's' || unit[1] == 'S') ? "s" : "");
		return strcmp(buf, node->text) == 0 ? NULL : buf;
	}
	return NULL;
}

static char *format_bound(const struct row *row, uint64_t bound)
{
	if (row->type == VALUE_SIZE)
		return format_size_word(bound);
	if (row->type == VALUE_TIME)
		return format_time_word(bound);
	return xasprintf("%llu", (unsigned long long) bound);
}

static bool in_bounds(struct decoder *d, const struct row *row, const struct node *node, const char *key, uint64_t value)
{
	bool low = value<row->min, high = row->max> 0 && value > row->max;
	cleanup_free char *bound = NULL;

	if (!low && !high)
		return true;
	bound = format_bound(row, low ? row->min : row->max);
	decode_error(d, node, key, NULL, "expected at %s %s, got %s", low ? "least" : "most", bound, node->text);
	return false;
}

static void decode_amount(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	bool scalar =
	    node->type == NODE_NUMBER || (node->type == NODE_TEXT && row->type != VALUE_COUNT && strcmp(node->text, "null") != 0);
	uint64_t value = 0;
	char guess[32];
	const char *hint = NULL;
	int r = -1;

	if (scalar && row->type == VALUE_SIZE)
		r = parse_size(node->text, &value);
	else if (scalar && row->type == VALUE_TIME)
		r = parse_usec(node->text, &value);
	else if (scalar)
		r = parse_whole(node->text, &value);
	if (r < 0) {
		if (scalar && row->type != VALUE_COUNT)
			hint = row->type == VALUE_SIZE ? guess_unit(node, "KMGT", '\0', guess, sizeof guess)
						       : guess_unit(node, "smh", 's', guess, sizeof guess);
		decode_wrong_value(d, row, node, key, hint);
		return;
	}
	if (in_bounds(d, row, node, key, value))
		decode_put(base, row, &value);
}

static void decode_cpus(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	uint64_t millionths;
	const char *end;
	double cpus;

	if (node->type != NODE_NUMBER || parse_decimal(node->text, 1000000, &millionths, &end) < 0 || *end != '\0') {
		decode_wrong_value(d, row, node, key, NULL);
		return;
	}
	if (millionths < 10000 || millionths > row->max * 1000000) {
		decode_error(d, node, key, NULL, "expected 0.01 to %llu processors, got %s", (unsigned long long) row->max,
			     node->text);
		return;
	}
	cpus = (double) millionths / 1e6;
	decode_put(base, row, &cpus);
}

static void decode_id(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	uint64_t value;
	uint32_t id;

	if (node->type != NODE_NUMBER || parse_whole(node->text, &value) < 0) {
		decode_wrong_value(d, row, node, key, NULL);
		return;
	}
	if (value == 0) {
		decode_error(d, node, key, "1000", "the sandbox runs without uid 0 and gid 0; expected at least 1, got 0");
		return;
	}
	/* (uid_t) -1 means "no change" to the kernel. */
	if (value >= UINT32_MAX) {
		decode_error(d, node, key, NULL, "expected at most 4294967294, got %s", node->text);
		return;
	}
	id = (uint32_t) value;
	decode_put(base, row, &id);
}

static void decode_bool(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	static const char *const truths[] = {"yes", "Yes", "YES", "on", "On", "ON", "y", "Y", "True", "TRUE", "true", "1", NULL};
	static const char *const lies[] = {"no", "No", "NO", "off", "Off", "OFF", "n", "N", "False", "FALSE", "false", "0", NULL};
	const char *hint = NULL;
	bool value;

	if (node->type == NODE_BOOL) {
		value = strcmp(node->text, "true") == 0;
		decode_put(base, row, &value);
		return;
	}
	for (size_t i = 0; node->text != NULL && truths[i] != NULL; i++)
		if (strcmp(node->text, truths[i]) == 0)
			hint = "true";
	for (size_t i = 0; node->text != NULL && lies[i] != NULL; i++)
		if (strcmp(node->text, lies[i]) == 0)
			hint = "false";
	decode_wrong_value(d, row, node, key, hint);
}

static char *list_words(const char *const *words)
{
	char *text = xstrdup("");

	for (size_t i = 0; words[i] != NULL; i++) {
		char *longer = xasprintf("%s%s%s", text, i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ", words[i]);

		free(text);
		text = longer;
	}
	return text;
}

static void decode_choice(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	cleanup_free char *words = NULL, *got = NULL;
	struct nearest n;

	for (unsigned i = 0; node->text != NULL && row->choices[i] != NULL; i++) {
		bool is_bool = strcmp(row->choices[i], "true") == 0 || strcmp(row->choices[i], "false") == 0;

		if (strcmp(row->choices[i], node->text) != 0 || node->type != (is_bool ? NODE_BOOL : NODE_TEXT))
			continue;
		if (row->size == sizeof(bool))
			decode_put(base, row, &(bool){i != 0});
		else
			decode_put(base, row, &i);
		return;
	}
	if (node->type == NODE_BAD)
		return;
	n = nearest_to(node->text != NULL ? node->text : "");
	nearest_try_all(&n, row->choices);
	words = list_words(row->choices);
	got = node_describe(node);
	decode_error(d, node, key, n.best, "expected %s, got %s", words, got);
}

static void decode_port(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	uint16_t port;

	if ((node->type == NODE_NUMBER || node->type == NODE_TEXT) && syntax_port(node->text, &port))
		decode_put(base, row, &port);
	else
		decode_wrong_value(d, row, node, key, NULL);
}

static void decode_version(struct decoder *d, const struct row *row, const struct node *node, const char *key)
{
	if (node->type != NODE_NUMBER || strcmp(node->text, "1") != 0)
		decode_wrong_value(d, row, node, key, "1");
}

/* ---- Texts and paths. ---- */

/* A text that passed the check of its row, or NULL (reported). */
char *decode_checked_text(struct decoder *d, const struct row *row, const struct node *node, const char *key)
{
	cleanup_free char *text = NULL;
	struct fault f = {0};

	if (node->type != NODE_TEXT && !(row->numbers && node->type == NODE_NUMBER)) {
		decode_wrong_value(d, row, node, key, NULL);
		return NULL;
	}
	text = xstrdup(node->text);
	if (row->check != NULL && !row->check(&text, &f)) {
		decode_wrong_syntax(d, node, key, &f);
		return NULL;
	}
	return take_ptr(&text);
}

/* The path on the host: absolute, without "." and doubled slashes. ".." stays: what it means depends on links. */
static char *host_path(const char *dir, const char *path)
{
	cleanup_free char *joined = path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", dir, path);
	char *clean = xcalloc(strlen(joined) + 2, 1), *out = clean;
	const char *s = joined;

	while (*s != '\0') {
		size_t size;

		s += strspn(s, "/");
		size = strcspn(s, "/");
		if (size > 0 && !(size == 1 && s[0] == '.')) {
			*out++ = '/';
			memcpy(out, s, size);
			out += size;
		}
		s += size;
	}
	if (out == clean)
		*out = '/';
	return clean;
}

static char *decode_host_path(struct decoder *d, const struct row *row, const struct node *node, const char *key)
{
	const char *dir = node->source != NULL ? node->source->dir : NULL;

	if (node->type != NODE_TEXT || node->text[0] == '\0') {
		decode_wrong_value(d, row, node, key, NULL);
		return NULL;
	}
	if (strlen(node->text) >= 4096)
		decode_error(d, node, key, NULL, "expected a path below 4096 bytes");
	else if (node->text[0] == '~' && (node->text[1] == '/' || node->text[1] == '\0'))
		decode_error(d, node, key, NULL,
			     "expected a path in full; \"~\" is not expanded (./~ names a file of that name)");
	else if (node->text[0] != '/' && dir == NULL)
		decode_error(d, node, key, NULL, "expected an absolute path, since there is no folder it could be relative to");
	else
		return host_path(dir, node->text);
	return NULL;
}

static bool is_image_reference(const char *s)
{
	return strlen(s) <= 512 && s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@")] == '\0';
}

static void decode_root(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	cleanup_free char *dir = NULL;

	if (node->type != NODE_TEXT || node->text[0] == '\0') {
		decode_wrong_value(d, row, node, key, NULL);
		return;
	}
	if (node->text[0] != '/' && node->text[0] != '.') {
		if (is_image_reference(node->text))
			decode_put_text(base, row, xstrdup(node->text));
		else
			decode_wrong_value(d, row, node, key, NULL);
		return;
	}
	dir = decode_host_path(d, row, node, key);
	if (dir != NULL && strcmp(dir, "/") == 0)
		decode_error(d, node, key, "host",
			     "expected a directory that holds a system; for the system of this host write host");
	else if (dir != NULL)
		decode_put_text(base, row, take_ptr(&dir));
}

/* ---- Any of them. ---- */

static void decode_null(const struct row *row, char *base)
{
	uint64_t unlimited = ZW_UNLIMITED;

	if (row->type == VALUE_COUNT || row->type == VALUE_SIZE || row->type == VALUE_TIME)
		decode_put(base, row, &unlimited);
	else if (row->type == VALUE_CPUS)
		decode_put(base, row, &(double){0});
	else
		decode_put_text(base, row, NULL);
}

bool decode_scalar(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key)
{
	char *text;

	if (node->type == NODE_NULL && row->nullable) {
		decode_null(row, base);
		return true;
	}
	switch (row->type) {
	case VALUE_BOOL:
		decode_bool(d, row, node, base, key);
		return true;
	case VALUE_COUNT:
	case VALUE_SIZE:
	case VALUE_TIME:
		decode_amount(d, row, node, base, key);
		return true;
	case VALUE_CPUS:
		decode_cpus(d, row, node, base, key);
		return true;
	case VALUE_ID:
		decode_id(d, row, node, base, key);
		return true;
	case VALUE_PORT:
		decode_port(d, row, node, base, key);
		return true;
	case VALUE_CHOICE:
		decode_choice(d, row, node, base, key);
		return true;
	case VALUE_TEXT:
	case VALUE_PATH:
		text = row->type == VALUE_PATH ? decode_host_path(d, row, node, key) : decode_checked_text(d, row, node, key);
		if (text != NULL)
			decode_put_text(base, row, text);
		return true;
	case VALUE_ROOT:
		decode_root(d, row, node, base, key);
		return true;
	case VALUE_VERSION:
		decode_version(d, row, node, key);
		return true;
	case VALUE_STRINGS:
	case VALUE_PORTS:
	case VALUE_RECORDS:
	case VALUE_NAMED:
	case VALUE_SECTION:
		break;
	}
	return false;
}
