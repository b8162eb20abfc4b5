#include "kernel/clone.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/uapi.h"

pid_t clone_namespaces(uint64_t flags, int cgroup, int *ret_pidfd)
{
	int pidfd = -EBADF;
	struct clone_args args = {
	    .flags = flags | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
	    .pidfd = (uint64_t) (uintptr_t) &pidfd,
	    .exit_signal = SIGCHLD,
	};
	long pid;

	if (cgroup >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t) cgroup;
	}
	pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid < 0)
		return -errno;
	if (pid > 0)
		*ret_pidfd = pidfd; /* the kernel makes pidfds close-on-exec */
	return (pid_t) pid;
}
