#include "client/sse-in.h"

#include <errno.h>
#include <string.h>

void sse_in_init(struct sse_in *s, size_t most, int (*event_is)(void *ctx, const char *event, const char *data, size_t size),
		 void *ctx)
{
	*s = (struct sse_in){.line = buf_new(most), .data = buf_new(most), .event_is = event_is, .ctx = ctx};
}

void sse_in_done(struct sse_in *s)
{
	buf_done(&s->line);
	buf_done(&s->data);
}

void sse_in_again(struct sse_in *s)
{
	s->line.size = s->data.size = 0;
	s->event[0] = s->next_id[0] = '\0';
	s->after_cr = false;
	s->begun = false;
}

static int dispatch(struct sse_in *s)
{
	int r = 0;

	if (s->next_id[0] != '\0')
		memcpy(s->id, s->next_id, sizeof s->id);
	if (s->begun)
		r = s->event_is(s->ctx, s->event[0] != '\0' ? s->event : "message", s->data.data != NULL ? s->data.data : "",
				s->data.size);
	s->begun = false;
	s->event[0] = s->next_id[0] = '\0';
	s->data.size = 0;
	if (s->data.data != NULL)
		s->data.data[0] = '\0';
	return r;
}

/* What is too long for a word of ours is none of ours. */
static void set_word(char *to, const char *value, size_t size)
{
	if (size > SSE_WORD_MAX || memchr(value, '\0', size) != NULL)
		return;
	memcpy(to, value, size);
	to[size] = '\0';
}

static int field(struct sse_in *s, const char *line, size_t size)
{
	const char *colon = memchr(line, ':', size), *value = colon != NULL ? colon + 1 : line + size;
	size_t name = colon != NULL ? (size_t) (colon - line) : size, rest = size - (size_t) (value - line);

	if (rest > 0 && *value == ' ') {
		value++;
		rest--;
	}
	if (name == 5 && memcmp(line, "event", 5) == 0) {
		set_word(s->event, value, rest);
	} else if (name == 2 && memcmp(line, "id", 2) == 0) {
		set_word(s->next_id, value, rest);
	} else if (name == 4 && memcmp(line, "data", 4) == 0) {
		if (s->begun && buf_add(&s->data, "\n", 1) < 0)
			return -E2BIG;
		s->begun = true;
		return buf_add(&s->data, value, rest);
	}
	return 0; /* a comment, or a field that is not known */
}

static int end_line(struct sse_in *s)
{
	int r = s->line.size == 0 ? dispatch(s) : field(s, s->line.data, s->line.size);

	s->line.size = 0;
	return r;
}

int sse_in_take(struct sse_in *s, const char *data, size_t size)
{
	size_t at = 0;
	int r = 0;

	while (at < size && r == 0) {
		size_t part = 0;

		if (s->after_cr && data[at] == '\n') {
			s->after_cr = false;
			at++;
			continue;
		}
		s->after_cr = false;
		while (at + part < size && data[at + part] != '\n' && data[at + part] != '\r')
			part++;
		r = part > 0 ? buf_add(&s->line, data + at, part) : 0;
		at += part;
		if (r == 0 && at < size) {
			s->after_cr = data[at++] == '\r';
			r = end_line(s);
		}
	}
	return r;
}
