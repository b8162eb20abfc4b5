#include "daemon/e2b/file-metadata.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "sandbox/encode.h"

static_assert(FILE_METADATA_BYTES_MAX + 2 * FILE_METADATA_COUNT_MAX <= FILES_METADATA_MAX, "a full set fits");

static bool is_printable(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~')
			return false;
	return true;
}

static void add_text(struct file_metadata *m, const char *text, size_t size)
{
	memcpy(m->set + m->size, text, size);
	m->set[m->size + size] = '\0';
	m->size += size + 1;
	m->bytes += size;
}

static bool has(const struct file_metadata *m, const char *name)
{
	const char *end = m->set + m->size;

	for (const char *at = m->set; at < end;) {
		if (strcmp(at, name) == 0)
			return true;
		at += strlen(at) + 1;
		at += strlen(at) + 1;
	}
	return false;
}

const char *file_metadata_add(struct file_metadata *m, const char *name, const char *value)
{
	char lower[FILES_METADATA_NAME_MAX + 1];
	size_t name_size = strlen(name), value_size = strlen(value);

	if (name_size == 0 || name_size > FILES_METADATA_NAME_MAX)
		return "expected a name of 1 to 246 bytes";
	if (!is_printable(name) || !is_printable(value))
		return "expected printable ASCII in names and values";
	if (m->count == FILE_METADATA_COUNT_MAX || name_size + value_size > FILE_METADATA_BYTES_MAX - m->bytes)
		return "expected at most 64 fields, and 4096 bytes of all names and values";
	for (size_t i = 0; i <= name_size; i++)
		lower[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char) (name[i] - 'A' + 'a') : name[i];
	if (has(m, lower))
		return "the same name stands there twice";
	add_text(m, lower, name_size);
	add_text(m, value, value_size);
	m->count++;
	return NULL;
}

json_t *file_metadata_to_json(const char *set, size_t size)
{
	json_t *o = size > 0 ? json_object() : NULL;

	for (size_t at = 0; at < size;) {
		const char *name = set + at, *value = name + strlen(name) + 1;
		cleanup_free char *key = encode_text(name), *text = encode_text(value);

		(void) json_object_set_new(o, key, json_string(text));
		at = (size_t) (value - set) + strlen(value) + 1;
	}
	return o;
}
