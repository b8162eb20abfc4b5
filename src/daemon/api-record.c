/* What has happened, for people and programs: the output of a sandbox's processes as text, the events of all sandboxes, and the
 * description of this interface. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"

/* Made by scripts/embed from openapi.json. */
extern const char openapi_document[];
extern const uint64_t openapi_document_size;

/* ---- Logs. ---- */

enum { LINE_MAX_BYTES = 64 * 1024 }; /* a longer line is cut into several */

/* Process after process in the order of their starts, each as its output came, a line as soon as it is whole. Only places are
 * kept between two events of the loop, since processes and chunks may go meanwhile. */
struct logs {
	struct request *request;
	struct sandbox *sandbox;
	uint32_t process; /* id of the one under way, or of the last one */
	bool within;
	uint64_t number, end;           /* next chunk, and the first that was not there when this process was begun */
	struct evbuffer *rest[STREAMS]; /* begun lines */
};

static void logs_free(struct logs *l)
{
	l->sandbox->holds--;
	for (size_t i = 0; i < STREAMS; i++)
		if (l->rest[i] != NULL)
			evbuffer_free(l->rest[i]);
	free(l);
}

static void logs_gone(struct request *r)
{
	struct logs *l = r->data;

	request_reset(r);
	logs_free(l);
}

static void write_line(struct logs *l, const struct process *p, unsigned stream, size_t size)
{
	static const char *const names[STREAMS] = {"stdout", "stderr"};
	struct evbuffer *rest = l->rest[stream];
	char head[64];
	int n = snprintf(head, sizeof head, "%lld %s ", (long long) p->pid, p->tty ? "tty" : names[stream]);
	const unsigned char *line = evbuffer_pullup(rest, (ev_ssize_t) size);

	if (line == NULL && size > 0)
		return;
	stream_write(l->request, head, (size_t) n);
	if (size > 0)
		stream_write(l->request, line, size);
	stream_write(l->request, "\n", 1);
	(void) evbuffer_drain(rest, size);
}

static void write_lines(struct logs *l, const struct process *p, const struct chunk_view *c)
{
	struct evbuffer *rest = l->rest[c->stream];

	(void) evbuffer_add(rest, c->data, c->size);
	for (;;) {
		struct evbuffer_ptr end = evbuffer_search(rest, "\n", 1, NULL);

		if (end.pos >= 0 && end.pos < LINE_MAX_BYTES) {
			write_line(l, p, c->stream, (size_t) end.pos);
			(void) evbuffer_drain(rest, 1);
		} else if (evbuffer_get_length(rest) >= LINE_MAX_BYTES) {
			write_line(l, p, c->stream, LINE_MAX_BYTES);
		} else {
			break;
		}
	}
}

static void write_rest(struct logs *l, const struct process *p)
{
	for (unsigned i = 0; i < STREAMS; i++)
		if (evbuffer_get_length(l->rest[i]) > 0)
			write_line(l, p, i, evbuffer_get_length(l->rest[i]));
}

/* The process that is under way, or the next one; NULL: there is none any more. */
static const struct process *current(struct logs *l)
{
	const struct process *next = NULL;

	for (const struct process *p = l->sandbox->processes; p != NULL; p = p->older) {
		if (l->within && p->id == l->process)
			return p;
		if (p->state != PROCESS_STARTING && !p->failed && p->id > l->process && (next == NULL || p->id < next->id))
			next = p;
	}
	if (next == NULL)
		return NULL;
	/* One that has gone meanwhile leaves half a line behind, and nobody whose it was. */
	for (size_t i = 0; i < STREAMS; i++)
		(void) evbuffer_drain(l->rest[i], evbuffer_get_length(l->rest[i]));
	l->within = true;
	l->process = next->id;
	l->number = 0;
	l->end = next->next_number;
	return next;
}

static void logs_pump(struct request *r)
{
	struct logs *l = r->data;

	while (stream_queued(r) < STREAM_ROOM) {
		const struct process *p = current(l);
		struct chunk_view c;

		if (p == NULL) {
			stream_end(r);
			logs_free(l);
			return;
		}
		if (process_chunk(p, l->number, &c) && c.number < l->end) {
			write_lines(l, p, &c);
			l->number = c.number + 1;
			continue;
		}
		write_rest(l, p);
		l->within = false;
	}
}

static void get_logs(struct request *r)
{
	struct sandbox *s = sandbox_or_record_of(r);
	struct logs *l;

	if (s == NULL)
		return;
	l = xcalloc(1, sizeof *l);
	*l = (struct logs){.request = r, .sandbox = s, .rest = {evbuffer_new(), evbuffer_new()}};
	s->holds++;
	if (l->rest[0] == NULL || l->rest[1] == NULL) {
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the answer");
		logs_free(l);
		return;
	}
	r->data = l;
	request_on_gone(r, logs_gone);
	stream_begin(r, 200, "text/plain; charset=utf-8", ZW_UNLIMITED);
	stream_on_room(r, logs_pump);
	logs_pump(r);
}

/* ---- Events, the description. ---- */

static void get_events(struct request *r)
{
	bool follow;

	if (request_query_bool(r, "follow", true, &follow))
		sandboxes_events_follow(r->daemon->sandboxes, r, follow);
}

static void get_openapi(struct request *r)
{
	respond_text(r, 200, "application/json", openapi_document, (size_t) openapi_document_size);
}

static const struct route routes[] = {
    {"GET", "/v1/sandboxes/{id}/logs", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_logs, NULL, 0},
    {"GET", "/v1/events", SCOPE_ADMIN, TAKES_NOTHING, ROUTE_LASTING, NULL, get_events, NULL, 0},
    {"GET", "/v1/openapi.json", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_openapi, NULL, 0},
};

void api_record_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
