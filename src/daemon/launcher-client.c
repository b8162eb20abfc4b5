#include "daemon/launcher-client.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/own.h"
#include "sandbox/session-wire.h"

enum { LINE_FD = 3, QUEUE_BYTES_MAX = 32 * 1024 * 1024 };

struct queued { /* to be asked for when the launcher takes more */
	struct queued *next;
	char *text;
	int line;
};

struct launcher_client {
	int line; /* -EBADF: it has ended */
	pid_t pid;
	struct event *readable, *writable;
	struct queued *first, **last;
	size_t queue_bytes;
	uint32_t next;
	void (*gone)(void *arg);
	void *arg;
};

/* ---- Start. ---- */

/* Signals as by default, a group of its own: what a terminal sends to the daemon is not meant for sandboxes, which end in order.
 */
static int set_attributes(posix_spawnattr_t *attributes)
{
	sigset_t none, all;
	int r = posix_spawnattr_init(attributes);

	(void) sigemptyset(&none);
	(void) sigfillset(&all);
	if (r == 0)
		r = posix_spawnattr_setsigmask(attributes, &none);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attributes, &all);
	if (r == 0)
		r = posix_spawnattr_setpgroup(attributes, 0);
	if (r == 0)
		r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	return r;
}

static int set_actions(posix_spawn_file_actions_t *actions, int line)
{
	int r = posix_spawn_file_actions_init(actions);

	if (r == 0)
		r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", 0, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, line, LINE_FD);
	return r;
}

/* 0 or a positive errno. */
static int spawn_at(const char *path, int line, pid_t *ret)
{
	static char name[] = "zwinger", verb[] = "launcher";
	char *argv[] = {name, verb, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int r = set_actions(&actions, line);

	if (r == 0)
		r = set_attributes(&attributes);
	if (r != 0)
		return r;
	r = posix_spawn(ret, path, &actions, &attributes, argv, environ);
	(void) posix_spawn_file_actions_destroy(&actions);
	(void) posix_spawnattr_destroy(&attributes);
	return r;
}

static int spawn(int line, pid_t *ret, struct zw_error *e)
{
	static const char *const places[] = {"zwinger", "../bin/zwinger", "../../bin/zwinger", "../cli/zwinger", NULL};
	cleanup_free char *path = NULL;
	int r = own_program(places, &path);

	if (r < 0)
		return zw_errno(e, -r, "the program zwinger belongs beside zwingerd or to ../../bin");
	r = spawn_at(path, line, ret);
	return r == 0 ? 0 : zw_errno(e, r, "cannot start %s", path);
}

/* ---- The line. ---- */

/* Without a launcher to take it, the line closes, and its session has ended. */
static void drop_first(struct launcher_client *l)
{
	struct queued *q = l->first;

	l->first = q->next;
	if (l->first == NULL)
		l->last = &l->first;
	l->queue_bytes -= strlen(q->text);
	fd_close(&q->line);
	free(q->text);
	free(q);
}

static void end(struct launcher_client *l)
{
	if (l->readable != NULL)
		event_free(l->readable);
	if (l->writable != NULL)
		event_free(l->writable);
	l->readable = l->writable = NULL;
	while (l->first != NULL)
		drop_first(l);
	fd_close(&l->line);
}

/* The buffer of a socket holds some hundred messages, which is less than may be asked for at once. */
static int enqueue(struct launcher_client *l, char **text, int *line)
{
	struct queued *q;
	size_t size = strlen(*text);

	if (size > QUEUE_BYTES_MAX - l->queue_bytes || event_add(l->writable, NULL) < 0)
		return -EAGAIN;
	q = xcalloc(1, sizeof *q);
	*q = (struct queued){.text = take_ptr(text), .line = take_fd(line)};
	*l->last = q;
	l->last = &q->next;
	l->queue_bytes += size;
	return 0;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct launcher_client *l = arg;

	(void) what;
	while (l->first != NULL) {
		if (fd_send((int) fd, l->first->text, strlen(l->first->text), &l->first->line, 1) == -EAGAIN)
			return;
		drop_first(l); /* one that could not be sent sees its line closed */
	}
	(void) event_del(l->writable);
}

/* What it says ("gone") is known better from the session's own line, which closes with its supervisor: only the end matters. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct launcher_client *l = arg;
	char text[512];
	ssize_t n;

	(void) what;
	do {
		n = recv((int) fd, text, sizeof text, MSG_DONTWAIT);
	} while (n > 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	end(l);
	(void) waitpid(l->pid, NULL, WNOHANG);
	l->gone(l->arg);
}

struct launcher_client *launcher_client_new(struct event_base *base, void (*gone)(void *arg), void *arg, struct zw_error *e)
{
	struct launcher_client *l = xcalloc(1, sizeof *l);
	int pair[2];

	*l = (struct launcher_client){.line = -EBADF, .next = 1, .gone = gone, .arg = arg};
	l->last = &l->first;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		(void) zw_errno(e, errno, "cannot make a line to the launcher");
		return launcher_client_free(l);
	}
	l->line = pair[0];
	if (spawn(pair[1], &l->pid, e) < 0) {
		fd_close(&pair[1]);
		return launcher_client_free(l);
	}
	fd_close(&pair[1]);
	(void) fd_nonblock(l->line);
	l->readable = event_new(base, l->line, EV_READ | EV_PERSIST, on_readable, l);
	l->writable = event_new(base, l->line, EV_WRITE | EV_PERSIST, on_writable, l);
	if (l->readable == NULL || l->writable == NULL || event_add(l->readable, NULL) < 0) {
		(void) zw_error(e, ENOMEM, "there is not enough memory for the launcher's line");
		return launcher_client_free(l);
	}
	return l;
}

struct launcher_client *launcher_client_free(struct launcher_client *l)
{
	if (l == NULL)
		return NULL;
	end(l);
	if (l->pid > 0)
		(void) waitpid(l->pid, NULL, 0); /* it ends as soon as its line does */
	free(l);
	return NULL;
}

int launcher_client_launch(struct launcher_client *l, const char *policy, int *ret_line)
{
	json_t *m = json_pack("{ss sI ss ss}", "t", "launch", "id", (json_int_t) l->next, "policy", policy, "label", "policy");
	cleanup_free char *text = m != NULL ? json_dumps(m, JSON_COMPACT) : NULL;
	int pair[2], r;

	json_decref(m);
	if (text == NULL)
		return -ENOMEM;
	if (l->line < 0)
		return -ESHUTDOWN;
	if (strlen(text) > SESSION_MESSAGE_MAX)
		return -EMSGSIZE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	r = l->first == NULL ? fd_send(l->line, text, strlen(text), &pair[1], 1) : -EAGAIN;
	if (r == -EAGAIN)
		r = enqueue(l, &text, &pair[1]);
	fd_close(&pair[1]);
	if (r < 0) {
		fd_close(&pair[0]);
		return r;
	}
	l->next = l->next < INT32_MAX ? l->next + 1 : 1;
	*ret_line = pair[0];
	return 0;
}
