/* Names in their one form. */
#include <errno.h>
#include <string.h>

#include "policy/network-parts.h"

enum { NAME_MAX_BYTES = 253, LABEL_MAX_BYTES = 63 };

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_label(const char *p, size_t size)
{
	if (size == 0 || size > LABEL_MAX_BYTES || p[0] == '-' || p[size - 1] == '-')
		return false;
	for (size_t i = 0; i < size; i++)
		if (!(p[i] >= 'a' && p[i] <= 'z') && !is_digit(p[i]) && p[i] != '-' && p[i] != '_')
			return false;
	return true;
}

/* inet_aton(3) reads "127.1", "0x7f.1" and "2130706433" as addresses, and so do many clients: no name may look like that. */
static bool is_number(const char *label, size_t size)
{
	if (size >= 2 && label[0] == '0' && label[1] == 'x')
		return true;
	for (size_t i = 0; i < size; i++)
		if (!is_digit(label[i]))
			return false;
	return true;
}

static bool is_name(const char *name)
{
	for (const char *p = name;;) {
		size_t size = strcspn(p, ".");

		if (!is_label(p, size))
			return false;
		if (p[size] == '\0')
			return !is_number(p, size);
		p += size + 1;
	}
}

int network_name(const char *text, size_t size, char ret[NETWORK_NAME_SIZE])
{
	char name[NETWORK_NAME_SIZE] = "";

	/* The root's dot makes no other name; two dots make an empty label. */
	if (size > 1 && text[size - 1] == '.')
		size--;
	if (size == 0 || size > NAME_MAX_BYTES)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\0') /* what follows would be dialled by nobody and checked by nobody */
			return -EINVAL;
		name[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char) (text[i] - 'A' + 'a') : text[i];
	}
	if (!is_name(name))
		return -EINVAL;
	memcpy(ret, name, sizeof name);
	return 0;
}

int network_pattern(const char *text, size_t size, char ret[NETWORK_NAME_SIZE])
{
	char base[NETWORK_NAME_SIZE];

	if (size < 2 || text[0] != '*' || text[1] != '.')
		return network_name(text, size, ret);
	/* "*." and the shortest label in its place have the same length. */
	if (network_name(text + 2, size - 2, base) < 0 || strlen(base) + 2 > NAME_MAX_BYTES)
		return -EINVAL;
	memcpy(ret, "*.", 2);
	memcpy(ret + 2, base, strlen(base) + 1);
	return 0;
}

size_t network_pattern_covers(const char *pattern, const char *name)
{
	size_t size = strlen(name), end;

	if (strncmp(pattern, "*.", 2) != 0)
		return strcmp(pattern, name) == 0 ? SIZE_MAX : 0;
	end = strlen(pattern) - 1; /* with the dot: "evil-example.org" is no subdomain of example.org */
	return size > end && strcmp(name + size - end, pattern + 1) == 0 ? end : 0;
}
