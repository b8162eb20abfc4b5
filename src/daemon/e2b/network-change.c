/* PUT /sandboxes/{id}/network: what is left of the rules of the start. The broker of the sandbox is told names and addresses to
 * which it keeps beside the rules, so that nothing can be opened that was not open at the start; and may be told others later.
 * Forks and snapshots get the policy as it is now. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"

struct change {
	struct request *request;
	char id[SANDBOX_ID_SIZE];
	json_t *entries;
	struct sandbox_policy policy;
};

static void free_change(struct change *c)
{
	json_decref(c->entries);
	sandbox_policy_done(&c->policy);
	free(c);
}

static bool has_entries(const json_t *network, const char *name)
{
	return json_array_size(json_object_get(network, name)) > 0;
}

static bool chose_network(const struct sandbox *s)
{
	const json_t *network = json_object_get(s->extras, "network");

	return json_is_boolean(json_object_get(s->extras, "allow_internet_access")) || has_entries(network, "allowOut") ||
	       has_entries(network, "denyOut");
}

static void set_or_drop(json_t *into, const char *name, const json_t *from)
{
	json_t *value = json_object_get(from, name);

	if (value != NULL && !json_is_null(value))
		(void) json_object_set(into, name, value);
	else
		(void) json_object_del(into, name);
}

/* What later answers say. */
static void keep_words(struct sandbox *s, const json_t *asked)
{
	json_t *extras = s->extras != NULL ? s->extras : json_object(), *network = json_object_get(extras, "network");

	s->extras = extras;
	network = network != NULL ? json_incref(network) : json_object();
	set_or_drop(network, "allowOut", asked);
	set_or_drop(network, "denyOut", asked);
	if (json_object_size(network) > 0)
		(void) json_object_set(extras, "network", network);
	else
		(void) json_object_del(extras, "network");
	json_decref(network);
	set_or_drop(extras, "allow_internet_access", asked);
}

static void apply(struct sandbox *s, struct change *c)
{
	if (s->start_policy == NULL) {
		s->start_chosen = chose_network(s);
		s->start_policy = take_ptr(&s->policy.text);
	}
	free(s->policy.text);
	s->policy.text = take_ptr(&c->policy.text);
	keep_words(s, c->request->json);
	sandbox_changed(s);
	sandbox_event(s, "network_changed", json_pack("{sO}", "left", c->entries));
}

static void told(void *arg, const json_t *m, int *fd)
{
	struct change *c = arg;
	struct request *r = c->request;
	struct sandbox *s = sandbox_find(r->daemon, c->id);
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;

	(void) fd;
	if (s == NULL || error == ESHUTDOWN) {
		e2b_refuse(r, 404, "there is no sandbox %.64s", r->params[0]);
	} else if (error == ENOTSUP || error == ENOSYS) {
		e2b_refuse(r, 501, "changing the network of a sandbox of this isolation is not supported");
	} else if (error == EMSGSIZE) {
		e2b_refuse(r, 413, "network: the entries are too long together");
	} else if (error != 0) {
		e2b_refuse(r, 503, "the network of the sandbox cannot be changed: %s", strerror(error));
	} else {
		apply(s, c);
		respond_empty(r, 204);
	}
	free_change(c);
}

static void refuse_more(struct request *r)
{
	e2b_refuse(
	    r, 501,
	    "opening more than what the sandbox had at its start is not supported; create one with the rules that it needs");
}

/* False with the request refused: more is asked for than there was. `overlay`: the policy of what is left, or NULL. */
static bool check(struct request *r, const struct sandbox *s, const struct policy *start, json_t **ret_overlay)
{
	const struct policy *ceiling = &r->daemon->sandboxes->policies.ceiling;
	const json_t *access = json_object_get(r->json, "allow_internet_access");
	struct e2b_refusal refusal;
	json_t *beyond = NULL, *entries;
	bool all;

	if (access != NULL && !json_is_null(access) && !json_is_boolean(access)) {
		e2b_refuse(r, 400, "allow_internet_access: expected true or false");
		return false;
	}
	if (!e2b_network_policy(ceiling, access, r->json, true, &beyond, &refusal)) {
		e2b_refuse(r, refusal.status, "%s", refusal.message);
		return false;
	}
	json_decref(beyond);
	if (!e2b_network_policy(start, access, r->json, true, ret_overlay, &refusal)) {
		if (refusal.status == 403)
			refuse_more(r);
		else
			e2b_refuse(r, refusal.status, "%s", refusal.message);
		return false;
	}
	entries = e2b_network_entries(access, r->json);
	all = json_is_null(entries);
	json_decref(entries);
	/* All that the ceiling opens, or for one whose maker said nothing what it got then. */
	if (!all || !(s->start_policy != NULL ? s->start_chosen : chose_network(s)) || e2b_network_equal(ceiling, start))
		return true;
	json_decref(*ret_overlay);
	refuse_more(r);
	return false;
}

static void ask(struct request *r, struct sandbox *s, const char *text, const json_t *overlay, bool has_rules)
{
	struct change *c = xcalloc(1, sizeof *c);
	const json_t *over;
	struct problem p = {0};

	*c = (struct change){.request = r,
			     .entries = e2b_network_entries(json_object_get(r->json, "allow_internet_access"), r->json)};
	memcpy(c->id, s->id, sizeof c->id);
	over = json_is_null(c->entries) ? NULL : overlay; /* all: as it was, with the secrets of its rules */
	if (sandbox_policy_remake(&r->daemon->sandboxes->policies, text, over, NULL, &c->policy, &p) < 0) {
		refuse_with(r, &p);
		json_decref(p.errors);
		free_change(c);
	} else if (!has_rules) { /* there is no broker, and nothing that could be taken away */
		apply(s, c);
		respond_empty(r, 204);
		free_change(c);
	} else if (session_ask(s->session, json_pack("{ss sO}", "t", "narrow", "entries", c->entries), NULL, 0, told, c, NULL) <
		   0) {
		e2b_refuse(r, 503, "the sandbox cannot be asked now; try again");
		free_change(c);
	}
}

static void put_network(struct request *r)
{
	struct sandbox *s = e2b_sandbox_of(r);
	const char *text = s == NULL ? NULL : s->start_policy != NULL ? s->start_policy : s->policy.text;
	struct policy start;
	json_t *overlay = NULL;

	if (s == NULL)
		return;
	if (sandbox_policy_read(text, &start) < 0) {
		e2b_refuse(r, 503, "the policy of the sandbox cannot be read");
		return;
	}
	if (check(r, s, &start, &overlay)) {
		ask(r, s, text, overlay, start.network.allow_count > 0);
		json_decref(overlay);
	}
	policy_done(&start);
}

static const struct route routes[] = {
    {"PUT", "/sandboxes/{id}/network", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, 0, NULL, put_network, e2b_write_problem, 0},
};

void e2b_network_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
