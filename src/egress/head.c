#include "egress/head.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

bool slice_is(struct slice s, const char *word)
{
	size_t n = strlen(word);

	if (s.size != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (lower(s.data[i]) != word[i])
			return false;
	return true;
}

bool slice_same(struct slice s, const char *text)
{
	return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

static bool is_token_byte(char c)
{
	if ((c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z'))
		return true;
	return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

bool head_is_token(const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (!is_token_byte(data[i]))
			return false;
	return size > 0;
}

bool head_is_value(const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (((unsigned char) data[i] < 0x20 && data[i] != '\t') || data[i] == 0x7f)
			return false;
	return true;
}

static int refuse(struct head_fault *fault, unsigned status, const char *why)
{
	*fault = (struct head_fault){.status = status, .why = why};
	return -EBADMSG;
}

/* ---- The end of the head. ---- */

ssize_t head_find_within(const char *data, size_t size, size_t max, size_t *scanned, struct head_fault *ret)
{
	size_t end = size < max ? size : max;

	for (size_t i = *scanned; i < end; i++) {
		if (data[i] == '\0')
			return refuse(ret, 400, "the head has a NUL byte");
		if (data[i] == '\n' && (i == 0 || data[i - 1] != '\r'))
			return refuse(ret, 400, "a line of the head ends without carriage return");
		if (data[i] != '\n' && i > 0 && data[i - 1] == '\r')
			return refuse(ret, 400, "the head has a carriage return inside a line");
		if (data[i] == '\n' && i >= 3 && data[i - 2] == '\n')
			return (ssize_t) i + 1;
		if (data[i] == '\n' && i == 1)
			return refuse(ret, 400, "the head begins with an empty line");
	}
	*scanned = end;
	if (end == max) {
		(void) refuse(ret, 431, "the head is too long");
		return -E2BIG;
	}
	return 0;
}

ssize_t head_find(const char *data, size_t size, size_t *scanned, struct head_fault *ret)
{
	ssize_t r = head_find_within(data, size, HEAD_SIZE_MAX, scanned, ret);

	if (r == -E2BIG)
		(void) refuse(ret, 431, "the head is longer than 32 KiB");
	return r;
}

/* ---- Lines. ---- */

struct lines {
	const char *at, *end;
};

/* The next line without its CR LF; false behind the last one. */
static bool next_line(struct lines *l, struct slice *ret)
{
	const char *lf = l->at < l->end ? memchr(l->at, '\n', (size_t) (l->end - l->at)) : NULL;

	if (lf == NULL || lf == l->at || lf[-1] != '\r')
		return false;
	*ret = (struct slice){.data = l->at, .size = (size_t) (lf - 1 - l->at)};
	l->at = lf + 1;
	return true;
}

static struct slice trimmed(struct slice s)
{
	while (s.size > 0 && (s.data[0] == ' ' || s.data[0] == '\t')) {
		s.data++;
		s.size--;
	}
	while (s.size > 0 && (s.data[s.size - 1] == ' ' || s.data[s.size - 1] == '\t'))
		s.size--;
	return s;
}

static int parse_field(struct slice line, struct head_field *ret, struct head_fault *fault)
{
	const char *colon;

	if (line.data[0] == ' ' || line.data[0] == '\t')
		return refuse(fault, 400, "a header field is folded over two lines");
	colon = memchr(line.data, ':', line.size);
	if (colon == NULL)
		return refuse(fault, 400, "a line of the head has no colon");
	ret->name = (struct slice){.data = line.data, .size = (size_t) (colon - line.data)};
	if (!head_is_token(ret->name.data, ret->name.size))
		return refuse(fault, 400, "the name of a header field is not a token");
	ret->value = trimmed((struct slice){.data = colon + 1, .size = line.size - ret->name.size - 1});
	if (!head_is_value(ret->value.data, ret->value.size))
		return refuse(fault, 400, "the value of a header field has a control byte");
	return 0;
}

static int parse_fields(struct lines *l, struct head *h, struct head_fault *fault)
{
	struct slice line;

	while (next_line(l, &line)) {
		int r;

		if (line.size == 0)
			return l->at == l->end ? 0 : refuse(fault, 400, "the head has an empty line inside");
		if (h->field_count == HEAD_FIELDS_MAX)
			return refuse(fault, 431, "the head has more than 100 fields");
		r = parse_field(line, &h->fields[h->field_count], fault);
		if (r < 0)
			return r;
		h->field_count++;
	}
	return refuse(fault, 400, "the head has no end");
}

/* ---- What the fields say. ---- */

const struct head_field *head_field(const struct head *h, const char *name, size_t *ret_count)
{
	const struct head_field *found = NULL;
	size_t count = 0;

	for (size_t i = 0; i < h->field_count; i++) {
		if (slice_is(h->fields[i].name, name)) {
			found = &h->fields[i];
			count++;
		}
	}
	if (ret_count != NULL)
		*ret_count = count;
	return count == 1 ? found : NULL;
}

/* The next element of a comma-separated list; empty ones are passed over. */
static bool next_word(struct slice *list, struct slice *ret)
{
	while (list->size > 0) {
		const char *comma = memchr(list->data, ',', list->size);
		size_t n = comma != NULL ? (size_t) (comma - list->data) : list->size, step = comma != NULL ? n + 1 : n;

		*ret = trimmed((struct slice){.data = list->data, .size = n});
		list->data += step;
		list->size -= step;
		if (ret->size > 0)
			return true;
	}
	return false;
}

bool head_has_word(const struct head *h, const char *name, const char *word)
{
	for (size_t i = 0; i < h->field_count; i++) {
		struct slice list = h->fields[i].value, w;

		if (!slice_is(h->fields[i].name, name))
			continue;
		while (next_word(&list, &w))
			if (slice_is(w, word))
				return true;
	}
	return false;
}

static bool same_name(struct slice a, struct slice b)
{
	if (a.size != b.size)
		return false;
	for (size_t i = 0; i < a.size; i++)
		if (lower(a.data[i]) != lower(b.data[i]))
			return false;
	return true;
}

static bool named_by_connection(const struct head *h, struct slice name)
{
	for (size_t i = 0; i < h->field_count; i++) {
		struct slice list = h->fields[i].value, w;

		if (!slice_is(h->fields[i].name, "connection"))
			continue;
		while (next_word(&list, &w))
			if (same_name(w, name))
				return true;
	}
	return false;
}

bool head_hop_by_hop(const struct head *h, const struct head_field *field)
{
	static const char *const names[] = {
	    "connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (slice_is(field->name, names[i]))
			return true;
	if (field->name.size >= 6 && slice_is((struct slice){.data = field->name.data, .size = 6}, "proxy-"))
		return true;
	return named_by_connection(h, field->name);
}

static int parse_length(struct slice v, uint64_t *ret)
{
	uint64_t n = 0;

	if (v.size == 0 || v.size > 18)
		return -EBADMSG;
	for (size_t i = 0; i < v.size; i++) {
		if (v.data[i] < '0' || v.data[i] > '9')
			return -EBADMSG;
		n = n * 10 + (uint64_t) (v.data[i] - '0');
	}
	*ret = n;
	return 0;
}

static int read_framing(struct head *h, struct head_fault *fault)
{
	size_t lengths, codings;
	const struct head_field *length = head_field(h, "content-length", &lengths);
	const struct head_field *coding = head_field(h, "transfer-encoding", &codings);

	if (lengths > 1)
		return refuse(fault, 400, "Content-Length is there more than once");
	if (codings > 1)
		return refuse(fault, 400, "Transfer-Encoding is there more than once");
	if (lengths > 0 && codings > 0)
		return refuse(fault, 400, "Content-Length and Transfer-Encoding are there together");
	if (length != NULL && parse_length(length->value, &h->length) < 0)
		return refuse(fault, 400, "Content-Length is not a number");
	if (coding != NULL && (!slice_is(coding->value, "chunked") || h->minor == 0))
		return refuse(fault, 501, "Transfer-Encoding is not chunked alone, or not of HTTP/1.1");
	h->has_length = length != NULL;
	h->chunked = coding != NULL;
	return 0;
}

/* A server that maps names to variables reads these fields of a request as the ones that frame it. */
static int refuse_lookalikes(const struct head *h, struct head_fault *fault)
{
	for (size_t i = 0; h->status == 0 && i < h->field_count; i++)
		if (slice_is(h->fields[i].name, "content_length") || slice_is(h->fields[i].name, "transfer_encoding"))
			return refuse(fault, 400, "a header field looks like one that frames the message");
	return 0;
}

static int read_facts(struct head *h, struct head_fault *fault)
{
	int r = refuse_lookalikes(h, fault);

	if (r == 0)
		r = read_framing(h, fault);
	h->close = head_has_word(h, "connection", "close");
	h->keep_alive = head_has_word(h, "connection", "keep-alive");
	h->upgrade = head_has_word(h, "connection", "upgrade");
	return r;
}

/* ---- First lines. ---- */

static int parse_version(struct slice v, struct head *h, struct head_fault *fault)
{
	if (!slice_same(v, "HTTP/1.1") && !slice_same(v, "HTTP/1.0"))
		return refuse(fault, 505, "the version is neither HTTP/1.1 nor HTTP/1.0");
	h->minor = (unsigned) (v.data[7] - '0');
	return 0;
}

static bool is_method(struct slice m)
{
	for (size_t i = 0; i < m.size; i++)
		if ((m.data[i] < 'A' || m.data[i] > 'Z') && m.data[i] != '-')
			return false;
	return m.size > 0 && m.size <= HEAD_METHOD_MAX;
}

static int parse_request_line(struct slice line, struct head *h, struct head_fault *fault)
{
	const char *end = line.data + line.size, *first, *second;

	first = memchr(line.data, ' ', line.size);
	second = first != NULL ? memchr(first + 1, ' ', (size_t) (end - first - 1)) : NULL;
	if (second == NULL)
		return refuse(fault, 400, "the first line is not method, target and version");
	h->method = (struct slice){.data = line.data, .size = (size_t) (first - line.data)};
	h->target = (struct slice){.data = first + 1, .size = (size_t) (second - first - 1)};
	if (!is_method(h->method))
		return refuse(fault, 400, "the method is not a word in capitals");
	if (h->target.size == 0)
		return refuse(fault, 400, "the request has no target");
	for (size_t i = 0; i < h->target.size; i++)
		if (h->target.data[i] <= 0x20 || h->target.data[i] >= 0x7f)
			return refuse(fault, 400, "the target has a byte that is not printable ASCII");
	return parse_version((struct slice){.data = second + 1, .size = (size_t) (end - second - 1)}, h, fault);
}

static int parse_status_line(struct slice line, struct head *h, struct head_fault *fault)
{
	const char *p = line.data;

	if (line.size < 12 || p[8] != ' ' || (line.size > 12 && p[12] != ' '))
		return refuse(fault, 502, "the first line is not version and status");
	for (size_t i = 9; i < 12; i++)
		if (p[i] < '0' || p[i] > '9')
			return refuse(fault, 502, "the status is not a number");
	h->status = (unsigned) (p[9] - '0') * 100 + (unsigned) (p[10] - '0') * 10 + (unsigned) (p[11] - '0');
	if (h->status < 100 || h->status > 599)
		return refuse(fault, 502, "the status is not between 100 and 599");
	if (line.size > 13)
		h->reason = (struct slice){.data = p + 13, .size = line.size - 13};
	if (!head_is_value(h->reason.data, h->reason.size))
		return refuse(fault, 502, "the status line has a control byte");
	return parse_version((struct slice){.data = p, .size = 8}, h, fault);
}

static int parse(const char *data, size_t size, struct head *ret, struct head_fault *fault,
		 int (*first)(struct slice line, struct head *h, struct head_fault *fault))
{
	struct lines l = {.at = data, .end = data + size};
	struct slice line;
	int r;

	*ret = (struct head){0};
	if (!next_line(&l, &line))
		return refuse(fault, 400, "the head has no first line");
	r = first(line, ret, fault);
	if (r == 0)
		r = parse_fields(&l, ret, fault);
	if (r == 0)
		r = read_facts(ret, fault);
	return r;
}

int head_parse_request(const char *data, size_t size, struct head *ret, struct head_fault *fault)
{
	return parse(data, size, ret, fault, parse_request_line);
}

int head_parse_response(const char *data, size_t size, struct head *ret, struct head_fault *fault)
{
	return parse(data, size, ret, fault, parse_status_line);
}
