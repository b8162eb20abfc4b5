#include "kernel/transit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernel/netlink.h"
#include "kernel/netns.h"

enum {
	LO_INDEX = 1,
	GUEST_INDEX = 2, /* in both namespaces, whose first device is lo */
	BACKLOG = 1024,
	MTU = 65520,
	ROUTE_ROOM = 128 /* what one route takes in a batch, at most */
};

/* Least, first and most bytes of a socket's buffers. With segments as large as the device takes them the kernel's own values let
 * each connection begin with megabytes that are sent and not yet read, and what waits at a listener is in no control group's
 * account. For a way within one machine this is enough; who reads gets more. */
#define SEND_BUFFERS "4096 16384 524288"
#define RECEIVE_BUFFERS "4096 32768 4194304"

/* The same at both ends: a device that resolves no neighbours sends to its own address. */
static const uint8_t link_address[6] = {0x02, 0, 0, 0, 0, 0x01};
/* eth0's address where rules name IPv6 addresses: of a unique local prefix made for this (RFC 4193). */
static const uint8_t guest_v6[16] = {0xfd, 0x7a, 0x77, 0x69, 0x6e, 0x67, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

/* Congestion control for the way between sandbox and broker. It never leaves the machine, so nothing on it congests; but what the
 * host has chosen for the world may cost much here (bbr waits between segments by timers). reno is in every kernel. */
static void add_congestion_control(struct netlink_batch *b)
{
	size_t metrics = netlink_nest(b, RTA_METRICS, NULL, 0);

	netlink_add_text(b, RTAX_CC_ALGO, "reno");
	netlink_end(b, metrics);
}

/* In the namespace that was just entered. Where /proc/sys is read-only the kernel's own values stay. */
static void bound_buffers(void)
{
	(void) fd_write_file_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_wmem", SEND_BUFFERS);
	(void) fd_write_file_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_rmem", RECEIVE_BUFFERS);
}

static void add_route(struct netlink_batch *b, bool v6, const void *address, uint8_t bits, uint8_t type, uint8_t table,
		      unsigned device)
{
	struct rtmsg route = {
	    .rtm_family = v6 ? AF_INET6 : AF_INET,
	    .rtm_dst_len = bits,
	    .rtm_table = table,
	    .rtm_protocol = RTPROT_STATIC,
	    .rtm_scope = v6                  ? RT_SCOPE_UNIVERSE
			 : type == RTN_LOCAL ? RT_SCOPE_HOST
					     : RT_SCOPE_LINK,
	    .rtm_type = type,
	};

	netlink_begin(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route, sizeof route);
	if (bits > 0)
		netlink_add(b, RTA_DST, address, v6 ? 16 : 4);
	netlink_add_u32(b, RTA_OIF, device);
	if (type == RTN_UNICAST)
		add_congestion_control(b);
}

static void add_address(struct netlink_batch *b, bool v6, const void *address, unsigned device)
{
	struct ifaddrmsg a = {
	    .ifa_family = v6 ? AF_INET6 : AF_INET,
	    .ifa_prefixlen = v6 ? 128 : 32,
	    .ifa_flags = v6 ? IFA_F_NODAD : 0,
	    .ifa_index = device,
	};

	netlink_begin(b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &a, sizeof a);
	netlink_add(b, IFA_LOCAL, address, v6 ? 16 : 4);
	netlink_add(b, IFA_ADDRESS, address, v6 ? 16 : 4);
}

static bool wants_v6(const struct transit *t)
{
	for (size_t i = 0; i < t->range_count; i++)
		if (t->ranges[i].v6)
			return true;
	return false;
}

/* A route for the names and one a range; a long list goes out in pieces. */
static int route_ranges(int fd, struct netlink_batch *b, const struct transit *t, uint8_t type, uint8_t table, unsigned device)
{
	uint32_t names = htonl(TRANSIT_NAMES_PREFIX);

	add_route(b, false, &names, TRANSIT_NAMES_BITS, type, table, device);
	for (size_t i = 0; i < t->range_count; i++) {
		const struct transit_range *range = &t->ranges[i];

		if (!netlink_has_room(b, ROUTE_ROOM)) {
			int r = netlink_send(fd, b);

			if (r < 0)
				return r;
		}
		add_route(b, range->v6, range->address, range->bits, type, table, device);
	}
	return netlink_send(fd, b);
}

/* In the transit namespace: everything is local, but for the sandbox itself. */
static int route_transit(int fd, const struct transit *t)
{
	struct netlink_batch b = {0};
	int r = netns_loopback_up();

	return r < 0 ? r : route_ranges(fd, &b, t, RTN_LOCAL, RT_TABLE_LOCAL, LO_INDEX);
}

static void describe_link(struct netlink_batch *b, const char *name)
{
	netlink_add_text(b, IFLA_IFNAME, name);
	netlink_add(b, IFLA_ADDRESS, link_address, sizeof link_address);
	netlink_add_u32(b, IFLA_MTU, MTU);
}

/* The pair: this end in the namespace of `fd`, the peer in that of the caller. */
static int make_pair(int fd, int own)
{
	struct netlink_batch b = {0};
	struct ifinfomsg link = {.ifi_index = GUEST_INDEX, .ifi_flags = IFF_UP | IFF_NOARP, .ifi_change = IFF_UP | IFF_NOARP};
	/* A veth without its other end cannot be up: the peer is brought up later. */
	struct ifinfomsg down = {.ifi_index = GUEST_INDEX, .ifi_flags = IFF_NOARP, .ifi_change = IFF_NOARP};
	size_t info, data, peer;

	netlink_begin(&b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
	describe_link(&b, "guest");
	info = netlink_nest(&b, IFLA_LINKINFO, NULL, 0);
	netlink_add_text(&b, IFLA_INFO_KIND, "veth");
	data = netlink_nest(&b, IFLA_INFO_DATA, NULL, 0);
	peer = netlink_nest(&b, VETH_INFO_PEER, &down, sizeof down);
	describe_link(&b, "eth0");
	netlink_add_u32(&b, IFLA_NET_NS_FD, (uint32_t) own);
	netlink_end(&b, peer);
	netlink_end(&b, data);
	netlink_end(&b, info);
	return netlink_send(fd, &b);
}

/* Back to the sandbox leads one route in the table of local ones: it goes before a range that covers the address too. */
static int route_back(int fd, bool v6)
{
	struct netlink_batch b = {0};
	uint32_t guest = htonl(TRANSIT_GUEST_ADDRESS);

	add_route(&b, false, &guest, 32, RTN_UNICAST, RT_TABLE_LOCAL, GUEST_INDEX);
	if (v6)
		add_route(&b, true, guest_v6, 128, RTN_UNICAST, RT_TABLE_LOCAL, GUEST_INDEX);
	return netlink_send(fd, &b);
}

static int route_own(const struct transit *t)
{
	struct netlink_batch b = {0};
	struct ifinfomsg up = {.ifi_index = GUEST_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	uint32_t guest = htonl(TRANSIT_GUEST_ADDRESS);
	cleanup_fd int fd = netlink_open();

	if (fd < 0)
		return fd;
	netlink_begin(&b, RTM_NEWLINK, 0, &up, sizeof up);
	add_address(&b, false, &guest, GUEST_INDEX);
	if (wants_v6(t))
		add_address(&b, true, guest_v6, GUEST_INDEX);
	return route_ranges(fd, &b, t, RTN_UNICAST, RT_TABLE_MAIN, GUEST_INDEX);
}

/* Binds; a name's address is local by its range alone. */
static int bind_listener(int fd, const struct transit_listener *l)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(l->port)};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(l->port)};
	int r;

	memcpy(&v6.sin6_addr, l->address, sizeof v6.sin6_addr);
	memcpy(&v4.sin_addr, l->address, sizeof v4.sin_addr);
	r = l->v6 ? bind(fd, (struct sockaddr *) &v6, sizeof v6) : bind(fd, (struct sockaddr *) &v4, sizeof v4);
	return r < 0 ? -errno : 0;
}

static int open_listener(const struct transit_listener *l)
{
	cleanup_fd int fd =
	    socket(l->v6 ? AF_INET6 : AF_INET, (l->udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, r;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
		return -errno;
	if (l->v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0)
		return -errno;
	if (!l->udp && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0) /* what is accepted inherits it */
		return -errno;
	r = bind_listener(fd, l);
	if (r == 0 && !l->udp && listen(fd, BACKLOG) < 0)
		r = -errno;
	return r < 0 ? r : take_fd(&fd);
}

static int give_listeners(const struct transit *t, transit_give give, void *ctx)
{
	int fds[TRANSIT_BATCH], r = 0;

	for (size_t first = 0; r == 0 && first < t->listener_count; first += TRANSIT_BATCH) {
		size_t count = 0;

		while (r == 0 && count < TRANSIT_BATCH && first + count < t->listener_count) {
			fds[count] = open_listener(&t->listeners[first + count]);
			if (fds[count] < 0)
				r = fds[count];
			else
				count++;
		}
		if (r == 0)
			r = give(ctx, first, fds, count);
		for (size_t i = 0; i < count; i++)
			fd_close(&fds[i]);
	}
	return r;
}

/* From inside of the transit namespace to inside of the sandbox's own. */
static int make_own(int transit, const struct transit *t, const char **ret_step)
{
	cleanup_fd int own = -EBADF;
	int r;

	*ret_step = "make the sandbox's network namespace";
	r = netns_enter_new();
	if (r < 0)
		return r;
	*ret_step = "make a veth pair (kernel module veth)";
	bound_buffers();
	own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own < 0)
		return -errno;
	r = make_pair(transit, own);
	if (r < 0)
		return r;
	*ret_step = "route the addresses of the rules";
	r = route_back(transit, wants_v6(t));
	return r < 0 ? r : route_own(t);
}

int transit_make(const struct transit *t, transit_give give, void *ctx, const char **ret_step)
{
	cleanup_fd int transit = -EBADF;
	int r;

	*ret_step = "make the transit network namespace";
	if (unshare(CLONE_NEWNET) < 0)
		return -errno;
	bound_buffers();
	transit = netlink_open();
	if (transit < 0)
		return transit;
	*ret_step = "make the addresses of the rules local";
	r = route_transit(transit, t);
	if (r < 0)
		return r;
	*ret_step = "listen for what the rules allow";
	r = give_listeners(t, give, ctx);
	return r < 0 ? r : make_own(transit, t, ret_step);
}
