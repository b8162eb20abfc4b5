/* Server-sent events: "id:", "event:", one "data:" line of JSON, a comment every 15 s. Used in place of stream_*() by routes with
 * ROUTE_LASTING; the request stays the handler's, which ends it with sse_end() or request_reset().
 *
 *	static void attach(struct request *r)
 *	{
 *		struct sse *s = sse_begin(r);
 *
 *		r->data = reader_new(s, sse_last_id(s));
 *		request_on_gone(r, attach_gone);     // which calls sse_end()
 *	}
 *
 * A client that reads slowly: send while sse_room() is true, then wait for the callback of sse_on_room(). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct request;
struct sse;

struct sse *sse_begin(struct request *r); /* 200; NULL when memory is out: the request is dead then */
/* What Last-Event-ID says; `missing` when it says nothing or no number. */
uint64_t sse_last_id(const struct request *r, uint64_t missing);
/* Takes over `data`. An `id` of UINT64_MAX is not written. `event` is a word of ours. */
void sse_send(struct sse *s, uint64_t id, const char *event, json_t *data);
/* The same with the JSON as text, on one line. */
void sse_send_text(struct sse *s, uint64_t id, const char *event, const char *data);
bool sse_room(const struct sse *s);
void sse_on_room(struct sse *s, void (*room)(struct request *r));
struct request *sse_request(struct sse *s);
/* Frees `s` and ends the request: in order, or by a reset. */
void sse_end(struct sse *s);
void sse_reset(struct sse *s);
