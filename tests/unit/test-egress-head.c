/* Heads of HTTP messages: one reading of each, and none of what could be read in two ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "egress/authority.h"
#include "egress/head.h"

static int read_head(const char *text, size_t size, bool request, struct head *ret, struct head_fault *fault)
{
	size_t scanned = 0;
	ssize_t end = head_find(text, size, &scanned, fault);

	*fault = end < 0 ? *fault : (struct head_fault){0};
	if (end <= 0)
		return end == 0 ? -EAGAIN : (int) end;
	return request ? head_parse_request(text, (size_t) end, ret, fault) : head_parse_response(text, (size_t) end, ret, fault);
}

static int request(const char *text, struct head *ret)
{
	struct head_fault fault;
	int r = read_head(text, strlen(text), true, ret, &fault);

	if (r < 0 && r != -EAGAIN)
		assert_true(fault.status >= 400 && fault.why != NULL);
	return r;
}

static int response(const char *text, struct head *ret)
{
	struct head_fault fault;

	return read_head(text, strlen(text), false, ret, &fault);
}

static void a_request_is_read(void **state)
{
	struct head h;

	(void) state;
	assert_int_equal(request("POST /v1/x?a=b HTTP/1.1\r\nHost: a.test\r\nX-Empty:\r\nConnection: Keep-Alive, Upgrade\r\n"
				 "X-Text: \t two words\t\r\nContent-Length: 17\r\n\r\nbody",
				 &h),
			 0);
	assert_true(slice_same(h.method, "POST"));
	assert_true(slice_same(h.target, "/v1/x?a=b"));
	assert_int_equal(h.field_count, 5);
	assert_true(slice_same(h.fields[1].value, ""));
	assert_true(slice_same(h.fields[3].value, "two words"));
	assert_true(h.has_length && !h.chunked && h.keep_alive && h.upgrade && !h.close);
	assert_int_equal(h.length, 17);
}

static void a_response_is_read(void **state)
{
	struct head h;

	(void) state;
	assert_int_equal(response("HTTP/1.1 404 Not Found\r\nTransfer-Encoding: Chunked\r\n\r\n", &h), 0);
	assert_int_equal(h.status, 404);
	assert_true(slice_same(h.reason, "Not Found"));
	assert_true(h.chunked);
	assert_int_equal(response("HTTP/1.0 200\r\n\r\n", &h), 0);
	assert_int_equal(h.minor, 0);
	assert_int_equal(response("HTTP/1.1 204 \r\n\r\n", &h), 0);
	assert_int_equal(h.reason.size, 0);
}

static void what_two_parsers_could_read_differently_is_refused(void **state)
{
#define START "GET / HTTP/1.1\r\nHost: a.test\r\n"
	static const char *const table[] = {
	    START "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
	    START "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
	    START "Content-Length: 1, 1\r\n\r\n",
	    START "Content-Length: +1\r\n\r\n",
	    START "Content-Length: -1\r\n\r\n",
	    START "Content-Length: 0x1\r\n\r\n",
	    START "Content-Length: \r\n\r\n",
	    START "Content-Length: 1 1\r\n\r\n",
	    START "Content-Length: 99999999999999999999\r\n\r\n",
	    START "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	    START "Transfer-Encoding: chunked\r\ncontent-length: 1\r\n\r\n",
	    START "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	    START "Transfer-Encoding: gzip, chunked\r\n\r\n",
	    START "Transfer-Encoding: chunked, identity\r\n\r\n",
	    START "Transfer-Encoding: identity\r\n\r\n",
	    START "Transfer-Encoding: xchunked\r\n\r\n",
	    START "Transfer-Encoding: \"chunked\"\r\n\r\n",
	    START "Transfer-Encoding:\v chunked\r\n\r\n",
	    START "Transfer-Encoding : chunked\r\n\r\n",
	    START "Transfer_Encoding: chunked\r\n\r\n",
	    START "Content_Length: 1\r\n\r\n",
	    START " Transfer-Encoding: chunked\r\n\r\n",
	    START "X: a\r\n b\r\n\r\n",
	    START "X: a\r\n\tb\r\n\r\n",
	    START "X: a\nTransfer-Encoding: chunked\r\n\r\n",
	    START "X: a\rTransfer-Encoding: chunked\r\n\r\n",
	    START "X: a\x01\r\n\r\n",
	    START "X: a\x7f\r\n\r\n",
	    START "X\r\n\r\n",
	    START ": a\r\n\r\n",
	    START "X Y: a\r\n\r\n",
	    START "X(: a\r\n\r\n",
	    "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
	    "GET / HTTP/1.1\nHost: a.test\n\n",
	    "GET / HTTP/1.1\r\r\nHost: a.test\r\n\r\n",
	    "\r\nGET / HTTP/1.1\r\n\r\n",
	    " GET / HTTP/1.1\r\n\r\n",
	    "GET  / HTTP/1.1\r\n\r\n",
	    "GET / HTTP/1.1 \r\n\r\n",
	    "GET / /x HTTP/1.1\r\n\r\n",
	    "GET /\r\n\r\n",
	    "GET / HTTP/2.0\r\n\r\n",
	    "GET / HTTP/1.2\r\n\r\n",
	    "GET / HTTP/01.1\r\n\r\n",
	    "GET / http/1.1\r\n\r\n",
	    "GET / HTTP/1.1,\r\n\r\n",
	    "GET /\t HTTP/1.1\r\n\r\n",
	    "GET /\xc3\xa4 HTTP/1.1\r\n\r\n",
	    "GET /\x7f HTTP/1.1\r\n\r\n",
	    "get / HTTP/1.1\r\n\r\n",
	    "G\tT / HTTP/1.1\r\n\r\n",
	    "GET\t/ HTTP/1.1\r\n\r\n",
	    "ABCDEFGHIJKLMNOPQRSTUVWXY / HTTP/1.1\r\n\r\n",
	    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	    "HTTP/1.1 200 OK\r\n\r\n",
	};
	struct head h;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (request(table[i], &h) != -EBADMSG)
			fail_msg("not refused: %s", table[i]);
	assert_int_equal(request(START "\r\n", &h), 0);
}

static void a_nul_ends_the_reading(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a.test\0.evil.test\r\n\r\n";
	struct head h;
	struct head_fault fault;

	(void) state;
	assert_int_equal(read_head(text, sizeof text - 1, true, &h, &fault), -EBADMSG);
}

static void responses_that_lie_about_their_length_are_refused(void **state)
{
	static const char *const table[] = {
	    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	    "HTTP/1.1 2000 OK\r\n\r\n",
	    "HTTP/1.1 20 OK\r\n\r\n",
	    "HTTP/1.1 099 OK\r\n\r\n",
	    "HTTP/1.1 600 OK\r\n\r\n",
	    "HTTP/1.1  200 OK\r\n\r\n",
	    "HTTP/1.1 200OK\r\n\r\n",
	    "HTTP/2.0 200 OK\r\n\r\n",
	    "ICY 200 OK\r\n\r\n",
	    "HTTP/1.1 200 O\x01K\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
	};
	struct head h;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (response(table[i], &h) != -EBADMSG)
			fail_msg("not refused: %s", table[i]);
}

static void the_end_is_found_however_the_bytes_come(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
	size_t scanned = 0;
	struct head_fault fault;

	(void) state;
	for (size_t n = 1; n < sizeof text - 1; n++)
		assert_int_equal(head_find(text, n, &scanned, &fault), 0);
	assert_int_equal(head_find(text, sizeof text - 1, &scanned, &fault), sizeof text - 1);
	scanned = 0;
	assert_int_equal(head_find("a\r\n\r\nrest", 9, &scanned, &fault), 5);
}

static void heads_are_bounded(void **state)
{
	cleanup_free char *text = xcalloc(HEAD_SIZE_MAX + 64, 1);
	size_t at = (size_t) snprintf(text, 64, "GET / HTTP/1.1\r\n"), scanned = 0;
	struct head_fault fault = {0};
	struct head h;

	(void) state;
	memset(text + at, 'a', HEAD_SIZE_MAX);
	assert_int_equal(head_find(text, HEAD_SIZE_MAX + 10, &scanned, &fault), -E2BIG);
	assert_int_equal(fault.status, 431);
	for (int i = 0; i < 101; i++)
		at += (size_t) snprintf(text + at, 16, "X: %d\r\n", i);
	(void) snprintf(text + at, 8, "\r\n");
	assert_int_equal(read_head(text, at + 2, true, &h, &fault), -EBADMSG);
	assert_int_equal(fault.status, 431);
}

static void fields_for_the_next_hop_are_known(void **state)
{
	struct head h;
	static const bool expected[] = {false, true, true, true, true, true, true, false, true};

	(void) state;
	assert_int_equal(
	    request(
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-mine ,close,, \r\nX-Mine: 1\r\nProxy-Authorization: b\r\nTE: c\r\n"
		"Upgrade: d\r\nHTTP2-Settings: e\r\nX-Other: f\r\nKeep-Alive: g\r\n\r\n",
		&h),
	    0);
	assert_true(h.close);
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		if (head_hop_by_hop(&h, &h.fields[i]) != expected[i])
			fail_msg("field %zu", i);
}

/* ---- Whom a request is for. ---- */

static void an_authority_has_one_form(void **state)
{
	static const char *const bad[] = {
	    "",           ":80",         "a.test:",    "a.test:0",           "a.test:080", "a.test:65536",    "a.test:8o",
	    "a.test:+8",  "user@a.test", "a.test%00",  "a.test%2eevil.test", "a test",     "a..test",         "a.test..",
	    ".a.test",    "[::1",        "::1",        "2001:db8::1",        "[::1%eth0]", "[10.0.0.1]",      "0x7f.1",
	    "0177.0.0.1", "127.1",       "2130706433", "a.test:80:80",       "a.test\t",   "xn--a.test:443x", "a/b",
	    "a.test?",    "a.test#",
	};
	struct authority a;

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (authority_parse(bad[i], strlen(bad[i]), &a) != -EINVAL)
			fail_msg("not refused: %s", bad[i]);
	assert_int_equal(authority_parse("A.Test:443", 10, &a), 0);
	assert_string_equal(a.name, "a.test");
	assert_int_equal(a.port, 443);
	assert_int_equal(authority_parse("[2001:db8::1]:8443", 18, &a), 0);
	assert_int_equal(a.address.family, AF_INET6);
	assert_int_equal(a.port, 8443);
	assert_int_equal(authority_parse("10.1.2.3", 8, &a), 0);
	assert_int_equal(a.address.family, AF_INET);
	assert_int_equal(a.port, 0);
}

static int target_of(const char *text, struct request_target *ret, char buf[300])
{
	static struct head h;
	struct head_fault fault;
	int r;

	(void) snprintf(buf, 300, "%s HTTP/1.1\r\nHost: a.test\r\n\r\n", text);
	r = read_head(buf, strlen(buf), true, &h, &fault);
	return r < 0 ? r : request_target_parse(&h, ret, &fault);
}

static void targets_are_taken_apart(void **state)
{
	struct request_target t;
	char buf[300];

	(void) state;
	assert_int_equal(target_of("GET /a/b?c?d", &t, buf), 0);
	assert_true(slice_same(t.path, "/a/b") && slice_same(t.query, "?c?d") && t.form == REQUEST_ORIGIN);
	assert_int_equal(target_of("GET http://A.test:8080/x", &t, buf), 0);
	assert_true(t.form == REQUEST_ABSOLUTE && !t.https && slice_same(t.path, "/x") && t.authority.port == 8080);
	assert_int_equal(target_of("GET HTTPS://a.test?q", &t, buf), 0);
	assert_true(t.https && slice_same(t.path, "/") && slice_same(t.query, "?q"));
	assert_int_equal(target_of("OPTIONS http://a.test", &t, buf), 0);
	assert_true(slice_same(t.path, "*"));
	assert_int_equal(target_of("OPTIONS *", &t, buf), 0);
	assert_int_equal(target_of("CONNECT a.test:443", &t, buf), 0);
	assert_true(t.form == REQUEST_AUTHORITY && t.authority.port == 443);
	assert_int_equal(target_of("GET *", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET a.test/x", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET ftp://a.test/x", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET http://u:p@a.test/x", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET http:///x", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET http://", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET http:/a.test/x", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET http://a.test\\@b.test/x", &t, buf), -EBADMSG);
	assert_int_equal(target_of("GET /x#y", &t, buf), -EBADMSG);
	assert_int_equal(target_of("CONNECT a.test", &t, buf), -EBADMSG);
	assert_int_equal(target_of("CONNECT http://a.test:443", &t, buf), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_request_is_read),
	    cmocka_unit_test(a_response_is_read),
	    cmocka_unit_test(what_two_parsers_could_read_differently_is_refused),
	    cmocka_unit_test(a_nul_ends_the_reading),
	    cmocka_unit_test(responses_that_lie_about_their_length_are_refused),
	    cmocka_unit_test(the_end_is_found_however_the_bytes_come),
	    cmocka_unit_test(heads_are_bounded),
	    cmocka_unit_test(fields_for_the_next_hop_are_known),
	    cmocka_unit_test(an_authority_has_one_form),
	    cmocka_unit_test(targets_are_taken_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
