/* One client connection on http or https rules, and the connection to the origin behind it.
 *
 * Theory of operation. A session goes through the states below; session_step (http-session.c) runs the function of its state
 * until nothing moves any more. Callbacks of libevent only note what happened and call session_step, so that a session is never
 * freed below a function that still uses it. One request is in hand at a time: the head of the next one is read when the former
 * has been answered in full.
 *
 *     HANDSHAKE  https: TLS towards the sandbox
 *     HEAD       a request head is awaited, judged and rewritten (http-request.c); refused ones are answered here
 *     DRAIN      the body of a refused request is thrown away
 *     CONNECT    the origin is dialled, and for https its certificate verified
 *     EXCHANGE   request body and response pass, both reframed (http-response.c)
 *     TUNNEL     after a WebSocket upgrade: bytes pass
 *     CLOSE      the rest of the output is written, the connection shut, and what still comes is thrown away for a moment, so
 * that no reset overtakes what was written
 *
 * Must never happen: bytes of the client reach the origin that are not part of a request that was judged; a request is judged by
 * one reading and sent in another; a response goes out that was cut off without the client seeing a reset; a side grows beyond
 * its bound. */
#pragma once

#include "egress/answer.h"
#include "egress/authority.h"
#include "egress/body.h"
#include "egress/broker.h"
#include "egress/head.h"
#include "egress/http-side.h"
#include "egress/inflate.h"
#include "egress/redact.h"

struct dial;
struct evbuffer;

enum {
	HTTP_DRAIN_MAX = 64 * 1024, /* of a refused request's body */
	HTTP_REDACT_MAX = 1024 * 1024,
};

enum http_state { HTTP_HANDSHAKE, HTTP_HEAD, HTTP_DRAIN, HTTP_CONNECT, HTTP_EXCHANGE, HTTP_TUNNEL, HTTP_CLOSE };

struct http_request {
	unsigned minor;
	bool head, keep, expect, websocket;
	bool done; /* all of it is on its way to the origin */
	enum body_kind out;
	struct body body;
	struct flow_request *record; /* in the flow's ring */
};

struct http_response {
	bool began, done, keep_origin;
	enum body_kind out;
	struct body body;
	struct redact *redact;   /* NULL: passes as it is */
	struct inflate *inflate; /* NULL: is not encoded */
	struct evbuffer *coded;  /* for inflate */
	struct evbuffer *plain;  /* waits for redact */
};

struct session {
	struct broker *broker;
	struct flow *f; /* NULL only before the first request of a proxied session */
	bool proxied;
	bool over; /* to be freed */
	enum http_state state;
	struct side client, origin;
	struct dial *dial;
	struct event *timer, *pace;
	int timed;                /* what `timer` waits for */
	bool served;              /* a request has come before */
	bool ragged;              /* the end of the body was that of a ragged origin: so is ours */
	size_t scanned;           /* of the head that is awaited */
	size_t unsent;            /* output that was left when the closing was last looked at */
	struct evbuffer *to_send; /* head for an origin that is not connected yet */
	struct evbuffer *scratch; /* empty between functions */
	struct http_request request;
	struct http_response response;
};

/* ---- http-session.c ---- */

/* Breaks everything off: both sides see a reset. The first `error` of a flow stays. */
void session_abort(struct session *s, const char *error);
/* Its flow is a new one: it can be cut. */
void session_hold(struct session *s);
void session_enter(struct session *s, enum http_state state);
/* Answers and closes, or if `keep` goes on when the body of the request has been thrown away. */
void session_answer(struct session *s, unsigned status, bool keep, const char *line);
/* The head of an allowed request lies in to_send: connects to the origin unless it is. */
void session_connect(struct session *s);
void session_drop_origin(struct session *s, bool reset);
/* How many bytes may move now, at most `wanted`; comes back by itself when there are none. */
size_t session_allowance(struct session *s, size_t wanted);
/* Counts; false when a limit is passed: the session has been broken off. */
bool session_count_sent(struct session *s, uint64_t bytes);
bool session_count_received(struct session *s, uint64_t bytes);

/* ---- http-request.c ---- */

/* The head of a request lies at the start of the client's input: judge it and enter the next state. `size` from head_find. */
void request_head(struct session *s, const char *data, size_t size);
/* What could not be read as a request: recorded, answered, closed. */
void request_malformed(struct session *s, const struct head_fault *fault);
/* Is there a rule for this host and port that uses a secret? Then everything of it is searched. */
bool flow_has_secret(const struct flow *f);
/* Passes what there is of the body. True when something moved. */
bool request_pump(struct session *s);

/* ---- http-response.c ---- */

bool response_pump(struct session *s);
void response_reset(struct session *s);
