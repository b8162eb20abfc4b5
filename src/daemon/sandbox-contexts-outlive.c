/* Contexts that outlive the daemon: noted with the interpreter's process, and taken from there (processes-outlive.c does the same
 * for other processes). An interpreter that has ended keeps its note until the context has another one, or is removed: so the
 * context is still there for the next daemon. */
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/processes.h"
#include "daemon/sandbox-contexts-internal.h"
#include "daemon/sandbox.h"

/* What the supervisor holds of an interpreter. */
enum { HELD_OUT, HELD_ERR, HELD_CHANNEL };

static void tell(const struct sandbox *s, json_t *m)
{
	if (s->session != NULL)
		(void) session_ask(s->session, m, NULL, 0, process_no_answer, NULL, NULL);
	else
		json_decref(m);
}

/* ---- What is noted. ---- */

size_t sandbox_context_hold(const struct sandbox_context *x, int fds[], size_t have, json_t *message)
{
	struct context_ends ours;

	if (x->sandbox->outlive == NULL)
		return have;
	context_ours(x->context, &ours);
	fds[have + HELD_OUT] = ours.out;
	fds[have + HELD_ERR] = ours.err;
	fds[have + HELD_CHANNEL] = ours.channel;
	(void) json_object_set_new(message, "hold", json_integer(HELD_CHANNEL + 1));
	return have + HELD_CHANNEL + 1;
}

/* What changes. */
static json_t *state_of(const struct sandbox_context *x)
{
	struct context_past past;

	context_past(x->context, &past);
	return json_pack("{sb sb sb si sI sI sI ss?}", "alive", (int) past.alive, "ready", (int) past.ready, "busy",
			 (int) past.busy, "driver", (int) past.kind, "serial", (json_int_t) past.serial, "count",
			 (json_int_t) past.count, "executions", (json_int_t) past.executions, "fault", past.fault);
}

static void note(const struct sandbox_context *x, json_t *memo)
{
	tell(x->sandbox, json_pack("{ss sI so}", "t", "note", "process", (json_int_t) x->noted, "memo", memo));
}

void sandbox_context_note(const struct sandbox_context *x)
{
	if (x->noted != 0)
		note(x, state_of(x));
}

void sandbox_context_forget_note(struct sandbox_context *x)
{
	if (x->noted != 0)
		tell(x->sandbox, json_pack("{ss sI}", "t", "forget", "process", (json_int_t) x->noted));
	x->noted = 0;
}

void sandbox_context_note_start(struct sandbox_context *x, uint32_t process)
{
	json_t *memo;

	if (x->sandbox->outlive == NULL)
		return;
	memo = json_pack("{ss ss ss ss? ss sO sI sb sI}", "kind", "context", "id", x->id, "language",
			 context_driver(x->context)->language, "name", x->name, "cwd", x->cwd, "env", x->env, "created",
			 (json_int_t) x->created, "default", (int) x->is_default, "number", (json_int_t) x->number);
	(void) json_object_update_new(memo, state_of(x));
	sandbox_context_forget_note(x);
	x->noted = process;
	note(x, memo);
}

/* ---- What is taken. ---- */

static bool has_text(const json_t *m, const char *key, size_t max, bool or_null)
{
	const json_t *v = json_object_get(m, key);

	return json_is_string(v) ? json_string_length(v) <= max && strlen(json_string_value(v)) == json_string_length(v)
				 : or_null && json_is_null(v);
}

static bool has_whole(const json_t *m, const char *key, json_int_t most)
{
	const json_t *v = json_object_get(m, key);

	return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= most;
}

static bool is_id(const char *id)
{
	return strlen(id) == CONTEXT_ID_SIZE - 1 && strspn(id, "0123456789abcdef-") == CONTEXT_ID_SIZE - 1;
}

static bool good_memo(const json_t *m)
{
	static const char *const flags[] = {"alive", "ready", "busy", "default"};
	const json_t *env = json_object_get(m, "env");

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (!json_is_boolean(json_object_get(m, flags[i])))
			return false;
	return has_text(m, "id", CONTEXT_ID_SIZE, false) && is_id(json_string_value(json_object_get(m, "id"))) &&
	       has_text(m, "language", 32, false) && has_text(m, "name", CONTEXT_NAME_MAX, true) &&
	       has_text(m, "cwd", SIZE_MAX, false) && has_text(m, "fault", SIZE_MAX, true) && json_is_object(env) &&
	       context_env_is_good(env) && has_whole(m, "created", INT64_MAX) && has_whole(m, "number", INT64_MAX) &&
	       has_whole(m, "driver", KIND_IPYTHON) && has_whole(m, "serial", INT32_MAX) && has_whole(m, "count", INT32_MAX) &&
	       has_whole(m, "executions", INT64_MAX);
}

static json_int_t whole(const json_t *m, const char *key)
{
	return json_integer_value(json_object_get(m, key));
}

/* In the order of creation. */
static void insert(struct sandbox *s, struct sandbox_context *x)
{
	struct sandbox_context **at = &s->contexts;

	while (*at != NULL && (*at)->number < x->number)
		at = &(*at)->next;
	x->next = *at;
	*at = x;
	if (x->number > s->context_numbers)
		s->context_numbers = x->number;
}

/* A context as it is noted, without an interpreter. NULL: it makes no sense. */
static struct sandbox_context *make(struct sandbox *s, const json_t *m)
{
	const char *name = json_string_value(json_object_get(m, "name")),
		   *language = json_string_value(json_object_get(m, "language"));
	const struct driver *driver = driver_find(language);
	bool is_default = json_is_true(json_object_get(m, "default"));
	struct sandbox_context *x;

	if (driver == NULL || sandbox_contexts_count(s) >= SANDBOX_CONTEXTS_MAX ||
	    (is_default && sandbox_context_find(s, language) != NULL))
		return NULL;
	x = xcalloc(1, sizeof *x);
	*x = (struct sandbox_context){
	    .sandbox = s,
	    .name = name != NULL ? xstrdup(name) : NULL,
	    .cwd = xstrdup(json_string_value(json_object_get(m, "cwd"))),
	    .env = json_deep_copy(json_object_get(m, "env")),
	    .created = (usec_t) whole(m, "created"),
	    .number = (uint64_t) whole(m, "number"),
	    .is_default = is_default,
	};
	memcpy(x->id, json_string_value(json_object_get(m, "id")), CONTEXT_ID_SIZE);
	if (sandbox_context_prepare(x, driver) < 0)
		return NULL;
	insert(s, x);
	return x;
}

static bool is_kind(int fd, bool socket)
{
	struct stat st;
	int type = 0;
	socklen_t size = sizeof type;

	if (fstat(fd, &st) < 0)
		return false;
	if (!socket)
		return S_ISFIFO(st.st_mode);
	return S_ISSOCK(st.st_mode) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

static int take_ends(const json_t *held, int *fds, struct context_ends *ret)
{
	*ret = (struct context_ends){.out = held_take(held, fds, HELD_OUT),
				     .err = held_take(held, fds, HELD_ERR),
				     .channel = held_take(held, fds, HELD_CHANNEL)};
	if (is_kind(ret->out, false) && is_kind(ret->err, false) && is_kind(ret->channel, true))
		return 0;
	fd_close(&ret->out);
	fd_close(&ret->err);
	fd_close(&ret->channel);
	return -1;
}

static bool take_interpreter(struct sandbox_context *x, const json_t *held, int *fds)
{
	const json_t *m = json_object_get(held, "memo");
	bool ended = strcmp(json_string_value(json_object_get(held, "state")), "ended") == 0;
	struct context_past past = {
	    .alive = json_is_true(json_object_get(m, "alive")),
	    .ready = json_is_true(json_object_get(m, "ready")),
	    .busy = json_is_true(json_object_get(m, "busy")),
	    .kind = (enum context_kind) whole(m, "driver"),
	    .serial = (unsigned) whole(m, "serial"),
	    .count = (unsigned) whole(m, "count"),
	    .executions = (uint64_t) whole(m, "executions"),
	    .fault = json_string_value(json_object_get(m, "fault")),
	};
	struct context_ends ends;

	x->noted = (uint32_t) whole(held, "process");
	if (!past.alive) { /* its end was told to the daemon before */
		context_restore_dead(x->context, &past);
		return ended || process_end_unknown(x->sandbox, held);
	}
	if (take_ends(held, fds, &ends) < 0 || sandbox_context_interpreter(x, x->noted, ended ? NULL : held) < 0)
		return false;
	x->metered = past.executions;
	if (context_take_over(x->context, &past, &ends, NULL) < 0)
		return false;
	if (ended)
		sandbox_context_interpreter_ended(x, json_object_get(held, "exit"));
	return true;
}

/* An interpreter that has ended comes before the one that was started after it. */
bool sandbox_context_adopt(struct sandbox *s, const json_t *held, int *fds)
{
	const json_t *m = json_object_get(held, "memo");
	struct sandbox_context *x;

	if (!good_memo(m))
		return false;
	x = sandbox_context_find(s, json_string_value(json_object_get(m, "id")));
	if (x != NULL && context_state(x->context) != CONTEXT_DEAD)
		return false;
	if (x != NULL)
		sandbox_context_forget_note(x);
	else
		x = make(s, m);
	return x != NULL && take_interpreter(x, held, fds);
}
