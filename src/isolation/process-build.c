/* From the supervisor to the agent: one clone, an ordered table of steps, one message back. The child allocates nothing and looks
 * at no path: rulesets, filter and agent come as fds and memory made before. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/image.h"
#include "agent/protocol.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "isolation/process.h"
#include "kernel/caps.h"
#include "kernel/clone.h"
#include "kernel/landlock.h"
#include "kernel/rlimit.h"

enum { STEPS_MAX = 16, FD_ABOVE = 10 };

struct child {
	const struct plan *plan;
	const struct process_walls *walls;
	int channel, agent, sync; /* the supervisor has moved these to FD_ABOVE or higher */
	int cgroup;               /* to be joined by its cgroup.procs, or -EBADF: joined by the clone */
	int join[CGROUP_CONTROLLER_MAX];
	size_t join_count;
	int null, extra, terminal; /* opened by the child, -EBADF: none */
	uint32_t took[STEPS_MAX];
};

enum message_kind { MESSAGE_LISTENER = 1, MESSAGE_FAULT };

struct message {
	uint32_t kind;
	uint32_t step;
	int32_t error;
	uint32_t took[STEPS_MAX]; /* usec per step */
};

/* ---- The child. ---- */

static int join_cgroups(struct child *c)
{
	for (size_t i = 0; i < c->join_count; i++)
		if (write(c->join[i], "0", 1) != 1)
			return -errno;
	return c->cgroup >= 0 ? fd_write_file_at(c->cgroup, "cgroup.procs", "0") : 0;
}

/* No PR_SET_PDEATHSIG: see the theory of operation. */
static int leave_session(struct child *c)
{
	(void) c;
	(void) umask(022);
	return setsid() < 0 ? -errno : 0;
}

static int limit(int resource, uint64_t value)
{
	int64_t r = value == ZW_UNLIMITED ? 0 : rlimit_apply(resource, (rlim_t) value);

	return r < 0 ? (int) r : 0;
}

static int set_limits(struct child *c)
{
	const struct plan *p = c->plan;
	uint64_t cpu = p->limits.cpu_time == ZW_UNLIMITED ? ZW_UNLIMITED : p->limits.cpu_time / USEC_PER_SEC + 5;
	uint64_t size = p->limits.file_size < p->limits.disk ? p->limits.file_size : p->limits.disk;
	int r = rlimit_apply_soft(RLIMIT_CORE,
				  1); /* exactly 1 also keeps a core pipe handler of the host from being started (core(5)) */

	if (r == 0)
		r = limit(RLIMIT_NOFILE, p->limits.open_files);
	if (r == 0)
		r = limit(RLIMIT_FSIZE, size);
	if (r == 0)
		r = limit(RLIMIT_CPU, cpu);
	if (r == 0)
		r = limit(RLIMIT_NPROC, c->walls->processes == ZW_UNLIMITED ? ZW_UNLIMITED : c->walls->processes + 1);
	return r;
}

static int raise_fd(int fd)
{
	int raised = fd < 0 ? -errno : fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE);

	return raised < 0 ? -errno : raised;
}

/* A terminal for the program, where the folder of all terminals of this uid cannot be opened to it: the rule is for the slave
 * alone. */
static int open_terminal(struct child *c)
{
	cleanup_fd int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	cleanup_fd int slave = -EBADF;
	int unlock = 0, r;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	c->terminal = raise_fd(master);
	r = c->terminal < 0 ? c->terminal : landlock_allow(c->walls->rules.outer, slave, LANDLOCK_DEVICES);
	if (r == 0 && c->walls->rules.inner >= 0)
		r = landlock_allow(c->walls->rules.inner, slave, LANDLOCK_DEVICES);
	return r;
}

/* What the agent gets at AGENT_EXTRA_FD: the inner ruleset, or where there is none the list of its own children (it will be this
 * very process), which is opened while /proc is still open to us. */
static int open_descriptors(struct child *c)
{
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	cleanup_fd int children = -EBADF;

	c->null = raise_fd(null);
	if (c->null < 0)
		return c->null;
	if (c->walls->rules.inner < 0)
		children = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	c->extra = raise_fd(c->walls->rules.inner >= 0 ? c->walls->rules.inner : children);
	if (c->extra < 0)
		return c->extra;
	return c->plan->tty && c->walls->identity.kind != IDENTITY_FRESH ? open_terminal(c) : 0;
}

/* From root to nobody in particular: with the last change of uid the kernel takes all capabilities; the bounding set goes first.
 */
static int take_identity(struct child *c)
{
	const struct identity *id = &c->walls->identity;

	if (id->kind == IDENTITY_CALLER)
		return 0;
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 &&
		    errno != EPERM) /* without SETPCAP; no_new_privs makes it a formality */
			return -errno;
	if (id->kind == IDENTITY_ROOT)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(id->gid, id->gid, id->gid) < 0 || setresuid(id->uid, id->uid, id->uid) < 0)
		return -errno;
	return 0;
}

static int drop_capabilities(struct child *c)
{
	(void) c;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return caps_drop_sets();
}

static int enforce_landlock(struct child *c)
{
	return landlock_enforce(c->walls->rules.outer);
}

/* 0 to 2 become /dev/null, 3 the channel, 4 and 5 what else the agent gets; everything above closes with the exec. What is put in
 * place lies at FD_ABOVE or higher, so nothing is overwritten; in between there is room for the filter's listener however low the
 * limit is. */
static int place_descriptors(struct child *c)
{
	const int placed[] = {c->null, c->null, c->null, c->channel, c->extra, c->terminal};

	for (int fd = 0; fd < (int) ARRAY_SIZE(placed); fd++) {
		if (placed[fd] >= 0 && dup2(placed[fd], fd) < 0)
			return -errno;
		if (placed[fd] < 0)
			(void) close(fd); /* the caller's, if anything */
	}
	if (syscall(SYS_close_range, ARRAY_SIZE(placed), FD_ABOVE - 1, 0) < 0)
		return -errno;
	return syscall(SYS_close_range, FD_ABOVE, ~0U, CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}

static int install_filter(struct child *c)
{
	struct message m = {.kind = MESSAGE_LISTENER};
	cleanup_fd int listener = seccomp_install(&c->walls->filter);

	if (listener < 0)
		return take_fd(&listener);
	memcpy(m.took, c->took, sizeof m.took);
	return fd_send(c->sync, &m, sizeof m, &listener, 1);
}

static int run_agent(struct child *c)
{
	static char name[] = "zwinger-agent", scoped[] = AGENT_SCOPED, unscoped[] = AGENT_UNSCOPED;
	char *const argv[] = {name, c->walls->rules.inner >= 0 ? scoped : unscoped, NULL};
	char *const env[] = {NULL};

	(void) syscall(SYS_execveat, c->agent, "", argv, env, AT_EMPTY_PATH);
	return -errno;
}

static const struct step {
	const char *name;
	int (*run)(struct child *c); /* 0 or negative errno */
} steps[] = {
    {"join control groups", join_cgroups},
    {"leave the session", leave_session},
    {"take the sandbox's identity", take_identity},
    {"open descriptors", open_descriptors},
    {"set resource limits", set_limits},
    {"drop capabilities", drop_capabilities},
    {"enforce Landlock", enforce_landlock},
    {"place descriptors", place_descriptors},
    {"install the system call filter", install_filter},
    {"run the agent", run_agent},
};
_Static_assert(ARRAY_SIZE(steps) <= STEPS_MAX, "room for the times of all steps");

static _Noreturn void child_main(struct child *c)
{
	usec_t before = now_monotonic();

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		usec_t after;
		int r = steps[i].run(c);

		if (r < 0) {
			const struct message m = {.kind = MESSAGE_FAULT, .step = (uint32_t) i, .error = -r};

			(void) fd_send(c->sync, &m, sizeof m, NULL, 0); /* a dead supervisor need not know */
			_exit(125);
		}
		after = now_monotonic();
		c->took[i] = (uint32_t) (after - before);
		before = after;
	}
	_exit(125); /* not reached: the last step executes or fails */
}

/* ---- The supervisor. ---- */

static int move_fd(int *fd, struct zw_error *e)
{
	int moved = fcntl(*fd, F_DUPFD_CLOEXEC, FD_ABOVE);

	if (moved < 0)
		return zw_errno(e, errno, "cannot move a descriptor");
	fd_close(fd);
	*fd = moved;
	return 0;
}

static int open_sockets(struct sandbox *s, struct child *c, int *ret_sync, struct zw_error *e)
{
	int channel[2], sync[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
		return zw_errno(e, errno, "cannot make the agent's channel");
	s->channel = channel[0];
	c->channel = channel[1];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0)
		return zw_errno(e, errno, "cannot make the build socket");
	*ret_sync = sync[0];
	c->sync = sync[1];
	r = move_fd(&c->channel, e);
	return r < 0 ? r : move_fd(&c->sync, e);
}

/* A container's filter often hides clone3(2), whose flags it cannot see: then by fork(2), and into the group by its file. */
static int clone_child(struct sandbox *s, struct child *c, struct zw_error *e)
{
	int cgroup = cgroup_clone_fd(s->cgroup);
	pid_t pid = clone_namespaces(0, cgroup, &s->pidfd);

	if (pid == -ENOSYS || pid == -EPERM || pid == -EINVAL) {
		c->cgroup = cgroup;
		pid = fork();
		if (pid < 0)
			pid = -errno;
	}
	if (pid == 0)
		child_main(c);
	if (pid < 0)
		return zw_errno(e, -pid, "cannot start a process");
	s->pid = pid;
	if (s->pidfd < 0)
		s->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
	return s->pidfd < 0 ? zw_errno(e, errno, "cannot open a descriptor of the agent") : 0;
}

static void note_steps(struct sandbox *s, const struct message *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(steps) && s->step_count < ARRAY_SIZE(s->steps); i++)
		s->steps[s->step_count++] = (struct step_time){.name = steps[i].name, .took = m->took[i]};
}

static int take_message(struct sandbox *s, const struct message *m, int *fd, struct zw_error *e)
{
	if (m->kind == MESSAGE_FAULT)
		return zw_errno(e, m->error, "set-up failed at \"%s\"",
				m->step < ARRAY_SIZE(steps) ? steps[m->step].name : "an unknown step");
	if (m->kind != MESSAGE_LISTENER || *fd < 0 || s->listener >= 0)
		return zw_error(e, EPROTO, "the child sent an unknown message");
	s->listener = take_fd(fd);
	seccomp_tune_listener(s->listener);
	note_steps(s, m);
	return 0;
}

/* The filter's first customer may be the agent's own exec: it goes on at once. */
static void let_exec_pass(const struct sandbox *s)
{
	struct seccomp_notif notif;

	if (seccomp_receive(s->listener, &notif) == 0)
		(void) seccomp_continue(s->listener, notif.id); /* a dead caller needs no answer */
}

/* Until the socket ends: by the exec, or with the child. */
static int converse(struct sandbox *s, int sync, struct zw_error *e)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = sync, .events = POLLIN}, {.fd = s->listener, .events = POLLIN}};
		cleanup_fd int fd = -EBADF;
		struct message m;
		size_t room = 1;
		ssize_t n;
		int r = poll(fds, s->listener >= 0 ? 2 : 1, -1);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return zw_errno(e, errno, "cannot wait for the child");
		if (s->listener >= 0 && (fds[1].revents & POLLIN) != 0)
			let_exec_pass(s);
		if (fds[0].revents == 0)
			continue;
		n = fd_recv(sync, &m, sizeof m, &fd, &room);
		if (n == 0 || n == -ECONNRESET)
			return s->listener >= 0 ? 0 : zw_error(e, ECHILD, "set-up ended before the walls were complete");
		if (n != (ssize_t) sizeof m)
			return zw_error(e, EPROTO, "a message of the child is cut short");
		r = take_message(s, &m, &fd, e);
		if (r < 0)
			return r;
	}
}

void process_undo(struct sandbox *s)
{
	if (s->pid > 0) {
		(void) kill(s->pid, SIGKILL); /* our unreaped child: its pid is its own */
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	s->pid = 0;
	fd_close(&s->pidfd);
	fd_close(&s->channel);
	fd_close(&s->listener);
}

int process_build(struct sandbox *s, const struct process_walls *walls, struct zw_error *e)
{
	struct child c = {.plan = s->plan,
			  .walls = walls,
			  .channel = -EBADF,
			  .agent = agent_memfd(e),
			  .sync = -EBADF,
			  .null = -EBADF,
			  .extra = -EBADF,
			  .terminal = -EBADF,
			  .cgroup = -EBADF};
	int sync = -EBADF;
	int r = c.agent < 0 ? c.agent : move_fd(&c.agent, e);

	if (r == 0)
		r = open_sockets(s, &c, &sync, e);
	if (r == 0) {
		c.join_count = cgroup_join_fds(s->cgroup, c.join);
		r = clone_child(s, &c, e);
	}
	fd_close(&c.channel);
	fd_close(&c.sync);
	fd_close(&c.agent);
	if (r == 0) {
		cgroup_prepare(s->cgroup);
		cgroup_reap(s->cgroup); /* what others left, while the child is busy */
		r = converse(s, sync, e);
	}
	fd_close(&sync);
	if (r < 0)
		process_undo(s);
	return r;
}
