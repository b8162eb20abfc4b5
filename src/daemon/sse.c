#include "daemon/sse.h"

#include <event2/buffer.h>
#include <event2/event.h>

#include "base/mem.h"
#include "daemon/http.h"
#include "policy/policy.h"
#include "policy/text.h"

enum { COMMENT_SECONDS = 15 };

struct sse {
	struct request *request;
	struct event *timer;
};

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	static const char comment[] = ":\n\n";
	struct sse *s = arg;

	(void) fd;
	(void) what;
	/* A client that does not even take comments is left to the server's own patience. */
	if (stream_queued(s->request) == 0)
		stream_write(s->request, comment, sizeof comment - 1);
}

struct sse *sse_begin(struct request *r)
{
	static const struct timeval every = {.tv_sec = COMMENT_SECONDS};
	struct sse *s = xcalloc(1, sizeof *s);

	*s = (struct sse){.request = r};
	s->timer = event_new(r->x->server->base, -1, EV_PERSIST, on_timer, s);
	if (s->timer == NULL || event_add(s->timer, &every) < 0) {
		if (s->timer != NULL)
			event_free(s->timer);
		free(s);
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the stream");
		return NULL;
	}
	respond_header(r, "Cache-Control", "no-store");
	stream_begin(r, 200, "text/event-stream", ZW_UNLIMITED);
	return s;
}

uint64_t sse_last_id(const struct request *r, uint64_t missing)
{
	const char *text = request_header(r, "last-event-id");
	uint64_t id;

	return text != NULL && parse_whole(text, &id) == 0 ? id : missing;
}

void sse_send_text(struct sse *s, uint64_t id, const char *event, const char *data)
{
	struct evbuffer *b = evbuffer_new();

	if (b == NULL) {
		if (s->request->x->conn != NULL)
			conn_cut_soon(s->request->x->conn);
		return;
	}
	if (id != UINT64_MAX)
		(void) evbuffer_add_printf(b, "id: %llu\n", (unsigned long long) id);
	(void) evbuffer_add_printf(b, "event: %s\ndata: %s\n\n", event, data);
	stream_write_buffer(s->request, b);
	evbuffer_free(b);
}

void sse_send(struct sse *s, uint64_t id, const char *event, json_t *data)
{
	cleanup_free char *text = data != NULL ? json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	json_decref(data);
	if (text != NULL)
		sse_send_text(s, id, event, text);
	else if (s->request->x->conn != NULL)
		conn_cut_soon(s->request->x->conn); /* a stream that has lost an event must not look whole */
}

bool sse_room(const struct sse *s)
{
	return stream_queued(s->request) < STREAM_ROOM;
}

void sse_on_room(struct sse *s, void (*room)(struct request *r))
{
	stream_on_room(s->request, room);
}

struct request *sse_request(struct sse *s)
{
	return s->request;
}

static struct request *release(struct sse *s)
{
	struct request *r = s->request;

	event_free(s->timer);
	free(s);
	return r;
}

void sse_end(struct sse *s)
{
	stream_end(release(s));
}

void sse_reset(struct sse *s)
{
	request_reset(release(s));
}
