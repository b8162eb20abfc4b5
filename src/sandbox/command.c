/* The one command of a run: the sandbox is there for it, and ends with it. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/processes.h"
#include "sandbox/supervise.h"

#define DRAIN_MAX (1 * USEC_PER_SEC)

static void main_started(struct supervisor *s, struct msg_in *m)
{
	s->starting = false;
	s->main_inside = m->started.pid;
	s->started = now_monotonic();
	s->result->started_at = now_realtime();
	if (s->evidence.cancel_signal != 0)
		signals_forward(s, s->evidence.cancel_signal);
	if (s->quit_early)
		signals_forward(s, SIGQUIT);
	if (s->plan->tty && m->fd >= 0)
		streams_terminal(s, &m->fd);
	limits_start(s);
}

static void main_ended(struct supervisor *s, const struct msg_exited *m)
{
	s->main_ended = now_monotonic();
	s->evidence.has_main_status = true;
	s->evidence.wait_status = m->status;
	s->agent_cpu = m->utime + m->stime;
	s->agent_rss = m->max_rss;
	/* The agent ends the rest and itself now. It had better. */
	s->due[DUE_WALL] = s->due[DUE_CPU] = s->due[DUE_WATCH] = s->due[DUE_DISK] = s->due[DUE_SCRATCH] = s->due[DUE_OOM] =
	    ZW_UNLIMITED;
	s->due[DUE_GRACE] = s->main_ended + CANCEL_GRACE;
}

static void command_message(struct supervisor *s, struct msg_in *m)
{
	struct zw_error e = {0};

	switch (m->type) {
	case MSG_STARTED:
		if (s->starting) {
			main_started(s, m);
			break;
		}
		(void) zw_error(&e, EPROTO, "the agent reports a start that nobody asked for");
		supervisor_fault(s, &e);
		break;
	case MSG_EXEC_FAILED:
		s->starting = false;
		s->evidence.exec_failed = true;
		s->evidence.exec_errno = m->exec_failed.error;
		s->evidence.exec_stage = m->exec_failed.stage;
		s->due[DUE_GRACE] = now_monotonic() + CANCEL_GRACE;
		break;
	case MSG_EXITED:
		if (!s->evidence.has_main_status && s->main_inside != 0)
			main_ended(s, &m->exited);
		break;
	default:
		break; /* the channel lets no other through */
	}
}

static int command_prepare(struct supervisor *s, struct zw_error *e)
{
	int r;

	if (s->plan->tty)
		s->terminal.fd = s->streams->tty;
	s->terminal.keys = s->terminal.fd >= 0 && s->streams->in >= 0 && isatty(s->streams->in) == 1;
	r = streams_open(s, s->inside);
	return r < 0 ? zw_errno(e, -r, "cannot open the streams of the sandbox") : 0;
}

static int command_begin(struct supervisor *s, struct zw_error *e)
{
	const struct plan *plan = s->plan;
	struct start_request start = {
	    .id = MAIN_PROCESS,
	    .flags = START_ONE_SHOT | (plan->tty ? START_TTY : 0) | (plan->isolation == ISOLATION_PROCESS ? START_NO_PIDNS : 0),
	    .cwd = plan->cwd,
	    .argv = plan->argv,
	    .env = plan->env,
	    .in = s->inside[0],
	    .out = s->inside[1],
	    .err = s->inside[2],
	    .rows = plan->rows,
	    .columns = plan->columns,
	};
	int r;

	s->starting = true;
	limits_arm_wall(s, now_monotonic());
	/* Before anything that the program does can be told. */
	if (s->observer != NULL)
		s->observer->event(
		    s->observer->ctx,
		    &(struct event){.kind = EVENT_START, .when = now_realtime(), .sandbox_id = plan->id, .plan = plan});
	r = channel_send_start(&s->channel, &start, e);
	if (r == -E2BIG) {
		s->evidence.exec_failed = true;
		s->evidence.exec_errno = E2BIG;
		s->evidence.exec_stage = EXEC_STAGE_EXEC;
	}
	return r;
}

static void command_event(struct supervisor *s, uint64_t tag, uint32_t events)
{
	(void) events;
	if (tag == TAG_SIGNALS)
		signals_read(s);
	else
		streams_step(s, tag);
}

static void command_due(struct supervisor *s)
{
	(void) s; /* it has none of its own */
}

static bool command_is_idle(const struct supervisor *s)
{
	(void) s;
	return false; /* it runs from beginning to end */
}

static bool command_outlived(struct supervisor *s, uint64_t kills)
{
	struct processes_sum sum;

	processes_measure(s->sandbox->pid, s->main_inside, &sum);
	if (sum.main.pid != 0 && !sum.main.dying)
		s->evidence.oom_survived = kills;
	return true; /* its end comes as a message */
}

static void command_over(struct supervisor *s)
{
	if (s->killed || s->evidence.cancel_signal != 0)
		s->due[DUE_DRAIN] = now_monotonic() + DRAIN_MAX;
	s->in.ended = true;
	endpoint_close(&s->in.from, s->epoll);
	endpoint_close(&s->in.to, s->epoll);
}

static bool command_finished(struct supervisor *s)
{
	return streams_drain(s) || s->abandoned;
}

static void command_decide(struct supervisor *s)
{
	ending_decide(&s->evidence, s->plan, s->result);
}

const struct workload workload_command = {
    .prepare = command_prepare,
    .begin = command_begin,
    .message = command_message,
    .event = command_event,
    .due = command_due,
    .watch = streams_watch,
    .is_idle = command_is_idle,
    .outlived = command_outlived,
    .over = command_over,
    .finished = command_finished,
    .decide = command_decide,
};
