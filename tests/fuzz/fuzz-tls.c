/* What a program inside can send before it is known to speak for the right name: a server_name extension, and a ClientHello with
 * whatever follows it. Nothing but the one name may ever come through. */
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/tls-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct broker *start(void)
{
	struct broker *b = xcalloc(1, sizeof *b);
	struct zw_error e = {0};

	b->network = xcalloc(1, sizeof *b->network);
	b->network->rules = xcalloc(1, sizeof *b->network->rules);
	b->network->rule_count = 1;
	b->network->rules[0] = (struct network_rule){.pattern = xstrdup("a.test"), .protocol = NET_HTTPS};
	b->base = event_base_new();
	b->tls = tls_new(b, &e);
	if (b->tls == NULL)
		abort();
	return b;
}

static void read_extension(const uint8_t *data, size_t size)
{
	char name[NETWORK_NAME_SIZE], again[NETWORK_NAME_SIZE];

	if (tls_read_sni(data, size, name) < 0)
		return;
	if (strlen(name) + 6 < size || network_name(name, strlen(name), again) < 0 || strcmp(name, again) != 0)
		abort();
}

static void accept_hello(struct broker *b, const uint8_t *data, size_t size)
{
	struct bufferevent *bev;
	char why[240];
	int fds[2];

	if (size > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return;
	bev = tls_accept(b->tls, fds[0], "a.test");
	if (bev == NULL)
		abort();
	(void) bufferevent_enable(bev, EV_READ | EV_WRITE);
	if (fd_write_all(fds[1], data, size) < 0)
		abort();
	(void) shutdown(fds[1], SHUT_WR);
	for (int i = 0; i < 8; i++)
		(void) event_base_loop(b->base, EVLOOP_NONBLOCK);
	tls_error(bev, why, sizeof why);
	if (strlen(why) == 0)
		abort();
	bufferevent_free(bev);
	(void) event_base_loop(b->base, EVLOOP_NONBLOCK);
	fd_close(&fds[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct broker *b;

	if (b == NULL)
		b = start();
	read_extension(data, size);
	accept_hello(b, data, size);
	return 0;
}
