/* Reaping, and ending whatever a sandbox without a pid namespace has left running. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"

pid_t reap(bool block, int *ret_status, struct rusage *ret_usage)
{
	pid_t pid;

	do
		pid = wait4(-1, ret_status, block ? 0 : WNOHANG, ret_usage);
	while (pid < 0 && errno == EINTR);
	return pid;
}

/* Kills the direct children, as the kernel lists them now. False when the list is empty or cannot be read. */
static bool kill_children(int children_fd)
{
	char text[4096];
	off_t offset = 0;
	pid_t pid = 0;
	bool any = false;

	for (;;) {
		ssize_t n = pread(children_fd, text, sizeof text, offset);

		if (n <= 0)
			return any;
		offset += n;
		for (ssize_t i = 0; i < n; i++) {
			if (text[i] >= '0' && text[i] <= '9') {
				pid = pid * 10 + (text[i] - '0');
				continue;
			}
			if (pid > 1)
				any |= kill(pid, SIGKILL) == 0;
			pid = 0;
		}
	}
}

/* Reaps at least one when `block`, then all that have ended. False when no child is left. */
static bool reap_and_report(struct agent *a, bool block, bool *ret_any)
{
	struct rusage usage;
	int status;
	pid_t pid = reap(block, &status, &usage);

	*ret_any = pid > 0;
	while (pid > 0) {
		(void) report_end(a, pid, status, &usage);
		pid = reap(false, &status, &usage);
	}
	return pid == 0;
}

/* A killed process hands its children to us, the nearest subreaper, before we can reap it: so "no child left" means that none is
 * left at all. With a scoped domain one kill(-1) takes every process at once, under the lock that fork needs: nothing can run
 * away from it. Without one, children are killed generation by generation; each round ends at least one process, and the process
 * limit bounds how many there are. */
void end_descendants(struct agent *a)
{
	int idle = 0;

	/* A round can find nothing to kill while a child is just being handed to us; many in a row mean that we cannot see our
	 * children (no procfs): then whoever holds the cgroup, or the supervisor as the next subreaper, must end them. */
	while (idle < 64) {
		bool killed = a->scoped ? kill(-1, SIGKILL) == 0 : kill_children(a->children_fd);
		bool reaped;

		if (!reap_and_report(a, killed, &reaped))
			return;
		idle = killed || reaped ? 0 : idle + 1;
	}
}
