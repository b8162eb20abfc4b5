#include "sandbox/encode.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static bool is_continuation(char c)
{
	return ((unsigned char) c & 0xc0) == 0x80;
}

/* What the first byte of a character announces, 0 for a byte that cannot be a first one. */
static size_t announced_length(char first)
{
	unsigned char c = (unsigned char) first;

	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef)
		return 3;
	if (c >= 0xf0 && c <= 0xf4)
		return 4;
	return 0;
}

size_t utf8_incomplete_tail(const char *data, size_t size)
{
	for (size_t n = 1; n <= 3 && n <= size; n++) {
		char c = data[size - n];

		if (is_continuation(c))
			continue;
		return announced_length(c) > n ? n : 0;
	}
	return 0;
}

size_t utf8_continuation_head(const char *data, size_t size)
{
	size_t n = 0;

	while (n < 3 && n < size && is_continuation(data[n]))
		n++;
	return n;
}

size_t utf8_length(const char *s)
{
	size_t length = announced_length(s[0]);
	unsigned char first = (unsigned char) s[0], second = length > 1 ? (unsigned char) s[1] : 0;

	for (size_t i = 1; i < length; i++)
		if (!is_continuation(s[i]))
			return 0;
	if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
	    (first == 0xf4 && second > 0x8f))
		return 0;
	return length;
}

static char *escape(const char *s, bool backslash)
{
	struct buf out = buf_new(SIZE_MAX / 2);

	while (*s != '\0') {
		size_t n = utf8_length(s);

		if (n == 0)
			(void) buf_addf(&out, "\\x%02x", (unsigned) (unsigned char) *s);
		else if (backslash && *s == '\\')
			(void) buf_adds(&out, "\\\\");
		else
			(void) buf_add(&out, s, n);
		s += n > 0 ? n : 1;
	}
	return out.data != NULL ? out.data : xstrdup("");
}

char *encode_text(const char *s)
{
	return escape(s, false);
}

char *encode_path(const char *s)
{
	return escape(s, true);
}

char *encode_base64(const char *data, size_t size)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = xcalloc((size + 2) / 3 * 4 + 1, 1), *p = out;

	for (size_t i = 0; i < size; i += 3) {
		size_t n = size - i < 3 ? size - i : 3;
		uint32_t bits = 0;

		for (size_t k = 0; k < 3; k++)
			bits = bits << 8 | (k < n ? (unsigned char) data[i + k] : 0);
		for (size_t k = 0; k < 4; k++)
			*p++ = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
	}
	return out;
}
