#include "kernel/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fd.h"

int netns_loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	cleanup_fd int sock =
	    socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* any socket carries the request; this is the cheapest */

	if (sock < 0)
		return -errno;
	if (ioctl(sock, SIOCSIFFLAGS, &request) < 0)
		return -errno;
	return 0;
}

int netns_allow_low_ports(int settings)
{
	/* It shows the namespace of whoever opens it. */
	int r = fd_write_file_at(settings, "net/ipv4/ip_unprivileged_port_start", "0");

	return r == -ENOENT || r == -EACCES || r == -EROFS ? 0 : r;
}

static int open_own(void)
{
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int netns_enter_new(void)
{
	return unshare(CLONE_NEWNET) < 0 ? -errno : netns_loopback_up();
}

int netns_make(int (*enter)(void *ctx), void *ctx)
{
	cleanup_fd int home = open_own();
	cleanup_fd int made = -EBADF;
	int r;

	if (home < 0)
		return home;
	r = enter(ctx);
	if (r == 0) {
		made = open_own();
		r = made < 0 ? made : 0;
	}
	if (setns(home, CLONE_NEWNET) < 0)
		return -ENOTRECOVERABLE;
	return r < 0 ? r : take_fd(&made);
}
