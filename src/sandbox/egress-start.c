/* Starting the broker: the program, its configuration, secrets, and the sockets that it serves. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/own.h"
#include "sandbox/egress-internal.h"
#include "sandbox/secret-exposure.h"
#include "sandbox/secret-source.h"
#include "sandbox/supervise.h"

#define PROGRAM "zwinger-egress"
#define JAVA_KEY_STORE "/etc/ssl/certs/java/cacerts"

enum { CONTROL_FD = 3, PATIENCE_SECONDS = 10 };

int egress_program(char **path, struct zw_error *e)
{
	/* Beside our own program (a build folder), or where `make install` puts it. */
	static const char *const places[] = {PROGRAM, "../libexec/zwinger/" PROGRAM, NULL};
	int r = own_program(places, path);

	return r == 0 ? 0
		      : zw_errno(e, -r,
				 "the network broker " PROGRAM " belongs beside the program zwinger or to ../libexec/zwinger; "
				 "install it, or leave network out of the policy");
}

/* Only what OpenSSL is told about the host's trust store goes along. */
static void environment(char *list[3], char *text[2])
{
	static const char *const names[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);

		text[i] = value != NULL ? xasprintf("%s=%s", names[i], value) : NULL;
		if (text[i] != NULL)
			list[count++] = text[i];
	}
	list[count] = NULL;
}

static int actions_for(posix_spawn_file_actions_t *actions, int control)
{
	int r = posix_spawn_file_actions_init(actions);

	if (r != 0)
		return r;
	r = posix_spawn_file_actions_adddup2(actions, control, CONTROL_FD);
	for (int fd = 0; r == 0 && fd <= 2; fd++)
		r = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
	return r;
}

/* In a session of its own: keys of the caller's terminal are not for it. */
static int spawn(const char *path, int control, pid_t *ret)
{
	char *argv[] = {(char[]){PROGRAM}, NULL}, *env[3], *text[2];
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int r = posix_spawnattr_init(&attributes);

	if (r != 0)
		return -r;
	environment(env, text);
	(void) sigemptyset(&none);
	(void) sigfillset(&all);
	(void) posix_spawnattr_setsigmask(&attributes, &none);
	(void) posix_spawnattr_setsigdefault(&attributes, &all);
	(void) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	r = actions_for(&actions, control);
	if (r == 0)
		r = posix_spawn(ret, path, &actions, &attributes, argv, env);
	(void) posix_spawn_file_actions_destroy(&actions);
	(void) posix_spawnattr_destroy(&attributes);
	free(text[0]);
	free(text[1]);
	return -r;
}

static int start_program(struct egress *g, struct zw_error *e)
{
	const struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
	cleanup_fd int theirs = -EBADF;
	cleanup_free char *path = NULL;
	int sockets[2], r = egress_program(&path, e);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return zw_errno(e, errno, "cannot make the broker's control socket");
	g->control = sockets[0];
	theirs = sockets[1];
	/* Nothing that is waited for here may take for ever. */
	if (setsockopt(g->control, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
	    setsockopt(g->control, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0)
		return zw_errno(e, errno, "cannot set up the broker's control socket");
	if (theirs == CONTROL_FD) { /* dup2 onto itself would leave it close-on-exec */
		int moved = fcntl(theirs, F_DUPFD_CLOEXEC, CONTROL_FD + 1);

		if (moved < 0)
			return zw_errno(e, errno, "cannot move descriptors");
		fd_close(&theirs);
		theirs = moved;
	}
	r = spawn(path, theirs, &g->pid);
	if (r < 0)
		return zw_errno(e, -r, "cannot start %s", path);
	g->started = true;
	g->pidfd = (int) syscall(SYS_pidfd_open, g->pid, 0);
	return g->pidfd < 0 ? zw_errno(e, errno, "cannot watch the broker") : 0;
}

/* ---- Configuration. ---- */

static int memory_file(const char *text, size_t size)
{
	cleanup_fd int fd = memfd_create("zwinger-rules", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? -errno : fd_write_all(fd, text, size);

	if (r == 0 &&
	    (lseek(fd, 0, SEEK_SET) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0))
		r = -errno;
	return r < 0 ? r : take_fd(&fd);
}

/* A key store for Java costs more than all other certificates; it is made where the system tree has one to cover. */
static bool has_java(const struct plan *plan)
{
	cleanup_free char *path = xasprintf("%s" JAVA_KEY_STORE, plan->root != NULL ? plan->root : "");
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);

	return fd >= 0;
}

static int send_config(struct supervisor *s, struct zw_error *e)
{
	cleanup_free char *rules = network_to_json(s->plan->network);
	cleanup_free char *text = NULL;
	json_t *network = rules != NULL ? json_loads(rules, 0, NULL) : NULL;
	json_t *document = json_pack("{so ss sb}", "network", network != NULL ? network : json_null(), "id", s->plan->id, "java",
				     (int) has_java(s->plan));
	cleanup_fd int fd = -EBADF;
	int r;

	text = document != NULL ? json_dumps(document, JSON_COMPACT) : NULL;
	json_decref(document);
	if (text == NULL)
		return zw_errno(e, ENOMEM, "cannot write down the network rules");
	fd = memory_file(text, strlen(text));
	if (fd < 0)
		return zw_errno(e, -fd, "cannot write down the network rules");
	r = egress_send(&s->egress, json_pack("{ss}", "t", "config"), &fd, 1);
	return r < 0 ? zw_errno(e, -r, "cannot send the rules to the broker") : 0;
}

int egress_send_secret(struct supervisor *s, const struct secret_source *source, struct zw_error *e)
{
	char *value = NULL;
	size_t size = 0;
	int r = secret_read(source, &value, &size, e);
	json_t *text;

	if (r == 0)
		r = secret_value_hidden(s->plan, source, value, size, e);
	if (r < 0) {
		secret_wipe(&value, size);
		return r;
	}
	text = json_stringn(value, size);
	secret_wipe(&value, size);
	if (text == NULL)
		return zw_error(e, EILSEQ, "the secret %s is not text in UTF-8", source->name);
	r = egress_send(&s->egress, json_pack("{ss ss so}", "t", "secret", "name", source->name, "value", text), NULL, 0);
	return r < 0 ? zw_errno(e, -r, "cannot send a secret to the broker") : 0;
}

/* The folder of each file is watched: files are mostly replaced, not written to. One that is being written to counts when it is
 * closed: half a value is another value. */
static int watch_secret(struct egress *g, const struct secret_source *source, struct zw_error *e)
{
	cleanup_free char *folder = NULL;
	char *slash;

	if (source->file == NULL)
		return 0;
	if (g->secrets < 0)
		g->secrets = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	folder = xstrdup(source->file);
	slash = strrchr(folder, '/');
	if (slash != NULL)
		slash[slash == folder ? 1 : 0] = '\0';
	if (g->secrets < 0 || inotify_add_watch(g->secrets, folder,
						IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_ATTRIB |
						    IN_DELETE_SELF | IN_MOVE_SELF) < 0)
		return zw_errno(e, errno, "the secret %s: cannot watch %s", source->name, source->file);
	return 0;
}

static int send_secrets(struct supervisor *s, struct zw_error *e)
{
	for (size_t i = 0; i < s->plan->secret_count; i++) {
		int r = secret_source_hidden(s->plan, &s->plan->secrets[i], e);

		(void) snprintf(s->egress.key, sizeof s->egress.key, "secrets.%.80s", s->plan->secrets[i].name);
		if (r == 0)
			r = watch_secret(&s->egress, &s->plan->secrets[i], e);
		if (r == 0)
			r = egress_send_secret(s, &s->plan->secrets[i], e);
		if (r < 0)
			return r;
	}
	s->egress.key[0] = '\0';
	return 0;
}

/* ---- Published ports. ---- */

static int open_port(const struct policy_publish *p, struct zw_error *e)
{
	bool v6 = strchr(p->bind, ':') != NULL;
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(p->host_port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(p->host_port)};
	cleanup_fd int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, r;

	if (fd < 0)
		return zw_errno(e, errno, "cannot publish a port");
	if (inet_pton(v6 ? AF_INET6 : AF_INET, p->bind, v6 ? (void *) &six.sin6_addr : (void *) &four.sin_addr) != 1)
		return zw_error(e, EINVAL, "cannot publish on %s: it is no address", p->bind);
	(void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	r = v6 ? bind(fd, (struct sockaddr *) &six, sizeof six) : bind(fd, (struct sockaddr *) &four, sizeof four);
	if (r < 0 || listen(fd, SOMAXCONN) < 0)
		return zw_errno(e, errno, "network.publish: cannot listen at %s port %u", p->bind, p->host_port);
	return take_fd(&fd);
}

static int publish(struct supervisor *s, struct zw_error *e)
{
	const struct network *n = s->plan->network;

	for (size_t i = 0; i < n->publish_count; i++) {
		const struct policy_publish *p = &n->publish[i];

		(void) snprintf(s->egress.key, sizeof s->egress.key, "network.publish[%zu]", i);
		cleanup_free char *label = xasprintf(strchr(p->bind, ':') != NULL ? "[%s]:%u" : "%s:%u", p->bind, p->host_port);
		cleanup_fd int fd = open_port(p, e);
		int r = fd;

		if (r >= 0)
			r = egress_send(&s->egress,
					json_pack("{ss s[{si ss}]}", "t", "publish", "entries", "port", p->port, "label", label),
					&fd, 1);
		if (r < 0)
			return e->code != 0 ? r : zw_errno(e, -r, "cannot hand a published port to the broker");
	}
	s->egress.key[0] = '\0';
	return 0;
}

/* ---- Listeners. ---- */

static json_t *listener_to_json(const struct transit_listener *l)
{
	char text[INET6_ADDRSTRLEN];

	if (inet_ntop(l->v6 ? AF_INET6 : AF_INET, l->address, text, sizeof text) == NULL)
		return NULL;
	return json_pack("{ss si sb}", "address", text, "port", l->port, "udp", (int) l->udp);
}

int egress_give(void *supervisor, size_t first, const int *fds, size_t count)
{
	struct supervisor *s = supervisor;
	json_t *list = json_array();

	if (first > s->plan->transit.listener_count || count > s->plan->transit.listener_count - first) {
		json_decref(list);
		return -EPROTO;
	}
	for (size_t i = 0; i < count; i++)
		(void) json_array_append_new(list, listener_to_json(&s->plan->transit.listeners[first + i]));
	return egress_send(&s->egress, json_pack("{ss so}", "t", "listeners", "listeners", list), fds, count);
}

int egress_start(struct supervisor *s, struct zw_error *e)
{
	int r;

	if (s->plan->network == NULL || s->plan->isolation == ISOLATION_PROCESS)
		return 0;
	r = secret_ca_hidden(s->plan, s->plan->network->ca_file, e);
	if (r == 0)
		r = start_program(&s->egress, e);
	if (r == 0)
		r = send_config(s, e);
	if (r == 0)
		r = send_secrets(s, e);
	if (r == 0)
		r = publish(s, e);
	s->egress.refused = r < 0;
	return r;
}
