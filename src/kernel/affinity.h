/* Processors that a process may run on (sched_setaffinity(2)). */
#pragma once

/* Confines the calling thread, and what it starts, to at most `count` of the processors that it may run on now, chosen at random
 * so that sandboxes spread. Async-signal-safe. 0 or negative errno. Only a limit as long as the filter keeps sched_setaffinity
 * from being called again. */
int affinity_confine(unsigned count);
