/* The supervisor's end of the notifier (seccomp_unotify(2)). */
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include "kernel/seccomp.h"
#include "kernel/uapi.h"

/* The kernel writes a struct of its own size, which may outgrow that of our headers (SECCOMP_GET_NOTIF_SIZES): room to spare. */
union receive_room {
	struct seccomp_notif notif;
	char room[512];
};

static int notify_ioctl(int listener, unsigned long request, void *arg)
{
	int r;

	do
		r = ioctl(listener, request, arg);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int seccomp_receive(int listener, struct seccomp_notif *n)
{
	union receive_room buf = {.room = {0}};
	int r = notify_ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &buf);

	if (r == 0)
		*n = buf.notif;
	return r;
}

int seccomp_deny(int listener, uint64_t id, int err)
{
	struct seccomp_notif_resp resp = {.id = id, .error = -err};

	return notify_ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

int seccomp_continue(int listener, uint64_t id)
{
	struct seccomp_notif_resp resp = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

	return notify_ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

int seccomp_return(int listener, uint64_t id, int64_t value)
{
	struct seccomp_notif_resp resp = {.id = id, .val = value};

	return notify_ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

int seccomp_alive(int listener, uint64_t id)
{
	return notify_ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
}

void seccomp_tune_listener(int listener)
{
	(void) ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

ssize_t seccomp_peek(int listener, const struct seccomp_notif *n, uint64_t addr, void *buf, size_t size)
{
	struct iovec local = {.iov_base = buf, .iov_len = size};
	struct iovec remote = {.iov_base = (void *) (uintptr_t) addr, .iov_len = size};
	uint64_t id = n->id;
	ssize_t count;
	int r;

	if (n->pid == 0)
		return -ESRCH; /* not in a pid namespace that we see */
	count = process_vm_readv((pid_t) n->pid, &local, 1, &remote, 1, 0);
	if (count < 0)
		count = -errno;
	/* The process may have died and its pid been given away: bytes count only if the call still waits for its answer. */
	r = notify_ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
	return r < 0 ? r : count;
}

ssize_t seccomp_peek_string(int listener, const struct seccomp_notif *n, uint64_t addr, char *buf, size_t size)
{
	const size_t page = 4096; /* the smallest there is: a string that ends just before an unmapped page is read whole */
	size_t used = 0;
	ssize_t r = 0;

	if (size == 0)
		return -EINVAL;
	buf[0] = '\0';
	while (used < size - 1) {
		size_t step = page - (size_t) ((addr + used) % page);

		if (step > size - 1 - used)
			step = size - 1 - used;
		r = seccomp_peek(listener, n, addr + used, buf + used, step);
		if (r <= 0)
			break;
		if (memchr(buf + used, '\0', (size_t) r))
			return (ssize_t) strlen(buf);
		used += (size_t) r;
	}
	if (r == -ENOENT)
		used = 0; /* what was read before may be another process's */
	buf[used] = '\0';
	return used > 0 ? (ssize_t) used : r;
}
