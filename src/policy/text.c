#include "policy/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

enum { QUOTED_MAX = 60, WORD_MAX = 64 };

/* Length of the UTF-8 sequence at p, 0 when it is none. `size` bytes are there. RFC 3629: no overlong forms, no surrogates. */
static size_t sequence_length(const unsigned char *p, size_t size)
{
	size_t n = p[0] < 0x80                    ? 1
		   : p[0] >= 0xc2 && p[0] < 0xe0  ? 2
		   : (p[0] & 0xf0) == 0xe0        ? 3
		   : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
						  : 0;

	if (n == 0 || n > size)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90) ||
	    (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return n;
}

bool text_is_utf8(const char *data, size_t size, size_t *ret_offset)
{
	const unsigned char *p = (const unsigned char *) data;
	size_t i = 0;

	while (i < size) {
		size_t n = sequence_length(p + i, size - i);

		if (n == 0 || p[i] == '\0') {
			*ret_offset = i;
			return false;
		}
		i += n;
	}
	return true;
}

/* What a terminal may act upon: C0, DEL, C1, and the marks that turn the direction of writing. */
static bool is_printable(const unsigned char *p, size_t n)
{
	if (n == 1)
		return p[0] >= 0x20 && p[0] != 0x7f;
	if (n == 2)
		return !(p[0] == 0xc2 && p[1] < 0xa0);
	if (n == 3 && p[0] == 0xe2 && p[1] == 0x80)
		return p[2] < 0x8b || p[2] == 0x90 || (p[2] > 0x90 && p[2] < 0xa8) || p[2] > 0xae;
	if (n == 3 && p[0] == 0xe2 && p[1] == 0x81)
		return p[2] < 0xa0 || p[2] > 0xaf;
	return !(n == 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf);
}

static void escape_into(struct buf *b, const char *s, size_t max, bool quotes)
{
	const unsigned char *p = (const unsigned char *) s;
	size_t left = strlen(s), used = 0;

	while (left > 0) {
		size_t n = sequence_length(p, left);

		if (used + n > max) {
			(void) buf_adds(b, "...");
			return;
		}
		if (n == 0 || !is_printable(p, n)) {
			size_t bytes = n == 0 ? 1 : n;

			for (size_t i = 0; i < bytes; i++)
				(void) buf_addf(b, "\\x%02x", p[i]);
			n = bytes;
		} else {
			if (quotes && (p[0] == '"' || p[0] == '\\'))
				(void) buf_adds(b, "\\");
			(void) buf_add(b, p, n);
		}
		p += n;
		left -= n;
		used += n;
	}
}

char *text_quote(const char *s)
{
	struct buf b = buf_new(QUOTED_MAX * 8);

	(void) buf_adds(&b, "\"");
	escape_into(&b, s, QUOTED_MAX, true);
	(void) buf_adds(&b, "\"");
	return b.data;
}

char *text_escape(const char *s, size_t max)
{
	struct buf b = buf_new(max * 8 + 8);

	(void) buf_adds(&b, "");
	escape_into(&b, s, max, false);
	return b.data;
}

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Damerau-Levenshtein in its restricted form (optimal string alignment). Both words are at most WORD_MAX bytes. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t rows[3][WORD_MAX + 1];
	size_t *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= nb; j++)
		before[j] = last[j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t *spare = before;

		now[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t replace = last[j - 1] + (a[i - 1] != b[j - 1]);

			now[j] = min3(replace, last[j] + 1, now[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < now[j])
				now[j] = before[j - 2] + 1;
		}
		before = last;
		last = now;
		now = spare;
	}
	return last[nb];
}

struct nearest nearest_to(const char *word)
{
	return (struct nearest){.word = word};
}

void nearest_try(struct nearest *n, const char *candidate)
{
	size_t nw = strnlen(n->word, WORD_MAX + 1), nc = strnlen(candidate, WORD_MAX + 1), distance;
	bool cut;

	if (nw == 0 || nw > WORD_MAX || nc > WORD_MAX)
		return;
	distance = edit_distance(n->word, nw, candidate, nc);
	cut = nw >= 3 && strncmp(n->word, candidate, nw) == 0;
	/* Beyond a third of the word it is another word and the hint would mislead. */
	if ((distance > (nw + 2) / 3 && !cut) || distance >= nc)
		return;
	/* A word that was cut short lies between one mistake and two. */
	distance *= 2;
	if (cut && distance > 3)
		distance = 3;
	if (n->best == NULL || distance < n->distance) {
		n->best = candidate;
		n->distance = distance;
	}
}

void nearest_try_all(struct nearest *n, const char *const *words)
{
	for (; *words != NULL; words++)
		nearest_try(n, *words);
}
