/* MCP messages of any bytes: each is a message or has an error that can be sent; revisions and arguments are judged without a
 * fault of ours; text that we make of bytes is text. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/mcp/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(json_t *error)
{
	char *text = error != NULL ? json_dumps(error, JSON_COMPACT) : NULL;

	if (text == NULL || strchr(text, '\n') != NULL)
		abort();
	free(text);
	json_decref(error);
}

static void check_text(const uint8_t *data, size_t size)
{
	json_t *text = mcp_text((const char *) data, size), *list = json_pack("[o]", text);
	char *dumped = json_dumps(list, 0);

	if (dumped == NULL || strlen(json_string_value(text)) != json_string_length(text))
		abort();
	free(dumped);
	json_decref(list);
}

static void check_arguments(const struct mcp_message *m)
{
	const char *name = json_string_value(json_object_get(m->params, "name"));
	const struct mcp_tool *tool = name != NULL ? mcp_tool_find(name) : NULL;
	char why[64];
	const char *wrong;

	if (tool == NULL)
		return;
	wrong = mcp_tool_check(tool, json_object_get(m->params, "arguments"), why, sizeof why);
	if (wrong != NULL && wrong[0] == '\0')
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum mcp_revision revision;
	struct mcp_message m;
	json_t *error = NULL;

	check_text(data, size);
	if (mcp_message_read((const char *) data, size, &m, &error) < 0) {
		check_error(error);
		return 0;
	}
	if ((m.kind == MCP_REQUEST) != (m.id != NULL && m.method != NULL) || (m.kind == MCP_RESPONSE) != (m.method == NULL))
		abort();
	if (mcp_revision_of(&m, &revision, &error) == -EINVAL)
		check_error(error);
	(void) mcp_negotiate(&m);
	check_arguments(&m);
	mcp_message_done(&m);
	return 0;
}
