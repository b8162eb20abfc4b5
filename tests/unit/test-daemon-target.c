/* Targets, hosts, origins, listen addresses, and which route a path has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/router.h"

static enum target_verdict parse(const char *path, const char *query, struct target_parts *t)
{
	const char *why = NULL;
	enum target_verdict v = target_parts_parse(path, query, t, &why);

	assert_int_equal(v != TARGET_GOOD, why != NULL);
	return v;
}

static void paths_are_decoded_and_never_resolved(void **state)
{
	static const char *const nowhere[] = {"/.",      "/..",    "/a/../b", "/a/./b", "/%2e%2e/x",
					      "/%2E./x", "/a%2fb", "/a%2Fb",  "/a%00b", "/a/%2e"};
	static const char *const bad[] = {"/%", "/%4", "/%zz", "/a/%2", "/../%g0"};
	struct target_parts t;

	(void) state;
	assert_int_equal(parse("/v1/%61%20b/c+d/", NULL, &t), TARGET_GOOD);
	assert_int_equal(t.segment_count, 4);
	assert_string_equal(t.segments[0], "v1");
	assert_string_equal(t.segments[1], "a b");
	assert_string_equal(t.segments[2], "c+d");
	assert_string_equal(t.segments[3], "");
	target_parts_done(&t);
	assert_int_equal(parse("/...", NULL, &t), TARGET_GOOD);
	target_parts_done(&t);
	for (size_t i = 0; i < ARRAY_SIZE(nowhere); i++) {
		if (parse(nowhere[i], NULL, &t) != TARGET_NOWHERE)
			fail_msg("%s", nowhere[i]);
		target_parts_done(&t);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (parse(bad[i], NULL, &t) != TARGET_BAD)
			fail_msg("%s", bad[i]);
		target_parts_done(&t);
	}
}

static void queries_are_pairs(void **state)
{
	char many[1024] = "";
	struct target_parts t;

	(void) state;
	assert_int_equal(parse("/", "path=%2Fetc%2F..&a=b+c&flag&&x=1=2&%C3%A9=%FF", &t), TARGET_GOOD);
	assert_int_equal(t.pair_count, 5);
	assert_string_equal(t.pairs[0].value, "/etc/..");
	assert_string_equal(t.pairs[1].value, "b c");
	assert_string_equal(t.pairs[2].name, "flag");
	assert_string_equal(t.pairs[2].value, "");
	assert_string_equal(t.pairs[3].value, "1=2");
	assert_string_equal(t.pairs[4].name, "\xc3\xa9");
	assert_string_equal(t.pairs[4].value, "\xff");
	target_parts_done(&t);
	assert_int_equal(parse("/", "a=%00", &t), TARGET_BAD);
	target_parts_done(&t);
	assert_int_equal(parse("/", "a%0=1", &t), TARGET_BAD);
	target_parts_done(&t);
	for (size_t i = 0; i < QUERY_PAIRS_MAX + 1; i++)
		memcpy(many + strlen(many), "a=1&", 5);
	assert_int_equal(parse("/", many, &t), TARGET_BAD);
	target_parts_done(&t);
}

static void hosts_have_one_form(void **state)
{
	static const char *const bad[] = {"",     ":80",    "a b", "a:b", "a:99999", "a/b", "user@a",
					  "[::1", "[::1]x", "[x]", "::1", ".a",      "a%41"};
	char host[HOST_SIZE];

	(void) state;
	assert_true(host_parse("LocalHost:80", 12, host));
	assert_string_equal(host, "localhost");
	assert_true(host_parse("[0:0::1]:80", 11, host));
	assert_string_equal(host, "::1");
	assert_true(host_parse("3000-i0abc.sbx.example.test.", 28, host));
	assert_string_equal(host, "3000-i0abc.sbx.example.test");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (host_parse(bad[i], strlen(bad[i]), host))
			fail_msg("\"%s\" was taken as %s", bad[i], host);
	assert_true(host_is_loopback("127.9.9.9") && host_is_loopback("a.localhost") && host_is_loopback("::1"));
	assert_false(host_is_loopback("localhost.example.org") || host_is_loopback("127.0.0.1.example.org") ||
		     host_is_loopback("10.0.0.1") || host_is_loopback(".localhost") || host_is_loopback("127.1"));
}

static void hosts_and_origins_must_be_known(void **state)
{
	struct origins o = {0};

	(void) state;
	assert_true(origins_add_host(&o, "Box.Example.org"));
	assert_true(origins_add_origin(&o, "https://App.example.org"));
	assert_true(origins_set_domain(&o, "sbx.example.org:8443"));
	assert_false(origins_add_host(&o, "a b") || origins_add_origin(&o, "app.example.org") || origins_add_origin(&o, "null"));
	assert_true(origin_host_allowed(&o, "localhost", "10.0.0.1"));
	assert_true(origin_host_allowed(&o, "box.example.org", "10.0.0.1"));
	assert_true(origin_host_allowed(&o, "10.0.0.1", "10.0.0.1"));
	assert_true(origin_host_allowed(&o, "3000-x.sbx.example.org", ""));
	assert_false(origin_host_allowed(&o, "10.0.0.2", "10.0.0.1"));
	assert_false(origin_host_allowed(&o, "evil.example", "10.0.0.1"));
	assert_false(origin_host_allowed(&o, "xsbx.example.org", ""));
	assert_true(origin_allowed(&o, "https://app.example.org", ""));
	assert_true(origin_allowed(&o, "http://localhost:3000", ""));
	assert_true(origin_allowed(&o, "http://[::1]:3000", ""));
	assert_true(origin_allowed(&o, "http://10.0.0.1", "10.0.0.1"));
	assert_false(origin_allowed(&o, "http://app.example.org", ""));
	assert_false(origin_allowed(&o, "null", "") || origin_allowed(&o, "", "") || origin_allowed(&o, "file://localhost", ""));
	assert_false(origin_allowed(&o, "http://3000-x.localhost", ""));
	assert_false(origin_allowed(&o, "http://localhost.evil.example", ""));
	origins_done(&o);
}

static void nothing(struct request *r)
{
	(void) r;
}

static const struct route table[] = {
    {"GET", "/v1/sandboxes", SCOPE_USE, TAKES_NOTHING, 0, NULL, nothing, NULL, 0},
    {"POST", "/v1/sandboxes", SCOPE_CREATE, TAKES_JSON, 0, NULL, nothing, NULL, 0},
    {"GET", "/v1/sandboxes/{id}", SCOPE_USE, TAKES_NOTHING, 0, NULL, nothing, NULL, 0},
    {"GET", "/v1/sandboxes/{id}/files/{name}", SCOPE_USE, TAKES_NOTHING, 0, NULL, nothing, NULL, 0},
    {"GET", "/v1/sandboxes/{id}/files/stat", SCOPE_USE, TAKES_NOTHING, 0, NULL, nothing, NULL, 0},
    {"GET", "/v1/sandboxes/metrics", SCOPE_USE, TAKES_NOTHING, 0, NULL, nothing, NULL, 0},
};

static const char *find(struct router *router, const char *method, const char *path, struct request *r, char *methods)
{
	const struct route *route;

	*r = (struct request){.method = method};
	assert_int_equal(parse(path, NULL, &r->target), TARGET_GOOD);
	route = router_find(router, r, methods);
	return route != NULL ? route->pattern : "";
}

static void texts_are_better_than_parameters(void **state)
{
	struct router *router = router_new();
	char methods[ROUTER_ALLOW_SIZE];
	struct request r;

	(void) state;
	router_add(router, table, ARRAY_SIZE(table));
	assert_string_equal(find(router, "GET", "/v1/sandboxes/abc", &r, methods), "/v1/sandboxes/{id}");
	assert_string_equal(r.params[0], "abc");
	target_parts_done(&r.target);
	assert_string_equal(find(router, "HEAD", "/v1/sandboxes/metrics", &r, methods), "/v1/sandboxes/metrics");
	assert_null(r.params[0]);
	target_parts_done(&r.target);
	assert_string_equal(find(router, "GET", "/v1/sandboxes/a/files/stat", &r, methods), "/v1/sandboxes/{id}/files/stat");
	target_parts_done(&r.target);
	assert_string_equal(find(router, "GET", "/v1/sandboxes/a/files/x%3Ay", &r, methods), "/v1/sandboxes/{id}/files/{name}");
	assert_string_equal(r.params[1], "x:y");
	target_parts_done(&r.target);
	assert_string_equal(find(router, "PUT", "/v1/sandboxes", &r, methods), "");
	assert_string_equal(methods, "GET, HEAD, POST");
	target_parts_done(&r.target);
	for (size_t i = 0; i < 5; i++) {
		static const char *const none[] = {"/v1", "/v1/sandboxes/", "/v1//sandboxes", "/", "/v1/sandboxes/a/files"};

		assert_string_equal(find(router, "GET", none[i], &r, methods), "");
		assert_string_equal(methods, "");
		target_parts_done(&r.target);
	}
	(void) router_free(router);
}

static void listen_addresses_are_read(void **state)
{
	static const char *const bad[] = {"",       "7575",  "127.0.0.1", "127.0.0.1:",    "127.0.0.1:99999",
					  "::1:80", "[::1]", "unix:",     "127.0.0.1:http"};
	struct listen_address a;
	struct zw_error e;
	char text[ADDRESS_TEXT_SIZE];

	(void) state;
	assert_int_equal(listen_address_parse("127.0.0.1:7575", &a, &e), 0);
	assert_true(listen_address_is_local(&a) && a.port == 7575 && a.socket_count == 1);
	assert_string_equal(address_and_port(&a.sockets[0].address, text), "127.0.0.1:7575");
	listen_address_done(&a);
	assert_int_equal(listen_address_parse("[::1]:0", &a, &e), 0);
	assert_true(listen_address_is_local(&a));
	assert_string_equal(address_and_port(&a.sockets[0].address, text), "[::1]:0");
	listen_address_done(&a);
	assert_int_equal(listen_address_parse(":80", &a, &e), 0);
	assert_false(listen_address_is_local(&a));
	assert_int_equal(a.socket_count, 2);
	listen_address_done(&a);
	assert_int_equal(listen_address_parse("0.0.0.0:80", &a, &e), 0);
	assert_false(listen_address_is_local(&a));
	listen_address_done(&a);
	assert_int_equal(listen_address_parse("unix:/tmp/x", &a, &e), 0);
	assert_true(listen_address_is_local(&a));
	assert_string_equal(a.unix_path, "/tmp/x");
	listen_address_done(&a);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (listen_address_parse(bad[i], &a, &e) == 0)
			fail_msg("\"%s\" was taken", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(paths_are_decoded_and_never_resolved),
	    cmocka_unit_test(queries_are_pairs),
	    cmocka_unit_test(hosts_have_one_form),
	    cmocka_unit_test(hosts_and_origins_must_be_known),
	    cmocka_unit_test(texts_are_better_than_parameters),
	    cmocka_unit_test(listen_addresses_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
