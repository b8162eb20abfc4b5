/* Bytes between a pipe and a file of the state directory, moved by a process of its own: a file waits for its disk, and the
 * daemon's one thread never waits. A few work at a time, the others wait their turn.
 *
 * The process has nothing but the two descriptors, looks at none of the bytes, and ends with the daemon. It gives up when nothing
 * moves for a minute, or all of it takes a quarter of an hour: the far end of the pipe is in the hands of hostile code. */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct movers;
struct mover;

struct move {
	int from, to;   /* taken over, whatever comes of it; a file is read and written from its offset on */
	uint64_t most;  /* bytes; more are EFBIG */
	bool exact;     /* so many, and then no look at whether there are more; fewer are EIO */
	bool durable;   /* `to` is a file: on the disk when it ends well */
	uint64_t spare; /* `to` is a file: so many bytes stay free on its file system, else ENOSPC; 0: no look at that */
};

struct movers *movers_new(struct event_base *base);
/* Ends all of them without a callback; waits until they are gone. */
struct movers *movers_free(struct movers *all);

/* `done` comes once, from the loop, unless it is canceled: 0, or a positive errno. NULL: there is no memory. */
struct mover *mover_start(struct movers *all, const struct move *move, void (*done)(void *arg, int error), void *arg);
void mover_cancel(struct mover *m);
