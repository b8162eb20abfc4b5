/* Bodies that are needed whole, of the interfaces inside a sandbox. */
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"

struct pending {
	const struct e2b_body_ops *ops;
	const void *arg;
	char id[SANDBOX_ID_SIZE];
	struct evbuffer *body;
};

static void pending_free(struct pending *p)
{
	evbuffer_free(p->body);
	free(p);
}

static void take(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct pending *p = r->data;
	struct sandbox *s;
	size_t size;

	if (event == BODY_BROKEN) {
		pending_free(p);
		refuse_body(r);
		return;
	}
	if (!request_collect(r, p->body, content)) {
		p->ops->refuse(r, p->arg, E2B_BODY_BUSY);
		pending_free(p);
		return;
	}
	size = evbuffer_get_length(p->body);
	if (event == BODY_MORE && size <= p->ops->most)
		return;
	if (size > p->ops->most) {
		p->ops->refuse(r, p->arg, E2B_BODY_TOO_LONG);
		pending_free(p);
		return;
	}
	request_drop_body(r);               /* the request may last */
	s = sandbox_find(r->daemon, p->id); /* it may have ended meanwhile */
	if (s == NULL || s->state != SANDBOX_RUNNING)
		e2b_refuse_gone(r, p->id);
	else
		p->ops->whole(r, s, p->arg, size > 0 ? (const char *) evbuffer_pullup(p->body, -1) : "", size);
	pending_free(p);
}

void e2b_read_body(struct request *r, const struct sandbox *s, const struct e2b_body_ops *ops, const void *arg)
{
	struct pending *p = xcalloc(1, sizeof *p);

	*p = (struct pending){.ops = ops, .arg = arg, .body = evbuffer_new()};
	memcpy(p->id, s->id, sizeof p->id);
	if (p->body == NULL) {
		free(p);
		ops->refuse(r, arg, E2B_BODY_BUSY);
		return;
	}
	r->data = p;
	request_read(r, take);
}
