/* The tools as data: what tools/list says, and what their arguments are held against. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/mcp/mcp.h"
#include "policy/text.h"

#define SANDBOX_PROPERTY                                                                                                         \
	"\"sandbox\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":64,\"description\":\"Name of the sandbox to work in; "   \
	"made on first use. Left out: the usual one\"}"
#define TIMEOUT_PROPERTY                                                                                                         \
	"\"timeout_seconds\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":86400,\"description\":\"Ends the work "     \
	"after so "                                                                                                              \
	"many seconds\"}"
#define DENIALS_PROPERTY                                                                                                         \
	"\"denials\":{\"type\":\"array\",\"description\":\"What the sandbox has refused meanwhile, by which rule, and what "     \
	"would "                                                                                                                 \
	"allow "                                                                                                                 \
	"it\",\"items\":{\"type\":\"object\",\"properties\":{\"kind\":{\"type\":\"string\"},\"count\":{\"type\":\"integer\"},"   \
	"\"rule\":{\"type\":\"string\"},\"allow\":{\"type\":\"string\"}},\"required\":[\"kind\",\"count\",\"rule\",\"allow\"]}}"
#define TEXT "{\"type\":\"string\"}"
#define TEXT_OR_NULL "{\"type\":[\"string\",\"null\"]}"
#define WHOLE_OR_NULL "{\"type\":[\"integer\",\"null\"]}"
#define OBJECT "{\"type\":\"object\"}"

static const struct mcp_tool tools[] = {
    {.name = "run_code",
     .title = "Run code",
     .description =
	 "Runs code in an interpreter that keeps its variables, imports and functions from call to call. Shows what it "
	 "prints, the value of its last line, figures, and errors with their place.",
     .input =
	 "{\"code\":{\"type\":\"string\",\"description\":\"What to run\"},\"language\":{\"type\":\"string\",\"minLength\":1,"
	 "\"maxLength\":64,\"description\":\"python (if left out), javascript, typescript, bash, r, java; sandbox_info tells "
	 "which "
	 "are there\"},\"context\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":64,\"description\":\"Any name; each has an "
	 "interpreter of its own\"}," TIMEOUT_PROPERTY "," SANDBOX_PROPERTY "}",
     .required = "[\"code\"]",
     .output =
	 "{\"status\":" TEXT ",\"stdout\":" TEXT ",\"stderr\":" TEXT ",\"text\":" TEXT_OR_NULL
	 ",\"error\":{\"type\":[\"object\",\"null\"]},\"execution_count\":" WHOLE_OR_NULL ",\"context\":" TEXT
	 ",\"context_state\":" TEXT ",\"fresh\":{\"type\":\"boolean\"},\"truncated\":{\"type\":\"boolean\"}," DENIALS_PROPERTY
	 ",\"reason\":" TEXT_OR_NULL "}",
     .output_required = "[\"status\",\"stdout\",\"stderr\",\"text\",\"error\",\"execution_count\",\"context\",\"context_state\","
			"\"fresh\",\"truncated\",\"denials\",\"reason\"]",
     .run = mcp_run_code},
    {.name = "run_command",
     .title = "Run a command",
     .description = "Runs a line of shell and waits for its end. What it has started ends with it.",
     .input = "{\"command\":{\"type\":\"string\",\"description\":\"A line for the shell\"},\"cwd\":{\"type\":\"string\","
	      "\"minLength\":1,\"description\":\"Where to run it; absolute or below the home directory\"}," TIMEOUT_PROPERTY
	      "," SANDBOX_PROPERTY "}",
     .required = "[\"command\"]",
     .output = "{\"status\":" TEXT ",\"exit_code\":" WHOLE_OR_NULL ",\"signal\":" TEXT_OR_NULL ",\"stdout\":" TEXT
	       ",\"stderr\":" TEXT ",\"truncated\":{\"type\":\"boolean\"}," DENIALS_PROPERTY ",\"reason\":" TEXT_OR_NULL "}",
     .output_required = "[\"status\",\"exit_code\",\"signal\",\"stdout\",\"stderr\",\"truncated\",\"denials\",\"reason\"]",
     .run = mcp_run_command},
    {.name = "read_file",
     .title = "Read a file",
     .description = "Reads a file of the sandbox, or a part of it.",
     .input = "{\"path\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4095},\"offset\":{\"type\":\"integer\",\"minimum\":0,"
	      "\"description\":\"First byte\"},\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":8388608,\"description\":"
	      "\"Bytes at most\"}," SANDBOX_PROPERTY "}",
     .required = "[\"path\"]",
     .output = "{\"path\":" TEXT ",\"content\":" TEXT ",\"encoding\":{\"type\":\"string\",\"enum\":[\"utf-8\",\"base64\"]},"
	       "\"size\":{\"type\":\"integer\"},\"truncated\":{\"type\":\"boolean\"}}",
     .output_required = "[\"path\",\"content\",\"encoding\",\"size\",\"truncated\"]",
     .read_only = true,
     .run = mcp_read_file},
    {.name = "write_file",
     .title = "Write a file",
     .description = "Writes a whole file in the sandbox, in place of one that is there. Directories on the way are made.",
     .input =
	 "{\"path\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4095},\"content\":{\"type\":\"string\"},\"encoding\":{"
	 "\"type\":\"string\",\"enum\":[\"utf-8\",\"base64\"],\"description\":\"How content is written; utf-8 if left "
	 "out\"}," SANDBOX_PROPERTY "}",
     .required = "[\"path\",\"content\"]",
     .output = "{\"path\":" TEXT ",\"size\":{\"type\":\"integer\"}}",
     .output_required = "[\"path\",\"size\"]",
     .run = mcp_write_file},
    {.name = "list_files",
     .title = "List files",
     .description = "Lists a directory of the sandbox, with what is below it to a depth.",
     .input =
	 "{\"path\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4095,\"description\":\"The home directory if left "
	 "out\"},\"depth\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":64,\"description\":\"1 if left out: the directory "
	 "itself\"}," SANDBOX_PROPERTY "}",
     .required = "[]",
     .output = "{\"path\":" TEXT ",\"entries\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":" TEXT
	       ",\"path\":" TEXT ",\"type\":" TEXT ",\"size\":{\"type\":\"integer\"}},\"required\":[\"name\",\"path\",\"type\","
	       "\"size\"]}},\"truncated\":{\"type\":\"boolean\"}}",
     .output_required = "[\"path\",\"entries\",\"truncated\"]",
     .read_only = true,
     .run = mcp_list_files},
    {.name = "sandbox_info",
     .title = "About the sandbox",
     .description =
	 "Tells what the sandbox is: its limits, what it can read, write and reach, its languages, and what is denied.",
     .input = "{" SANDBOX_PROPERTY "}",
     .required = "[]",
     .output = "{\"isolation\":" TEXT ",\"limits\":" OBJECT ",\"network\":" OBJECT ",\"filesystem\":" OBJECT
	       ",\"languages\":{\"type\":\"array\",\"items\":" TEXT "},\"denied\":{\"type\":\"array\",\"items\":" TEXT
	       "},\"enforcement\":" OBJECT "}",
     .output_required = "[\"isolation\",\"limits\",\"network\",\"filesystem\",\"languages\",\"denied\",\"enforcement\"]",
     .read_only = true,
     .run = mcp_sandbox_info},
};

const struct mcp_tool *mcp_tool_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
		if (strcmp(tools[i].name, name) == 0)
			return &tools[i];
	return NULL;
}

static json_t *parse(const char *text)
{
	return json_loads(text, JSON_DECODE_ANY, NULL); /* a test reads every one */
}

json_t *mcp_tools_list(enum mcp_revision revision)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		const struct mcp_tool *t = &tools[i];
		json_t *o =
		    json_pack("{ss ss s{ss so so sb} s{sb sb sb sb}}", "name", t->name, "description", t->description,
			      "inputSchema", "type", "object", "properties", parse(t->input), "required", parse(t->required),
			      "additionalProperties", 0, "annotations", "readOnlyHint", (int) t->read_only, "destructiveHint",
			      (int) !t->read_only, "idempotentHint", (int) t->read_only, "openWorldHint", 0);

		if (revision != MCP_2025_03_26) {
			(void) json_object_set_new(o, "title", json_string(t->title));
			(void) json_object_set_new(o, "outputSchema",
						   json_pack("{ss so so}", "type", "object", "properties", parse(t->output),
							     "required", parse(t->output_required)));
		}
		(void) json_array_append_new(list, o);
	}
	return list;
}

/* ---- Arguments against the schema. What a schema of ours does not use is not looked at. ---- */

static bool is_type(const json_t *value, const char *type)
{
	if (strcmp(type, "string") == 0)
		return json_is_string(value);
	if (strcmp(type, "integer") == 0)
		return json_is_integer(value) || (json_is_real(value) && fabs(json_real_value(value)) < 1e15 &&
						  json_real_value(value) == floor(json_real_value(value)));
	return json_is_number(value);
}

static bool is_in(const json_t *list, const json_t *value)
{
	json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		if (json_equal(item, (json_t *) (uintptr_t) value))
			return true;
	}
	return false;
}

/* What was expected, or NULL. */
static const char *check_value(const json_t *schema, const json_t *value)
{
	const char *type = json_string_value(json_object_get(schema, "type"));
	const json_t *least = json_object_get(schema, "minimum"), *above = json_object_get(schema, "exclusiveMinimum"),
		     *most = json_object_get(schema, "maximum"), *shortest = json_object_get(schema, "minLength"),
		     *longest = json_object_get(schema, "maxLength"), *words = json_object_get(schema, "enum");
	double number = json_number_value(value);
	size_t size = json_string_length(value);

	if (!is_type(value, type))
		return type;
	if ((least != NULL && number < json_number_value(least)) || (above != NULL && number <= json_number_value(above)) ||
	    (most != NULL && number > json_number_value(most)))
		return "another number, see the tool's schema";
	if (shortest != NULL && size < (size_t) json_integer_value(shortest))
		return "a text that is not empty";
	if (longest != NULL && size > (size_t) json_integer_value(longest))
		return "a shorter text";
	return words != NULL && !is_in(words, value) ? "one of the words of the tool's schema" : NULL;
}

static bool has_nul(const json_t *value)
{
	return json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value);
}

static bool check_known(const json_t *schema, const json_t *arguments, char *ret, size_t size)
{
	const char *name, *expected;
	json_t *value;

	json_object_foreach((json_t *) (uintptr_t) arguments, name, value)
	{
		const json_t *of = json_object_get(schema, name);
		cleanup_free char *quoted = text_quote(name);

		if (of == NULL) {
			(void) snprintf(ret, size, "there is no argument %s", quoted);
			return false;
		}
		expected = check_value(of, value);
		if (expected == NULL && has_nul(value) && strcmp(name, "content") != 0)
			expected = "a text without NUL";
		if (expected != NULL) {
			(void) snprintf(ret, size, "%s: expected %s", quoted, expected);
			return false;
		}
	}
	return true;
}

static bool check_required(const json_t *required, const json_t *arguments, char *ret, size_t size)
{
	json_t *name;
	size_t i;

	json_array_foreach(required, i, name)
	{
		if (json_object_get(arguments, json_string_value(name)) == NULL) {
			(void) snprintf(ret, size, "the argument \"%s\" is missing", json_string_value(name));
			return false;
		}
	}
	return true;
}

const char *mcp_tool_check(const struct mcp_tool *tool, const json_t *arguments, char *ret, size_t size)
{
	json_t *schema, *required;
	bool good;

	if (arguments != NULL && !json_is_object(arguments))
		return "the arguments must be an object";
	schema = parse(tool->input);
	required = parse(tool->required);
	good = check_known(schema, arguments, ret, size) && check_required(required, arguments, ret, size);
	json_decref(schema);
	json_decref(required);
	return good ? NULL : ret;
}
