#include "daemon/mover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

enum { AT_ONCE = 16, PIECE = 128 * 1024, LOOK_EVERY = 4 << 20, STALLED_MSEC = 60 * 1000 };
#define LONGEST (15 * 60 * USEC_PER_SEC)

struct mover {
	struct movers *all;
	struct mover *next;
	struct move move;
	pid_t pid; /* 0: not begun */
	int pidfd;
	int error;            /* why it could not begin */
	struct event *failed; /* tells of `error` */
	struct event *ended;
	void (*done)(void *arg, int error); /* NULL: nobody waits for it */
	void *arg;
};

struct movers {
	struct event_base *base;
	struct mover *working, *waiting, **last_waiting;
	size_t count; /* of `working` */
};

/* ---- The process. Returns an errno. ---- */

static int wait_for(int fd, short events, usec_t until)
{
	struct pollfd p = {.fd = fd, .events = events};
	usec_t now = now_monotonic();
	int n;

	if (now >= until)
		return ETIMEDOUT;
	n = poll(&p, 1, STALLED_MSEC);
	return n < 0 ? errno : n == 0 ? ETIMEDOUT : 0;
}

static int write_piece(int to, const char *piece, size_t size, usec_t until)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = write(to, piece + at, size - at);
		int error = n < 0 ? errno : 0;

		if (error == EAGAIN)
			error = wait_for(to, POLLOUT, until);
		if (error != 0 && error != EINTR)
			return error;
		at += n > 0 ? (size_t) n : 0;
	}
	return 0;
}

/* How many bytes, 0 at the end, or a negative errno. */
static ssize_t read_piece(int from, char *piece, size_t size, usec_t until)
{
	for (;;) {
		ssize_t n = read(from, piece, size);
		int error = n < 0 ? errno : 0;

		if (n >= 0)
			return now_monotonic() < until ? n : -ETIMEDOUT;
		if (error == EAGAIN)
			error = wait_for(from, POLLIN, until);
		if (error != 0 && error != EINTR)
			return -error;
	}
}

static bool is_full(const struct move *m)
{
	struct statvfs fs;

	/* One without a number of blocks does not know how much there is. */
	return m->spare > 0 && fstatvfs(m->to, &fs) == 0 && fs.f_blocks > 0 && (uint64_t) fs.f_bavail * fs.f_frsize < m->spare;
}

static int work(const struct move *m)
{
	char piece[PIECE];
	usec_t until = now_monotonic() + LONGEST;
	uint64_t moved = 0, looked = 0;

	while (!m->exact || moved < m->most) {
		size_t size = m->exact && m->most - moved < sizeof piece ? (size_t) (m->most - moved) : sizeof piece;
		ssize_t n;
		int error;

		if (moved >= looked && is_full(m))
			return ENOSPC;
		looked = moved >= looked ? moved + LOOK_EVERY : looked;
		n = read_piece(m->from, piece, size, until);
		if (n < 0)
			return (int) -n;
		if (n == 0)
			break;
		if (m->most - moved < (uint64_t) n)
			return EFBIG;
		error = write_piece(m->to, piece, (size_t) n, until);
		if (error != 0)
			return error;
		moved += (uint64_t) n;
	}
	if (m->exact && moved < m->most)
		return EIO;
	return m->durable && fsync(m->to) < 0 ? errno : 0;
}

/* Handlers of the daemon would write into pipes that it still has; what a terminal sends to the daemon is not meant for this. */
static void leave_daemon(const struct move *m, pid_t daemon)
{
	const struct sigaction normal = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
	int low = m->from < m->to ? m->from : m->to, high = m->from < m->to ? m->to : m->from;
	sigset_t none;

	(void) setpgid(0, 0);
	for (int i = 1; i < NSIG; i++)
		(void) sigaction(i, &normal, NULL); /* those that cannot be set are as they should be */
	(void) sigaction(SIGPIPE, &ignore, NULL);
	(void) sigaction(SIGXFSZ, &ignore, NULL);
	(void) close_range(0, (unsigned) low - 1, 0);
	if (high > low + 1)
		(void) close_range((unsigned) low + 1, (unsigned) high - 1, 0);
	(void) close_range((unsigned) high + 1, ~0U, 0);
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
	(void) prctl(PR_SET_NAME, "zwinger-mover");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != daemon)
		_exit(ESRCH);
}

static int spawn(struct mover *m)
{
	pid_t daemon = getpid();
	sigset_t all, before;
	int error = 0;

	(void) sigfillset(&all);
	(void) sigprocmask(SIG_SETMASK, &all, &before);
	m->pid = fork();
	if (m->pid == 0) {
		leave_daemon(&m->move, daemon);
		_exit(work(&m->move));
	}
	if (m->pid < 0) {
		error = errno;
		m->pid = 0;
	}
	(void) sigprocmask(SIG_SETMASK, &before, NULL);
	return error;
}

/* ---- The daemon's side. ---- */

static void begin(struct mover *m);

static void free_mover(struct mover *m)
{
	if (m->failed != NULL)
		event_free(m->failed);
	if (m->ended != NULL)
		event_free(m->ended);
	fd_close(&m->pidfd);
	fd_close(&m->move.from);
	fd_close(&m->move.to);
	free(m);
}

static void take_out(struct movers *all, struct mover *m)
{
	struct mover **at = &all->working;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	all->count--;
}

static void begin_next(struct movers *all)
{
	while (all->waiting != NULL && all->count < AT_ONCE) {
		struct mover *m = all->waiting;

		all->waiting = m->next;
		if (all->waiting == NULL)
			all->last_waiting = &all->waiting;
		begin(m);
	}
}

static void over(struct mover *m, int error)
{
	struct movers *all = m->all;
	void (*done)(void *arg, int error) = m->done;
	void *arg = m->arg;

	take_out(all, m);
	free_mover(m);
	begin_next(all);
	if (done != NULL)
		done(arg, error);
}

static void on_failed(evutil_socket_t fd, short what, void *arg)
{
	struct mover *m = arg;

	(void) fd;
	(void) what;
	over(m, m->error);
}

/* It is over by now, or is about to be. */
static int reap(const struct mover *m)
{
	siginfo_t info = {0};

	while (waitid(P_PID, (id_t) m->pid, &info, WEXITED) < 0)
		if (errno != EINTR)
			return errno;
	return info.si_code == CLD_EXITED ? info.si_status : EIO;
}

static void on_ended(evutil_socket_t fd, short what, void *arg)
{
	struct mover *m = arg;

	(void) fd;
	(void) what;
	over(m, reap(m));
}

static int watch(struct mover *m)
{
	m->pidfd = (int) syscall(SYS_pidfd_open, m->pid, 0);
	if (m->pidfd < 0)
		return errno;
	m->ended = event_new(m->all->base, m->pidfd, EV_READ, on_ended, m);
	return m->ended != NULL && event_add(m->ended, NULL) == 0 ? 0 : ENOMEM;
}

static void begin(struct mover *m)
{
	m->next = m->all->working;
	m->all->working = m;
	m->all->count++;
	m->error = spawn(m);
	/* What is open here would keep its pipe from ending. */
	fd_close(&m->move.from);
	fd_close(&m->move.to);
	if (m->error == 0) {
		m->error = watch(m);
		if (m->error == 0)
			return;
		(void) kill(m->pid, SIGKILL);
		(void) reap(m);
	}
	event_active(m->failed, EV_TIMEOUT, 0);
}

struct mover *mover_start(struct movers *all, const struct move *move, void (*done)(void *arg, int error), void *arg)
{
	struct mover *m = xcalloc(1, sizeof *m);

	*m = (struct mover){.all = all, .move = *move, .pidfd = -EBADF, .done = done, .arg = arg};
	m->failed = event_new(all->base, -1, 0, on_failed, m);
	if (m->failed == NULL) {
		free_mover(m);
		return NULL;
	}
	if (all->count < AT_ONCE) {
		begin(m);
		return m;
	}
	*all->last_waiting = m;
	all->last_waiting = &m->next;
	return m;
}

static bool drop_waiting(struct movers *all, struct mover *m)
{
	struct mover **at = &all->waiting;

	while (*at != NULL && *at != m)
		at = &(*at)->next;
	if (*at == NULL)
		return false;
	*at = m->next;
	if (*at == NULL)
		all->last_waiting = at;
	free_mover(m);
	return true;
}

void mover_cancel(struct mover *m)
{
	if (drop_waiting(m->all, m))
		return;
	m->done = NULL;
	if (m->error == 0)
		(void) kill(m->pid, SIGKILL); /* not reaped yet: the number is still its own */
}

struct movers *movers_new(struct event_base *base)
{
	struct movers *all = xcalloc(1, sizeof *all);

	*all = (struct movers){.base = base};
	all->last_waiting = &all->waiting;
	return all;
}

struct movers *movers_free(struct movers *all)
{
	if (all == NULL)
		return NULL;
	while (all->waiting != NULL)
		(void) drop_waiting(all, all->waiting);
	while (all->working != NULL) {
		struct mover *m = all->working;

		if (m->error == 0) {
			(void) kill(m->pid, SIGKILL);
			(void) reap(m);
		}
		take_out(all, m);
		free_mover(m);
	}
	free(all);
	return NULL;
}
