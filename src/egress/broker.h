/* zwinger-egress: the network broker of one sandbox. What its files share.
 *
 * Theory of operation. A sandbox with network rules has two network namespaces. Its own has loopback and eth0, one end of a veth
 * pair; the other end lies in the transit namespace, in which no process lives. In the transit namespace every address of
 * 198.18.0.0/16 and of the address rules is local, and the sockets that listen there were handed to the broker when the sandbox
 * was built. So every connection to an allowed name or address ends in a socket of the broker, who reads from getsockname(2)
 * which name (names.h) or address was meant, asks the rules (policy/network.h), resolves and dials in the network namespace of
 * the host, and moves bytes. Nothing else leads out: the transit namespace has no other device.
 *
 * The broker starts before the sandbox, reads its configuration (control.h) from the supervisor, opens what it needs of the
 * host's files (trust store, resolv.conf, hosts), confines itself (confine.h), says "ready", and runs one libevent loop in one
 * thread until the supervisor says "end" or goes away. Then every socket closes, and with the last one the transit namespace is
 * gone: a broker that crashed is a network that is closed.
 *
 * Hostile is everything that comes from inside (DNS queries, ClientHellos, requests, bytes, timing) and everything that comes
 * from outside (DNS answers, responses, certificates). Trusted is the supervisor. Every length is bounded; per-connection memory
 * is bounded by watermarks; the number of connections by BROKER_CONNECTIONS_MAX.
 *
 * Memory. What a peer can size is bounded before it is allocated; small fixed allocations may use xcalloc (the end of the broker
 * is a closed network, which is safe). */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/err.h"
#include "policy/network.h"

enum {
	BROKER_CONNECTIONS_MAX = 4096, /* at once; further ones wait in the listeners' backlogs for a moment (listen.c) */
};

struct broker {
	struct event_base *base;
	struct network *network;
	struct narrowing *narrowing; /* NULL: all the rules hold (narrow.h) */
	const char *id;              /* of the run, "zw-..."; NULL: not known */
	struct control *control;     /* to the supervisor */
	struct names *names;         /* name <-> address of 198.18/16 */
	struct resolver *resolver;   /* upstream DNS */
	struct stub *stub;           /* of the look-ups inside; made with the first of them (stub.h), ended by stub_free */
	struct quota *quota;
	struct secrets *secrets;
	struct tls *tls;             /* NULL when no rule is https */
	struct listeners *listeners; /* of the transit namespace */
	struct datagrams *datagrams; /* udp */
	struct publish *publish;     /* listeners of the host */
	struct pipes *pipes;         /* that relays borrow */
	LIST_HEAD(, flow) flows;     /* open ones */
	size_t connections;          /* that are open now */
	size_t connections_max;      /* BROKER_CONNECTIONS_MAX, or less where descriptors are short */
};

/* What was asked for: a name (canonical) or an address, and a port. */
struct target {
	char name[NETWORK_NAME_SIZE]; /* "" when an address was asked for */
	struct net_address address;   /* AF_UNSPEC when a name was asked for */
	uint16_t port;
};

enum { FLOW_RULES_MAX = 32, FLOW_REQUESTS_MAX = 100 };

struct flow_request {
	char method[24];
	char *path; /* owned, at most 1024 bytes */
	int status; /* 0: none came */
};

/* One connection of the sandbox, from its acceptance to its record. Made by flow_open, ended by flow_close, which tells the
 * supervisor and frees it. Whoever holds the flow adds to `sent` (by the sandbox to outside) and `received` only through
 * quota_sent and quota_received. */
struct flow {
	struct broker *broker;
	struct target target;
	enum net_protocol protocol;
	size_t rules[FLOW_RULES_MAX]; /* that cover it */
	size_t rule_count;
	int rule;                   /* index of the one that allowed it, for the record; -1 while unknown */
	struct net_address dialled; /* AF_UNSPEC: never */
	uint16_t dialled_port;
	uint64_t sent, received;
	usec_t began;
	char error[120];               /* why it could not be made or was broken off, "" */
	struct flow_request *requests; /* a ring, NULL for other protocols than http and https */
	size_t request_count;          /* of all; the newest FLOW_REQUESTS_MAX are kept */
	const char *published; /* the label of the published port that a peer outside connected to (the target is the peer's
				  address and the port inside); NULL: the sandbox made the connection */
	/* Whoever holds the flow: ends the connection with a reset, and so the flow, with `error` as it is. NULL: nobody yet. */
	void (*cut)(void *owner);
	void *owner;
	LIST_ENTRY(flow) link;
};

/* The flow for an accepted connection: looks up the rules, counts the connection against the quota. NULL when it is refused; the
 * denial has been recorded then and the caller resets the connection. */
struct flow *flow_open(struct broker *b, const struct target *t, bool udp);
/* The flow for a peer outside that connected to a published port. `label` outlives it. */
struct flow *flow_open_published(struct broker *b, const struct target *t, const char *label);
void flow_close(struct flow *f);
/* The request is the newest; returns its slot, valid until FLOW_REQUESTS_MAX further ones. */
struct flow_request *flow_add_request(struct flow *f, const char *method, const char *path, size_t path_size);

/* Entry points of the protocols. Each takes over `fd` (non-blocking, close-on-exec) and `f`, and closes both in the end. */
void relay_start(struct flow *f, int fd);       /* tcp: relay.c */
void passthrough_start(struct flow *f, int fd); /* tls: SNI is checked, then relayed: passthrough.c */
void http_start(struct flow *f, int fd);        /* http and https: http-session.c; https ends TLS first */
void proxy_start(struct broker *b, int fd);     /* explicit proxy: proxy.c; it opens the flow itself */
void flow_start(struct flow *f, int fd);        /* one of the first three, by protocol: flow.c */

/* Moves bytes between two connected sockets, until both have ended or one is reset, and then closes them and `f`. `upstream` is
 * the side outside of the sandbox. `first` (copied) goes upstream before anything else; it is what was already read of the
 * client, and is counted here. relay.c */
void relay_pair(struct flow *f, int client, int upstream, const void *first, size_t first_size);

/* An accepted connection that has no flow yet, or none of its own: counts it in (+1) and out (-1), so that it takes one of the
 * BROKER_CONNECTIONS_MAX places. flow_open and flow_close do so for their own. listen.c */
void connections_count(struct broker *b, int change);

/* Closes a TCP socket so that the peer sees a reset, not an orderly end. */
void reset_close(int fd);
