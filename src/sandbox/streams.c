/* The streams of a sandbox between the caller and the program inside: three pipes, or the master of a terminal. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/supervise.h"

static void check_output(struct supervisor *s, const struct relay *r, const char *name)
{
	if (!s->plan->limits.output_kill || s->plan->limits.output == ZW_UNLIMITED || r->bytes <= s->plan->limits.output ||
	    s->evidence.killed_for != KILLED_NOT)
		return;
	s->evidence.stream = name;
	supervisor_kill(s, KILLED_OUTPUT);
	if (s->evidence.killed_for == KILLED_NOT)
		s->evidence.killed_for = KILLED_OUTPUT; /* quicker than we: over already, but too much all the same */
}

static void step_input(struct supervisor *s)
{
	bool was = s->in.ended;

	while (relay_step(&s->in, s->epoll) && s->in.edge)
		;
	/* A terminal has no end to close: the key for it stands in. */
	if (s->plan->tty && !was && s->in.ended && !s->in.broken)
		terminal_send_end(s->in.to.fd);
	else if (s->in.ended && s->in.have == 0)
		endpoint_close(&s->in.to, s->epoll);
}

static void step_output(struct supervisor *s, struct relay *r, const char *name)
{
	(void) relay_step(r, s->epoll);
	check_output(s, r, name);
}

static void drain_output(struct supervisor *s, struct relay *r, const char *name)
{
	relay_drain(r, s->epoll);
	check_output(s, r, name);
}

int streams_watch(struct supervisor *s)
{
	int r = relay_watch(&s->in, s->epoll, TAG_IN);

	if (r == 0)
		r = relay_watch(&s->out, s->epoll, TAG_OUT);
	if (r == 0)
		r = relay_watch(&s->err, s->epoll, TAG_ERR);
	return r;
}

static bool is_null_device(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* The sandbox's end of stdin goes to *ret_inside. A null device needs no relay: the sandbox gets one of its own. */
static int open_input(struct supervisor *s, int *ret_inside)
{
	struct endpoint from = ENDPOINT_CLOSED, to = ENDPOINT_CLOSED;
	int pipe_fds[2], r;

	if (s->streams->in < 0 || (is_null_device(s->streams->in) && !s->plan->tty)) {
		*ret_inside = open("/dev/null", O_RDONLY | O_CLOEXEC);
		relay_init(&s->in, from, to, ZW_UNLIMITED);
		return *ret_inside < 0 ? -errno : 0;
	}
	r = endpoint_borrow(s->streams->in, false, &from);
	if (r < 0)
		return r;
	if (!s->plan->tty) {
		if (pipe2(pipe_fds, O_CLOEXEC) < 0)
			return -errno;
		*ret_inside = pipe_fds[0];
		r = endpoint_own(pipe_fds[1], &to);
	}
	relay_init(&s->in, from, to, ZW_UNLIMITED);
	s->in.edge = from.terminal;
	return r;
}

static int open_output(struct supervisor *s, struct relay *r, int caller, bool has_source, int *ret_inside)
{
	struct endpoint from = ENDPOINT_CLOSED, to = ENDPOINT_CLOSED;
	int pipe_fds[2], k;

	if (has_source) {
		if (pipe2(pipe_fds, O_CLOEXEC) < 0)
			return -errno;
		*ret_inside = pipe_fds[1];
		k = endpoint_own(pipe_fds[0], &from);
		if (k < 0)
			return k;
	}
	if (s->streams->capture) {
		relay_capture(r, from, s->plan->limits.output);
		return 0;
	}
	k = endpoint_borrow(caller, true, &to);
	relay_init(r, from, to, s->plan->limits.output);
	return k;
}

int streams_open(struct supervisor *s, int inside[3])
{
	bool pipes = !s->plan->tty;
	int r = open_input(s, &inside[0]);

	if (r == 0)
		r = open_output(s, &s->out, s->streams->out, pipes, &inside[1]);
	if (r == 0)
		r = open_output(s, &s->err, s->streams->err, pipes, &inside[2]);
	return r;
}

void streams_terminal(struct supervisor *s, int *master)
{
	struct zw_error e = {0};
	int copy, r;

	copy = fcntl(*master, F_DUPFD_CLOEXEC, 3); /* one for each direction, as epoll wants it */
	if (copy < 0) {
		(void) zw_errno(&e, errno, "cannot duplicate the terminal inside");
		supervisor_fault(s, &e);
		return;
	}
	r = endpoint_own(copy, &s->in.to);
	if (r == 0)
		r = endpoint_own(*master, &s->out.from);
	if (r < 0) {
		(void) zw_errno(&e, -r, "cannot use the terminal inside");
		supervisor_fault(s, &e);
		return;
	}
	*master = -EBADF;
	s->in.broken = false;
	s->out.ended = false;
	r = terminal_enter(&s->terminal);
	if (r < 0) {
		(void) zw_errno(&e, -r, "cannot set the modes of the terminal");
		supervisor_fault(s, &e);
	}
}

void streams_step(struct supervisor *s, uint64_t tag)
{
	if (tag >= TAG_ERR)
		step_output(s, &s->err, "stderr");
	else if (tag >= TAG_OUT)
		step_output(s, &s->out, "stdout");
	else
		step_input(s);
}

bool streams_drain(struct supervisor *s)
{
	drain_output(s, &s->out, "stdout");
	drain_output(s, &s->err, "stderr");
	return relay_done(&s->out) && relay_done(&s->err);
}
