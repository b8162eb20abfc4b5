/* Landlock (landlock(7)): file access by rules that only add to "nothing". Everything here is for use between clone and exec: raw
 * system calls, no allocation, no sentence. Results are fds or 0, failures negative errno; there is no best effort: whoever
 * cannot have the wall is told so.
 *
 * What Landlock does not see, at any version known here: stat, chdir, access, chmod, chown, utime, setxattr, flock, and
 * connecting to a named Unix socket before ABI 9. */
#pragma once

#include <stdbool.h>

/* The ABI of the running kernel, from 1; -EOPNOTSUPP when Landlock is compiled in but not enabled at boot, -ENOSYS when it is not
 * there. */
int landlock_abi(void);

/* First ABI that has ... */
enum {
	LANDLOCK_ABI_REFER = 2,    /* 5.19: moving and linking between folders can be allowed at all */
	LANDLOCK_ABI_TRUNCATE = 3, /* 6.2: before it, truncate(2) is not held */
	LANDLOCK_ABI_IOCTL = 5,    /* 6.10 */
	LANDLOCK_ABI_SCOPE = 6,    /* 6.12: abstract Unix sockets and signals */
	LANDLOCK_ABI_UNIX = 9,     /* 7.1: named Unix sockets */
};

/* A ruleset that handles (so: refuses, until allowed) every file right of `abi`, or of the newest that this file knows if that is
 * older. With `scope`, and from LANDLOCK_ABI_SCOPE on, also abstract Unix sockets of, and signals to, processes outside. The fd
 * is close-on-exec and can be enforced any number of times. */
int landlock_ruleset(unsigned abi, bool scope);

/* The same for changes alone: writing, making, removing, moving, device controls. Opening for reading and executing are left to
 * the mounts, and cost nothing then: a domain that handles them walks up the path at every open (0.7 us). For where everything
 * that can be reached may be read anyway. Truncation by name is left to the mounts too. Rules come by landlock_allow_changes,
 * with the same `abi`. */
int landlock_changes_ruleset(unsigned abi, bool scope);

enum landlock_access {
	LANDLOCK_READ,        /* read, list, execute */
	LANDLOCK_READ_NOEXEC, /* read, list */
	LANDLOCK_WRITE,       /* all but making devices and talking to them */
	LANDLOCK_WRITE_NOEXEC,
	LANDLOCK_DEVICES, /* list, read, write, ioctl: for /dev, single devices and terminals */
};

/* Allows `what` on the file or below the folder behind `path_fd` (O_PATH does). On a file, rights that only folders have are left
 * out, and so are those that the ruleset does not handle. */
int landlock_allow(int ruleset, int path_fd, enum landlock_access what);
int landlock_allow_changes(int ruleset, unsigned abi, int path_fd, enum landlock_access what);

/* Puts the calling thread into a new domain for good. Needs PR_SET_NO_NEW_PRIVS (the caller's business). -E2BIG beyond 16
 * domains. */
int landlock_enforce(int ruleset);
