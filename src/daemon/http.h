/* The HTTP/1.1 server: its own code on bufferevents. Handlers see api.h alone.
 *
 * ONE CONNECTION (http-conn.c) reads heads, one after the other; each makes a request, which is given to the router. The next
 * head is read when the request has ended and most of its answer is gone. What comes meanwhile (a body that nobody reads,
 * pipelined requests) stays in the input; when that is full, nothing more is read.
 *
 * A REQUEST AND ITS CONNECTION part when the client leaves: the request lives on until its handler ends it; a connection lives on
 * until its output is drained. Each has a pointer to the other that is NULL then.
 *
 * CALLBACKS of libevent are deferred, so that no function of ours is entered twice. Handlers are called from within conn_work(),
 * during which no connection is freed: what would free one marks it, and conn_work frees it at its end.
 *
 * TIME. A head has to be complete within `head` (the first one from accept, TLS included); between requests `idle` may pass; a
 * body that is being read and an output that is not empty have to move within `progress`. One timer a connection, armed lazily.
 *
 * CLOSING. After the last answer the writing side is closed, and what still comes is dropped for a while: closing at once with
 * unread bytes would make the kernel send a reset, which can take the answer away from the peer. */
#pragma once

#include <event2/event.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "daemon/api.h"
#include "egress/body.h"
#include "egress/head.h"

enum {
	REQUEST_LINE_MAX = 16 * 1024,
	REQUEST_HEAD_MAX = 64 * 1024,
	JSON_BODY_MAX = 16 * 1024 * 1024,
	INPUT_MAX = 256 * 1024, /* read ahead of a connection; at least a head */
	OUTPUT_MAX = STREAM_ROOM,
	ANSWER_HEAD_MAX = 16 * 1024,
	LARGE_ANSWER = 1024 * 1024,
	LINGER_BYTES_MAX = 4 * 1024 * 1024,
};

struct http_times {
	usec_t head, idle, progress, linger;
};

struct http_limits {
	struct http_times times;
	size_t connections_max;
	size_t json_bytes_max;   /* of all bodies that are being collected */
	size_t answer_bytes_max; /* of all answers that wait, when a large one comes */
};

/* Who is at the other end. */
struct http_peer {
	bool local; /* a Unix socket: any Host is good */
	bool owner; /* the user of the daemon, at the socket of the state directory */
	bool tls;
	char text[64]; /* for the log */
	char here[64]; /* our address of the connection, without port; "" for Unix sockets */
};

struct http_server {
	struct daemon *daemon;
	struct event_base *base;
	struct http_limits limits;
	LIST_HEAD(, http_conn) conns;
	TAILQ_HEAD(, http_conn) idle; /* the longest idle first */
	size_t count;
	size_t pending;    /* requests that hold back a drain */
	size_t json_bytes; /* see limits */
	LIST_HEAD(, exchange) exchanges;
	uint64_t id_prefix, id_next;
	time_t date_second; /* of `date` */
	char date[40];
	void (*dispatch)(struct request *r);     /* the router */
	void (*on_quiet)(struct http_server *s); /* `pending` has become 0 */
	void (*on_empty)(struct http_server *s); /* while ending: the last connection is gone */
	bool ending;                             /* answers close their connection */
};

enum conn_state { CONN_HEAD, CONN_EXCHANGE, CONN_LINGER, CONN_TUNNEL };

struct http_conn {
	LIST_ENTRY(http_conn) entry;
	TAILQ_ENTRY(http_conn) idle_entry;
	struct http_server *server;
	struct bufferevent *bev;
	struct http_peer peer;
	enum conn_state state;
	struct exchange *x; /* the request that is being served */
	size_t scanned;     /* of the head */
	uint64_t lingered;
	struct event *timer;
	usec_t timer_at;      /* monotonic; 0: not armed */
	usec_t in_by, out_by; /* deadlines; 0: none */
	unsigned working;     /* conn_work() is on the stack */
	usec_t idle_since;    /* monotonic */
	size_t large;         /* the size of its last large answer */
	bool in_idle;         /* it is in the server's list */
	bool answered;        /* it has served a request */
	bool begun;           /* bytes of a head have come */
	bool stopped;         /* nothing is read: the input is full */
	bool eof;             /* the peer has ended its side */
	bool closing;         /* after the answer that is being written */
	bool dead;            /* to be freed as soon as nobody works on it */
	bool reset;           /* with a reset */
	struct tunnel *tunnel;
};

enum answer_state { ANSWER_NONE, ANSWER_BEGUN, ANSWER_ENDED };

/* What the server knows of a request beside struct request, which is its last member's owner. */
struct exchange {
	struct request r;
	LIST_ENTRY(exchange) entry;
	struct http_server *server;
	struct http_conn *conn; /* NULL: the client has left */
	char *text;             /* the head as received, fields NUL-terminated in place */
	struct head head;
	struct head_fault fault; /* status 0: none */
	usec_t began;            /* monotonic */
	usec_t patience;
	struct http_peer peer;

	/* The body. */
	struct body body;
	struct evbuffer *content;
	void (*take)(struct request *r, struct evbuffer *content, enum body_event event);
	bool waiting, again;               /* for the handler to take what is there; to be asked again about it */
	bool reading, told_whole, expects; /* expects: a client that waits for 100 (Continue) */
	struct evbuffer *collected;        /* of a JSON body */
	unsigned body_fault;               /* status; 0: none, or the client left */
	size_t json_counted;               /* in the server's json_bytes */

	/* The answer. */
	enum answer_state answer;
	unsigned status;
	enum body_kind framing;
	uint64_t length_left, sent;
	struct buf fields;
	bool bodyless; /* HEAD, 204, 304 */
	bool bare;     /* without fields of our own */
	bool counted;  /* in `pending` */
	bool gone_told, forget;
	void (*gone)(struct request *r);
	void (*room)(struct request *r);

	/* Of an Idempotency-Key (idempotency.c). */
	struct idempotent *idempotent;
};

/* ---- http-conn.c ---- */

/* Takes over `bev` (deferred callbacks), also on failure. */
int http_conn_new(struct http_server *s, struct bufferevent *bev, const struct http_peer *peer);
void http_server_init(struct http_server *s, struct daemon *d, struct event_base *base, const struct http_limits *limits);
/* Cuts every connection. Requests that handlers still have lose their client. */
void http_server_done(struct http_server *s);
/* Cuts what keys have under way that do not hold any more. */
void http_cut_keys(struct http_server *s, bool (*holds)(struct daemon *d, const char *key_id));
/* Cuts what is under way, and closes each other connection as soon as its answer is with the kernel; then calls on_empty. */
void http_server_end(struct http_server *s);
/* Room for one more: ends the connection that has been idle for longest, if there is one that was for a while. */
bool http_make_room(struct http_server *s);
/* Something may be to be done: reads on, begins the next request, closes. */
void conn_work(struct http_conn *c);
void conn_work_soon(struct http_conn *c);
/* The answer to its request is written: the next one may come. */
void conn_answered(struct http_conn *c);
void conn_cut(struct http_conn *c, bool reset);
/* With a reset, and not before the caller has returned to the event loop. */
void conn_cut_soon(struct http_conn *c);
void conn_want_input_by(struct http_conn *c, usec_t at);

/* ---- http-request.c ---- */

/* Takes `size` bytes of the input as the head of a request. `fault` has a status when they cannot be one. */
struct exchange *exchange_new(struct http_conn *c, size_t size, const struct head_fault *fault);
/* The client has left. Tells the handler. */
void exchange_detach(struct exchange *x);
/* Takes what has come of the body to who reads it. */
void exchange_take_body(struct exchange *x);
/* The handler is done with the request. */
void exchange_end(struct exchange *x);
void exchange_tell_gone(struct exchange *x);
static inline struct exchange *exchange_of(struct request *r)
{
	return r->x;
}

/* ---- http-answer.c ---- */

const char *http_reason(unsigned status);
/* An answer with all of its body, given as bytes: what respond_*() and a replay do. `fields` are further lines or NULL. */
void answer_whole(struct exchange *x, unsigned status, const char *type, const void *body, size_t size);
/* An answer outside of any request, for a connection that is turned away: text, owned by the caller. */
char *answer_refusal(struct http_server *s, unsigned status, const char *message);
void http_next_id(struct http_server *s, char ret[REQUEST_ID_SIZE]);
