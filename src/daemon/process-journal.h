/* The kept output of a process, once more, in a memory file that outlives the daemon: its supervisor holds it for the next one.
 *
 * Exactness. Bytes go from a pipe into the file in one system call, by which the position of the file moves too: whenever the
 * daemon is killed, a byte is in the pipe or in the file. What a terminal wrote has to be read first; it may be lost with the
 * daemon in that instant.
 *
 *	head (a page)  first record, bytes of each stream before it, and what the daemon says of the whole (journal_mark)
 *	record         u32 stream, u32 size (0: to the end of the file), bytes
 *
 * Records that are not needed are given back to the system; offsets only grow. Not thread safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct journal;

/* Offsets are bytes of all streams since the start. */
struct journal_mark {
	uint64_t from;    /* the first that is kept */
	uint64_t dropped; /* bytes before it that nobody has read */
	uint64_t passed;  /* as far as anybody has read */
};

/* NULL: there is no memory for it. */
struct journal *journal_new(void);
/* One of another daemon; `fd` is taken over. NULL: it is none. */
struct journal *journal_open(int fd);
struct journal *journal_free(struct journal *j);
int journal_fd(const struct journal *j);

/* As read(2) from `fd`, a pipe; the bytes are in the file then. -EIO: the file takes no more, and nothing was read. */
ssize_t journal_read(struct journal *j, unsigned stream, int fd, char *data, size_t size);
/* Bytes that were read otherwise. 0 or -EIO. */
int journal_add(struct journal *j, unsigned stream, const char *data, size_t size);
/* Writes it down, and gives back what lies before `from`. */
void journal_mark(struct journal *j, const struct journal_mark *mark);

/* After journal_open(): what was marked, and how many bytes of this stream there were before those in the file. */
void journal_marked(const struct journal *j, struct journal_mark *ret);
uint64_t journal_before(const struct journal *j, unsigned stream);
/* Tells all that is in the file, once. False: what is in it makes no sense. */
bool journal_replay(struct journal *j, void (*add)(void *arg, unsigned stream, const char *data, size_t size), void *arg);
