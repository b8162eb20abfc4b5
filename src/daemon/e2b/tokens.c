/* Tokens of sandboxes: a keyed hash of the id, with a key that the state directory keeps. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"

static const char key_file[] = "tokens.key";

static int load(struct daemon *d)
{
	cleanup_fd int fd = openat(d->state.fd, key_file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return read(fd, d->token_key, sizeof d->token_key) == (ssize_t) sizeof d->token_key ? 0 : -ENOENT;
}

int e2b_tokens_open(struct daemon *d, struct zw_error *e)
{
	int r = load(d);

	if (r == 0)
		return 0;
	if (r != -ENOENT)
		return zw_error(e, -r, "the key of the sandboxes' tokens in the state directory cannot be read: %s",
				strerror(-r));
	randombytes_buf(d->token_key, sizeof d->token_key);
	return state_write_file(d->state.fd, key_file, d->token_key, sizeof d->token_key, e);
}

static void make(const struct daemon *d, const char *purpose, const char *sandbox_id, char ret[E2B_TOKEN_SIZE])
{
	unsigned char hash[(E2B_TOKEN_SIZE - 1) / 2];
	char text[128];
	int n = snprintf(text, sizeof text, "%s:%s", purpose, sandbox_id);

	(void) crypto_generichash(hash, sizeof hash, (const unsigned char *) text, (size_t) n, d->token_key, sizeof d->token_key);
	(void) sodium_bin2hex(ret, E2B_TOKEN_SIZE, hash, sizeof hash);
}

void e2b_access_token(const struct daemon *d, const char *sandbox_id, char ret[E2B_TOKEN_SIZE])
{
	make(d, "access", sandbox_id, ret);
}

void e2b_traffic_token(const struct daemon *d, const char *sandbox_id, char ret[E2B_TOKEN_SIZE])
{
	make(d, "traffic", sandbox_id, ret);
}

static bool is_token(const char *text, const char token[E2B_TOKEN_SIZE])
{
	return text != NULL && strlen(text) == E2B_TOKEN_SIZE - 1 && sodium_memcmp(text, token, E2B_TOKEN_SIZE - 1) == 0;
}

bool e2b_has_access_token(const struct request *r, const struct sandbox *s)
{
	char token[E2B_TOKEN_SIZE];

	e2b_access_token(r->daemon, s->id, token);
	return is_token(request_header(r, "x-access-token"), token);
}

bool e2b_has_traffic_token(const struct request *r, const struct sandbox *s)
{
	char token[E2B_TOKEN_SIZE];

	if (!json_is_false(json_object_get(json_object_get(s->extras, "network"), "allowPublicTraffic")))
		return true;
	e2b_traffic_token(r->daemon, s->id, token);
	return is_token(request_header(r, "e2b-traffic-access-token"), token);
}
