#include "daemon/mcp/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/json-in.h"
#include "policy/text.h"

enum { ERROR_SIZE = 512, ID_SIZE_MAX = 1024 };

/* ---- Writing. ---- */

json_t *mcp_text(const char *data, size_t size)
{
	static const char replacement[] = "\xef\xbf\xbd";
	cleanup_free char *copy = NULL;
	size_t used = 0, bad;

	if (memchr(data, 0, size) == NULL && text_is_utf8(data, size, &bad))
		return json_stringn_nocheck(data, size);
	copy = xcalloc(size + 1, 3); /* each byte may become three */
	while (size > 0) {
		size_t line = strnlen(data, size), good = line;

		if (!text_is_utf8(data, line, &good))
			line = good;
		memcpy(copy + used, data, line);
		used += line;
		data += line;
		size -= line;
		if (size == 0)
			break;
		memcpy(copy + used, replacement, 3);
		used += 3;
		data++;
		size--;
	}
	return json_stringn_nocheck(copy, used);
}

json_t *mcp_result(json_t *id, json_t *result)
{
	return json_pack("{ss sO so}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *mcp_error(json_t *id, enum mcp_code code, json_t *data, const char *fmt, ...)
{
	char message[ERROR_SIZE];
	json_t *error;
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(message, sizeof message, fmt, ap);
	va_end(ap);
	error = json_pack("{si so}", "code", (int) code, "message", mcp_text(message, strlen(message)));
	if (data != NULL)
		(void) json_object_set_new(error, "data", data);
	return json_pack("{ss so so}", "jsonrpc", "2.0", "id", id != NULL ? json_incref(id) : json_null(), "error", error);
}

json_t *mcp_notification(const char *method, json_t *params)
{
	return json_pack("{ss ss so}", "jsonrpc", "2.0", "method", method, "params", params);
}

/* ---- Reading. ---- */

void mcp_message_done(struct mcp_message *m)
{
	json_decref(m->document);
	*m = (struct mcp_message){0};
}

static bool is_id(const json_t *id)
{
	return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= ID_SIZE_MAX);
}

/* What is wrong, or NULL. */
static const char *check(struct mcp_message *m)
{
	json_t *o = m->document, *version = json_object_get(o, "jsonrpc"), *method = json_object_get(o, "method"),
	       *params = json_object_get(o, "params");
	bool answer = json_object_get(o, "result") != NULL || json_object_get(o, "error") != NULL;

	if (json_is_array(o))
		return "batches are not supported; send one message at a time";
	if (!json_is_object(o))
		return "a message is an object";
	m->id = json_object_get(o, "id");
	if (m->id != NULL && !is_id(m->id)) {
		m->id = NULL;
		return "\"id\" must be a text or a whole number";
	}
	if (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0)
		return "\"jsonrpc\" must be \"2.0\"";
	if (params != NULL && !json_is_object(params))
		return "\"params\" must be an object";
	m->params = params;
	if (method == NULL && answer) {
		m->kind = MCP_RESPONSE;
		return NULL;
	}
	if (!json_is_string(method) || strlen(json_string_value(method)) != json_string_length(method))
		return "\"method\" must be a text";
	m->method = json_string_value(method);
	m->kind = m->id != NULL ? MCP_REQUEST : MCP_NOTIFICATION;
	return NULL;
}

int mcp_message_of(json_t *document, struct mcp_message *ret, json_t **ret_error)
{
	struct mcp_message m = {.document = json_incref(document)};
	const char *why = check(&m);

	if (why == NULL) {
		*ret = m;
		return 0;
	}
	*ret_error = mcp_error(m.id, MCP_INVALID_REQUEST, NULL, "%s", why);
	mcp_message_done(&m);
	return -EINVAL;
}

int mcp_message_read(const char *text, size_t size, struct mcp_message *ret, json_t **ret_error)
{
	struct json_faults faults = {0};
	json_t *document = json_in_parse(text, size, &faults);
	int r;

	if (document == NULL) {
		*ret_error = mcp_error(NULL, MCP_PARSE_ERROR, NULL, "the message is no JSON: %s%s%s", faults.items[0].path,
				       faults.items[0].path[0] != '\0' ? ": " : "", faults.items[0].message);
		return -EINVAL;
	}
	r = mcp_message_of(document, ret, ret_error);
	json_decref(document);
	return r;
}
