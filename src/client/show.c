#include "client/show.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "policy/text.h"

int show_text(const char *text)
{
	int r = fd_write_stream(STDOUT_FILENO, text, strlen(text));

	if (r == 0)
		return 0;
	log_error("cannot write to standard output: %s", strerror(-r));
	return EXIT_REFUSED;
}

int show_json(const json_t *value)
{
	/* ASCII: whatever a name or a note contains, a terminal sees escapes (RFC 8259 section 7 has DEL raw). */
	cleanup_free char *text = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
	cleanup_free char *line = NULL;

	for (char *p = text; p != NULL && *p != '\0'; p++)
		if (*p == 0x7f)
			*p = '?';
	line = xasprintf("%s\n", text != NULL ? text : "null");
	return show_text(line);
}

char *show_safe(const char *text, size_t max)
{
	return text_escape(text, max);
}

char *show_member(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	if (json_is_string(value))
		return json_string_length(value) > 0 ? show_safe(json_string_value(value), 80) : xstrdup("-");
	if (json_is_integer(value))
		return xasprintf("%lld", (long long) json_integer_value(value));
	if (json_is_real(value))
		return xasprintf("%.2f", json_real_value(value));
	return xstrdup(json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
}

char *show_size(const json_t *value)
{
	char text[32];

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return xstrdup("-");
	return xstrdup(format_bytes((uint64_t) json_integer_value(value), text, sizeof text));
}

void table_add(struct table *t, char *cell)
{
	t->cells = xrealloc(t->cells, t->count + 1, sizeof *t->cells);
	t->cells[t->count++] = cell;
}

/* Characters, not bytes: what continues one takes no room. */
static size_t width(const char *text)
{
	size_t n = 0;

	for (; *text != '\0'; text++)
		n += ((unsigned char) *text & 0xc0) != 0x80;
	return n;
}

char *table_text(const struct table *t)
{
	cleanup_free size_t *widths = xcalloc(t->columns, sizeof *widths);
	struct buf b = buf_new(64 * 1024 * 1024);

	for (size_t i = 0; i < t->count; i++)
		if (width(t->cells[i]) > widths[i % t->columns])
			widths[i % t->columns] = width(t->cells[i]);
	for (size_t i = 0; i < t->count; i++) {
		bool last = i % t->columns == t->columns - 1;
		size_t pad = last ? 0 : widths[i % t->columns] - width(t->cells[i]) + 2;

		(void) buf_addf(&b, "%s%*s%s", t->cells[i], (int) pad, "", last ? "\n" : "");
	}
	return b.data != NULL ? b.data : xstrdup("");
}

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){0};
}
