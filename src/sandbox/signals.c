/* What is sent to the supervisor. Without a terminal inside the signals that end a job are passed on, and what is left after
 * CANCEL_GRACE is ended; a second one ends it at once. A stop stops the sandbox with us. */
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "sandbox/supervise.h"

void signals_thaw(struct supervisor *s)
{
	if (s->frozen_by_cgroup)
		(void) cgroup_freeze(s->sandbox->cgroup, false);
	s->frozen_by_cgroup = false;
}

void signals_forward(struct supervisor *s, int number)
{
	struct zw_error e = {0};

	if (s->channel.fd >= 0 && s->main_inside != 0 && !s->ended)
		(void) channel_send_signal(&s->channel, MAIN_PROCESS, number, true,
					   &e); /* the agent's end is noticed elsewhere */
}

static void resize(struct supervisor *s)
{
	struct zw_error e = {0};
	uint16_t rows, columns;

	if (s->plan->tty && s->terminal.fd >= 0 && s->channel.fd >= 0 && s->main_inside != 0 && !s->ended &&
	    terminal_size(s->terminal.fd, &rows, &columns) == 0)
		(void) channel_send_resize(&s->channel, MAIN_PROCESS, rows, columns, &e);
}

static void cancel(struct supervisor *s, int number)
{
	bool again = s->evidence.cancel_signal != 0;

	if (s->ended) {
		s->due[DUE_DRAIN] = 0; /* only the caller's own reading was waited for */
		return;
	}
	if (!again)
		s->evidence.cancel_signal = number;
	if (again) {
		supervisor_kill(s, KILLED_CANCEL);
		return;
	}
	signals_thaw(s);
	signals_forward(s, number); /* when it has not started yet: as soon as it has */
	s->due[DUE_GRACE] = now_monotonic() + CANCEL_GRACE;
}

/* Stops the sandbox and ourselves, as a shell expects of a job, until SIGCONT. The wall clock of the run stands meanwhile. */
static void suspend(struct supervisor *s)
{
	usec_t before = now_monotonic(), stopped;
	sigset_t only;

	s->frozen_by_cgroup = !s->ended && cgroup_freeze(s->sandbox->cgroup, true) == 0;
	if (!s->frozen_by_cgroup)
		signals_forward(s, SIGSTOP);
	terminal_leave(&s->terminal);
	/* By the default action of the signal itself: it does nothing in an orphaned process group, where nobody could wake us.
	 */
	(void) sigemptyset(&only);
	(void) sigaddset(&only, SIGTSTP);
	(void) raise(SIGTSTP);
	(void) sigprocmask(SIG_UNBLOCK, &only, NULL);
	(void) sigprocmask(SIG_BLOCK, &only, NULL);
	stopped = now_monotonic() - before;
	if (s->due[DUE_WALL] != ZW_UNLIMITED)
		s->due[DUE_WALL] += stopped;
	if (s->frozen_by_cgroup)
		signals_thaw(s);
	else
		signals_forward(s, SIGCONT);
	(void) terminal_enter(&s->terminal);
	resize(s);
}

static void handle_signal(struct supervisor *s, int number)
{
	switch (number) {
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
		cancel(s, number);
		break;
	case SIGQUIT:
		/* Ends what does not handle it; many that do go on (a JVM prints its threads). */
		s->quit_early = s->main_inside == 0;
		signals_forward(s, number);
		break;
	case SIGTSTP:
		suspend(s);
		break;
	case SIGCONT:
		if (s->plan->tty && s->main_inside != 0 && !s->ended)
			(void) terminal_enter(&s->terminal);
		resize(s);
		break;
	case SIGWINCH:
		resize(s);
		break;
	default:
		break;
	}
}

void signals_read(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signals, &info, sizeof info) == sizeof info)
		handle_signal(s, (int) info.ssi_signo);
}
