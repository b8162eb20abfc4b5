/* /v1/sandboxes: from creation to the end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/mem.h"
#include "daemon/api-run.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/sandbox-contexts.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"
#include "policy/text.h"

enum { NAME_MAX_BYTES = 256, METADATA_MAX_BYTES = 64 * 1024 };

#define DEFAULT_TIMEOUT (300 * USEC_PER_SEC)

/* ---- Creation. ---- */

static void created(void *arg, struct sandbox *s)
{
	struct request *r = arg;

	if (s->state == SANDBOX_ENDED) {
		refuse_with(r, &s->problem);
		s->hidden = true; /* it never was */
		return;
	}
	if (request_is_gone(r) && request_header(r, "idempotency-key") == NULL) {
		respond_empty(r, 204);
		sandbox_end(s, "deleted", "the client has left before it was told");
		return;
	}
	respond_header(r, "Location", "/v1/sandboxes/%s", s->id);
	respond_json(r, 201, sandbox_to_json(s));
}

bool read_life(const struct request *r, const json_t *value, usec_t missing, usec_t *ret, struct json_faults *f)
{
	if (value == NULL || json_is_null(value)) {
		*ret = missing < r->daemon->options->max_timeout ? missing : r->daemon->options->max_timeout;
		return true;
	}
	if (!json_in_usec(value, "timeout", ret, f))
		return false;
	if (*ret > r->daemon->options->max_timeout) {
		char most[32];

		json_fault_add(f, "timeout", NULL, "expected at most %s, the longest life on this service",
			       format_usec(r->daemon->options->max_timeout, most, sizeof most));
		return false;
	}
	if (*ret < 1000) {
		json_fault_add(f, "timeout", "1ms or more", "expected 1 ms or more");
		return false;
	}
	return true;
}

static size_t texts_size(const json_t *object)
{
	const char *key;
	json_t *value;
	size_t size = 0;

	json_object_foreach((json_t *) (uintptr_t) object, key, value) size += strlen(key) + json_string_length(value);
	return size;
}

static void post_sandbox(struct request *r)
{
	const char *on_timeout = json_in_text(r->json, "on_timeout");
	const json_t *metadata = json_object_get(r->json, "metadata"), *env = json_object_get(r->json, "env");
	struct json_faults faults = {0};
	struct problem problem = {0};
	struct sandbox *s;
	struct sandbox_wish wish = {.policy = json_object_get(r->json, "policy"),
				    .metadata = json_is_object(metadata) ? metadata : NULL,
				    .env = json_is_object(env) ? env : NULL,
				    .template = json_in_text(r->json, "template"),
				    .name = json_in_text(r->json, "name"),
				    .pause_on_timeout = on_timeout != NULL && strcmp(on_timeout, "pause") == 0};

	(void) read_life(r, json_object_get(r->json, "timeout"), DEFAULT_TIMEOUT, &wish.timeout, &faults);
	if (on_timeout != NULL && !wish.pause_on_timeout && strcmp(on_timeout, "kill") != 0)
		json_fault_add(&faults, "on_timeout", "kill or pause", "expected kill or pause");
	if (wish.name != NULL && strlen(wish.name) > NAME_MAX_BYTES)
		json_fault_add(&faults, "name", NULL, "expected at most %d bytes", NAME_MAX_BYTES);
	if (texts_size(metadata) > METADATA_MAX_BYTES)
		json_fault_add(&faults, "metadata", NULL, "expected at most 64 KiB in all");
	if (!context_env_is_good(wish.env))
		json_fault_add(&faults, "env", "names without '='", "expected names that are not empty and have no '='");
	if (texts_size(env) > METADATA_MAX_BYTES)
		json_fault_add(&faults, "env", NULL, "expected at most 64 KiB in all");
	if (faults.count > 0) {
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
		return;
	}
	if (sandbox_create(r->daemon->sandboxes, &wish, created, r, &s, &problem) < 0) {
		refuse_with(r, &problem);
		json_decref(problem.errors);
	}
}

/* ---- The list. ---- */

struct filter {
	unsigned states; /* bits */
	const char *template;
};

static bool read_states(const char *text, struct filter *f)
{
	return sandbox_states_read(
	    text, 1U << SANDBOX_RUNNING | 1U << SANDBOX_PAUSED | 1U << SANDBOX_ENDING | 1U << SANDBOX_ENDED, &f->states);
}

static char *decode(const char *text, size_t size)
{
	char *out = xcalloc(size + 1, 1), *to = out;

	for (size_t i = 0; i < size; i++) {
		if (text[i] == '%' && i + 2 < size && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
			*to++ = (char) (hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
			i += 2;
		} else {
			*to++ = (char) (text[i] == '+' ? ' ' : text[i]);
		}
	}
	return out;
}

/* The next ?metadata= of the query, decoded and owned by the caller; NULL: there is no further one. */
static char *next_metadata(const char **at)
{
	while (*at != NULL && **at != '\0') {
		const char *p = *at;
		size_t size = strcspn(p, "&");

		*at = p + size + strspn(p + size, "&");
		if (strncmp(p, "metadata=", 9) == 0)
			return decode(p + 9, size - 9);
	}
	return NULL;
}

static bool metadata_is_good(const struct request *r)
{
	const char *at = r->query;
	bool good = true;

	for (char *pair = next_metadata(&at); pair != NULL; pair = next_metadata(&at)) {
		good = good && strchr(pair, '=') != NULL;
		free(pair);
	}
	return good;
}

/* Every ?metadata=KEY%3DVALUE must hold. */
static bool fits_metadata(const struct request *r, const struct sandbox *s)
{
	const char *at = r->query, *value;
	bool fits = true;

	for (char *pair = next_metadata(&at); pair != NULL; pair = next_metadata(&at)) {
		char *equal = strchr(pair, '=');

		if (equal != NULL)
			*equal++ = '\0';
		value = json_string_value(json_object_get(s->metadata, pair));
		fits = fits && equal != NULL && value != NULL && strcmp(value, equal) == 0;
		free(pair);
	}
	return fits;
}

static bool fits(const struct request *r, const struct filter *f, const struct sandbox *s)
{
	if (s->hidden || (f->states & 1U << s->state) == 0)
		return false;
	if (f->template != NULL && (s->policy.template == NULL || strcmp(s->policy.template, f->template) != 0))
		return false;
	return fits_metadata(r, s);
}

static void list_sandboxes(struct request *r)
{
	const char *cursor, *states = request_query(r, "state");
	struct filter f = {.template = request_query(r, "template")};
	uint64_t before = ZW_UNLIMITED;
	json_t *list, *next = NULL;
	size_t limit;

	if (!request_page(r, &limit, &cursor))
		return;
	if (cursor != NULL && parse_whole(cursor, &before) < 0) {
		refuse(r, PROBLEM_BAD_REQUEST, "leave it out, or send what next_cursor said",
		       "cursor: this is none of this list");
		return;
	}
	if (!read_states(states != NULL ? states : "running,paused", &f)) {
		refuse(r, PROBLEM_BAD_REQUEST, "separate several by commas", "state: expected running, paused or ended");
		return;
	}
	if (!metadata_is_good(r)) {
		refuse(r, PROBLEM_BAD_REQUEST, "write metadata=KEY%3DVALUE", "metadata: expected KEY=VALUE, percent-encoded");
		return;
	}
	list = json_array();
	for (const struct sandbox *s = r->daemon->sandboxes->newest; s != NULL; s = s->older) {
		if (s->number >= before || !fits(r, &f, s))
			continue;
		if (json_array_size(list) == limit) {
			next = json_sprintf("%llu", (unsigned long long) before);
			break;
		}
		before = s->number;
		(void) json_array_append_new(list, sandbox_to_json(s));
	}
	respond_json(r, 200, json_pack("{so so}", "sandboxes", list, "next_cursor", next != NULL ? next : json_null()));
}

static void get_sandbox(struct request *r)
{
	const struct sandbox *s = sandbox_or_record_of(r);

	if (s != NULL)
		respond_json(r, 200, sandbox_to_json(s));
}

static void list_templates(struct request *r)
{
	respond_json(r, 200,
		     json_pack("{so sn}", "templates", sandbox_templates(&r->daemon->sandboxes->policies), "next_cursor"));
}

/* ---- The end, and time. ---- */

static void deleted(void *arg, struct sandbox *s)
{
	respond_json(arg, 200, sandbox_to_json(s));
}

static void delete_sandbox(struct request *r)
{
	struct sandbox *s = sandbox_or_record_of(r);

	if (s == NULL)
		return;
	sandbox_end(s, "deleted", "it was deleted");
	sandbox_on_end(s, deleted, r);
}

static void set_timeout(struct request *r)
{
	struct sandbox *s = sandbox_of(r, false);
	struct json_faults faults = {0};
	usec_t timeout;

	if (s == NULL)
		return;
	if (!read_life(r, json_object_get(r->json, "timeout"), DEFAULT_TIMEOUT, &timeout, &faults)) {
		refuse_faults(r, PROBLEM_BAD_REQUEST, &faults);
		return;
	}
	sandbox_set_timeout(s, timeout);
	respond_json(r, 200, sandbox_to_json(s));
}

/* ---- Pausing, numbers, events. ---- */

/* The sandbox of a request whose answer comes later: gone, if its record is. */
static struct sandbox *still(struct request *r)
{
	return sandbox_find(r->daemon, r->params[0]);
}

static bool is_done(struct request *r, const json_t *m)
{
	int error = m != NULL ? (int) json_integer_value(json_object_get(m, "errno")) : ESHUTDOWN;
	const char *why = json_string_value(json_object_get(m, "message"));

	if (error == 0)
		return true;
	refuse_errno(r, error, why != NULL ? why : "it cannot be done");
	return false;
}

static void paused(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	struct sandbox *s = still(r);

	(void) fd;
	if (!is_done(r, m))
		return;
	sandbox_set_paused(s, true);
	respond_json(r, 200, sandbox_to_json(s));
}

static void resumed(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	struct sandbox *s = still(r);

	(void) fd;
	if (!is_done(r, m))
		return;
	sandbox_set_paused(s, false);
	respond_json(r, 200, sandbox_to_json(s));
}

static void ask_sandbox(struct request *r, const char *what, session_answer *answer)
{
	const struct sandbox *s = sandbox_of(r, false);
	int error = s != NULL ? session_ask(s->session, json_pack("{ss}", "t", what), NULL, 0, answer, r, NULL) : 0;

	if (error < 0)
		refuse_errno(r, -error, "the sandbox cannot be asked");
}

static void pause_sandbox(struct request *r)
{
	ask_sandbox(r, "pause", paused);
}

static void resume_sandbox(struct request *r)
{
	ask_sandbox(r, "resume", resumed);
}

static void told_stats(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	struct sandbox *s = still(r);

	(void) fd;
	if (m == NULL || json_object_get(m, "usage") == NULL) {
		(void) is_done(r, NULL);
		return;
	}
	json_decref(s->usage);
	s->usage = json_incref(json_object_get(m, "usage"));
	sandbox_account(s, m);
	respond_json(r, 200,
		     json_pack("{sO sO? sO si}", "usage", s->usage, "limits", s->limits, "processes",
			       json_object_get(m, "processes"), "contexts", (int) sandbox_contexts_count(s)));
}

static void get_stats(struct request *r)
{
	ask_sandbox(r, "stats", told_stats);
}

static void get_events(struct request *r)
{
	struct sandbox *s = sandbox_or_record_of(r);
	bool follow;

	if (s != NULL && request_query_bool(r, "follow", true, &follow))
		sandbox_events_follow(s, r, follow);
}

static const struct json_field create_fields[] = {
    {"policy", JSON_IN_TEXT | JSON_IN_OBJECT | JSON_IN_NULL},
    {"template", JSON_IN_TEXT | JSON_IN_NULL},
    {"name", JSON_IN_TEXT | JSON_IN_NULL},
    {"timeout", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_NULL},
    {"on_timeout", JSON_IN_TEXT | JSON_IN_NULL},
    {"metadata", JSON_IN_OBJECT | JSON_IN_TEXTS | JSON_IN_NULL},
    {"env", JSON_IN_OBJECT | JSON_IN_TEXTS | JSON_IN_NULL},
    {NULL, 0},
};

static const struct json_field timeout_fields[] = {{"timeout", JSON_IN_TEXT | JSON_IN_NUMBER | JSON_IN_REQUIRED}, {NULL, 0}};

#define S "/v1/sandboxes/{id}"

static const struct route routes[] = {
    {"POST", "/v1/sandboxes", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, ROUTE_WORK | ROUTE_IDEMPOTENT, create_fields, post_sandbox,
     NULL, 0},
    {"GET", "/v1/sandboxes", SCOPE_USE, TAKES_NOTHING, 0, NULL, list_sandboxes, NULL, 0},
    {"GET", S, SCOPE_USE, TAKES_NOTHING, 0, NULL, get_sandbox, NULL, 0},
    {"DELETE", S, SCOPE_CREATE, TAKES_NOTHING, 0, NULL, delete_sandbox, NULL, 0},
    {"POST", S "/timeout", SCOPE_CREATE, TAKES_JSON, 0, timeout_fields, set_timeout, NULL, 0},
    {"POST", S "/pause", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, 0, NULL, pause_sandbox, NULL, 0},
    {"POST", S "/resume", SCOPE_CREATE, TAKES_JSON_OR_NOTHING, ROUTE_WORK, NULL, resume_sandbox, NULL, 0},
    {"GET", S "/stats", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_stats, NULL, 0},
    {"GET", S "/events", SCOPE_USE, TAKES_NOTHING, ROUTE_LASTING, NULL, get_events, NULL, 0},
    {"GET", "/v1/templates", SCOPE_USE, TAKES_NOTHING, 0, NULL, list_templates, NULL, 0},
};

void api_sandboxes_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
