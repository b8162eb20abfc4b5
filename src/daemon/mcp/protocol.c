/* The methods, for all revisions. 2026-07-28 has no handshake: each request names its revision in _meta, and results say that
 * they are complete. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/mcp/mcp.h"

enum { ASKED_MAX = 64, CACHE_MSEC = 3600 * 1000 };

const char *const mcp_revision_names[MCP_REVISION_MAX] = {"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"};

static const char version_key[] = "io.modelcontextprotocol/protocolVersion";

static const char instructions[] = "Code and commands run in a sandbox on this machine. What it may read, write and reach is the "
				   "operator's policy: sandbox_info "
				   "tells it. Files persist from call to call in the same sandbox; give another name in "
				   "\"sandbox\" for a separate one. A sandbox "
				   "ends when it was not used for 30 minutes.";

/* ---- Revisions. ---- */

enum mcp_revision mcp_revision_named(const char *name)
{
	enum mcp_revision r = 0;

	while (r < MCP_REVISION_MAX && strcmp(mcp_revision_names[r], name) != 0)
		r++;
	return r;
}

static json_t *names(void)
{
	json_t *list = json_array();

	for (enum mcp_revision r = 0; r < MCP_REVISION_MAX; r++)
		(void) json_array_append_new(list, json_string(mcp_revision_names[r]));
	return list;
}

json_t *mcp_unsupported(json_t *id, const char *asked)
{
	json_t *data = json_pack("{so so}", "supported", names(), "requested", mcp_text(asked, strnlen(asked, ASKED_MAX)));

	return mcp_error(id, MCP_UNSUPPORTED_VERSION, data, "this revision of the protocol is not supported");
}

int mcp_revision_of(const struct mcp_message *m, enum mcp_revision *ret, json_t **ret_error)
{
	const json_t *value = json_object_get(json_object_get(m->params, "_meta"), version_key);

	if (value == NULL)
		return -ENOENT;
	if (!json_is_string(value)) {
		*ret_error = mcp_error(m->id, MCP_INVALID_PARAMS, NULL, "_meta: %s must be a text", version_key);
		return -EINVAL;
	}
	/* Those with a handshake are not chosen in this way. */
	if (strcmp(json_string_value(value), mcp_revision_names[MCP_2026_07_28]) != 0) {
		*ret_error = mcp_unsupported(m->id, json_string_value(value));
		return -EINVAL;
	}
	*ret = MCP_2026_07_28;
	return 0;
}

enum mcp_revision mcp_negotiate(const struct mcp_message *m)
{
	const char *asked = json_string_value(json_object_get(m->params, "protocolVersion"));
	enum mcp_revision r = asked != NULL ? mcp_revision_named(asked) : MCP_REVISION_MAX;

	return r == MCP_REVISION_MAX || r == MCP_2026_07_28 ? MCP_2025_11_25 : r;
}

/* ---- Methods. ---- */

static json_t *server_info(void)
{
	return json_pack("{ss ss ss}", "name", "zwinger", "title", "Zwinger", "version", ZWINGER_VERSION);
}

static json_t *complete(enum mcp_revision revision, json_t *result, bool cached)
{
	if (revision != MCP_2026_07_28)
		return result;
	(void) json_object_set_new(result, "resultType", json_string("complete"));
	(void) json_object_set_new(result, "_meta", json_pack("{so}", "io.modelcontextprotocol/serverInfo", server_info()));
	if (cached) {
		(void) json_object_set_new(result, "ttlMs", json_integer(CACHE_MSEC));
		(void) json_object_set_new(result, "cacheScope", json_string("private"));
	}
	return result;
}

static json_t *initialize(const struct mcp_message *m)
{
	return mcp_result(m->id, json_pack("{ss s{s{}} so ss}", "protocolVersion", mcp_revision_names[mcp_negotiate(m)],
					   "capabilities", "tools", "serverInfo", server_info(), "instructions", instructions));
}

static json_t *discover(const struct mcp_message *m)
{
	return mcp_result(m->id, complete(MCP_2026_07_28,
					  json_pack("{so s{s{}} so ss}", "supportedVersions", names(), "capabilities", "tools",
						    "serverInfo", server_info(), "instructions", instructions),
					  true));
}

static enum mcp_verdict call(struct mcp_owner *o, enum mcp_revision revision, const struct mcp_message *m,
			     const struct mcp_line *line, json_t **ret_answer)
{
	const char *name = json_string_value(json_object_get(m->params, "name"));
	const struct mcp_tool *tool = name != NULL ? mcp_tool_find(name) : NULL;
	char why[256];
	const char *wrong;
	struct mcp_call *c;

	if (tool == NULL) {
		*ret_answer =
		    mcp_error(m->id, MCP_INVALID_PARAMS, NULL, "there is no tool %.100s", name != NULL ? name : "without a name");
		return MCP_ANSWERED;
	}
	wrong = mcp_tool_check(tool, json_object_get(m->params, "arguments"), why, sizeof why);
	if (wrong == NULL && mcp_call_find(o, m->id) != NULL && revision != MCP_2026_07_28) {
		*ret_answer = mcp_error(m->id, MCP_INVALID_REQUEST, NULL, "a request with this id is under way");
		return MCP_ANSWERED;
	}
	if (wrong != NULL) {
		*ret_answer = mcp_error(m->id, MCP_INVALID_PARAMS, NULL, "%s: %s", tool->name, wrong);
		return MCP_ANSWERED;
	}
	if (o->call_count >= MCP_CALLS_MAX || o->daemon->draining) {
		*ret_answer = mcp_error(m->id, MCP_INTERNAL, NULL,
					o->daemon->draining ? "the service is about to end" : "too many calls are under way");
		return MCP_ANSWERED;
	}
	c = mcp_call_new(o, tool, m, line);
	c->revision = revision;
	mcp_call_begin(c);
	return MCP_CALLED;
}

static void notified(struct mcp_owner *o, const struct mcp_message *m)
{
	json_t *id = json_object_get(m->params, "requestId");
	struct mcp_call *c = strcmp(m->method, "notifications/cancelled") == 0 && id != NULL ? mcp_call_find(o, id) : NULL;

	if (c != NULL)
		mcp_call_cancel(c);
}

enum mcp_verdict mcp_handle(struct mcp_owner *o, enum mcp_revision revision, const struct mcp_message *m,
			    const struct mcp_line *line, json_t **ret_answer)
{
	bool modern = revision == MCP_2026_07_28;

	if (m->kind == MCP_RESPONSE)
		return MCP_NOTHING; /* we ask nothing */
	if (m->kind == MCP_NOTIFICATION) {
		notified(o, m);
		return MCP_NOTHING;
	}
	if (strcmp(m->method, "tools/call") == 0)
		return call(o, revision, m, line, ret_answer);
	if (strcmp(m->method, "tools/list") == 0)
		*ret_answer = mcp_result(m->id, complete(revision, json_pack("{so}", "tools", mcp_tools_list(revision)), true));
	else if (strcmp(m->method, "ping") == 0)
		*ret_answer = mcp_result(m->id, complete(revision, json_object(), false));
	else if (strcmp(m->method, "server/discover") == 0 && modern)
		*ret_answer = discover(m);
	else if (strcmp(m->method, "initialize") == 0 && !modern)
		*ret_answer = initialize(m);
	else
		*ret_answer = mcp_error(m->id, MCP_METHOD_NOT_FOUND, NULL, "there is no method %.100s here", m->method);
	return MCP_ANSWERED;
}
