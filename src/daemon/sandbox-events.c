#include "daemon/sandbox-events.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/sandbox.h"
#include "daemon/sse.h"

enum { EVENTS_MAX = 1000, EVENT_BYTES_MAX = 16384 };

struct reader {
	struct reader *next;
	struct sandbox_events *of;
	struct sse *sse;
	uint64_t at; /* number of the next event to send */
	bool follow;
};

/* A ring: event n is at n % EVENTS_MAX. */
struct sandbox_events {
	char *texts[EVENTS_MAX];
	char kinds[EVENTS_MAX][24];
	uint64_t first, next;
	struct reader *readers;
	bool over;
};

static void reader_end(struct reader *r)
{
	struct reader **at = &r->of->readers;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	sse_end(r->sse);
	free(r);
}

static void pump(struct reader *r)
{
	const struct sandbox_events *e = r->of;

	if (r->at < e->first)
		r->at = e->first; /* older ones are not kept */
	for (; r->at < e->next && sse_room(r->sse); r->at++)
		sse_send_text(r->sse, r->at, e->kinds[r->at % EVENTS_MAX], e->texts[r->at % EVENTS_MAX]);
	if (r->at == e->next && (e->over || !r->follow))
		reader_end(r);
}

static void pump_all(struct sandbox_events *e)
{
	for (struct reader *r = e->readers, *next; r != NULL; r = next) {
		next = r->next;
		pump(r);
	}
}

static struct sandbox_events *events_of(struct sandbox *s)
{
	if (s->events == NULL) {
		s->events = xcalloc(1, sizeof *s->events);
		s->events->first = s->events->next = 1;
	}
	return s->events;
}

void sandbox_event(struct sandbox *s, const char *kind, json_t *members)
{
	struct sandbox_events *e = events_of(s);
	size_t at = e->next % EVENTS_MAX;
	char *text;

	(void) json_object_set_new(members, "schema", json_string("zwinger.event/1"));
	(void) json_object_set_new(members, "time", json_time(now_realtime()));
	(void) json_object_set_new(members, "sandbox_id", json_string(s->id));
	(void) json_object_set_new(members, "kind", json_string(kind));
	text = json_dumps(members, JSON_COMPACT);
	json_decref(members);
	if (text == NULL || strlen(text) > EVENT_BYTES_MAX) {
		free(text);
		return;
	}
	free(e->texts[at]);
	e->texts[at] = text;
	(void) snprintf(e->kinds[at], sizeof e->kinds[at], "%s", kind);
	e->next++;
	if (e->next - e->first > EVENTS_MAX)
		e->first++;
	pump_all(e);
}

/* The kinds of the wire alone become names of events. */
void sandbox_event_of(struct sandbox *s, const char *kind, const json_t *m)
{
	static const char *const kinds[] = {"denial", "connection", "limit", "exec", "lost"};
	json_t *record = json_object_get(m, "record"), *count = json_object_get(m, "count"), *members;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kind, kinds[i]) != 0)
			continue;
		members = json_object();
		if (record != NULL)
			(void) json_object_set(members, "record", record);
		if (count != NULL)
			(void) json_object_set(members, "count", count);
		sandbox_event(s, kinds[i], members);
	}
}

void sandbox_events_over(struct sandbox *s)
{
	if (s->events == NULL)
		return;
	s->events->over = true;
	pump_all(s->events);
}

void sandbox_events_free(struct sandbox *s)
{
	struct sandbox_events *e = s->events;

	if (e == NULL)
		return;
	while (e->readers != NULL)
		reader_end(e->readers);
	for (size_t i = 0; i < EVENTS_MAX; i++)
		free(e->texts[i]);
	free(e);
	s->events = NULL;
}

static void on_gone(struct request *r)
{
	reader_end(r->data);
}

static void on_room(struct request *r)
{
	pump(r->data);
}

void sandbox_events_follow(struct sandbox *s, struct request *r, bool follow)
{
	struct sandbox_events *e = events_of(s);
	struct sse *sse = sse_begin(r);
	struct reader *reader;

	if (sse == NULL)
		return;
	reader = xcalloc(1, sizeof *reader);
	*reader = (struct reader){
	    .next = e->readers, .of = e, .sse = sse, .at = sse_last_id(r, 0) + 1, .follow = follow && s->state != SANDBOX_ENDED};
	e->readers = reader;
	r->data = reader;
	request_on_gone(r, on_gone);
	sse_on_room(sse, on_room);
	pump(reader);
}
