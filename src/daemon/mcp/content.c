/* What a model gets to read: output bounded from the middle, notes in brackets, denials last. */
#include <event2/buffer.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/mcp/mcp.h"
#include "sandbox/encode.h"

json_t *mcp_stream(struct evbuffer *data, size_t max, bool *ret_cut)
{
	size_t size = evbuffer_get_length(data), half = max / 2, head, tail;
	const char *bytes = size > 0 ? (const char *) evbuffer_pullup(data, -1) : "";
	struct evbuffer *out;
	json_t *text;

	if (bytes == NULL || size <= max) {
		*ret_cut = bytes == NULL && size > 0;
		text = mcp_text(bytes != NULL ? bytes : "", bytes != NULL ? size : 0);
		(void) evbuffer_drain(data, size);
		return text;
	}
	*ret_cut = true;
	head = half - utf8_incomplete_tail(bytes, half);
	tail = half - utf8_continuation_head(bytes + size - half, half);
	out = evbuffer_new();
	(void) evbuffer_add(out, bytes, head);
	(void) evbuffer_add_printf(out, "\n[zwinger: %zu bytes left out]\n", size - head - tail);
	(void) evbuffer_add(out, bytes + size - tail, tail);
	(void) evbuffer_drain(data, size);
	text = mcp_text((const char *) evbuffer_pullup(out, -1), evbuffer_get_length(out));
	evbuffer_free(out);
	return text;
}

static void end_line(struct evbuffer *text)
{
	size_t size = evbuffer_get_length(text);
	struct evbuffer_ptr at;
	char last = '\n';

	if (size > 0 && evbuffer_ptr_set(text, &at, size - 1, EVBUFFER_PTR_SET) == 0)
		(void) evbuffer_copyout_from(text, &at, &last, 1);
	if (last != '\n')
		(void) evbuffer_add(text, "\n", 1);
}

void mcp_say(struct evbuffer *text, const json_t *part, const char *label)
{
	struct evbuffer *copy;
	json_t *shown;
	bool cut;

	if (json_string_length(part) == 0)
		return;
	end_line(text);
	if (label != NULL)
		(void) evbuffer_add_printf(text, "[%s]\n", label);
	copy = evbuffer_new();
	(void) evbuffer_add(copy, json_string_value(part), json_string_length(part));
	shown = mcp_stream(copy, MCP_SHOWN_MAX, &cut);
	(void) evbuffer_add(text, json_string_value(shown), json_string_length(shown));
	json_decref(shown);
	evbuffer_free(copy);
}

void mcp_say_line(struct evbuffer *text, const char *fmt, ...)
{
	va_list ap;

	end_line(text);
	va_start(ap, fmt);
	(void) evbuffer_add_vprintf(text, fmt, ap);
	va_end(ap);
	end_line(text);
}

struct evbuffer *mcp_text_begin(const struct mcp_call *c)
{
	struct evbuffer *text = evbuffer_new();

	if (c->again)
		mcp_say_line(text, "[the sandbox of before has ended; this is a new one, without its files and variables]");
	return text;
}

json_t *mcp_text_end(struct mcp_call *c, struct evbuffer *text)
{
	size_t size;
	json_t *all;

	if (json_array_size(c->denials) > 0) {
		end_line(text);
		mcp_denials_tell(c->denials, text);
	}
	size = evbuffer_get_length(text);
	all = mcp_text(size > 0 ? (const char *) evbuffer_pullup(text, -1) : "", size);
	evbuffer_free(text);
	return all;
}
