/* One tools/call, from its message to its answer: progress, cancellation, the result's content. */
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/mcp/mcp.h"

enum { PROGRESS_MAX = 64 * 1024, FAILURE_SIZE = 1024 };

/* Progress is told this often at most. */
#define PROGRESS_EVERY (100 * 1000)

/* ---- Arguments. ---- */

const char *mcp_argument(const struct mcp_call *c, const char *name)
{
	return json_string_value(json_object_get(c->arguments, name));
}

usec_t mcp_timeout(const struct mcp_call *c)
{
	const json_t *seconds = json_object_get(c->arguments, "timeout_seconds");

	return seconds != NULL ? (usec_t) (json_number_value(seconds) * (double) USEC_PER_SEC) : ZW_UNLIMITED;
}

/* ---- Life. ---- */

static void on_progress(evutil_socket_t fd, short what, void *arg);

struct mcp_call *mcp_call_new(struct mcp_owner *o, const struct mcp_tool *tool, const struct mcp_message *m,
			      const struct mcp_line *line)
{
	json_t *arguments = json_object_get(m->params, "arguments"),
	       *token = json_object_get(json_object_get(m->params, "_meta"), "progressToken");
	struct mcp_call *c = xcalloc(1, sizeof *c);

	*c = (struct mcp_call){
	    .next = o->calls,
	    .owner = o,
	    .tool = tool,
	    .id = json_incref(m->id),
	    .token = json_is_string(token) || json_is_integer(token) ? json_incref(token) : NULL,
	    .arguments = arguments != NULL ? json_incref(arguments) : json_object(),
	    .denials = json_array(),
	    .line = *line,
	};
	if (line->handle != NULL)
		*line->handle = c;
	o->calls = c;
	o->call_count++;
	return c;
}

void mcp_call_drop(struct mcp_call *c)
{
	struct mcp_call **at = &c->owner->calls;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->owner->call_count--;
	if (c->line.handle != NULL)
		*c->line.handle = NULL;
	if (c->timer != NULL)
		event_free(c->timer);
	if (c->shown != NULL)
		evbuffer_free(c->shown);
	json_decref(c->id);
	json_decref(c->token);
	json_decref(c->arguments);
	json_decref(c->denials);
	free(c);
}

struct mcp_call *mcp_call_find(struct mcp_owner *o, const json_t *id)
{
	struct mcp_call *c = o->calls;

	while (c != NULL && !json_equal(c->id, id))
		c = c->next;
	return c;
}

void mcp_call_begin(struct mcp_call *c)
{
	const char *name = mcp_argument(c, "sandbox");

	mcp_box_enter(c, name != NULL ? name : "default");
}

void mcp_call_ready(struct mcp_call *c, struct sandbox *s)
{
	memcpy(c->sandbox_id, s->id, sizeof c->sandbox_id);
	c->tool->run(c, s);
}

static void finish(struct mcp_call *c, json_t *answer)
{
	const struct mcp_line line = c->line;

	mcp_box_leave(c);
	if (c->canceled) {
		json_decref(answer);
		answer = NULL;
	}
	mcp_call_drop(c);
	line.send(line.to, answer, true);
}

void mcp_call_cancel(struct mcp_call *c)
{
	if (c->canceled)
		return;
	c->canceled = true;
	if (c->stop != NULL)
		c->stop(c);
	else if (c->sandbox_id[0] == '\0')
		finish(c, NULL); /* it waits for its sandbox */
}

/* ---- Progress. ---- */

/* What is not shown because the client is slower than the program is in the result. */
void mcp_call_output(struct mcp_call *c, const char *data, size_t size)
{
	static const struct timeval wait = {.tv_usec = PROGRESS_EVERY};

	c->told += size;
	if (c->token == NULL || c->canceled)
		return;
	if (c->shown == NULL)
		c->shown = evbuffer_new();
	if (c->timer == NULL)
		c->timer = event_new(c->owner->daemon->base, -1, 0, on_progress, c);
	if (c->shown == NULL || c->timer == NULL)
		return; /* without memory there is no progress, and the result all the same */
	if (evbuffer_get_length(c->shown) < PROGRESS_MAX)
		(void) evbuffer_add(c->shown, data, size);
	if (!event_pending(c->timer, EV_TIMEOUT, NULL))
		(void) event_add(c->timer, &wait);
}

static void tell_progress(struct mcp_call *c)
{
	size_t size = c->shown != NULL ? evbuffer_get_length(c->shown) : 0;
	const char *data = size > 0 ? (const char *) evbuffer_pullup(c->shown, (ev_ssize_t) size) : NULL;
	cleanup_free char *text = NULL;

	if (data == NULL || c->canceled)
		return;
	text = text_carry_join(&c->carry, data, size, false, &size);
	(void) evbuffer_drain(c->shown, evbuffer_get_length(c->shown));
	if (size > 0)
		c->line.send(
		    c->line.to,
		    mcp_notification("notifications/progress", json_pack("{sO sI so}", "progressToken", c->token, "progress",
									 (json_int_t) c->told, "message", mcp_text(text, size))),
		    false);
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	tell_progress(arg);
}

/* ---- The result. ---- */

static json_t *server_meta(void)
{
	return json_pack("{s{ss ss}}", "io.modelcontextprotocol/serverInfo", "name", "zwinger", "version", ZWINGER_VERSION);
}

void mcp_call_end(struct mcp_call *c, json_t *structured, json_t *text, json_t *images, bool is_error)
{
	json_t *content = json_pack("[{ss so}]", "type", "text", "text", text), *result;

	(void) json_array_extend(content, images);
	json_decref(images);
	result = json_pack("{so so sb}", "content", content, "structuredContent", structured, "isError", (int) is_error);
	if (c->revision == MCP_2026_07_28) {
		(void) json_object_set_new(result, "resultType", json_string("complete"));
		(void) json_object_set_new(result, "_meta", server_meta());
	}
	if (c->shown != NULL)
		tell_progress(c);
	finish(c, mcp_result(c->id, result));
}

void mcp_call_fail(struct mcp_call *c, json_t *structured, const char *fmt, ...)
{
	char text[FAILURE_SIZE];
	json_t *result;
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (structured != NULL) {
		mcp_call_end(c, structured, mcp_text(text, strlen(text)), NULL, true);
		return;
	}
	/* A result that is an error need not have what the schema describes. */
	result = json_pack("{s[{ss so}] sb}", "content", "type", "text", "text", mcp_text(text, strlen(text)), "isError", 1);
	if (c->revision == MCP_2026_07_28) {
		(void) json_object_set_new(result, "resultType", json_string("complete"));
		(void) json_object_set_new(result, "_meta", server_meta());
	}
	finish(c, mcp_result(c->id, result));
}
