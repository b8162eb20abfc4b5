/* Requests against methods and paths. Both ends of a connection read a path in their own way; so a path counts only when there is
 * one reading of it, whether or not the other end decodes, cleans or splits it once more. */
#include <string.h>

#include "base/hex.h"
#include "policy/network-parts.h"
#include "policy/text.h"

enum { PATTERN_MAX_BYTES = 1024 };

static bool is_escape(const char *p, size_t size)
{
	return size >= 3 && p[0] == '%' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0;
}

static bool is_plain(unsigned char c)
{
	return c > 0x20 && c != 0x7f && c != '\\' && c != '?' && c != '#';
}

/* "." and ".." alone, also with the parameters that some servers cut off ("..;x"). */
static bool is_dots(const char *segment, size_t size)
{
	const char *semicolon = memchr(segment, ';', size);

	if (semicolon != NULL)
		size = (size_t) (semicolon - segment);
	return (size == 1 || size == 2) && strncmp(segment, "..", size) == 0;
}

/* No empty segment but the last one, no dots. */
static bool is_normal(const char *path, size_t size)
{
	size_t start = 1;

	for (size_t i = 1; i <= size; i++) {
		if (i < size && path[i] != '/')
			continue;
		if (is_dots(path + start, i - start) || (i == start && i < size))
			return false;
		start = i + 1;
	}
	return true;
}

/* The byte that "%xx" stands for; false when it has another reading than that. */
static bool decode_escape(const char *p, size_t size, unsigned char *ret)
{
	unsigned char c;

	if (!is_escape(p, size))
		return false;
	c = (unsigned char) (hex_digit(p[1]) << 4 | hex_digit(p[2]));
	/* "%252e%252e": whoever decodes twice sees another path. */
	if (c < 0x20 || c == 0x7f || c == '\\' || (c == '%' && size >= 5 && hex_digit(p[3]) >= 0 && hex_digit(p[4]) >= 0))
		return false;
	*ret = c;
	return true;
}

bool network_path_decode(const char *path, size_t size, char ret[NETWORK_PATH_MAX], size_t *ret_size, bool *ret_slash)
{
	size_t used = 0, offset;
	bool slash = false;

	if (size == 0 || size >= NETWORK_PATH_MAX || path[0] != '/')
		return false;
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char) path[i];

		if (!is_plain(c))
			return false;
		if (c == '%') {
			if (!decode_escape(path + i, size - i, &c))
				return false;
			slash = slash || c == '/';
			i += 2;
		}
		ret[used++] = (char) c;
	}
	/* Not UTF-8: overlong forms of "." and "/" (%c0%ae) above all. */
	if (!text_is_utf8(ret, used, &offset) || !is_normal(ret, used))
		return false;
	*ret_size = used;
	*ret_slash = slash;
	return true;
}

/* Decodes on the way, and looks at segments as whoever splits at "/" and at "%2f" would. */
bool network_path_is_harmless(const char *path, size_t size)
{
	char segment[4];
	size_t used = 0;

	if (size == 0 || path[0] != '/')
		return false;
	for (size_t i = 1; i <= size; i++) {
		unsigned char c = i < size ? (unsigned char) path[i] : '/';

		if (c == '%' && is_escape(path + i, size - i)) {
			c = (unsigned char) (hex_digit(path[i + 1]) << 4 | hex_digit(path[i + 2]));
			i += 2;
		} else if (c == '%' || c == ' ') {
			return false;
		}
		if (c < 0x20 || c == 0x7f || c == '\\')
			return false;
		if (c == '/' && is_dots(segment, used))
			return false;
		if (c == '/')
			used = 0;
		else if (used < sizeof segment)
			segment[used++] = (char) c;
	}
	return true;
}

/* ---- Patterns. ---- */

/* The positions in the pattern that the text up to here may have reached, all at once: no backtracking, and so no pattern or path
 * for which it would take long. */
struct places {
	bool at[PATTERN_MAX_BYTES + 1];
};

/* A star may stand for nothing. */
static void pass_stars(const char *pattern, size_t size, struct places *p)
{
	for (size_t i = 0; i < size; i++)
		if (p->at[i] && pattern[i] == '*')
			p->at[i + 1] = true;
}

/* A star belongs to a "**" when another one stands beside it. */
static bool crosses(const char *pattern, size_t i)
{
	return pattern[i + 1] == '*' || (i > 0 && pattern[i - 1] == '*');
}

static bool step(const char *pattern, size_t size, const struct places *now, struct places *next, char c)
{
	bool any = false;

	for (size_t i = 0; i <= size; i++)
		next->at[i] = false;
	for (size_t i = 0; i < size; i++) {
		if (!now->at[i])
			continue;
		if (pattern[i] != '*' && pattern[i] == c)
			next->at[i + 1] = any = true;
		else if (pattern[i] == '*' && (c != '/' || crosses(pattern, i)))
			next->at[i] = any = true;
	}
	return any;
}

bool network_path_matches(const char *pattern, const char *path, size_t size)
{
	size_t length = strlen(pattern);
	struct places both[2] = {{.at = {true}}};
	unsigned now = 0;

	if (length > PATTERN_MAX_BYTES)
		return false;
	pass_stars(pattern, length, &both[now]);
	for (size_t i = 0; i < size; i++) {
		if (!step(pattern, length, &both[now], &both[1 - now], path[i]))
			return false;
		now = 1 - now;
		pass_stars(pattern, length, &both[now]);
	}
	return both[now].at[length];
}

/* ---- Requests. ---- */

static bool allows_method(const struct network_rule *r, const char *method)
{
	bool head = strcmp(method, "HEAD") == 0;

	for (size_t i = 0; i < r->methods.count; i++)
		if (strcmp(r->methods.items[i], method) == 0 || (head && strcmp(r->methods.items[i], "GET") == 0))
			return true;
	return !r->has_methods;
}

static bool allows_path(const struct network_rule *r, const char *path, size_t size)
{
	for (size_t i = 0; i < r->paths.count; i++)
		if (network_path_matches(r->paths.items[i], path, size))
			return true;
	return false;
}

int network_match_request(const struct network *n, const size_t *rules, size_t rule_count, const char *method, const char *path,
			  size_t path_size)
{
	char decoded[NETWORK_PATH_MAX];
	size_t size = 0;
	bool slash = false, clear;

	if (!network_path_is_harmless(path, path_size))
		return -1;
	/* An encoded slash parts the path for one reader and not for the other: no pattern matches it. */
	clear = network_path_decode(path, path_size, decoded, &size, &slash) && !slash;
	for (size_t i = 0; i < rule_count; i++) {
		const struct network_rule *r = rules[i] < n->rule_count ? &n->rules[rules[i]] : NULL;

		if (r != NULL && allows_method(r, method) && (!r->has_paths || (clear && allows_path(r, decoded, size))))
			return (int) rules[i];
	}
	return -1;
}
