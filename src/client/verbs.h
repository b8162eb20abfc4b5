/* The verbs: each returns the exit status, and has said why when that is EXIT_REFUSED. */
#pragma once

#include <jansson.h>

#include "client/options.h"

int verb_create(const struct client_options *o);
int verb_pause(const struct client_options *o);
int verb_resume(const struct client_options *o);
int verb_fork(const struct client_options *o);
int verb_kill(const struct client_options *o);
int verb_rm(const struct client_options *o);
int verb_ps(const struct client_options *o);
int verb_stats(const struct client_options *o);
int verb_top(const struct client_options *o);
int verb_logs(const struct client_options *o);
int verb_exec(const struct client_options *o);
int verb_cp(const struct client_options *o);
int verb_mcp(const struct client_options *o);

/* What several of them need, in life.c. */
struct remote;

/* 0, or EXIT_REFUSED after a line on standard error. */
int client_connect(const struct client_options *o, struct remote *ret);
/* NAME=VALUE... as an object of texts, owned by the caller. 0 or EXIT_REFUSED. */
int client_pairs(const struct strv *list, const char *flag, json_t **ret);
