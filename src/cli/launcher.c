/* zwinger launcher: forks the supervisors of sessions for the daemon.
 *
 * Theory of operation. A fork costs what its parent has in memory, and a process that clones must have no threads; so the daemon,
 * which grows, asks this process, which stays as small as it starts. Descriptor 3 is the line to the daemon, a SOCK_SEQPACKET
 * socket, one JSON object a message:
 *
 *     daemon -> launcher   launch {"id", "policy": text of a policy, "label": what the policy is called in messages}
 *                          fd: the supervisor's end of the session's socket (sandbox/session-wire.h)
 *     launcher -> daemon   gone {"id", "status": as from a shell}: the supervisor has ended, or could not be started
 *
 * The child decodes the policy, makes the plan and becomes the supervisor. It keeps nothing of the launcher's. When the launcher
 * ends, sessions go on: each lives as long as its own line. What can be made ready before it is asked for (groups, namespaces)
 * would be kept here and handed to the child by the fork.
 *
 * The daemon is trusted; it has checked who may ask for what. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/audit.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/plan-checks.h"
#include "isolation/level.h"
#include "policy/policy.h"
#include "sandbox/plan.h"
#include "sandbox/session-wire.h"
#include "sandbox/session.h"

enum { LINE_FD = 3, EXIT_REFUSED = 125 };

struct child {
	pid_t pid;
	json_int_t id;
};

struct launcher {
	int line, signals;
	sigset_t mask; /* as it was */
	struct child *children;
	size_t count, room;
};

/* ---- The supervisor. ---- */

/* Below what the policy says. The times of a policy hold for each process, and none is meant where it says none. */
static const char session_defaults[] = "{\"version\": 1, \"limits\": {\"time\": null, \"cpu_time\": null}}";

static int make_plan(const char *text, const char *label, struct plan *ret, struct policy_errors *errors)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy policy = {0};
	int r = policy_stack_add_text(stack, "session", session_defaults, strlen(session_defaults), errors);

	if (r == 0)
		r = policy_stack_add_text(stack, label, text, strlen(text), errors);
	if (r == 0)
		r = policy_stack_resolve(stack, &policy, errors);
	if (r == 0) {
		r = plan_check_built(&policy, errors);
		if (r == 0)
			r = plan_make_session(&policy, ret, errors);
		policy_done(&policy);
	}
	policy_stack_locate(stack, errors);
	policy_stack_free(stack);
	if (r < 0)
		return r;
	r = plan_prepare_level(ret, errors);
	if (r == 0)
		r = plan_check_sources(ret, errors);
	if (r < 0)
		plan_done(ret);
	return r;
}

/* Tells two observers: the daemon, and the audit file where the policy has one. */
struct observers {
	struct observer daemon, file;
};

static void tell_both(void *ctx, const struct event *e)
{
	const struct observers *o = ctx;

	o->daemon.event(o->daemon.ctx, e);
	if (o->file.event != NULL)
		o->file.event(o->file.ctx, e);
}

static int open_audit(const struct plan *plan, struct audit **ret, struct zw_error *e)
{
	*ret = NULL;
	if (plan->audit_file == NULL)
		return 0;
	if (audit_path_is_exposed(plan, plan->audit_file))
		return zw_error(e, EACCES,
				"audit.file: it lies in a folder that the code inside can write to; choose another place");
	return audit_open(plan->audit_file, ret, e);
}

static void live(struct session *session, const struct plan *plan)
{
	const struct isolation_ops *ops = isolation_find(plan->isolation);
	struct observers observers = {.daemon = session_observer(session, audit_record)};
	struct observer both = {.ctx = &observers, .event = tell_both};
	struct audit *audit = NULL;
	struct zw_error e = {0};

	if (ops == NULL) {
		session_refuse(session, "not_enforceable", "this isolation level is not part of this build", NULL);
		return;
	}
	if (open_audit(plan, &audit, &e) < 0) {
		session_refuse(session, "unavailable", e.text, NULL);
		return;
	}
	if (audit != NULL)
		observers.file = audit_observer(audit);
	session_run(session, plan, ops, &both);
	if (audit_close(audit, &e) < 0)
		log_error("%s", e.text);
}

static void supervise_session(int line, const char *policy, const char *label, usec_t begun)
{
	struct session *session = session_new(line, begun);
	struct policy_errors errors = {0};
	struct plan plan = {.root_fd = -EBADF};

	if (make_plan(policy, label, &plan, &errors) < 0) {
		session_refuse(session, "invalid_policy", "the policy cannot be used", &errors);
	} else {
		live(session, &plan);
		plan_done(&plan);
	}
	policy_errors_done(&errors);
	session_free(session);
}

/* ---- The launcher. ---- */

static const int read_here[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};

static int take_signals(struct launcher *l)
{
	struct sigaction by_default = {.sa_handler = SIG_DFL};
	sigset_t set;

	(void) sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(read_here); i++) {
		(void) sigaddset(&set, read_here[i]);
		(void) sigaction(read_here[i], &by_default, NULL); /* whatever a parent has left ignored */
	}
	(void) sigprocmask(SIG_BLOCK, &set, &l->mask);
	l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return l->signals < 0 ? -errno : 0;
}

static void tell_gone(const struct launcher *l, json_int_t id, int status)
{
	char text[96];

	(void) snprintf(text, sizeof text, "{\"t\":\"gone\",\"id\":%lld,\"status\":%d}", (long long) id, status);
	(void) fd_send(l->line, text, strlen(text), NULL, 0); /* a daemon that is gone shows at the line's end */
}

static void note_child(struct launcher *l, pid_t pid, json_int_t id)
{
	if (l->count == l->room) {
		l->room = l->room == 0 ? 64 : l->room * 2;
		l->children = xrealloc(l->children, l->room, sizeof *l->children);
	}
	l->children[l->count++] = (struct child){.pid = pid, .id = id};
}

static void reap(struct launcher *l)
{
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0)
			return;
		for (size_t i = 0; i < l->count; i++) {
			if (l->children[i].pid != pid)
				continue;
			tell_gone(l, l->children[i].id, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
			l->children[i] = l->children[--l->count];
			break;
		}
	}
}

/* Nobody but the child could say it better. */
static void refuse(int *line, int error)
{
	struct session *session = session_new(take_fd(line), 0);
	char reason[128];

	(void) snprintf(reason, sizeof reason, "cannot start a supervisor: %s", strerror(error));
	session_refuse(session, "unavailable", reason, NULL);
	session_free(session);
}

/* True in the child, once its session is over. */
static bool launch(struct launcher *l, const json_t *m, int *line)
{
	const char *policy = json_string_value(json_object_get(m, "policy")),
		   *label = json_string_value(json_object_get(m, "label"));
	json_int_t id = json_integer_value(json_object_get(m, "id"));
	usec_t begun = now_monotonic();
	pid_t pid;

	if (policy == NULL || *line < 0) {
		tell_gone(l, id, EXIT_REFUSED);
		return false;
	}
	pid = fork();
	if (pid == 0) {
		fd_close(&l->line);
		fd_close(&l->signals);
		(void) sigprocmask(SIG_SETMASK, &l->mask, NULL);
		(void) prctl(PR_SET_NAME, "zwinger-session"); /* for whoever looks at a list of processes */
		supervise_session(take_fd(line), policy, label != NULL ? label : "policy", begun);
		return true;
	}
	if (pid > 0) {
		note_child(l, pid, id);
		return false;
	}
	refuse(line, errno);
	tell_gone(l, id, EXIT_REFUSED);
	return false;
}

/* 1: go on; 0: the daemon has closed the line; -ECHILD: we are a child, and its work is done. */
static int read_request(struct launcher *l)
{
	cleanup_free char *text = NULL;
	cleanup_fd int line = -EBADF;
	ssize_t n = fd_next_size(l->line);
	size_t room = 1;
	const char *type;
	bool child = false;
	json_t *m;

	if (n <= 0 || n > SESSION_MESSAGE_MAX)
		return 0;
	text = xrealloc(NULL, (size_t) n, 1);
	n = fd_recv(l->line, text, (size_t) n, &line, &room);
	if (n <= 0)
		return 0;
	m = json_loadb(text, (size_t) n, JSON_REJECT_DUPLICATES, NULL);
	type = json_string_value(json_object_get(m, "t"));
	if (type != NULL && strcmp(type, "launch") == 0)
		child = launch(l, m, &line);
	json_decref(m);
	return child ? -ECHILD : 1;
}

/* False when we were told to end. */
static bool read_signals(struct launcher *l)
{
	struct signalfd_siginfo info;
	bool go_on = true;

	while (read(l->signals, &info, sizeof info) == sizeof info)
		go_on = go_on && info.ssi_signo == SIGCHLD;
	reap(l);
	return go_on;
}

static int loop(struct launcher *l)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = l->line, .events = POLLIN}, {.fd = l->signals, .events = POLLIN}};
		int r = poll(fds, ARRAY_SIZE(fds), -1);

		if (r < 0 && errno != EINTR)
			return EXIT_REFUSED;
		if (r < 0)
			continue;
		if (fds[1].revents != 0 && !read_signals(l))
			return 0;
		if (fds[0].revents == 0)
			continue;
		r = read_request(l);
		if (r <= 0)
			return 0;
	}
}

int cli_launcher(int argc, char **argv)
{
	struct launcher l = {.line = LINE_FD, .signals = -EBADF};
	int type = 0, status;
	socklen_t size = sizeof type;

	(void) argv;
	if (argc != 1 || getsockopt(LINE_FD, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET ||
	    fcntl(LINE_FD, F_SETFD, FD_CLOEXEC) < 0) {
		log_error("zwinger launcher is started by the daemon, with a line to it");
		return EXIT_REFUSED;
	}
	if (take_signals(&l) < 0) {
		log_error("cannot read signals: %s", strerror(errno));
		return EXIT_REFUSED;
	}
	status = loop(&l);
	free(l.children);
	fd_close(&l.signals);
	return status;
}
