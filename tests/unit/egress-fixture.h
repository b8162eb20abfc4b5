/* What the tests of the broker's parts share: rules, a record of what the supervisor would be told, and a small world of
 * addresses. */
#pragma once

#include <arpa/inet.h>
#include <event2/event.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/control.h"
#include "kernel/netns.h"

#define UNUSED __attribute__((unused))

/* ---- Rules. ---- */

static UNUSED void allow(struct network *n, const char *host, const char *address, uint16_t port, enum net_protocol protocol)
{
	struct port_range ports = {.first = port, .last = port};
	char name[NETWORK_NAME_SIZE] = "", prefix[64] = "";
	struct policy_rule rule = {.ports = &ports, .port_count = 1, .protocol = protocol, .request_max = ZW_UNLIMITED};
	struct zw_error e = {0};

	if (host != NULL) {
		(void) snprintf(name, sizeof name, "%s", host);
		rule.host = name;
	} else {
		(void) snprintf(prefix, sizeof prefix, "%s", address);
		rule.address = prefix;
	}
	if (network_add_rule(n, &rule, "network.allow", &e) < 0)
		fail_msg("%s", e.text);
}

static UNUSED struct net_address address_of(const char *text)
{
	struct net_address a;

	assert_int_equal(network_address(text, strlen(text), &a), 0);
	return a;
}

static UNUSED void map_host(struct network *n, const char *name, const char *address, uint16_t port)
{
	n->hosts = xrealloc(n->hosts, n->host_count + 1, sizeof *n->hosts);
	n->hosts[n->host_count++] = (struct network_host){.name = xstrdup(name), .address = address_of(address), .port = port};
}

/* ---- What was refused. ---- */

struct refused {
	char kind[16], host[1100], address[NET_ADDRESS_TEXT], why[300];
	uint16_t port;
};

static struct {
	struct refused list[64];
	size_t count;
} refusals UNUSED;

void control_refusal(struct control *c, const struct refusal *r)
{
	struct refused *to = &refusals.list[refusals.count++ % ARRAY_SIZE(refusals.list)];

	(void) c;
	*to = (struct refused){.port = r->port};
	(void) snprintf(to->kind, sizeof to->kind, "%s", r->kind);
	(void) snprintf(to->host, sizeof to->host, "%s", r->host);
	(void) snprintf(to->why, sizeof to->why, "%s", r->why);
	if (r->address != NULL)
		network_address_text(r->address, to->address);
}

static UNUSED const struct refused *last_refusal(void)
{
	assert_true(refusals.count > 0);
	return &refusals.list[(refusals.count - 1) % ARRAY_SIZE(refusals.list)];
}

/* ---- Sockets and namespaces. ---- */

static UNUSED socklen_t sockaddr_of(const char *address, uint16_t port, struct sockaddr_storage *ret)
{
	struct net_address a = address_of(address);

	return network_address_to(&a, port, ret);
}

/* A listening socket (or bound datagram socket); port 0: any. -EBADF when the port is taken. */
static UNUSED int try_serve_at(const char *address, uint16_t port, int type)
{
	struct sockaddr_storage at;
	socklen_t size = sockaddr_of(address, port, &at);
	int fd = socket(at.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int on = 1;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
	if (bind(fd, (struct sockaddr *) &at, size) < 0)
		fd_close(&fd);
	else if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 16), 0);
	return fd;
}

static UNUSED int serve_at(const char *address, uint16_t port, int type)
{
	int fd = try_serve_at(address, port, type);

	assert_true(fd >= 0);
	return fd;
}

static UNUSED uint16_t port_of(int fd)
{
	struct sockaddr_storage at;
	socklen_t size = sizeof at;
	struct net_address a;
	uint16_t port;

	assert_int_equal(getsockname(fd, (struct sockaddr *) &at, &size), 0);
	network_address_from((struct sockaddr *) &at, &a, &port);
	return port;
}

static UNUSED int add_v4(int sock, const char *label, const char *address)
{
	struct ifreq r = {0};
	struct sockaddr_in sa = {.sin_family = AF_INET};

	(void) snprintf(r.ifr_name, sizeof r.ifr_name, "%s", label);
	if (inet_pton(AF_INET, address, &sa.sin_addr) != 1)
		return -1;
	memcpy(&r.ifr_addr, &sa, sizeof sa);
	return ioctl(sock, SIOCSIFADDR, &r);
}

/* Moves the test into a network of its own, in which public and private addresses are this machine's own and nothing leads out.
 */
static UNUSED bool enter_own_network(const char *const *v4)
{
	cleanup_fd int sock = -EBADF;

	if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) < 0 || netns_loopback_up() < 0)
		return false;
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	for (unsigned i = 0; v4[i] != NULL; i++) {
		char label[IFNAMSIZ];

		(void) snprintf(label, sizeof label, "lo:%u", i + 1);
		if (sock < 0 || add_v4(sock, label, v4[i]) < 0)
			return false;
	}
	return true;
}
