/* The description of the native interface against the tables that the daemon dispatches by: each route is described, with its
 * scope and the members of its body, and nothing is described that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/router.h"

extern const char openapi_document[];
extern const uint64_t openapi_document_size;

struct world {
	struct daemon d;
	json_t *document;
};

static int set_up(void **state)
{
	struct world *w = xcalloc(1, sizeof *w);

	w->d.router = router_new();
	daemon_add_routes(&w->d);
	w->document = json_loadb(openapi_document, (size_t) openapi_document_size, JSON_REJECT_DUPLICATES, NULL);
	*state = w;
	return w->document != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	router_free(w->d.router);
	json_decref(w->document);
	free(w);
	return 0;
}

/* Routes of other protocols are described elsewhere. */
static bool is_native(const struct route *r)
{
	return strncmp(r->pattern, "/v1/", 4) == 0 || strcmp(r->pattern, "/health") == 0 || strcmp(r->pattern, "/ready") == 0 ||
	       strcmp(r->pattern, "/metrics") == 0;
}

static const json_t *operation(const struct world *w, const struct route *r)
{
	char method[16];
	size_t i = 0;

	for (; r->method[i] != '\0' && i + 1 < sizeof method; i++)
		method[i] = (char) tolower((unsigned char) r->method[i]);
	method[i] = '\0';
	return json_object_get(json_object_get(json_object_get(w->document, "paths"), r->pattern), method);
}

/* Follows "#/a/b/c". */
static const json_t *resolve(const struct world *w, const json_t *value)
{
	const char *to = json_string_value(json_object_get(value, "$ref"));
	cleanup_free char *copy = NULL;
	char *rest;

	if (to == NULL)
		return value;
	copy = xstrdup(to + 2);
	rest = copy;
	value = w->document;
	for (const char *word = strsep(&rest, "/"); word != NULL; word = strsep(&rest, "/"))
		value = json_object_get(value, word);
	return value;
}

static bool has_text(const json_t *list, const char *text)
{
	size_t i;
	json_t *item;

	json_array_foreach(list, i, item) if (json_is_string(item) && strcmp(json_string_value(item), text) == 0) return true;
	return false;
}

static void routes_and_description_are_the_same(void **state)
{
	const struct world *w = *state;
	const struct route *r;
	const char *path;
	json_t *methods;
	size_t described = 0, native = 0;

	for (size_t i = 0; (r = router_at(w->d.router, i)) != NULL; i++) {
		if (!is_native(r))
			continue;
		native++;
		if (operation(w, r) == NULL)
			fail_msg("%s %s is not described", r->method, r->pattern);
	}
	json_object_foreach(json_object_get(w->document, "paths"), path, methods) described += json_object_size(methods);
	assert_true(native > 40);
	assert_int_equal(described, native);
}

static void scopes_are_described(void **state)
{
	const struct world *w = *state;
	const struct route *r;

	for (size_t i = 0; (r = router_at(w->d.router, i)) != NULL; i++) {
		const json_t *op = is_native(r) ? operation(w, r) : NULL;

		if (op == NULL)
			continue;
		if ((r->flags & ROUTE_OPEN) != 0)
			assert_int_equal(json_array_size(json_object_get(op, "security")), 0);
		else
			assert_string_equal(json_string_value(json_object_get(op, "x-scope")), scope_name(r->scope));
	}
}

static bool has_parameter(const json_t *op, const char *reference)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(op, "parameters"), i,
			   item) if (json_object_get(item, "$ref") != NULL &&
				     strcmp(json_string_value(json_object_get(item, "$ref")), reference) == 0) return true;
	return false;
}

static void check_body(const struct world *w, const struct route *r, const json_t *op)
{
	const json_t *body = json_object_get(op, "requestBody"), *schema, *properties;
	size_t count = 0;

	schema = resolve(w, json_object_get(json_object_get(json_object_get(body, "content"), "application/json"), "schema"));
	properties = json_object_get(schema, "properties");
	assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
	assert_int_equal(json_is_true(json_object_get(body, "required")), r->takes == TAKES_JSON);
	for (const struct json_field *f = r->fields; f->name != NULL; f++, count++) {
		bool required = has_text(json_object_get(schema, "required"), f->name);

		if (json_object_get(properties, f->name) == NULL)
			fail_msg("%s %s: the member %s is not described", r->method, r->pattern, f->name);
		if (required != ((f->kinds & JSON_IN_REQUIRED) != 0))
			fail_msg("%s %s: the member %s is described as %s", r->method, r->pattern, f->name,
				 required ? "required" : "optional");
	}
	if (json_object_size(properties) != count)
		fail_msg("%s %s: members are described that it does not take", r->method, r->pattern);
}

static void bodies_are_described(void **state)
{
	const struct world *w = *state;
	const struct route *r;
	size_t checked = 0;

	for (size_t i = 0; (r = router_at(w->d.router, i)) != NULL; i++) {
		const json_t *op = is_native(r) ? operation(w, r) : NULL;

		if (op == NULL)
			continue;
		if ((r->flags & ROUTE_IDEMPOTENT) != 0 && !has_parameter(op, "#/components/parameters/idempotencyKey"))
			fail_msg("%s %s: Idempotency-Key is not described", r->method, r->pattern);
		if (r->takes == TAKES_STREAM)
			assert_non_null(json_object_get(op, "requestBody"));
		if (r->fields == NULL)
			continue;
		check_body(w, r, op);
		checked++;
	}
	assert_true(checked > 8);
}

/* Every problem code of the daemon is in the description. */
static void codes_are_described(void **state)
{
	const struct world *w = *state;
	const json_t *problem =
	    json_object_get(json_object_get(json_object_get(w->document, "components"), "schemas"), "Problem");
	const json_t *codes = json_object_get(json_object_get(json_object_get(problem, "properties"), "code"), "enum");

	for (int i = 0; i < PROBLEM_MAX; i++)
		assert_true(has_text(codes, problem_name((enum problem_code) i)));
	assert_int_equal(json_array_size(codes), PROBLEM_MAX);
}

static size_t check_references(const struct world *w, const json_t *value)
{
	size_t count = 0, i;
	const char *key;
	json_t *item;

	if (json_object_get(value, "$ref") != NULL) {
		if (resolve(w, value) == NULL)
			fail_msg("%s leads nowhere", json_string_value(json_object_get(value, "$ref")));
		return 1;
	}
	json_object_foreach((json_t *) (uintptr_t) value, key, item) count += check_references(w, item);
	json_array_foreach(value, i, item) count += check_references(w, item);
	return count;
}

static void references_lead_somewhere(void **state)
{
	const struct world *w = *state;

	assert_true(check_references(w, w->document) > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(routes_and_description_are_the_same, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(scopes_are_described, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(bodies_are_described, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(codes_are_described, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(references_lead_somewhere, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
