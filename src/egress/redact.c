#include "egress/redact.h"

#include <event2/buffer.h>
#include <string.h>

#include "base/hex.h"
#include "base/mem.h"

enum {
	FORMS = 7,      /* itself, base64 in two alphabets at three alignments */
	ESCAPE_MAX = 6, /* "\u0041", "&quot;", "&#x41;" */
	BASE64_MIN = 8, /* a shorter piece of base64 stands in too many innocent places */
};

static const char REPLACEMENT[] = "[redacted]";

struct pattern {
	char *bytes;
	size_t size;
};

struct redact {
	struct pattern *patterns; /* at most FORMS a value */
	size_t count, room, values;
	size_t longest;
	bool starts[256]; /* bytes at which a pattern may begin, written in any way */
};

struct redact *redact_new(void)
{
	return xcalloc(1, sizeof(struct redact));
}

void redact_free(struct redact *r)
{
	if (r == NULL)
		return;
	for (size_t i = 0; i < r->count; i++) {
		explicit_bzero(r->patterns[i].bytes, r->patterns[i].size);
		free(r->patterns[i].bytes);
	}
	free(r->patterns);
	free(r);
}

/* ---- Forms. ---- */

/* Takes over `bytes`. Without a letter that differs the two alphabets give the same pattern, which stays one. */
static void add_pattern(struct redact *r, char *bytes, size_t size)
{
	for (size_t i = r->count < FORMS ? 0 : r->count - FORMS; i < r->count; i++) {
		if (r->patterns[i].size == size && memcmp(r->patterns[i].bytes, bytes, size) == 0) {
			explicit_bzero(bytes, size);
			free(bytes);
			return;
		}
	}
	if (r->count == r->room) {
		r->room = r->room > 0 ? r->room * 2 : FORMS;
		r->patterns = xrealloc(r->patterns, r->room, sizeof *r->patterns);
	}
	r->patterns[r->count++] = (struct pattern){.bytes = bytes, .size = size};
	if (size > r->longest)
		r->longest = size;
	r->starts[(unsigned char) bytes[0]] = true;
	r->starts['%'] = r->starts['\\'] = r->starts['&'] = true;
	if (bytes[0] == ' ')
		r->starts['+'] = true;
}

/* Six bits of `value` as it stands behind `skip` other bytes. */
static unsigned sextet(const unsigned char *value, size_t skip, size_t index)
{
	size_t bit = index * 6 - skip * 8;
	unsigned shift = (unsigned) (bit % 8), bits = (unsigned) value[bit / 8] << 8;

	if (shift > 2)
		bits |= value[bit / 8 + 1];
	return (bits >> (10 - shift)) & 0x3f;
}

/* The letters of base64 that depend on nothing but the value, when it stands behind `skip` (0 to 2) bytes of something else. */
static void add_base64(struct redact *r, const char *value, size_t size, size_t skip, bool url)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t first = (skip * 8 + 5) / 6, end = (skip + size) * 8 / 6;
	char *text;

	if (end < first + BASE64_MIN)
		return;
	text = xcalloc(end - first, 1);
	for (size_t i = first; i < end; i++) {
		unsigned six = sextet((const unsigned char *) value, skip, i);

		if (six < 62)
			text[i - first] = letters[six];
		else if (six == 62)
			text[i - first] = url ? '-' : '+';
		else
			text[i - first] = url ? '_' : '/';
	}
	add_pattern(r, text, end - first);
}

bool redact_add(struct redact *r, const char *value, size_t size)
{
	if (size == 0 || size > REDACT_VALUE_MAX)
		return true;
	for (size_t i = 0; i < size; i++)
		if ((unsigned char) value[i] < 0x20 || value[i] == 0x7f)
			return true;
	if (r->values == REDACT_VALUES_MAX)
		return false;
	r->values++;
	add_pattern(r, memcpy(xcalloc(size, 1), value, size), size);
	for (size_t skip = 0; skip < 3; skip++) {
		add_base64(r, value, size, skip, false);
		add_base64(r, value, size, skip, true);
	}
	return true;
}

/* ---- Matching. ---- */

static int hex_pair(const char *t)
{
	int high = hex_digit(t[0]), low = hex_digit(t[1]);

	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Which byte an entity of HTML stands for, and how long it is; -1: none. */
static int entity(const char *t, size_t left, size_t *ret_size)
{
	static const struct {
		const char *text;
		char byte;
	} names[] = {{"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}};
	int code = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		*ret_size = strlen(names[i].text);
		if (left >= *ret_size && memcmp(t, names[i].text, *ret_size) == 0)
			return names[i].byte;
	}
	if (left >= 6 && t[1] == '#' && (t[2] == 'x' || t[2] == 'X') && t[5] == ';') {
		*ret_size = 6;
		return hex_pair(t + 3);
	}
	for (size_t i = 2; t[1] == '#' && i < left && i < ESCAPE_MAX; i++) {
		*ret_size = i + 1;
		if (t[i] == ';')
			return i > 2 && code < 256 ? code : -1;
		if (t[i] < '0' || t[i] > '9')
			return -1;
		code = code * 10 + (t[i] - '0');
	}
	return -1;
}

/* Which byte is written at `t` by means of an escape, and how long that is; -1: none. */
static int escaped(const char *t, size_t left, size_t *ret_size)
{
	*ret_size = 3;
	if (t[0] == '%')
		return left >= 3 ? hex_pair(t + 1) : -1;
	if (t[0] == '\\' && left >= 6 && t[1] == 'u') {
		*ret_size = 6;
		return hex_pair(t + 2) == 0 ? hex_pair(t + 4) : -1;
	}
	if (t[0] == '\\' && left >= 2) {
		*ret_size = 2;
		return t[1] == '"' || t[1] == '\\' || t[1] == '/' || t[1] == '\'' ? t[1] : -1;
	}
	if (t[0] == '&' && left >= 4)
		return entity(t, left, ret_size);
	*ret_size = 1;
	return t[0] == '+' ? ' ' : -1;
}

/* The length of what stands for the pattern at `t`, 0 when nothing does. */
static size_t match_escaped(const struct pattern *p, const char *t, size_t left)
{
	size_t at = 0;

	for (size_t i = 0; i < p->size; i++) {
		size_t size = 0;

		if (at >= left)
			return 0;
		if (escaped(t + at, left - at, &size) == (unsigned char) p->bytes[i])
			at += size;
		else if (t[at] == p->bytes[i])
			at++;
		else
			return 0;
	}
	return at;
}

/* The longest match of any pattern, so that no tail of a longer value stays behind a shorter one. */
static size_t match(const struct redact *r, const char *t, size_t left)
{
	size_t best = 0;

	for (size_t i = 0; i < r->count; i++) {
		const struct pattern *p = &r->patterns[i];
		size_t n = left >= p->size && memcmp(t, p->bytes, p->size) == 0 ? p->size : 0, m = match_escaped(p, t, left);

		if (m > n)
			n = m;
		if (n > best)
			best = n;
	}
	return best;
}

/* The first match that begins before `until`. */
static size_t find(const struct redact *r, const char *data, size_t size, size_t at, size_t until, size_t *ret_size)
{
	for (; at < until; at++) {
		if (!r->starts[(unsigned char) data[at]])
			continue;
		*ret_size = match(r, data + at, size - at);
		if (*ret_size > 0)
			return at;
	}
	*ret_size = 0;
	return until;
}

bool redact_finds(const struct redact *r, const char *data, size_t size)
{
	size_t found;

	(void) find(r, data, size, 0, size, &found);
	return found > 0;
}

size_t redact_window(const struct redact *r)
{
	return r->longest > 0 ? r->longest * ESCAPE_MAX - 1 : 0;
}

void redact_text(struct redact *r, const char *data, size_t size, struct evbuffer *out)
{
	for (size_t at = 0; at < size;) {
		size_t found, next = find(r, data, size, at, size, &found);

		(void) evbuffer_add(out, data + at, next - at);
		if (found > 0)
			(void) evbuffer_add(out, REPLACEMENT, sizeof REPLACEMENT - 1);
		at = next + found;
	}
}

/* How many bytes no value can reach over: all but the window, and all up to the last line end. */
static size_t settled(const struct redact *r, const char *data, size_t size)
{
	size_t window = redact_window(r), sure = size > window ? size - window : 0;
	const char *line = memrchr(data, '\n', size);

	if (line != NULL && (size_t) (line - data) + 1 > sure)
		sure = (size_t) (line - data) + 1;
	return sure;
}

void redact_stream(struct redact *r, struct evbuffer *in, struct evbuffer *out, bool end)
{
	size_t size = evbuffer_get_length(in), sure, at = 0, drained = 0;
	const char *data;

	if (size == 0)
		return;
	data = (const char *) evbuffer_pullup(in, -1);
	sure = end ? size : settled(r, data, size);
	while (at < sure) {
		size_t found, next = find(r, data, size, at, sure, &found);

		if (found == 0 && drained == 0)
			break; /* no value in all of it: moved without a copy */
		(void) evbuffer_add(out, data + at, next - at);
		if (found > 0)
			(void) evbuffer_add(out, REPLACEMENT, sizeof REPLACEMENT - 1);
		at = drained = next + found;
	}
	(void) evbuffer_drain(in, drained);
	if (drained < sure)
		(void) evbuffer_remove_buffer(in, out, sure - drained);
}
