/* POST /sandboxes/{id}/fork: each fork is made for itself, a few at a time, and each has its own answer, a sandbox or an error.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox-fork.h"
#include "daemon/sandbox.h"

enum { COUNT_MAX = 100, AT_ONCE = 8, TIMEOUT_SECONDS = 15 };

struct one {
	struct forking *forking;
	struct sandbox_fork *fork; /* NULL: not begun, or over */
	char id[SANDBOX_ID_SIZE];  /* of what was made; "": nothing */
	json_t *error;
};

struct forking {
	struct request *request;
	char id[SANDBOX_ID_SIZE]; /* of the original */
	usec_t timeout;
	size_t count, begun, over;
	struct one all[];
};

static void go_on(struct forking *f);

static void free_forking(struct forking *f)
{
	for (size_t i = 0; i < f->count; i++)
		json_decref(f->all[i].error);
	free(f);
}

/* Nobody has been told of any. */
static void gone(struct request *r)
{
	struct forking *f = r->data;

	for (size_t i = 0; i < f->count; i++) {
		struct sandbox *s = f->all[i].id[0] != '\0' ? sandbox_find(r->daemon, f->all[i].id) : NULL;

		if (f->all[i].fork != NULL)
			sandbox_fork_cancel(f->all[i].fork);
		if (s != NULL)
			sandbox_end(s, "deleted", "the client has left before it was told");
	}
	free_forking(f);
	request_reset(r);
}

static json_t *entry(const struct forking *f, const struct one *o)
{
	static const struct problem forgotten = {.code = PROBLEM_SANDBOX_ENDED, .message = "the new sandbox has ended meanwhile"};
	const struct sandbox *s = sandbox_find(f->request->daemon, o->id);

	if (s != NULL)
		return json_pack("{so}", "sandbox", e2b_sandbox_to_json(s));
	return json_pack("{so}", "error", o->error != NULL ? json_incref(o->error) : e2b_error_to_json(&forgotten));
}

static void answer(struct forking *f)
{
	json_t *list = json_array();

	for (size_t i = 0; i < f->count; i++)
		(void) json_array_append_new(list, entry(f, &f->all[i]));
	respond_json(f->request, 201, list);
	free_forking(f);
}

static void fail(struct one *o, const struct problem *p)
{
	o->error = e2b_error_to_json(p);
	o->forking->over++;
}

static void forked(void *arg, struct sandbox *const *made, size_t count, struct problem *p)
{
	struct one *o = arg;

	(void) count;
	o->fork = NULL;
	if (p != NULL) {
		fail(o, p);
		json_decref(p->errors);
	} else {
		memcpy(o->id, made[0]->id, sizeof o->id);
		o->forking->over++;
	}
	go_on(o->forking);
}

static void begin(struct one *o, struct sandbox *s)
{
	struct problem p = {0};

	if (s == NULL || s->state != SANDBOX_RUNNING) {
		p.code = s == NULL || s->state != SANDBOX_PAUSED ? PROBLEM_SANDBOX_ENDED : PROBLEM_CONFLICT;
		(void) snprintf(p.message, sizeof p.message, "the sandbox does not run any more");
		fail(o, &p);
	} else if (sandbox_fork(s, 1, o->forking->timeout, forked, o, &o->fork, &p) < 0) {
		fail(o, &p);
		json_decref(p.errors);
	}
}

static void go_on(struct forking *f)
{
	while (f->begun < f->count && f->begun - f->over < AT_ONCE)
		begin(&f->all[f->begun++], sandbox_find(f->request->daemon, f->id));
	if (f->over == f->count)
		answer(f);
}

static void post_fork(struct request *r)
{
	const json_t *count = json_object_get(r->json, "count");
	json_int_t wanted = count == NULL || json_is_null(count) ? 1 : json_integer_value(count);
	const struct sandbox *s = e2b_sandbox_of(r);
	struct forking *f;
	usec_t timeout;

	if (s == NULL || !e2b_read_timeout(r, 1, TIMEOUT_SECONDS * USEC_PER_SEC, &timeout))
		return;
	if (wanted < 1 || wanted > COUNT_MAX) { /* what is no whole number counts as 0 */
		e2b_refuse(r, 400, "count: expected a whole number from 1 to %d", COUNT_MAX);
		return;
	}
	if (s->state == SANDBOX_PAUSED) {
		e2b_refuse(r, 409, "the sandbox is paused; connect to it first, which resumes it");
		return;
	}
	f = xcalloc(1, sizeof *f + (size_t) wanted * sizeof f->all[0]);
	*f = (struct forking){.request = r, .timeout = timeout, .count = (size_t) wanted};
	memcpy(f->id, s->id, sizeof f->id);
	for (size_t i = 0; i < f->count; i++)
		f->all[i].forking = f;
	r->data = f;
	request_on_gone(r, gone);
	go_on(f);
}

static const struct route routes[] = {
    {"POST", "/sandboxes/{id}/fork", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, ROUTE_WORK, NULL, post_fork, e2b_write_problem, 0},
};

void e2b_fork_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
