/* Metadata of files: X-Metadata-NAME of an upload, "metadata" of an entry. Both as a set in the form of struct files_entry. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "agent/files/files-protocol.h"

enum { FILE_METADATA_COUNT_MAX = 64, FILE_METADATA_BYTES_MAX = 4096 /* of names and values together */ };

struct file_metadata {
	char set[FILES_METADATA_MAX];
	size_t size, count, bytes;
};

/* Adds one of the header's: the name becomes lower case. NULL, or why it cannot be. */
const char *file_metadata_add(struct file_metadata *m, const char *name, const char *value);
/* {"name": "value"} of a set, owned by the caller; NULL when it is empty. Bytes that are no UTF-8 get escapes. */
json_t *file_metadata_to_json(const char *set, size_t size);
