/* The output of a sandbox's processes as text, a line each with pid and stream: what is kept, and with ?follow=true what comes.
 *
 * Process after process in the order of their starts, each as its output came, a line as soon as it is whole. Whoever reads logs
 * sets no pace: a program never waits for them, and what is gone before it was read is told in its place. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/sandbox.h"

enum {
	LINE_MAX_BYTES = 64 * 1024, /* a longer line is cut into several */
	PLACES_SPARE = 256,         /* of processes that are gone */
};

/* Where we are in the output of a process. Only places are kept between two events of the loop, since processes and chunks may go
 * meanwhile. */
struct place {
	struct place *next;
	uint32_t process;               /* its id */
	uint32_t walk;                  /* the last one that met it */
	bool over;                      /* all of it was written */
	uint64_t seen, end;             /* bytes of its output; end: without following, what there was when it was met */
	struct evbuffer *rest[STREAMS]; /* begun lines; NULL before the first */
};

struct logs {
	struct request *request;
	struct sandbox *sandbox;
	bool follow;
	struct sandbox_watch watch;
	bool behind;          /* more is there than the client has taken */
	struct place *places; /* in the order of the ids */
	struct place *hint;   /* where to look first, NULL: at the beginning */
	size_t place_count;
	uint32_t walk;
	/* Of the process that is being written: */
	const struct process *process;
	struct place *place;
	uint64_t end; /* of what is to be written */
};

/* ---- Life. ---- */

static void drop_rest(struct place *at)
{
	for (size_t i = 0; i < STREAMS; i++) {
		if (at->rest[i] != NULL)
			evbuffer_free(at->rest[i]);
		at->rest[i] = NULL;
	}
}

static void place_free(struct place *at)
{
	drop_rest(at);
	free(at);
}

static void logs_free(struct logs *l)
{
	sandbox_watch_remove(l->sandbox, &l->watch);
	l->sandbox->holds--;
	while (l->places != NULL) {
		struct place *at = l->places;

		l->places = at->next;
		place_free(at);
	}
	free(l);
}

static void logs_gone(struct request *r)
{
	struct logs *l = r->data;

	request_reset(r);
	logs_free(l);
}

/* ---- Lines. ---- */

static void write_head(struct logs *l, const char *stream)
{
	char head[64];
	int n = snprintf(head, sizeof head, "%lld %s ", (long long) l->process->pid, stream);

	stream_write(l->request, head, (size_t) n);
}

static void write_line(struct logs *l, unsigned stream, size_t size)
{
	static const char *const names[STREAMS] = {"stdout", "stderr"};
	struct evbuffer *rest = l->place->rest[stream];
	const unsigned char *line = size > 0 ? evbuffer_pullup(rest, (ev_ssize_t) size) : NULL;

	if (line == NULL && size > 0)
		return;
	write_head(l, l->process->tty ? "tty" : names[stream]);
	if (size > 0)
		stream_write(l->request, line, size);
	stream_write(l->request, "\n", 1);
	(void) evbuffer_drain(rest, size);
}

static void write_lines(struct logs *l, unsigned stream, const char *data, size_t size)
{
	struct evbuffer **rest = &l->place->rest[stream];

	if (*rest == NULL)
		*rest = evbuffer_new();
	if (*rest == NULL || evbuffer_add(*rest, data, size) < 0)
		return; /* without memory a line is missing */
	for (;;) {
		struct evbuffer_ptr end = evbuffer_search(*rest, "\n", 1, NULL);

		if (end.pos >= 0 && end.pos < LINE_MAX_BYTES) {
			write_line(l, stream, (size_t) end.pos);
			(void) evbuffer_drain(*rest, 1);
		} else if (evbuffer_get_length(*rest) >= LINE_MAX_BYTES) {
			write_line(l, stream, LINE_MAX_BYTES);
		} else {
			break;
		}
	}
}

static void write_rest(struct logs *l)
{
	for (unsigned i = 0; i < STREAMS; i++)
		if (l->place->rest[i] != NULL && evbuffer_get_length(l->place->rest[i]) > 0)
			write_line(l, i, evbuffer_get_length(l->place->rest[i]));
}

static void write_lost(struct logs *l, uint64_t bytes)
{
	char text[64];
	int n = snprintf(text, sizeof text, "[zwinger: %llu bytes left out]\n", (unsigned long long) bytes);

	write_rest(l); /* no line of two ends */
	write_head(l, "-");
	stream_write(l->request, text, (size_t) n);
}

static bool take_chunk(void *arg, const struct chunk_view *c)
{
	struct logs *l = arg;
	struct place *at = l->place;
	uint64_t begin = c->end - c->size;
	size_t skip, size;

	if (begin >= l->end || stream_queued(l->request) >= STREAM_ROOM)
		return false;
	if (begin > at->seen && l->follow)
		write_lost(l, begin - at->seen);
	skip = at->seen > begin ? (size_t) (at->seen - begin) : 0;
	size = c->end <= l->end ? c->size : (size_t) (l->end - begin);
	write_lines(l, c->stream, c->data + skip, size - skip);
	at->seen = begin + size;
	return true;
}

/* ---- Processes. ---- */

static struct place *place_of(struct logs *l, const struct process *p)
{
	struct place **at = l->hint != NULL && l->hint->process < p->id ? &l->hint->next : &l->places, *new;

	if (l->hint != NULL && l->hint->process == p->id)
		return l->hint;
	while (*at != NULL && (*at)->process < p->id)
		at = &(*at)->next;
	if (*at == NULL || (*at)->process != p->id) {
		new = xcalloc(1, sizeof *new);
		*new = (struct place){.next = *at, .process = p->id, .end = p->added};
		*at = new;
		l->place_count++;
	}
	return l->hint = *at;
}

/* Those that the walk has not met: the record of the process has gone. Half a line stays unsaid, since nobody knows any more
 * whose it was. */
static void drop_places(struct logs *l)
{
	for (struct place **at = &l->places; *at != NULL;) {
		struct place *gone = *at;

		if (gone->walk == l->walk) {
			at = &gone->next;
			continue;
		}
		*at = gone->next;
		l->place_count--;
		place_free(gone);
	}
	l->hint = NULL;
}

/* True: all that is there for now was written. */
static bool write_process(struct logs *l, const struct process *p)
{
	struct place *at = place_of(l, p);
	bool whole;

	at->walk = l->walk;
	if (at->over)
		return true;
	l->process = p;
	l->place = at;
	l->end = l->follow ? p->added : at->end;
	process_chunks(p, at->seen, take_chunk, l);
	whole = stream_queued(l->request) < STREAM_ROOM || at->seen >= l->end;
	if (whole && (!l->follow || p->state == PROCESS_ENDED)) {
		write_rest(l);
		drop_rest(at);
		at->over = true;
	}
	return whole;
}

static bool has_output(const struct process *p)
{
	return p->state != PROCESS_STARTING && !p->failed;
}

/* All processes, as far as the client takes it. */
static void walk(struct logs *l)
{
	const struct process *p = l->sandbox->processes;
	bool whole = true;

	while (p != NULL && p->older != NULL)
		p = p->older;
	l->walk++;
	for (l->hint = NULL; p != NULL && whole; p = p->newer)
		if (has_output(p))
			whole = write_process(l, p);
	l->behind = !whole;
	if (whole)
		drop_places(l);
}

static void logs_pump(struct request *r)
{
	struct logs *l = r->data;

	walk(l);
	if (l->behind || (l->follow && l->sandbox->state != SANDBOX_ENDED))
		return;
	stream_end(r);
	logs_free(l);
}

static void logs_moved(void *arg, const struct process *p)
{
	struct logs *l = arg;

	if (l->behind)
		return; /* until there is room */
	if (p == NULL || l->place_count > l->sandbox->process_count + PLACES_SPARE)
		logs_pump(l->request);
	else if (has_output(p))
		l->behind = !write_process(l, p);
}

static void get_logs(struct request *r)
{
	struct sandbox *s = sandbox_or_record_of(r);
	struct logs *l;
	bool follow;

	if (s == NULL || !request_query_bool(r, "follow", false, &follow))
		return;
	l = xcalloc(1, sizeof *l);
	*l = (struct logs){.request = r, .sandbox = s, .follow = follow, .watch = {.moved = logs_moved, .arg = l}};
	s->holds++;
	if (follow)
		sandbox_watch_add(s, &l->watch);
	r->data = l;
	request_on_gone(r, logs_gone);
	stream_begin(r, 200, "text/plain; charset=utf-8", ZW_UNLIMITED);
	stream_on_room(r, logs_pump);
	logs_pump(r);
}

static const struct route routes[] = {
    {"GET", "/v1/sandboxes/{id}/logs", SCOPE_USE, TAKES_NOTHING, ROUTE_LASTING, NULL, get_logs, NULL, 0},
};

void api_logs_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
