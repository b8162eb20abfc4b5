#include "daemon/listen-address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/mem.h"
#include "policy/policy.h"
#include "policy/text.h"

enum { SOCKETS_MAX = 16 };

static int refuse(const char *text, struct zw_error *e)
{
	cleanup_free char *shown = text_quote(text);

	return zw_error(e, EINVAL, "--listen: expected HOST:PORT, [V6]:PORT, :PORT or unix:PATH, got %s", shown);
}

/* Host and port; brackets are taken away. */
static int split(const char *text, char **ret_host, uint16_t *ret_port)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon != NULL ? (size_t) (colon - text) : 0;
	uint64_t port;

	if (colon == NULL || parse_whole(colon + 1, &port) < 0 || port > UINT16_MAX)
		return -EINVAL;
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']')
		*ret_host = xstrndup(text + 1, n - 2);
	else if (n > 0 && memchr(text, ':', n) == NULL && memchr(text, '[', n) == NULL)
		*ret_host = xstrndup(text, n);
	else if (n == 0)
		*ret_host = NULL;
	else
		return -EINVAL;
	*ret_port = (uint16_t) port;
	return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *) a)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *) a)->sin6_addr);
}

static void add_socket(struct listen_address *a, const struct sockaddr *address, socklen_t size)
{
	struct listen_socket *s;

	if (a->socket_count == SOCKETS_MAX)
		return;
	for (size_t i = 0; i < a->socket_count; i++)
		if (a->sockets[i].size == size && memcmp(&a->sockets[i].address, address, size) == 0)
			return;
	a->sockets = xrealloc(a->sockets, a->socket_count + 1, sizeof *a->sockets);
	s = &a->sockets[a->socket_count++];
	*s = (struct listen_socket){.size = size, .loopback = is_loopback(address)};
	memcpy(&s->address, address, size);
}

static void add_every(struct listen_address *a)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(a->port)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};

	add_socket(a, (struct sockaddr *) &four, sizeof four);
	add_socket(a, (struct sockaddr *) &six, sizeof six);
}

static int look_up(struct listen_address *a, struct zw_error *e)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	char port[8];
	int r;

	(void) snprintf(port, sizeof port, "%u", (unsigned) a->port);
	r = getaddrinfo(a->host, port, &hints, &found);
	if (r != 0)
		return zw_error(e, ENOENT, "--listen %s: there is no such host: %s", a->text, gai_strerror(r));
	for (const struct addrinfo *i = found; i != NULL; i = i->ai_next)
		if (i->ai_family == AF_INET || i->ai_family == AF_INET6)
			add_socket(a, i->ai_addr, i->ai_addrlen);
	freeaddrinfo(found);
	return a->socket_count > 0 ? 0 : zw_error(e, ENOENT, "--listen %s: the host has no address", a->text);
}

int listen_address_parse(const char *text, struct listen_address *ret, struct zw_error *e)
{
	struct listen_address a = {.text = xstrdup(text)};
	int r = 0;

	if (strncmp(text, "unix:", 5) == 0) {
		if (text[5] == '\0' || strlen(text + 5) >= sizeof((struct sockaddr_un *) NULL)->sun_path)
			r = zw_error(e, EINVAL, "--listen: the path of a Unix socket has 1 to %zu bytes",
				     sizeof((struct sockaddr_un *) NULL)->sun_path - 1);
		a.unix_path = xstrdup(text + 5);
	} else if (split(text, &a.host, &a.port) < 0) {
		r = refuse(text, e);
	} else if (a.host == NULL) {
		add_every(&a);
	} else {
		r = look_up(&a, e);
	}
	if (r < 0)
		listen_address_done(&a);
	else
		*ret = a;
	return r;
}

void listen_address_done(struct listen_address *a)
{
	free(a->text);
	free(a->unix_path);
	free(a->host);
	free(a->sockets);
	*a = (struct listen_address){0};
}

bool listen_address_is_local(const struct listen_address *a)
{
	for (size_t i = 0; i < a->socket_count; i++)
		if (!a->sockets[i].loopback)
			return false;
	return true;
}

const char *address_text(const struct sockaddr_storage *address, char buf[ADDRESS_TEXT_SIZE], uint16_t *ret_port)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *) address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *) address;
	uint16_t port = 0;

	buf[0] = '\0';
	if (address->ss_family == AF_INET) {
		(void) inet_ntop(AF_INET, &four->sin_addr, buf, ADDRESS_TEXT_SIZE);
		port = ntohs(four->sin_port);
	} else if (address->ss_family == AF_INET6) {
		if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
			(void) inet_ntop(AF_INET, &six->sin6_addr.s6_addr[12], buf, ADDRESS_TEXT_SIZE);
		else
			(void) inet_ntop(AF_INET6, &six->sin6_addr, buf, ADDRESS_TEXT_SIZE);
		port = ntohs(six->sin6_port);
	}
	if (ret_port != NULL)
		*ret_port = port;
	return buf;
}

const char *address_and_port(const struct sockaddr_storage *address, char buf[ADDRESS_TEXT_SIZE])
{
	char host[ADDRESS_TEXT_SIZE];
	uint16_t port;

	(void) address_text(address, host, &port);
	(void) snprintf(buf, ADDRESS_TEXT_SIZE, strchr(host, ':') != NULL ? "[%.48s]:%u" : "%.48s:%u", host, (unsigned) port);
	return buf;
}
