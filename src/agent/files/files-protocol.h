/* The protocol between the daemon and `zwinger-files`, the program that works on files inside a sandbox. Theory of operation:
 *
 * The program runs inside, behind every wall, as the sandbox's user; it decides nothing and can do nothing that other programs of
 * the sandbox cannot. So a symbolic link that code inside has planted leads to what that code reaches anyhow. It is started by
 * START_CHANNEL and START_PROGRAM of agent/protocol.h. Nothing that it says is trusted: code inside may have taken its place.
 *
 * Descriptor 3 is a SOCK_SEQPACKET socket that carries requests, one a message, inwards only: the daemon has shut down its own
 * receiving side. Descriptor 1 is a pipe that carries answers, each a header and a body, outwards only. So no descriptor can come
 * out: a received one would have to be closed, and closing a socket that lingers, or reading a file of a slow file system, stops
 * the one thread that serves everybody. Contents flow through pipes that the daemon makes and passes in with READ and WRITE.
 *
 * Requests are worked on side by side. Each is answered by exactly one DONE, its last answer; answers of different requests come
 * in any order.
 *     READ    path, offset, length; fd: a pipe to write to    OPENED (how many bytes come), then DONE, when all are in the pipe
 *     WRITE   path, mode; fd: a pipe to read from             OPENED, then, after COMMIT or CANCEL, DONE with the entry
 *     WRITE   with FILES_WHOLE: path, mode, the data          DONE with the entry
 *     COMMIT  id of a WRITE or UNPACK; length: bytes in all   none of its own. A WRITE shows nothing under the path before it
 *     CANCEL  id of any request                               none of its own; that one's DONE says ECANCELED, if it is not over
 *     STAT    path                                            DONE with the entry
 *     LIST    path, depth, limit, other: last path before     ENTRY..., DONE (FILES_MORE: go on behind the last one)
 *     MKDIR   path, mode                                      DONE with the entry
 *     MOVE    path, other: where to                           DONE with the entry
 *     REMOVE  path                                            DONE
 *     WATCH   path                                            OPENED, then EVENT..., DONE when the folder is gone
 *     USER    path: a name                                    DONE with uid and gid
 *     PACK    path: a folder; fd: a pipe to write to          OPENED, then DONE, when the whole tree is in the pipe
 *     UNPACK  path: a folder; fd: a pipe to read from         OPENED, then, after COMMIT, DONE
 *
 * Metadata of a file are names and values, as extended attributes user.e2b.NAME. A message has them as a row of texts, each with
 * its NUL: name, value, name, value... (FILES_METADATA says when.) A file keeps them when it is moved, copied or packed, and a
 * WRITE replaces all of them: what takes the place of a file has those of the request alone.
 *
 * Paths are bytes without NUL, absolute or relative to HOME; "." and ".." and doubled slashes are resolved by the text alone.
 * Paths in answers are absolute. Errors are errno values of the operation, and FILES_NOT_REGULAR and its like. Integers have the
 * byte order of the machine; nothing is padded. */
#pragma once

#include <stdint.h>

#define FILES_REQUEST_FD 3
#define FILES_ANSWER_FD 1

enum {
	FILES_PATH_MAX = 4096,         /* with the NUL that is not sent */
	FILES_USER_MAX = 32,           /* bytes of a user's or group's name */
	FILES_WHOLE_MAX = 65536,       /* data of one WRITE message */
	FILES_LIST_MAX = 1000,         /* entries of one LIST */
	FILES_LIST_BYTES = 262144,     /* about as many bytes of entries end a LIST early */
	FILES_DEPTH_MAX = 64,          /* of LIST */
	FILES_METADATA_MAX = 4608,     /* bytes of one file's names and values, with their NULs */
	FILES_METADATA_NAME_MAX = 246, /* bytes of a name, without its NUL: what the file system has room for behind user.e2b. */
	FILES_BODY_MAX = 17920,        /* of an answer */
	FILES_JOBS_MAX = 64,           /* requests at once; more are answered EAGAIN */
	FILES_WATCH_FOLDERS = 8192     /* of one WATCH; more are not watched, which an overflow event says */
};

enum files_type {
	FILES_READ = 1,
	FILES_WRITE,
	FILES_COMMIT,
	FILES_CANCEL,
	FILES_STAT,
	FILES_LIST,
	FILES_MKDIR,
	FILES_MOVE,
	FILES_REMOVE,
	FILES_WATCH,
	FILES_USER,
	FILES_PACK,
	FILES_UNPACK,
	FILES_OPENED = 0x81,
	FILES_ENTRY,
	FILES_EVENT,
	FILES_DONE,
};

enum files_flags {
	FILES_WHOLE = 1,      /* WRITE: the data are in the message, and are committed at once */
	FILES_IF_ABSENT = 2,  /* WRITE: EEXIST when there is something */
	FILES_MODE = 4,       /* WRITE, MKDIR: `mode` holds; else 0644 and 0755, or what the replaced file had */
	FILES_FROM_END = 8,   /* READ: `offset` counts from the end */
	FILES_REPLACE = 16,   /* MOVE: as rename(2) replaces */
	FILES_RECURSIVE = 32, /* REMOVE, WATCH */
	FILES_ENTRIES = 64,   /* WATCH: events come with the entry */
	FILES_REAL = 128,     /* STAT, LIST, WATCH: a link's target is told as the path that it leads to in the end, if any */
	FILES_METADATA =
	    256, /* WRITE: the file gets metadata. What tells entries: they come with theirs (of a link: its target's) */
	FILES_FLAGS = 511,
};

/* Errors beside those of errno.h. */
enum files_error {
	FILES_NOT_REGULAR = 4000, /* a FIFO, socket or device where a file must be */
	FILES_BAD_RANGE,          /* READ: the offset lies behind the end; OPENED came before, with the size */
	FILES_SHORT,              /* READ: the file has become shorter; WRITE: fewer or more bytes came than COMMIT says */
};

/* Then `path`, `other`, the metadata, `data`. */
struct files_request {
	uint32_t id; /* COMMIT, CANCEL: of the request that is meant */
	uint16_t type, flags;
	uint32_t mode; /* permission bits, at most 0777 */
	uint32_t limit, depth;
	uint16_t path_size, other_size;
	uint32_t data_size;
	uint16_t metadata_size; /* of WRITE with FILES_METADATA */
	uint16_t reserved;      /* 0 */
	uint64_t offset, length;
};

struct files_answer {
	uint32_t size; /* of the body */
	uint16_t type;
	uint16_t reserved; /* 0 */
	uint32_t id;
};

/* Then path, target, user, group, metadata. Times are those of lstat(2): a link is described, not followed. */
struct files_stat {
	uint64_t size;
	int64_t mtime; /* seconds since 1970 */
	uint32_t mtime_nsec;
	uint32_t mode;        /* st_mode: type and permissions */
	uint32_t target_mode; /* of a link: st_mode of where it leads, 0 for nowhere */
	uint32_t uid, gid;
	uint16_t path_size, target_size;
	uint8_t user_size, group_size; /* 0: no name known */
	uint16_t metadata_size;
	uint32_t reserved; /* 0 */
};

/* Then, of READ, the entry (of what was opened: links are followed). */
struct files_opened {
	uint64_t length; /* READ: bytes that come; UINT64_MAX: until the pipe ends (procfs and its like) */
	uint64_t offset; /* READ: of the first */
};

enum files_event_kind {
	FILES_EVENT_CREATE = 1, /* made here or moved to here */
	FILES_EVENT_WRITE,
	FILES_EVENT_REMOVE,
	FILES_EVENT_RENAME, /* moved away from here */
	FILES_EVENT_ATTRIBUTES,
	FILES_EVENT_OVERFLOW, /* events were lost, or folders are not watched; no path */
};

/* Then the path, then with `has_entry` the entry. */
struct files_event {
	uint16_t kind, path_size;
	uint16_t has_entry; /* 0 or 1 */
	uint16_t folder;    /* 1: the path is, or was, a folder */
};

enum files_done_flags { FILES_DONE_ENTRY = 1, FILES_DONE_CREATED = 2, FILES_DONE_MORE = 4, FILES_DONE_FLAGS = 7 };

/* Then with FILES_DONE_ENTRY the entry. */
struct files_done {
	uint64_t bytes; /* READ, WRITE, PACK, UNPACK: how many went through the pipe or came in the message */
	int32_t error;  /* 0, errno, or an enum files_error */
	uint32_t flags;
	uint32_t uid, gid; /* USER */
};
