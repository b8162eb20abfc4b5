#include "daemon/sandbox-outlive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/contexts.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/processes.h"
#include "daemon/sandbox-contexts.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox.h"
#include "sandbox/session-wire.h"

enum { ADOPT_SECONDS = 10 };

static const char restarted[] = "daemon_restarted", restarted_reason[] = "the service ended without notice and was started again";

/* A sandbox's socket. While it is taken over: whether it was paused, and for how long it had time left then. */
struct sandbox_outlive {
	int listener; /* -EBADF: not yet given */
	bool was_paused, paused, complete;
	usec_t left;
};

static bool is_wanted(const struct sandboxes *all)
{
	const char *what = all->daemon->options->on_restart;

	return all->outlive_dir >= 0 && what != NULL && strcmp(what, "adopt") == 0;
}

int sandbox_outlive_open(struct sandboxes *all, struct zw_error *e)
{
	int dir = all->daemon->state.fd;

	if (dir < 0)
		return 0;
	if (mkdirat(dir, "sessions", 0700) < 0 && errno != EEXIST)
		return zw_errno(e, errno, "cannot make the folder sessions in the state directory");
	all->outlive_dir = openat(dir, "sessions", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (all->outlive_dir < 0 || fchmod(all->outlive_dir, 0700) < 0)
		return zw_errno(e, errno, "cannot use the folder sessions in the state directory");
	return 0;
}

void sandbox_outlive_close(struct sandboxes *all)
{
	fd_close(&all->outlive_dir);
}

/* ---- The socket. ---- */

/* By way of the descriptor: the path of the state directory may be longer than an address may be. */
static int address_of(const struct sandboxes *all, const char *name, struct sockaddr_un *ret)
{
	int n;

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", all->outlive_dir, name);
	return n > 0 && (size_t) n < sizeof ret->sun_path ? 0 : -ENAMETOOLONG;
}

/* 0 and *ret, or negative errno. */
static int listen_at(const struct sandboxes *all, const char *id, int *ret)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	if (fd < 0 || address_of(all, id, &a) < 0)
		return fd < 0 ? -errno : -ENAMETOOLONG;
	if (bind(fd, (const struct sockaddr *) &a, sizeof a) < 0)
		return -errno;
	if (listen(fd, 1) < 0) {
		int error = errno;

		(void) unlinkat(all->outlive_dir, id, 0);
		return -error;
	}
	*ret = take_fd(&fd);
	return 0;
}

static bool is_ours(int fd)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* The line to whoever listens there, -EBADF when nobody does. */
static int connect_to(const struct sandboxes *all, const char *name)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;

	if (fd < 0 || address_of(all, name, &a) < 0 || connect(fd, (const struct sockaddr *) &a, sizeof a) < 0 || !is_ours(fd))
		return -EBADF;
	return take_fd(&fd);
}

static void drop(struct sandbox *s)
{
	if (s->outlive == NULL)
		return;
	fd_close(&s->outlive->listener);
	free(s->outlive);
	s->outlive = NULL;
}

void sandbox_outlive_leave(struct sandbox *s)
{
	drop(s);
}

void sandbox_outlive_end(struct sandbox *s)
{
	if (s->outlive == NULL)
		return;
	(void) unlinkat(s->all->outlive_dir, s->id, 0);
	if (s->outlive->listener >= 0)
		(void) shutdown(s->outlive->listener, SHUT_RDWR); /* which the supervisor sees */
	drop(s);
}

static struct sandbox_outlive *new_outlive(int listener)
{
	struct sandbox_outlive *c = xcalloc(1, sizeof *c);

	c->listener = listener;
	return c;
}

void sandbox_outlive_begin(struct sandbox *s)
{
	const struct sandboxes *all = s->all;
	json_t *m;
	int fd = -EBADF, r;

	if (!is_wanted(all) || s->hidden)
		return;
	r = listen_at(all, s->id, &fd);
	if (r == 0) {
		s->outlive = new_outlive(fd);
		m = json_pack("{ss sI s{sO}}", "t", "carry", "wait_usec", (json_int_t) all->daemon->options->adopt_wait, "memo",
			      "env", s->env);
		r = session_ask(s->session, m, &fd, 1, process_no_answer, NULL, NULL);
	}
	if (r == 0)
		return;
	sandbox_outlive_end(s);
	dlog(all->daemon->log, DLOG_WARNING, "a sandbox that will end with the daemon", dlog_text("sandbox_id", s->id),
	     dlog_text("why", strerror(-r)));
}

void sandbox_outlive_memo(const struct sandbox *s)
{
	if (s->outlive != NULL && s->session != NULL)
		(void) session_ask(s->session, json_pack("{ss s{sO}}", "t", "carry", "memo", "env", s->env), NULL, 0,
				   process_no_answer, NULL, NULL);
}

/* ---- The record. ---- */

static json_t *number_or_null(uint64_t value)
{
	return value > INT64_MAX ? json_null() : json_integer((json_int_t) value);
}

json_t *sandbox_outlive_record(const struct sandbox *s)
{
	const struct sandbox_policy *p = &s->policy;

	return json_pack("{ss so so so sb sI sO? ss? sb}", "policy", p->text, "time", number_or_null(p->time), "cpu_time",
			 number_or_null(p->cpu_time), "output", number_or_null(p->output), "output_kill", (int) p->output_kill,
			 "left", (json_int_t) (s->state == SANDBOX_PAUSED ? s->left : 0), "extras", s->extras, "start_policy",
			 s->start_policy, "start_chosen", (int) s->start_chosen);
}

static uint64_t number_of(const json_t *m, const char *key)
{
	const json_t *value = json_object_get(m, key);

	return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t) json_integer_value(value) : ZW_UNLIMITED;
}

bool sandbox_outlive_restore(struct sandbox *s, const json_t *m)
{
	const char *policy = json_string_value(json_object_get(m, "policy"));
	json_t *extras = json_object_get(m, "extras");
	const char *start = json_string_value(json_object_get(m, "start_policy"));

	if (policy == NULL)
		return false;
	s->start_policy = start != NULL ? xstrdup(start) : NULL;
	s->start_chosen = json_is_true(json_object_get(m, "start_chosen"));
	s->policy.text = xstrdup(policy);
	s->policy.time = number_of(m, "time");
	s->policy.cpu_time = number_of(m, "cpu_time");
	s->policy.output = number_of(m, "output");
	s->policy.output_kill = json_is_true(json_object_get(m, "output_kill"));
	s->extras = json_is_object(extras) ? json_incref(extras) : NULL;
	s->left = number_of(m, "left");
	return true;
}

/* ---- Taking over. ---- */

static bool take_memo(struct sandbox *s, const json_t *m)
{
	json_t *env = json_object_get(json_object_get(m, "memo"), "env");

	if (!json_is_object(env) || !context_env_is_good(env))
		return false;
	json_decref(s->env);
	s->env = json_incref(env);
	return true;
}

bool sandbox_adopted(void *arg, const json_t *m, int *listener)
{
	struct sandbox *s = arg;
	int listening = 0;
	socklen_t size = sizeof listening;

	if (*listener < 0 || getsockopt(*listener, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || listening == 0 ||
	    !take_memo(s, m))
		return false;
	s->outlive->listener = take_fd(listener);
	s->outlive->paused = json_is_true(json_object_get(m, "paused"));
	sandbox_describe(s, m);
	return true;
}

bool sandbox_held(void *arg, const json_t *m, int *fds, size_t nfds)
{
	struct sandbox *s = arg;
	const char *kind = json_string_value(json_object_get(json_object_get(m, "memo"), "kind"));

	(void) nfds; /* as many as are named in `m` */
	if (kind != NULL && strcmp(kind, "process") == 0)
		return process_adopt(s, m, fds);
	if (kind != NULL && strcmp(kind, "context") == 0)
		return sandbox_context_adopt(s, m, fds);
	return process_end_unknown(s, m);
}

static void on_complete(void *arg, const json_t *m, int *fd)
{
	struct sandbox *s = arg;

	(void) fd;
	/* Otherwise the end of the line follows. */
	if (m != NULL && json_integer_value(json_object_get(m, "errno")) == 0 && s->outlive->listener >= 0)
		s->outlive->complete = true;
	else if (m != NULL)
		session_hang_up(s->session);
}

static bool ask(struct sandbox *s)
{
	int line = connect_to(s->all, s->id);

	if (line < 0 || s->policy.text == NULL)
		return fd_close(&line), false;
	s->outlive = new_outlive(-EBADF);
	s->outlive->was_paused = s->expires == ZW_UNLIMITED;
	return sandbox_reconnect(s, line) == 0 && session_adopt(s->session, on_complete, s) == 0;
}

/* Its clock as it stood: what was over while no daemon was there is over now. */
static void go_on(struct sandbox *s)
{
	const struct sandbox_outlive *c = s->outlive;
	usec_t now = now_realtime(), left;

	if (c->was_paused)
		left = s->left != 0 && s->left != ZW_UNLIMITED ? s->left : s->timeout;
	else
		left = s->expires > now ? s->expires - now : 0;
	sandbox_go_on(s, c->paused, left);
	sandbox_event(s, "adopted", json_object());
}

static void on_patience_over(evutil_socket_t fd, short what, void *arg)
{
	bool *over = arg;

	(void) fd;
	(void) what;
	*over = true;
}

static bool is_waited_for(const struct sandboxes *all)
{
	for (const struct sandbox *s = all->newest; s != NULL; s = s->older)
		if (s->state == SANDBOX_STARTING && s->outlive != NULL && !s->outlive->complete)
			return true;
	return false;
}

static void wait_for_all(const struct sandboxes *all)
{
	static const struct timeval patience = {.tv_sec = ADOPT_SECONDS};
	struct event *timer;
	bool over = false;

	timer = event_new(all->daemon->base, -1, 0, on_patience_over, &over);
	if (timer == NULL || event_add(timer, &patience) < 0)
		over = true;
	while (!over && is_waited_for(all) && event_base_loop(all->daemon->base, EVLOOP_ONCE) == 0)
		;
	if (timer != NULL)
		event_free(timer);
}

/* Whoever still waits is not known any more, or was not asked to. */
static void end_others(const struct sandboxes *all)
{
	json_t *m = json_pack("{ss si ss ss}", "t", "end", "id", 1, "status", restarted, "reason", restarted_reason);
	cleanup_free char *text = m != NULL ? json_dumps(m, JSON_COMPACT) : NULL;
	int copy = fcntl(all->outlive_dir, F_DUPFD_CLOEXEC, 3);
	DIR *folder = copy >= 0 ? fdopendir(copy) : NULL;

	json_decref(m);
	if (folder == NULL) {
		fd_close(&copy);
		return;
	}
	rewinddir(folder);
	for (const struct dirent *d = readdir(folder); d != NULL && text != NULL; d = readdir(folder)) {
		const struct sandbox *s = d->d_name[0] != '.' ? sandbox_find(all->daemon, d->d_name) : NULL;
		cleanup_fd int line = -EBADF;

		if (d->d_name[0] == '.' || (s != NULL && s->outlive != NULL))
			continue;
		line = connect_to(all, d->d_name);
		if (line >= 0)
			(void) fd_send(line, text, strlen(text), NULL, 0); /* else nobody is there any more */
		(void) unlinkat(all->outlive_dir, d->d_name, 0);
	}
	(void) closedir(folder);
}

void sandboxes_adopt(struct sandboxes *all)
{
	uint64_t adopted = 0, lost = 0;

	for (struct sandbox *s = all->newest; s != NULL; s = s->older)
		if (s->state == SANDBOX_STARTING && (!is_wanted(all) || !ask(s)))
			sandbox_outlive_leave(s);
	wait_for_all(all);
	for (struct sandbox *s = all->newest; s != NULL; s = s->older) {
		if (s->state != SANDBOX_STARTING)
			continue;
		if (s->outlive != NULL && s->outlive->complete) {
			go_on(s);
			adopted++;
			continue;
		}
		sandbox_lost(s, restarted, restarted_reason);
		lost++;
	}
	if (all->outlive_dir >= 0)
		end_others(all);
	if (adopted > 0)
		dlog(all->daemon->log, DLOG_INFO, "sandboxes taken over from the daemon before this one",
		     dlog_number("sandboxes", adopted));
	if (lost > 0)
		dlog(all->daemon->log, DLOG_WARNING, "sandboxes ended with the daemon before this one",
		     dlog_number("sandboxes", lost));
}
