/* /v1/sandboxes/{id}/files. */
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/files-json.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox.h"
#include "policy/text.h"

enum { READ_SIZE = 64 * 1024, MODE_MAX = 0777 };

/* One request on files. It is freed when its call has ended and the request is answered. */
struct work {
	struct request *request;
	struct sandbox_cut cut; /* of those that stop with the sandbox */
	struct files_call *call;
	struct event *event; /* of the pipe */
	int fd;
	uint64_t size;          /* of the file that is read */
	uint64_t moved, length; /* bytes through the pipe; length: what was promised, ZW_UNLIMITED: not known */
	bool begun, whole, failed, over;
	bool behind; /* nothing lies in the range */
	int error;
	json_t *list;
	char *last;
};

static void work_free(struct work *w)
{
	sandbox_cut_remove(&w->cut);
	if (w->event != NULL)
		event_free(w->event);
	fd_close(&w->fd);
	json_decref(w->list);
	free(w->last);
	free(w);
}

/* ---- Asking. ---- */

static bool read_path(struct request *r, const char *name, const char *path)
{
	if (path != NULL && path[0] != '\0' && strlen(path) < FILES_PATH_MAX)
		return true;
	refuse(r, PROBLEM_BAD_REQUEST, NULL, "%s: expected a path of 1 to %d bytes", name, FILES_PATH_MAX - 1);
	return false;
}

/* `c` NULL: it was refused. */
static bool ask_by(struct request *r, struct files_client *c, struct files_ask *a, const struct files_callbacks *callbacks,
		   struct work *w)
{
	int error;

	if (c == NULL)
		return false;
	w->request = r;
	r->data = w;
	a->path_size = strlen(a->path);
	a->other_size = a->other != NULL ? strlen(a->other) : 0;
	error = files_call(c, a, callbacks, w, &w->call);
	if (error < 0)
		refuse_files(r, -error);
	return error == 0;
}

static bool ask(struct request *r, struct files_ask *a, const struct files_callbacks *callbacks, struct work *w)
{
	struct sandbox *s = sandbox_of(r, true);

	return s != NULL && ask_by(r, files_client_of(r, s), a, callbacks, w);
}

static struct work *work_new(void)
{
	struct work *w = xcalloc(1, sizeof *w);

	w->fd = -EBADF;
	w->length = ZW_UNLIMITED;
	return w;
}

/* A call without contents. */
static void ask_simple(struct request *r, struct files_ask *a, void (*end)(void *ctx, const struct files_end *end))
{
	const struct files_callbacks callbacks = {.end = end};
	struct work *w = work_new();

	if (!ask(r, a, &callbacks, w))
		work_free(w);
}

static void end_entry(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	if (end->error != 0)
		refuse_files(w->request, end->error);
	else
		respond_json(w->request, 200, files_entry_to_json(end->entry));
	work_free(w);
}

static void end_made(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	if (end->error != 0)
		refuse_files(w->request, end->error);
	else
		respond_json(w->request, end->created ? 201 : 200, files_entry_to_json(end->entry));
	work_free(w);
}

static void end_empty(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	if (end->error != 0)
		refuse_files(w->request, end->error);
	else
		respond_empty(w->request, 204);
	work_free(w);
}

static bool read_mode(const char *text, uint32_t *ret)
{
	uint32_t mode = 0;

	for (const char *p = text; *p != '\0'; p++) {
		if (*p < '0' || *p > '7' || p - text > 4)
			return false;
		mode = mode * 8 + (uint32_t) (*p - '0');
	}
	*ret = mode;
	return text[0] != '\0' && mode <= MODE_MAX;
}

static void stat_file(struct request *r)
{
	struct files_ask a = {.type = FILES_STAT, .path = request_query(r, "path")};

	if (read_path(r, "path", a.path))
		ask_simple(r, &a, end_entry);
}

static void delete_file(struct request *r)
{
	struct files_ask a = {.type = FILES_REMOVE, .path = request_query(r, "path")};
	bool recursive;

	if (!read_path(r, "path", a.path) || !request_query_bool(r, "recursive", false, &recursive))
		return;
	a.flags = recursive ? FILES_RECURSIVE : 0;
	ask_simple(r, &a, end_empty);
}

static void make_directory(struct request *r)
{
	const char *mode = json_in_text(r->json, "mode");
	struct files_ask a = {.type = FILES_MKDIR, .path = json_in_text(r->json, "path"), .flags = mode != NULL ? FILES_MODE : 0};

	if (!read_path(r, "path", a.path))
		return;
	if (mode != NULL && !read_mode(mode, &a.mode))
		refuse(r, PROBLEM_BAD_REQUEST, "write \"0755\"", "mode: expected permission bits");
	else
		ask_simple(r, &a, end_made);
}

static void move_file(struct request *r)
{
	const json_t *replace = json_object_get(r->json, "replace");
	struct files_ask a = {.type = FILES_MOVE,
			      .path = json_in_text(r->json, "source"),
			      .other = json_in_text(r->json, "destination"),
			      .flags = json_is_false(replace) ? 0 : FILES_REPLACE};

	if (read_path(r, "source", a.path) && read_path(r, "destination", a.other))
		ask_simple(r, &a, end_entry);
}

/* ---- Lists. ---- */

static void list_entry(void *ctx, const struct files_entry *e)
{
	struct work *w = ctx;

	(void) json_array_append_new(w->list, files_entry_to_json(e));
	free(w->last);
	w->last = xstrdup(e->path);
}

static void list_end(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	if (end->error != 0)
		refuse_files(w->request, end->error);
	else
		respond_json(w->request, 200,
			     json_pack("{sO so}", "entries", w->list, "next_cursor",
				       end->more && w->last != NULL ? files_percent(w->last) : json_null()));
	work_free(w);
}

/* The opposite of files_percent(). */
static char *unpercent(const char *text)
{
	char *out = xcalloc(strlen(text) + 1, 1), *to = out;
	unsigned byte;

	for (const char *p = text; *p != '\0'; p++) {
		if (p[0] == '%' && strspn(p + 1, "0123456789ABCDEF") >= 2) {
			byte = 0;
			for (size_t i = 1; i <= 2; i++)
				byte = byte * 16 + (unsigned) (p[i] <= '9' ? p[i] - '0' : p[i] - 'A' + 10);
			*to++ = (char) byte;
			p += 2;
		} else {
			*to++ = *p;
		}
	}
	return out;
}

static void list_files(struct request *r)
{
	static const struct files_callbacks callbacks = {.entry = list_entry, .end = list_end};
	struct files_ask a = {.type = FILES_LIST, .path = request_query(r, "path"), .depth = 1};
	const char *cursor, *text = request_query(r, "depth");
	cleanup_free char *behind = NULL;
	uint64_t depth = 1;
	struct work *w;
	size_t limit;

	if (!read_path(r, "path", a.path) || !request_page(r, &limit, &cursor))
		return;
	if (text != NULL && (parse_whole(text, &depth) < 0 || depth < 1 || depth > FILES_DEPTH_MAX)) {
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "depth: expected 1 to %d", FILES_DEPTH_MAX);
		return;
	}
	behind = cursor != NULL ? unpercent(cursor) : NULL;
	if (behind != NULL && !read_path(r, "cursor", behind))
		return;
	a.depth = (uint32_t) depth;
	a.limit = (uint32_t) limit;
	a.other = behind;
	w = work_new();
	w->list = json_array();
	if (!ask(r, &a, &callbacks, w))
		work_free(w);
}

/* ---- Reading. ---- */

static void read_room(struct request *r);

static void read_begin(struct work *w, unsigned status, uint64_t length)
{
	respond_header(w->request, "Accept-Ranges", "bytes");
	w->begun = true;
	stream_begin(w->request, status, "application/octet-stream", length);
	stream_on_room(w->request, read_room);
}

static void read_done(struct work *w)
{
	bool whole = !w->failed && (w->length == ZW_UNLIMITED || w->moved == w->length);

	/* The client has all that was promised, and may go on: what the program still has to say changes nothing. */
	if (w->fd < 0 && w->begun && whole && w->length != ZW_UNLIMITED) {
		if (!w->over)
			files_cancel(w->call);
		stream_end(w->request);
		work_free(w);
		return;
	}
	if (w->over && w->fd < 0) {
		/* One whose size does not tell how much there is, and there was nothing: then it is known. */
		if (!w->begun && whole && w->length == ZW_UNLIMITED && w->error == 0)
			read_begin(w, 200, 0);
		if (!w->begun)
			refuse_files(w->request, w->error != 0 ? w->error : EIO);
		else if (whole)
			stream_end(w->request);
		else
			request_reset(w->request); /* the promised length did not come */
		work_free(w);
	}
}

static void on_file(evutil_socket_t fd, short what, void *arg)
{
	struct work *w = arg;
	char data[READ_SIZE];
	ssize_t n = 1;

	(void) what;
	while (stream_queued(w->request) < STREAM_ROOM && w->moved < w->length && !request_is_gone(w->request)) {
		uint64_t left = w->length - w->moved;

		n = read((int) fd, data, left < sizeof data ? (size_t) left : sizeof data);
		if (n <= 0)
			break;
		w->moved += (uint64_t) n;
		if (!w->begun)
			read_begin(w, 200, ZW_UNLIMITED);
		stream_write(w->request, data, (size_t) n);
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && w->moved < w->length && !request_is_gone(w->request)) {
		(void) event_del(w->event); /* the client is behind: until there is room */
		return;
	}
	event_free(w->event);
	w->event = NULL;
	fd_close(&w->fd);
	read_done(w);
}

static void read_room(struct request *r)
{
	struct work *w = r->data;

	if (w->event != NULL)
		(void) event_add(w->event, NULL);
}

static void read_gone(struct request *r)
{
	struct work *w = r->data;

	if (!w->over)
		files_cancel(w->call);
	request_reset(r);
	work_free(w);
}

static void read_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	struct work *w = ctx;
	struct request *r = w->request;
	bool part = w->list != NULL && range->length != UINT64_MAX;

	w->fd = fd;
	w->size = e->size;
	w->length = range->length == UINT64_MAX ? ZW_UNLIMITED : range->length;
	if (part && w->length == 0) {
		fd_close(&w->fd);
		w->behind = true;
		return;
	}
	w->event = event_new(r->daemon->base, fd, EV_READ | EV_PERSIST, on_file, w);
	if (w->event == NULL || event_add(w->event, NULL) < 0) {
		fd_close(&w->fd);
		w->error = ENOMEM;
		return;
	}
	if (part)
		respond_header(r, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long) range->offset,
			       (unsigned long long) (range->offset + range->length - 1), (unsigned long long) e->size);
	if (w->length != ZW_UNLIMITED)
		read_begin(w, part ? 206 : 200, w->length);
}

static void read_end(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	w->over = true;
	w->error = end->error;
	w->failed = end->error != 0;
	if ((end->error == FILES_BAD_RANGE || (end->error == 0 && w->behind)) && !w->begun) {
		struct problem p = {
		    .code = PROBLEM_BAD_REQUEST, .status = 416, .message = "Range: it lies behind the end of the file"};

		respond_header(w->request, "Content-Range", "bytes */%llu", (unsigned long long) w->size);
		refuse_with(w->request, &p);
		work_free(w);
		return;
	}
	if (w->failed && w->event != NULL) {
		event_free(w->event);
		w->event = NULL;
		fd_close(&w->fd);
	}
	read_done(w);
}

/* "bytes=A-B", "bytes=A-", "bytes=-N"; anything else is as if it were not there (RFC 9110 section 14.2). */
static bool read_range(const char *text, struct files_ask *a)
{
	cleanup_free char *copy = text != NULL && strncmp(text, "bytes=", 6) == 0 ? xstrdup(text + 6) : NULL;
	char *dash = copy != NULL ? strchr(copy, '-') : NULL;
	uint64_t first = 0, last = 0;

	if (dash == NULL)
		return false;
	*dash++ = '\0';
	if (*copy == '\0') {
		if (parse_whole(dash, &last) < 0)
			return false;
		a->flags |= FILES_FROM_END;
		a->offset = last;
		a->length = last;
		return true;
	}
	if (parse_whole(copy, &first) < 0 || (*dash != '\0' && (parse_whole(dash, &last) < 0 || last < first)))
		return false;
	a->offset = first;
	a->length = *dash != '\0' ? last - first + 1 : UINT64_MAX;
	return true;
}

static void get_file(struct request *r)
{
	static const struct files_callbacks callbacks = {.opened = read_opened, .end = read_end};
	struct files_ask a = {.type = FILES_READ, .path = request_query(r, "path"), .length = UINT64_MAX};
	struct work *w;

	if (!read_path(r, "path", a.path))
		return;
	w = work_new();
	if (read_range(request_header(r, "range"), &a))
		w->list = json_null(); /* a part was asked for */
	if (!ask(r, &a, &callbacks, w)) {
		work_free(w);
		return;
	}
	request_on_gone(r, read_gone);
}

static void read_cut(struct sandbox_cut *c)
{
	read_gone(((struct work *) ((char *) c - offsetof(struct work, cut)))->request);
}

void api_files_send(struct request *r, struct sandbox *s, bool root, const char *path)
{
	static const struct files_callbacks callbacks = {.opened = read_opened, .end = read_end};
	struct files_ask a = {.type = FILES_READ, .path = path, .length = UINT64_MAX};
	struct work *w = work_new();

	if (read_range(request_header(r, "range"), &a))
		w->list = json_null();
	if (!ask_by(r, files_client_as(r, s, root), &a, &callbacks, w)) {
		work_free(w);
		return;
	}
	w->cut.call = read_cut;
	sandbox_cut_add(s, &w->cut);
	request_on_gone(r, read_gone);
}

/* ---- Writing. ---- */

static void write_stop(struct work *w)
{
	if (!w->over)
		files_cancel(w->call);
	w->over = true;
}

/* From the buffer into the pipe. */
static void write_some(struct work *w, struct evbuffer *content)
{
	while (w->fd >= 0 && evbuffer_get_length(content) > 0) {
		int n = evbuffer_write(content, w->fd);

		if (n > 0)
			w->moved += (uint64_t) n;
		else if (n < 0 && errno == EAGAIN) {
			(void) event_add(w->event, NULL);
			return;
		} else {
			(void) evbuffer_drain(content, evbuffer_get_length(content)); /* what failed comes with the end */
			return;
		}
	}
	if (w->whole && w->fd >= 0) {
		event_free(w->event);
		w->event = NULL;
		fd_close(&w->fd);
		if (!w->over)
			files_commit(w->call, w->moved);
	}
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
	struct work *w = arg;

	(void) fd;
	(void) what;
	write_some(w, request_content(w->request));
	if (!w->whole && w->fd >= 0 && evbuffer_get_length(request_content(w->request)) == 0)
		request_read_more(w->request);
}

static void take(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct work *w = r->data;

	if (event == BODY_BROKEN) {
		write_stop(w);
		refuse_body(r);
		work_free(w);
		return;
	}
	w->whole = event == BODY_WHOLE;
	write_some(w, content);
}

static void write_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	struct work *w = ctx;

	(void) range;
	(void) e;
	w->fd = fd;
	w->event = event_new(w->request->daemon->base, fd, EV_WRITE, on_room, w);
	if (w->event == NULL) {
		fd_close(&w->fd);
		return;
	}
	w->begun = true;
	request_read(w->request, take);
}

static void write_end(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	w->over = true;
	if (end->error != 0)
		refuse_files(w->request, end->error);
	else
		respond_json(w->request, end->created ? 201 : 200, files_entry_to_json(end->entry));
	work_free(w);
}

static void put_file(struct request *r)
{
	static const struct files_callbacks callbacks = {.opened = write_opened, .end = write_end};
	struct files_ask a = {.type = FILES_WRITE, .path = request_query(r, "path")};
	const char *mode = request_query(r, "mode");
	struct work *w;
	bool if_absent;

	if (!read_path(r, "path", a.path) || !request_query_bool(r, "if_absent", false, &if_absent))
		return;
	if (mode != NULL && !read_mode(mode, &a.mode)) {
		refuse(r, PROBLEM_BAD_REQUEST, "write 0644", "mode: expected permission bits");
		return;
	}
	a.flags = (mode != NULL ? FILES_MODE : 0U) | (if_absent ? FILES_IF_ABSENT : 0U);
	w = work_new();
	if (!ask(r, &a, &callbacks, w))
		work_free(w);
}

static const struct json_field directory_fields[] = {
    {"path", JSON_IN_TEXT | JSON_IN_REQUIRED}, {"mode", JSON_IN_TEXT | JSON_IN_NULL}, {NULL, 0}};
static const struct json_field move_fields[] = {{"source", JSON_IN_TEXT | JSON_IN_REQUIRED},
						{"destination", JSON_IN_TEXT | JSON_IN_REQUIRED},
						{"replace", JSON_IN_BOOL | JSON_IN_NULL},
						{NULL, 0}};

#define F "/v1/sandboxes/{id}/files"

static const struct route routes[] = {
    {"GET", F, SCOPE_USE, TAKES_NOTHING, 0, NULL, get_file, NULL, 0},
    {"PUT", F, SCOPE_USE, TAKES_STREAM, ROUTE_WORK, NULL, put_file, NULL, 0},
    {"DELETE", F, SCOPE_USE, TAKES_NOTHING, 0, NULL, delete_file, NULL, 0},
    {"GET", F "/stat", SCOPE_USE, TAKES_NOTHING, 0, NULL, stat_file, NULL, 0},
    {"GET", F "/list", SCOPE_USE, TAKES_NOTHING, 0, NULL, list_files, NULL, 0},
    {"POST", F "/directory", SCOPE_USE, TAKES_JSON, ROUTE_WORK, directory_fields, make_directory, NULL, 0},
    {"POST", F "/move", SCOPE_USE, TAKES_JSON, ROUTE_WORK, move_fields, move_file, NULL, 0},
};

void api_files_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
