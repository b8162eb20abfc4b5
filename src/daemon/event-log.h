/* A row of numbered events, of which the newest are kept, and the clients that follow it as server-sent events. One event may
 * stand in several logs: its text is shared. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_log;
struct event_entry;
struct request;

enum { EVENT_BYTES_MAX = 16384, EVENT_KIND_SIZE = 24 };

/* `members` (taken over) gets "kind"; NULL: without memory, or too long. `kind` is a word of ours. One reference, the caller's.
 */
struct event_entry *event_entry_new(const char *kind, json_t *members);
void event_entry_unref(struct event_entry *e);

/* Keeps at most `events` of them and `bytes` of their text. The first one has the number `first`, 1 or more. */
struct event_log *event_log_new(size_t events, size_t bytes, uint64_t first);
/* Ends who follows. NULL is fine. */
struct event_log *event_log_free(struct event_log *log);
/* Takes a reference of its own. */
void event_log_add(struct event_log *log, struct event_entry *e);
/* Memory of its events, also of those that another log has too. */
size_t event_log_bytes(const struct event_log *log);
/* Drops the oldest until no more than so much is left. */
void event_log_shed(struct event_log *log, size_t bytes);
/* No more will come: who follows is sent the rest, and the end. */
void event_log_over(struct event_log *log);
/* Takes the request over: from behind its Last-Event-ID, or the beginning. Where events are not kept any more an event "lost"
 * with their "count" stands in their place. Without `follow` the stream ends at the present. */
void event_log_follow(struct event_log *log, struct request *r, bool follow);
