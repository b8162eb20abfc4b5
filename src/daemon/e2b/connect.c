#include "daemon/e2b/connect.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "policy/text.h"

enum { FLAG_COMPRESSED = 1, FLAG_LAST = 2, KEEPALIVE_DEFAULT = 90, KEEPALIVE_MAX = 3600, TEXT_SIZE = 600 };
#define DEADLINE_MAX UINT64_C(31536000000) /* a year in ms */

static const struct {
	const char *name;
	unsigned status;
} codes[CONNECT_CODE_MAX] = {
    [CONNECT_CANCELED] = {"canceled", 499},
    [CONNECT_UNKNOWN] = {"unknown", 500},
    [CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [CONNECT_NOT_FOUND] = {"not_found", 404},
    [CONNECT_ALREADY_EXISTS] = {"already_exists", 409},
    [CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
    [CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [CONNECT_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [CONNECT_INTERNAL] = {"internal", 500},
    [CONNECT_UNAVAILABLE] = {"unavailable", 503},
    [CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
    [CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
};

/* ---- Messages. ---- */

static uint32_t length_in(const unsigned char head[CONNECT_HEAD_SIZE])
{
	return (uint32_t) head[1] << 24 | (uint32_t) head[2] << 16 | (uint32_t) head[3] << 8 | head[4];
}

/* NULL, or what is wrong with the flags of a client's message. */
static const char *check_flags(unsigned char flags)
{
	if ((flags & FLAG_COMPRESSED) != 0)
		return "compressed messages are not accepted";
	return flags != 0 ? "a client's message has no such flag" : NULL;
}

static json_t *parse(const char *body, size_t size, const char **ret_why)
{
	struct json_faults faults = {0};
	json_t *message;

	if (size == 0)
		return json_object();
	message = json_in_parse(body, size, &faults);
	if (json_is_object(message))
		return message;
	json_decref(message);
	*ret_why = "the message is no JSON object";
	return NULL;
}

json_t *connect_parse(const char *body, size_t size, bool enveloped, const char **ret_why)
{
	const unsigned char *head = (const unsigned char *) body;

	if (!enveloped)
		return parse(body, size, ret_why);
	*ret_why = size > 0 ? check_flags(head[0]) : NULL;
	if (*ret_why == NULL && (size < CONNECT_HEAD_SIZE || length_in(head) != size - CONNECT_HEAD_SIZE))
		*ret_why = "expected one message in one envelope";
	return *ret_why == NULL ? parse(body + CONNECT_HEAD_SIZE, size - CONNECT_HEAD_SIZE, ret_why) : NULL;
}

int connect_next(struct evbuffer *in, json_t **ret, const char **ret_why)
{
	unsigned char head[CONNECT_HEAD_SIZE];
	size_t size;

	if (evbuffer_copyout(in, head, sizeof head) < (ev_ssize_t) sizeof head)
		return 0;
	size = length_in(head);
	*ret_why = size > CONNECT_MESSAGE_MAX ? "the message is too long" : check_flags(head[0]);
	if (*ret_why != NULL)
		return -1;
	if (evbuffer_get_length(in) < sizeof head + size)
		return 0;
	(void) evbuffer_drain(in, sizeof head);
	*ret = parse(size > 0 ? (const char *) evbuffer_pullup(in, (ev_ssize_t) size) : "", size, ret_why);
	(void) evbuffer_drain(in, size);
	return *ret != NULL ? 1 : -1;
}

json_t *connect_field(const json_t *message, const char *name)
{
	json_t *value = json_object_get(message, name);
	char other[64];
	size_t used = 0;

	for (const char *p = name; *p != '\0' && used + 3 < sizeof other; p++) {
		bool upper = *p >= 'A' && *p <= 'Z';

		if (upper)
			other[used++] = '_';
		other[used++] = upper ? (char) (*p - 'A' + 'a') : *p;
	}
	other[used] = '\0';
	if (value == NULL)
		value = json_object_get(message, other);
	return json_is_null(value) ? NULL : value;
}

json_int_t connect_integer(const json_t *value)
{
	const char *text = json_string_value(value);
	uint64_t number;

	if (text != NULL && parse_whole(text, &number) == 0 && number <= INT64_MAX)
		return (json_int_t) number;
	return json_integer_value(value);
}

bool connect_bytes(const char *text, struct evbuffer *out)
{
	static const int variants[] = {sodium_base64_VARIANT_ORIGINAL, sodium_base64_VARIANT_ORIGINAL_NO_PADDING,
				       sodium_base64_VARIANT_URLSAFE, sodium_base64_VARIANT_URLSAFE_NO_PADDING};
	size_t size = strlen(text), got = 0;
	cleanup_free unsigned char *data = xcalloc(size + 1, 1);

	for (size_t i = 0; i < ARRAY_SIZE(variants); i++)
		if (sodium_base642bin(data, size + 1, text, size, NULL, &got, NULL, variants[i]) == 0)
			return evbuffer_add(out, data, got) == 0;
	return false;
}

int connect_add(struct evbuffer *out, bool last, const json_t *message)
{
	cleanup_free char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
	size_t size = text != NULL ? strlen(text) : 0;
	const unsigned char head[CONNECT_HEAD_SIZE] = {last ? FLAG_LAST : 0, (unsigned char) (size >> 24),
						       (unsigned char) (size >> 16), (unsigned char) (size >> 8),
						       (unsigned char) size};

	if (text == NULL || evbuffer_add(out, head, sizeof head) < 0 || evbuffer_add(out, text, size) < 0)
		return -ENOMEM;
	return 0;
}

bool connect_number(const struct request *r, const char *header, uint64_t most, uint64_t *ret)
{
	const char *text = request_header(r, header);

	return text != NULL && parse_whole(text, ret) == 0 && *ret <= most;
}

/* A message may repeat what the peer sent, cut anywhere. */
static json_t *__attribute__((format(printf, 2, 0))) error_of(enum connect_code code, const char *fmt, va_list ap)
{
	char text[TEXT_SIZE];
	size_t bad;

	(void) vsnprintf(text, sizeof text, fmt, ap);
	if (!text_is_utf8(text, strlen(text), &bad))
		text[bad] = '\0';
	return json_pack("{ss ss}", "code", codes[code].name, "message", text);
}

void connect_answer(struct request *r, json_t *message)
{
	respond_json(r, 200, message);
}

void connect_refuse(struct request *r, enum connect_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	respond_json(r, codes[code].status, error_of(code, fmt, ap));
	va_end(ap);
}

/* ---- Streams. ---- */

struct connect_stream {
	struct request *request;
	const struct connect_stream_ops *ops;
	void *arg;
	json_t *keepalive;
	struct event *idle, *deadline;
	struct timeval interval;
	bool late, begun, broken;
};

static void release(struct connect_stream *s)
{
	if (s->idle != NULL)
		event_free(s->idle);
	if (s->deadline != NULL)
		event_free(s->deadline);
	json_decref(s->keepalive);
	free(s);
}

static void send_envelope(struct connect_stream *s, bool last, const json_t *message)
{
	struct evbuffer *out = evbuffer_new();

	/* A stream that has lost a message must not look whole. */
	if (out == NULL || connect_add(out, last, message) < 0)
		s->broken = true;
	else
		stream_write_buffer(s->request, out);
	if (out != NULL)
		evbuffer_free(out);
}

static void on_idle(evutil_socket_t fd, short what, void *arg)
{
	struct connect_stream *s = arg;

	(void) fd;
	(void) what;
	send_envelope(s, false, s->keepalive);
	(void) event_add(s->idle, &s->interval);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct connect_stream *s = arg;

	(void) fd;
	(void) what;
	s->late = true;
	s->ops->stop(s->arg);
}

static void on_gone(struct request *r)
{
	struct connect_stream *s = r->data;

	s->ops->stop(s->arg);
}

static void on_room(struct request *r)
{
	struct connect_stream *s = r->data;

	if (s->ops->room != NULL)
		s->ops->room(s->arg);
}

struct connect_stream *connect_stream_new(struct request *r, const struct connect_stream_ops *ops, void *arg, json_t *keepalive)
{
	struct connect_stream *s = xcalloc(1, sizeof *s);
	uint64_t seconds = KEEPALIVE_DEFAULT, left = 0;

	(void) connect_number(r, "keepalive-ping-interval", KEEPALIVE_MAX, &seconds);
	*s = (struct connect_stream){.request = r, .ops = ops, .arg = arg, .keepalive = keepalive};
	s->interval.tv_sec = (time_t) (seconds > 0 ? seconds : 1);
	s->idle = event_new(r->daemon->base, -1, 0, on_idle, s);
	s->deadline = event_new(r->daemon->base, -1, 0, on_deadline, s);
	if (s->deadline != NULL && connect_number(r, "connect-timeout-ms", DEADLINE_MAX, &left)) {
		struct timeval t = {.tv_sec = (time_t) (left / 1000), .tv_usec = (suseconds_t) (left % 1000 * 1000)};

		(void) event_add(s->deadline, &t);
	}
	r->data = s;
	request_on_gone(r, on_gone);
	stream_begin(r, 200, "application/connect+json", ZW_UNLIMITED);
	stream_on_room(r, on_room);
	return s;
}

void connect_stream_send(struct connect_stream *s, json_t *message)
{
	send_envelope(s, false, message);
	json_decref(message);
	if (s->idle != NULL)
		(void) event_add(s->idle, &s->interval);
}

bool connect_stream_room(const struct connect_stream *s)
{
	return stream_queued(s->request) < STREAM_ROOM;
}

bool connect_stream_is_late(const struct connect_stream *s)
{
	return s->late;
}

static void end_with(struct connect_stream *s, json_t *last)
{
	struct request *r = s->request;
	bool broken;

	send_envelope(s, true, last);
	json_decref(last);
	broken = s->broken;
	release(s);
	if (broken)
		request_reset(r);
	else
		stream_end(r);
}

void connect_stream_end(struct connect_stream *s)
{
	end_with(s, json_object());
}

void connect_stream_fail(struct connect_stream *s, enum connect_code code, const char *fmt, ...)
{
	va_list ap;
	json_t *error;

	va_start(ap, fmt);
	error = error_of(code, fmt, ap);
	va_end(ap);
	end_with(s, json_pack("{so}", "error", error));
}

void connect_stream_cut(struct connect_stream *s)
{
	struct request *r = s->request;

	release(s);
	request_reset(r);
}
