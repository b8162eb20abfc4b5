#include "egress/http-side.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "egress/tls.h"

enum {
	READ_AT_ONCE = 64 * 1024,
	WRITE_AT_ONCE = 16 * 1024, /* one record of TLS */
	WRITE_LOW = 16 * 1024,     /* output below this asks for more */
};

struct evbuffer *side_input(const struct side *side)
{
	return bufferevent_get_input(side->bev);
}

struct evbuffer *side_output(const struct side *side)
{
	return side->out;
}

size_t side_unsent(const struct side *side)
{
	return evbuffer_get_length(side->out) + evbuffer_get_length(bufferevent_get_output(side->bev));
}

void side_free(struct side *side, bool reset)
{
	static const struct linger now = {.l_onoff = 1};

	if (side->bev == NULL)
		return;
	if (reset)
		(void) setsockopt(bufferevent_getfd(side->bev), SOL_SOCKET, SO_LINGER, &now, sizeof now);
	bufferevent_free(side->bev);
	evbuffer_free(side->out);
	*side = (struct side){0};
}

/* Writes what is little at once instead of waiting for the socket to be reported writable, which it nearly always is. A record of
 * TLS that was begun in vain lies in `out` in one piece, and is what libevent begins with when it tries again, as SSL_write(3)
 * demands. */
static bool write_now(struct side *side)
{
	size_t size = evbuffer_get_length(side->out);
	SSL *ssl = bufferevent_openssl_get_ssl(side->bev);
	int n;

	if (!side->connected || side->deaf || size > WRITE_AT_ONCE || evbuffer_get_length(bufferevent_get_output(side->bev)) > 0)
		return false;
	if (ssl == NULL)
		return evbuffer_write(side->out, bufferevent_getfd(side->bev)) > 0;
	ERR_clear_error();
	n = SSL_write(ssl, evbuffer_pullup(side->out, -1), (int) size);
	ERR_clear_error();
	if (n > 0)
		(void) evbuffer_drain(side->out, (size_t) n);
	return n > 0;
}

bool side_flush(struct side *side)
{
	bool went;

	if (side->bev == NULL || evbuffer_get_length(side->out) == 0)
		return false;
	went = write_now(side);
	if (evbuffer_get_length(side->out) > 0)
		(void) evbuffer_add_buffer(bufferevent_get_output(side->bev), side->out); /* faults are met and told there */
	return went;
}

/* OpenSSL makes a buffer to write from when it reads a session ticket, and keeps it until something has been written, whatever
 * SSL_MODE_RELEASE_BUFFERS says. Not behind the header of a record (state "RB"): what has come of that would be lost, and some
 * versions would use it nevertheless (CVE-2024-4741). */
void side_rest(const struct side *side)
{
	SSL *ssl = side->bev != NULL ? bufferevent_openssl_get_ssl(side->bev) : NULL;

	if (ssl != NULL && strcmp(SSL_rstate_string(ssl), "RH") == 0)
		(void) SSL_free_buffers(ssl);
}

void side_shut(struct side *side, bool ragged)
{
	SSL *ssl = bufferevent_openssl_get_ssl(side->bev);

	if (side->shut)
		return;
	side->shut = true;
	if (ssl != NULL && side->connected && !side->failed && !ragged) {
		ERR_clear_error();
		(void) SSL_shutdown(ssl); /* a peer that is gone does not miss it */
		ERR_clear_error();
	}
	(void) shutdown(bufferevent_getfd(side->bev), SHUT_WR);
}

void side_set_up(struct side *side, bufferevent_data_cb data, bufferevent_event_cb event, void *ctx)
{
	static const int yes = 1;

	side->out = evbuffer_new();
	/* Heads and small bodies go at once; where that is not TCP (in tests) it does not matter. */
	(void) setsockopt(bufferevent_getfd(side->bev), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	bufferevent_setcb(side->bev, data, data, event, ctx);
	bufferevent_setwatermark(side->bev, EV_READ, 0, HTTP_BUFFER_MAX);
	bufferevent_setwatermark(side->bev, EV_WRITE, WRITE_LOW, 0);
	(void) bufferevent_enable(side->bev, EV_READ | EV_WRITE);
}

void side_note(struct side *side, short what)
{
	if ((what & BEV_EVENT_CONNECTED) != 0)
		side->connected = true;
	if ((what & BEV_EVENT_EOF) != 0)
		side->ended = true;
	if ((what & BEV_EVENT_ERROR) == 0)
		return;
	if (side->connected && bufferevent_openssl_get_ssl(side->bev) != NULL && tls_was_closed(side->bev)) {
		side->ended = side->ragged = side->deaf = true;
		return;
	}
	/* Who takes no more may have said why before: what it sent is still read, where libevent goes on reading. */
	if ((what & BEV_EVENT_WRITING) != 0 && side->connected && bufferevent_openssl_get_ssl(side->bev) == NULL)
		side->deaf = true;
	else
		side->ended = side->failed = side->deaf = true;
}

/* A full side is not read from. libevent stops at the watermark by itself, but calls back again and again as long as the input
 * stays above it. */
void side_hold(struct side *side)
{
	bool full;

	if (side->bev == NULL || side->ended)
		return;
	full = evbuffer_get_length(side_input(side)) >= HTTP_BUFFER_MAX;
	if (full && !side->held)
		(void) bufferevent_disable(side->bev, EV_READ);
	else if (!full && side->held)
		(void) bufferevent_enable(side->bev, EV_READ);
	side->held = full;
}

struct bufferevent *side_plain(struct event_base *base, int fd)
{
	struct bufferevent *bev = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);

	if (bev == NULL) {
		fd_close(&fd);
		return NULL;
	}
	(void) bufferevent_set_max_single_read(bev, READ_AT_ONCE);
	(void) bufferevent_set_max_single_write(bev, READ_AT_ONCE);
	return bev;
}
