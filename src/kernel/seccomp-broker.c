/* What the network broker may still do once it is confined: read and write sockets that it has, make further ones of TCP and UDP,
 * move bytes between them, wait, manage its memory, end. Nothing here takes a name of a file, starts a process or looks at one.
 */
#include <string.h>

#include "base/mem.h"
#include "kernel/seccomp-table.h"

static const struct {
	const char *name;
	enum seccomp_rule_id rule;
} broker_calls[] = {
    {"accept4", RULE_ALLOW},        {"brk", RULE_ALLOW},
    {"clock_gettime", RULE_ALLOW},  {"close", RULE_ALLOW},
    {"connect", RULE_ALLOW},        {"epoll_ctl", RULE_ALLOW},
    {"epoll_pwait", RULE_ALLOW},    {"epoll_pwait2", RULE_ALLOW},
    {"epoll_wait", RULE_ALLOW},     {"exit", RULE_ALLOW},
    {"exit_group", RULE_ALLOW},     {"fcntl", RULE_FCNTL_BROKER},
    {"futex", RULE_ALLOW},          {"getpeername", RULE_ALLOW},
    {"getpid", RULE_ALLOW},         {"getrandom", RULE_ALLOW},
    {"getsockname", RULE_ALLOW},    {"getsockopt", RULE_ALLOW},
    {"gettimeofday", RULE_ALLOW},   {"ioctl", RULE_IOCTL_BROKER},
    {"madvise", RULE_ALLOW},        {"mlock", RULE_ALLOW},
    {"mmap", RULE_MEMORY_BROKER},   {"mprotect", RULE_MEMORY_BROKER},
    {"mremap", RULE_ALLOW},         {"munlock", RULE_ALLOW},
    {"munmap", RULE_ALLOW},         {"pipe2", RULE_ALLOW},
    {"poll", RULE_ALLOW},           {"ppoll", RULE_ALLOW},
    {"read", RULE_ALLOW},           {"readv", RULE_ALLOW},
    {"recvfrom", RULE_ALLOW},       {"recvmmsg", RULE_ALLOW},
    {"recvmsg", RULE_ALLOW},        {"restart_syscall", RULE_ALLOW},
    {"rt_sigprocmask", RULE_ALLOW}, {"rt_sigreturn", RULE_ALLOW},
    {"sendmmsg", RULE_ALLOW},       {"sendmsg", RULE_ALLOW},
    {"sendto", RULE_ALLOW},         {"setsockopt", RULE_SETSOCKOPT_BROKER},
    {"shutdown", RULE_ALLOW},       {"sigaltstack", RULE_ALLOW}, /* a sanitized build puts its own away when it ends */
    {"socket", RULE_SOCKET_BROKER}, {"splice", RULE_ALLOW},
    {"time", RULE_ALLOW},           {"timerfd_settime", RULE_ALLOW},
    {"write", RULE_ALLOW},          {"writev", RULE_ALLOW},
};

enum seccomp_rule_id seccomp_broker_rule(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(broker_calls); i++) {
		if (strcmp(broker_calls[i].name, name) == 0)
			return broker_calls[i].rule;
	}
	return RULE_KILL;
}
