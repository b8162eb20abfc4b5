/* MCP without a sandbox: messages, revisions, the schemas of the tools, text made of bytes, denials. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/mcp/mcp.h"

static struct mcp_message read_good(const char *text)
{
	struct mcp_message m;
	json_t *error = NULL;

	if (mcp_message_read(text, strlen(text), &m, &error) < 0)
		fail_msg("%s: %s", text, json_dumps(error, 0));
	return m;
}

static void bad(const char *text, int code, bool with_id)
{
	struct mcp_message m;
	json_t *error = NULL;

	assert_int_equal(mcp_message_read(text, strlen(text), &m, &error), -EINVAL);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(error, "error"), "code")), code);
	assert_int_equal(!json_is_null(json_object_get(error, "id")), with_id);
	json_decref(error);
}

static void messages_are_told_apart(void **state)
{
	struct mcp_message m = read_good("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");

	(void) state;
	assert_int_equal(m.kind, MCP_REQUEST);
	mcp_message_done(&m);
	m = read_good("{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{}}");
	assert_int_equal(m.kind, MCP_NOTIFICATION);
	mcp_message_done(&m);
	m = read_good("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}");
	assert_int_equal(m.kind, MCP_RESPONSE);
	mcp_message_done(&m);
	bad("{", MCP_PARSE_ERROR, false);
	bad("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", MCP_PARSE_ERROR, false);
	bad("[]", MCP_INVALID_REQUEST, false);
	bad("7", MCP_INVALID_REQUEST, false);
	bad("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", MCP_INVALID_REQUEST, true);
	bad("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", MCP_INVALID_REQUEST, false);
	bad("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", MCP_INVALID_REQUEST, false);
	bad("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}", MCP_INVALID_REQUEST, true);
	bad("{\"jsonrpc\":\"2.0\",\"id\":1}", MCP_INVALID_REQUEST, true);
}

static void revisions_are_negotiated(void **state)
{
	static const struct {
		const char *asked;
		enum mcp_revision agreed;
	} rows[] = {{"2025-11-25", MCP_2025_11_25},
		    {"2025-06-18", MCP_2025_06_18},
		    {"2025-03-26", MCP_2025_03_26},
		    {"2026-07-28", MCP_2025_11_25},
		    {"", MCP_2025_11_25}};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *text =
		    xasprintf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\"}}",
			      rows[i].asked);
		struct mcp_message m = read_good(text);

		assert_int_equal(mcp_negotiate(&m), rows[i].agreed);
		mcp_message_done(&m);
	}
}

static void tools_have_schemas(void **state)
{
	json_t *list = mcp_tools_list(MCP_2026_07_28), *old = mcp_tools_list(MCP_2025_03_26), *tool;
	size_t i;

	(void) state;
	assert_int_equal(json_array_size(list), 6);
	json_array_foreach(list, i, tool)
	{
		json_t *in = json_object_get(tool, "inputSchema"), *out = json_object_get(tool, "outputSchema");

		assert_true(json_object_size(json_object_get(in, "properties")) > 0);
		assert_true(json_is_array(json_object_get(in, "required")));
		assert_true(json_array_size(json_object_get(out, "required")) ==
			    json_object_size(json_object_get(out, "properties")));
	}
	assert_null(json_object_get(json_array_get(old, 0), "outputSchema")); /* that revision has none */
	json_decref(list);
	json_decref(old);
}

static void check(const char *tool, const char *arguments, const char *part)
{
	json_t *a = json_loads(arguments, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	char why[200];
	const char *wrong = mcp_tool_check(mcp_tool_find(tool), a, why, sizeof why);

	if (part == NULL && wrong != NULL)
		fail_msg("%s: %s", arguments, wrong);
	if (part != NULL && (wrong == NULL || strstr(wrong, part) == NULL))
		fail_msg("%s: %s", arguments, wrong != NULL ? wrong : "taken");
	json_decref(a);
}

static void arguments_are_held_against_them(void **state)
{
	(void) state;
	check("run_command", "{\"command\":\"x\",\"timeout_seconds\":1.5,\"sandbox\":\"a\"}", NULL);
	check("read_file", "{\"path\":\"x\",\"offset\":3.0,\"limit\":1}", NULL);
	check("write_file", "{\"path\":\"x\",\"content\":\"a\\u0000b\"}", NULL);
	check("run_command", "{}", "command");
	check("run_command", "[]", "object");
	check("run_command", "{\"command\":null}", "string");
	check("run_command", "{\"command\":\"a\\u0000b\"}", "NUL");
	check("run_command", "{\"command\":\"x\",\"sandbox\":\"\"}", "empty");
	check("run_command", "{\"command\":\"x\",\"timeout_seconds\":0}", "number");
	check("run_command", "{\"command\":\"x\",\"timeout_seconds\":1e9}", "number");
	check("run_command", "{\"command\":\"x\",\"policy\":{}}", "policy");
	check("read_file", "{\"path\":\"x\",\"offset\":-1}", "number");
	check("read_file", "{\"path\":\"x\",\"offset\":0.5}", "integer");
	check("write_file", "{\"path\":\"x\",\"content\":\"\",\"encoding\":\"latin-1\"}", "words");
}

static void text(const char *data, size_t size, const char *want)
{
	json_t *t = mcp_text(data, size);

	assert_string_equal(json_string_value(t), want);
	json_decref(t);
}

static void bytes_become_text(void **state)
{
	struct evbuffer *b = evbuffer_new();
	json_t *t;
	bool cut;

	(void) state;
	text("h\xc3\xa9", 3, "h\xc3\xa9");
	text("a\0b", 3,
	     "a\xef\xbf\xbd"
	     "b");
	text("\xff\xc3", 2, "\xef\xbf\xbd\xef\xbf\xbd");
	text("", 0, "");
	for (size_t i = 0; i < 1000; i++)
		(void) evbuffer_add(b, "\xc3\xa9", 2);
	t = mcp_stream(b, 101, &cut);
	assert_true(cut);
	assert_non_null(strstr(json_string_value(t), "[zwinger: 1900 bytes left out]"));
	assert_null(strstr(json_string_value(t), "\xef\xbf\xbd")); /* no half of a character */
	json_decref(t);
	assert_int_equal(evbuffer_get_length(b), 0);
	evbuffer_free(b);
}

static void denials_are_those_since_then_with_their_remedy(void **state)
{
	json_t *list = json_array(),
	       *before = json_pack("[{ss ss si si}]", "kind", "network", "host", "evil.example", "port", 443, "count", 3),
	       *now = json_pack("[{ss ss si si} {ss ss ss si si} i]", "kind", "network", "host", "evil.example", "port", 443,
				"count", 5, "kind", "syscall", "name", "mount", "detail", "mount(...)", "pid", 7, "count", 1, 17),
	       *d;

	(void) state;
	mcp_denials_add(list, now, before);
	mcp_denials_add(list, now, now);
	mcp_denials_add(list, NULL, now);
	assert_int_equal(json_array_size(list), 2);
	d = json_array_get(list, 0);
	assert_int_equal(json_integer_value(json_object_get(d, "count")), 2);
	assert_string_equal(json_string_value(json_object_get(d, "allow")),
			    "network.allow: [{host: \"evil.example\", ports: [443]}] in the policy");
	d = json_array_get(list, 1);
	assert_null(json_object_get(d, "pid")); /* of the host */
	mcp_denials_add(list, now, NULL);
	assert_int_equal(json_array_size(list), 2);
	assert_int_equal(json_integer_value(json_object_get(d, "count")), 2);
	json_decref(before);
	json_decref(now);
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_are_told_apart), cmocka_unit_test(revisions_are_negotiated),
	    cmocka_unit_test(tools_have_schemas),      cmocka_unit_test(arguments_are_held_against_them),
	    cmocka_unit_test(bytes_become_text),       cmocka_unit_test(denials_are_those_since_then_with_their_remedy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
