/* A place in the v2 tree for a user without one: the service manager of the user's session moves us into a transient scope whose
 * tree is ours (Delegate=yes), as `systemd-run --user --scope` does. Spoken is as much of D-Bus as one call needs, by hand: a
 * library for it would cost each start more than a sandbox does.
 *
 *   us                                      manager (private socket) or bus
 *   "\0AUTH EXTERNAL <uid in hex>\r\n"  ->
 *                                       <-  "OK <guid>\r\n"
 *   "BEGIN\r\n"                         ->
 *   Hello, AddMatch JobRemoved          ->                                         (bus alone)
 *   StartTransientUnit                  ->
 *                                       <-  reply: the job's path
 *                                       <-  signal JobRemoved(id, job, unit, result), maybe before the reply
 *
 * The manager runs as the same user, so nothing here crosses a border of trust; lengths and time are bounded all the same: a
 * wedged manager must not wedge us. D-Bus specification 0.38, org.freedesktop.systemd1(5). */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum {
	REQUEST_MAX = 2048,
	MESSAGE_MAX = 64 << 10, /* of one message received */
	MESSAGES_MAX = 256,     /* received before we give up */
	LINE_MAX_SIZE = 256,    /* of the authentication */
	RESULT_SIZE = 32,
};

/* D-Bus constants. */
enum { TYPE_CALL = 1, TYPE_REPLY = 2, TYPE_ERROR = 3, TYPE_SIGNAL = 4 };
enum {
	FIELD_PATH = 1,
	FIELD_INTERFACE = 2,
	FIELD_MEMBER = 3,
	FIELD_REPLY_SERIAL = 5,
	FIELD_DESTINATION = 6,
	FIELD_SIGNATURE = 8
};
enum { SERIAL_HELLO = 1, SERIAL_MATCH = 2, SERIAL_START = 3 };

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ENDIAN 'l'
#else
#define ENDIAN 'B'
#endif

#define MANAGER "org.freedesktop.systemd1"
#define MANAGER_PATH "/org/freedesktop/systemd1"
#define BUS "org.freedesktop.DBus"

/* A message being written. Overflow is remembered and told at the end. */
struct writer {
	unsigned char data[REQUEST_MAX];
	size_t size;
	bool full;
};

static void put_bytes(struct writer *w, const void *data, size_t size)
{
	if (w->full || size > sizeof w->data - w->size) {
		w->full = true;
		return;
	}
	memcpy(w->data + w->size, data, size);
	w->size += size;
}

static void put_align(struct writer *w, size_t to)
{
	static const char zero[8];

	put_bytes(w, zero, (to - w->size % to) % to);
}

static void put_u8(struct writer *w, unsigned value)
{
	unsigned char byte = (unsigned char) value;

	put_bytes(w, &byte, 1);
}

static void put_u32(struct writer *w, uint32_t value)
{
	put_align(w, 4);
	put_bytes(w, &value, sizeof value);
}

static void put_string(struct writer *w, const char *s)
{
	put_u32(w, (uint32_t) strlen(s));
	put_bytes(w, s, strlen(s) + 1);
}

static void put_signature(struct writer *w, const char *s)
{
	put_u8(w, (unsigned) strlen(s));
	put_bytes(w, s, strlen(s) + 1);
}

/* An array's length is known when it is written: returns where it belongs. The elements are aligned before the count starts. */
static size_t array_start(struct writer *w, size_t align)
{
	size_t at;

	put_u32(w, 0);
	at = w->size - 4;
	put_align(w, align);
	return at;
}

static void array_end(struct writer *w, size_t at, size_t align)
{
	size_t start = (at + 4 + align - 1) / align * align;
	uint32_t size = (uint32_t) (w->size - start);

	if (!w->full)
		memcpy(w->data + at, &size, sizeof size);
}

static void put_field(struct writer *w, unsigned code, const char *type, const char *value)
{
	put_align(w, 8);
	put_u8(w, code);
	put_signature(w, type);
	if (*type == 'g')
		put_signature(w, value);
	else
		put_string(w, value);
}

struct call {
	const char *destination, *path, *interface, *member, *signature;
	uint32_t serial;
};

static void put_call(struct writer *w, const struct call *call, const struct writer *body)
{
	size_t fields;

	put_u8(w, ENDIAN);
	put_u8(w, TYPE_CALL);
	put_u8(w, 0); /* flags */
	put_u8(w, 1); /* protocol version */
	put_u32(w, (uint32_t) body->size);
	put_u32(w, call->serial);
	fields = array_start(w, 8);
	put_field(w, FIELD_PATH, "o", call->path);
	put_field(w, FIELD_INTERFACE, "s", call->interface);
	put_field(w, FIELD_MEMBER, "s", call->member);
	put_field(w, FIELD_DESTINATION, "s", call->destination);
	if (body->size > 0)
		put_field(w, FIELD_SIGNATURE, "g", call->signature);
	array_end(w, fields, 8);
	put_align(w, 8);
	put_bytes(w, body->data, body->size);
	w->full |= body->full;
}

/* (sv) */
static void put_property(struct writer *w, const char *name, const char *type)
{
	put_align(w, 8);
	put_string(w, name);
	put_signature(w, type);
}

static void put_start_unit(struct writer *w, const char *unit, pid_t pid)
{
	static const struct call call = {.destination = MANAGER,
					 .path = MANAGER_PATH,
					 .interface = MANAGER ".Manager",
					 .member = "StartTransientUnit",
					 .signature = "ssa(sv)a(sa(sv))",
					 .serial = SERIAL_START};
	struct writer body = {.size = 0};
	size_t properties, pids;

	put_string(&body, unit);
	put_string(&body, "fail");
	properties = array_start(&body, 8);
	put_property(&body, "Description", "s");
	put_string(&body, "zwinger");
	put_property(&body, "Delegate", "b");
	put_u32(&body, 1);
	put_property(&body, "CollectMode", "s"); /* no trace of a scope that failed; 236 */
	put_string(&body, "inactive-or-failed");
	put_property(&body, "PIDs", "au");
	pids = array_start(&body, 4);
	put_u32(&body, (uint32_t) pid);
	array_end(&body, pids, 4);
	array_end(&body, properties, 8);
	(void) array_start(&body, 8); /* no auxiliary units */
	put_call(w, &call, &body);
}

/* On a bus one has to say hello, and signals come to those who ask. */
static void put_hello(struct writer *w)
{
	static const struct call hello = {BUS, "/org/freedesktop/DBus", BUS, "Hello", "", SERIAL_HELLO};
	static const struct writer nothing;

	put_call(w, &hello, &nothing);
}

static void put_match(struct writer *w)
{
	static const struct call match = {BUS, "/org/freedesktop/DBus", BUS, "AddMatch", "s", SERIAL_MATCH};
	struct writer body = {.size = 0};

	put_string(&body, "type='signal',interface='" MANAGER ".Manager',member='JobRemoved',path='" MANAGER_PATH "'");
	put_call(w, &match, &body);
}

/* A message being read. `bad` once something lies outside. */
struct reader {
	const unsigned char *data;
	size_t size, at;
	bool bad;
};

static void get_align(struct reader *r, size_t to)
{
	r->at = (r->at + to - 1) / to * to;
	if (r->at > r->size)
		r->bad = true;
}

static const unsigned char *get_bytes(struct reader *r, size_t size)
{
	const unsigned char *p = r->data + r->at;

	if (r->bad || size > r->size - r->at) {
		r->bad = true;
		return NULL;
	}
	r->at += size;
	return p;
}

static unsigned get_u8(struct reader *r)
{
	const unsigned char *p = get_bytes(r, 1);

	return p == NULL ? 0 : *p;
}

static uint32_t get_u32(struct reader *r)
{
	const unsigned char *p;
	uint32_t value = 0;

	get_align(r, 4);
	p = get_bytes(r, sizeof value);
	if (p != NULL)
		memcpy(&value, p, sizeof value);
	return value;
}

/* A string of `length` with the NUL where it must be, else NULL. */
static const char *get_text(struct reader *r, size_t length)
{
	const unsigned char *p = length < MESSAGE_MAX ? get_bytes(r, length + 1) : NULL;

	if (p == NULL || p[length] != '\0' || memchr(p, '\0', length) != NULL) {
		r->bad = true;
		return NULL;
	}
	return (const char *) p;
}

static const char *get_string(struct reader *r)
{
	return get_text(r, get_u32(r));
}

struct message {
	unsigned type;
	uint32_t reply_serial;
	const char *member;
	struct reader body;
};

/* The header fields: each a code, and a variant of one of the types s o g u. */
static void get_fields(struct reader *r, size_t end, struct message *m)
{
	while (!r->bad && r->at < end) {
		const char *type, *text = NULL;
		uint32_t number = 0;
		unsigned code;

		get_align(r, 8);
		code = get_u8(r);
		type = get_text(r, get_u8(r));
		if (type == NULL || strlen(type) != 1)
			r->bad = true;
		else if (*type == 's' || *type == 'o')
			text = get_string(r);
		else if (*type == 'g')
			text = get_text(r, get_u8(r));
		else if (*type == 'u')
			number = get_u32(r);
		else
			r->bad = true;
		if (code == FIELD_MEMBER)
			m->member = text;
		else if (code == FIELD_REPLY_SERIAL)
			m->reply_serial = number;
	}
}

/* `data` is one whole message. False when it is malformed. */
static bool parse_message(const unsigned char *data, size_t size, struct message *ret)
{
	struct reader r = {.data = data, .size = size, .at = 12};
	struct message m = {.type = data[1]};
	size_t fields = get_u32(&r);

	if (fields > size - r.at)
		return false;
	get_fields(&r, r.at + fields, &m);
	get_align(&r, 8);
	m.body = r;
	*ret = m;
	return !r.bad;
}

/* The connection, with what was received and not used yet. */
struct link {
	int sock;
	usec_t until;
	unsigned char data[MESSAGE_MAX];
	size_t size;
	struct zw_error *e;
};

static int wait_until(struct link *l, short events)
{
	for (;;) {
		usec_t now = now_monotonic();
		struct pollfd p = {.fd = l->sock, .events = events};
		int r;

		if (now >= l->until)
			return zw_error(l->e, ETIMEDOUT, "the service manager of the user did not answer in time");
		r = poll(&p, 1, (int) ((l->until - now) / USEC_PER_MSEC) + 1);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return zw_errno(l->e, errno, "cannot wait for the service manager of the user");
	}
}

static int link_send(struct link *l, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0) {
		ssize_t n = send(l->sock, p, size, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r = 0;

		if (n > 0) {
			p += n;
			size -= (size_t) n;
		} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			r = wait_until(l, POLLOUT);
		} else {
			r = zw_errno(l->e, errno, "cannot write to the service manager of the user");
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Receives until there are `size` bytes. */
static int link_fill(struct link *l, size_t size)
{
	while (l->size < size) {
		ssize_t n = recv(l->sock, l->data + l->size, sizeof l->data - l->size, MSG_DONTWAIT);
		int r = 0;

		if (n > 0)
			l->size += (size_t) n;
		else if (n < 0 && (errno == EAGAIN || errno == EINTR))
			r = wait_until(l, POLLIN);
		else
			r = zw_errno(l->e, n == 0 ? ECONNRESET : errno, "the service manager of the user hung up");
		if (r < 0)
			return r;
	}
	return 0;
}

static void link_use(struct link *l, size_t size)
{
	l->size -= size;
	memmove(l->data, l->data + size, l->size);
}

/* SASL EXTERNAL: the socket's credentials say who we are; the uid in decimal digits, each as hex. */
static int authenticate(struct link *l)
{
	char uid[16], line[LINE_MAX_SIZE] = "", *end;
	size_t n;
	int r;

	(void) snprintf(uid, sizeof uid, "%u", (unsigned) geteuid());
	n = 1 + (size_t) snprintf(line + 1, sizeof line - 1, "AUTH EXTERNAL "); /* the line starts with a NUL */
	for (const char *p = uid; *p != '\0'; p++)
		n += (size_t) snprintf(line + n, sizeof line - n, "%02x", (unsigned char) *p);
	n += (size_t) snprintf(line + n, sizeof line - n, "\r\n");
	r = link_send(l, line, n);
	for (n = 1; r == 0; n = l->size + 1) {
		end = l->size > 0 ? memchr(l->data, '\n', l->size) : NULL;
		if (end != NULL || l->size > LINE_MAX_SIZE)
			break;
		r = link_fill(l, n);
	}
	if (r < 0)
		return r;
	if (l->size > LINE_MAX_SIZE || memcmp(l->data, "OK ", 3) != 0)
		return zw_error(l->e, EACCES, "the service manager of the user refuses us");
	link_use(l, (size_t) (end - (char *) l->data) + 1);
	return link_send(l, "BEGIN\r\n", 7);
}

/* Receives one message. Its parts point into l->data; *ret_size is to be given to link_use after. */
static int receive(struct link *l, struct message *ret, size_t *ret_size)
{
	uint32_t body, fields;
	uint64_t size;
	int r = link_fill(l, 16);

	if (r < 0)
		return r;
	memcpy(&body, l->data + 4, sizeof body);
	memcpy(&fields, l->data + 12, sizeof fields);
	size = 16 + ((uint64_t) fields + 7) / 8 * 8 + body;
	if (l->data[0] != ENDIAN || l->data[3] != 1 || size > sizeof l->data)
		return zw_error(l->e, EPROTO, "the service manager of the user sent an unusable message");
	r = link_fill(l, (size_t) size);
	if (r < 0)
		return r;
	if (!parse_message(l->data, (size_t) size, ret))
		return zw_error(l->e, EPROTO, "the service manager of the user sent a malformed message");
	*ret_size = (size_t) size;
	return 0;
}

/* What we wait for. */
struct wait {
	const char *unit;
	bool accepted, ended;
	char result[RESULT_SIZE];
};

/* JobRemoved(u id, o job, s unit, s result). Our unit's name is random, so it has no other job. */
static void job_removed(struct wait *wait, struct reader body)
{
	const char *unit, *result;

	(void) get_u32(&body);
	(void) get_string(&body);
	unit = get_string(&body);
	result = get_string(&body);
	if (body.bad || strcmp(unit, wait->unit) != 0)
		return;
	wait->ended = true;
	(void) snprintf(wait->result, sizeof wait->result, "%.*s", RESULT_SIZE - 1, result);
}

static int take_message(struct link *l, struct wait *wait, struct message *m)
{
	if (m->type == TYPE_SIGNAL && m->member != NULL && strcmp(m->member, "JobRemoved") == 0)
		job_removed(wait, m->body);
	else if (m->type == TYPE_REPLY && m->reply_serial == SERIAL_START)
		wait->accepted = true;
	else if (m->type == TYPE_ERROR) {
		const char *text = get_string(&m->body);

		return zw_error(l->e, EACCES, "the service manager of the user refuses a scope: %.200s",
				text != NULL ? text : "no reason");
	}
	return 0;
}

/* One message: alignment counts from its start. */
static int send_message(struct link *l, const struct writer *w)
{
	return w->full ? zw_error(l->e, E2BIG, "the request for a scope is too long") : link_send(l, w->data, w->size);
}

static int converse(struct link *l, bool bus, const char *unit, pid_t pid)
{
	struct writer hello = {.size = 0}, match = {.size = 0}, start = {.size = 0};
	struct wait wait = {.unit = unit};
	int r = authenticate(l);

	put_hello(&hello);
	put_match(&match);
	put_start_unit(&start, unit, pid);
	if (r == 0 && bus)
		r = send_message(l, &hello);
	if (r == 0 && bus)
		r = send_message(l, &match);
	if (r == 0)
		r = send_message(l, &start);
	for (size_t i = 0; r == 0 && !(wait.accepted && wait.ended); i++) {
		struct message m;
		size_t size = 0;

		if (i == MESSAGES_MAX)
			return zw_error(l->e, EPROTO, "the service manager of the user talks about other things");
		r = receive(l, &m, &size);
		if (r == 0)
			r = take_message(l, &wait, &m);
		if (r == 0)
			link_use(l, size);
	}
	if (r == 0 && strcmp(wait.result, "done") != 0)
		return zw_error(l->e, EACCES, "the service manager of the user could not make a scope: %s", wait.result);
	return r;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_fd int sock = -EBADF;
	size_t size = strlen(path);

	if (size >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, size);
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	/* On a Unix socket that does not block, connect succeeds or fails at once; EAGAIN: its queue is full. */
	if (connect(sock, (struct sockaddr *) &address, sizeof address) < 0)
		return -errno;
	return take_fd(&sock);
}

/* The process number we send must mean the same there: a manager outside of our pid namespace has number 0 here. And only one of
 * our own user is asked. */
static int check_peer(int sock, struct zw_error *e)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return zw_errno(e, errno, "cannot tell who the service manager of the user is");
	if (peer.pid <= 0 || peer.uid != geteuid())
		return zw_error(e, EACCES, "the service manager of the user belongs to another user or container");
	return 0;
}

int cgroup_scope_enter(const char *runtime_dir, pid_t pid, usec_t timeout, struct zw_error *e)
{
	cleanup_free char *private = xasprintf("%s/systemd/private", runtime_dir);
	cleanup_free char *bus = xasprintf("%s/bus", runtime_dir);
	cleanup_free struct link *l = xcalloc(1, sizeof *l);
	cleanup_fd int sock = connect_to(private);
	char name[CGROUP_NAME_SIZE], unit[CGROUP_NAME_SIZE + 8];
	bool by_bus = sock < 0;
	int r = cgroup_new_name(name);

	if (r < 0)
		return zw_errno(e, -r, "cannot name a scope");
	if (by_bus)
		sock = connect_to(bus);
	if (sock < 0)
		return zw_errno(e, -sock, "no service manager of the user below %s", runtime_dir);
	r = check_peer(sock, e);
	if (r < 0)
		return r;
	(void) snprintf(unit, sizeof unit, "%s.scope", name);
	l->sock = sock;
	l->until = now_monotonic() + timeout;
	l->e = e;
	return converse(l, by_bus, unit, pid);
}
