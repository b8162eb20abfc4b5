/* filesystem.Filesystem: changes of files, as a stream, or kept until a client asks for them. */
#include <errno.h>
#include <event2/event.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/envd.h"
#include "daemon/files-client.h"
#include "daemon/sandbox-files.h"
#include "sandbox/encode.h"
#include "sandbox/plan.h"

enum { POLLED_MAX = 8, KEPT_MAX = 1024, KEPT_BYTES_MAX = 1 << 20, POLLED_ID_SIZE = 33, POLLED_SECONDS = 600 };

/* Whose file calls they are decides where a relative path begins. */
static const char *home_of(const struct envd_call *c)
{
	return c->user == 0 ? PLAN_ROOT_HOME : c->sandbox->home;
}

/* "." and ".." and doubled slashes by the text alone, as the program inside does it. Owned by the caller. */
static char *absolute(const char *home, const char *path)
{
	cleanup_free char *whole = path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", home, path);
	char *out = xcalloc(strlen(whole) + 2, 1);
	size_t used = 0;

	for (const char *at = whole; *at != '\0';) {
		size_t size = strcspn(at, "/");

		if (size == 2 && memcmp(at, "..", 2) == 0) {
			while (used > 0 && out[--used] != '/')
				;
			out[used] = '\0';
		} else if (size > 0 && !(size == 1 && *at == '.')) {
			out[used++] = '/';
			memcpy(out + used, at, size);
			used += size;
		}
		at += size + (at[size] == '/');
	}
	out[used] = '\0';
	return out;
}

/* FilesystemEvent: the name is relative to the folder. */
static json_t *event_of(const char *folder, const struct files_change *change)
{
	static const char *const types[] = {[FILES_EVENT_CREATE] = "EVENT_TYPE_CREATE",
					    [FILES_EVENT_WRITE] = "EVENT_TYPE_WRITE",
					    [FILES_EVENT_REMOVE] = "EVENT_TYPE_REMOVE",
					    [FILES_EVENT_RENAME] = "EVENT_TYPE_RENAME",
					    [FILES_EVENT_ATTRIBUTES] = "EVENT_TYPE_CHMOD"};
	size_t size = strlen(folder);
	cleanup_free char *name = encode_text(
	    strncmp(change->path, folder, size) == 0 && change->path[size] == '/' ? change->path + size + 1 : change->path);
	json_t *event = json_pack("{ss ss}", "name", name, "type", types[change->kind]);

	if (change->entry != NULL)
		(void) json_object_set_new(event, "entry", envd_entry_to_json(change->entry));
	return event;
}

/* False with the request refused. */
static bool read_ask(const struct envd_call *c, bool streams, struct files_ask *ret)
{
	*ret = (struct files_ask){.type = FILES_WATCH, .path = envd_path(c, "path", streams)};
	if (ret->path == NULL)
		return false;
	ret->path_size = strlen(ret->path);
	if (json_is_true(connect_field(c->message, "recursive")))
		ret->flags |= FILES_RECURSIVE;
	if (json_is_true(connect_field(c->message, "includeEntry")))
		ret->flags |= FILES_ENTRIES | FILES_REAL | FILES_METADATA;
	return true;
}

static const char *watch_words(int error)
{
	return error == EAGAIN ? "too many directories of this sandbox are watched" : envd_files_words(error);
}

/* ---- As a stream. ---- */

struct watch {
	struct sandbox_cut cut;
	struct connect_stream *stream;
	struct files_call *call;
	char *folder; /* absolute, without a slash at its end ("" is the root) */
};

static void watch_free(struct watch *w)
{
	sandbox_cut_remove(&w->cut);
	if (w->call != NULL)
		files_cancel(w->call);
	free(w->folder);
	free(w);
}

static void watch_fail(struct watch *w, enum connect_code code, const char *words)
{
	struct connect_stream *s = w->stream;

	watch_free(w);
	connect_stream_fail(s, code, "%s", words);
}

static void watch_stop(void *arg)
{
	struct watch *w = arg;
	struct connect_stream *s = w->stream;
	bool late = connect_stream_is_late(s);

	watch_free(w);
	if (late)
		connect_stream_fail(s, CONNECT_DEADLINE_EXCEEDED, "the time of the call was over");
	else
		connect_stream_cut(s);
}

static void watch_cut(struct sandbox_cut *c)
{
	struct watch *w = (struct watch *) ((char *) c - offsetof(struct watch, cut));
	struct connect_stream *s = w->stream;

	watch_free(w);
	connect_stream_cut(s);
}

static void watch_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	const struct watch *w = ctx;

	(void) fd;
	(void) range;
	(void) e;
	connect_stream_send(w->stream, json_pack("{s{}}", "start"));
}

static void watch_changed(void *ctx, const struct files_change *change)
{
	struct watch *w = ctx;

	/* The form has no word for what was lost: a client that goes on would believe that it has seen everything. */
	if (change->kind == FILES_EVENT_OVERFLOW)
		watch_fail(w, CONNECT_RESOURCE_EXHAUSTED, "more changes than can be told; list the directory and watch again");
	else if (!connect_stream_room(w->stream))
		watch_fail(w, CONNECT_RESOURCE_EXHAUSTED, "the client takes changes more slowly than they come");
	else
		connect_stream_send(w->stream, json_pack("{so}", "filesystem", event_of(w->folder, change)));
}

static void watch_ended(void *ctx, const struct files_end *end)
{
	struct watch *w = ctx;
	struct connect_stream *s = w->stream;

	w->call = NULL;
	if (end->error != 0) {
		watch_fail(w, envd_files_code(end->error), envd_files_words(end->error));
		return;
	}
	watch_free(w);
	connect_stream_end(s);
}

void envd_watch_directory(const struct envd_call *c)
{
	static const struct connect_stream_ops ops = {.stop = watch_stop};
	static const struct files_callbacks callbacks = {.opened = watch_opened, .change = watch_changed, .end = watch_ended};
	struct files_ask ask;
	struct files_client *client;
	struct watch *w;
	int r;

	if (!read_ask(c, true, &ask))
		return;
	client = sandbox_files_as(c->sandbox, c->user == 0);
	w = xcalloc(1, sizeof *w);
	w->cut.call = watch_cut;
	w->folder = absolute(home_of(c), ask.path);
	w->stream = connect_stream_new(c->request, &ops, w, json_pack("{s{}}", "keepalive"));
	sandbox_cut_add(c->sandbox, &w->cut);
	r = client != NULL ? files_call(client, &ask, &callbacks, w, &w->call) : -ESHUTDOWN;
	if (r < 0)
		watch_fail(w, envd_files_code(-r), watch_words(-r));
}

/* ---- Kept until somebody asks. It ends with the sandbox, or when nobody has asked for a while. ---- */

struct polled {
	struct sandbox_cut cut; /* by which it is found */
	char id[POLLED_ID_SIZE], sandbox[SANDBOX_ID_SIZE];
	struct daemon *daemon;
	struct request *request; /* of its beginning; NULL once that was answered */
	struct files_call *call; /* NULL once it has ended */
	char *folder;
	json_t *changes;
	size_t bytes; /* about, of `changes` */
	bool lost;    /* some since it was asked last */
	int error;    /* how it has ended */
	struct event *expiry;
};

static void polled_free(struct polled *w)
{
	sandbox_cut_remove(&w->cut);
	if (w->call != NULL)
		files_cancel(w->call);
	if (w->expiry != NULL)
		event_free(w->expiry);
	json_decref(w->changes);
	free(w->folder);
	free(w);
}

static void polled_cut(struct sandbox_cut *c)
{
	struct polled *w = (struct polled *) ((char *) c - offsetof(struct polled, cut));
	struct request *r = w->request;

	polled_free(w);
	if (r != NULL)
		request_reset(r);
}

static void polled_wind(struct polled *w)
{
	const struct timeval t = {.tv_sec = POLLED_SECONDS};

	(void) event_add(w->expiry, &t);
}

static void on_expiry(evutil_socket_t fd, short what, void *arg)
{
	struct polled *w = arg;
	const struct sandbox *s = sandbox_find(w->daemon, w->sandbox);

	(void) fd;
	(void) what;
	if (s != NULL && s->state == SANDBOX_PAUSED)
		polled_wind(w); /* nobody could ask */
	else
		polled_cut(&w->cut);
}

static void polled_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	struct polled *w = ctx;
	struct request *r = take_ptr(&w->request);

	(void) fd;
	(void) range;
	(void) e;
	if (request_is_gone(r)) { /* nobody will ask */
		polled_free(w);
		request_reset(r);
		return;
	}
	connect_answer(r, json_pack("{ss}", "watcherId", w->id));
}

static void polled_changed(void *ctx, const struct files_change *change)
{
	struct polled *w = ctx;
	size_t bytes = strlen(change->path) + 256;

	if (change->entry != NULL)
		bytes += 1024 + 2 * strlen(change->path) + change->entry->metadata_size;
	if (change->kind == FILES_EVENT_OVERFLOW || json_array_size(w->changes) >= KEPT_MAX || bytes > KEPT_BYTES_MAX - w->bytes)
		w->lost = true;
	if (w->lost) {
		(void) json_array_clear(w->changes);
		w->bytes = 0;
		return;
	}
	(void) json_array_append_new(w->changes, event_of(w->folder, change));
	w->bytes += bytes;
}

static void polled_ended(void *ctx, const struct files_end *end)
{
	struct polled *w = ctx;
	struct request *r = w->request;

	w->call = NULL;
	w->error = end->error != 0 ? end->error : ENOENT; /* the folder is gone */
	if (r == NULL)
		return; /* whoever asks next is told */
	polled_free(w);
	connect_refuse(r, envd_files_code(end->error), "%s", watch_words(end->error));
}

static size_t polled_count(const struct sandbox *s)
{
	size_t count = 0;

	for (const struct sandbox_cut *c = s->cuts; c != NULL; c = c->next)
		count += c->call == polled_cut;
	return count;
}

/* The watcher of the message; NULL with the request refused. */
static struct polled *polled_of(const struct envd_call *c)
{
	const char *id = json_string_value(connect_field(c->message, "watcherId"));

	for (struct sandbox_cut *at = c->sandbox->cuts; at != NULL && id != NULL; at = at->next) {
		struct polled *w = (struct polled *) ((char *) at - offsetof(struct polled, cut));

		if (at->call == polled_cut && w->request == NULL && strcmp(w->id, id) == 0)
			return w;
	}
	connect_refuse(c->request, CONNECT_NOT_FOUND, "there is no watcher %.64s, or none any more", id != NULL ? id : "");
	return NULL;
}

static struct polled *polled_new(const struct envd_call *c, const char *path)
{
	struct polled *w = xcalloc(1, sizeof *w);
	unsigned char random[(POLLED_ID_SIZE - 1) / 2];

	*w = (struct polled){.cut = {.call = polled_cut, .lasting = true},
			     .daemon = c->request->daemon,
			     .request = c->request,
			     .folder = absolute(home_of(c), path),
			     .changes = json_array()};
	memcpy(w->sandbox, c->sandbox->id, sizeof w->sandbox);
	randombytes_buf(random, sizeof random);
	(void) sodium_bin2hex(w->id, sizeof w->id, random, sizeof random);
	w->expiry = event_new(w->daemon->base, -1, 0, on_expiry, w);
	return w;
}

void envd_create_watcher(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.opened = polled_opened, .change = polled_changed, .end = polled_ended};
	struct files_ask ask;
	struct files_client *client;
	struct polled *w;
	int r = -ENOMEM;

	if (!read_ask(c, false, &ask))
		return;
	if (polled_count(c->sandbox) >= POLLED_MAX) {
		connect_refuse(c->request, CONNECT_RESOURCE_EXHAUSTED, "there are %d watchers already; remove one", POLLED_MAX);
		return;
	}
	client = sandbox_files_as(c->sandbox, c->user == 0);
	w = polled_new(c, ask.path);
	sandbox_cut_add(c->sandbox, &w->cut);
	if (w->expiry != NULL) {
		polled_wind(w);
		r = client != NULL ? files_call(client, &ask, &callbacks, w, &w->call) : -ESHUTDOWN;
	}
	if (r == 0)
		return;
	polled_free(w);
	connect_refuse(c->request, envd_files_code(-r), "%s", watch_words(-r));
}

void envd_get_watcher_events(const struct envd_call *c)
{
	struct polled *w = polled_of(c);

	if (w == NULL)
		return;
	polled_wind(w);
	if (w->lost) {
		w->lost = false;
		connect_refuse(c->request, CONNECT_RESOURCE_EXHAUSTED,
			       "there were more changes than are kept; list the directory, and go on asking");
	} else if (w->call == NULL && json_array_size(w->changes) == 0) {
		connect_refuse(c->request, envd_files_code(w->error), "it is watched no longer: %s", watch_words(w->error));
		polled_free(w);
	} else {
		connect_answer(c->request, json_pack("{sO}", "events", w->changes));
		json_decref(w->changes);
		w->changes = json_array();
		w->bytes = 0;
	}
}

void envd_remove_watcher(const struct envd_call *c)
{
	struct polled *w = polled_of(c);

	if (w == NULL)
		return;
	polled_free(w);
	connect_answer(c->request, json_object());
}
