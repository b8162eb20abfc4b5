/* filesystem.Filesystem: files of a sandbox, by the program inside that works on them. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "daemon/e2b/envd.h"
#include "daemon/e2b/file-metadata.h"
#include "daemon/files-client.h"
#include "daemon/sandbox-files.h"
#include "sandbox/encode.h"

enum { LIST_ENTRIES_MAX = 100000 };

/* ---- Errors and entries. ---- */

static enum connect_code code_of(int error)
{
	static const struct {
		int error;
		enum connect_code code;
	} rows[] = {
	    {ENOENT, CONNECT_NOT_FOUND},          {EACCES, CONNECT_PERMISSION_DENIED},  {EPERM, CONNECT_PERMISSION_DENIED},
	    {EROFS, CONNECT_PERMISSION_DENIED},   {EEXIST, CONNECT_ALREADY_EXISTS},     {ENOTDIR, CONNECT_INVALID_ARGUMENT},
	    {EISDIR, CONNECT_INVALID_ARGUMENT},   {EINVAL, CONNECT_INVALID_ARGUMENT},   {ENAMETOOLONG, CONNECT_INVALID_ARGUMENT},
	    {ELOOP, CONNECT_INVALID_ARGUMENT},    {ENOSPC, CONNECT_RESOURCE_EXHAUSTED}, {EDQUOT, CONNECT_RESOURCE_EXHAUSTED},
	    {EAGAIN, CONNECT_RESOURCE_EXHAUSTED}, {EOPNOTSUPP, CONNECT_UNIMPLEMENTED},  {ESHUTDOWN, CONNECT_UNAVAILABLE},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].error == error)
			return rows[i].code;
	return CONNECT_INTERNAL;
}

static const char *words_of(int error)
{
	if (error == ESHUTDOWN)
		return "the program that works on files inside has ended";
	return error < FILES_NOT_REGULAR ? strerror(error) : "it is no regular file, or was changed meanwhile";
}

/* The mode as Go writes it, which is what clients compare. */
static void permissions_of(uint32_t mode, char ret[16])
{
	static const struct {
		uint32_t mode;
		const char *letters;
	} types[] = {{S_IFDIR, "d"}, {S_IFLNK, "L"}, {S_IFIFO, "p"}, {S_IFSOCK, "S"}, {S_IFBLK, "D"}, {S_IFCHR, "Dc"}};
	static const char rwx[] = "rwxrwxrwx";
	char *to = ret;

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((mode & S_IFMT) == types[i].mode)
			to += snprintf(to, 3, "%s", types[i].letters);
	if ((mode & S_ISUID) != 0)
		*to++ = 'u';
	if ((mode & S_ISGID) != 0)
		*to++ = 'g';
	if ((mode & S_ISVTX) != 0)
		*to++ = 't';
	if (to == ret)
		*to++ = '-';
	for (unsigned i = 0; i < 9; i++)
		*to++ = (mode & (0400U >> i)) != 0 ? rwx[i] : '-';
	*to = '\0';
}

static const char *type_of(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "FILE_TYPE_FILE";
	case S_IFDIR:
		return "FILE_TYPE_DIRECTORY";
	default:
		return "FILE_TYPE_UNSPECIFIED";
	}
}

static json_t *time_of(const struct files_entry *e)
{
	time_t seconds = (time_t) e->mtime;
	struct tm tm;
	char text[40];

	if (gmtime_r(&seconds, &tm) == NULL || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) == 0)
		return json_null();
	return json_sprintf("%s.%09uZ", text, e->mtime_nsec);
}

static json_t *owner_of(const char *name, uint32_t id)
{
	return name[0] != '\0' ? json_string(name) : json_sprintf("%u", id);
}

/* A link has type and mode of where it leads. */
static json_t *entry_to_json(const struct files_entry *e)
{
	cleanup_free char *path = encode_text(e->path), *target = e->target != NULL ? encode_text(e->target) : NULL;
	const char *slash = strrchr(path, '/');
	uint32_t mode = e->target != NULL ? e->target_mode : e->mode;
	char permissions[16];
	json_t *o;

	permissions_of(e->mode, permissions);
	o = json_pack("{ss ss ss so si ss so so so}", "name", slash != NULL && slash[1] != '\0' ? slash + 1 : path, "type",
		      type_of(mode), "path", path, "size", json_sprintf("%llu", (unsigned long long) e->size), "mode",
		      (int) (mode & 0777), "permissions", permissions, "owner", owner_of(e->user, e->uid), "group",
		      owner_of(e->group, e->gid), "modifiedTime", time_of(e));
	if (target != NULL)
		(void) json_object_set_new(o, "symlinkTarget", json_string(target));
	if (e->metadata_size > 0)
		(void) json_object_set_new(o, "metadata", file_metadata_to_json(e->metadata, e->metadata_size));
	return o;
}

/* ---- One request, one answer. ---- */

struct op {
	struct request *request;
	char sandbox[SANDBOX_ID_SIZE];
	struct files_ask ask;
	char *path, *last;
	json_t *list;
};

static void op_free(struct op *o)
{
	json_decref(o->list);
	free(o->path);
	free(o->last);
	free(o);
}

static void op_fail(struct op *o, enum connect_code code, const char *words)
{
	struct request *r = o->request;

	connect_refuse(r, code, "%.200s: %s", o->path, words);
	op_free(o);
}

static bool op_failed(struct op *o, const struct files_end *end)
{
	if (end->error == 0)
		return false;
	op_fail(o, code_of(end->error), words_of(end->error));
	return true;
}

static void op_answer(struct op *o, json_t *message)
{
	connect_answer(o->request, message);
	op_free(o);
}

/* The path of the request as the program inside takes it; NULL with the request refused. */
static const char *path_of(const struct envd_call *c, const char *name, bool streams)
{
	const char *path = json_string_value(json_object_get(c->message, name));

	/* Missing is the default of the form: "", which is the home directory. */
	path = path == NULL || path[0] == '\0' ? "." : e2b_path(path);
	if (path == NULL)
		envd_refuse(c, streams, CONNECT_INVALID_ARGUMENT,
			    "%s: expected an absolute path, or one below the home directory", name);
	return path;
}

static void op_ask(const struct envd_call *c, struct files_ask *ask, const struct files_callbacks *callbacks)
{
	struct files_client *client = ask->path != NULL ? sandbox_files(c->sandbox) : NULL;
	struct op *o;
	int r;

	if (ask->path == NULL)
		return; /* it was refused */
	if (client == NULL) {
		connect_refuse(c->request, CONNECT_UNAVAILABLE, "the program that works on files inside cannot be started now");
		return;
	}
	o = xcalloc(1, sizeof *o);
	*o = (struct op){.request = c->request, .path = encode_text(ask->path)};
	memcpy(o->sandbox, c->sandbox->id, sizeof o->sandbox);
	ask->path_size = strlen(ask->path);
	ask->other_size = ask->other != NULL ? strlen(ask->other) : 0;
	o->ask = *ask;
	r = files_call(client, ask, callbacks, o, NULL);
	if (r < 0)
		op_fail(o, code_of(-r), words_of(-r));
}

static void told_entry(void *ctx, const struct files_end *end)
{
	struct op *o = ctx;

	if (!op_failed(o, end))
		op_answer(o, json_pack("{so}", "entry", entry_to_json(end->entry)));
}

static void stat_path(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = told_entry};
	struct files_ask ask = {.type = FILES_STAT, .flags = FILES_REAL | FILES_METADATA, .path = path_of(c, "path", false)};

	op_ask(c, &ask, &callbacks);
}

static void made_directory(void *ctx, const struct files_end *end)
{
	struct op *o = ctx;

	if (end->error == EEXIST)
		op_fail(o, CONNECT_INVALID_ARGUMENT, "there is a file, which is no directory");
	else if (end->error == 0 && !end->created)
		op_fail(o, CONNECT_ALREADY_EXISTS, "the directory is there already");
	else if (!op_failed(o, end))
		op_answer(o, json_pack("{so}", "entry", entry_to_json(end->entry)));
}

static void make_directory(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = made_directory};
	struct files_ask ask = {.type = FILES_MKDIR, .flags = FILES_METADATA, .path = path_of(c, "path", false)};

	op_ask(c, &ask, &callbacks);
}

static void move(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = told_entry};
	struct files_ask ask = {.type = FILES_MOVE, .flags = FILES_REPLACE | FILES_METADATA, .path = path_of(c, "source", false)};

	if (ask.path == NULL)
		return;
	ask.other = path_of(c, "destination", false);
	if (ask.other != NULL)
		op_ask(c, &ask, &callbacks);
}

static void removed(void *ctx, const struct files_end *end)
{
	struct op *o = ctx;

	if (end->error == ENOENT || !op_failed(o, end))
		op_answer(o, json_object());
}

static void remove_path(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = removed};
	struct files_ask ask = {.type = FILES_REMOVE, .flags = FILES_RECURSIVE, .path = path_of(c, "path", false)};

	op_ask(c, &ask, &callbacks);
}

/* ---- Lists, which come in parts. ---- */

static void list_next(struct op *o);

static void listed(void *ctx, const struct files_entry *e)
{
	struct op *o = ctx;

	(void) json_array_append_new(o->list, entry_to_json(e));
	free(o->last);
	o->last = xstrdup(e->path);
}

static void list_ended(void *ctx, const struct files_end *end)
{
	struct op *o = ctx;

	if (op_failed(o, end))
		return;
	if (end->more && json_array_size(o->list) >= LIST_ENTRIES_MAX)
		op_fail(o, CONNECT_RESOURCE_EXHAUSTED, "there are more than 100000 entries; list its directories one by one");
	else if (end->more)
		list_next(o);
	else
		op_answer(o, json_pack("{sO}", "entries", o->list));
}

static const struct files_callbacks list_callbacks = {.entry = listed, .end = list_ended};

static void list_next(struct op *o)
{
	struct sandbox *s = sandbox_find(o->request->daemon, o->sandbox);
	struct files_client *client = s != NULL && s->state == SANDBOX_RUNNING ? sandbox_files(s) : NULL;
	cleanup_free char *last = take_ptr(&o->last);
	int r;

	o->ask.path = o->path;
	o->ask.other = last;
	o->ask.other_size = last != NULL ? strlen(last) : 0;
	r = client != NULL ? files_call(client, &o->ask, &list_callbacks, o, NULL) : -ESHUTDOWN;
	if (r < 0)
		op_fail(o, code_of(-r), words_of(-r));
}

static void list_directory(const struct envd_call *c)
{
	json_int_t depth = json_integer_value(json_object_get(c->message, "depth"));
	const char *path = path_of(c, "path", false);
	struct op *o;

	if (path == NULL)
		return;
	o = xcalloc(1, sizeof *o);
	*o = (struct op){.request = c->request,
			 .path = xstrdup(path),
			 .list = json_array(),
			 .ask = {.type = FILES_LIST,
				 .flags = FILES_REAL | FILES_METADATA,
				 .path_size = strlen(path),
				 .limit = FILES_LIST_MAX,
				 .depth = depth < 1                 ? 1
					  : depth > FILES_DEPTH_MAX ? FILES_DEPTH_MAX
								    : (uint32_t) depth}};
	memcpy(o->sandbox, c->sandbox->id, sizeof o->sandbox);
	list_next(o);
}

/* ---- Watching. ---- */

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
	static const char *const types[] = {[FILES_EVENT_CREATE] = "EVENT_TYPE_CREATE",
					    [FILES_EVENT_WRITE] = "EVENT_TYPE_WRITE",
					    [FILES_EVENT_REMOVE] = "EVENT_TYPE_REMOVE",
					    [FILES_EVENT_RENAME] = "EVENT_TYPE_RENAME",
					    [FILES_EVENT_ATTRIBUTES] = "EVENT_TYPE_CHMOD"};
	struct watch *w = ctx;
	size_t size = strlen(w->folder);
	cleanup_free char *name = NULL;
	json_t *event;

	/* The form has no word for what was lost: a client that goes on would believe that it has seen everything. */
	if (change->kind == FILES_EVENT_OVERFLOW) {
		watch_fail(w, CONNECT_RESOURCE_EXHAUSTED, "more changes than can be told; list the directory and watch again");
		return;
	}
	if (!connect_stream_room(w->stream)) {
		watch_fail(w, CONNECT_RESOURCE_EXHAUSTED, "the client takes changes more slowly than they come");
		return;
	}
	name = encode_text(strncmp(change->path, w->folder, size) == 0 && change->path[size] == '/' ? change->path + size + 1
												    : change->path);
	event = json_pack("{ss ss}", "name", name, "type", types[change->kind]);
	if (change->entry != NULL)
		(void) json_object_set_new(event, "entry", entry_to_json(change->entry));
	connect_stream_send(w->stream, json_pack("{so}", "filesystem", event));
}

static void watch_ended(void *ctx, const struct files_end *end)
{
	struct watch *w = ctx;
	struct connect_stream *s = w->stream;

	w->call = NULL;
	if (end->error != 0) {
		watch_fail(w, code_of(end->error), words_of(end->error));
		return;
	}
	watch_free(w);
	connect_stream_end(s);
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

static void watch_directory(const struct envd_call *c)
{
	static const struct connect_stream_ops ops = {.stop = watch_stop};
	static const struct files_callbacks callbacks = {.opened = watch_opened, .change = watch_changed, .end = watch_ended};
	struct files_ask ask = {.type = FILES_WATCH, .path = path_of(c, "path", true)};
	struct files_client *client;
	struct watch *w;
	int r;

	if (ask.path == NULL)
		return;
	if (json_is_true(json_object_get(c->message, "recursive")))
		ask.flags |= FILES_RECURSIVE;
	if (json_is_true(json_object_get(c->message, "includeEntry")))
		ask.flags |= FILES_ENTRIES | FILES_REAL | FILES_METADATA;
	ask.path_size = strlen(ask.path);
	client = sandbox_files(c->sandbox);
	w = xcalloc(1, sizeof *w);
	w->cut.call = watch_cut;
	w->folder = absolute(c->sandbox->home, ask.path);
	w->stream = connect_stream_new(c->request, &ops, w, json_pack("{s{}}", "keepalive"));
	sandbox_cut_add(c->sandbox, &w->cut);
	r = client != NULL ? files_call(client, &ask, &callbacks, w, &w->call) : -ESHUTDOWN;
	if (r < 0)
		watch_fail(w, code_of(-r), words_of(-r));
}

#define F "/filesystem.Filesystem/"

const struct envd_method envd_filesystem_methods[] = {
    {F "Stat", false, stat_path, NULL}, {F "ListDir", false, list_directory, NULL}, {F "MakeDir", false, make_directory, NULL},
    {F "Move", false, move, NULL},      {F "Remove", false, remove_path, NULL},     {F "WatchDir", true, watch_directory, NULL},
    {NULL, false, NULL, NULL},
};
