/* GET S/files/watch: changes below a folder as server-sent events.
 *
 * The sandbox makes changes as fast as it likes, and the client takes them as slowly as it likes: what does not fit into the
 * stream's own bound is dropped, and one "overflow" stands for it as soon as there is room. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/files-json.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox.h"
#include "daemon/sse.h"

struct watch {
	struct request *request;
	struct files_call *call; /* NULL once it has ended */
	struct sse *sse;         /* NULL until it watches */
	bool lost;
};

static const char *const kind_names[] = {
    [FILES_EVENT_CREATE] = "create", [FILES_EVENT_WRITE] = "write",           [FILES_EVENT_REMOVE] = "remove",
    [FILES_EVENT_RENAME] = "rename", [FILES_EVENT_ATTRIBUTES] = "attributes", [FILES_EVENT_OVERFLOW] = "overflow",
};

static void gone(struct request *r)
{
	struct watch *w = r->data;

	files_cancel(w->call);
	if (w->sse != NULL)
		sse_end(w->sse);
	else
		request_reset(r);
	free(w);
}

static void send_overflow(struct watch *w)
{
	w->lost = false;
	sse_send(w->sse, UINT64_MAX, "overflow", json_object());
}

static void room(struct request *r)
{
	struct watch *w = r->data;

	if (w->lost && sse_room(w->sse))
		send_overflow(w);
}

static json_t *change_to_json(const struct files_change *change)
{
	json_t *o;

	if (change->kind == FILES_EVENT_OVERFLOW)
		return json_object();
	o = json_pack("{so}", "path", files_text(change->path));
	if (!files_is_utf8(change->path))
		(void) json_object_set_new(o, "path_encoded", files_percent(change->path));
	if (change->entry != NULL)
		(void) json_object_set_new(o, "entry", files_entry_to_json(change->entry));
	return o;
}

static void opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	struct watch *w = ctx;

	(void) fd;
	(void) range;
	(void) entry;
	w->sse = sse_begin(w->request);
	if (w->sse == NULL) { /* the request is refused already */
		files_cancel(w->call);
		free(w);
		return;
	}
	sse_on_room(w->sse, room);
	sse_send(w->sse, UINT64_MAX, "ready", json_object());
	if (w->lost)
		send_overflow(w);
}

static void change(void *ctx, const struct files_change *c)
{
	struct watch *w = ctx;

	if (w->sse == NULL || w->lost || !sse_room(w->sse))
		w->lost = true; /* also what cannot be watched, which is found before the first event */
	else
		sse_send(w->sse, UINT64_MAX, kind_names[c->kind], change_to_json(c));
}

static void end(void *ctx, const struct files_end *e)
{
	struct watch *w = ctx;

	if (w->sse == NULL) {
		refuse_files(w->request, e->error != 0 ? e->error : EIO);
	} else {
		if (w->lost)
			send_overflow(w);
		sse_end(w->sse);
	}
	free(w);
}

static void watch_files(struct request *r)
{
	static const struct files_callbacks callbacks = {.opened = opened, .change = change, .end = end};
	struct files_ask a = {.type = FILES_WATCH, .flags = FILES_ENTRIES};
	struct files_client *c;
	struct sandbox *s;
	struct watch *w;
	bool recursive;
	int error;

	if (!files_path_of(r, &a.path) || !request_query_bool(r, "recursive", false, &recursive))
		return;
	s = sandbox_of(r, true);
	if (s == NULL)
		return;
	c = files_client_of(r, s);
	if (c == NULL)
		return;
	a.path_size = strlen(a.path);
	a.flags |= recursive ? FILES_RECURSIVE : 0U;
	w = xcalloc(1, sizeof *w);
	w->request = r;
	error = files_call(c, &a, &callbacks, w, &w->call);
	if (error < 0) {
		free(w);
		refuse_files(r, -error);
		return;
	}
	r->data = w;
	request_on_gone(r, gone);
}

static const struct route routes[] = {
    {"GET", "/v1/sandboxes/{id}/files/watch", SCOPE_USE, TAKES_NOTHING, ROUTE_LASTING, NULL, watch_files, NULL, 0},
};

void api_watch_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
