/* filesystem.Filesystem: files of a sandbox, by the program inside that works on them. */
#include <errno.h>
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

enum connect_code envd_files_code(int error)
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

const char *envd_files_words(int error)
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

json_t *envd_entry_to_json(const struct files_entry *e)
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
	bool root; /* who acts */
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
	op_fail(o, envd_files_code(end->error), envd_files_words(end->error));
	return true;
}

static void op_answer(struct op *o, json_t *message)
{
	connect_answer(o->request, message);
	op_free(o);
}

const char *envd_path(const struct envd_call *c, const char *name, bool streams)
{
	const char *path = json_string_value(connect_field(c->message, name));

	/* Missing is the default of the form: "", which is the home directory. */
	path = path == NULL || path[0] == '\0' ? "." : e2b_path(path);
	if (path == NULL)
		envd_refuse(c, streams, CONNECT_INVALID_ARGUMENT,
			    "%s: expected an absolute path, or one below the home directory", name);
	return path;
}

static void op_ask(const struct envd_call *c, struct files_ask *ask, const struct files_callbacks *callbacks)
{
	struct files_client *client = ask->path != NULL ? sandbox_files_as(c->sandbox, c->user == 0) : NULL;
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
		op_fail(o, envd_files_code(-r), envd_files_words(-r));
}

static void told_entry(void *ctx, const struct files_end *end)
{
	struct op *o = ctx;

	if (!op_failed(o, end))
		op_answer(o, json_pack("{so}", "entry", envd_entry_to_json(end->entry)));
}

static void stat_path(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = told_entry};
	struct files_ask ask = {.type = FILES_STAT, .flags = FILES_REAL | FILES_METADATA, .path = envd_path(c, "path", false)};

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
		op_answer(o, json_pack("{so}", "entry", envd_entry_to_json(end->entry)));
}

static void make_directory(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = made_directory};
	struct files_ask ask = {.type = FILES_MKDIR, .flags = FILES_METADATA, .path = envd_path(c, "path", false)};

	op_ask(c, &ask, &callbacks);
}

static void move(const struct envd_call *c)
{
	static const struct files_callbacks callbacks = {.end = told_entry};
	struct files_ask ask = {
	    .type = FILES_MOVE, .flags = FILES_REPLACE | FILES_METADATA, .path = envd_path(c, "source", false)};

	if (ask.path == NULL)
		return;
	ask.other = envd_path(c, "destination", false);
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
	struct files_ask ask = {.type = FILES_REMOVE, .flags = FILES_RECURSIVE, .path = envd_path(c, "path", false)};

	op_ask(c, &ask, &callbacks);
}

/* ---- Lists, which come in parts. ---- */

static void list_next(struct op *o);

static void listed(void *ctx, const struct files_entry *e)
{
	struct op *o = ctx;

	(void) json_array_append_new(o->list, envd_entry_to_json(e));
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
	struct files_client *client = s != NULL && s->state == SANDBOX_RUNNING ? sandbox_files_as(s, o->root) : NULL;
	cleanup_free char *last = take_ptr(&o->last);
	int r;

	o->ask.path = o->path;
	o->ask.other = last;
	o->ask.other_size = last != NULL ? strlen(last) : 0;
	r = client != NULL ? files_call(client, &o->ask, &list_callbacks, o, NULL) : -ESHUTDOWN;
	if (r < 0)
		op_fail(o, envd_files_code(-r), envd_files_words(-r));
}

static void list_directory(const struct envd_call *c)
{
	json_int_t depth = connect_integer(connect_field(c->message, "depth"));
	const char *path = envd_path(c, "path", false);
	struct op *o;

	if (path == NULL)
		return;
	o = xcalloc(1, sizeof *o);
	*o = (struct op){.request = c->request,
			 .path = xstrdup(path),
			 .list = json_array(),
			 .root = c->user == 0,
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

#define F "/filesystem.Filesystem/"

const struct envd_method envd_filesystem_methods[] = {
    {F "Stat", false, stat_path, NULL},
    {F "ListDir", false, list_directory, NULL},
    {F "MakeDir", false, make_directory, NULL},
    {F "Move", false, move, NULL},
    {F "Remove", false, remove_path, NULL},
    {F "WatchDir", true, envd_watch_directory, NULL},
    {F "CreateWatcher", false, envd_create_watcher, NULL},
    {F "GetWatcherEvents", false, envd_get_watcher_events, NULL},
    {F "RemoveWatcher", false, envd_remove_watcher, NULL},
    {NULL, false, NULL, NULL},
};
