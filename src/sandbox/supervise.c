/* The supervisor of one sandbox: a single thread around one epoll set.
 *
 * Theory of operation. Everything that can happen is a descriptor:
 *     agent     pidfd of the sandbox's first process. Readable: it is dead, and with it every process of the sandbox
 *     channel   messages of the agent: STARTED, EXEC_FAILED, EXITED. Hostile input
 *     listener  notified system calls (notify.c)
 *     oom       the memory controller kills something, or is about to (limits.c)
 *     timer     the earliest of all deadlines (enum deadline)
 *     signals   what is sent to us, blocked and read here
 *     workload  what a run or a session has besides: streams (relay.c) or the terminal's master; the line to the daemon
 * The loop sleeps until one is ready, does a bounded piece of work for it, and never blocks in between: not in a write to a pipe
 * that nobody reads, not on a terminal that is stopped. So the limits hold whatever the caller and the sandbox do. Nothing is
 * polled; descriptors whose hang-up cannot be turned off are taken out of the set while nobody wants them.
 *
 * The end. Whoever decides that it is over calls supervisor_kill with the reason, and the first reason stands; but the agent's
 * word that the main process had already ended (EXITED, read before any kill) outranks it. The main process's own end makes the
 * agent exit, which takes every other process along (pid namespace, or the agent's own hunt). When the agent is gone there are no
 * writers left: what lies in the pipes is handed on until they are empty, and a pipe end that somebody outside still holds is not
 * waited for. A caller that takes its output slowly gets all of it; after an ending by force, what it has not taken within
 * DRAIN_MAX is counted as dropped.
 *
 * What must never happen: a flag set on a description that we share with the caller; an answer to the sandbox that rests on its
 * memory; a wait without a deadline for something that the sandbox or the caller controls while a limit is running. */
#include "sandbox/supervise.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

int supervisor_watch(const struct supervisor *s, int fd, uint32_t events, uint64_t tag)
{
	struct epoll_event ev = {.events = events, .data.u64 = tag};

	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

void supervisor_unwatch(const struct supervisor *s, int fd)
{
	(void) epoll_ctl(s->epoll, EPOLL_CTL_DEL, fd, NULL); /* it may be out already */
}

void supervisor_fault(struct supervisor *s, const struct zw_error *e)
{
	if (s->evidence.fault.code == 0)
		s->evidence.fault = *e;
	supervisor_kill(s, KILLED_FAULT);
}

void supervisor_limit_event(const struct supervisor *s, const char *which)
{
	if (s->observer != NULL)
		s->observer->event(
		    s->observer->ctx,
		    &(struct event){.kind = EVENT_LIMIT, .when = now_realtime(), .sandbox_id = s->plan->id, .text = which});
}

/* ---- The agent. ---- */

static void handle_message(struct supervisor *s, struct msg_in *m)
{
	if (m->type == MSG_CONNECTED && (m->id & CONNECT_OF_WORKLOAD) == 0)
		egress_inbound(s, m->id, take_fd(&m->fd), m->connected.error);
	else
		s->workload->message(s, m);
}

void supervisor_receive(struct supervisor *s)
{
	struct zw_error e = {0};
	struct msg_in m;
	int r = s->channel.fd >= 0 ? channel_receive(&s->channel, &m, &e) : -EPIPE;

	while (r == 1) {
		handle_message(s, &m);
		fd_close(&m.fd);
		if (s->channel.fd < 0)
			return;
		r = channel_receive(&s->channel, &m, &e);
	}
	if (r == 0 || s->channel.fd < 0)
		return;
	supervisor_unwatch(s, s->channel.fd);
	channel_done(&s->channel);
	s->channel.fd = -EBADF;
	if (r != -EPIPE)
		supervisor_fault(s, &e);
	else if (!s->ended && s->due[DUE_GRACE] == ZW_UNLIMITED)
		s->due[DUE_GRACE] = now_monotonic() + CANCEL_GRACE;
}

void supervisor_kill(struct supervisor *s, enum killed_for why)
{
	static const char *const names[] = {
	    [KILLED_WALL_TIME] = "time",  [KILLED_CPU_TIME] = "cpu_time",   [KILLED_OUTPUT] = "output", [KILLED_DISK] = "disk",
	    [KILLED_SCRATCH] = "scratch", [KILLED_PROCESSES] = "processes", [KILLED_NETWORK] = NULL,    [KILLED_FAULT] = NULL,
	};

	if (s->killed)
		return;
	s->killed = true; /* before anything that may come back here */
	if (why != KILLED_FAULT && !s->ended)
		supervisor_receive(s);
	if (s->evidence.killed_for == KILLED_NOT && (!s->evidence.has_main_status || why == KILLED_OUTPUT)) {
		s->evidence.killed_for = why;
		if ((size_t) why < ARRAY_SIZE(names) && names[why] != NULL)
			supervisor_limit_event(s, names[why]);
	}
	signals_thaw(s);
	if (!s->ended)
		s->ops->kill(s->sandbox);
}

/* What the level left running or lying about outside; only then the pipes have no writers any more. */
static void finish_level(struct supervisor *s)
{
	if (s->ops->finish != NULL)
		s->ops->finish(s->sandbox);
}

static usec_t usec_of(const struct timeval *t)
{
	return (usec_t) t->tv_sec * USEC_PER_SEC + (usec_t) t->tv_usec;
}

static void agent_ended(struct supervisor *s)
{
	siginfo_t info = {0};
	struct rusage use;

	/* What the agent said last lies in the channel still, and comes before the news of its death. */
	supervisor_receive(s);
	/* By the raw call, which tells the use of the agent and of all that it waited for: at the container level that is the
	 * whole pid namespace, orphans included. */
	if (syscall(SYS_waitid, P_PIDFD, s->sandbox->pidfd, &info, WEXITED, &use) == 0) {
		s->reaped_cpu = usec_of(&use.ru_utime) + usec_of(&use.ru_stime);
		s->evidence.agent_signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
		s->evidence.agent_code = info.si_code == CLD_EXITED ? info.si_status : 0;
	}
	supervisor_unwatch(s, s->sandbox->pidfd);
	finish_level(s);
	if (s->sandbox->listener >= 0)
		supervisor_unwatch(s, s->sandbox->listener);
	s->ended = true;
	if (s->main_ended == 0)
		s->main_ended = now_monotonic();
	for (size_t i = 0; i < DUE_MAX; i++)
		s->due[i] = ZW_UNLIMITED;
	egress_end(s);
	s->workload->over(s);
}

/* ---- Time. ---- */

/* A timer that is not set is a limit that does not hold: that is a fault. */
static int arm(struct supervisor *s)
{
	struct itimerspec spec = {0};
	usec_t first = ZW_UNLIMITED;

	for (size_t i = 0; i < DUE_MAX; i++)
		first = s->due[i] < first ? s->due[i] : first;
	if (first == s->armed)
		return 0;
	if (first != ZW_UNLIMITED) {
		usec_t at = first > 0 ? first : 1; /* zero would turn it off */

		spec.it_value =
		    (struct timespec){.tv_sec = (time_t) (at / USEC_PER_SEC), .tv_nsec = (long) (at % USEC_PER_SEC * 1000)};
	}
	if (timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &spec, NULL) < 0)
		return -errno;
	s->armed = first;
	return 0;
}

static void handle_due(struct supervisor *s, enum deadline which)
{
	s->due[which] = ZW_UNLIMITED;
	switch (which) {
	case DUE_REPLY:
		notify_due(s);
		break;
	case DUE_GRACE:
		supervisor_kill(s, KILLED_CANCEL);
		break;
	case DUE_DRAIN:
		s->abandoned = true;
		break;
	case DUE_EGRESS:
		egress_done(s);
		break;
	case DUE_WORK:
		s->workload->due(s);
		break;
	case DUE_WALL:
	case DUE_CPU:
	case DUE_WATCH:
	case DUE_DISK:
	case DUE_SCRATCH:
	case DUE_OOM:
	case DUE_MAX:
		limits_due(s, which);
		break;
	}
}

static void timer_fired(struct supervisor *s)
{
	uint64_t times;
	usec_t now;

	if (read(s->timer, &times, sizeof times) < 0)
		return;
	s->armed = ZW_UNLIMITED;
	now = now_monotonic();
	for (size_t i = 0; i < DUE_MAX; i++)
		if (s->due[i] <= now)
			handle_due(s, (enum deadline) i);
}

/* ---- The loop. ---- */

/* Nobody is left who could call. Closing it frees the filter's code, which takes the kernel longer than most steps of an end: so
 * it is done now, while the agent's namespaces are taken down. */
static void close_listener(struct supervisor *s)
{
	s->notify.count = 0;
	s->notify.paused = false;
	s->due[DUE_REPLY] = ZW_UNLIMITED;
	fd_close(&s->sandbox->listener);
}

static void handle_event(struct supervisor *s, uint64_t tag, uint32_t events)
{
	switch (tag) {
	case TAG_AGENT:
		agent_ended(s);
		break;
	case TAG_CHANNEL:
		supervisor_receive(s);
		break;
	case TAG_LISTENER:
		if ((events & EPOLLIN) != 0)
			notify_ready(s);
		else
			close_listener(s);
		break;
	case TAG_OOM:
		limits_oom(s);
		break;
	case TAG_TIMER:
		timer_fired(s);
		break;
	case TAG_EGRESS:
		egress_receive(s);
		break;
	case TAG_SECRETS:
		egress_secrets_changed(s);
		break;
	default:
		s->workload->event(s, tag, events);
		break;
	}
}

/* A full ring of late replies: the kernel keeps further callers waiting meanwhile. */
static void pause_listener(struct supervisor *s, bool *paused)
{
	if (s->ended || s->sandbox->listener < 0 || *paused == s->notify.paused)
		return;
	*paused = s->notify.paused;
	if (*paused)
		supervisor_unwatch(s, s->sandbox->listener);
	else
		(void) supervisor_watch(s, s->sandbox->listener, EPOLLIN, TAG_LISTENER);
}

static bool finished(struct supervisor *s)
{
	return s->ended && s->workload->finished(s) && egress_over(s);
}

static int loop(struct supervisor *s)
{
	struct epoll_event events[16];
	bool paused = false;

	while (!finished(s)) {
		int n, r = s->workload->watch(s);

		if (r == 0)
			r = arm(s);
		if (r < 0)
			return r;
		n = epoll_wait(s->epoll, events, (int) ARRAY_SIZE(events), -1);
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n; i++)
			handle_event(s, events[i].data.u64, events[i].events);
		pause_listener(s, &paused);
	}
	return 0;
}

static int open_loop(struct supervisor *s)
{
	short oom_events = 0;
	int oom = cgroup_oom_fd(s->sandbox->cgroup, &oom_events), r;

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (s->epoll < 0 || s->timer < 0)
		return -errno;
	r = supervisor_watch(s, s->sandbox->pidfd, EPOLLIN, TAG_AGENT);
	if (r == 0)
		r = supervisor_watch(s, s->channel.fd, EPOLLIN, TAG_CHANNEL);
	if (r == 0 && oom >= 0)
		r = supervisor_watch(s, oom, (uint32_t) oom_events, TAG_OOM);
	if (r == 0)
		r = supervisor_watch(s, s->timer, EPOLLIN, TAG_TIMER);
	if (r == 0)
		r = supervisor_watch(s, s->signals, EPOLLIN, TAG_SIGNALS);
	return r;
}

/* The sandbox is up but cannot be used: end it and wait for that. */
static void give_up(struct supervisor *s, const struct zw_error *e)
{
	siginfo_t info;

	if (!s->evidence.exec_failed && s->evidence.fault.code == 0)
		s->evidence.fault = *e;
	if (s->ended)
		return;
	s->ops->kill(s->sandbox);
	(void) waitid(P_PIDFD, (id_t) s->sandbox->pidfd, &info, WEXITED);
	finish_level(s);
	s->ended = true;
}

static void set_defaults(struct supervisor *s)
{
	s->epoll = s->timer = -EBADF;
	s->inside[0] = s->inside[1] = s->inside[2] = -EBADF;
	s->channel.passed_fd = -EBADF;
	s->in = s->out = s->err = (struct relay){.from = ENDPOINT_CLOSED, .to = ENDPOINT_CLOSED, .ended = true};
	s->terminal = (struct terminal){.fd = -EBADF};
	s->armed = ZW_UNLIMITED;
	s->agent_cpu = ZW_UNLIMITED;
	for (size_t i = 0; i < DUE_MAX; i++)
		s->due[i] = ZW_UNLIMITED;
	s->watch.scratch_fd = s->watch.shm_fd = -EBADF;
}

void supervise_begin(void *supervisor)
{
	struct supervisor *s = supervisor;
	struct zw_error *e = &s->begin_fault;
	int r;

	s->begun = true;
	set_defaults(s);
	r = channel_init(&s->channel, s->sandbox->channel, e);
	if (r == 0) {
		r = open_loop(s);
		if (r < 0)
			(void) zw_errno(e, -r, "cannot set up the supervisor's loop");
	}
	if (r == 0)
		r = s->workload->prepare(s, e);
	s->begin_error = r;
}

/* The walls are up. */
static int begin_run(struct supervisor *s, struct zw_error *e)
{
	int r;

	if (!s->begun)
		supervise_begin(s);
	*e = s->begin_fault;
	if (s->begin_error < 0)
		return s->begin_error;
	r = s->sandbox->listener >= 0 ? supervisor_watch(s, s->sandbox->listener, EPOLLIN, TAG_LISTENER) : 0;
	if (r < 0)
		return zw_errno(e, -r, "cannot set up the supervisor's loop");
	limits_prepare(s);
	r = egress_wait(s, e);
	if (r < 0)
		return r;
	r = egress_watch(s);
	if (r < 0)
		return zw_errno(e, -r, "cannot set up the supervisor's loop");
	return s->workload->begin(s, e);
}

static void close_inside(struct supervisor *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->inside); i++)
		fd_close(&s->inside[i]);
}

static void close_loop(struct supervisor *s)
{
	channel_done(&s->channel);
	relay_close(&s->in, s->epoll, NULL);
	relay_close(&s->out, s->epoll, &s->result->out);
	relay_close(&s->err, s->epoll, &s->result->err);
	fd_close(&s->timer);
	fd_close(&s->epoll);
}

void supervise(struct supervisor *s)
{
	struct zw_error e = {0};
	int r = begin_run(s, &e);

	close_inside(s);
	if (r == 0) {
		r = loop(s);
		if (r < 0)
			(void) zw_errno(&e, -r, "the supervisor cannot wait for events");
	}
	if (r < 0)
		give_up(s, &e);
	terminal_leave(&s->terminal);
	s->result->usage.scratch_peak = limits_scratch_peak(s);
	limits_done(s);
	close_loop(s);
}

void supervise_abandon(struct supervisor *s)
{
	if (!s->begun)
		return;
	close_inside(s);
	close_loop(s);
}
