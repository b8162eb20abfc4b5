#include "egress/dns-channel.h"

#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { DNS_CLASS_IN = 1 };

/* One socket of c-ares that the loop watches. */
struct watch {
	LIST_ENTRY(watch) link;
	struct dns_channel *channel;
	struct event *event;
	int fd;
};

struct dns_channel {
	struct event_base *base;
	ares_channel ares;
	struct event *timer;
	LIST_HEAD(, watch) watches;
	struct host_dns_server servers[HOST_DNS_SERVERS_MAX];
	size_t server_count;
};

/* ---- Sockets: made by us so that each is non-blocking and close-on-exec from birth, and no write can raise SIGPIPE. ---- */

static ares_socket_t socket_open(int family, int type, int protocol, void *ctx)
{
	(void) ctx;
	return socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

static int socket_close(ares_socket_t fd, void *ctx)
{
	(void) ctx;
	return close(fd);
}

/* c-ares keeps no interface of a link-local server. */
static int socket_connect(ares_socket_t fd, const struct sockaddr *to, ares_socklen_t size, void *ctx)
{
	const struct dns_channel *c = ctx;
	struct sockaddr_in6 scoped;

	if (to->sa_family != AF_INET6 || size != sizeof scoped)
		return connect(fd, to, size);
	memcpy(&scoped, to, sizeof scoped);
	for (size_t i = 0; i < c->server_count && scoped.sin6_scope_id == 0; i++) {
		if (c->servers[i].address.family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&c->servers[i].address.v6, &scoped.sin6_addr))
			scoped.sin6_scope_id = c->servers[i].scope;
	}
	return connect(fd, (struct sockaddr *) &scoped, sizeof scoped);
}

static ares_ssize_t socket_receive(ares_socket_t fd, void *data, size_t size, int flags, struct sockaddr *from,
				   ares_socklen_t *from_size, void *ctx)
{
	(void) ctx;
	return recvfrom(fd, data, size, flags, from, from_size);
}

static ares_ssize_t socket_send(ares_socket_t fd, const struct iovec *parts, int count, void *ctx)
{
	struct iovec copy[8]; /* struct msghdr wants them writable; a longer queue goes in several calls */
	struct msghdr m = {.msg_iov = copy};

	(void) ctx;
	for (; m.msg_iovlen < ARRAY_SIZE(copy) && m.msg_iovlen < (size_t) count; m.msg_iovlen++)
		copy[m.msg_iovlen] = parts[m.msg_iovlen];
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- The loop. ---- */

static void set_timer(struct dns_channel *c)
{
	struct timeval tv, *next = ares_timeout(c->ares, NULL, &tv);

	if (next != NULL)
		(void) event_add(c->timer, next);
	else
		(void) event_del(c->timer);
}

static void timer_fired(evutil_socket_t fd, short what, void *ctx)
{
	struct dns_channel *c = ctx;

	(void) fd;
	(void) what;
	ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timer(c);
}

/* The watch may be freed by what c-ares does. */
static void socket_ready(evutil_socket_t fd, short what, void *ctx)
{
	struct dns_channel *c = ((struct watch *) ctx)->channel;

	ares_process_fd(c->ares, (what & EV_READ) != 0 ? fd : ARES_SOCKET_BAD, (what & EV_WRITE) != 0 ? fd : ARES_SOCKET_BAD);
	set_timer(c);
}

static void watch_free(struct watch *w)
{
	LIST_REMOVE(w, link);
	if (w->event != NULL)
		event_free(w->event);
	free(w);
}

static void socket_state(void *ctx, ares_socket_t fd, int readable, int writable)
{
	struct dns_channel *c = ctx;
	short wanted = (short) ((readable ? EV_READ : 0) | (writable ? EV_WRITE : 0));
	struct watch *w;

	LIST_FOREACH(w, &c->watches, link)
	{
		if (w->fd == fd)
			break;
	}
	if (w != NULL)
		watch_free(w);
	if (wanted == 0)
		return;
	w = xcalloc(1, sizeof *w);
	*w = (struct watch){.channel = c, .fd = fd};
	w->event = event_new(c->base, fd, (short) (wanted | EV_PERSIST), socket_ready, w);
	LIST_INSERT_HEAD(&c->watches, w, link);
	if (w->event == NULL || event_add(w->event, NULL) < 0)
		watch_free(w); /* no memory: the query's time will run out */
}

/* ---- Making. ---- */

static int set_servers(struct dns_channel *c, uint16_t port)
{
	struct ares_addr_port_node nodes[HOST_DNS_SERVERS_MAX] = {0};

	for (size_t i = 0; i < c->server_count; i++) {
		const struct net_address *a = &c->servers[i].address;

		nodes[i] = (struct ares_addr_port_node){.family = a->family, .udp_port = port, .tcp_port = port};
		if (i + 1 < c->server_count)
			nodes[i].next = &nodes[i + 1];
		if (a->family == AF_INET)
			nodes[i].addr.addr4 = a->v4;
		else
			memcpy(&nodes[i].addr.addr6, &a->v6, sizeof a->v6);
	}
	return ares_set_servers_ports(c->ares, nodes);
}

/* With every option set, c-ares has nothing to read from files or environment. */
static int init_ares(struct dns_channel *c, const struct host_dns *h, uint16_t port)
{
	struct in_addr any_server = {.s_addr = htonl(INADDR_LOOPBACK)}; /* replaced by set_servers */
	char lookups[] = "b";
	struct ares_options o = {
	    .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | (h->tcp ? ARES_FLAG_USEVC : 0),
	    .timeout = (int) h->timeout_seconds * 1000,
	    .tries = (int) h->tries,
	    .ndots = 1,
	    .servers = &any_server,
	    .nservers = 1,
	    .lookups = lookups,
	    .sock_state_cb = socket_state,
	    .sock_state_cb_data = c,
	};
	int r = ares_init_options(&c->ares, &o,
				  ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS | ARES_OPT_SERVERS |
				      ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS | ARES_OPT_SORTLIST | ARES_OPT_SOCK_STATE_CB |
				      (h->rotate ? ARES_OPT_ROTATE : ARES_OPT_NOROTATE));

	return r == ARES_SUCCESS ? set_servers(c, port) : r;
}

struct dns_channel *dns_channel_new(struct event_base *base, const struct host_dns *h, uint16_t port, struct zw_error *e)
{
	static const struct ares_socket_functions sockets = {socket_open, socket_close, socket_connect, socket_receive,
							     socket_send};
	struct dns_channel *c = xcalloc(1, sizeof *c);
	int r = ares_library_init(ARES_LIB_INIT_NONE);

	*c = (struct dns_channel){.base = base, .server_count = h->server_count};
	memcpy(c->servers, h->servers, sizeof c->servers);
	LIST_INIT(&c->watches);
	c->timer = evtimer_new(base, timer_fired, c);
	if (r == ARES_SUCCESS)
		r = c->timer != NULL ? init_ares(c, h, port) : ARES_ENOMEM;
	if (r != ARES_SUCCESS) {
		zw_error(e, EIO, "cannot set up the DNS client: %s", ares_strerror(r));
		dns_channel_free(c);
		return NULL;
	}
	ares_set_socket_functions(c->ares, &sockets, c);
	return c;
}

void dns_channel_free(struct dns_channel *c)
{
	if (c == NULL)
		return;
	if (c->ares != NULL)
		ares_destroy(c->ares);
	while (!LIST_EMPTY(&c->watches))
		watch_free(LIST_FIRST(&c->watches));
	if (c->timer != NULL)
		event_free(c->timer);
	ares_library_cleanup();
	free(c);
}

void dns_channel_query(struct dns_channel *c, const char *name, int type, ares_callback done, void *ctx)
{
	ares_query(c->ares, name, DNS_CLASS_IN, type, done, ctx);
	set_timer(c);
}
