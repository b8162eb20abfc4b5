#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "isolation/process.h"
#include "sandbox/tree.h"

/* What the sandbox may know about itself; at the other levels it lies in /run. */
static int write_summary(int scratch, const char *text, struct zw_error *e)
{
	cleanup_fd int fd = openat(scratch, "policy.json", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));

	return r < 0 ? zw_errno(e, -r, "cannot write the sandbox's summary") : 0;
}

/* Outlives a supervisor that was killed: waits for the agent's end, which the end of the channel brings about, and removes the
 * folder. Of all our fds it keeps two; the caller's pipes above all must not stay open here. When the supervisor dies before it
 * has told of an agent, no program has been started and none will be. */
static _Noreturn void keeper_main(int sock, int parent, const char *name)
{
	struct pollfd agent = {.fd = -1, .events = POLLIN};
	sigset_t all;
	ssize_t n;

	(void) sigfillset(&all);
	(void) sigprocmask(SIG_SETMASK, &all, NULL);
	(void) setsid(); /* out of reach of the terminal's keys */
	if (dup2(sock, 0) < 0 || dup2(parent, 1) < 0 || syscall(SYS_close_range, 2, ~0U, 0) < 0)
		_exit(1);
	for (;;) {
		size_t room = 1;
		char done;

		n = fd_recv(0, &done, 1, &agent.fd, &room);
		if (n <= 0)
			break;
		if (room == 0)
			_exit(0); /* the supervisor has done it itself */
	}
	while (agent.fd >= 0 && poll(&agent, 1, -1) < 0 && errno == EINTR)
		;
	(void) tree_remove(1, name);
	_exit(0);
}

static int keeper_start(struct process_level *l, struct zw_error *e)
{
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return zw_errno(e, errno, "cannot make a socket for the keeper of the private folder");
	pid = fork();
	if (pid == 0)
		keeper_main(fds[1], l->parent, l->name);
	fd_close(&fds[1]);
	l->keeper_socket = fds[0];
	if (pid < 0)
		return zw_errno(e, errno, "cannot start the keeper of the private folder");
	l->keeper = pid;
	return 0;
}

int keeper_tell(const struct process_level *l, int agent, struct zw_error *e)
{
	int r = fd_send(l->keeper_socket, "a", 1, &agent, 1);

	return r < 0 ? zw_errno(e, -r, "cannot reach the keeper of the private folder") : 0;
}

/* Its work is done, or is left to it: it does the same when nobody tells it anything. */
static void keeper_end(struct process_level *l, bool done)
{
	if (l->keeper_socket >= 0 && done)
		(void) fd_send(l->keeper_socket, "d", 1, NULL, 0);
	fd_close(&l->keeper_socket);
	if (l->keeper > 0)
		while (waitpid(l->keeper, NULL, 0) < 0 && errno == EINTR)
			;
	l->keeper = 0;
}

/* The name has a hundred random bits and must not exist yet: nobody can have prepared it. */
int scratch_make(struct sandbox *s, struct process_level *l, struct zw_error *e)
{
	const char *path = s->plan->home, *slash = strrchr(path, '/');
	cleanup_free char *folder = xstrndup(path, slash > path ? (size_t) (slash - path) : 1);
	int r;

	l->name = slash + 1;
	l->parent = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (l->parent < 0)
		return zw_errno(e, errno, "cannot open %s for the private folder", folder);
	r = keeper_start(l, e);
	if (r < 0)
		return r;
	if (mkdirat(l->parent, l->name, 0700) < 0)
		return zw_errno(e, errno, "cannot make the private folder %s", path);
	l->made = true;
	s->scratch = openat(l->parent, l->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->scratch < 0)
		return zw_errno(e, errno, "cannot open the private folder %s", path);
	r = write_summary(s->scratch, s->plan->policy_json, e);
	if (r == 0 && l->identity.uid != geteuid() && fchown(s->scratch, l->identity.uid, l->identity.gid) < 0)
		r = zw_errno(e, errno, "cannot give the private folder %s to uid %u", path, l->identity.uid);
	return r;
}

void scratch_remove(struct sandbox *s, struct process_level *l)
{
	fd_close(&s->scratch);
	/* What failed here may still succeed there: the keeper has descriptors and memory of its own. */
	keeper_end(l, !l->made || tree_remove(l->parent, l->name) == 0);
	fd_close(&l->parent);
}
