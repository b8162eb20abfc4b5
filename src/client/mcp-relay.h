/* The messages of one MCP client, as requests to a daemon's /mcp, and what comes back.
 *
 * The sandboxes belong to a session at the daemon, which ends with the relay. It is the client's own where the client begins with
 * a handshake, else one that the relay opens. A daemon that has been restarted knows the session no more: that is told to the
 * call that met it, and the next one opens a new session. */
#pragma once

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/remote.h"
#include "daemon/mcp/message.h"

struct relay_post;

struct relay {
	struct remote *remote;
	CURLM *multi;
	void (*send)(void *ctx, json_t *message); /* takes it over */
	bool (*is_full)(void *ctx);               /* no more can be sent for now */
	void *ctx;
	char *session, *revision; /* NULL: there is none */
	json_t *hello;            /* params of the client's handshake, for sessions that are opened later */
	struct relay_post *posts; /* under way, and those that wait for a session */
	size_t count;
	bool opening, paused;
};

/* `r` has remote, multi, send, is_full and ctx, and is zero elsewhere. */
void relay_take(struct relay *r, const struct mcp_message *m);
/* Results of the multi handle. */
void relay_take_results(struct relay *r);
/* There is room again. */
void relay_go_on(struct relay *r);
/* Leaves the calls of tools; with `all` everything. */
void relay_leave(struct relay *r, bool all);
/* Ends the session, waiting for it, and frees what there is. */
void relay_end(struct relay *r);
