#include "sandbox/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/controls.h"
#include "sandbox/supervise.h"
#include "sandbox/upper.h"

static const int read_by_loop[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT, SIGTSTP};

/* What a parent may have set and what we need: children must be waited for (an ignored SIGCHLD reaps them behind our back), a
 * closed pipe must be an error and not a signal, reading the terminal from the background must be one too. The agent sets
 * everything back for the program inside. */
struct signal_state {
	sigset_t mask;
	struct sigaction child, pipe;
	int fd;
};

static int signals_take(struct signal_state *st)
{
	struct sigaction by_default = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	(void) sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(read_by_loop); i++)
		(void) sigaddset(&set, read_by_loop[i]);
	st->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (st->fd < 0)
		return -errno;
	(void) sigaddset(&set, SIGTTIN);
	(void) sigaddset(&set, SIGTTOU);
	(void) sigprocmask(SIG_BLOCK, &set, &st->mask);
	(void) sigaction(SIGCHLD, &by_default, &st->child);
	(void) sigaction(SIGPIPE, &ignore, &st->pipe);
	return 0;
}

static void signals_give_back(struct signal_state *st)
{
	if (st->fd < 0)
		return;
	fd_close(&st->fd);
	(void) sigaction(SIGCHLD, &st->child, NULL);
	(void) sigaction(SIGPIPE, &st->pipe, NULL);
	(void) sigprocmask(SIG_SETMASK, &st->mask, NULL);
}

static void set_error(struct result *r, const struct zw_error *e)
{
	r->status = STATUS_ERROR;
	r->exit_code = 125;
	(void) snprintf(r->reason, sizeof r->reason, "%s", e->text);
}

static void note_step(struct sandbox *s, const char *name, usec_t *since)
{
	usec_t now = now_monotonic();

	if (s->step_count < ARRAY_SIZE(s->steps))
		s->steps[s->step_count++] = (struct step_time){.name = name, .took = now - *since};
	*since = now;
}

/* Nothing runs when a wall or a limit that the policy asks for cannot be held; best-effort says otherwise, and then the result
 * says what was not. */
static bool refuse(const struct plan *plan, const struct sandbox *s, struct result *r)
{
	size_t lacking = 0;

	if (plan->best_effort)
		return false;
	for (size_t i = 0; i < CONTROL_MAX; i++) {
		const struct control_state *c = &s->controls[i];

		if (!control_is(c, "none"))
			continue;
		policy_errors_add(&r->errors, NULL, 0, control_key((enum control) i), NULL, "%s cannot be enforced here: %s",
				  control_name((enum control) i), c->why != NULL ? c->why : "no mechanism");
		lacking++;
	}
	if (lacking == 0)
		return false;
	r->status = STATUS_REFUSED;
	(void) snprintf(r->reason, sizeof r->reason, "%zu control%s of the policy cannot be enforced here; nothing was run",
			lacking, lacking == 1 ? "" : "s");
	return true;
}

/* The second half of settle, while the level builds its walls: what the groups hold decides whether the run is refused. */
static int settle_late(void *supervisor, struct zw_error *e)
{
	struct supervisor *s = supervisor;
	usec_t since = now_monotonic();
	int r = cgroup_finish(s->sandbox->cgroup, e);

	if (r < 0)
		return r;
	controls_settle(s->plan, s->sandbox->cgroup, s->sandbox->controls);
	note_step(s->sandbox, "control groups of version 1", &since);
	return refuse(s->plan, s->sandbox, s->result) ? -ECANCELED : 0;
}

/* Makes sure that the level can run and that everything is held, or will be when settle_late is through. False, and the result
 * says why. */
static bool settle(struct supervisor *supervisor, struct result *r, usec_t *since)
{
	const struct isolation_ops *ops = supervisor->ops;
	struct sandbox *s = supervisor->sandbox;
	bool late = ops->settles_late && s->plan->privileged;
	struct zw_error e = {0};

	if ((late ? cgroup_begin : cgroup_create)(&s->plan->limits.cgroup, &s->cgroup, &e) < 0) {
		set_error(r, &e);
		return false;
	}
	note_step(s, "control group", since);
	if (ops->probe(s->plan, s->controls, &e) < 0) {
		r->status = STATUS_REFUSED;
		(void) snprintf(r->reason, sizeof r->reason, "isolation level %.16s cannot run here: %.*s", ops->name,
				(int) sizeof r->reason - 64, e.text);
		policy_errors_add(&r->errors, NULL, 0, "isolation", NULL, "%s", r->reason);
		return false;
	}
	if (late) {
		s->settle = settle_late;
		s->settle_ctx = supervisor;
		return true;
	}
	controls_settle(s->plan, s->cgroup, s->controls);
	note_step(s, "probe", since);
	return !refuse(s->plan, s, r);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	if (a == ZW_UNLIMITED || b == ZW_UNLIMITED)
		return a == ZW_UNLIMITED ? b : a;
	return a > b ? a : b;
}

static void take_usage(struct supervisor *s, const struct cgroup_stats *stats)
{
	const struct control_state *controls = s->sandbox->controls;
	usec_t watched_cpu = s->watch.cpu_seen > 0 ? s->watch.cpu_seen : ZW_UNLIMITED;
	usec_t until = s->main_ended != 0 ? s->main_ended : now_monotonic();
	struct result *r = s->result;

	r->usage.wall = s->started != 0 ? until - s->started - s->stood_still : ZW_UNLIMITED;
	r->usage.cpu = stats->cpu != ZW_UNLIMITED ? stats->cpu : larger(larger(s->agent_cpu, watched_cpu), s->reaped_cpu);
	r->usage.memory_peak = stats->memory_peak;
	r->usage.processes_peak = stats->processes_peak;
	r->usage.oom_kills = stats->oom_kills;
	r->usage.io_read = stats->io_read_bytes;
	r->usage.io_write = stats->io_write_bytes;
	if (control_is(&controls[CONTROL_MEMORY], "watchdog")) {
		/* What was seen, and what the kernel says of the largest single process. */
		if (s->watch.memory_peak > 0 || s->agent_rss > 0)
			r->usage.memory_peak = larger(s->watch.memory_peak, s->agent_rss);
		r->usage.oom_kills = s->watch.kills;
	}
	/* Looks from time to time miss the peak, unless they met the limit, which cannot be passed. */
	if (r->usage.processes_peak == ZW_UNLIMITED && s->watch.process_limit_met)
		r->usage.processes_peak = s->plan->limits.cgroup.processes;
	if (s->plan->network == NULL && controls[CONTROL_NETWORK].mechanism != NULL &&
	    !control_is(&controls[CONTROL_NETWORK], "none"))
		r->usage.net_received = r->usage.net_sent = 0; /* there is no way in or out */
}

uint64_t supervisor_usage(struct supervisor *s)
{
	struct cgroup_stats stats;

	cgroup_read_stats(s->sandbox->cgroup, &stats);
	if (stats.cpu == ZW_UNLIMITED)
		stats.cpu = limits_cpu_seen(s);
	take_usage(s, &stats);
	s->result->usage.scratch_peak = limits_scratch_peak(s);
	return stats.processes_current;
}

/* After the last process is gone, before the group is. */
static void account(struct supervisor *s, struct result *r)
{
	struct cgroup_stats stats;

	cgroup_read_final_stats(s->sandbox->cgroup, &stats);
	take_usage(s, &stats);
	if (control_is(&s->sandbox->controls[CONTROL_MEMORY], "watchdog"))
		s->evidence.oom_survived = s->watch.kills; /* it knows whom it killed */
	if (stats.process_limit_hits != ZW_UNLIMITED && stats.process_limit_hits > 0)
		supervisor_denial(s, &(struct denial){.kind = "process", .name = "processes", .count = stats.process_limit_hits});
	s->evidence.oom_kills = r->usage.oom_kills;
	s->workload->decide(s);
}

enum { NOBODY = 65534 };

/* Copies out what was written to mounts with a size. What could not be is a loss that no exit status of the program would show.
 */
static void commit(const struct sandbox *s, struct result *r)
{
	const struct plan *plan = s->plan;

	for (size_t i = 0; i < plan->mount_count && i < ARRAY_SIZE(s->upper); i++) {
		const struct plan_mount *m = &plan->mounts[i];
		/* What the folder of everybody gets is nobody's, as in a mount without a size. */
		bool nobody = m->owner_uid == 0 && m->everybody_writes;
		uid_t uid = !plan->privileged ? (uid_t) -1 : nobody ? NOBODY : m->owner_uid;
		gid_t gid = !plan->privileged ? (gid_t) -1 : nobody ? NOBODY : m->owner_gid;
		struct zw_error e = {0};

		if (s->upper[i] < 0 || upper_commit(s->upper[i], m, uid, gid, &r->changes, &e) >= 0)
			continue;
		(void) snprintf(r->files_fault, sizeof r->files_fault, "%.250s", e.text);
		r->status = STATUS_ERROR;
		r->exit_code = 125;
		(void) snprintf(r->reason, sizeof r->reason, "the command ended, but its files could not all be kept: %.400s",
				e.text);
	}
}

static void compare(const struct plan *plan, struct snapshot *before, struct result *r)
{
	struct zw_error e = {0};

	if (before == NULL)
		r->changes.known = true; /* nothing could be written to: nothing has changed */
	else if (snapshot_compare(before, plan, &r->changes, &e) < 0 && r->files_fault[0] == '\0')
		(void) snprintf(r->files_fault, sizeof r->files_fault, "%.250s", e.text);
}

static void nothing_ran(struct sandbox *s, struct result *r)
{
	r->changes.known = true;
	/* The controls' sentences are the result's from here on. */
	memcpy(r->controls, s->controls, sizeof r->controls);
	memset(s->controls, 0, sizeof s->controls);
	s->cgroup = cgroup_remove(s->cgroup);
}

/* The broker cannot hold what the policy's rules ask for. */
static void refuse_network(const struct supervisor *s, struct result *r, const struct zw_error *e)
{
	const char *key = s->egress.key[0] != '\0' ? s->egress.key : "network";

	r->status = STATUS_REFUSED;
	(void) snprintf(r->reason, sizeof r->reason, "the network rules cannot be held here; nothing was run");
	policy_errors_add(&r->errors, NULL, 0, key, NULL, "%s", e->text);
}

/* The level, or the broker before it, could not build its walls. */
static void end_unbuilt(struct supervisor *s, struct result *r, int error, struct zw_error *e)
{
	if (egress_was_refused(s, e))
		refuse_network(s, r, e);
	else if (error != -ECANCELED || r->status != STATUS_REFUSED)
		set_error(r, e);
	egress_done(s);
	supervise_abandon(s);
	nothing_ran(s->sandbox, r);
}

static int build(struct supervisor *s, struct zw_error *e)
{
	int r = egress_start(s, e);

	s->sandbox->meanwhile = supervise_begin;
	s->sandbox->meanwhile_ctx = s;
	s->sandbox->give_listeners = egress_give;
	s->sandbox->trust = egress_trust;
	s->sandbox->network_ctx = s;
	return r < 0 ? r : s->ops->start(s->sandbox, e);
}

/* What is known when all processes are gone. */
static void settle_result(struct supervisor *s, struct result *r, usec_t begun)
{
	struct zw_error fault = s->evidence.fault;
	bool unheard = s->started == 0 && egress_was_refused(s, &fault);

	if (s->started != 0)
		r->setup = s->started - begun;
	account(s, r);
	if (unheard)
		refuse_network(s, r, &fault);
	egress_done(s);
}

static void run_sandbox(struct supervisor *s, struct result *r, usec_t begun)
{
	struct snapshot *before = NULL;
	struct zw_error e = {0};
	usec_t since = now_monotonic();
	int k;

	k = snapshot_take(s->plan, &before, &e);
	if (k == 0 && before != NULL)
		note_step(s->sandbox, "snapshot of writable folders", &since);
	if (k == 0)
		k = build(s, &e);
	if (k < 0) {
		end_unbuilt(s, r, k, &e);
		(void) snapshot_free(before);
		return;
	}
	supervise(s);
	settle_result(s, r, begun);
	if (s->started != 0) {
		commit(s->sandbox, r);
		compare(s->plan, before, r);
	} else if (s->evidence.exec_failed) {
		r->changes.known = true; /* nothing ran that could have changed a file */
	}
	(void) snapshot_free(before);
	/* The controls' sentences are the result's from here on. */
	memcpy(r->controls, s->sandbox->controls, sizeof r->controls);
	memset(s->sandbox->controls, 0, sizeof s->sandbox->controls);
	memcpy(r->steps, s->sandbox->steps, sizeof r->steps);
	r->step_count = s->sandbox->step_count;
	sandbox_done(s->sandbox);
}

static void tell(const struct observer *observer, enum event_kind kind, const struct result *r)
{
	if (observer != NULL)
		observer->event(
		    observer->ctx,
		    &(struct event){.kind = kind, .when = now_realtime(), .sandbox_id = r->id, .plan = r->plan, .result = r});
}

void sandbox_live(const struct plan *plan, const struct isolation_ops *ops, const struct observer *observer,
		  const struct run_streams *streams, const struct workload *workload, void *work, struct result *ret)
{
	struct signal_state signals = {.fd = -EBADF};
	struct sandbox sandbox = {.plan = plan, .pidfd = -EBADF, .channel = -EBADF, .listener = -EBADF, .scratch = -EBADF};
	struct supervisor *s = xcalloc(1, sizeof *s); /* not small */
	usec_t begun = now_monotonic(), since = begun;
	struct zw_error e = {0};

	result_init(ret);
	ret->plan = plan;
	ret->isolation = plan->isolation;
	ret->captured = streams != NULL && streams->capture;
	(void) snprintf(ret->id, sizeof ret->id, "%s", plan->id);
	*s = (struct supervisor){.plan = plan,
				 .ops = ops,
				 .observer = observer,
				 .streams = streams,
				 .workload = workload,
				 .work = work,
				 .sandbox = &sandbox,
				 .result = ret,
				 .egress = {.control = -EBADF, .pidfd = -EBADF, .trust = {-EBADF, -EBADF}, .secrets = -EBADF},
				 .signals = -EBADF};
	if (signals_take(&signals) < 0) {
		(void) zw_errno(&e, errno, "cannot read signals");
		set_error(ret, &e);
	} else if (settle(s, ret, &since)) {
		s->signals = signals.fd;
		run_sandbox(s, ret, begun);
	} else {
		nothing_ran(&sandbox, ret);
	}
	signals_give_back(&signals);
	free(s);
	if (ret->started_at != 0)
		tell(observer, EVENT_FILES, ret);
	tell(observer, EVENT_END, ret);
}

void sandbox_run(const struct plan *plan, const struct isolation_ops *ops, const struct observer *observer,
		 const struct run_streams *streams, struct result *ret)
{
	sandbox_live(plan, ops, observer, streams, &workload_command, NULL, ret);
}
