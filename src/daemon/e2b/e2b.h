/* The interface of E2B, on the daemon's own port: what its modules share.
 *
 * dispatch.c  tells traffic of a sandbox (its envd, its code interpreter, its ports) from the control plane
 * tokens.c    the tokens of a sandbox, made from its id and a key of the daemon: nothing to be kept, and they survive a restart
 * errors.c    {"code","message"}
 *
 * A request that is handed over by dispatch.c has a route (for metrics and the form of errors), a sandbox that exists and, unless
 * said otherwise, runs; r->data is free. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "daemon/api.h"

struct daemon;
struct policy;
struct sandbox;

enum { E2B_ENVD_PORT = 49983, E2B_INTERPRETER_PORT = 49999 };

/* What clients judge our abilities by. */
#define E2B_ENVD_VERSION "0.6.4"

/* Routes and front. */
void e2b_add(struct daemon *d);

/* ---- dispatch.c ---- */

void e2b_front_add(struct daemon *d);

/* The path from "~/x", "~", "x" or "/x" as zwinger-files takes it (relative is below HOME). NULL: it is empty, too long, or of
 * another user's home. Points into `path` or is static. */
const char *e2b_path(const char *path);
/* For browsers: any origin. Before the answer begins; dispatch.c has done it for what it hands over. */
void e2b_allow_origin(struct request *r);

/* Calls `then` with the sandbox of the request when it runs, at once or once it is resumed: one that is paused is if `wake`.
 * Otherwise the request is refused. */
void e2b_when_running(struct request *r, struct sandbox *s, bool wake, void (*then)(struct request *r, struct sandbox *s));
/* Was it made with autoResume? */
bool e2b_wakes(const struct sandbox *s);

/* ---- control.c, create.c, list.c, fork.c ---- */

void e2b_create_add(struct daemon *d);
void e2b_list_add(struct daemon *d);
void e2b_fork_add(struct daemon *d);
/* The sandbox of params[0], running or paused; NULL: there is none, and with e2b_sandbox_of the request is refused. */
struct sandbox *e2b_find(struct request *r);
struct sandbox *e2b_sandbox_of(struct request *r);
/* {"sandboxID", ...} as create, connect and fork answer. Owned by the caller. */
json_t *e2b_sandbox_to_json(const struct sandbox *s);
/* "timeout" of the body in seconds, `missing` without one. False with the request refused and dead. */
bool e2b_read_timeout(struct request *r, int64_t least, usec_t missing, usec_t *ret);
/* What the environment inside says of itself. */
void e2b_name_inside(struct sandbox *s);

/* ---- network.c ---- */

/* The policy (an object or NULL, owned by the caller) for what `ask` says of the network, in the form of create. `outer`: the
 * ceiling, or what else nothing may go beyond. `own`: nothing said means what it allows, else it is left to the template. False
 * with `ret` of why. */
struct e2b_refusal {
	unsigned status;
	char message[300];
};
bool e2b_network_policy(const struct policy *outer, const json_t *allow_internet_access, const json_t *network, bool own,
			json_t **ret_policy, struct e2b_refusal *ret);
/* What it leaves of the rules, when it was not refused: a list of names, addresses and ranges, or null: all of them. Owned by the
 * caller. */
json_t *e2b_network_entries(const json_t *allow_internet_access, const json_t *network);
/* The same rules, but for their secrets? */
bool e2b_network_equal(const struct policy *a, const struct policy *b);

/* ---- network-change.c ---- */

void e2b_network_add(struct daemon *d);

/* ---- snapshots.c ---- */

struct sandbox_wish;
struct snapshot_key;
void e2b_snapshots_add(struct daemon *d);
/* "name", "name:tag", "team/name:tag"; without a tag it is "default". False: no snapshot can be called that. */
bool e2b_snapshot_key(const char *text, struct snapshot_key *ret, bool *ret_tagged);
bool e2b_has_snapshot(struct daemon *d, const char *text);
/* A sandbox from a snapshot: what `wish` says over what that has, its `policy` that of the network or NULL. Ends the request. */
void e2b_create_from_snapshot(struct request *r, const struct snapshot_key *key, const struct sandbox_wish *wish);

/* ---- metadata.c ---- */

/* The filter of a list, once decoded as a query: "k=v&k2=v2" with each side encoded twice. {"k": "v"} owned by the caller, NULL
 * when it is none. */
json_t *e2b_metadata_filter(const char *form);

/* ---- files.c, ports.c: each ends the request. ---- */

void e2b_files_request(struct request *r, struct sandbox *s);
/* A port of the sandbox, whose number is r->data. */
void e2b_port_request(struct request *r, struct sandbox *s);
/* /files?signature= that says nothing of the sandbox: the one whose token makes that signature, NULL. */
struct sandbox *e2b_signed_sandbox(const struct request *r);
enum e2b_signature { E2B_SIGNATURE_GOOD, E2B_SIGNATURE_WRONG, E2B_SIGNATURE_EXPIRED };
enum e2b_signature e2b_check_signature(const struct request *r, const struct sandbox *s);

/* ---- body.c ---- */

enum e2b_body_fault { E2B_BODY_TOO_LONG, E2B_BODY_BUSY /* too much is held already */ };
struct e2b_body_ops {
	size_t most;
	/* Each ends the request, now or later. */
	void (*whole)(struct request *r, struct sandbox *s, const void *arg, const char *body, size_t size);
	void (*refuse)(struct request *r, const void *arg, enum e2b_body_fault fault);
};
/* Calls one of them with the body, while the sandbox runs. What is held until then is counted of all bodies together. */
void e2b_read_body(struct request *r, const struct sandbox *s, const struct e2b_body_ops *ops, const void *arg);

/* ---- envd.c, interpreter.c: each ends the request. ---- */

/* Everything on port 49983 but /health and /files. X-Access-Token was right. */
void e2b_envd_request(struct request *r, struct sandbox *s);
/* Everything on port 49999. Nothing has been checked but the traffic token, where the sandbox has one. */
void e2b_interpreter_request(struct request *r, struct sandbox *s);

/* ---- tokens.c ---- */

enum { E2B_TOKEN_SIZE = 65 };

/* Loads the key of the tokens, or makes it. */
int e2b_tokens_open(struct daemon *d, struct zw_error *e);
void e2b_access_token(const struct daemon *d, const char *sandbox_id, char ret[E2B_TOKEN_SIZE]);
void e2b_traffic_token(const struct daemon *d, const char *sandbox_id, char ret[E2B_TOKEN_SIZE]);
/* Is the header X-Access-Token the sandbox's? In constant time. */
bool e2b_has_access_token(const struct request *r, const struct sandbox *s);
/* Is the header E2B-Traffic-Access-Token? True also when the sandbox asks for none. */
bool e2b_has_traffic_token(const struct request *r, const struct sandbox *s);

/* ---- errors.c ---- */

/* {"code": status, "message"}. Ends the request. */
void e2b_refuse(struct request *r, unsigned status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* {"sandboxId","message","code":502}: what the edge says of a sandbox that is not there or does not run. Ends the request. */
void e2b_refuse_gone(struct request *r, const char *sandbox_id);
/* {"code","message"}, owned by the caller: the problem in one text with what to do next. */
json_t *e2b_error_to_json(const struct problem *p);
/* For struct route. */
void e2b_write_problem(struct request *r, const struct problem *p);
