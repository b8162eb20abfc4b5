#include "daemon/sandbox-events.h"

#include <string.h>

#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/event-log.h"
#include "daemon/sandbox.h"

enum { OWN_EVENTS_MAX = 1000, OWN_BYTES_MAX = 1024 * 1024, ALL_EVENTS_MAX = 10000, ALL_BYTES_MAX = 8 * 1024 * 1024 };

/* What all sandboxes have together, those that are only remembered too. */
static const size_t sum_max = (size_t) 64 * 1024 * 1024;

static struct event_log *log_of(struct sandbox *s)
{
	if (s->events == NULL)
		s->events = event_log_new(OWN_EVENTS_MAX, OWN_BYTES_MAX, 1);
	return s->events;
}

/* Numbers of all begin with the time, so that they go on growing from one life of the service to the next. */
static struct event_log *log_of_all(struct sandboxes *all)
{
	if (all->events == NULL)
		all->events = event_log_new(ALL_EVENTS_MAX, ALL_BYTES_MAX, now_realtime());
	return all->events;
}

static struct sandbox *heaviest(struct sandbox *most)
{
	for (struct sandbox *s = most->all->newest; s != NULL; s = s->older)
		if (s->events != NULL && event_log_bytes(s->events) > event_log_bytes(most->events))
			most = s;
	return most;
}

/* The one that has most loses its oldest. A quarter at once, since to look at all of them takes a while. */
static void keep_the_sum(struct sandbox *s)
{
	struct sandboxes *all = s->all;

	if (all->event_bytes <= sum_max)
		return;
	while (all->event_bytes > sum_max / 4 * 3) {
		struct event_log *log = heaviest(s)->events;
		size_t before = event_log_bytes(log);

		event_log_shed(log, before / 2);
		all->event_bytes -= before - event_log_bytes(log);
		if (event_log_bytes(log) == before)
			break;
	}
}

static void add_own(struct sandbox *s, struct event_entry *e)
{
	struct event_log *log = log_of(s);

	s->all->event_bytes -= event_log_bytes(log);
	event_log_add(log, e);
	s->all->event_bytes += event_log_bytes(log);
	keep_the_sum(s);
}

void sandbox_event(struct sandbox *s, const char *kind, json_t *members)
{
	struct event_entry *e;

	(void) json_object_set_new(members, "schema", json_string("zwinger.event/1"));
	(void) json_object_set_new(members, "time", json_time(now_realtime()));
	(void) json_object_set_new(members, "sandbox_id", json_string(s->id));
	e = event_entry_new(kind, members);
	if (e == NULL)
		return;
	add_own(s, e);
	event_log_add(log_of_all(s->all), e);
	event_entry_unref(e);
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
	if (s->events != NULL)
		event_log_over(s->events);
}

void sandbox_events_free(struct sandbox *s)
{
	if (s->events != NULL)
		s->all->event_bytes -= event_log_bytes(s->events);
	s->events = event_log_free(s->events);
}

void sandbox_events_follow(struct sandbox *s, struct request *r, bool follow)
{
	event_log_follow(log_of(s), r, follow && s->state != SANDBOX_ENDED);
}

void sandboxes_events_follow(struct sandboxes *all, struct request *r, bool follow)
{
	event_log_follow(log_of_all(all), r, follow);
}
