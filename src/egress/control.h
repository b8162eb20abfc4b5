/* The broker's line to the supervisor: one SOCK_SEQPACKET socket, one JSON object a message with a member "t" that names its
 * kind; at most CONTROL_MESSAGE_MAX bytes. The supervisor bounds and checks what it reads, since a broker may have been taken
 * over.
 *
 * supervisor -> broker
 *     config     fd: sealed memory file with {"network": network_to_json, "id": "zw-..."}. First message
 *     listeners  {"listeners": [{"address": "198.18.1.0" | "0.0.0.0" | "::", "port": 443, "udp": false}, ...]} with one fd each,
 * at most 64 a message; after the config, before or after ready publish    {"entries": [{"port": 8080, "label":
 * "127.0.0.1:9000"}, ...]} with one listening socket of the host each secret     {"name": ..., "value": ... | null}: null
 * revokes; again with another value: replaces narrow     {"entries": [name, "*.name", address or range...] | null}: what is left
 * of the rules from now on; null: all (narrow.h) inbound    {"id": N} with fd: a connection to the port inside; {"id": N,
 * "error":
 * "..."}: there is none sync       {"id": N}: answer when all that has happened until now is told, connections that close
 * included; one that stays open is waited for no longer than a tenth of a second end        close everything, report, say bye,
 * exit broker -> supervisor ready      confined and serving;
 * {"ca": PEM | null, "java": bool}; with https rules, fd 0: memory file with the trust bundle (host's certificates and the CA of
 * this run), fd 1, if "java": memory file with the same as a JKS key store refused    {"why": sentence}: it cannot start name
 * {"name": ..., "address": "198.18.1.0"}: given out by the stub connection {"host": name or address, "port", "protocol",
 * "address": dialled or absent, "sent", "received", "usec", "rule": label, "error"?, "requests"?: [{"method", "path", "status"}],
 * "request_count"?, "inbound"?: true, "count"?}. "inbound": to a published port; host is then the peer outside, port the one
 * inside, rule the label, and protocol "publish". "count": so many that differ in nothing else stand here as one (their sums),
 * because the line was full denied     {"kind": "dns" | "network" | "http", "host", "port"?, "address"?, "method"?, "path"?,
 * "rule"? (nearest or broken one), "why": sentence, "count"}. Host "(others)": more different ones than could be kept apart limit
 * {"which": "bytes_out" | "bytes_in" | "requests" | "connections", "kill": bool} inbound    {"id": N, "port": 8080}: somebody
 * connected to a published port usage      {"sent", "received"}: of the whole run, with every tenth of a second in which they
 * changed, and before bye synced     {"id"} bye        last message */
#pragma once

#include "egress/broker.h"

enum { CONTROL_FD = 3, CONTROL_MESSAGE_MAX = 64 * 1024, CONTROL_FDS_MAX = 64 };

/* The line is `fd`. Nothing is read or sent before control_start. */
struct control *control_new(struct broker *b, int fd);
void control_free(struct control *c);

struct control_config {
	char *network; /* network_to_json */
	size_t network_size;
	char id[64];
	bool java; /* "java" of the message, true when absent: is a JKS key store wanted? */
};

/* Before control_start, while the line may still block: waits for the configuration; tells the supervisor that the broker cannot
 * start, or that it is ready (`ca` may be NULL; fds stay the caller's, -EBADF for none). */
int control_config(struct control *c, struct control_config *ret, struct zw_error *e);
void control_config_done(struct control_config *config);
void control_refused(struct control *c, const char *why);
int control_ready(struct control *c, const char *ca, int bundle, int java, struct zw_error *e);
/* From now on messages are taken from the loop, and sent without ever waiting. The loop is broken on "end", and when the
 * supervisor is gone or sends what it must not. */
void control_start(struct control *c);
/* After the loop: reports the flows that are still open, sends what is waiting (for at most a few seconds) and says bye. */
void control_finish(struct control *c);

/* A refusal, for the record. Same ones within a short time are sent as one with their count. NULL and 0 where not known. */
struct refusal {
	const char *kind; /* "dns", "network", "http" */
	const char *host; /* name or address that was asked for */
	uint16_t port;
	const struct net_address *address; /* it resolved to, and was not dialled */
	const char *method, *path;
	int rule;        /* index of the rule that was broken or comes nearest, -1 */
	const char *why; /* a sentence without full stop, for a person and an agent */
};

void control_refusal(struct control *c, const struct refusal *r);
void control_connection(struct control *c, const struct flow *f);
/* It has left the list of flows. */
void control_flow_gone(struct control *c);
void control_name(struct control *c, const char *name, uint32_t address);
void control_limit(struct control *c, const char *which, bool kill);
void control_usage(struct control *c, uint64_t sent, uint64_t received);
/* Asks for a connection to a port inside; answered by done(ctx, fd) with -1 when there is none. */
void control_inbound(struct control *c, uint16_t port, void (*done)(void *ctx, int fd), void *ctx);
