#include "agent/channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

enum { SEND_PATIENCE_MSEC = 10000 };

int channel_init(struct channel *c, int fd, struct zw_error *e)
{
	int r = fd_nonblock(fd);

	if (r < 0)
		return zw_errno(e, -r, "cannot set up the agent's channel");
	*c = (struct channel){.fd = fd, .passed_fd = -EBADF};
	return 0;
}

void channel_done(struct channel *c)
{
	fd_close(&c->passed_fd);
}

/* ---- Receiving. ---- */

static int violation(struct channel *c, struct zw_error *e, const char *what)
{
	c->broken = true;
	fd_close(&c->passed_fd);
	return zw_error(e, EPROTO, "the agent broke its protocol: %s", what);
}

static uint32_t body_size_of(uint16_t type)
{
	switch (type) {
	case MSG_STARTED:
		return sizeof(struct msg_started);
	case MSG_EXEC_FAILED:
		return sizeof(struct msg_exec_failed);
	case MSG_EXITED:
		return sizeof(struct msg_exited);
	case MSG_CONNECTED:
		return sizeof(struct msg_connected);
	default:
		return UINT32_MAX;
	}
}

/* Reads towards `want` bytes in all, never past the end of the message: so descriptors, which the kernel hands out with the first
 * byte of the message that they were sent with, cannot be taken for another one's. 1: all there; 0: not yet. */
static int fill(struct channel *c, size_t want, struct zw_error *e)
{
	while (c->have < want) {
		int fds[2];
		size_t nfds = ARRAY_SIZE(fds);
		bool at_start = c->have == 0;
		ssize_t n = fd_recv(c->fd, c->in.bytes + c->have, want - c->have, fds, &nfds);

		if (n == -EAGAIN)
			return 0;
		if (n == 0 && at_start)
			return zw_error(e, EPIPE, "the agent has closed its channel");
		if (n == 0 || n == -ECONNRESET)
			return zw_error(e, EPIPE, "the agent's channel ended within a message");
		if (n < 0)
			return zw_errno(e, (int) -n, "cannot read from the agent");
		c->have += (size_t) n;
		if (nfds == 1 && at_start) {
			c->passed_fd = fds[0];
			continue;
		}
		for (size_t i = 0; i < nfds; i++)
			fd_close(&fds[i]);
		if (nfds > 0)
			return violation(c, e, "descriptors where none may be");
	}
	return 1;
}

static int check_header(struct channel *c, struct zw_error *e)
{
	const struct msg_header *h = &c->in.header;

	if (h->reserved != 0)
		return violation(c, e, "reserved field set");
	if (body_size_of(h->type) == UINT32_MAX)
		return violation(c, e, "unknown type");
	if (h->size != body_size_of(h->type))
		return violation(c, e, "wrong size");
	if (c->passed_fd >= 0 && h->type != MSG_STARTED && h->type != MSG_CONNECTED)
		return violation(c, e, "a descriptor where none may be");
	return 0;
}

/* Anything else behind the fd, a file of a hostile file system say, could make the supervisor wait for ever. Terminals of devpts
 * have their master at 5:2 (Documentation/admin-guide/devices.txt). */
static bool is_terminal_master(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 2);
}

/* A socket of another kind could be one end of something outside (a Unix socket that passes descriptors on, say). */
static bool is_tcp_socket(int fd)
{
	int domain = 0, protocol = 0;
	socklen_t size = sizeof domain, protocol_size = sizeof protocol;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && (domain == AF_INET || domain == AF_INET6) &&
	       getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_size) == 0 && protocol == IPPROTO_TCP;
}

static bool is_end_status(int status)
{
	if (WIFEXITED(status))
		return (status & ~0xff00) == 0;
	return WIFSIGNALED(status) && (status & ~0xff) == 0 && WTERMSIG(status) <= 64;
}

static const char *fault_of(const struct msg_in *m)
{
	static const uint64_t most = UINT64_C(1) << 56; /* of microseconds or bytes: keeps sums of a few from wrapping */

	switch (m->type) {
	case MSG_STARTED:
		if (m->started.pid <= 0)
			return "no process id";
		if (m->fd >= 0 && !is_terminal_master(m->fd))
			return "a descriptor that is no terminal";
		return NULL;
	case MSG_EXEC_FAILED:
		if (m->exec_failed.error <= 0 || m->exec_failed.error > 4095)
			return "no errno";
		return m->exec_failed.stage <= EXEC_STAGE_EXEC ? NULL : "unknown stage";
	case MSG_CONNECTED:
		if (m->connected.error < 0 || m->connected.error > 4095)
			return "no errno";
		if ((m->connected.error == 0) != (m->fd >= 0))
			return "a connection without a descriptor, or the other way round";
		return m->fd < 0 || is_tcp_socket(m->fd) ? NULL : "a descriptor that is no TCP connection";
	default:
		if (m->exited.reserved != 0)
			return "reserved field set";
		if (!is_end_status(m->exited.status))
			return "no exit status";
		if (m->exited.utime > most || m->exited.stime > most || m->exited.max_rss > most)
			return "impossible usage";
		return NULL;
	}
}

int channel_receive(struct channel *c, struct msg_in *ret, struct zw_error *e)
{
	struct msg_in m;
	const char *fault;
	int r;

	if (c->broken)
		return zw_error(e, EPROTO, "the agent broke its protocol before");
	r = fill(c, sizeof c->in.header, e);
	if (r <= 0)
		return r;
	r = check_header(c, e);
	if (r < 0)
		return r;
	r = fill(c, sizeof c->in.header + c->in.header.size, e);
	if (r <= 0)
		return r;
	m = (struct msg_in){.type = c->in.header.type, .id = c->in.header.id, .fd = c->passed_fd};
	memcpy(&m.exited, c->in.bytes + sizeof c->in.header,
	       c->in.header.size); /* the largest member; check_header fixed the size */
	fault = fault_of(&m);
	if (fault != NULL)
		return violation(c, e, fault);
	c->have = 0;
	c->passed_fd = -EBADF;
	*ret = m;
	return 1;
}

/* ---- Sending. ---- */

static int send_failed(int err, struct zw_error *e)
{
	if (err == EPIPE || err == ECONNRESET)
		return zw_error(e, EPIPE, "the agent is gone");
	return zw_errno(e, err, "cannot send to the agent");
}

static int wait_for_room(const struct channel *c, struct zw_error *e)
{
	struct pollfd p = {.fd = c->fd, .events = POLLOUT};
	int n;

	do
		n = poll(&p, 1, SEND_PATIENCE_MSEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return send_failed(errno, e);
	return n > 0 ? 0 : send_failed(ETIMEDOUT, e);
}

/* The descriptors go with the first byte. */
static int send_all(struct channel *c, const struct buf *b, const int *fds, size_t nfds, struct zw_error *e)
{
	union {
		char buf[CMSG_SPACE(START_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	size_t sent = 0;

	while (sent < b->size) {
		struct iovec iov = {.iov_base = b->data + sent, .iov_len = b->size - sent};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;
		int r;

		if (sent == 0 && nfds > 0) {
			struct cmsghdr *cmsg = &control.align; /* the first one */

			msg.msg_control = control.buf;
			msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
			cmsg->cmsg_level = SOL_SOCKET;
			cmsg->cmsg_type = SCM_RIGHTS;
			cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
			memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));
		}
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0) {
			sent += (size_t) n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return send_failed(errno, e);
		r = wait_for_room(c, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int send_small(struct channel *c, uint16_t type, uint32_t id, const void *body, uint32_t size, struct zw_error *e)
{
	cleanup_buf struct buf b = buf_new(256);
	const struct msg_header header = {.size = size, .type = type, .id = id};
	int r = buf_add(&b, &header, sizeof header);

	if (r == 0)
		r = buf_add(&b, body, size);
	return r == 0 ? send_all(c, &b, NULL, 0, e) : send_failed(-r, e);
}

static int add_strings(struct buf *b, char *const *list, uint32_t *ret_count)
{
	uint32_t count = 0;

	for (; list[count] != NULL; count++) {
		int r = buf_add(b, list[count], strlen(list[count]) + 1);

		if (r < 0)
			return r;
	}
	*ret_count = count;
	return 0;
}

/* In the order in which the agent takes them. */
static size_t fds_of(const struct start_request *start, int fds[START_FDS_MAX])
{
	size_t count = 0;

	if ((start->flags & START_TTY) == 0) {
		fds[count++] = start->in;
		fds[count++] = start->out;
		fds[count++] = start->err;
	}
	if ((start->flags & START_CHANNEL) != 0)
		fds[count++] = start->channel;
	for (uint32_t i = 0; i < start->group_count; i++)
		fds[count++] = start->groups[i];
	if ((start->flags & START_PROGRAM) != 0)
		fds[count++] = start->program;
	return count;
}

int channel_send_start(struct channel *c, const struct start_request *start, struct zw_error *e)
{
	cleanup_buf struct buf b = buf_new(sizeof(struct msg_header) + MSG_BODY_MAX);
	struct msg_header header = {.type = MSG_START, .id = start->id};
	struct msg_start fixed = {.flags = start->flags,
				  .rows = start->rows,
				  .columns = start->columns,
				  .uid = start->uid,
				  .gid = start->gid,
				  .groups = start->group_count};
	int fds[START_FDS_MAX];
	size_t nfds = fds_of(start, fds);
	int r = buf_add(&b, &header, sizeof header);

	if (r == 0)
		r = buf_add(&b, &fixed, sizeof fixed);
	if (r == 0)
		r = buf_add(&b, start->cwd, strlen(start->cwd) + 1);
	if (r == 0)
		r = add_strings(&b, start->argv, &fixed.argc);
	if (r == 0)
		r = add_strings(&b, start->env, &fixed.envc);
	if (r < 0)
		return zw_errno(e, -r, "cannot pass on arguments and environment of more than %u bytes in all", MSG_BODY_MAX);
	if (fixed.argc == 0)
		return zw_error(e, EINVAL, "there is no command to run");
	header.size = (uint32_t) (b.size - sizeof header);
	memcpy(b.data, &header, sizeof header);
	memcpy(b.data + sizeof header, &fixed, sizeof fixed);
	return send_all(c, &b, fds, nfds, e);
}

int channel_send_signal(struct channel *c, uint32_t id, int signal, bool to_group, struct zw_error *e)
{
	const struct msg_signal body = {.signal = signal, .to_group = to_group ? 1 : 0};

	return send_small(c, MSG_SIGNAL, id, &body, sizeof body, e);
}

int channel_send_connect(struct channel *c, uint32_t id, uint16_t port, struct zw_error *e)
{
	const struct msg_connect body = {.port = port};

	return send_small(c, MSG_CONNECT, id, &body, sizeof body, e);
}

int channel_send_resize(struct channel *c, uint32_t id, uint16_t rows, uint16_t columns, struct zw_error *e)
{
	const struct msg_resize body = {.rows = rows, .columns = columns};

	return send_small(c, MSG_RESIZE, id, &body, sizeof body, e);
}
