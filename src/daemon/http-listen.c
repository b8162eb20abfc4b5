#include "daemon/http-listen.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/http.h"
#include "daemon/metrics.h"

enum { LISTENERS_MAX = 64, BACKLOG = 1024, ACCEPT_AT_ONCE = 64, REST_MSEC = 100 };

struct http_listener {
	struct http_listeners *all;
	int fd;
	struct event *event, *rested;
	bool tls, owner, local;
	struct sockaddr_storage address;
	char text[160];
	char *path; /* of a Unix socket, to be removed; NULL: none */
	int dirfd;  /* that `path` is relative to */
};

struct http_listeners {
	struct http_server *server;
	struct http_listener *items[LISTENERS_MAX];
	size_t count;
	SSL_CTX *tls;
	int spare; /* given up for a moment when there are no descriptors left */
};

struct http_listeners *http_listeners_new(struct http_server *s)
{
	struct http_listeners *l = xcalloc(1, sizeof *l);

	*l = (struct http_listeners){.server = s, .spare = open("/dev/null", O_RDONLY | O_CLOEXEC)};
	return l;
}

static void listener_free(struct http_listener *i)
{
	if (i->event != NULL)
		event_free(i->event);
	if (i->rested != NULL)
		event_free(i->rested);
	fd_close(&i->fd);
	if (i->path != NULL)
		(void) unlinkat(i->dirfd, i->path, 0);
	free(i->path);
	free(i);
}

struct http_listeners *http_listeners_free(struct http_listeners *l)
{
	if (l == NULL)
		return NULL;
	for (size_t i = 0; i < l->count; i++)
		listener_free(l->items[i]);
	SSL_CTX_free(l->tls);
	fd_close(&l->spare);
	free(l);
	return NULL;
}

void http_listeners_set_tls(struct http_listeners *l, SSL_CTX *context)
{
	if (context != NULL)
		(void) SSL_CTX_up_ref(context);
	SSL_CTX_free(l->tls);
	l->tls = context;
}

const char *http_listening(const struct http_listeners *l, size_t index, const struct sockaddr_storage **ret_address)
{
	if (index >= l->count)
		return NULL;
	if (ret_address != NULL)
		*ret_address = l->items[index]->local ? NULL : &l->items[index]->address;
	return l->items[index]->text;
}

/* ---- Accepting. ---- */

static void describe_peer(const struct http_listener *i, int fd, const struct sockaddr_storage *from, struct http_peer *ret)
{
	struct sockaddr_storage here = {0};
	struct ucred who = {.uid = (uid_t) -1};
	socklen_t size = sizeof who;

	*ret = (struct http_peer){.local = i->local, .tls = i->tls};
	if (i->local) {
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
			who.uid = (uid_t) -1;
		ret->owner = i->owner && who.uid == geteuid();
		(void) snprintf(ret->text, sizeof ret->text, "unix:uid=%d", (int) who.uid);
		return;
	}
	size = sizeof here;
	if (getsockname(fd, (struct sockaddr *) &here, &size) == 0)
		(void) address_text(&here, ret->here, NULL);
	(void) address_and_port(from, ret->text);
}

static struct bufferevent *make_bufferevent(const struct http_listener *i, int fd)
{
	const int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
	struct event_base *base = i->all->server->base;
	struct bufferevent *bev;
	SSL *ssl;

	if (!i->tls)
		return bufferevent_socket_new(base, fd, options);
	ssl = i->all->tls != NULL ? SSL_new(i->all->tls) : NULL;
	if (ssl == NULL)
		return NULL;
	bev = bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, options);
	if (bev == NULL)
		SSL_free(ssl);
	else
		bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	return bev;
}

static void count_refused(struct http_listener *i, const char *reason)
{
	metrics_add(i->all->server->daemon->metrics, METRIC_HTTP_CONNECTIONS_REFUSED, METRIC_LABELS(reason), 1);
}

/* One answer without having read anything, and the end. A client that is still writing may see a reset instead. */
static void turn_away(struct http_listener *i, int fd, const char *reason, const char *message)
{
	cleanup_free char *answer = i->tls ? NULL : answer_refusal(i->all->server, 503, message);

	count_refused(i, reason);
	if (answer != NULL)
		(void) send(fd, answer, strlen(answer), MSG_DONTWAIT | MSG_NOSIGNAL); /* an empty socket takes it whole */
	(void) shutdown(fd, SHUT_WR);
	(void) close(fd);
}

static void welcome(struct http_listener *i, int fd, const struct sockaddr_storage *from)
{
	struct http_server *s = i->all->server;
	struct bufferevent *bev;
	struct http_peer peer;
	const int on = 1;

	if (s->count >= s->limits.connections_max && !http_make_room(s)) {
		turn_away(i, fd, "connections", "there are too many connections");
		return;
	}
	describe_peer(i, fd, from, &peer);
	if (!i->local)
		(void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* only slower without */
	bev = make_bufferevent(i, fd);
	if (bev == NULL)
		turn_away(i, fd, "memory", "there is not enough memory");
	else
		(void) http_conn_new(s, bev, &peer); /* closes it when it fails */
}

/* No descriptor is left for us: with the spare one the peer learns why. */
static bool accept_with_spare(struct http_listener *i)
{
	int fd;

	if (http_make_room(i->all->server) || i->all->spare < 0)
		return false;
	fd_close(&i->all->spare);
	fd = accept4(i->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		turn_away(i, fd, "descriptors", "the server has no descriptor left");
	i->all->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

static void on_rested(evutil_socket_t fd, short what, void *arg)
{
	struct http_listener *i = arg;

	(void) fd;
	(void) what;
	(void) event_add(i->event, NULL); /* it was added before */
}

/* Nothing tells when the system has room again. */
static void rest(struct http_listener *i)
{
	static const struct timeval a_while = {.tv_usec = REST_MSEC * 1000};

	(void) event_del(i->event);
	(void) event_add(i->rested, &a_while);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct http_listener *i = arg;

	(void) what;
	for (unsigned n = 0; n < ACCEPT_AT_ONCE; n++) {
		struct sockaddr_storage from = {0};
		socklen_t size = sizeof from;
		int peer = accept4(fd, (struct sockaddr *) &from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (peer >= 0) {
			welcome(i, peer, &from);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno == EMFILE && accept_with_spare(i))
			continue;
		if (errno != EAGAIN)
			rest(i);
		return;
	}
}

int http_listeners_start(struct http_listeners *l, struct zw_error *e)
{
	for (size_t i = 0; i < l->count; i++) {
		struct http_listener *one = l->items[i];

		one->event = event_new(l->server->base, one->fd, EV_READ | EV_PERSIST, on_accept, one);
		one->rested = event_new(l->server->base, -1, 0, on_rested, one);
		if (one->event == NULL || one->rested == NULL || event_add(one->event, NULL) < 0)
			return zw_error(e, ENOMEM, "there is not enough memory to listen");
	}
	return 0;
}

/* ---- Listening. ---- */

static struct http_listener *add(struct http_listeners *l, int fd, const char *text)
{
	struct http_listener *i = xcalloc(1, sizeof *i);

	*i = (struct http_listener){.all = l, .fd = fd, .dirfd = AT_FDCWD};
	(void) snprintf(i->text, sizeof i->text, "%s", text);
	l->items[l->count++] = i;
	return i;
}

static int full(struct zw_error *e)
{
	return zw_error(e, EINVAL, "the daemon listens at %d addresses at most", LISTENERS_MAX);
}

static void set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *) a)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *) a)->sin6_port = htons(port);
}

static int bind_tcp(struct http_listeners *l, const struct listen_socket *at, uint16_t port, bool tls, struct zw_error *e)
{
	struct sockaddr_storage address = at->address;
	cleanup_fd int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char text[ADDRESS_TEXT_SIZE];
	socklen_t size = sizeof address;
	struct http_listener *i;
	const int on = 1;

	set_port(&address, port);
	(void) address_and_port(&address, text);
	if (fd < 0)
		return zw_errno(e, errno, "cannot make a socket for %s", text);
	(void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* then a restart has to wait */
	if (address.ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0)
		return zw_errno(e, errno, "cannot keep %s to IPv6", text);
	if (bind(fd, (struct sockaddr *) &address, at->size) < 0 || listen(fd, BACKLOG) < 0)
		return zw_errno(e, errno, "cannot listen at %s", text);
	if (getsockname(fd, (struct sockaddr *) &address, &size) < 0)
		return zw_errno(e, errno, "cannot tell where %s listens", text);
	i = add(l, take_fd(&fd), address_and_port(&address, text));
	i->address = address;
	i->tls = tls;
	return 0;
}

static int listen_tcp(struct http_listeners *l, const struct listen_address *a, bool tls, struct zw_error *e)
{
	struct zw_error last = {0};
	uint16_t port = a->port;
	size_t before = l->count;

	for (size_t i = 0; i < a->socket_count && l->count < LISTENERS_MAX; i++) {
		int r = bind_tcp(l, &a->sockets[i], port, tls, &last);

		/* Of several addresses some may not be there; one that is taken is another matter. */
		if (r < 0 && r != -EADDRNOTAVAIL && r != -EAFNOSUPPORT)
			return zw_error(e, -r, "%s", last.text);
		if (r == 0 && port == 0)
			(void) address_text(&l->items[before]->address, (char[ADDRESS_TEXT_SIZE]){0}, &port);
	}
	return l->count > before ? 0 : zw_error(e, -last.code, "%s", last.text);
}

/* A socket that nobody listens at is what a killed daemon has left. */
static int remove_dead(const char *path, const struct sockaddr_un *address)
{
	cleanup_fd int fd = -EBADF;
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return 0; /* bind says what is wrong */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *) address, sizeof *address) == 0 || errno != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

static int bind_unix(const char *path, const char *shown, struct zw_error *e)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof address.sun_path)
		return zw_error(e, ENAMETOOLONG, "cannot listen at unix:%s: the path is too long", shown);
	memcpy(address.sun_path, path, strlen(path));
	if (fd < 0)
		return zw_errno(e, errno, "cannot make a Unix socket");
	/* The mode of the socket's own inode is the one that the name gets. */
	if (fchmod(fd, 0600) < 0)
		return zw_errno(e, errno, "cannot keep the socket unix:%s to ourselves", shown);
	if (bind(fd, (struct sockaddr *) &address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
		return zw_errno(e, errno, "cannot listen at unix:%s", shown);
	return take_fd(&fd);
}

static int listen_unix(struct http_listeners *l, const char *path, struct zw_error *e)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_free char *text = xasprintf("unix:%s", path);
	struct http_listener *i;
	int r;

	memcpy(address.sun_path, path, strlen(path)); /* its length was checked when it was read */
	r = remove_dead(path, &address);
	if (r < 0)
		return zw_errno(e, -r, "cannot listen at %s", text);
	r = bind_unix(path, path, e);
	if (r < 0)
		return r;
	i = add(l, r, text);
	i->local = true;
	i->path = xstrdup(path);
	return 0;
}

int http_listen(struct http_listeners *l, const struct listen_address *a, bool tls, struct zw_error *e)
{
	if (l->count == LISTENERS_MAX)
		return full(e);
	return a->unix_path != NULL ? listen_unix(l, a->unix_path, e) : listen_tcp(l, a, tls, e);
}

int http_listen_owner(struct http_listeners *l, int dirfd, const char *name, struct zw_error *e)
{
	/* By way of the descriptor, so that a long path is no obstacle. */
	cleanup_free char *path = xasprintf("/proc/self/fd/%d/%s", dirfd, name);
	struct http_listener *i;
	int fd;

	if (l->count == LISTENERS_MAX)
		return full(e);
	(void) unlinkat(dirfd, name, 0); /* we have the lock: it is nobody's */
	fd = bind_unix(path, name, e);
	if (fd < 0)
		return fd;
	i = add(l, fd, name);
	i->local = i->owner = true;
	i->path = xstrdup(name);
	i->dirfd = dirfd;
	return 0;
}
