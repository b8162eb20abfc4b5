#include "egress/refusals.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* A name from a query, a request target: they come from inside and may be of any length. */
enum { HOST_MAX = 255, METHOD_MAX = 31, PATH_MAX_KEPT = 1024, WHY_MAX_KEPT = 400 };

struct kept {
	struct refusal r; /* its strings are those below */
	char kind[16];
	char *host, *method, *path, *why; /* NULL where the refusal has none */
	struct net_address address;
	uint64_t count;
};

struct refusals {
	struct kept *kept[REFUSALS_MAX + 1]; /* the last one is for "(others)" */
	size_t count;
	struct event *due;
	bool (*send)(void *ctx, const struct refusal *r, uint64_t count);
	void *ctx;
};

static void due(evutil_socket_t fd, short what, void *ctx)
{
	(void) fd, (void) what;
	refusals_send(ctx);
}

struct refusals *refusals_new(struct event_base *base, bool (*send)(void *ctx, const struct refusal *r, uint64_t count),
			      void *ctx)
{
	struct refusals *t = xcalloc(1, sizeof *t);

	t->send = send;
	t->ctx = ctx;
	t->due = evtimer_new(base, due, t);
	return t;
}

static void kept_free(struct kept *k)
{
	free(k->host);
	free(k->method);
	free(k->path);
	free(k->why);
	free(k);
}

void refusals_free(struct refusals *t)
{
	if (t == NULL)
		return;
	for (size_t i = 0; i < t->count; i++)
		kept_free(t->kept[i]);
	if (t->due != NULL)
		event_free(t->due);
	free(t);
}

static char *copy(const char *s, size_t max)
{
	return s != NULL ? xstrndup(s, max) : NULL;
}

static struct kept *kept_new(const struct refusal *r)
{
	struct kept *k = xcalloc(1, sizeof *k);

	(void) snprintf(k->kind, sizeof k->kind, "%s", r->kind);
	k->host = copy(r->host, HOST_MAX);
	k->method = copy(r->method, METHOD_MAX);
	k->path = copy(r->path, PATH_MAX_KEPT);
	k->why = copy(r->why, WHY_MAX_KEPT);
	if (r->address != NULL)
		k->address = *r->address;
	k->r = (struct refusal){.kind = k->kind,
				.host = k->host,
				.port = r->port,
				.address = r->address != NULL ? &k->address : NULL,
				.method = k->method,
				.path = k->path,
				.rule = r->rule,
				.why = k->why};
	return k;
}

static bool same_text(const char *kept, const char *given, size_t max)
{
	if (kept == NULL || given == NULL)
		return kept == given;
	return strncmp(kept, given, max) == 0;
}

static bool same(const struct kept *k, const struct refusal *r)
{
	return k->r.port == r->port && strcmp(k->kind, r->kind) == 0 && same_text(k->host, r->host, HOST_MAX) &&
	       same_text(k->method, r->method, METHOD_MAX) && same_text(k->path, r->path, PATH_MAX_KEPT) &&
	       same_text(k->why, r->why, WHY_MAX_KEPT);
}

static struct kept *find(struct refusals *t, const struct refusal *r)
{
	for (size_t i = 0; i < t->count; i++) {
		if (same(t->kept[i], r))
			return t->kept[i];
	}
	return NULL;
}

static struct kept *add_others(struct refusals *t, const struct refusal *r)
{
	static const char why[] = "more different refusals within a short time than are told apart";
	const struct refusal others = {.kind = r->kind, .host = "(others)", .rule = -1, .why = why};
	struct kept *k = find(t, &others);

	if (k != NULL)
		return k;
	if (t->count == ARRAY_SIZE(t->kept))
		return t->kept[t->count - 1]; /* of another kind: better counted there than not at all */
	return t->kept[t->count++] = kept_new(&others);
}

void refusals_add(struct refusals *t, const struct refusal *r)
{
	static const struct timeval interval = {.tv_usec = REFUSALS_INTERVAL_USEC};
	struct kept *k = find(t, r);

	if (k == NULL)
		k = t->count < REFUSALS_MAX ? (t->kept[t->count++] = kept_new(r)) : add_others(t, r);
	k->count++;
	if (!evtimer_pending(t->due, NULL))
		(void) evtimer_add(t->due, &interval);
}

void refusals_send(struct refusals *t)
{
	size_t left = 0;

	(void) evtimer_del(t->due);
	for (size_t i = 0; i < t->count; i++) {
		struct kept *k = t->kept[i];

		if (t->send(t->ctx, &k->r, k->count))
			kept_free(k);
		else
			t->kept[left++] = k;
	}
	t->count = left;
}
