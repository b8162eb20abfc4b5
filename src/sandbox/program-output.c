#include "sandbox/program-output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

static int set_actions(posix_spawn_file_actions_t *actions, const struct program_call *call, int out)
{
	int r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (r == 0 && call->quiet)
		r = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(actions, out, STDOUT_FILENO);
	if (r == 0 && call->folder != NULL)
		r = posix_spawn_file_actions_addchdir_np(actions, call->folder);
	return r;
}

static int start(const struct program_call *call, int out, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r = posix_spawn_file_actions_init(&actions);

	if (r != 0)
		return -r;
	r = posix_spawnattr_init(&attributes);
	if (r == 0) {
		(void) sigemptyset(&none);
		(void) posix_spawnattr_setsigmask(&attributes, &none);
		(void) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
		r = set_actions(&actions, call, out);
		if (r == 0)
			r = (call->search ? posix_spawnp : posix_spawn)(ret, call->program, &actions, &attributes, call->argv,
									call->environment);
		(void) posix_spawnattr_destroy(&attributes);
	}
	(void) posix_spawn_file_actions_destroy(&actions);
	return -r;
}

/* True when `fd` is ready before the deadline. */
static bool wait_for(int fd, usec_t until)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		usec_t now = now_monotonic();
		int n = now < until ? poll(&p, 1, (int) ((until - now + USEC_PER_MSEC - 1) / USEC_PER_MSEC)) : 0;

		if (n > 0)
			return true;
		if (n == 0 || errno != EINTR)
			return false;
	}
}

/* Everything up to the end of file, when that comes in time and fits. */
static ssize_t read_all(int fd, char *buf, size_t room, usec_t until)
{
	size_t have = 0;

	while (wait_for(fd, until)) {
		ssize_t n = read(fd, buf + have, room - have);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return (ssize_t) have;
		have += n > 0 ? (size_t) n : 0;
		if (have == room)
			return -E2BIG;
	}
	return -ETIMEDOUT;
}

/* Waits for the end of the child, or brings it about: at once when its answer was no good. */
static ssize_t end(pid_t pid, ssize_t answer, usec_t until)
{
	cleanup_fd int pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
	int status;

	if (answer < 0 || pidfd < 0 || !wait_for(pidfd, until))
		(void) kill(-pid, SIGKILL); /* not reaped yet: the pid is its own still */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (answer < 0)
		return answer;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? answer : -ECHILD;
}

ssize_t program_output(const struct program_call *call, char *buf, size_t room, bool *ret_started)
{
	usec_t until = now_monotonic() + call->patience;
	cleanup_fd int reader = -EBADF;
	cleanup_fd int writer = -EBADF;
	int ends[2], r;
	pid_t pid;

	*ret_started = false;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	reader = ends[0];
	writer = ends[1];
	r = start(call, writer, &pid);
	if (r < 0)
		return r;
	*ret_started = true;
	fd_close(&writer);
	return end(pid, read_all(reader, buf, room, until), until);
}
