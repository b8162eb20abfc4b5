/* /v1/sandboxes/{id}/processes. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/signame.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/sandbox.h"
#include "daemon/sse.h"
#include "policy/text.h"

/* ---- Start. ---- */

static void started(void *arg, struct process *p)
{
	struct request *r = arg;

	if (p->failed) {
		refuse_start(r, p);
		return;
	}
	respond_header(r, "Location", "/v1/sandboxes/%s/processes/%lld", p->sandbox->id, (long long) p->pid);
	respond_json(r, 201, process_to_json(p));
}

static unsigned side_of(const json_t *tty, const char *name, const char *path, struct json_faults *f)
{
	const json_t *value = json_object_get(tty, name);

	if (json_is_integer(value) && json_integer_value(value) > 0 && json_integer_value(value) <= UINT16_MAX)
		return (unsigned) json_integer_value(value);
	json_fault_add(f, path, "1 to 65535", "expected a whole number of 1 to 65535");
	return 0;
}

static void read_tty(const json_t *tty, struct process_wish *w, struct json_faults *f)
{
	const char *key;
	json_t *value;

	if (!json_is_object(tty))
		return;
	json_object_foreach((json_t *) (uintptr_t) tty, key, value) if (strcmp(key, "columns") != 0 && strcmp(key, "rows") != 0)
	    json_fault_add(f, "tty", "columns and rows", "there is a member that is not known");
	w->tty = true;
	w->columns = side_of(tty, "columns", "tty.columns", f);
	w->rows = side_of(tty, "rows", "tty.rows", f);
}

static void post_process(struct request *r)
{
	struct sandbox *s = sandbox_of(r, true);
	struct json_faults faults = {0};
	struct process_wish w;
	struct process *p;
	int error;

	if (s == NULL)
		return;
	(void) command_read(r->json, &w, &faults);
	w.tree = false;
	w.tag = json_in_text(r->json, "tag");
	w.keep_input = json_is_true(json_object_get(r->json, "stdin"));
	read_tty(json_object_get(r->json, "tty"), &w, &faults);
	if (w.tag != NULL && (w.tag[0] == '\0' || strlen(w.tag) > TAG_MAX))
		json_fault_add(&faults, "tag", "1 to 128 bytes", "expected 1 to 128 bytes");
	if (faults.count > 0) {
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
		return;
	}
	for (p = s->processes; w.tag != NULL && p != NULL; p = p->older)
		if (p->tag != NULL && strcmp(p->tag, w.tag) == 0 && p->state != PROCESS_ENDED) {
			refuse(r, PROBLEM_CONFLICT, "choose another tag, or end that process",
			       "a process with this tag is running");
			return;
		}
	error = process_start(s, &w, started, NULL, r, &p);
	if (error != 0)
		refuse_errno(r, error, "the process cannot be started");
}

/* ---- Looking. ---- */

static void list_processes(struct request *r)
{
	const struct sandbox *s = sandbox_or_record_of(r);
	const char *cursor;
	uint64_t from = 0, at = 0;
	json_t *list, *next = NULL;
	size_t limit;

	if (s == NULL || !request_page(r, &limit, &cursor))
		return;
	if (cursor != NULL && parse_whole(cursor, &from) < 0) {
		refuse(r, PROBLEM_BAD_REQUEST, "leave it out, or send what next_cursor said",
		       "cursor: this is none of this list");
		return;
	}
	list = json_array();
	for (const struct process *p = s->processes; p != NULL; p = p->older) {
		if (p->capture || p->failed || p->state == PROCESS_STARTING || at++ < from)
			continue;
		if (json_array_size(list) == limit) {
			next = json_sprintf("%llu", (unsigned long long) (at - 1));
			break;
		}
		(void) json_array_append_new(list, process_to_json(p));
	}
	respond_json(r, 200, json_pack("{so so}", "processes", list, "next_cursor", next != NULL ? next : json_null()));
}

static struct process *process_of(struct request *r)
{
	struct sandbox *s = sandbox_or_record_of(r);
	struct process *p = s != NULL ? process_find(s, r->params[1]) : NULL;

	if (s != NULL && p == NULL)
		refuse(r, PROBLEM_NOT_FOUND, NULL, "there is no process %.140s in the sandbox", r->params[1]);
	return p;
}

static void get_process(struct request *r)
{
	const struct process *p = process_of(r);

	if (p != NULL)
		respond_json(r, 200, process_to_json(p));
}

static void get_output(struct request *r)
{
	const char *from = request_query(r, "from");
	struct process *p = process_of(r);
	bool now = from != NULL && strcmp(from, "now") == 0;

	if (p == NULL)
		return;
	if (from != NULL && !now && strcmp(from, "start") != 0) {
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "from: expected start or now");
		return;
	}
	process_follow(p, r, sse_last_id(r, now ? p->added : 0) + 1);
}

/* ---- Input. ---- */

/* One request at a time writes to a process, so that no two of them are mixed. */
struct typing {
	struct input_writer writer;
	struct request *request;
	struct process *process;
	bool eof, whole;
};

static void typing_end(struct typing *y)
{
	process_input_forget(&y->writer);
	process_hold(y->process, false);
	free(y);
}

static void refuse_input(struct request *r)
{
	refuse(r, PROBLEM_CONFLICT, "start it with \"stdin\": true", "the process has no standard input, or no longer one");
}

static void input_taken(struct input_writer *w, int error)
{
	struct typing *y = (struct typing *) w; /* its first member */
	struct request *r = y->request;
	bool whole = y->whole;

	if (error == 0 && !whole) {
		request_read_more(r);
		return;
	}
	typing_end(y);
	if (error == 0)
		respond_empty(r, 204);
	else if (error == -EPIPE)
		refuse_input(r);
	else
		refuse(r, PROBLEM_BUSY, "try again", "too many requests write to this process");
}

static void input_take(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct typing *y = r->data;

	if (event == BODY_BROKEN) {
		typing_end(y);
		refuse_body(r);
		return;
	}
	y->whole = event == BODY_WHOLE;
	y->writer.data = content; /* what the process does not take yet stays there, and stops the client */
	y->writer.eof = y->whole && y->eof;
	process_input(y->process, &y->writer);
}

static void input_gone(struct request *r)
{
	typing_end(r->data);
	request_reset(r);
}

static void post_stdin(struct request *r)
{
	struct process *p = process_of(r);
	struct typing *y;
	bool eof;

	if (p == NULL || !request_query_bool(r, "eof", false, &eof))
		return;
	if (!process_takes_input(p)) {
		refuse_input(r);
		return;
	}
	if (p->sandbox->state == SANDBOX_PAUSED) {
		refuse(r, PROBLEM_CONFLICT, "resume it first", "the sandbox is paused");
		return;
	}
	if (p->held) {
		refuse(r, PROBLEM_CONFLICT, "wait for the other request", "another request writes to this process");
		return;
	}
	y = xcalloc(1, sizeof *y);
	*y = (struct typing){.writer = {.done = input_taken}, .request = r, .process = p, .eof = eof};
	process_hold(p, true);
	r->data = y;
	request_on_gone(r, input_gone);
	request_read(r, input_take);
}

/* ---- Signals, sizes. ---- */

static void done(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;
	const char *why = json_string_value(json_object_get(m, "message"));

	(void) fd;
	if (error == 0)
		respond_empty(r, 204);
	else
		refuse_errno(r, error, why != NULL ? why : "it cannot be done");
}

/* The running process of the request; NULL with the request refused. */
static struct process *running_of(struct request *r)
{
	struct process *p = sandbox_of(r, true) != NULL ? process_of(r) : NULL;

	if (p != NULL && p->state == PROCESS_ENDED) {
		refuse(r, PROBLEM_CONFLICT, NULL, "the process has ended");
		return NULL;
	}
	return p;
}

static int signal_of(const json_t *value)
{
	const char *name = json_string_value(value);

	if (json_is_integer(value))
		return json_integer_value(value) > 0 && json_integer_value(value) <= 64 ? (int) json_integer_value(value) : 0;
	if (name != NULL && strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (int i = 1; name != NULL && i <= 64; i++)
		if (signal_abbreviation(i) != NULL && strcmp(signal_abbreviation(i), name) == 0)
			return i;
	return 0;
}

static void post_signal(struct request *r)
{
	const struct process *p = running_of(r);
	int number, error;

	if (p == NULL)
		return; /* and the request is dead */
	number = signal_of(json_object_get(r->json, "signal"));
	if (number == 0) {
		refuse(r, PROBLEM_BAD_REQUEST, "write TERM, KILL, INT...", "signal: there is none of this name");
		return;
	}
	error = session_ask(p->sandbox->session,
			    json_pack("{ss sI si sb}", "t", "signal", "process", (json_int_t) p->id, "signal", number, "tree",
				      json_is_true(json_object_get(r->json, "tree"))),
			    NULL, 0, done, r, NULL);
	if (error < 0)
		refuse_errno(r, -error, "the process cannot be signalled");
}

static void post_resize(struct request *r)
{
	struct process *p = running_of(r);
	struct json_faults faults = {0};
	unsigned columns, rows;
	int error;

	if (p == NULL)
		return;
	columns = side_of(r->json, "columns", "columns", &faults);
	rows = side_of(r->json, "rows", "rows", &faults);
	if (faults.count > 0) {
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
		return;
	}
	if (!p->tty) {
		refuse(r, PROBLEM_CONFLICT, "start it with \"tty\"", "the process has no terminal");
		return;
	}
	if (process_resize(p, rows, columns) == 0) {
		respond_empty(r, 204);
		return;
	}
	error = session_ask(p->sandbox->session,
			    json_pack("{ss sI si si}", "t", "resize", "process", (json_int_t) p->id, "rows", (int) rows,
				      "columns", (int) columns),
			    NULL, 0, done, r, NULL);
	if (error < 0)
		refuse_errno(r, -error, "the terminal cannot be resized");
}

static const struct json_field start_fields[] = {
    COMMAND_FIELDS,
    {"tag", JSON_IN_TEXT | JSON_IN_NULL},
    {"tty", JSON_IN_OBJECT | JSON_IN_NULL},
    {"stdin", JSON_IN_BOOL | JSON_IN_NULL},
    {NULL, 0},
};
static const struct json_field signal_fields[] = {
    {"signal", JSON_IN_TEXT | JSON_IN_WHOLE | JSON_IN_REQUIRED}, {"tree", JSON_IN_BOOL | JSON_IN_NULL}, {NULL, 0}};
static const struct json_field resize_fields[] = {
    {"columns", JSON_IN_WHOLE | JSON_IN_REQUIRED}, {"rows", JSON_IN_WHOLE | JSON_IN_REQUIRED}, {NULL, 0}};

#define P "/v1/sandboxes/{id}/processes"

static const struct route routes[] = {
    {"POST", P, SCOPE_USE, TAKES_JSON, ROUTE_WORK | ROUTE_IDEMPOTENT, start_fields, post_process, NULL, 0},
    {"GET", P, SCOPE_USE, TAKES_NOTHING, 0, NULL, list_processes, NULL, 0},
    {"GET", P "/{pid}", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_process, NULL, 0},
    {"GET", P "/{pid}/output", SCOPE_USE, TAKES_NOTHING, ROUTE_LASTING, NULL, get_output, NULL, 0},
    {"POST", P "/{pid}/stdin", SCOPE_USE, TAKES_STREAM, 0, NULL, post_stdin, NULL, 0},
    {"POST", P "/{pid}/signal", SCOPE_USE, TAKES_JSON, 0, signal_fields, post_signal, NULL, 0},
    {"POST", P "/{pid}/resize", SCOPE_USE, TAKES_JSON, 0, resize_fields, post_resize, NULL, 0},
};

void api_processes_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
