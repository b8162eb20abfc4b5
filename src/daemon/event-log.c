#include "daemon/event-log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/sandbox.h"
#include "daemon/sse.h"

enum { ROOM_MIN = 16 };

struct event_entry {
	unsigned references;
	char kind[EVENT_KIND_SIZE];
	size_t size;
	char *text;
};

struct reader {
	struct reader *next;
	struct event_log *of;
	struct sse *sse;
	uint64_t at; /* number of the next event to send */
	bool follow;
};

/* A ring that grows: event n is at n % room. */
struct event_log {
	struct event_entry **ring;
	size_t room, events_max, bytes_max, bytes;
	uint64_t origin, first, next; /* origin: the number of the first of all */
	struct reader *readers;
	bool over;
};

/* ---- Events. ---- */

struct event_entry *event_entry_new(const char *kind, json_t *members)
{
	struct event_entry *e;
	char *text = NULL;

	if (json_object_set_new(members, "kind", json_string(kind)) == 0)
		text = json_dumps(members, JSON_COMPACT);
	json_decref(members);
	if (text == NULL || strlen(text) > EVENT_BYTES_MAX) {
		free(text);
		return NULL;
	}
	e = xcalloc(1, sizeof *e);
	*e = (struct event_entry){.references = 1, .size = strlen(text), .text = text};
	(void) snprintf(e->kind, sizeof e->kind, "%s", kind);
	return e;
}

void event_entry_unref(struct event_entry *e)
{
	if (e == NULL || --e->references > 0)
		return;
	free(e->text);
	free(e);
}

/* ---- Readers. ---- */

static void reader_end(struct reader *r)
{
	struct reader **at = &r->of->readers;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	sse_end(r->sse);
	free(r);
}

/* A gap is told, and not passed over in silence. */
static void tell_lost(struct reader *r)
{
	json_t *data = json_pack("{ss so sn ss sI}", "schema", "zwinger.event/1", "time", json_time(now_realtime()), "sandbox_id",
				 "kind", "lost", "count", (json_int_t) (r->of->first - r->at));

	r->at = r->of->first;
	sse_send(r->sse, UINT64_MAX, "lost", data);
}

static void pump(struct reader *r)
{
	const struct event_log *log = r->of;

	if (r->at < log->first && sse_room(r->sse))
		tell_lost(r);
	for (; r->at >= log->first && r->at < log->next && sse_room(r->sse); r->at++) {
		const struct event_entry *e = log->ring[r->at % log->room];

		sse_send_text(r->sse, r->at, e->kind, e->text);
	}
	if (r->at == log->next && (log->over || !r->follow))
		reader_end(r);
}

static void pump_all(struct event_log *log)
{
	for (struct reader *r = log->readers, *next; r != NULL; r = next) {
		next = r->next;
		pump(r);
	}
}

/* ---- The log. ---- */

struct event_log *event_log_new(size_t events, size_t bytes, uint64_t first)
{
	struct event_log *log = xcalloc(1, sizeof *log);

	*log = (struct event_log){.events_max = events, .bytes_max = bytes, .origin = first, .first = first, .next = first};
	return log;
}

static void drop_first(struct event_log *log)
{
	struct event_entry *e = log->ring[log->first % log->room];

	log->first++;
	log->bytes -= e->size;
	event_entry_unref(e);
}

static void grow(struct event_log *log)
{
	size_t room = log->room == 0 ? ROOM_MIN : log->room * 2;
	struct event_entry **ring = xcalloc(room, sizeof(struct event_entry *));

	for (uint64_t n = log->first; n < log->next; n++)
		ring[n % room] = log->ring[n % log->room];
	free(log->ring);
	log->ring = ring;
	log->room = room;
}

void event_log_add(struct event_log *log, struct event_entry *e)
{
	while (log->next > log->first && (log->next - log->first >= log->events_max || log->bytes + e->size > log->bytes_max))
		drop_first(log);
	if (log->next - log->first == log->room)
		grow(log);
	e->references++;
	log->ring[log->next++ % log->room] = e;
	log->bytes += e->size;
	pump_all(log);
}

size_t event_log_bytes(const struct event_log *log)
{
	return log->bytes + (size_t) (log->next - log->first) * (sizeof(struct event_entry) + sizeof(struct event_entry *));
}

void event_log_shed(struct event_log *log, size_t bytes)
{
	while (log->next > log->first && event_log_bytes(log) > bytes)
		drop_first(log);
}

void event_log_over(struct event_log *log)
{
	log->over = true;
	pump_all(log);
}

struct event_log *event_log_free(struct event_log *log)
{
	if (log == NULL)
		return NULL;
	while (log->readers != NULL)
		reader_end(log->readers);
	while (log->first < log->next)
		drop_first(log);
	free(log->ring);
	free(log);
	return NULL;
}

/* ---- Following. ---- */

static void on_gone(struct request *r)
{
	reader_end(r->data);
}

static void on_room(struct request *r)
{
	pump(r->data);
}

void event_log_follow(struct event_log *log, struct request *r, bool follow)
{
	uint64_t last = sse_last_id(r, 0);
	struct sse *sse = sse_begin(r);
	struct reader *reader;

	if (sse == NULL)
		return;
	reader = xcalloc(1, sizeof *reader);
	*reader = (struct reader){.next = log->readers, .of = log, .sse = sse, .at = log->origin, .follow = follow};
	/* A number that was never given is of another log: from the beginning then. */
	if (last >= log->origin && last < log->next)
		reader->at = last + 1;
	log->readers = reader;
	r->data = reader;
	request_on_gone(r, on_gone);
	sse_on_room(sse, on_room);
	pump(reader);
}
