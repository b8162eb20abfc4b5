/* What the supervisor tells the broker. It is trusted, but what it must not send is a fault: the broker ends, and so closes the
 * network. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/control-line.h"
#include "egress/listen.h"
#include "egress/narrow.h"
#include "egress/publish.h"
#include "egress/secrets.h"

enum { CONFIG_SIZE_MAX = 16 * 1024 * 1024, MESSAGES_AT_ONCE = 16 };

/* A message taken apart, with the descriptors that are still its own. */
struct incoming {
	json_t *object;
	int fds[CONTROL_FDS_MAX];
	size_t count;
};

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
}

static void incoming_done(struct incoming *m)
{
	close_all(m->fds, m->count);
	json_decref(m->object);
}

/* Takes the descriptors out of a message; the kernel has cut those that found no room. */
static size_t take_fds(struct msghdr *msg, int fds[CONTROL_FDS_MAX])
{
	size_t have = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || count > CONTROL_FDS_MAX - have)
			continue;
		memcpy(fds + have, CMSG_DATA(c), count * sizeof(int));
		have += count;
	}
	return have;
}

ssize_t control_receive(struct control *c, bool wait, int fds[CONTROL_FDS_MAX], size_t *ret_count)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * CONTROL_FDS_MAX)];
		struct cmsghdr align;
	} ancillary;
	struct iovec iov = {.iov_base = c->message, .iov_len = CONTROL_MESSAGE_MAX};
	struct msghdr msg = {
	    .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ancillary.buf, .msg_controllen = sizeof ancillary.buf};
	ssize_t n;

	do
		n = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*ret_count = take_fds(&msg, fds);
	c->message[n] = '\0';
	if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		close_all(fds, *ret_count);
		*ret_count = 0;
		return -EPROTO;
	}
	return n;
}

/* Parses c->message, which may hold a secret and is wiped. */
static int parse(struct control *c, size_t size, struct incoming *m)
{
	m->object = json_loadb(c->message, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	explicit_bzero(c->message, size);
	return json_is_object(m->object) ? 0 : -EPROTO;
}

static const char *member_text(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s != NULL ? s : "";
}

/* A port number, or 0. */
static uint16_t member_port(const json_t *object, const char *key)
{
	json_int_t port = json_integer_value(json_object_get(object, key));

	return port > 0 && port <= UINT16_MAX ? (uint16_t) port : 0;
}

static int on_listeners(struct control *c, struct incoming *m)
{
	const json_t *list = json_object_get(m->object, "listeners");

	if (json_array_size(list) != m->count)
		return -EPROTO;
	for (size_t i = 0; i < m->count; i++) {
		const json_t *item = json_array_get(list, i);
		const char *text = member_text(item, "address");
		struct net_address a;
		uint16_t port = member_port(item, "port");

		if (network_address(text, strlen(text), &a) < 0 || port == 0)
			return -EPROTO;
		if (listen_add(c->broker->listeners, &a, port, json_is_true(json_object_get(item, "udp")), take_fd(&m->fds[i])) <
		    0)
			return -EPROTO;
	}
	return 0;
}

static int on_publish(struct control *c, struct incoming *m)
{
	const json_t *list = json_object_get(m->object, "entries");

	if (json_array_size(list) != m->count)
		return -EPROTO;
	for (size_t i = 0; i < m->count; i++) {
		const json_t *item = json_array_get(list, i);
		uint16_t port = member_port(item, "port");

		if (port == 0 || publish_add(c->broker->publish, port, member_text(item, "label"), take_fd(&m->fds[i])) < 0)
			return -EPROTO;
	}
	return 0;
}

static int on_secret(struct control *c, struct incoming *m)
{
	json_t *value = json_object_get(m->object, "value");
	const char *name = member_text(m->object, "name");
	int r;

	if (name[0] == '\0' || (!json_is_string(value) && !json_is_null(value)))
		return -EPROTO;
	r = secrets_set(c->broker->secrets, name, json_string_value(value), json_string_length(value));
	if (json_is_string(value)) /* the copy of the parser's */
		explicit_bzero((char *) (uintptr_t) json_string_value(value), json_string_length(value));
	return r;
}

static int on_narrow(struct control *c, struct incoming *m)
{
	const json_t *entries = json_object_get(m->object, "entries");

	return entries != NULL ? narrow_set(c->broker, entries) : -EPROTO;
}

static int on_inbound(struct control *c, struct incoming *m)
{
	json_int_t id = json_integer_value(json_object_get(m->object, "id"));
	struct inbound *i;

	LIST_FOREACH(i, &c->inbounds, link)
	{
		if (id > 0 && i->id == (uint64_t) id)
			break;
	}
	if (i == NULL || m->count > 1)
		return -EPROTO;
	LIST_REMOVE(i, link);
	i->done(i->ctx, m->count == 1 ? take_fd(&m->fds[0]) : -EBADF);
	free(i);
	return 0;
}

static int on_sync(struct control *c, struct incoming *m)
{
	json_int_t id = json_integer_value(json_object_get(m->object, "id"));

	if (id <= 0 || id > INT32_MAX)
		return -EPROTO;
	control_sync(c, (uint32_t) id);
	return 0;
}

static int on_end(struct control *c, struct incoming *m)
{
	(void) m;
	c->ended = true;
	(void) event_base_loopbreak(c->broker->base);
	return 0;
}

static const struct {
	const char *name;
	int (*handle)(struct control *c, struct incoming *m);
} kinds[] = {
    {"listeners", on_listeners}, {"publish", on_publish}, {"secret", on_secret}, {"narrow", on_narrow},
    {"inbound", on_inbound},     {"sync", on_sync},       {"end", on_end},
};

static int dispatch(struct control *c, struct incoming *m)
{
	const char *kind = member_text(m->object, "t");

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kind, kinds[i].name) == 0)
			return kinds[i].handle(c, m);
	}
	return -EPROTO;
}

/* 1 when a message was handled, 0 when none is there, negative errno when there will be no further one. */
static int handle_one(struct control *c)
{
	struct incoming m = {0};
	ssize_t n = control_receive(c, false, m.fds, &m.count);
	int r;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n < 0 ? (int) n : -EPIPE;
	r = parse(c, (size_t) n, &m);
	if (r == 0)
		r = dispatch(c, &m);
	incoming_done(&m);
	return r < 0 ? r : 1;
}

void control_readable(evutil_socket_t fd, short what, void *ctx)
{
	struct control *c = ctx;
	int r = 1;

	(void) fd, (void) what;
	for (int i = 0; i < MESSAGES_AT_ONCE && r > 0 && !c->ended; i++)
		r = handle_one(c);
	if (r == -EPROTO)
		log_error("network broker: the supervisor sent what cannot be understood");
	if (r < 0)
		(void) event_base_loopbreak(c->broker->base);
}

void control_forget_inbounds(struct control *c)
{
	while (!LIST_EMPTY(&c->inbounds)) {
		struct inbound *i = LIST_FIRST(&c->inbounds);

		LIST_REMOVE(i, link);
		i->done(i->ctx, -EBADF);
		free(i);
	}
}

/* The rules come as an object, or as its text. */
static int read_config(const char *data, size_t size, struct control_config *ret, struct zw_error *e)
{
	json_error_t fault;
	json_t *config = json_loadb(data, size, JSON_REJECT_DUPLICATES, &fault);
	json_t *network = json_object_get(config, "network");
	size_t id_size = json_string_length(json_object_get(config, "id"));

	if (network == NULL || id_size >= sizeof ret->id) {
		json_decref(config);
		return zw_error(e, EPROTO, "the configuration of the network broker is not understood: %s",
				config == NULL ? fault.text : "a member is missing or too long");
	}
	ret->network = json_is_string(network) ? xstrdup(json_string_value(network)) : json_dumps(network, JSON_COMPACT);
	ret->network_size = ret->network != NULL ? strlen(ret->network) : 0;
	memcpy(ret->id, member_text(config, "id"), id_size);
	ret->id[id_size] = '\0';
	ret->java = !json_is_false(json_object_get(config, "java"));
	json_decref(config);
	return ret->network != NULL ? 0 : zw_error(e, ENOMEM, "the configuration of the network broker cannot be read");
}

int control_config(struct control *c, struct control_config *ret, struct zw_error *e)
{
	cleanup_free char *data = NULL;
	struct incoming m = {0};
	size_t size = 0;
	ssize_t n = control_receive(c, true, m.fds, &m.count);
	int r = n < 0 ? (int) n : n == 0 ? -EPIPE : parse(c, (size_t) n, &m);

	if (r == 0 && (strcmp(member_text(m.object, "t"), "config") != 0 || m.count != 1))
		r = -EPROTO;
	if (r == 0)
		r = lseek(m.fds[0], 0, SEEK_SET) < 0 ? -errno : fd_read_all(m.fds[0], CONFIG_SIZE_MAX, &data, &size);
	incoming_done(&m);
	if (r < 0)
		return zw_errno(e, -r, "cannot read the configuration of the network broker");
	return read_config(data, size, ret, e);
}

void control_config_done(struct control_config *config)
{
	free(config->network);
	*config = (struct control_config){0};
}
