/* POST S/fork. */
#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/daemon.h"
#include "daemon/sandbox-fork.h"

static void forked(void *arg, struct sandbox *const *made, size_t count, struct problem *p)
{
	struct request *r = arg;
	json_t *list;

	if (p != NULL) {
		refuse_with(r, p);
		json_decref(p->errors);
		return;
	}
	list = json_array();
	for (size_t i = 0; i < count; i++)
		(void) json_array_append_new(list, sandbox_to_json(made[i]));
	respond_json(r, 201, json_pack("{so}", "sandboxes", list));
}

/* With an Idempotency-Key the client can ask again for what was made. */
static void gone(struct request *r)
{
	if (request_header(r, "idempotency-key") != NULL)
		return;
	sandbox_fork_cancel(r->data);
	request_reset(r);
}

static void post_fork(struct request *r)
{
	const json_t *count = json_object_get(r->json, "count");
	struct sandbox *s = sandbox_of(r, true);
	json_int_t wanted = json_is_integer(count) ? json_integer_value(count) : 1;
	struct json_faults faults = {0};
	struct problem problem = {0};
	struct sandbox_fork *f;
	usec_t timeout = 0;

	if (s == NULL)
		return;
	(void) read_life(r, json_object_get(r->json, "timeout"), s->timeout, &timeout, &faults);
	if ((count != NULL && !json_is_integer(count) && !json_is_null(count)) || wanted < 1 || wanted > FORK_COUNT_MAX)
		json_fault_add(&faults, "count", NULL, "expected a whole number from 1 to %d", FORK_COUNT_MAX);
	if (faults.count > 0) {
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
		return;
	}
	if (sandbox_fork(s, (size_t) wanted, timeout, forked, r, &f, &problem) < 0) {
		refuse_with(r, &problem);
		json_decref(problem.errors);
		return;
	}
	r->data = f;
	request_on_gone(r, gone);
}

static const struct json_field fields[] = {
    {"count", JSON_IN_NUMBER | JSON_IN_NULL}, {"timeout", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_NULL}, {NULL, 0}};

static const struct route routes[] = {
    {"POST", "/v1/sandboxes/{id}/fork", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, ROUTE_WORK | ROUTE_IDEMPOTENT, fields, post_fork,
     NULL, 0},
};

void api_fork_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
