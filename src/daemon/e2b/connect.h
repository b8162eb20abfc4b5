/* Connect, the protocol of the RPC interfaces, with its JSON codec: unary calls, and calls whose answer is a stream of envelopes
 * (a byte of flags, four of length, JSON), or whose request is. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/api.h"

struct evbuffer;

enum connect_code {
	CONNECT_CANCELED,
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_ALREADY_EXISTS,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_FAILED_PRECONDITION,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_UNIMPLEMENTED,
	CONNECT_UNAUTHENTICATED,
	CONNECT_CODE_MAX
};

enum { CONNECT_MESSAGE_MAX = 16 << 20, CONNECT_HEAD_SIZE = 5 };

/* The message of a request's body, an object owned by the caller; NULL with why. `enveloped`: in one envelope. */
json_t *connect_parse(const char *body, size_t size, bool enveloped, const char **ret_why);
/* The next message of a client's stream, out of `in`: 1 and *ret, an object owned by the caller; 0: it is not whole yet; -1 with
 * why: what comes is none. */
int connect_next(struct evbuffer *in, json_t **ret, const char **ret_why);
/* What the JSON form of messages lets clients choose. A member by its name in camelCase or in snake_case; NULL: it is not there,
 * or null, which is the default of its kind. */
json_t *connect_field(const json_t *message, const char *name);
/* A number, also one that is written as text; 0: neither. */
json_int_t connect_integer(const json_t *value);
/* base64 in each of its alphabets, with padding or without, decoded into `out`. False: it is none. */
bool connect_bytes(const char *text, struct evbuffer *out);
/* Adds an envelope. 0 or -ENOMEM. */
int connect_add(struct evbuffer *out, bool last, const json_t *message);
/* "Connect-Timeout-Ms", "Keepalive-Ping-Interval": a whole number; false: it is not there, or is none. */
bool connect_number(const struct request *r, const char *header, uint64_t most, uint64_t *ret);

/* Each ends a unary call; `message` is taken over. */
void connect_answer(struct request *r, json_t *message);
void connect_refuse(struct request *r, enum connect_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* An answer that is a stream, on a request of ours. Sends keepalives by itself. */
struct connect_stream;

struct connect_stream_ops {
	/* The client has left, or its deadline has passed: the owner lets go of what it follows, and ends the stream in this call
	 * or later. */
	void (*stop)(void *arg);
	void (*room)(void *arg); /* there is room again; may be NULL */
};

/* 200 and nothing yet. `r` is the stream's from here on. `keepalive` is what an idle stream sends, taken over. */
struct connect_stream *connect_stream_new(struct request *r, const struct connect_stream_ops *ops, void *arg, json_t *keepalive);
/* `message` is taken over. The keepalives begin with the first one. */
void connect_stream_send(struct connect_stream *s, json_t *message);
bool connect_stream_room(const struct connect_stream *s);
/* Was it the deadline that has stopped it? */
bool connect_stream_is_late(const struct connect_stream *s);
/* Each frees the stream and ends the request: in order, with an error, or cut. */
void connect_stream_end(struct connect_stream *s);
void connect_stream_fail(struct connect_stream *s, enum connect_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void connect_stream_cut(struct connect_stream *s);
