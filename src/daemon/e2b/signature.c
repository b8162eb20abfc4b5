/* Signed URLs of files: whoever has one may read or write that path, without the token and without the sandbox's id. */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"
#include "policy/text.h"

enum { SIGNATURE_SIZE = 64 };

static const char *or_empty(const char *text)
{
	return text != NULL ? text : "";
}

/* "v1_" and the hash of "path:operation:user:token[:expiration]" */
static void sign(const struct request *r, const struct sandbox *s, const char *expiration, char ret[SIGNATURE_SIZE])
{
	const char *operation = strcmp(r->method, "POST") == 0 ? "write" : "read";
	unsigned char hash[crypto_hash_sha256_BYTES];
	char token[E2B_TOKEN_SIZE];
	cleanup_free char *text = NULL;

	e2b_access_token(r->daemon, s->id, token);
	text = xasprintf("%s:%s:%s:%s%s%s", or_empty(request_query(r, "path")), operation, or_empty(request_query(r, "username")),
			 token, expiration != NULL ? ":" : "", or_empty(expiration));
	(void) crypto_hash_sha256(hash, (const unsigned char *) text, strlen(text));
	memcpy(ret, "v1_", 3);
	(void) sodium_bin2base64(ret + 3, SIGNATURE_SIZE - 3, hash, sizeof hash, sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
}

enum e2b_signature e2b_check_signature(const struct request *r, const struct sandbox *s)
{
	const char *sent = request_query(r, "signature"), *expiration = request_query(r, "signature_expiration");
	char good[SIGNATURE_SIZE];
	uint64_t until;

	if (sent == NULL)
		return E2B_SIGNATURE_WRONG;
	sign(r, s, expiration, good);
	if (strlen(sent) != strlen(good) || sodium_memcmp(sent, good, strlen(good)) != 0)
		return E2B_SIGNATURE_WRONG;
	if (expiration == NULL)
		return E2B_SIGNATURE_GOOD;
	return parse_whole(expiration, &until) == 0 && until >= now_realtime() / USEC_PER_SEC ? E2B_SIGNATURE_GOOD
											      : E2B_SIGNATURE_EXPIRED;
}

struct sandbox *e2b_signed_sandbox(const struct request *r)
{
	for (struct sandbox *s = r->daemon->sandboxes->newest; s != NULL; s = s->older)
		if (!s->hidden && (s->state == SANDBOX_RUNNING || s->state == SANDBOX_PAUSED) &&
		    e2b_check_signature(r, s) != E2B_SIGNATURE_WRONG)
			return s;
	return NULL;
}
