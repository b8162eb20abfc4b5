/* Requests of rtnetlink(7), several in one datagram. Fixed memory, no allocation: it runs in the child of a clone as well. */
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NETLINK_BATCH = 4096 };

struct netlink_batch {
	_Alignas(NLMSG_ALIGNTO) char data[NETLINK_BATCH];
	size_t size;
	size_t last; /* where the newest message begins */
	unsigned count;
	bool full; /* something did not fit: netlink_send says so */
};

/* A socket for the network namespace that the caller is in; it stays with that one when the caller leaves. fd or negative errno.
 */
int netlink_open(void);

/* Begins a message (RTM_NEWLINK...) with its fixed part; attributes are added to the newest. */
void netlink_begin(struct netlink_batch *b, uint16_t type, uint16_t flags, const void *fixed, size_t size);
void netlink_add(struct netlink_batch *b, uint16_t attribute, const void *data, size_t size);
void netlink_add_u32(struct netlink_batch *b, uint16_t attribute, uint32_t value);
void netlink_add_text(struct netlink_batch *b, uint16_t attribute, const char *text);
/* Attributes that hold attributes; `fixed` is for the odd ones that begin with a struct. Returns a mark for netlink_end. */
size_t netlink_nest(struct netlink_batch *b, uint16_t attribute, const void *fixed, size_t size);
void netlink_end(struct netlink_batch *b, size_t mark);

/* Room for `size` more bytes? A caller with many small messages sends when there is none. */
bool netlink_has_room(const struct netlink_batch *b, size_t size);

/* Sends all and reads one answer for each. 0, or the first negative errno (-ENOBUFS when the batch was full). Empties the batch.
 */
int netlink_send(int fd, struct netlink_batch *b);
