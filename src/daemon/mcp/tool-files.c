/* read_file, write_file, list_files: by the program that works on files inside. Small files pass in memory here; their size is
 * bounded on both ways. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/files-json.h"
#include "daemon/mcp/mcp.h"
#include "daemon/sandbox-files.h"
#include "policy/text.h"
#include "sandbox/encode.h"

struct work {
	struct mcp_call *call;
	struct files_call *files;
	struct event *event; /* of the pipe */
	int fd;
	struct evbuffer *data;
	uint64_t size, moved, length; /* length: what will come, ZW_UNLIMITED: not known */
	uint64_t limit;               /* of what is read */
	bool opened, over, behind;    /* behind: the offset lies at or behind the end */
	int error;
	char *path;
	json_t *entries;
};

static void close_pipe(struct work *w)
{
	if (w->event != NULL)
		event_free(w->event);
	w->event = NULL;
	fd_close(&w->fd);
}

static void work_free(struct work *w)
{
	close_pipe(w);
	evbuffer_free(w->data);
	json_decref(w->entries);
	free(w->path);
	free(w);
}

static json_t *text_of(const char *text)
{
	cleanup_free char *escaped = encode_text(text);

	return json_string(escaped);
}

/* ---- Errors. ---- */

static const char *sentence(int error)
{
	static const struct {
		int error;
		const char *message;
	} rows[] = {
	    {ENOENT, "there is no such file"},
	    {EACCES, "the file system of the sandbox does not permit it"},
	    {EPERM, "the file system of the sandbox does not permit it"},
	    {EROFS, "it lies where the sandbox may only read; the policy's filesystem.write would allow it"},
	    {ENOTDIR, "a part of the path is no directory"},
	    {EISDIR, "it is a directory; list_files shows what is in it"},
	    {FILES_NOT_REGULAR, "it is no regular file"},
	    {ENOSPC, "there is no room left in the sandbox"},
	    {EDQUOT, "there is no room left in the sandbox"},
	    {EFBIG, "it is larger than the policy allows"},
	    {ENAMETOOLONG, "the path is too long"},
	    {ELOOP, "there are too many links on the way"},
	    {FILES_SHORT, "it was changed meanwhile; try again"},
	    {EAGAIN, "too much is under way in this sandbox; try again"},
	    {ESHUTDOWN, "the program that works on files has ended; try again"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].error == error)
			return rows[i].message;
	return error > 0 && error < 4000 ? strerror(error) : "it failed for no known reason";
}

static void fail(struct work *w, int error)
{
	struct mcp_call *c = w->call;
	cleanup_free char *path = text_quote(w->path);

	c->stop = NULL;
	work_free(w);
	mcp_call_fail(c, NULL, "%s: %s", path, sentence(error));
}

static void stop(struct mcp_call *c)
{
	struct work *w = c->work;

	if (!w->over)
		files_cancel(w->files);
	c->stop = NULL;
	work_free(w);
	mcp_call_fail(c, NULL, "canceled");
}

static struct work *work_new(struct mcp_call *c, const char *path)
{
	struct work *w = xcalloc(1, sizeof *w);

	*w = (struct work){.call = c, .fd = -EBADF, .length = ZW_UNLIMITED, .path = xstrdup(path), .data = evbuffer_new()};
	return w;
}

static void ask(struct work *w, struct sandbox *s, struct files_ask *a, const struct files_callbacks *callbacks)
{
	struct files_client *files = sandbox_files(s);
	int r;

	a->path = w->path;
	a->path_size = strlen(w->path);
	w->call->work = w;
	r = files != NULL && w->data != NULL ? files_call(files, a, callbacks, w, &w->files) : -EAGAIN;
	if (r < 0) {
		fail(w, -r);
		return;
	}
	w->call->stop = stop;
}

/* ---- Reading. ---- */

static void read_whole(struct work *w)
{
	struct mcp_call *c = w->call;
	uint64_t offset = (uint64_t) json_number_value(json_object_get(c->arguments, "offset"));
	size_t size = evbuffer_get_length(w->data), good = size, bad;
	const char *data = size > 0 ? (const char *) evbuffer_pullup(w->data, -1) : "";
	bool known = w->length != ZW_UNLIMITED, more = known ? offset + size < w->size : w->moved == w->limit, utf8;
	struct evbuffer *text = mcp_text_begin(c);
	json_t *o, *content;

	if (more)
		good -= utf8_incomplete_tail(data, size); /* a character that the limit has cut comes with the next part */
	utf8 = text_is_utf8(data, good, &bad);
	if (utf8) {
		content = json_stringn_nocheck(data, good);
	} else {
		cleanup_free char *encoded = encode_base64(data, size);

		content = json_string(encoded);
	}
	o = json_pack("{so so ss sI sb}", "path", text_of(w->path), "content", content, "encoding", utf8 ? "utf-8" : "base64",
		      "size", (json_int_t) (known ? w->size : offset + w->moved), "truncated", (int) more);
	if (!utf8)
		mcp_say_line(text, "[not text: %zu bytes as base64]", size);
	mcp_say(text, content, NULL);
	if (size == 0)
		mcp_say_line(text, w->behind ? "[the file ends before that]" : "[the file is empty]");
	if (more)
		mcp_say_line(text, "[%zu of %llu bytes from %llu on; go on with offset %llu]", utf8 ? good : size,
			     (unsigned long long) w->size, (unsigned long long) offset,
			     (unsigned long long) (offset + (utf8 ? good : size)));
	c->stop = NULL;
	work_free(w);
	mcp_call_end(c, o, mcp_text_end(c, text), NULL, false);
}

static void read_done(struct work *w)
{
	if (!w->over || w->fd >= 0)
		return;
	if (w->error == FILES_BAD_RANGE) {
		w->behind = true;
		read_whole(w);
	} else if (w->error != 0 || (w->length != ZW_UNLIMITED && w->moved != w->length)) {
		fail(w, w->error != 0 ? w->error : FILES_SHORT);
	} else {
		read_whole(w);
	}
}

/* A hostile program can send more than it has promised, or go on for ever: the limit holds in any case. */
static void on_bytes(evutil_socket_t fd, short what, void *arg)
{
	struct work *w = arg;
	uint64_t most = w->length < w->limit ? w->length : w->limit;
	char data[32 * 1024];
	ssize_t n = 1;

	(void) what;
	while (n > 0 && w->moved < most) {
		n = read((int) fd, data, most - w->moved < sizeof data ? (size_t) (most - w->moved) : sizeof data);
		if (n <= 0)
			break;
		w->moved += (uint64_t) n;
		(void) evbuffer_add(w->data, data, (size_t) n);
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close_pipe(w);
	if (!w->over && w->length == ZW_UNLIMITED && w->moved == most) {
		files_cancel(w->files);
		w->over = true;
	}
	read_done(w);
}

static void read_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	struct work *w = ctx;

	w->opened = true;
	w->fd = fd;
	w->size = e->size;
	w->length = range->length == UINT64_MAX ? ZW_UNLIMITED : range->length;
	w->event = event_new(w->call->owner->daemon->base, fd, EV_READ | EV_PERSIST, on_bytes, w);
	if (w->length == 0 || w->event == NULL || event_add(w->event, NULL) < 0)
		close_pipe(w); /* the end tells why */
}

static void read_end(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;

	w->over = true;
	w->error = end->error;
	if (w->error != 0)
		close_pipe(w);
	read_done(w);
}

void mcp_read_file(struct mcp_call *c, struct sandbox *s)
{
	static const struct files_callbacks callbacks = {.opened = read_opened, .end = read_end};
	const json_t *offset = json_object_get(c->arguments, "offset"), *limit = json_object_get(c->arguments, "limit");
	struct files_ask a = {.type = FILES_READ,
			      .offset = (uint64_t) json_number_value(offset),
			      .length = limit != NULL ? (uint64_t) json_number_value(limit) : MCP_READ_DEFAULT};
	struct work *w = work_new(c, mcp_argument(c, "path"));

	w->limit = a.length;
	ask(w, s, &a, &callbacks);
}

/* ---- Writing. ---- */

static void write_some(struct work *w)
{
	while (w->fd >= 0 && evbuffer_get_length(w->data) > 0) {
		int n = evbuffer_write(w->data, w->fd);

		if (n > 0) {
			w->moved += (uint64_t) n;
		} else if (n < 0 && errno == EAGAIN) {
			(void) event_add(w->event, NULL);
			return;
		} else {
			(void) evbuffer_drain(w->data, evbuffer_get_length(w->data)); /* what failed comes with the end */
		}
	}
	close_pipe(w);
	if (!w->over)
		files_commit(w->files, w->moved);
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	write_some(arg);
}

static void write_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	struct work *w = ctx;

	(void) range;
	(void) e;
	w->fd = fd;
	w->event = event_new(w->call->owner->daemon->base, fd, EV_WRITE, on_room, w);
	if (w->event == NULL)
		close_pipe(w);
	else
		write_some(w);
}

static void write_end(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;
	struct mcp_call *c = w->call;
	struct evbuffer *text;
	json_t *o;

	w->over = true;
	if (end->error != 0) {
		fail(w, end->error);
		return;
	}
	o = json_pack("{so sI}", "path", text_of(end->entry->path), "size", (json_int_t) end->entry->size);
	text = mcp_text_begin(c);
	mcp_say_line(text, "[%llu bytes written to %s]", (unsigned long long) end->entry->size,
		     json_string_value(json_object_get(o, "path")));
	c->stop = NULL;
	work_free(w);
	mcp_call_end(c, o, mcp_text_end(c, text), NULL, false);
}

/* The bytes to write; false: no base64. */
static bool decode(const struct mcp_call *c, struct evbuffer *ret)
{
	const json_t *content = json_object_get(c->arguments, "content");
	const char *encoding = mcp_argument(c, "encoding"), *text = json_string_value(content), *end = text;
	size_t size = json_string_length(content), used = 0;
	cleanup_free unsigned char *data = NULL;

	if (encoding == NULL || strcmp(encoding, "utf-8") == 0)
		return evbuffer_add(ret, text, size) == 0;
	data = malloc(size + 1);
	if (data == NULL ||
	    sodium_base642bin(data, size + 1, text, size, "\r\n", &used, &end, sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    end != text + size)
		return false;
	return evbuffer_add(ret, data, used) == 0;
}

void mcp_write_file(struct mcp_call *c, struct sandbox *s)
{
	static const struct files_callbacks callbacks = {.opened = write_opened, .end = write_end};
	struct files_ask a = {.type = FILES_WRITE};
	struct work *w = work_new(c, mcp_argument(c, "path"));

	if (w->data == NULL || !decode(c, w->data)) {
		work_free(w);
		mcp_call_fail(c, NULL, "content: this is no base64 (RFC 4648)");
		return;
	}
	ask(w, s, &a, &callbacks);
}

/* ---- Lists. ---- */

static void list_entry(void *ctx, const struct files_entry *e)
{
	struct work *w = ctx;
	const char *slash = strrchr(e->path, '/');

	(void) json_array_append_new(
	    w->entries, json_pack("{so so ss sI}", "name", text_of(slash != NULL && slash[1] != '\0' ? slash + 1 : e->path),
				  "path", text_of(e->path), "type", files_type(e->mode), "size", (json_int_t) e->size));
}

static void list_end(void *ctx, const struct files_end *end)
{
	struct work *w = ctx;
	struct mcp_call *c = w->call;
	struct evbuffer *text;
	json_t *e, *o;
	size_t i;

	w->over = true;
	if (end->error != 0) {
		fail(w, end->error);
		return;
	}
	text = mcp_text_begin(c);
	json_array_foreach(w->entries, i, e)
	{
		const char *type = json_string_value(json_object_get(e, "type"));

		mcp_say_line(text, "%s%s  %lld", json_string_value(json_object_get(e, "path")),
			     strcmp(type, "directory") == 0 ? "/" : "",
			     (long long) json_integer_value(json_object_get(e, "size")));
	}
	if (json_array_size(w->entries) == 0)
		mcp_say_line(text, "[nothing is there]");
	if (end->more)
		mcp_say_line(text, "[there is more: list a directory below it]");
	o = json_pack("{so sO sb}", "path", text_of(w->path), "entries", w->entries, "truncated", (int) end->more);
	c->stop = NULL;
	work_free(w);
	mcp_call_end(c, o, mcp_text_end(c, text), NULL, false);
}

void mcp_list_files(struct mcp_call *c, struct sandbox *s)
{
	static const struct files_callbacks callbacks = {.entry = list_entry, .end = list_end};
	const json_t *depth = json_object_get(c->arguments, "depth");
	const char *path = mcp_argument(c, "path");
	struct files_ask a = {
	    .type = FILES_LIST, .depth = depth != NULL ? (uint32_t) json_number_value(depth) : 1, .limit = MCP_LIST_MAX};
	struct work *w = work_new(c, path != NULL ? path : s->home);

	w->entries = json_array();
	ask(w, s, &a, &callbacks);
}
