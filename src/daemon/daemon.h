/* zwingerd: what its parts share. One process, one thread, one event loop; everything in it runs to completion and never waits.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>

#include "daemon/http-listen.h"
#include "daemon/http-origin.h"
#include "daemon/http.h"
#include "daemon/keys.h"
#include "daemon/serve-options.h"
#include "daemon/state.h"
#include "daemon/store.h"

struct metrics;
struct dlog;
struct router;
struct idempotency;
struct key_watch;
struct sandboxes;
struct snapshots;
struct mcp_http;
struct mcp_stdio;

enum { DAEMON_STOPPERS_MAX = 8, DAEMON_INFO_MAX = 8, DAEMON_TOKEN_KEY_SIZE = 32 };

struct daemon {
	const struct serve_options *options;
	struct event_base *base;
	struct dlog *log;
	struct metrics *metrics;
	struct state state;
	struct store store;
	struct keys keys;
	struct key_watch *key_watch;
	struct origins origins;
	struct router *router;
	struct idempotency *idempotency;
	struct sandboxes *sandboxes;
	struct snapshots *snapshots;                    /* of `serve` */
	unsigned char token_key[DAEMON_TOKEN_KEY_SIZE]; /* of the tokens of sandboxes (e2b/tokens.c) */
	struct mcp_http *mcp_http;                      /* of `serve` */
	struct mcp_stdio *mcp_stdio;                    /* of `mcp` */
	struct http_server http;
	struct http_listeners *listeners;
	bool tls;
	char first_key[KEY_TEXT_SIZE]; /* "" when the state had one; forgotten once it is printed */
	char first_key_id[KEY_ID_SIZE];
	usec_t started; /* monotonic */
	struct {
		void (*add)(json_t *info, void *arg);
		void *arg;
	} info[DAEMON_INFO_MAX];
	size_t info_count;

	/* The end (daemon-end.c). */
	bool draining; /* no new work */
	bool stopping; /* no requests are waited for any more */
	struct event *signals[3], *drain_timer, *flush_timer;
	struct {
		void (*stop)(void *arg);
		void *arg;
	} stoppers[DAEMON_STOPPERS_MAX];
	size_t stopper_count, stoppers_left;
	int exit_status;
};

/* Exit statuses. */
enum { DAEMON_FAILED = 1, DAEMON_REFUSED = 125 };

/* Runs until a signal ends it; the exit status. */
int daemon_serve(const struct serve_options *options);
/* The same parts without any listener and key: MCP on standard input and output. */
int daemon_mcp(const struct serve_options *options);

/* A part that has something to end when the daemon does: `stop` is called once requests are done or the drain is over, and leads,
 * now or later, to one call of daemon_stopped(). */
void daemon_on_stop(struct daemon *d, void (*stop)(void *arg), void *arg);
void daemon_stopped(struct daemon *d);

/* A part that has something to say in GET /v1/info: sets members of the object. */
void daemon_on_info(struct daemon *d, void (*add)(json_t *info, void *arg), void *arg);

/* ---- daemon-end.c ---- */

int daemon_watch_signals(struct daemon *d, struct zw_error *e);
void daemon_forget_signals(struct daemon *d);
/* No new work; ends when what is under way has ended, or --drain has passed. The second call ends at once. */
void daemon_drain(struct daemon *d);

/* ---- daemon-tls.c ---- */

/* Loads the certificate of the options, or makes the self-signed one, and hands it to the listeners. Nothing without TLS. */
int daemon_load_tls(struct daemon *d, const struct listen_address *addresses, size_t count, struct zw_error *e);

/* ---- key-watch.c ---- */

/* Sees changes of the keys by other processes as they happen, and keys that expire; cuts what they have under way. NULL with a
 * sentence. */
struct key_watch *key_watch_new(struct daemon *d, struct zw_error *e);
struct key_watch *key_watch_free(struct key_watch *w);
/* The daemon itself has changed the keys: a key that is gone is cut once the caller has returned to the loop. */
void key_watch_changed(struct key_watch *w);

/* ---- announce.c ---- */

/* The URL of the first TCP address (one that this machine can use), or of the first Unix socket. Owned by the caller. */
char *daemon_url(const struct daemon *d);
/* Says on standard output where the daemon listens, and its first key; writes --print-key-file; tells the service manager. */
int daemon_announce(struct daemon *d, struct zw_error *e);

/* ---- The modules with routes. ---- */

/* All of them. Needs d->router alone. */
void daemon_add_routes(struct daemon *d);
void api_health_add(struct daemon *d);
void api_keys_add(struct daemon *d);
