#include "daemon/http-target.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/mem.h"

/* In place. False when a '%' is not followed by two hexadecimal digits. */
static bool decode(char *s, size_t *size, bool plus)
{
	size_t out = 0;

	for (size_t i = 0; i < *size; i++) {
		if (s[i] == '%') {
			int high = i + 2 < *size ? hex_digit(s[i + 1]) : -1, low = high >= 0 ? hex_digit(s[i + 2]) : -1;

			if (low < 0)
				return false;
			s[out++] = (char) (high * 16 + low);
			i += 2;
		} else {
			s[out++] = plus && s[i] == '+' ? ' ' : s[i];
		}
	}
	s[out] = '\0';
	*size = out;
	return true;
}

static enum target_verdict verdict(enum target_verdict v, const char **why, const char *text)
{
	*why = text;
	return v;
}

/* One segment, which ends at a NUL already. */
static enum target_verdict add_segment(struct target_parts *t, char *s, const char **why)
{
	size_t size = strlen(s);

	if (!decode(s, &size, false))
		return verdict(TARGET_BAD, why, "the path has a '%' without two hexadecimal digits");
	if (strcmp(s, ".") == 0 || strcmp(s, "..") == 0 || memchr(s, '/', size) != NULL || memchr(s, '\0', size) != NULL)
		return verdict(TARGET_NOWHERE, why, "dot segments, encoded slashes and NUL in a path name nothing here");
	if (t->segment_count == TARGET_SEGMENTS_MAX)
		return verdict(TARGET_NOWHERE, why, "no route has that many segments");
	t->segments[t->segment_count++] = s;
	return TARGET_GOOD;
}

/* `path` is behind the first slash. What is malformed counts more than what leads nowhere. */
static enum target_verdict parse_path(struct target_parts *t, char *path, const char **why)
{
	enum target_verdict worst = TARGET_GOOD;

	for (;;) {
		char *slash = strchr(path, '/');
		const char *reason;
		enum target_verdict v;

		if (slash != NULL)
			*slash = '\0';
		v = add_segment(t, path, &reason);
		if (v > worst) {
			worst = v;
			*why = reason;
		}
		if (slash == NULL)
			return worst;
		path = slash + 1;
	}
}

static enum target_verdict add_pair(struct target_parts *t, char *s, const char **why)
{
	char *equals = strchr(s, '=');
	char *value = equals != NULL ? equals + 1 : s + strlen(s);
	size_t name_size = equals != NULL ? (size_t) (equals - s) : strlen(s), value_size = strlen(value);

	if (s[0] == '\0')
		return TARGET_GOOD;
	if (t->pair_count == QUERY_PAIRS_MAX)
		return verdict(TARGET_BAD, why, "the query has more than 64 parameters");
	if (!decode(s, &name_size, true) || !decode(value, &value_size, true))
		return verdict(TARGET_BAD, why, "the query has a '%' without two hexadecimal digits");
	if (memchr(s, '\0', name_size) != NULL || memchr(value, '\0', value_size) != NULL)
		return verdict(TARGET_BAD, why, "the query has NUL");
	t->pairs[t->pair_count++] = (struct query_pair){.name = s, .value = value};
	return TARGET_GOOD;
}

static enum target_verdict parse_query(struct target_parts *t, char *query, const char **why)
{
	for (;;) {
		char *end = query + strcspn(query, "&");
		bool last = *end == '\0';
		enum target_verdict v;

		*end = '\0';
		v = add_pair(t, query, why);
		if (v != TARGET_GOOD || last)
			return v;
		query = end + 1;
	}
}

enum target_verdict target_parts_parse(const char *path, const char *query, struct target_parts *ret, const char **why)
{
	size_t path_size = strlen(path) + 1, query_size = query != NULL ? strlen(query) + 1 : 0;
	enum target_verdict v = TARGET_GOOD;
	const char *reason;

	*ret = (struct target_parts){.text = xcalloc(path_size + query_size + 1, 1)};
	memcpy(ret->text, path, path_size);
	if (query != NULL) {
		memcpy(ret->text + path_size, query, query_size);
		v = parse_query(ret, ret->text + path_size, why);
	}
	if (v == TARGET_BAD)
		return v;
	v = parse_path(ret, ret->text + 1, &reason);
	if (v != TARGET_GOOD)
		*why = reason;
	return v;
}

void target_parts_done(struct target_parts *t)
{
	free(t->text);
	*t = (struct target_parts){0};
}

/* ---- Hosts. ---- */

static bool is_port(const char *s, size_t size)
{
	unsigned port = 0;

	if (size == 0)
		return true; /* "name:" is a name with an empty port, RFC 3986 section 3.2.3 */
	for (size_t i = 0; i < size; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		port = port * 10 + (unsigned) (s[i] - '0');
		if (port > UINT16_MAX)
			return false;
	}
	return true;
}

static bool parse_bracketed(const char *text, size_t size, char *ret)
{
	const char *end = memchr(text, ']', size);
	char address[INET6_ADDRSTRLEN];
	struct in6_addr a;
	size_t n;

	if (end == NULL)
		return false;
	n = (size_t) (end - text - 1);
	if (n == 0 || n >= sizeof address)
		return false;
	memcpy(address, text + 1, n);
	address[n] = '\0';
	if (inet_pton(AF_INET6, address, &a) != 1 || inet_ntop(AF_INET6, &a, ret, HOST_SIZE) == NULL)
		return false;
	end++;
	return end == text + size || (*end == ':' && is_port(end + 1, (size_t) (text + size - end - 1)));
}

bool host_parse(const char *text, size_t size, char ret[HOST_SIZE])
{
	const char *colon = memchr(text, ':', size);
	size_t n = colon != NULL ? (size_t) (colon - text) : size;

	if (size > 0 && text[0] == '[')
		return parse_bracketed(text, size, ret);
	if (n > 1 && text[n - 1] == '.')
		n--;
	if (n == 0 || n >= HOST_SIZE || (colon != NULL && !is_port(colon + 1, (size_t) (text + size - colon - 1))))
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		if (c >= 'A' && c <= 'Z')
			c = (char) (c - 'A' + 'a');
		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.'))
			return false;
		ret[i] = c;
	}
	ret[n] = '\0';
	return ret[0] != '.';
}

bool host_is_loopback(const char *host)
{
	static const char suffix[] = ".localhost";
	size_t n = strlen(host), m = sizeof suffix - 1;
	struct in_addr a;

	if (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 || (n > m && strcmp(host + n - m, suffix) == 0))
		return true;
	return inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
}
