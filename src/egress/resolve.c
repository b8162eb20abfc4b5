/* A look-up is two queries, for A and AAAA, and the waiters that joined it. Its life:
 *
 *     asked     waiters join. Ends when both queries have ended, or one family had addresses for RESOLVE_FAMILY_WAIT_MSEC, or
 * patience is over: the `settle` event, in whose callback all waiters are told told      nobody joins any more; it lives on while
 * a query is under way, for the cache only finished  both queries have ended and the waiters were told: what was found goes to
 * the cache, and the look-up is freed
 *
 * What is known already (hosts, cache) takes the same way with no queries, so that nobody is ever told from within resolve_start.
 */
#include "egress/resolve.h"

#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "base/mem.h"
#include "egress/dns-channel.h"
#include "egress/host-dns.h"
#include "egress/query.h"

enum { FAMILY_MAX = RESOLVE_ADDRESSES_MAX / 2 };

struct addresses {
	struct net_address list[RESOLVE_ADDRESSES_MAX];
	size_t count;
};

/* One of the two queries. */
struct part {
	struct lookup *lookup;
	bool ended;
	int status; /* of c-ares, when ended */
	struct net_address list[FAMILY_MAX];
	size_t count;
	usec_t expires; /* of what is in the list */
};

struct resolve {
	TAILQ_ENTRY(resolve) link;
	struct lookup *lookup;
	resolve_done done;
	void *ctx;
};

struct lookup {
	LIST_ENTRY(lookup) link;
	struct resolver *resolver;
	char name[NETWORK_NAME_SIZE];
	struct part v6, v4;
	struct addresses known; /* from hosts or cache: no queries */
	const char *error;      /* no queries, for this reason */
	struct event *settle;
	bool told, telling;
	TAILQ_HEAD(waiters, resolve) waiters;
};

struct cached {
	char name[NETWORK_NAME_SIZE];
	usec_t expires;
	struct addresses addresses;
};

struct resolver {
	struct broker *broker;
	struct host_dns host;
	struct dns_channel *channel;
	LIST_HEAD(, lookup) lookups;
	size_t lookup_count;
	struct cached *cache[RESOLVE_CACHE_MAX];
	size_t cached;
};

/* ---- Addresses. ---- */

static void add_address(struct addresses *to, const struct net_address *a)
{
	for (size_t i = 0; i < to->count; i++) {
		if (network_address_equal(&to->list[i], a))
			return;
	}
	if (to->count < RESOLVE_ADDRESSES_MAX)
		to->list[to->count++] = *a;
}

/* IPv6 first and in turns, as RFC 8305 (4) has it: a host without a route for one family finds out at once. */
static struct addresses merge(const struct part *v6, const struct part *v4)
{
	struct addresses all = {.count = 0};

	for (size_t i = 0; i < FAMILY_MAX; i++) {
		if (i < v6->count)
			add_address(&all, &v6->list[i]);
		if (i < v4->count)
			add_address(&all, &v4->list[i]);
	}
	return all;
}

/* ---- Cache. ---- */

static void cache_remove(struct resolver *r, size_t i)
{
	free(r->cache[i]);
	r->cache[i] = r->cache[--r->cached];
}

static const struct cached *cache_find(struct resolver *r, const char *name)
{
	for (size_t i = 0; i < r->cached; i++) {
		if (strcmp(r->cache[i]->name, name) != 0)
			continue;
		if (r->cache[i]->expires > now_monotonic())
			return r->cache[i];
		cache_remove(r, i);
		return NULL;
	}
	return NULL;
}

static void cache_make_room(struct resolver *r)
{
	size_t first = 0;

	if (r->cached < RESOLVE_CACHE_MAX)
		return;
	for (size_t i = 1; i < r->cached; i++) {
		if (r->cache[i]->expires < r->cache[first]->expires)
			first = i;
	}
	cache_remove(r, first);
}

static bool has_answer(const struct part *p)
{
	return p->ended && (p->status == ARES_SUCCESS || p->status == ARES_ENODATA);
}

/* Only what both queries have answered: half of it could be the half that this host cannot reach. */
static void cache_add(struct lookup *l)
{
	struct resolver *r = l->resolver;
	usec_t v6 = l->v6.count > 0 ? l->v6.expires : UINT64_MAX, v4 = l->v4.count > 0 ? l->v4.expires : UINT64_MAX;
	usec_t expires = v6 < v4 ? v6 : v4;
	struct cached *c;

	if (!has_answer(&l->v6) || !has_answer(&l->v4) || l->v6.count + l->v4.count == 0)
		return;
	if (expires <= now_monotonic() || cache_find(r, l->name) != NULL)
		return;
	cache_make_room(r);
	c = xcalloc(1, sizeof *c);
	memcpy(c->name, l->name, sizeof c->name);
	c->expires = expires;
	c->addresses = merge(&l->v6, &l->v4);
	r->cache[r->cached++] = c;
}

/* ---- Look-ups. ---- */

static void lookup_free(struct lookup *l)
{
	LIST_REMOVE(l, link);
	l->resolver->lookup_count--;
	event_free(l->settle);
	free(l);
}

static void finish_if_over(struct lookup *l)
{
	if (!l->told || l->telling || !l->v6.ended || !l->v4.ended)
		return;
	cache_add(l);
	lookup_free(l);
}

/* What to say when there is no address at all. */
static const char *why_none(const struct lookup *l)
{
	const int of[] = {l->v4.status, l->v6.status};

	if (l->error != NULL)
		return l->error;
	if (of[0] == ARES_ENOTFOUND || of[1] == ARES_ENOTFOUND)
		return "no such name";
	if (!l->v4.ended || !l->v6.ended || of[0] == ARES_ETIMEOUT || of[1] == ARES_ETIMEOUT)
		return "the name servers do not answer";
	if (has_answer(&l->v4) && has_answer(&l->v6))
		return "the name has no address";
	return "no name server could answer"; /* c-ares does not tell SERVFAIL of all from a port that nobody listens at */
}

static void tell(struct lookup *l)
{
	struct addresses all = l->known.count > 0 ? l->known : merge(&l->v6, &l->v4);
	const char *error = all.count > 0 ? NULL : why_none(l);
	struct resolve *q;

	l->told = true;
	l->telling = true;
	while ((q = TAILQ_FIRST(&l->waiters)) != NULL) {
		const struct resolve told = *q;

		resolve_cancel(q);
		told.done(told.ctx, all.list, all.count, error);
	}
	l->telling = false;
	finish_if_over(l);
}

static void settle(evutil_socket_t fd, short what, void *ctx)
{
	(void) fd;
	(void) what;
	tell(ctx);
}

/* A query that ended may decide the look-up. */
static void consider(struct lookup *l)
{
	const struct timeval wait = {.tv_usec = RESOLVE_FAMILY_WAIT_MSEC * 1000};

	if (l->told)
		finish_if_over(l);
	else if (l->v6.ended && l->v4.ended)
		event_active(l->settle, EV_TIMEOUT, 0);
	else if (l->v6.count + l->v4.count > 0)
		(void) event_add(l->settle, &wait);
}

/* The records of one reply, in the form in which they are judged and dialled; v4-mapped ones become IPv4. */
static int read_v4(struct part *p, const unsigned char *reply, int size)
{
	struct ares_addrttl found[FAMILY_MAX];
	int count = FAMILY_MAX, r = ares_parse_a_reply(reply, size, NULL, found, &count), ttl = RESOLVE_TTL_MAX;

	for (int i = 0; r == ARES_SUCCESS && i < count; i++) {
		p->list[p->count++] = (struct net_address){.family = AF_INET, .v4 = found[i].ipaddr};
		ttl = found[i].ttl < ttl ? found[i].ttl : ttl;
	}
	p->expires = now_monotonic() + (usec_t) (ttl > 0 ? ttl : 0) * USEC_PER_SEC;
	return r;
}

static int read_v6(struct part *p, const unsigned char *reply, int size)
{
	struct ares_addr6ttl found[FAMILY_MAX];
	int count = FAMILY_MAX, r = ares_parse_aaaa_reply(reply, size, NULL, found, &count), ttl = RESOLVE_TTL_MAX;

	for (int i = 0; r == ARES_SUCCESS && i < count; i++) {
		struct sockaddr_in6 sa = {.sin6_family = AF_INET6};
		uint16_t port;

		memcpy(&sa.sin6_addr, &found[i].ip6addr, sizeof sa.sin6_addr);
		network_address_from((struct sockaddr *) &sa, &p->list[p->count++], &port);
		ttl = found[i].ttl < ttl ? found[i].ttl : ttl;
	}
	p->expires = now_monotonic() + (usec_t) (ttl > 0 ? ttl : 0) * USEC_PER_SEC;
	return r;
}

static void answered(void *ctx, int status, int timeouts, unsigned char *reply, int size)
{
	struct part *p = ctx;
	struct lookup *l = p->lookup;

	(void) timeouts;
	if (status == ARES_SUCCESS)
		status = p == &l->v4 ? read_v4(p, reply, size) : read_v6(p, reply, size);
	p->status = status;
	p->ended = true;
	if (status == ARES_EDESTRUCTION) /* resolver_free, which frees the look-ups itself */
		return;
	consider(l);
}

static struct lookup *lookup_new(struct resolver *r, const char *name)
{
	const struct timeval patience = {.tv_sec = RESOLVE_PATIENCE_SECONDS};
	struct lookup *l = xcalloc(1, sizeof *l);

	l->resolver = r;
	(void) snprintf(l->name, sizeof l->name, "%s", name); /* canonical, so it fits */
	l->v6.lookup = l->v4.lookup = l;
	TAILQ_INIT(&l->waiters);
	LIST_INSERT_HEAD(&r->lookups, l, link);
	r->lookup_count++;
	l->settle = evtimer_new(r->broker->base, settle, l);
	if (l->settle == NULL || event_add(l->settle, &patience) < 0)
		abort(); /* memory */
	return l;
}

static struct addresses known_addresses(struct resolver *r, const char *name)
{
	struct addresses known = {.count = 0};
	const struct cached *c;

	for (size_t i = 0; i < r->host.entry_count; i++) {
		if (strcmp(r->host.entries[i].name, name) == 0)
			add_address(&known, &r->host.entries[i].address);
	}
	if (known.count > 0)
		return known;
	c = cache_find(r, name);
	return c != NULL ? c->addresses : known;
}

/* The look-up that the caller may join: one under way, or a new one. */
static struct lookup *lookup_for(struct resolver *r, const char *name)
{
	bool full = r->lookup_count >= RESOLVE_LOOKUPS_MAX;
	struct lookup *l;

	LIST_FOREACH(l, &r->lookups, link)
	{
		if (!l->told && strcmp(l->name, name) == 0)
			return l;
	}
	l = lookup_new(r, name);
	l->known = known_addresses(r, name);
	if (l->known.count == 0 && full)
		l->error = "too many look-ups are under way";
	if (l->known.count > 0 || l->error != NULL) {
		l->v6.ended = l->v4.ended = true;
		l->v6.status = l->v4.status = ARES_ECANCELLED; /* nothing for the cache */
		event_active(l->settle, EV_TIMEOUT, 0);
		return l;
	}
	dns_channel_query(r->channel, name, QUERY_AAAA, answered, &l->v6);
	dns_channel_query(r->channel, name, QUERY_A, answered, &l->v4);
	return l;
}

struct resolve *resolve_start(struct resolver *r, const char *name, resolve_done done, void *ctx)
{
	struct resolve *q = xcalloc(1, sizeof *q);

	*q = (struct resolve){.lookup = lookup_for(r, name), .done = done, .ctx = ctx};
	TAILQ_INSERT_TAIL(&q->lookup->waiters, q, link);
	return q;
}

void resolve_cancel(struct resolve *q)
{
	TAILQ_REMOVE(&q->lookup->waiters, q, link);
	free(q);
}

/* ---- The resolver. ---- */

struct resolver *resolver_new(struct broker *b, struct zw_error *e)
{
	const struct resolver_files files = {"/etc/resolv.conf", "/etc/hosts", 0};

	return resolver_new_with(b, &files, e);
}

struct resolver *resolver_new_with(struct broker *b, const struct resolver_files *files, struct zw_error *e)
{
	struct resolver *r = xcalloc(1, sizeof *r);

	r->broker = b;
	LIST_INIT(&r->lookups);
	if (host_dns_read(files->resolv_conf, files->hosts, b->network, &r->host, e) == 0)
		r->channel = dns_channel_new(b->base, &r->host, files->port != 0 ? files->port : 53, e);
	if (r->channel == NULL) {
		resolver_free(r);
		return NULL;
	}
	return r;
}

static void drop_waiters(struct lookup *l)
{
	while (!TAILQ_EMPTY(&l->waiters))
		resolve_cancel(TAILQ_FIRST(&l->waiters));
}

void resolver_free(struct resolver *r)
{
	if (r == NULL)
		return;
	dns_channel_free(r->channel);
	while (!LIST_EMPTY(&r->lookups)) {
		drop_waiters(LIST_FIRST(&r->lookups));
		lookup_free(LIST_FIRST(&r->lookups));
	}
	while (r->cached > 0)
		cache_remove(r, r->cached - 1);
	host_dns_done(&r->host);
	free(r);
}
