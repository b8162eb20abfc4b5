#include "audit/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/encode.h"
#include "sandbox/result.h"
#include "sandbox/summary.h"

enum {
	TEXT_MAX = 4096,      /* bytes of one string, before escaping */
	ARGS_MAX = 256,       /* arguments of the command */
	LISTED_MAX = 1000,    /* paths of one list */
	LIST_BYTES = 1 << 18, /* of their text */
	EXEC_BYTES = 8 << 20, /* of the lines about executions in one run */
	CONNECTION_BYTES = 32 << 20,
};

/* Of events that a program makes as many of as it likes: it could fill the host's disk with their lines. */
struct share {
	size_t room;       /* bytes that their lines may still take */
	uint64_t left_out; /* those without a line of their own, and the last one that has one */
};

struct audit {
	int fd;
	char *path;
	uint64_t lost; /* events */
	int err;       /* positive errno of the first */
	bool torn;     /* the last line was cut: the next one begins with the end of it */
	struct share execs, connections;
};

/* ---- values ---- */

static void set(json_t *object, const char *key, json_t *value)
{
	(void) json_object_set_new(object, key, value);
}

/* A string that may be anything: as in the result document, a byte that is not UTF-8 is \xff and a backslash is \\. Long ones are
 * cut. */
static json_t *text(const char *s)
{
	cleanup_free char *cut = NULL, *escaped = NULL, *marked = NULL;

	if (s == NULL)
		return json_null();
	if (strlen(s) <= TEXT_MAX) {
		escaped = encode_path(s);
		return json_string(escaped);
	}
	cut = xstrndup(s, TEXT_MAX - utf8_incomplete_tail(s, TEXT_MAX));
	escaped = encode_path(cut);
	marked = xasprintf("%s…", escaped);
	return json_string(marked);
}

static void set_text(json_t *object, const char *key, const char *s)
{
	if (s != NULL)
		set(object, key, text(s));
}

static json_t *number(uint64_t n)
{
	return n == ZW_UNLIMITED ? json_null() : json_integer((json_int_t) n);
}

/* Takes members over from a document that another module has written. */
static void copy_members(json_t *object, char *document, const char *const *keys)
{
	json_t *from = document != NULL ? json_loads(document, 0, NULL) : NULL;

	for (size_t i = 0; keys[i] != NULL; i++) {
		json_t *value = json_object_get(from, keys[i]);

		if (value != NULL)
			(void) json_object_set(object, keys[i], value);
	}
	json_decref(from);
	free(document);
}

/* ---- events ---- */

static void add_start(json_t *line, const struct event *e)
{
	static const char *const keys[] = {"limits", "network", NULL};
	const struct plan *plan = e->plan;
	json_t *argv = json_array(), *mounts = json_array();

	set(line, "policy", text(plan->name));
	set(line, "isolation", json_string(isolation_name(plan->isolation)));
	set(line, "uid", json_integer(plan->caller_uid));
	for (size_t i = 0; i < plan->argc && i < ARGS_MAX; i++)
		(void) json_array_append_new(argv, text(plan->argv[i]));
	set(line, "argv", argv);
	set(line, "argc", json_integer((json_int_t) plan->argc));
	set_text(line, "cwd", plan->cwd);
	for (size_t i = 0; i < plan->mount_count && i < LISTED_MAX; i++) {
		json_t *m = json_object();

		set(m, "source", text(plan->mounts[i].source));
		set(m, "target", text(plan->mounts[i].target));
		set(m, "writable", json_boolean(plan->mounts[i].writable));
		(void) json_array_append_new(mounts, m);
	}
	set(line, "mounts", mounts);
	copy_members(line, summary_to_json(plan), keys);
}

static void add_exec(json_t *line, const struct event *e)
{
	set(line, "path", text(e->text));
	if (e->pid > 0)
		set(line, "pid", json_integer(e->pid));
}

static void add_denial(json_t *line, const struct event *e)
{
	const struct denial *d = e->denial;

	set_text(line, "kind", d->kind);
	set_text(line, "name", d->name);
	set_text(line, "host", d->host);
	if (d->port != 0)
		set(line, "port", json_integer(d->port));
	set_text(line, "address", d->address);
	set_text(line, "method", d->method);
	set_text(line, "path", d->path);
	set_text(line, "rule", d->rule);
	set_text(line, "why", d->why);
	set_text(line, "detail", d->detail);
	if (d->pid > 0)
		set(line, "pid", json_integer(d->pid));
	set_text(line, "comm", d->comm);
	set(line, "count", number(d->count));
}

static void add_connection(json_t *line, const struct event *e)
{
	set(line, "connection", json_deep_copy(e->connection));
}

static void add_limit(json_t *line, const struct event *e)
{
	set(line, "limit", text(e->text));
}

static json_t *paths(const struct change_list *list)
{
	json_t *object = json_object(), *items = json_array();
	size_t bytes = 0, n = 0;

	for (; n < list->count && n < LISTED_MAX && bytes < LIST_BYTES; n++) {
		bytes += strlen(list->paths[n]);
		(void) json_array_append_new(items, text(list->paths[n]));
	}
	set(object, "count", number(list->count + list->more));
	set(object, "paths", items);
	set(object, "more", number(list->count - n + list->more));
	return object;
}

static json_t *removed(const struct changes *c)
{
	json_t *object = json_object(), *items = json_array();
	size_t bytes = 0, n = 0;

	for (; n < c->removed_count && n < LISTED_MAX && bytes < LIST_BYTES; n++) {
		json_t *item = json_object();

		bytes += strlen(c->removed[n].path);
		set(item, "path", text(c->removed[n].path));
		set_text(item, "what", c->removed[n].what);
		set_text(item, "target", c->removed[n].target);
		(void) json_array_append_new(items, item);
	}
	set(object, "count", number(c->removed_count + c->removed_more));
	set(object, "items", items);
	set(object, "more", number(c->removed_count - n + c->removed_more));
	return object;
}

static void add_files(json_t *line, const struct event *e)
{
	const struct changes *c = &e->result->changes;

	set(line, "known", json_boolean(c->known));
	set(line, "created", c->known ? paths(&c->created) : json_null());
	set(line, "modified", c->known ? paths(&c->modified) : json_null());
	set(line, "deleted", c->known ? paths(&c->deleted) : json_null());
	set(line, "removed", removed(c));
}

static void add_end(json_t *line, const struct event *e)
{
	static const char *const keys[] = {"status",       "exit_code",     "signal",       "reason",
					   "usage",        "setup_seconds", "errors",       "enforcement",
					   "not_enforced", "stdout_bytes",  "stderr_bytes", NULL};

	copy_members(line, result_to_json(e->result, false), keys);
	set(line, "denials", number(e->result->denials.total));
}

struct event_row {
	const char *name;
	void (*add)(json_t *line, const struct event *e);
};

static const struct event_row event_rows[] = {
    [EVENT_START] = {"start", add_start},
    [EVENT_EXEC] = {"exec", add_exec},
    [EVENT_DENIAL] = {"denial", add_denial},
    [EVENT_DENIALS_SUMMARISED] = {"denials_summarised", add_denial},
    [EVENT_CONNECTION] = {"connection", add_connection},
    [EVENT_LIMIT] = {"limit", add_limit},
    [EVENT_FILES] = {"files", add_files},
    [EVENT_END] = {"end", add_end},
};

json_t *audit_record(const struct event *e)
{
	json_t *line = json_object();
	char stamp[TIMESTAMP_SIZE];

	format_timestamp(e->when, stamp);
	set(line, "schema", json_string("zwinger.audit/1"));
	set(line, "time", json_string(stamp));
	set(line, "id", text(e->sandbox_id));
	set(line, "event", json_string(event_rows[e->kind].name));
	event_rows[e->kind].add(line, e);
	return line;
}

/* ---- writing ---- */

/* A pipe whose reader has gone must not end the run: SIGPIPE is held back, and taken away if it is ours. */
static ssize_t write_quietly(int fd, const void *data, size_t size)
{
	sigset_t pipe_only, old, pending;
	bool was_pending;
	ssize_t n;
	int err;

	(void) sigemptyset(&pipe_only);
	(void) sigaddset(&pipe_only, SIGPIPE);
	(void) sigpending(&pending);
	was_pending = sigismember(&pending, SIGPIPE) == 1;
	(void) sigprocmask(SIG_BLOCK, &pipe_only, &old);
	n = write(fd, data, size);
	err = errno;
	if (n < 0 && err == EPIPE && !was_pending)
		(void) sigtimedwait(&pipe_only, NULL, &(struct timespec){0});
	(void) sigprocmask(SIG_SETMASK, &old, NULL);
	return n < 0 ? -err : n;
}

static void lose(struct audit *a, int err)
{
	if (a->lost++ == 0)
		a->err = err;
}

static void append(struct audit *a, char *line, size_t size)
{
	/* line[0] is a newline that ends a torn line before; line[size - 1] is our own. */
	const char *from = a->torn ? line : line + 1;
	size_t want = a->torn ? size : size - 1;
	ssize_t n = write_quietly(a->fd, from, want);

	if (n < 0) {
		lose(a, (int) -n);
		return;
	}
	a->torn = (size_t) n < want;
	if (a->torn)
		lose(a, ENOSPC); /* a short write: a full disk, a file size limit or a full pipe */
}

static struct share *share_of(struct audit *a, const struct event *e)
{
	if (e->kind == EVENT_EXEC)
		return &a->execs;
	return e->kind == EVENT_CONNECTION ? &a->connections : NULL;
}

/* The first one that finds no room is still told, so that a reader of the log knows where it ends. */
static bool has_room(struct share *share)
{
	return share == NULL || share->room > 0 || share->left_out++ == 0;
}

static void set_left_out(json_t *line, const char *key, const struct share *share)
{
	if (share->left_out > 0)
		set(line, key, number(share->left_out - 1));
}

static void write_event(void *ctx, const struct event *e)
{
	struct audit *a = ctx;
	struct share *share = share_of(a, e);
	json_t *line;
	cleanup_free char *body = NULL, *framed = NULL;
	size_t size;

	if (!has_room(share))
		return;
	line = audit_record(e);
	if (share != NULL && share->room == 0)
		set(line, "last", json_true());
	if (e->kind == EVENT_END) {
		set_left_out(line, "execs_left_out", &a->execs);
		set_left_out(line, "connections_left_out", &a->connections);
	}
	body = json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER);
	json_decref(line);
	if (body == NULL) {
		lose(a, ENOMEM);
		return;
	}
	framed = xasprintf("\n%s\n", body);
	size = strlen(framed);
	if (share != NULL)
		share->room -= size < share->room ? size : share->room;
	append(a, framed, size);
}

int audit_open(const char *path, struct audit **ret, struct zw_error *e)
{
	/* O_NONBLOCK: neither a pipe without a reader nor a full one holds a run up. A link is followed: who may name the file
	 * may link it. */
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	struct audit *a;

	if (fd < 0)
		return zw_errno(e, errno, "cannot open the audit file %s", path);
	a = xcalloc(1, sizeof *a);
	a->fd = fd;
	a->execs.room = EXEC_BYTES;
	a->connections.room = CONNECTION_BYTES;
	a->path = xstrdup(path);
	*ret = a;
	return 0;
}

struct observer audit_observer(struct audit *a)
{
	return (struct observer){.ctx = a, .event = write_event};
}

int audit_close(struct audit *a, struct zw_error *e)
{
	int r = 0;

	if (a == NULL)
		return 0;
	if (close(a->fd) < 0)
		lose(a, errno); /* where writes are only tried at the end, as on NFS */
	if (a->lost > 0)
		r = zw_errno(e, a->err, "%llu events could not be written to the audit file %s", (unsigned long long) a->lost,
			     a->path);
	free(a->path);
	free(a);
	return r;
}
