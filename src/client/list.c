/* The verbs that look: ps, stats, top, logs. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/remote.h"
#include "client/show.h"
#include "client/verbs.h"

enum { ITEMS_MAX = 100000, TOP_MSEC = 2000 };

/* ---- Lists. ---- */

/* All pages of a list in one array, which the caller owns. A server that never comes to an end is left. */
static int all_of(struct remote *r, const char *path, const char *name, json_t **ret)
{
	json_t *list = json_array(), *page = NULL;
	cleanup_free char *next = xstrdup(path);
	int result = 0;

	while (next != NULL && result == 0) {
		const json_t *items;
		const char *cursor;

		result = remote_ask(r, "GET", next, NULL, &page);
		items = json_object_get(page, name);
		cursor = json_string_value(json_object_get(page, "next_cursor"));
		next = (free(next), NULL);
		if (result == 0 && !json_is_array(items)) {
			log_error("the daemon's answer has no list of %s", name);
			result = EXIT_REFUSED;
		} else if (result == 0) {
			(void) json_array_extend(list, (json_t *) (uintptr_t) items);
			if (cursor != NULL && json_array_size(items) > 0 && json_array_size(list) < ITEMS_MAX) {
				cleanup_free char *escaped = remote_path("%s", cursor, NULL);

				next = xasprintf("%s%ccursor=%s", path, strchr(path, '?') != NULL ? '&' : '?', escaped);
			} else if (cursor != NULL) {
				log_error("the list is longer than %d, or has no end", ITEMS_MAX);
				result = EXIT_REFUSED;
			}
		}
		json_decref(page);
		page = NULL;
	}
	if (result == 0)
		*ret = list;
	else
		json_decref(list);
	return result;
}

static char *sandboxes_path(const struct client_options *o)
{
	struct buf b = buf_new(1024 * 1024);

	(void) buf_addf(&b, "/v1/sandboxes?limit=1000%s", o->all ? "&state=running,paused,ended" : "");
	for (size_t i = 0; i < o->metadata.count; i++) {
		cleanup_free char *pair = remote_path("&metadata=%s", o->metadata.items[i], NULL);

		(void) buf_adds(&b, pair);
	}
	return b.data;
}

static int print_table(struct table *t)
{
	cleanup_free char *text = table_text(t);

	table_done(t);
	return show_text(text);
}

static void add_heads(struct table *t, const char *const *heads, size_t count)
{
	t->columns = count;
	for (size_t i = 0; i < count; i++)
		table_add(t, xstrdup(heads[i]));
}

/* ---- ps ---- */

static char *metadata_text(const json_t *sandbox)
{
	json_t *object = json_object_get(sandbox, "metadata"), *value;
	struct buf b = buf_new(4096);
	const char *key;

	(void) buf_adds(&b, "");
	json_object_foreach(object, key, value)
	{
		const char *text = json_string_value(value);

		if (buf_addf(&b, "%s%s=%s", b.size > 0 ? "," : "", key, text != NULL ? text : "") < 0)
			break;
	}
	if (b.size == 0)
		(void) buf_adds(&b, "-");
	{
		cleanup_buf struct buf raw = b;

		return show_safe(raw.data, 60);
	}
}

static int show_sandboxes(const json_t *list)
{
	static const char *const heads[] = {"ID", "STATE", "TEMPLATE", "NAME", "CREATED", "EXPIRES", "METADATA"};
	static const char *const members[] = {"id", "state", "template", "name", "created_at", "expires_at"};
	struct table t = {0};
	json_t *item;
	size_t i;

	add_heads(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(list, i, item)
	{
		for (size_t k = 0; k < ARRAY_SIZE(members); k++)
			table_add(&t, show_member(item, members[k]));
		table_add(&t, metadata_text(item));
	}
	return print_table(&t);
}

static int show_processes(const json_t *list, bool all)
{
	static const char *const heads[] = {"PID", "STATE", "STATUS", "EXIT", "TAG", "STARTED", "COMMAND"};
	static const char *const members[] = {"pid", "state", "status", "exit_code", "tag", "started_at", "command"};
	struct table t = {0};
	json_t *item;
	size_t i;

	add_heads(&t, heads, ARRAY_SIZE(heads));
	json_array_foreach(list, i, item)
	{
		const char *state = json_string_value(json_object_get(item, "state"));

		if (!all && state != NULL && strcmp(state, "ended") == 0)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(members); k++)
			table_add(&t, show_member(item, members[k]));
	}
	return print_table(&t);
}

int verb_ps(const struct client_options *o)
{
	bool processes = o->word_count > 0;
	cleanup_free char *path =
	    processes ? remote_path("/v1/sandboxes/%s/processes?limit=1000", o->words[0], NULL) : sandboxes_path(o);
	json_t *list = NULL;
	struct remote remote;
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	r = all_of(&remote, path, processes ? "processes" : "sandboxes", &list);
	if (r == 0)
		r = o->json ? show_json(list) : processes ? show_processes(list, o->all) : show_sandboxes(list);
	json_decref(list);
	remote_done(&remote);
	return r;
}

/* ---- stats, top ---- */

static void add_stats(struct table *t, const char *id, const char *state, const json_t *stats)
{
	const json_t *usage = json_object_get(stats, "usage");

	table_add(t, show_safe(id, 64));
	table_add(t, show_safe(state, 16));
	table_add(t, show_member(stats, "processes"));
	table_add(t, show_member(stats, "contexts"));
	table_add(t, show_member(usage, "cpu_seconds"));
	table_add(t, show_size(json_object_get(usage, "memory_peak_bytes")));
	table_add(t, show_size(json_object_get(usage, "net_received_bytes")));
	table_add(t, show_size(json_object_get(usage, "net_sent_bytes")));
}

static void add_stats_heads(struct table *t)
{
	static const char *const heads[] = {"ID", "STATE", "PROCESSES", "CONTEXTS", "CPU S", "MEMORY PEAK", "RECEIVED", "SENT"};

	add_heads(t, heads, ARRAY_SIZE(heads));
}

/* Those of a list. One that ends meanwhile, or is paused and cannot be asked, has the figures of the list. */
static int stats_of_all(struct remote *r, struct table *t, json_t *documents)
{
	json_t *list = NULL, *item;
	size_t i;
	int result = all_of(r, "/v1/sandboxes?limit=1000", "sandboxes", &list);

	if (result != 0)
		return result;
	json_array_foreach(list, i, item)
	{
		const char *id = json_string_value(json_object_get(item, "id")),
			   *state = json_string_value(json_object_get(item, "state"));
		cleanup_free char *path = remote_path("/v1/sandboxes/%s/stats", id != NULL ? id : "", NULL);
		json_t *stats = NULL;
		long status;

		if (remote_try(r, "GET", path, &stats, &status) != 0 && status == 0) {
			result = EXIT_REFUSED;
			break;
		}
		add_stats(t, id != NULL ? id : "-", state != NULL ? state : "-", stats != NULL ? stats : item);
		if (stats != NULL && id != NULL)
			(void) json_object_set_new(stats, "sandbox_id", json_string(id));
		if (stats != NULL)
			(void) json_array_append(documents, stats);
		json_decref(stats);
	}
	json_decref(list);
	return result;
}

static int stats_of(struct remote *r, const char *id, struct table *t, json_t *documents)
{
	cleanup_free char *path = remote_path("/v1/sandboxes/%s/stats", id, NULL);
	json_t *stats = NULL;
	int result = remote_ask(r, "GET", path, NULL, &stats);

	if (result == 0) {
		add_stats(t, id, "running", stats);
		(void) json_object_set_new(stats, "sandbox_id", json_string(id));
		(void) json_array_append(documents, stats);
	}
	json_decref(stats);
	return result;
}

/* One look. `before` is written in front of the table. */
static int look(const struct client_options *o, struct remote *r, const char *before)
{
	struct table t = {0};
	json_t *documents = json_array();
	int result = 0;

	add_stats_heads(&t);
	for (size_t i = 0; i < o->word_count && result == 0; i++)
		result = stats_of(r, o->words[i], &t, documents);
	if (o->word_count == 0)
		result = stats_of_all(r, &t, documents);
	if (result == 0 && o->json)
		result = show_json(documents);
	else if (result == 0 && (result = show_text(before)) == 0)
		result = print_table(&t);
	table_done(&t);
	json_decref(documents);
	return result;
}

int verb_stats(const struct client_options *o)
{
	struct remote remote;
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	r = look(o, &remote, "");
	remote_done(&remote);
	return r;
}

/* Once where nobody looks; on a terminal again and again until a signal. */
int verb_top(const struct client_options *o)
{
	cleanup_fd int fd = -EBADF;
	struct pollfd p;
	struct remote remote;
	sigset_t ending;
	int r;

	if (isatty(STDOUT_FILENO) != 1 || o->json)
		return verb_stats(o);
	r = client_connect(o, &remote);
	if (r != 0)
		return r;
	(void) sigemptyset(&ending);
	(void) sigaddset(&ending, SIGINT);
	(void) sigaddset(&ending, SIGTERM);
	(void) sigaddset(&ending, SIGHUP);
	(void) sigprocmask(SIG_BLOCK, &ending, NULL);
	fd = signalfd(-1, &ending, SFD_CLOEXEC);
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	do
		r = look(o, &remote, "\033[H\033[J");
	while (r == 0 && fd >= 0 && poll(&p, 1, TOP_MSEC) == 0);
	remote_done(&remote);
	return r;
}

/* ---- logs ---- */

struct printer {
	bool escape, c2; /* c2: the first half of what may be a C1 control was seen */
	int error;
};

/* Lines of a sandbox on a terminal: its control characters are shown, not obeyed. */
static void escape_into(struct printer *p, struct buf *b, unsigned char c)
{
	if (p->c2) {
		p->c2 = false;
		if (c >= 0x80 && c < 0xa0) {
			(void) buf_addf(b, "\\x%02x", c);
			return;
		}
		(void) buf_add(b, "\xc2", 1);
	}
	if (c == 0xc2)
		p->c2 = true;
	else if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
		(void) buf_addf(b, "^%c", c ^ 0x40);
	else
		(void) buf_add(b, &c, 1);
}

static int print_log(void *ctx, const char *data, size_t size)
{
	cleanup_buf struct buf b = buf_new(size * 4 + 16);
	struct printer *p = ctx;

	for (size_t i = 0; i < size && p->escape; i++)
		escape_into(p, &b, (unsigned char) data[i]);
	p->error = p->escape ? fd_write_stream(STDOUT_FILENO, b.data != NULL ? b.data : "", b.size)
			     : fd_write_stream(STDOUT_FILENO, data, size);
	return p->error;
}

/* A daemon that knows no following answers with what there is: silence would look as if nothing came. */
static int check_followed(struct remote *r, const char *id)
{
	cleanup_free char *path = remote_path("/v1/sandboxes/%s", id, NULL);
	json_t *sandbox = NULL;
	const char *state;
	int result = remote_ask(r, "GET", path, NULL, &sandbox);

	state = json_string_value(json_object_get(sandbox, "state"));
	if (result == 0 && (state == NULL || strcmp(state, "ended") != 0)) {
		log_error("the sandbox goes on, but this daemon does not follow logs: these are those until now");
		result = EXIT_REFUSED;
	}
	json_decref(sandbox);
	return result;
}

int verb_logs(const struct client_options *o)
{
	cleanup_free char *path =
	    remote_path(o->follow ? "/v1/sandboxes/%s/logs?follow=true" : "/v1/sandboxes/%s/logs", o->words[0], NULL);
	struct printer p = {.escape = isatty(STDOUT_FILENO) == 1};
	struct remote remote;
	struct transfer t;
	CURLcode code;
	int r = client_connect(o, &remote);

	if (r != 0)
		return r;
	transfer_init(&t, &remote, remote.spare, "GET", path, NULL);
	if (!o->json) {
		t.sink = print_log;
		t.ctx = &p;
	}
	if (o->follow)
		transfer_may_be_silent(&t); /* as a quiet sandbox */
	code = curl_easy_perform(remote.spare);
	if (p.error != 0) {
		log_error("cannot write to standard output: %s", strerror(-p.error));
		r = EXIT_REFUSED;
	} else {
		r = transfer_judge(&t, code);
	}
	if (r == 0 && o->json) {
		json_t *text = json_stringn(t.body.data != NULL ? t.body.data : "", t.body.size);
		json_t *document = text != NULL ? json_pack("{ss so}", "sandbox_id", o->words[0], "logs", text) : NULL;

		if (document == NULL)
			log_error("the logs are no UTF-8: --json cannot show them");
		r = document != NULL ? show_json(document) : EXIT_REFUSED;
		json_decref(document);
	}
	transfer_done(&t);
	if (r == 0 && o->follow)
		r = check_followed(&remote, o->words[0]);
	remote_done(&remote);
	return r;
}
