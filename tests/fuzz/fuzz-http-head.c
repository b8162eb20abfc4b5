/* Heads of requests and responses against any bytes. However they are cut, the reading is the same, and what was read is within
 * what was given and free of what could end a line when it is written again. The first byte of the input chooses the kind and the
 * cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "egress/authority.h"
#include "egress/head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_slice(struct slice s, const char *text, size_t size)
{
	if (s.size == 0)
		return;
	if (s.data < text || s.data + s.size > text + size)
		abort();
	for (size_t i = 0; i < s.size; i++)
		if (s.data[i] == '\r' || s.data[i] == '\n' || s.data[i] == '\0')
			abort();
}

static void check_target(const struct head *h)
{
	struct request_target t;
	struct head_fault fault = {0};
	struct target to = {.name = "a.test", .port = 80};
	char buf[AUTHORITY_TEXT];

	if (request_target_parse(h, &t, &fault) < 0) {
		if (fault.status == 0 || fault.why == NULL)
			abort();
		return;
	}
	if (t.form != REQUEST_AUTHORITY && (t.path.size == 0 || (t.path.data[0] != '/' && t.path.data[0] != '*')))
		abort();
	if (request_check_host(h, &t, &to, &fault) < 0)
		return;
	/* What passes for a.test says so wherever it says anything. */
	if (t.form == REQUEST_ABSOLUTE || t.form == REQUEST_AUTHORITY)
		authority_target(NULL, &t.authority, 80, &to);
	(void) target_authority(&to, 80, buf);
	if (t.form == REQUEST_ABSOLUTE && strcmp(buf, "a.test") != 0)
		abort();
}

static void check_head(const struct head *h, const char *text, size_t size, bool request)
{
	if (h->field_count > HEAD_FIELDS_MAX || h->minor > 1 || (h->has_length && h->chunked))
		abort();
	for (size_t i = 0; i < h->field_count; i++) {
		check_slice(h->fields[i].name, text, size);
		check_slice(h->fields[i].value, text, size);
		(void) head_hop_by_hop(h, &h->fields[i]);
	}
	check_slice(h->method, text, size);
	check_slice(h->target, text, size);
	check_slice(h->reason, text, size);
	if (request)
		check_target(h);
	else if (h->status < 100 || h->status > 599)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct head h;
	struct head_fault fault = {0};
	size_t at_once = 0, in_pieces = 0, step;
	ssize_t end, piece = 0;
	char *text;
	bool request;
	int r;

	if (size < 2 || size > HEAD_SIZE_MAX + 1024)
		return 0;
	request = (data[0] & 1) != 0;
	step = (size_t) (data[0] >> 1) + 1;
	size--;
	text = memcpy(xcalloc(size, 1), data + 1, size); /* with an end that the sanitizer knows */
	end = head_find(text, size, &at_once, &fault);
	for (size_t n = step < size ? step : size; piece == 0; n = n + step < size ? n + step : size) {
		piece = head_find(text, n, &in_pieces, &fault);
		if (n == size)
			break;
	}
	if (piece != end || (end < 0 && (fault.status == 0 || fault.why == NULL)))
		abort();
	if (end > 0) {
		r = request ? head_parse_request(text, (size_t) end, &h, &fault)
			    : head_parse_response(text, (size_t) end, &h, &fault);
		if (r == 0)
			check_head(&h, text, (size_t) end, request);
		else if (fault.status == 0 || fault.why == NULL)
			abort();
	}
	free(text);
	return 0;
}
