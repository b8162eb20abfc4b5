/* The daemon as its clients reach it: where it is, the key, and one request after the other.
 *
 * Nothing that comes back is trusted: bodies have a ceiling, JSON is parsed strictly, redirects are not followed, certificates
 * are verified, a server that says nothing for a minute is given up. The key goes into a header and nowhere else. */
#pragma once

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/options.h"

enum { REMOTE_JSON_MAX = 16 * 1024 * 1024, REMOTE_PROBLEM_MAX = 1024 * 1024 };

struct remote {
	char *base;   /* "http://localhost", without a slash at the end */
	char *socket; /* of a Unix address, else NULL; leads over `folder` */
	char *where;  /* for messages */
	char *remedy; /* how to start what is not there */
	char *key;    /* or NULL */
	char *cacert; /* or NULL: what the system trusts */
	int folder;   /* of the socket: its path may be longer than an address */
	CURL *spare;  /* keeps a connection from request to request */
};

/* 0, or negative errno with a sentence. */
int remote_open(const struct client_options *o, struct remote *ret, struct zw_error *e);
void remote_done(struct remote *r);

/* One request under way. */
struct transfer {
	const struct remote *remote;
	CURL *easy;
	struct curl_slist *headers;
	char *url, *text; /* text: the body that is sent, or NULL */
	struct buf body;  /* what was answered and is not for the sink */
	/* Content of a good answer. 0: taken; 1: not now (CURLPAUSE); negative: stop. NULL: into `body`. */
	int (*sink)(void *ctx, const char *data, size_t size);
	void *ctx;
	bool too_large;
	char error[CURL_ERROR_SIZE];
};

/* `path` begins with "/" and is escaped already; `body` is taken over and may be NULL. Ended by transfer_done. */
void transfer_init(struct transfer *t, const struct remote *r, CURL *easy, const char *method, const char *path, json_t *body);
void transfer_done(struct transfer *t);
void transfer_header(struct transfer *t, const char *line);
/* Sends what `read` gives as the body; `size` negative: in chunks. */
void transfer_upload(struct transfer *t, curl_read_callback read, void *ctx, curl_off_t size);
/* No answer for long is fine. A host that is gone is found by the kernel. */
void transfer_may_be_silent(struct transfer *t);
bool transfer_is_good(const struct transfer *t); /* a 2xx answer, as far as it has come */
/* 0 for a good and whole answer; else, after lines on standard error that say why, EXIT_REFUSED, or 126 or 127 for a command that
 * could not be executed. */
int transfer_judge(const struct transfer *t, CURLcode code);

/* Asks and waits. 0 and *ret (owned by the caller; may be NULL: not wanted), or EXIT_REFUSED after the lines. *ret is NULL for an
 * answer without a body. */
int remote_ask(struct remote *r, const char *method, const char *path, json_t *body, json_t **ret);
/* The same, where a failure is expected: prints nothing for a status, which comes back in *ret_status. */
int remote_try(struct remote *r, const char *method, const char *path, json_t **ret, long *ret_status);
/* A path with everything in "%s" escaped for use in a URL; owned by the caller. */
char *remote_path(const char *format, const char *first, const char *second);
/* The answer as JSON, or NULL after a line on standard error. */
json_t *remote_parse(const struct transfer *t);
