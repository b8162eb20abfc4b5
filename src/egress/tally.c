#include "egress/tally.h"

#include <string.h>

#include "base/mem.h"

struct kept {
	struct connection_record r; /* its strings are owned, but rule and protocol, which outlive the broker's work */
	char *host, *error;
};

struct tally {
	struct kept *kept[TALLY_MAX + 1]; /* the last one is for "(others)" */
	size_t count;
};

struct tally *tally_new(void)
{
	return xcalloc(1, sizeof(struct tally));
}

static void kept_free(struct kept *k)
{
	free(k->host);
	free(k->error);
	free(k);
}

void tally_free(struct tally *t)
{
	if (t == NULL)
		return;
	for (size_t i = 0; i < t->count; i++)
		kept_free(t->kept[i]);
	free(t);
}

static bool same(const struct connection_record *a, const struct connection_record *b)
{
	if (a->port != b->port || a->inbound != b->inbound || strcmp(a->host, b->host) != 0 ||
	    strcmp(a->protocol, b->protocol) != 0)
		return false;
	if (a->rule == NULL || b->rule == NULL)
		return a->rule == b->rule;
	return strcmp(a->rule, b->rule) == 0;
}

static struct kept *kept_new(const struct connection_record *r)
{
	struct kept *k = xcalloc(1, sizeof *k);

	k->host = xstrdup(r->host);
	k->error = r->error != NULL ? xstrdup(r->error) : NULL;
	k->r = (struct connection_record){
	    .host = k->host, .protocol = r->protocol, .rule = r->rule, .error = k->error, .port = r->port, .inbound = r->inbound};
	return k;
}

static struct kept *find(struct tally *t, const struct connection_record *r)
{
	for (size_t i = 0; i < t->count; i++) {
		if (same(&t->kept[i]->r, r))
			return t->kept[i];
	}
	return NULL;
}

static struct kept *place(struct tally *t, const struct connection_record *r)
{
	static const struct connection_record others = {.host = "(others)", .protocol = "tcp"};
	struct kept *k = find(t, r);

	if (k == NULL && t->count < TALLY_MAX)
		k = t->kept[t->count++] = kept_new(r);
	if (k == NULL && t->count == TALLY_MAX)
		t->kept[t->count++] = kept_new(&others);
	return k != NULL ? k : t->kept[TALLY_MAX];
}

void tally_add(struct tally *t, const struct connection_record *r)
{
	struct kept *k = place(t, r);

	k->r.sent += r->sent;
	k->r.received += r->received;
	k->r.usec += r->usec;
	k->r.requests += r->requests;
	k->r.count += r->count;
}

void tally_send(struct tally *t, bool (*send)(void *ctx, const struct connection_record *r), void *ctx)
{
	size_t sent = 0;

	while (sent < t->count && send(ctx, &t->kept[sent]->r))
		kept_free(t->kept[sent++]);
	memmove(t->kept, t->kept + sent, (t->count - sent) * sizeof(struct kept *));
	t->count -= sent;
}
