#include "kernel/netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int netlink_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	return fd < 0 ? -errno : fd;
}

/* Appends with padding; NULL when it does not fit. */
static void *append(struct netlink_batch *b, size_t size)
{
	size_t room = NLMSG_ALIGN(size);
	void *at = b->data + b->size;

	if (b->full || room < size || room > sizeof b->data - b->size) {
		b->full = true;
		return NULL;
	}
	memset(at, 0, room);
	b->size += room;
	return at;
}

/* The newest message reaches to the end of what there is. */
static void stretch(struct netlink_batch *b)
{
	struct nlmsghdr *header = (struct nlmsghdr *) (void *) (b->data + b->last);

	header->nlmsg_len = (uint32_t) (b->size - b->last);
}

void netlink_begin(struct netlink_batch *b, uint16_t type, uint16_t flags, const void *fixed, size_t size)
{
	size_t at = b->size;
	struct nlmsghdr *header = append(b, NLMSG_HDRLEN + size);

	if (header == NULL)
		return;
	b->last = at;
	b->count++;
	header->nlmsg_type = type;
	header->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | NLM_F_ACK | flags);
	header->nlmsg_seq = b->count;
	memcpy((char *) header + NLMSG_HDRLEN, fixed, size);
	stretch(b);
}

void netlink_add(struct netlink_batch *b, uint16_t attribute, const void *data, size_t size)
{
	struct rtattr *a = append(b, RTA_LENGTH(size));

	if (a == NULL)
		return;
	a->rta_type = attribute;
	a->rta_len = (unsigned short) RTA_LENGTH(size);
	if (size > 0)
		memcpy(RTA_DATA(a), data, size);
	stretch(b);
}

void netlink_add_u32(struct netlink_batch *b, uint16_t attribute, uint32_t value)
{
	netlink_add(b, attribute, &value, sizeof value);
}

void netlink_add_text(struct netlink_batch *b, uint16_t attribute, const char *text)
{
	netlink_add(b, attribute, text, strlen(text) + 1);
}

size_t netlink_nest(struct netlink_batch *b, uint16_t attribute, const void *fixed, size_t size)
{
	size_t mark = b->size;

	netlink_add(b, attribute, fixed, size);
	return mark;
}

void netlink_end(struct netlink_batch *b, size_t mark)
{
	struct rtattr *a = (struct rtattr *) (void *) (b->data + mark);

	if (!b->full)
		a->rta_len = (unsigned short) (b->size - mark);
}

bool netlink_has_room(const struct netlink_batch *b, size_t size)
{
	return !b->full && sizeof b->data - b->size >= size;
}

/* Reads answers until there is one for each message. Each is an nlmsgerr; several may come in one datagram. */
static int read_answers(int fd, unsigned count)
{
	_Alignas(NLMSG_ALIGNTO) char answer[8192];
	int fault = 0;

	while (count > 0) {
		ssize_t n = recv(fd, answer, sizeof answer, 0);
		struct nlmsghdr *h = (struct nlmsghdr *) (void *) answer;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPROTO;
		for (int left = (int) n; NLMSG_OK(h, (unsigned) left) && count > 0; h = NLMSG_NEXT(h, left)) {
			const struct nlmsgerr *e = NLMSG_DATA(h);

			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			count--;
			if (fault == 0)
				fault = e->error;
		}
	}
	return fault;
}

int netlink_send(int fd, struct netlink_batch *b)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	unsigned count = b->count;
	size_t size = b->size;
	bool full = b->full;
	ssize_t n;

	b->size = b->last = b->count = 0;
	b->full = false;
	if (full)
		return -ENOBUFS;
	if (count == 0)
		return 0;
	do
		n = sendto(fd, b->data, size, 0, (struct sockaddr *) &kernel, sizeof kernel);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : read_answers(fd, count);
}
