/* Answers of zwinger-files (agent/files/files-protocol.h), decoded. Code inside a sandbox may have taken that program's place:
 * every byte is hostile. What is handed out keeps what the types and comments here promise; what it says of files is the
 * sandbox's word. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/files/files-protocol.h"

/* Names a file of the sandbox: no path in here may ever be used outside. */
struct files_entry {
	const char *path;         /* absolute, in the end NUL; any bytes, also such as are not UTF-8 */
	const char *target;       /* of a link, else NULL */
	const char *user, *group; /* letters, digits and -_.@+$ alone; "": no such name */
	uint64_t size;            /* at most INT64_MAX */
	int64_t mtime;            /* seconds, in the years 1 to 9999 */
	uint32_t mtime_nsec;
	uint32_t mode;        /* st_mode with one of the seven types */
	uint32_t target_mode; /* of a link: that of where it leads, 0 for nowhere */
	uint32_t uid, gid;
	const char *metadata; /* name, value, name, value, each any bytes and a NUL; no name is empty */
	size_t metadata_size; /* at most FILES_METADATA_MAX */
};

struct files_decoded {
	uint16_t type; /* FILES_OPENED, FILES_ENTRY, FILES_EVENT, FILES_DONE */
	uint32_t id;
	union {
		struct files_opened opened;
		struct files_event event;
		struct files_done done;
	};
	bool has_entry;
	struct files_entry entry;
	const char *path; /* of an event */
	char texts[4][FILES_PATH_MAX];
	char metadata[FILES_METADATA_MAX];
};

/* NULL, or what is wrong with a header: it says no type or no size that an answer can have. */
const char *files_check_head(const struct files_answer *head);
/* NULL and *ret (whose pointers lead into itself), or what is wrong. `body` has head->size bytes; the header has been checked. */
const char *files_decode(const struct files_answer *head, const void *body, struct files_decoded *ret);
