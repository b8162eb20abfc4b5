/* What the broker says, and its end. */
#include "sandbox/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/egress-internal.h"
#include "sandbox/network.h"
#include "sandbox/secret-source.h"
#include "sandbox/supervise.h"

enum { MESSAGES_AT_ONCE = 64, MESSAGE_FDS = 2 };

#define END_PATIENCE (2 * USEC_PER_SEC)

int egress_send(struct egress *g, json_t *message, const int *fds, size_t nfds)
{
	cleanup_free char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;
	int r;

	json_decref(message);
	if (g->control < 0)
		return -EPIPE;
	if (text == NULL)
		return -ENOMEM;
	r = fd_send(g->control, text, strlen(text), fds, nfds);
	explicit_bzero(text, strlen(text)); /* it may have held a secret */
	return r;
}

/* One message into *ret (NULL: not understood) and `fds`, which has room for MESSAGE_FDS. 1, 0 at its end, or negative errno. */
static int receive(struct egress *g, json_t **ret, int fds[MESSAGE_FDS])
{
	cleanup_free char *text = xcalloc(1, EGRESS_MESSAGE_MAX);
	size_t room = MESSAGE_FDS;
	ssize_t n;

	fds[0] = fds[1] = -EBADF;
	n = fd_recv(g->control, text, EGRESS_MESSAGE_MAX, fds, &room);
	if (n <= 0)
		return n == -ECONNRESET ? 0 : (int) n;
	*ret = json_loadb(text, (size_t) n, JSON_REJECT_DUPLICATES, NULL);
	return 1;
}

static const char *text_of(const json_t *m, const char *key)
{
	return json_string_value(json_object_get(m, key));
}

/* ---- Names. ---- */

static void note_name(struct supervisor *s, const json_t *m)
{
	struct egress *g = &s->egress;
	const char *name = text_of(m, "name"), *address = text_of(m, "address");
	char canonical[NETWORK_NAME_SIZE];
	struct net_address a;
	size_t index;

	if (name == NULL || address == NULL || network_name(name, strlen(name), canonical) < 0 ||
	    network_address(address, strlen(address), &a) < 0 || a.family != AF_INET)
		return;
	index = ntohl(a.v4.s_addr) - NETWORK_NAMES_FIRST;
	if (index >= EGRESS_NAMES_MAX)
		return;
	if (index >= g->name_room) {
		size_t room = index * 2 + 64;

		g->names = xrealloc(g->names, room, sizeof *g->names);
		memset(g->names + g->name_room, 0, (room - g->name_room) * sizeof *g->names);
		g->name_room = room;
	}
	free(g->names[index]);
	g->names[index] = xstrdup(canonical);
}

const char *egress_host(const struct supervisor *s, const struct net_address *a, char buf[NET_ADDRESS_TEXT])
{
	uint32_t address = a->family == AF_INET ? ntohl(a->v4.s_addr) : 0;
	const char *name = network_plan_name_at(s->plan, address);

	if (name != NULL)
		return name;
	if (address >= NETWORK_NAMES_FIRST && address - NETWORK_NAMES_FIRST < s->egress.name_room &&
	    s->egress.names[address - NETWORK_NAMES_FIRST] != NULL)
		return s->egress.names[address - NETWORK_NAMES_FIRST];
	return network_address_text(a, buf);
}

const char *egress_nearest(const struct supervisor *s, const char *host, uint16_t port)
{
	int nearest = network_nearest_rule(s->plan->network, host, port);

	return nearest >= 0 ? s->plan->network->rules[nearest].label : NULL;
}

/* ---- Reports. ---- */

static void note_denial(struct supervisor *s, const json_t *m)
{
	static const char *const kinds[] = {"dns", "network", "http"};
	const char *kind = text_of(m, "kind");
	json_int_t count = json_integer_value(json_object_get(m, "count")), port = json_integer_value(json_object_get(m, "port"));
	struct denial d = {
	    .host = text_of(m, "host"),
	    .port = port > 0 && port <= UINT16_MAX ? (unsigned) port : 0,
	    .address = text_of(m, "address"),
	    .method = text_of(m, "method"),
	    .path = text_of(m, "path"),
	    .rule = text_of(m, "rule"),
	    .why = text_of(m, "why"),
	    .count = count > 0 ? (uint64_t) count : 1,
	};

	for (size_t i = 0; kind != NULL && i < ARRAY_SIZE(kinds); i++)
		if (strcmp(kind, kinds[i]) == 0)
			d.kind = kinds[i];
	if (d.kind != NULL)
		supervisor_denial(s, &d);
}

static void note_connection(struct supervisor *s, const json_t *m)
{
	json_t *entry = connections_add(&s->result->connections, m);

	if (entry != NULL && s->workload->connection != NULL)
		s->workload->connection(s, m);
	if (entry != NULL && s->observer != NULL && s->plan->audit_network)
		s->observer->event(s->observer->ctx, &(struct event){.kind = EVENT_CONNECTION,
								     .when = now_realtime(),
								     .sandbox_id = s->plan->id,
								     .connection = entry});
}

static void note_usage(struct supervisor *s, const json_t *m)
{
	json_int_t sent = json_integer_value(json_object_get(m, "sent")),
		   received = json_integer_value(json_object_get(m, "received"));

	if (sent >= 0 && received >= 0) {
		s->result->usage.net_sent = (uint64_t) sent;
		s->result->usage.net_received = (uint64_t) received;
	}
}

static void note_limit(struct supervisor *s, const json_t *m)
{
	static const char *const limits[] = {"bytes_out", "bytes_in", "requests", "connections"};
	const char *which = text_of(m, "which");

	for (size_t i = 0; which != NULL && i < ARRAY_SIZE(limits); i++) {
		if (strcmp(which, limits[i]) != 0)
			continue;
		supervisor_limit_event(s, limits[i]);
		s->evidence.network_limit = limits[i];
		if (json_is_true(json_object_get(m, "kill")))
			supervisor_kill(s, KILLED_NETWORK);
	}
}

static void note_synced(struct supervisor *s, const json_t *m)
{
	json_int_t id = json_integer_value(json_object_get(m, "id"));

	if (id > 0 && id <= INT32_MAX && s->workload->synced != NULL)
		s->workload->synced(s, (uint32_t) id);
}

/* Somebody connected to a published port: the agent connects inside. */
static void ask_inside(struct supervisor *s, const json_t *m)
{
	json_int_t id = json_integer_value(json_object_get(m, "id")), port = json_integer_value(json_object_get(m, "port"));
	struct zw_error e = {0};
	bool published = false;

	for (size_t i = 0; i < s->plan->network->publish_count; i++)
		published = published || s->plan->network->publish[i].port == port;
	if (!published || id <= 0 || id > INT32_MAX) /* the ids above are the workload's */
		return;
	if (s->channel.fd < 0 || s->ended || channel_send_connect(&s->channel, (uint32_t) id, (uint16_t) port, &e) < 0)
		egress_inbound(s, (unsigned) id, -EBADF, EPIPE);
}

void egress_inbound(struct supervisor *s, unsigned id, int fd, int error)
{
	json_t *m = fd >= 0 ? json_pack("{ss si}", "t", "inbound", "id", (int) id)
			    : json_pack("{ss si ss}", "t", "inbound", "id", (int) id, "error", strerror(error));
	cleanup_fd int owned = fd;

	(void) egress_send(&s->egress, m, &owned, fd >= 0 ? 1 : 0); /* a broker that is gone has no use for it */
}

static void handle(struct supervisor *s, const json_t *m)
{
	static const struct {
		const char *type;
		void (*handle)(struct supervisor *s, const json_t *m);
	} handlers[] = {
	    {"name", note_name},   {"denied", note_denial}, {"connection", note_connection}, {"usage", note_usage},
	    {"limit", note_limit}, {"inbound", ask_inside}, {"synced", note_synced},
	};
	const char *type = text_of(m, "t");

	for (size_t i = 0; type != NULL && i < ARRAY_SIZE(handlers); i++)
		if (strcmp(type, handlers[i].type) == 0)
			handlers[i].handle(s, m);
}

/* ---- Readiness. ---- */

static int take_ready(struct egress *g, const json_t *m, int fds[MESSAGE_FDS], struct zw_error *e)
{
	const char *type = text_of(m, "t"), *why = text_of(m, "why");

	if (type != NULL && strcmp(type, "refused") == 0) {
		g->refused = true;
		return zw_error(e, EPERM, "the network broker cannot serve: %.400s", why != NULL ? why : "no reason given");
	}
	if (type == NULL || strcmp(type, "ready") != 0)
		return 0;
	g->ready = true;
	g->trust[0] = take_fd(&fds[0]);
	g->trust[1] = take_fd(&fds[1]);
	return 0;
}

/* From here on the broker counts; when it ends before its time nobody knows what it had not told yet. */
static void begin_usage(struct supervisor *s)
{
	s->result->usage.net_sent = s->result->usage.net_received = 0;
}

int egress_wait(struct supervisor *s, struct zw_error *e)
{
	struct egress *g = &s->egress;

	while (g->started && !g->ready) {
		json_t *m = NULL;
		int fds[MESSAGE_FDS], r = receive(g, &m, fds);

		if (r <= 0)
			return r == 0 ? zw_error(e, EPIPE, "the network broker ended before it served (%s)", "see zwinger doctor")
				      : zw_errno(e, r == -EAGAIN ? ETIMEDOUT : -r, "the network broker does not answer");
		r = take_ready(g, m, fds, e);
		if (r == 0 && g->ready)
			begin_usage(s);
		else if (r == 0)
			handle(s, m);
		json_decref(m);
		fd_close(&fds[0]);
		fd_close(&fds[1]);
		if (r < 0)
			return r;
	}
	return 0;
}

bool egress_was_refused(struct supervisor *s, struct zw_error *e)
{
	struct egress *g = &s->egress;

	/* It does not block: what the broker has to say it has said before it closed. */
	if (g->started && !g->ready && !g->refused && g->control >= 0 && fd_nonblock(g->control) == 0) {
		struct zw_error told = {0};

		(void) egress_wait(s, &told);
		if (g->refused)
			*e = told;
	}
	return g->refused;
}

int egress_trust(void *supervisor, int ret[2], struct zw_error *e)
{
	struct supervisor *s = supervisor;
	int r = egress_wait(s, e);

	if (r < 0)
		return r;
	if (s->egress.trust[0] < 0)
		return zw_error(e, EPROTO, "the network broker made no certificates");
	ret[0] = s->egress.trust[0];
	ret[1] = s->egress.trust[1];
	return 0;
}

/* ---- The loop. ---- */

int egress_watch(struct supervisor *s)
{
	struct epoll_event control = {.events = EPOLLIN, .data.u64 = TAG_EGRESS},
			   secrets = {.events = EPOLLIN, .data.u64 = TAG_SECRETS};
	struct egress *g = &s->egress;
	int r;

	if (!g->started)
		return 0;
	r = fd_nonblock(g->control);
	if (r == 0 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, g->control, &control) < 0)
		r = -errno;
	if (r == 0 && g->secrets >= 0 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, g->secrets, &secrets) < 0)
		r = -errno;
	return r;
}

/* Its sockets closed with it: the network inside is gone, and nothing else is. */
static void broker_ended(struct supervisor *s)
{
	struct egress *g = &s->egress;
	siginfo_t info = {0};

	(void) epoll_ctl(s->epoll, EPOLL_CTL_DEL, g->control, NULL);
	fd_close(&g->control);
	s->due[DUE_EGRESS] = ZW_UNLIMITED;
	if (g->ending)
		return;
	if (syscall(SYS_pidfd_send_signal, g->pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		return;
	if (waitid(P_PIDFD, (id_t) g->pidfd, &info, WEXITED | WNOWAIT) == 0 && info.si_code != CLD_EXITED)
		(void) snprintf(g->fault, sizeof g->fault, "the network broker was ended by signal %d", info.si_status);
	else
		(void) snprintf(g->fault, sizeof g->fault, "the network broker ended by itself with %d", info.si_status);
	s->result->usage.net_sent = s->result->usage.net_received = ZW_UNLIMITED;
	supervisor_denial(s, &(struct denial){.kind = "network", .name = "broker", .why = g->fault});
	(void) snprintf(s->result->network_fault, sizeof s->result->network_fault, "%s: the network was closed", g->fault);
}

void egress_receive(struct supervisor *s)
{
	for (size_t i = 0; i < MESSAGES_AT_ONCE && s->egress.control >= 0; i++) {
		json_t *m = NULL;
		int fds[MESSAGE_FDS], r = receive(&s->egress, &m, fds);

		if (r == -EAGAIN)
			return;
		if (r <= 0) {
			broker_ended(s);
			return;
		}
		handle(s, m);
		json_decref(m);
		fd_close(&fds[0]);
		fd_close(&fds[1]);
	}
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* Something moved or went: a file may be found by way of it (a link to a folder of versions). What is only written to matters
 * when it is the file of a secret, or a neighbour would have one read that is just being written. */
static bool concerns_secret(const struct plan *plan, const struct inotify_event *event)
{
	if ((event->mask & (IN_CLOSE_WRITE | IN_ATTRIB)) == 0 || event->len == 0)
		return true;
	for (size_t i = 0; i < plan->secret_count; i++)
		if (plan->secrets[i].file != NULL && strcmp(base_name(plan->secrets[i].file), event->name) == 0)
			return true;
	return false;
}

static bool take_events(struct supervisor *s)
{
	union {
		char bytes[4096];
		struct inotify_event align;
	} events;
	bool concerned = false;
	ssize_t n;

	while ((n = read(s->egress.secrets, events.bytes, sizeof events)) > 0)
		for (char *at = events.bytes; at < events.bytes + n;
		     at += sizeof(struct inotify_event) + ((struct inotify_event *) (void *) at)->len)
			concerned = concerned || concerns_secret(s->plan, (struct inotify_event *) (void *) at);
	return concerned;
}

/* Gone or unusable: what was valid before must not be used any longer, nor by a broker that does not listen. */
static void revoke_secret(struct supervisor *s, const struct secret_source *source)
{
	int r = egress_send(&s->egress, json_pack("{ss ss sn}", "t", "secret", "name", source->name, "value"), NULL, 0);

	if (r < 0 && r != -EPIPE)
		(void) syscall(SYS_pidfd_send_signal, s->egress.pidfd, SIGKILL, NULL, 0);
}

void egress_secrets_changed(struct supervisor *s)
{
	if (!take_events(s))
		return;
	for (size_t i = 0; i < s->plan->secret_count; i++) {
		const struct secret_source *source = &s->plan->secrets[i];
		struct zw_error e = {0};

		if (source->file != NULL && egress_send_secret(s, source, &e) < 0)
			revoke_secret(s, source);
	}
}

void egress_end(struct supervisor *s)
{
	struct egress *g = &s->egress;

	if (!g->started || g->control < 0 || g->ending)
		return;
	g->ending = true;
	(void) egress_send(g, json_pack("{ss}", "t", "end"), NULL, 0);
	s->due[DUE_EGRESS] = now_monotonic() + END_PATIENCE;
}

bool egress_over(const struct supervisor *s)
{
	return !s->egress.started || s->egress.control < 0;
}

void egress_done(struct supervisor *s)
{
	struct egress *g = &s->egress;

	if (g->started) {
		(void) kill(g->pid, SIGKILL); /* not reaped yet: the pid is its own still */
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	for (size_t i = 0; i < g->name_room; i++)
		free(g->names[i]);
	free(g->names);
	fd_close(&g->control);
	fd_close(&g->pidfd);
	fd_close(&g->trust[0]);
	fd_close(&g->trust[1]);
	fd_close(&g->secrets);
	*g = (struct egress){.control = -EBADF, .pidfd = -EBADF, .trust = {-EBADF, -EBADF}, .secrets = -EBADF};
}
