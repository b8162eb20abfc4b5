/* Starting a process: everything is prepared before the clone, and the child shares our memory until it executes (CLONE_VM with
 * CLONE_VFORK, as posix_spawn does), so that a start costs no copy of page tables. The child therefore only makes system calls
 * and writes its fault into one struct. All signals stay blocked until its dispositions are back at their defaults, so no handler
 * of ours can run in it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "agent/agent.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif
#define CLOSE_RANGE_CLOEXEC_FLAG (1U << 2)

static const char default_path[] = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

struct child {
	const struct agent *agent;
	const struct start *start;
	int slave; /* -1: no terminal */
	/* Written by the child. */
	int error;
	uint32_t stage;
};

/* The kernel's own struct: libc refuses the two signals that it keeps for itself, whose dispositions are inherited all the same.
 */
struct kernel_sigaction {
	void *handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

static void reset_signals(void)
{
	const struct kernel_sigaction by_default = {0};
	sigset_t none;

	for (int sig = 1; sig <= 64; sig++)
		(void) syscall(SYS_rt_sigaction, sig, &by_default, NULL,
			       sizeof by_default.mask); /* KILL and STOP refuse: they have one only */
	(void) sigemptyset(&none);
	(void) sigprocmask(SIG_SETMASK, &none, NULL);
}

static int set_stdio(const struct child *c)
{
	int channel = start_channel_fd(c->start);

	for (int fd = 0; fd < 3; fd++)
		if (dup2(c->slave >= 0 ? c->slave : c->start->fds[fd], fd) < 0)
			return errno;
	/* In this process's table: the agent's own channel stays where it is in the agent's. None of ours lies below. */
	return channel < 0 || dup2(channel, START_CHANNEL_FD) >= 0 ? 0 : errno;
}

/* A working directory outside the root shows as "(unreachable)..." (getcwd(2), CVE-2024-21626). */
static int enter_cwd(const char *cwd)
{
	char real[PATH_MAX];

	if (chdir(cwd) < 0)
		return errno;
	/* The raw call: libc's brings an allocator along. */
	if (syscall(SYS_getcwd, real, sizeof real) < 0)
		return errno;
	return real[0] == '/' ? 0 : ENOENT;
}

static const char *path_of(char *const *env)
{
	for (; *env != NULL; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return default_path;
}

/* As execvp(3), but with the PATH of the environment given, without the fallback to a shell on ENOEXEC (a file that is no program
 * is not executable), and with a look before each attempt, so that only real ones appear in the record of executions. Returns an
 * errno. */
static int execute(const struct start *s)
{
	const char *name = s->argv[0];
	size_t name_size = strlen(name);
	bool denied = false;

	if (start_program_fd(s) >= 0) {
		(void) syscall(SYS_execveat, start_program_fd(s), "", s->argv, s->env, AT_EMPTY_PATH);
		return errno;
	}
	if (name_size == 0)
		return ENOENT;
	if (strchr(name, '/') != NULL) {
		(void) execve(name, s->argv, s->env);
		return errno;
	}
	for (const char *dir = path_of(s->env);;) {
		size_t dir_size = strcspn(dir, ":");
		char path[PATH_MAX];

		if (dir_size + name_size + 2 <= sizeof path) {
			memcpy(path, dir, dir_size);
			path[dir_size] = '/';
			/* An empty element is the working directory. */
			memcpy(path + dir_size + (dir_size > 0), name, name_size + 1);
			if (syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0)
				(void) execve(path, s->argv, s->env);
			if (errno == EACCES)
				denied = true;
			else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV &&
				 errno != ETIMEDOUT && errno != ELOOP && errno != ENAMETOOLONG)
				return errno;
		}
		if (dir[dir_size] == '\0')
			return denied ? EACCES : ENOENT;
		dir += dir_size + 1;
	}
}

static _Noreturn void fail(struct child *c, uint32_t stage, int error)
{
	c->stage = stage;
	c->error = error;
	_exit(127);
}

/* One id alone, whichever it is: nothing that is executed has one to change to. A change of ids makes the memory that we share
 * with the agent readable to whoever the host's fs.suid_dumpable says. */
static int take_user(const struct child *c)
{
	bool root = start_is_root(c->start);
	uid_t uid = root ? 0 : geteuid();
	gid_t gid = root ? 0 : getegid();

	if (!c->agent->has_root)
		return 0;
	if (syscall(SYS_setresgid, gid, gid, gid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0)
		return errno;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? errno : 0;
}

static int child_main(void *arg)
{
	struct child *c = arg;
	int r;

	if (setsid() < 0)
		fail(c, EXEC_STAGE_FORK, errno);
	/* Before it can start anything: all that it starts is then born there. */
	for (uint32_t i = 0; i < c->start->fixed.groups; i++)
		if (write(start_group_fds(c->start)[i], "0", 1) != 1)
			fail(c, EXEC_STAGE_FORK, errno);
	if (c->slave >= 0 && ioctl(c->slave, TIOCSCTTY, 0) < 0)
		fail(c, EXEC_STAGE_TTY, errno);
	r = set_stdio(c);
	if (r == 0)
		r = take_user(c);
	if (r != 0)
		fail(c, EXEC_STAGE_FORK, r);
	(void) umask(022);
	r = enter_cwd(c->start->cwd);
	if (r != 0)
		fail(c, EXEC_STAGE_CWD, r);
	if (c->agent->scoped) {
		own_proc_allow(AGENT_EXTRA_FD);
		if (syscall(SYS_landlock_restrict_self, AGENT_EXTRA_FD, 0) < 0)
			fail(c, EXEC_STAGE_FORK, errno);
	}
	/* Every fd of ours is close-on-exec already; this holds also for one that whoever started us left open. */
	if (syscall(SYS_close_range, start_channel_fd(c->start) >= 0 ? START_CHANNEL_FD + 1U : 3U, ~0U,
		    CLOSE_RANGE_CLOEXEC_FLAG) < 0)
		fail(c, EXEC_STAGE_FORK, errno);
	reset_signals();
	fail(c, EXEC_STAGE_EXEC, execute(c->start));
}

bool raise_fds(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int raised;

		if (fds[i] > 2)
			continue;
		raised = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (raised < 0)
			return false;
		(void) close(fds[i]);
		fds[i] = raised;
	}
	return true;
}

static void close_terminal(int fds[2])
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			(void) close(fds[i]);
		fds[i] = -1;
	}
}

/* A terminal of the sandbox's own devpts. The slave comes by ioctl from the master, not by a path that could be something else.
 */
static int make_terminal(struct agent *a, const struct start *s, int fds[2])
{
	const struct winsize size = {.ws_row = s->fixed.rows, .ws_col = s->fixed.columns};
	int unlock = 0, error;

	fds[0] = a->terminal_fd >= 0 ? a->terminal_fd : open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	a->terminal_fd = -1;
	if (fds[0] < 0)
		return errno;
	if (ioctl(fds[0], TIOCSPTLCK, &unlock) == 0 && ioctl(fds[0], TIOCSWINSZ, &size) == 0) {
		fds[1] = ioctl(fds[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (fds[1] >= 0 && raise_fds(fds, 2))
			return 0;
	}
	error = errno;
	close_terminal(fds);
	return error;
}

/* It belongs to whoever opens it. */
static int open_terminal(struct agent *a, const struct start *s, int fds[2])
{
	bool root = a->has_root && start_is_root(s);
	int error;

	if (root)
		(void) setfsuid(0);
	error = make_terminal(a, s, fds);
	if (root) {
		(void) setfsuid(geteuid());
		(void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	}
	return error;
}

int spawn(struct agent *a, const struct start *s, struct process *ret, uint32_t *ret_stage)
{
	char stack[24576] __attribute__((aligned(16)));
	int terminal[2] = {-1, -1};
	struct child c = {.agent = a, .start = s};
	pid_t pid;

	if ((s->fixed.flags & START_TTY) != 0) {
		int r = open_terminal(a, s, terminal);

		if (r != 0) {
			*ret_stage = EXEC_STAGE_TTY;
			return r;
		}
	}
	c.slave = terminal[1];
	pid = clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
	if (pid < 0)
		c = (struct child){.error = errno, .stage = EXEC_STAGE_FORK};
	else if (c.error != 0)
		(void) waitpid(pid, NULL, 0);
	if (c.error != 0) {
		close_terminal(terminal);
		*ret_stage = c.stage;
		return c.error;
	}
	*ret = (struct process){
	    .pid = pid,
	    .id = s->id,
	    .one_shot = (s->fixed.flags & START_ONE_SHOT) != 0,
	    .master = terminal[0],
	    .slave = terminal[1],
	};
	if (a->scoped)
		own_proc_hold(ret);
	return 0;
}
