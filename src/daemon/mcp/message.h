/* JSON-RPC 2.0 as MCP uses it: one message a document, no batches. The bytes come from a peer; json-in.h reads them, and what is
 * no message becomes the error that answers it. */
#pragma once

#include <jansson.h>
#include <stddef.h>

enum mcp_code {
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_METHOD_NOT_FOUND = -32601,
	MCP_INVALID_PARAMS = -32602,
	MCP_INTERNAL = -32603,
	MCP_HEADER_MISMATCH = -32020,
	MCP_UNSUPPORTED_VERSION = -32022,
};

enum mcp_kind { MCP_REQUEST, MCP_NOTIFICATION, MCP_RESPONSE };

struct mcp_message {
	enum mcp_kind kind;
	json_t *id;         /* a text or a whole number; NULL in a notification */
	const char *method; /* NULL in a response */
	json_t *params;     /* an object, or NULL */
	json_t *document;   /* owns all of it */
};

/* 0, or -EINVAL with the error that is to be sent, owned by the caller. */
int mcp_message_read(const char *text, size_t size, struct mcp_message *ret, json_t **ret_error);
/* The same of a document, of which a reference is taken. */
int mcp_message_of(json_t *document, struct mcp_message *ret, json_t **ret_error);
void mcp_message_done(struct mcp_message *m);

/* Answers; `id` NULL stands for one that could not be read. `result` and `data` (may be NULL) are taken over. */
json_t *mcp_result(json_t *id, json_t *result);
json_t *mcp_error(json_t *id, enum mcp_code code, json_t *data, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
json_t *mcp_notification(const char *method, json_t *params);

/* Bytes as JSON text: what is not UTF-8, and NUL, becomes U+FFFD. */
json_t *mcp_text(const char *data, size_t size);
