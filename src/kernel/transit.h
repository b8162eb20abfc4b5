/* The two network namespaces of a sandbox that may reach something. Its own has loopback and "eth0", one end of a veth(4) pair.
 * The other end lies in the transit namespace, where no process lives and nothing else leads anywhere: every address that the
 * rules name is local there (a route of type "local" makes a whole range so: ip-route(8)), and sockets that listen on them are
 * all that it holds. With the last of these sockets it ends, and eth0 with it.
 *
 * Listening in a namespace of its own leaves the sandbox every port: programs inside serve on 0.0.0.0 at any of them. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* eth0's own address, which nothing is sent to from outside. */
#define TRANSIT_GUEST_ADDRESS UINT32_C(0xC6130001) /* 198.19.0.1 */
#define TRANSIT_NAMES_PREFIX UINT32_C(0xC6120000)  /* 198.18.0.0/16: what names stand for */
enum { TRANSIT_NAMES_BITS = 16, TRANSIT_BATCH = 64 };

/* A range that is made local in the transit namespace, besides that of the names. */
struct transit_range {
	bool v6;
	uint8_t bits;
	uint8_t address[16]; /* network byte order; the first 4 for IPv4 */
};

struct transit_listener {
	bool v6, udp;
	uint16_t port;
	uint8_t address[16]; /* all zero: any */
};

struct transit {
	struct transit_range *ranges;
	size_t range_count;
	struct transit_listener *listeners;
	size_t listener_count;
};

/* Called with the sockets of the listeners [first, first + count), count at most TRANSIT_BATCH; they are closed afterwards. 0 or
 * negative errno. */
typedef int (*transit_give)(void *ctx, size_t first, const int *fds, size_t count);

/* Makes both, and leaves the calling thread in the sandbox's own, loopback up. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN over them. 0
 * or negative errno, *ret_step (static) says at what. */
int transit_make(const struct transit *t, transit_give give, void *ctx, const char **ret_step);
