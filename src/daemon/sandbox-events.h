/* The record of a sandbox, and that of all: the newest events, numbered, for GET S/events and GET /v1/events. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct request;
struct sandbox;
struct sandboxes;

/* Takes over `members`, which get schema, time, sandbox_id and kind. */
void sandbox_event(struct sandbox *s, const char *kind, json_t *members);
/* What the supervisor tells ("event"). */
void sandbox_event_of(struct sandbox *s, const char *kind, const json_t *m);
/* No more will come. */
void sandbox_events_over(struct sandbox *s);
void sandbox_events_free(struct sandbox *s);

/* GET S/events: takes the request over. */
void sandbox_events_follow(struct sandbox *s, struct request *r, bool follow);
/* GET /v1/events: of all sandboxes, those of single runs included. */
void sandboxes_events_follow(struct sandboxes *all, struct request *r, bool follow);
