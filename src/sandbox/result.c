#include "sandbox/result.h"

#include <assert.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "base/signame.h"
#include "sandbox/encode.h"
#include "sandbox/plan.h"
#include "sandbox/result-json.h"

static const char *const status_names[] = {
    [STATUS_EXITED] = "exited",
    [STATUS_SIGNALED] = "signaled",
    [STATUS_TIMEOUT] = "timeout",
    [STATUS_CPU_TIMEOUT] = "cpu_timeout",
    [STATUS_OUT_OF_MEMORY] = "out_of_memory",
    [STATUS_OUTPUT_LIMIT] = "output_limit",
    [STATUS_CANCELED] = "canceled",
    [STATUS_REFUSED] = "refused",
    [STATUS_ERROR] = "error",
};
static_assert(ARRAY_SIZE(status_names) == STATUS_MAX, "every status has a name");

const char *run_status_name(enum run_status status)
{
	return status_names[status];
}

void result_init(struct result *r)
{
	*r = (struct result){
	    .status = STATUS_ERROR,
	    .exit_code = 125,
	    .isolation = ISOLATION_CONTAINER,
	    .usage = {.wall = ZW_UNLIMITED,
		      .cpu = ZW_UNLIMITED,
		      .memory_peak = ZW_UNLIMITED,
		      .processes_peak = ZW_UNLIMITED,
		      .scratch_peak = ZW_UNLIMITED,
		      .oom_kills = ZW_UNLIMITED,
		      .io_read = ZW_UNLIMITED,
		      .io_write = ZW_UNLIMITED,
		      .net_received = ZW_UNLIMITED,
		      .net_sent = ZW_UNLIMITED},
	};
}

void result_done(struct result *r)
{
	buf_done(&r->out.text);
	buf_done(&r->err.text);
	for (size_t i = 0; i < CONTROL_MAX; i++)
		free(r->controls[i].why);
	denials_done(&r->denials);
	connections_done(&r->connections);
	changes_done(&r->changes);
	policy_errors_done(&r->errors);
	result_init(r);
}

int result_exit_status(const struct result *r)
{
	switch (r->status) {
	case STATUS_EXITED:
		return WEXITSTATUS(r->wait_status);
	case STATUS_SIGNALED:
		return 128 + WTERMSIG(r->wait_status);
	case STATUS_TIMEOUT:
	case STATUS_CPU_TIMEOUT:
		return 124;
	case STATUS_OUT_OF_MEMORY:
		return 137;
	case STATUS_OUTPUT_LIMIT:
		return 122;
	case STATUS_CANCELED:
	case STATUS_ERROR:
		return r->exit_code;
	case STATUS_REFUSED:
	case STATUS_MAX:
		break;
	}
	return 125;
}

const char *result_line(const struct result *r)
{
	switch (r->status) {
	case STATUS_TIMEOUT:
	case STATUS_CPU_TIMEOUT:
	case STATUS_OUT_OF_MEMORY:
	case STATUS_OUTPUT_LIMIT:
	case STATUS_REFUSED:
	case STATUS_ERROR:
		return r->reason;
	case STATUS_EXITED:
	case STATUS_SIGNALED:
	case STATUS_CANCELED:
	case STATUS_MAX:
		break;
	}
	return NULL;
}

/* NULL stays null; text that is not UTF-8 (it may come from inside) is escaped. */
static json_t *json_text(const char *text)
{
	cleanup_free char *escaped = NULL;

	if (text == NULL)
		return json_null();
	escaped = encode_text(text);
	return json_string(escaped);
}

/* As json_text, but one escape for all paths, so that it can be undone: \\ for a backslash, \xff for a byte that is not UTF-8. */
static json_t *json_path(const char *path)
{
	cleanup_free char *escaped = encode_path(path);

	return json_string(escaped);
}

static json_t *json_count(uint64_t value)
{
	return value == ZW_UNLIMITED ? json_null() : json_integer((json_int_t) value);
}

static json_t *json_seconds(usec_t t)
{
	return t == ZW_UNLIMITED ? json_null() : json_real((double) t / (double) USEC_PER_SEC);
}

static void set(json_t *object, const char *key, json_t *value)
{
	(void) json_object_set_new(object, key, value); /* fails only without memory */
}

static void set_named(json_t *object, const char *stream, const char *suffix, json_t *value)
{
	char key[32];

	(void) snprintf(key, sizeof key, "%s%s", stream, suffix);
	set(object, key, value);
}

/* The captured bytes with a line in the gap. NULL when they are not UTF-8. */
static json_t *json_captured(const struct stream_result *s, bool *ret_utf8)
{
	cleanup_buf struct buf text = buf_new(SIZE_MAX / 2);
	cleanup_free char *encoded = NULL;
	json_t *value = NULL;

	if (s->dropped > 0) {
		(void) buf_add(&text, s->text.data, (size_t) s->head);
		(void) buf_addf(&text, "\n[zwinger: %llu bytes left out]\n", (unsigned long long) s->dropped);
		(void) buf_add(&text, s->text.data + s->head, s->text.size - (size_t) s->head);
	} else {
		(void) buf_add(&text, s->text.data, s->text.size);
	}
	value = json_stringn(text.data, text.size);
	*ret_utf8 = value != NULL;
	if (value != NULL)
		return value;
	encoded = encode_base64(text.data, text.size);
	return json_string(encoded);
}

static void add_stream(json_t *doc, const char *name, const struct stream_result *s, bool with_text)
{
	bool utf8 = true;

	if (with_text) {
		set(doc, name, json_captured(s, &utf8));
		set_named(doc, name, "_encoding", json_string(utf8 ? "utf-8" : "base64"));
	}
	set_named(doc, name, "_bytes", json_count(s->bytes));
	set_named(doc, name, "_truncated", json_boolean(s->dropped > 0));
	if (s->dropped > 0)
		set_named(doc, name, "_dropped_bytes", json_count(s->dropped));
}

static void add_end(json_t *doc, const struct result *r)
{
	json_t *code = json_null(), *sig = json_null();
	const char *abbreviation;
	char name[32];

	if (r->status == STATUS_ERROR && !r->has_main_status && r->exit_code != 125) {
		json_decref(code);
		code = json_integer(r->exit_code);
	} else if (r->has_main_status && WIFEXITED(r->wait_status)) {
		json_decref(code);
		code = json_integer(WEXITSTATUS(r->wait_status));
	} else if (r->has_main_status && WIFSIGNALED(r->wait_status)) {
		abbreviation = signal_abbreviation(WTERMSIG(r->wait_status));
		if (abbreviation != NULL)
			(void) snprintf(name, sizeof name, "SIG%s", abbreviation);
		else
			(void) snprintf(name, sizeof name, "SIG%d", WTERMSIG(r->wait_status));
		json_decref(sig);
		sig = json_string(name);
	}
	set(doc, "status", json_string(status_names[r->status]));
	set(doc, "exit_code", code);
	set(doc, "signal", sig);
	set(doc, "reason", json_text(r->reason));
	set(doc, "isolation", json_string(isolation_name(r->isolation)));
}

json_t *result_usage(const struct result *r)
{
	json_t *u = json_object();

	set(u, "wall_seconds", json_seconds(r->usage.wall));
	set(u, "cpu_seconds", json_seconds(r->usage.cpu));
	set(u, "memory_peak_bytes", json_count(r->usage.memory_peak));
	set(u, "processes_peak", json_count(r->usage.processes_peak));
	set(u, "scratch_peak_bytes", json_count(r->usage.scratch_peak));
	set(u, "oom_kills", json_count(r->usage.oom_kills));
	set(u, "io_read_bytes", json_count(r->usage.io_read));
	set(u, "io_write_bytes", json_count(r->usage.io_write));
	set(u, "net_received_bytes", json_count(r->usage.net_received));
	set(u, "net_sent_bytes", json_count(r->usage.net_sent));
	return u;
}

json_t *result_enforcement(const struct control_state controls[CONTROL_MAX])
{
	json_t *e = json_object();

	for (size_t i = 0; i < CONTROL_MAX; i++)
		if (controls[i].mechanism != NULL)
			set(e, control_name((enum control) i), json_string(controls[i].mechanism));
	return e;
}

json_t *result_not_enforced(const struct control_state controls[CONTROL_MAX])
{
	json_t *list = NULL;

	for (size_t i = 0; i < CONTROL_MAX; i++) {
		const struct control_state *c = &controls[i];
		json_t *entry;

		if (c->mechanism == NULL || strcmp(c->mechanism, "none") != 0)
			continue;
		if (list == NULL)
			list = json_array();
		entry = json_object();
		set(entry, "control", json_string(control_name((enum control) i)));
		set(entry, "why", json_text(c->why));
		(void) json_array_append_new(list, entry);
	}
	return list;
}

static void set_known(json_t *entry, const char *key, const char *text)
{
	if (text != NULL)
		set(entry, key, json_text(text));
}

json_t *result_denials(const struct denials *d)
{
	json_t *list = json_array();

	for (size_t i = 0; i < d->count; i++) {
		const struct denial_entry *e = &d->items[i];
		json_t *entry = json_object();

		set(entry, "kind", json_string(e->kind));
		if (e->name != NULL)
			set(entry, "name", json_path(e->name));
		if (e->host != NULL)
			set(entry, "host", json_text(e->host));
		if (e->port != 0)
			set(entry, "port", json_integer((json_int_t) e->port));
		set_known(entry, "address", e->address);
		set_known(entry, "method", e->method);
		set_known(entry, "path", e->path);
		set_known(entry, "rule", e->rule);
		set_known(entry, "why", e->why);
		set(entry, "count", json_count(e->count));
		(void) json_array_append_new(list, entry);
	}
	return list;
}

static json_t *json_paths(const struct changes *c, const struct change_list *list)
{
	json_t *array;

	if (!c->known)
		return json_null();
	array = json_array();
	for (size_t i = 0; i < list->count; i++)
		(void) json_array_append_new(array, json_path(list->paths[i]));
	return array;
}

json_t *result_files(const struct result *r)
{
	const struct changes *c = &r->changes;
	uint64_t more = c->created.more + c->modified.more + c->deleted.more;
	json_t *files = json_object(), *removed;

	set(files, "created", json_paths(c, &c->created));
	set(files, "modified", json_paths(c, &c->modified));
	set(files, "deleted", json_paths(c, &c->deleted));
	if (more > 0)
		set(files, "more", json_count(more));
	if (r->files_fault[0] != '\0')
		set(files, "fault", json_text(r->files_fault));
	if (c->removed_more > 0)
		set(files, "removed_more", json_count(c->removed_more));
	if (c->removed_count == 0)
		return files;
	removed = json_array();
	for (size_t i = 0; i < c->removed_count; i++) {
		const struct removed *x = &c->removed[i];
		json_t *entry = json_object();

		set(entry, "path", json_path(x->path));
		set(entry, "what", json_string(x->what));
		if (x->target != NULL)
			set(entry, "target", json_path(x->target));
		(void) json_array_append_new(removed, entry);
	}
	set(files, "removed", removed);
	if (c->removed_more > 0)
		set(files, "removed_more", json_count(c->removed_more));
	return files;
}

json_t *result_errors(const struct policy_errors *errors)
{
	json_t *list = json_array();

	for (size_t i = 0; i < errors->count; i++) {
		const struct policy_error *e = &errors->items[i];
		json_t *entry = json_object();

		set(entry, "file", json_text(e->file));
		set(entry, "line", e->line != 0 ? json_integer((json_int_t) e->line) : json_null());
		set(entry, "key", json_text(e->key));
		set(entry, "message", json_text(e->message));
		set(entry, "suggestion", json_text(e->suggestion));
		(void) json_array_append_new(list, entry);
	}
	return list;
}

static json_t *json_steps(const struct result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->step_count; i++) {
		json_t *entry = json_object();

		set(entry, "name", json_string(r->steps[i].name));
		set(entry, "seconds", json_seconds(r->steps[i].took));
		(void) json_array_append_new(list, entry);
	}
	return list;
}

char *result_to_json(const struct result *r, bool with_text)
{
	json_t *doc = json_object(), *not_enforced = result_not_enforced(r->controls);
	char stamp[TIMESTAMP_SIZE];
	char *text;

	set(doc, "schema", json_string("zwinger.result/1"));
	set(doc, "id", json_string(r->id));
	add_end(doc, r);
	add_stream(doc, "stdout", &r->out, with_text);
	add_stream(doc, "stderr", &r->err, with_text);
	if (r->started_at != 0)
		format_timestamp(r->started_at, stamp);
	set(doc, "started_at", r->started_at != 0 ? json_string(stamp) : json_null());
	set(doc, "usage", result_usage(r));
	set(doc, "setup_seconds", r->started_at != 0 ? json_seconds(r->setup) : json_null());
	if (r->step_count > 0)
		set(doc, "setup_steps", json_steps(r));
	set(doc, "enforcement", result_enforcement(r->controls));
	if (not_enforced != NULL)
		set(doc, "not_enforced", not_enforced);
	set(doc, "denials", result_denials(&r->denials));
	if (r->denials.other > 0)
		set(doc, "denials_more", json_count(r->denials.other));
	set(doc, "connections", connections_to_json(&r->connections));
	if (r->connections.more > 0)
		set(doc, "connections_more", json_count(r->connections.more));
	if (r->network_fault[0] != '\0')
		set(doc, "network_fault", json_text(r->network_fault));
	set(doc, "files", result_files(r));
	if (r->status == STATUS_REFUSED)
		set(doc, "errors", result_errors(&r->errors));
	text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
	json_decref(doc);
	return text;
}
