/* Who a request is from. */
#include <string.h>
#include <strings.h>

#include "daemon/daemon.h"
#include "daemon/http.h"

/* The key in the head, NULL when there is none. Two different ones are none: whose request would it be? */
static const char *presented(const struct request *r, bool *ret_any)
{
	const char *bearer = request_header(r, "authorization"), *header = request_header(r, "x-api-key");

	*ret_any = header != NULL || request_header_count(r, "x-api-key") > 0 || request_header_count(r, "authorization") > 1;
	if (bearer != NULL && strncasecmp(bearer, "bearer ", 7) == 0) {
		*ret_any = true;
		bearer += 7;
		while (*bearer == ' ')
			bearer++;
	} else {
		bearer = NULL; /* Basic and others are for those behind us */
	}
	if (request_header_count(r, "x-api-key") > 1 || request_header_count(r, "authorization") > 1)
		return NULL;
	if (bearer != NULL && header != NULL && strcmp(bearer, header) != 0)
		return NULL;
	return bearer != NULL ? bearer : header;
}

bool request_authenticate(struct request *r)
{
	bool any;
	const char *text = presented(r, &any);
	const struct key *key = text != NULL ? keys_find(&r->daemon->keys, text, strlen(text)) : NULL;

	r->caller = (struct caller){.scope = SCOPE_NONE};
	if (!any && r->x->peer.owner) {
		r->caller.scope = SCOPE_ADMIN;
		return true;
	}
	if (key == NULL)
		return false;
	r->caller.scope = key->scope;
	memcpy(r->caller.key_id, key->id, sizeof r->caller.key_id);
	return true;
}
