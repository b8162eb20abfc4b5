/* clone3(2) by the raw call: libc's wrappers cache the thread id and have no room for the newer fields. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Like fork(2), with namespaces. `cgroup` is an fd of a v2 group to be born in, or -EBADF. The child has all signal handlers
 * reset. Returns 0 in the child, the pid in the parent (and *ret_pidfd, close-on-exec), or negative errno. */
pid_t clone_namespaces(uint64_t flags, int cgroup, int *ret_pidfd);
