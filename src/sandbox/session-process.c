/* The processes of a session: from the daemon's "start" to the truth about their ends.
 *
 * A tree. Each process gets a control group within the sandbox's, which it joins before it executes anything; so what it starts
 * is born there, and can be ended, and its CPU time counted, however it detaches itself. One that finds nobody but the agent in
 * the sandbox's own group stays there, since joining is dear: it is the resident until it has ended. Where there is no such
 * group, its tree is what hangs together by parent links and by the session that the process leads: what makes a session of its
 * own and lets its parent die has left it, and lives on until the sandbox ends.
 *
 * The end of a process with its tree is told when the tree is gone: then nobody writes to its pipes any more.
 *
 * Who ran out of memory. The kernel counts its kills for the whole sandbox, and a victim shows as one that died of SIGKILL. A
 * kill is somebody's until it is settled: by the end of a process that nobody else is known to have killed, or when all are found
 * alive, and none is dying, a moment later. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/egress-internal.h"
#include "sandbox/processes.h"
#include "sandbox/result-json.h"
#include "sandbox/session-internal.h"

enum { OOM_LOOKS_MAX = 50 };

#define SETTLE_PATIENCE (1 * USEC_PER_SEC) /* the broker has its own, which is less */
#define LEAVE_PATIENCE (2 * USEC_PER_SEC)  /* for processes that were killed and cannot die */

struct session_process *session_process_find(const struct session *n, uint32_t id)
{
	for (size_t i = 0; i < n->count; i++)
		if (n->processes[i]->id == id)
			return n->processes[i];
	return NULL;
}

static void add(struct session *n, struct session_process *p)
{
	if (n->count == n->room) {
		n->room = n->room == 0 ? 16 : n->room * 2;
		n->processes = xrealloc(n->processes, n->room, sizeof(struct session_process *));
	}
	n->processes[n->count++] = p;
}

/* The group of a process that has ended; where somebody is left in it, it stays. */
static void leave_group(struct session *n, struct cgroup_child *group)
{
	usec_t cpu = cgroup_child_cpu(group);

	if (cgroup_child_remove(&group)) {
		n->gone_cpu += cpu != ZW_UNLIMITED ? cpu : 0;
		return;
	}
	n->left = xrealloc(n->left, n->left_count + 1, sizeof(struct cgroup_child *));
	n->left[n->left_count++] = group;
}

static void sweep_left(struct session *n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n->left_count; i++) {
		usec_t cpu = cgroup_child_cpu(n->left[i]);

		if (!cgroup_child_remove(&n->left[i]))
			n->left[kept++] = n->left[i];
		else
			n->gone_cpu += cpu != ZW_UNLIMITED ? cpu : 0;
	}
	n->left_count = kept;
}

/* Of all groups but the sandbox's own, ever. */
static usec_t cpu_of_groups(const struct session *n)
{
	usec_t sum = n->gone_cpu, cpu;

	for (size_t i = 0; i < n->count; i++) {
		const struct session_process *p = n->processes[i];

		cpu = p->group != NULL && !p->resident ? cgroup_child_cpu(p->group) : 0;
		sum += cpu != ZW_UNLIMITED ? cpu : 0;
	}
	for (size_t i = 0; i < n->left_count; i++) {
		cpu = cgroup_child_cpu(n->left[i]);
		sum += cpu != ZW_UNLIMITED ? cpu : 0;
	}
	return sum;
}

static void tell_denials(struct session *n, struct session_process *p)
{
	if (p->asked == 0)
		return;
	session_line_send(
	    &n->line,
	    json_pack("{ss sI so}", "t", "denials", "id", (json_int_t) p->asked, "denials", result_denials(&p->denials)), NULL);
	p->asked = 0;
	p->asked_due = ZW_UNLIMITED;
}

static void drop(struct session *n, struct session_process *p)
{
	tell_denials(n, p);
	for (size_t i = 0; i < n->count; i++)
		if (n->processes[i] == p) {
			n->processes[i] = n->processes[--n->count];
			break;
		}
	sweep_left(n);
	if (p->resident)
		cgroup_child_forget(&p->group);
	else if (p->group != NULL)
		leave_group(n, p->group);
	fd_close(&p->rest);
	session_hold_done(&p->hold);
	denials_done(&p->denials);
	connections_done(&p->connections);
	free(p->command);
	free(p->cwd);
	free(p);
}

static usec_t earliest(usec_t a, usec_t b)
{
	return a < b ? a : b;
}

void session_process_schedule(struct supervisor *s)
{
	const struct session *n = s->work;
	usec_t due = ZW_UNLIMITED;

	for (size_t i = 0; i < n->count && n->paused_at == 0; i++) {
		const struct session_process *p = n->processes[i];

		due = earliest(due, earliest(earliest(p->leave_due, p->asked_due), earliest(p->wall_due, p->cpu_due)));
	}
	s->due[DUE_WORK] = earliest(due, n->carry.due);
}

static void shift(usec_t *due, usec_t by)
{
	if (*due != ZW_UNLIMITED)
		*due += by;
}

void session_process_shift(struct session *n, usec_t by)
{
	for (size_t i = 0; i < n->count; i++) {
		shift(&n->processes[i]->wall_due, by);
		shift(&n->processes[i]->cpu_due, by);
		shift(&n->processes[i]->leave_due, by);
		shift(&n->processes[i]->asked_due, by);
	}
}

/* ---- Start. ---- */

static const char *const stage_names[] = {
    [EXEC_STAGE_FORK] = "fork",
    [EXEC_STAGE_TTY] = "tty",
    [EXEC_STAGE_CWD] = "cwd",
    [EXEC_STAGE_EXEC] = "exec",
};

static void tell_failed(struct session *n, uint32_t id, int error, uint32_t stage, const char *message)
{
	session_line_send(&n->line,
			  json_pack("{ss sI si ss so}", "t", "failed", "id", (json_int_t) id, "errno", error, "stage",
				    stage < ARRAY_SIZE(stage_names) ? stage_names[stage] : "exec", "message",
				    session_text(message)),
			  NULL);
}

struct request {
	char **argv, **env;
	size_t argc, envc;
	char *cwd;
	const json_t *tty;
	bool channel, program, tree, lasting;
	struct start_request start;
};

static void request_done(struct request *r)
{
	for (size_t i = 0; i < r->argc; i++)
		free(r->argv[i]);
	for (size_t i = 0; i < r->envc; i++)
		free(r->env[i]);
	free(r->argv);
	free(r->env);
	free(r->cwd);
}

static int take_argv(struct request *r, const json_t *list)
{
	size_t count = json_array_size(list);

	r->argv = xcalloc(count + 1, sizeof *r->argv);
	for (size_t i = 0; i < count; i++) {
		const char *text = json_string_value(json_array_get(list, i));

		if (text == NULL)
			return -EINVAL;
		r->argv[r->argc++] = xstrdup(text);
	}
	return count > 0 ? 0 : -EINVAL;
}

static void set_env(struct request *r, const char *name, size_t name_size, char *entry)
{
	for (size_t i = 0; i < r->envc; i++)
		if (strncmp(r->env[i], name, name_size) == 0 && r->env[i][name_size] == '=') {
			free(r->env[i]);
			r->env[i] = entry;
			return;
		}
	r->env[r->envc++] = entry;
}

static bool is_root(const struct request *r)
{
	return (r->start.flags & START_USER) != 0 && r->start.uid == 0;
}

/* What the plan has, and over that what the request says. */
static int take_env(struct request *r, const struct plan *plan, const json_t *object)
{
	const char *name;
	json_t *value;

	if (object != NULL && !json_is_object(object) && !json_is_null(object))
		return -EINVAL;
	r->env = xcalloc(plan->envc + json_object_size(object) + 4, sizeof *r->env);
	for (size_t i = 0; i < plan->envc; i++)
		r->env[r->envc++] = xstrdup(plan->env[i]);
	if (is_root(r)) {
		set_env(r, "HOME", strlen("HOME"), xstrdup("HOME=" PLAN_ROOT_HOME));
		set_env(r, "USER", strlen("USER"), xstrdup("USER=root"));
	}
	if (json_is_object(r->tty))
		set_env(r, "TERM", strlen("TERM"), xstrdup("TERM=xterm-256color"));
	json_object_foreach((json_t *) (uintptr_t) object, name, value)
	{
		if (!json_is_string(value) || *name == '\0' || strchr(name, '=') != NULL)
			return -EINVAL;
		set_env(r, name, strlen(name), xasprintf("%s=%s", name, json_string_value(value)));
	}
	return 0;
}

static int take_user(struct request *r, const struct plan *plan, const json_t *user)
{
	json_int_t uid = json_integer_value(user);

	if (user == NULL || json_is_null(user))
		return 0;
	if (!json_is_integer(user) || uid < 0 || uid >= UINT32_MAX)
		return -EINVAL;
	r->start.flags |= START_USER;
	r->start.uid = (uint32_t) uid;
	r->start.gid = uid == (json_int_t) plan->inside_uid ? plan->inside_gid : (uint32_t) uid;
	return 0;
}

static uint16_t small(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 && value <= UINT16_MAX ? (uint16_t) value : 0;
}

/* A descriptor for each that the request names, in its order. */
static int take_fds(struct request *r, const int *fds, size_t nfds)
{
	bool stdio = (r->start.flags & START_TTY) == 0;
	size_t wanted = (stdio ? 3U : 0) + r->channel + r->program, at = 0;

	if (nfds != wanted)
		return -EINVAL;
	if (stdio) {
		r->start.in = fds[at++];
		r->start.out = fds[at++];
		r->start.err = fds[at++];
	}
	if (r->channel)
		r->start.channel = fds[at++];
	if (r->program)
		r->start.program = fds[at++];
	r->start.flags |= (r->channel ? START_CHANNEL : 0U) | (r->program ? START_PROGRAM : 0U);
	return 0;
}

/* The agent's own working directory means nothing: a relative one is below HOME. */
static char *resolve_cwd(const struct plan *plan, bool root, const char *asked)
{
	const char *home = root ? PLAN_ROOT_HOME : plan->home;

	if (asked == NULL || *asked == '\0')
		return xstrdup(root && strcmp(plan->cwd, plan->home) == 0 ? PLAN_ROOT_HOME : plan->cwd);
	return *asked == '/' ? xstrdup(asked) : xasprintf("%s/%s", home, asked);
}

static int decode(struct supervisor *s, struct request *r, const json_t *m, const int *fds, size_t nfds)
{
	const json_t *cwd = json_object_get(m, "cwd");
	int k;

	r->tty = json_object_get(m, "tty");
	r->channel = json_is_true(json_object_get(m, "channel"));
	r->program = json_is_true(json_object_get(m, "program"));
	r->tree = json_is_true(json_object_get(m, "tree"));
	r->lasting = json_is_true(json_object_get(m, "lasting"));
	if (json_is_object(r->tty)) {
		r->start.flags |= START_TTY;
		r->start.rows = small(r->tty, "rows");
		r->start.columns = small(r->tty, "columns");
	}
	if (s->plan->isolation == ISOLATION_PROCESS)
		r->start.flags |= START_NO_PIDNS;
	k = take_argv(r, json_object_get(m, "argv"));
	if (k == 0)
		k = take_user(r, s->plan, json_object_get(m, "user"));
	if (k == 0)
		k = take_env(r, s->plan, json_object_get(m, "env"));
	if (k == 0)
		k = take_fds(r, fds, nfds);
	if (k == 0 && cwd != NULL && !json_is_null(cwd) && !json_is_string(cwd))
		k = -EINVAL;
	if (k < 0)
		return k;
	r->cwd = resolve_cwd(s->plan, is_root(r), json_string_value(cwd));
	r->start.cwd = r->cwd;
	r->start.argv = r->argv;
	r->start.env = r->env;
	return 0;
}

static usec_t limit_of(const json_t *m, const char *key, usec_t policy)
{
	const json_t *value = json_object_get(m, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return policy;
	return earliest((usec_t) json_integer_value(value), policy);
}

static struct session_process *new_process(struct supervisor *s, uint32_t id, const struct request *r, const json_t *m)
{
	struct session *n = s->work;
	struct session_process *p = xcalloc(1, sizeof *p);

	*p = (struct session_process){
	    .id = id,
	    .tree = r->tree,
	    .tty = (r->start.flags & START_TTY) != 0,
	    .command = xstrdup(r->argv[0]),
	    .cwd = xstrdup(r->cwd),
	    .wall_limit = limit_of(m, "timeout_usec", r->lasting ? ZW_UNLIMITED : s->plan->limits.time),
	    .cpu_limit = limit_of(m, "cpu_usec", r->lasting ? ZW_UNLIMITED : s->plan->limits.cpu_time),
	    .wall_due = ZW_UNLIMITED,
	    .cpu_due = ZW_UNLIMITED,
	    .leave_due = ZW_UNLIMITED,
	    .asked_due = ZW_UNLIMITED,
	    .rest = -EBADF,
	    .started = now_monotonic(),
	    .stood_still = s->stood_still,
	    .oom_before = limits_oom_kills(s),
	};
	if (p->wall_limit != ZW_UNLIMITED)
		p->wall_due = p->started + p->wall_limit;
	add(n, p);
	return p;
}

/* The program of file requests stays as long as the sandbox, and is no code of anybody's: it leaves the sandbox's own group to
 * others. */
static int make_group(struct supervisor *s, const struct request *r, struct session_process *p)
{
	struct session *n = s->work;
	bool taken = r->program;

	for (size_t i = 0; i < n->count; i++)
		taken = taken || n->processes[i]->resident;
	p->resident = !taken && cgroup_child_own(s->sandbox->cgroup, s->sandbox->pid, &p->group) == 0;
	if (!p->resident)
		return cgroup_child_make(s->sandbox->cgroup, p->id, &p->group);
	p->others_before = cpu_of_groups(n);
	return 0;
}

/* The agent refuses it too, but in one word. */
static int check_user(const struct supervisor *s, const struct request *r, struct zw_error *e)
{
	if ((r->start.flags & START_USER) == 0 || r->start.uid == s->plan->inside_uid)
		return 0;
	if (r->start.uid != 0)
		return zw_error(e, EPERM, "no process can run as user %u: there is %s%s (%u) inside", r->start.uid,
				session_has_root(s) ? "root (0) and " : "only ", s->plan->user, s->plan->inside_uid);
	if (session_has_root(s))
		return 0;
	return zw_error(e, EPERM, "no process can run as root, there is only %s (%u) inside: %s", s->plan->user,
			s->plan->inside_uid,
			!s->plan->privileged ? "a second user takes ids of its own, which only a service started by root can give"
			: s->plan->isolation != ISOLATION_CONTAINER
			    ? "a second user takes isolation: container"
			    : "this host has no control group that counts processes of two users together (pids)");
}

static int send_start(struct supervisor *s, struct request *r, struct session_process *p, struct zw_error *e)
{
	int k = make_group(s, r, p);

	/* Where there can be none the tree is held together by less, and "ready" has said so. */
	if (k < 0 && k != -ENOTSUP)
		return zw_errno(e, -k, "cannot make a control group for the process");
	r->start.id = p->id;
	if (p->group != NULL)
		r->start.group_count = (uint32_t) cgroup_child_join_fds(p->group, r->start.groups);
	k = channel_send_start(&s->channel, &r->start, e);
	if (p->group != NULL)
		cgroup_child_joined(p->group);
	return k;
}

void session_process_start(struct supervisor *s, uint32_t id, const json_t *m, int *fds, size_t nfds)
{
	struct session *n = s->work;
	struct session_hold hold = {0};
	struct request r = {.start = {.in = -EBADF, .out = -EBADF, .err = -EBADF, .channel = -EBADF, .program = -EBADF}};
	struct session_process *p = NULL;
	struct zw_error e = {0};
	int k = 0;

	if (n->paused_at != 0)
		k = zw_error(&e, EBUSY, "the sandbox is paused");
	else if (n->count >= SESSION_PROCESSES_MAX)
		k = zw_error(&e, EAGAIN, "there are %d processes already", SESSION_PROCESSES_MAX);
	else if (session_process_find(n, id) != NULL)
		k = zw_error(&e, EEXIST, "there is a process of this number");
	else if (session_hold_take(&hold, json_integer_value(json_object_get(m, "hold")), fds, &nfds) < 0 ||
		 decode(s, &r, m, fds, nfds) < 0)
		k = zw_error(&e, EINVAL, "the request to start a process is malformed");
	else
		k = check_user(s, &r, &e);
	if (k == 0) {
		p = new_process(s, id, &r, m);
		p->hold = hold;
		hold = (struct session_hold){0};
		k = send_start(s, &r, p, &e);
		if (k < 0)
			drop(n, p);
	}
	request_done(&r);
	session_hold_done(&hold);
	if (k < 0)
		tell_failed(n, id, -k, k == -E2BIG ? EXEC_STAGE_EXEC : EXEC_STAGE_FORK, e.text);
	else
		limits_watch(s);
	session_process_schedule(s);
}

/* ---- The end. ---- */

static usec_t cpu_of(const struct supervisor *s, const struct session_process *p)
{
	usec_t used = p->group != NULL ? cgroup_child_cpu(p->group) : ZW_UNLIMITED, others;

	if (p->resident && used != ZW_UNLIMITED) {
		others = cpu_of_groups(s->work) - p->others_before;
		used = used > others ? used - others : 0;
	}

	if (used == ZW_UNLIMITED && p->outside != 0 && p->state == PROCESS_RUNNING)
		used = processes_tree_cpu(s->sandbox->pid, p->outside);
	return used == ZW_UNLIMITED || used < p->cpu ? p->cpu : used;
}

/* The sentences of a run, about this process. */
static void decide(const struct supervisor *s, const struct session_process *p, struct result *ret)
{
	char *argv[] = {p->command, NULL};
	struct plan view = *s->plan;

	view.argv = argv;
	view.argc = 1;
	view.cwd = p->cwd;
	view.limits.time = p->wall_limit;
	view.limits.cpu_time = p->cpu_limit;
	ending_decide(&p->evidence, &view, ret);
}

static bool died_of_kill(const struct session_process *p)
{
	return WIFSIGNALED(p->evidence.wait_status) && WTERMSIG(p->evidence.wait_status) == SIGKILL;
}

static void find_memory_evidence(struct supervisor *s, struct session_process *p)
{
	struct session *n = s->work;
	struct evidence *ev = &p->evidence;
	uint64_t kills = limits_oom_kills(s);

	(void) snprintf(ev->largest, sizeof ev->largest, "%s", s->evidence.largest);
	ev->oom_kills = kills;
	if (kills == ZW_UNLIMITED || p->oom_before == ZW_UNLIMITED)
		return;
	ev->oom_kills = ev->oom_survived = kills - p->oom_before;
	if (!died_of_kill(p) || p->killed || ev->killed_for != KILLED_NOT)
		return;
	if (s->watch.memory) {
		ev->watchdog_killed_main = p->outside != 0 && limits_has_killed(s, p->outside);
		ev->memory_at_kill = s->evidence.memory_at_kill;
	} else if (kills > n->oom_settled) {
		ev->oom_survived = 0;
		n->oom_settled++;
	}
}

static json_t *number_or_null(uint64_t value)
{
	return value == ZW_UNLIMITED ? json_null() : json_integer((json_int_t) value);
}

static void tell_exited(struct supervisor *s, struct session_process *p, const char *status, const char *reason)
{
	struct session *n = s->work;
	bool has = p->evidence.has_main_status;
	int status_word = p->evidence.wait_status;
	usec_t ended = p->ended != 0 ? p->ended : now_monotonic(), still = s->stood_still - p->stood_still;
	json_t *m;

	m = json_pack("{ss sI so so ss so sI sI so sI}", "t", "exited", "id", (json_int_t) p->id, "exit_code",
		      has && WIFEXITED(status_word) ? json_integer(WEXITSTATUS(status_word)) : json_null(), "signal",
		      has && WIFSIGNALED(status_word) ? json_integer(WTERMSIG(status_word)) : json_null(), "status", status,
		      "reason", session_text(reason), "cpu_usec", (json_int_t) cpu_of(s, p), "max_rss", (json_int_t) p->max_rss,
		      "oom_kills", number_or_null(p->evidence.oom_kills), "wall_usec", (json_int_t) (ended - p->started - still));
	if (p->tree) {
		(void) json_object_set_new(m, "denials", result_denials(&p->denials));
		(void) json_object_set_new(m, "connections", connections_to_json(&p->connections));
	}
	session_carry_ended(n, p, m);
	session_line_send(&n->line, m, NULL);
}

/* session_process_synced() gets the id when the broker has told what it knows. */
static bool ask_broker(struct supervisor *s, uint32_t id)
{
	return s->egress.started &&
	       egress_send(&s->egress, json_pack("{ss sI}", "t", "sync", "id", (json_int_t) id), NULL, 0) >= 0;
}

void session_process_tell_denials(struct supervisor *s, struct session_process *p, uint32_t id, bool wait)
{
	tell_denials(s->work, p); /* one waits at a time */
	p->asked = id;
	if (!wait || !ask_broker(s, id)) {
		tell_denials(s->work, p);
		return;
	}
	p->asked_due = now_monotonic() + SETTLE_PATIENCE;
	session_process_schedule(s);
}

/* What the broker has not told yet belongs to it too. True: its end is told when that is known. */
static bool settle(struct supervisor *s, struct session_process *p)
{
	if (!p->tree || p->settling || !ask_broker(s, p->id))
		return false;
	p->settling = true;
	p->state = PROCESS_LEAVING;
	p->leave_due = now_monotonic() + SETTLE_PATIENCE;
	session_process_schedule(s);
	return true;
}

static void finish(struct supervisor *s, struct session_process *p)
{
	struct result truth = {.status = STATUS_ERROR};

	if (settle(s, p))
		return;
	decide(s, p, &truth);
	tell_exited(s, p, run_status_name(truth.status), truth.reason);
	drop(s->work, p);
	session_process_schedule(s);
}

/* Somebody who starts is in the sandbox's own group until it has joined its own. */
static bool somebody_joins(const struct session *n)
{
	for (size_t i = 0; i < n->count; i++)
		if (!n->processes[i]->resident && n->processes[i]->state == PROCESS_STARTING)
			return true;
	return false;
}

static void kill_tree(struct supervisor *s, struct session_process *p)
{
	struct zw_error e = {0};

	/* One that has not started yet is nowhere: the agent has this after the start. */
	if (s->channel.fd >= 0 && p->state != PROCESS_LEAVING)
		(void) channel_send_signal(&s->channel, p->id, SIGKILL, true, &e); /* the agent's end is noticed elsewhere */
	p->kill_waits = p->resident && somebody_joins(s->work);
	if (p->kill_waits)
		return;
	if (p->group != NULL)
		(void) cgroup_child_kill(p->group); /* fails only for a group that is gone */
	else if (p->outside != 0)
		(void) processes_signal_tree(s->sandbox->pid, p->outside, SIGKILL);
}

/* The next thing that tells about the end of what is left of its tree; -ENOENT when nothing is. */
static int rest_fd(const struct supervisor *s, struct session_process *p, short *ret_events)
{
	if (p->group != NULL)
		return cgroup_child_wait_fd(p->group, ret_events);
	*ret_events = POLLIN;
	fd_close(&p->rest);
	p->rest = p->outside != 0 ? processes_tree_open(s->sandbox->pid, p->outside) : -ENOENT;
	return p->rest;
}

/* Asks epoll for it. False when nothing is left, or nothing that tells. */
static bool wait_for_rest(const struct supervisor *s, struct session_process *p)
{
	short events = 0;
	int fd = rest_fd(s, p, &events), r;

	if (fd < 0)
		return false;
	r = supervisor_watch(s, fd, (uint32_t) events, TAG_PROCESS + p->id);
	return r == 0 || r == -EEXIST;
}

static void leave(struct supervisor *s, struct session_process *p)
{
	p->state = PROCESS_LEAVING;
	p->wall_due = p->cpu_due = ZW_UNLIMITED;
	if (p->tree && wait_for_rest(s, p))
		kill_tree(s, p);
	if (!p->tree || !wait_for_rest(s, p)) {
		finish(s, p);
		return;
	}
	p->leave_due = p->ended + LEAVE_PATIENCE;
	session_process_schedule(s);
}

void session_process_event(struct supervisor *s, uint32_t id)
{
	struct session_process *p = session_process_find(s->work, id);

	if (p == NULL || p->state != PROCESS_LEAVING || p->settling)
		return;
	if (!wait_for_rest(s, p))
		finish(s, p);
	else if (p->resident || p->group == NULL)
		kill_tree(s, p); /* one of them has gone; others may have been faster than the signal */
}

/* Somebody has joined, or has not started. */
static void resident_again(struct supervisor *s)
{
	struct session *n = s->work;

	for (size_t i = 0; i < n->count; i++) {
		struct session_process *p = n->processes[i];

		if (!p->kill_waits)
			continue;
		if (p->state == PROCESS_LEAVING)
			session_process_event(s, p->id);
		else
			kill_tree(s, p);
		return;
	}
}

/* ---- What the agent says. ---- */

static void unasked(struct supervisor *s)
{
	struct zw_error e = {0};

	(void) zw_error(&e, EPROTO, "the agent reports about a process that nobody asked for");
	supervisor_fault(s, &e);
}

static void process_started(struct supervisor *s, struct session_process *p, struct msg_in *m)
{
	struct session *n = s->work;
	struct zw_error e = {0};

	if (p->tty != (m->fd >= 0)) {
		(void) zw_error(&e, EPROTO, "the agent gave no terminal, or one that nobody asked for");
		supervisor_fault(s, &e);
		return;
	}
	p->state = PROCESS_RUNNING;
	p->inside = m->started.pid;
	if (p->group == NULL)
		p->outside = processes_find(s->sandbox->pid, p->inside, NULL);
	if (p->cpu_limit != ZW_UNLIMITED)
		p->cpu_due = now_monotonic() + limits_cpu_step(s, p->cpu_limit);
	if (p->hold.count > 0 && p->tty && p->hold.count < SESSION_FDS_MAX)
		p->hold.fds[p->hold.count++] = fcntl(m->fd, F_DUPFD_CLOEXEC, 3);
	session_line_send(&n->line, json_pack("{ss sI si}", "t", "started", "id", (json_int_t) p->id, "pid", (int) p->inside),
			  &m->fd);
	if (p->evidence.killed_for != KILLED_NOT)
		kill_tree(s, p); /* its time was over before it began */
	resident_again(s);
	session_process_schedule(s);
}

static void process_failed(struct supervisor *s, struct session_process *p, const struct msg_exec_failed *m)
{
	struct session *n = s->work;
	struct result truth = {.status = STATUS_ERROR};

	p->evidence.exec_failed = true;
	p->evidence.exec_errno = m->error;
	p->evidence.exec_stage = m->stage;
	decide(s, p, &truth);
	tell_failed(n, p->id, m->error, m->stage, truth.reason);
	drop(n, p);
	resident_again(s);
	session_process_schedule(s);
}

static void process_exited(struct supervisor *s, struct session_process *p, const struct msg_exited *m)
{
	p->ended = now_monotonic();
	p->cpu = m->utime + m->stime;
	p->max_rss = m->max_rss;
	p->evidence.has_main_status = true;
	p->evidence.wait_status = m->status;
	find_memory_evidence(s, p);
	leave(s, p);
}

void session_process_message(struct supervisor *s, struct msg_in *m)
{
	struct session_process *p = session_process_find(s->work, m->id);

	if (m->type == MSG_STARTED && p != NULL && p->state == PROCESS_STARTING)
		process_started(s, p, m);
	else if (m->type == MSG_EXEC_FAILED && p != NULL && p->state == PROCESS_STARTING)
		process_failed(s, p, &m->exec_failed);
	else if (m->type == MSG_EXITED && p != NULL && p->state == PROCESS_RUNNING)
		process_exited(s, p, &m->exited);
	else
		unasked(s);
}

/* ---- Whose it was. ---- */

/* Denials and connections of each command that is waited for, with what it started. A system call is told with its process, and
 * so belongs to one command at most. The broker sees no processes: what it tells belongs to every command that was there. */

static bool is_of(const struct supervisor *s, const struct session_process *p, pid_t pid, uint32_t group)
{
	if (!p->tree || p->state == PROCESS_STARTING)
		return false;
	if (pid == 0)
		return true;
	if (p->resident)
		return group == 0;
	return p->group != NULL ? p->id == group : p->outside != 0 && processes_tree_has(s->sandbox->pid, p->outside, pid);
}

void session_process_denied(struct supervisor *s, const struct denial *what, pid_t pid)
{
	const struct session *n = s->work;
	uint32_t group = pid != 0 && n->count > 0 ? cgroup_child_of(pid) : 0;

	for (size_t i = 0; i < n->count; i++)
		if (is_of(s, n->processes[i], pid, group))
			(void) denials_add(&n->processes[i]->denials, what);
}

void session_process_connection(struct supervisor *s, const json_t *report)
{
	const struct session *n = s->work;

	for (size_t i = 0; i < n->count; i++)
		if (is_of(s, n->processes[i], 0, 0))
			(void) connections_add(&n->processes[i]->connections, report);
}

void session_process_synced(struct supervisor *s, uint32_t id)
{
	struct session *n = s->work;
	struct session_process *p = session_process_find(n, id);

	for (size_t i = 0; i < n->count; i++)
		if (n->processes[i]->asked == id)
			tell_denials(n, n->processes[i]);
	if (p != NULL && p->settling)
		finish(s, p);
}

/* ---- Limits and signals. ---- */

static void end_for(struct supervisor *s, struct session_process *p, enum killed_for why, const char *limit)
{
	p->wall_due = p->cpu_due = ZW_UNLIMITED;
	/* One that has ended by itself in this moment did so: its message is on the way. */
	p->evidence.killed_for = why;
	p->tree = true;
	supervisor_limit_event(s, limit);
	kill_tree(s, p);
}

static void check_cpu(struct supervisor *s, struct session_process *p, usec_t now)
{
	usec_t used = cpu_of(s, p);

	if (used >= p->cpu_limit)
		end_for(s, p, KILLED_CPU_TIME, "cpu_time");
	else
		p->cpu_due = now + limits_cpu_step(s, p->cpu_limit - used);
}

void session_process_due(struct supervisor *s)
{
	struct session *n = s->work;
	usec_t now = now_monotonic();

	session_carry_due(s, now);
	/* From behind: whoever is finished gives its place to the last one. */
	for (size_t i = n->count; i-- > 0;) {
		struct session_process *p = n->processes[i];

		if (p->asked_due <= now)
			tell_denials(n, p);
		if (p->leave_due <= now)
			finish(s, p);
		else if (p->wall_due <= now)
			end_for(s, p, KILLED_WALL_TIME, "time");
		else if (p->cpu_due <= now)
			check_cpu(s, p, now);
	}
	session_process_schedule(s);
}

static int signal_tree(struct supervisor *s, struct session_process *p, int number)
{
	struct zw_error e = {0};

	if (p->resident && somebody_joins(s->work)) {
		p->kill_waits = p->kill_waits || number == SIGKILL;
		return channel_send_signal(&s->channel, p->id, number, true, &e); /* which the agent reads when that is over */
	}
	if (p->group != NULL)
		return number == SIGKILL ? cgroup_child_kill(p->group) : cgroup_child_signal(p->group, number);
	if (p->outside == 0)
		return -ESRCH;
	(void) processes_signal_tree(s->sandbox->pid, p->outside, number);
	return 0;
}

int session_process_signal(struct supervisor *s, struct session_process *p, int number, bool tree)
{
	struct zw_error e = {0};
	int r;

	if (number < 1 || number > SIGRTMAX)
		return EINVAL;
	if (p->state == PROCESS_LEAVING)
		return ESRCH;
	if (number == SIGKILL)
		p->killed = true;
	/* One that has not started yet is in no group; the agent has the signal after the start. */
	if (tree && p->state == PROCESS_RUNNING)
		r = signal_tree(s, p, number);
	else
		r = channel_send_signal(&s->channel, p->id, number, tree, &e);
	return -r;
}

int session_process_meter(struct supervisor *s, struct session_process *p, const json_t *m)
{
	usec_t more = limit_of(m, "cpu_usec", ZW_UNLIMITED), used;

	if (p->state != PROCESS_RUNNING)
		return ESRCH;
	p->cpu_limit = p->cpu_due = ZW_UNLIMITED;
	if (more != ZW_UNLIMITED) {
		used = cpu_of(s, p);
		p->cpu_limit = used + more < used ? ZW_UNLIMITED : used + more;
		p->cpu_due = now_monotonic() + limits_cpu_step(s, more);
	}
	session_process_schedule(s);
	return 0;
}

bool session_process_outlived(struct supervisor *s, uint64_t kills)
{
	struct session *n = s->work;

	supervisor_receive(s); /* ends that were told already */
	if (kills > n->oom_settled && processes_any_dying(s->sandbox->pid) && n->oom_looks++ < OOM_LOOKS_MAX)
		return false;
	n->oom_looks = 0;
	if (kills > n->oom_settled)
		n->oom_settled = kills;
	s->evidence.largest[0] = '\0';
	return true;
}

void session_process_all_over(struct supervisor *s)
{
	struct session *n = s->work;

	while (n->count > 0) {
		struct session_process *p = n->processes[n->count - 1];

		p->ended = p->ended != 0 ? p->ended : s->main_ended;
		p->settling = true; /* the end of all has what is told from now on */
		if (p->state == PROCESS_STARTING)
			tell_failed(n, p->id, ECANCELED, EXEC_STAGE_FORK, "the sandbox has ended");
		else if (p->state == PROCESS_LEAVING || p->evidence.killed_for != KILLED_NOT) {
			finish(s, p);
			continue;
		} else
			tell_exited(s, p, run_status_name(STATUS_CANCELED), "the sandbox has ended");
		drop(n, p);
	}
	while (n->left_count > 0)
		cgroup_child_forget(&n->left[--n->left_count]);
	s->due[DUE_WORK] = ZW_UNLIMITED;
}
