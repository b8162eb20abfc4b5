/* What PACK writes and UNPACK reads: records, each a header, a path below the packed folder, and for some a text or data. It
 * passes from one sandbox to another of the same machine, at once or from a snapshot, which keeps the version of this form with
 * it: integers have the byte order of the machine.
 *
 * A folder comes before what lies in it, and FOLDER_END after that, since its time changes with every entry. A file's DATA follow
 * it in the order of their offsets, behind its METADATA, if it has any; what no DATA says is a hole. Nothing in it is trusted:
 * whoever unpacks does it behind the walls of the sandbox that it is meant for, where a bad path leads to what code inside
 * reaches anyhow. */
#pragma once

#include <stdint.h>

enum archive_type {
	ARCHIVE_FOLDER = 1,
	ARCHIVE_FOLDER_END, /* mode and time once more */
	ARCHIVE_FILE,       /* size: in the end */
	ARCHIVE_DATA,       /* size: of the data; offset */
	ARCHIVE_LINK,       /* text: the target */
	ARCHIVE_SAME,       /* text: the path of a file before, of which this is another name */
	ARCHIVE_FIFO,
	ARCHIVE_END,      /* the last record */
	ARCHIVE_METADATA, /* size: of the names and values, as data; path: the folder or file of the record before */
};

/* Another one for each change of what is below. */
enum { ARCHIVE_VERSION = 2 };

enum { ARCHIVE_DATA_MAX = 65536, ARCHIVE_MODE = 01777 /* no set-id: it does nothing inside */ };

/* Then path, text, data. */
struct archive_head {
	uint16_t type, mode;
	uint16_t path_size, text_size;
	uint32_t mtime_nsec;
	uint32_t reserved; /* 0 */
	int64_t mtime;
	uint64_t size, offset;
};
