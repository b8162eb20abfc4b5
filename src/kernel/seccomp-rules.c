/* The rules: plain verdicts, and the clauses for calls whose arguments decide. Also the judge, which reads the same clauses. */
#include <asm/ioctls.h>
#include <asm/socket.h>
#include <asm/termbits.h>
#include <errno.h>
#include <linux/fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/memfd.h>
#include <linux/personality.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "kernel/seccomp-table.h"
#include "kernel/uapi.h"

/* socket(2) constants by value: the libc headers that name them all clash with the kernel's. */
enum { FAMILY_UNIX = 1, FAMILY_INET = 2, FAMILY_INET6 = 10, FAMILY_NETLINK = 16 };
enum { TYPE_STREAM = 1, TYPE_DGRAM = 2, TYPE_RAW = 3, TYPE_MASK = 0xf };
enum { NSCD_SOCKET_TYPE = 0x80801 }; /* SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK */
enum { PROTO_DEFAULT = 0, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_MPTCP = 262 };
enum { LEVEL_IP = 0, LEVEL_SOCKET = SOL_SOCKET, LEVEL_IPV6 = 41 };
enum {
	OPTION_NODELAY = 1,
	OPTION_CORK = 3,
	OPTION_QUICKACK = 12,
	OPTION_CONGESTION = 13,
	OPTION_PKTINFO = 8,
	OPTION_V6ONLY = 26,
	OPTION_RECVPKTINFO = 49
};
enum { OPEN_TMPFILE_BIT = 020000000 }; /* __O_TMPFILE, without the O_DIRECTORY that O_TMPFILE brings */
enum { MODE_SETID = 06000, MODE_TYPE = 0170000 };
enum { LEASE_SET = 1024, DNOTIFY = 1026, DELEGATION_SET = 1040 }; /* F_SETLEASE, F_NOTIFY, F_SETDELEG (6.19) */

#define SET(...) .set = (const uint32_t[]){__VA_ARGS__}, .count = ARRAY_SIZE(((const uint32_t[]){__VA_ARGS__}))
#define IN(n, ...)                                                                                                               \
	{                                                                                                                        \
		.op = TEST_IN, .arg = (n), .mask = SECCOMP_TEST_MASK_ALL, SET(__VA_ARGS__)                                       \
	}
#define MASKED_IN(n, m, ...)                                                                                                     \
	{                                                                                                                        \
		.op = TEST_IN, .arg = (n), .mask = (m), SET(__VA_ARGS__)                                                         \
	}
#define ANY(n, m)                                                                                                                \
	{                                                                                                                        \
		.op = TEST_ANY, .arg = (n), .mask = (m)                                                                          \
	}
#define WITHIN(n, m)                                                                                                             \
	{                                                                                                                        \
		.op = TEST_WITHIN, .arg = (n), .mask = (m)                                                                       \
	}
#define CLAUSES(...)                                                                                                             \
	.clauses = (const struct seccomp_clause[]){__VA_ARGS__},                                                                 \
	.count = ARRAY_SIZE(((const struct seccomp_clause[]){__VA_ARGS__}))

#define NAMESPACE_FLAGS                                                                                                          \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define UNSHARE_HARMLESS (CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_VM | CLONE_SIGHAND | CLONE_THREAD)

/* Pushing keys into a terminal (CVE-2017-5226), the console's paste buffer (CVE-2023-1523), taking over console output, line
 * disciplines (a long list of kernel faults), project ids (they move a file out of a disk quota). */
#define IOCTL_REFUSED TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, TIOCVHANGUP, FS_IOC_FSSETXATTR

/* Terminals, pipes, sockets' own state, reflinks: all that the C library, shells, compilers and interpreters ask for. In these
 * lists neighbours stand in ascending order, which lets the compiler test them as one span. */
#define IOCTL_TERMINAL_A                                                                                                         \
	TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETA, TCSETA, TCSETAW, TCSETAF, TCSBRK, TCXONC, TCFLSH, TIOCEXCL, TIOCNXCL,          \
	    TIOCSCTTY, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ
#define IOCTL_TERMINAL_B TIOCGWINSZ, TIOCSWINSZ, TIOCMGET, TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCGSOFTCAR, TIOCSSOFTCAR, FIONREAD
#define IOCTL_TERMINAL_C TIOCPKT, FIONBIO, TIOCNOTTY, TIOCGETD, TCSBRKP, TIOCGSID, TIOCGPTPEER, TIOCGPTN, TIOCSPTLCK, TIOCGPTLCK
#define IOCTL_TERMIOS2 TCGETS2, TCSETS2, TCSETSW2, TCSETSF2
#define IOCTL_FILE                                                                                                               \
	FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE, FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_GETFLAGS, FS_IOC_GETVERSION,         \
	    FS_IOC_FSGETXATTR, FS_IOC_FIEMAP
#define IOCTL_INTERFACE                                                                                                          \
	SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK, SIOCGIFMTU, SIOCGIFHWADDR,          \
	    SIOCGIFINDEX
#define IOCTL_COMMON IOCTL_TERMINAL_A, IOCTL_TERMINAL_B, IOCTL_TERMINAL_C, IOCTL_TERMIOS2, IOCTL_FILE, IOCTL_INTERFACE

/* Another process's core scheduling, swapping priority, memory map; merged pages tell one sandbox what another holds. */
#define PRCTL_REFUSED PR_SET_MM, PR_SET_IO_FLUSHER, PR_SCHED_CORE, PR_SET_MEMORY_MERGE
#define PRCTL_SELF PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE
#define PRCTL_TASK                                                                                                               \
	PR_GET_KEEPCAPS, PR_SET_KEEPCAPS, PR_GET_TIMING, PR_SET_TIMING, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP,                \
	    PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_GET_TSC, PR_SET_TSC, PR_GET_SECUREBITS, PR_SET_SECUREBITS,      \
	    PR_SET_TIMERSLACK, PR_GET_TIMERSLACK, PR_TASK_PERF_EVENTS_DISABLE, PR_TASK_PERF_EVENTS_ENABLE, PR_MCE_KILL,          \
	    PR_MCE_KILL_GET
#define PRCTL_TREE                                                                                                               \
	PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS,            \
	    PR_SET_THP_DISABLE, PR_GET_THP_DISABLE
#define PRCTL_CPU                                                                                                                \
	PR_SVE_SET_VL, PR_SVE_GET_VL, PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL, PR_PAC_RESET_KEYS,                       \
	    PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL
#define PRCTL_LATE                                                                                                               \
	PR_GET_IO_FLUSHER, PR_SET_SYSCALL_USER_DISPATCH, PR_PAC_SET_ENABLED_KEYS, PR_PAC_GET_ENABLED_KEYS, PR_SME_SET_VL,        \
	    PR_SME_GET_VL, PR_SET_MDWE, PR_GET_MDWE, PR_GET_MEMORY_MERGE, PR_GET_SHADOW_STACK_STATUS,                            \
	    PR_SET_SHADOW_STACK_STATUS, PR_LOCK_SHADOW_STACK_STATUS, PR_SET_VMA, PR_SET_PTRACER, PR_GET_AUXV
#define PRCTL_COMMON PRCTL_SELF, PRCTL_TASK, PRCTL_TREE, PRCTL_CPU, PRCTL_LATE

/* Creating with a set-id mode is refused, so that no set-id file is left in a write mount even for a moment. The mode counts only
 * when a file may be made: it is an unset register otherwise. mkdir needs no rule: the kernel drops these bits from its mode. */
#define OPEN_CLAUSES(flags, mode)                                                                                                \
	{                                                                                                                        \
		.tests = {ANY(flags, O_CREAT | OPEN_TMPFILE_BIT), ANY(mode, MODE_SETID)}, .verdict = VERDICT_DENY(EPERM)         \
	}
#define MKNOD_CLAUSES(mode)                                                                                                      \
	{.tests = {ANY(mode, MODE_SETID)}, .verdict = VERDICT_DENY(EPERM)},                                                      \
	{                                                                                                                        \
		.tests = {MASKED_IN(mode, MODE_TYPE, 0, S_IFREG, S_IFIFO, S_IFSOCK)}, .verdict = VERDICT_ALLOW                   \
	}
#define IP_CLAUSES                                                                                                               \
	{.tests = {IN(0, FAMILY_INET, FAMILY_INET6), MASKED_IN(1, TYPE_MASK, TYPE_STREAM, TYPE_DGRAM),                           \
		   IN(2, PROTO_DEFAULT, PROTO_TCP, PROTO_UDP)},                                                                  \
	 .verdict = VERDICT_ALLOW},                                                                                              \
	    {.tests = {IN(0, FAMILY_INET, FAMILY_INET6), IN(2, PROTO_MPTCP)}, .verdict = VERDICT_QUIET(EPROTONOSUPPORT)},        \
	    {.tests = {IN(0, FAMILY_INET, FAMILY_INET6), MASKED_IN(1, TYPE_MASK, TYPE_RAW)}, .verdict = VERDICT_DENY(EPERM)},    \
	{                                                                                                                        \
		.tests = {IN(0, FAMILY_INET, FAMILY_INET6)}, .verdict = VERDICT_DENY(EPROTONOSUPPORT)                            \
	}
/* clang-format off */
const struct seccomp_rule seccomp_rules[RULE_MAX] = {
	[RULE_ALLOW] = {.otherwise = VERDICT_ALLOW},
	[RULE_DENY] = {.otherwise = VERDICT_DENY(EPERM)},
	[RULE_DENY_ENOSYS] = {.otherwise = VERDICT_DENY(ENOSYS)},
	[RULE_ABSENT] = {.otherwise = VERDICT_QUIET(ENOSYS)},
	[RULE_QUIET_EPERM] = {.otherwise = VERDICT_QUIET(EPERM)},

	/* clone(2) takes the exit signal in the low byte, so CLONE_NEWTIME (0x80) cannot be asked for here. */
	[RULE_CLONE] = {
		.text = "new namespaces are refused (EPERM)",
		CLAUSES({.tests = {ANY(0, NAMESPACE_FLAGS)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_ALLOW,
	},
	/* All 64 bits: newer kernels put namespace flags into what older ones ignored. */
	[RULE_UNSHARE] = {
		.text = "only the file table, the working directory and semaphores; new namespaces are refused (EPERM)",
		CLAUSES({.tests = {WITHIN(0, UNSHARE_HARMLESS)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_OPEN] = {
		.text = "creating with a set-user-id or set-group-id mode is refused (EPERM)",
		CLAUSES(OPEN_CLAUSES(1, 2)),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_OPENAT] = {
		.text = "creating with a set-user-id or set-group-id mode is refused (EPERM)",
		CLAUSES(OPEN_CLAUSES(2, 3)),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_MODE1] = {
		.text = "set-user-id and set-group-id bits are refused (EPERM)",
		CLAUSES({.tests = {ANY(1, MODE_SETID)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_MODE2] = {
		.text = "set-user-id and set-group-id bits are refused (EPERM)",
		CLAUSES({.tests = {ANY(2, MODE_SETID)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_MKNOD] = {
		.text = "pipes, sockets and plain files; device nodes and set-id bits are refused (EPERM)",
		CLAUSES(MKNOD_CLAUSES(1)),
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_MKNODAT] = {
		.text = "pipes, sockets and plain files; device nodes and set-id bits are refused (EPERM)",
		CLAUSES(MKNOD_CLAUSES(2)),
		.otherwise = VERDICT_DENY(EPERM),
	},
	/* EAFNOSUPPORT and EPROTONOSUPPORT are what a kernel without that module answers, and what programs know to live with (libaudit,
	 * for one). Multipath TCP is a probe that the Go runtime makes at each start. */
	[RULE_SOCKET] = {
		.text = "AF_UNIX; AF_INET and AF_INET6 for TCP and UDP; AF_NETLINK for NETLINK_ROUTE. Raw sockets are refused (EPERM), "
			"other families (EAFNOSUPPORT) and protocols (EPROTONOSUPPORT) too; MPTCP is absent",
		CLAUSES({.tests = {IN(0, FAMILY_UNIX)}, .verdict = VERDICT_ALLOW},
			IP_CLAUSES,
			{.tests = {IN(0, FAMILY_NETLINK), IN(2, 0)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(0, FAMILY_NETLINK)}, .verdict = VERDICT_DENY(EPROTONOSUPPORT)}),
		.otherwise = VERDICT_DENY(EAFNOSUPPORT),
	},
	/* Two probes are no denials: the C library asks the name service cache by a socket of exactly this type in each look-up of a user,
	 * and looks for the addresses of interfaces before it resolves a name. */
	[RULE_SOCKET_PROCESS] = {
		.text = "refused (EPERM): without a network namespace nothing else keeps it from the host's services. Stream AF_UNIX sockets "
			"made non-blocking and close-on-exec, and NETLINK_ROUTE, are refused without a record (EACCES): each look-up of a "
			"user or a host name tries one",
		CLAUSES({.tests = {IN(0, FAMILY_UNIX), IN(1, NSCD_SOCKET_TYPE), IN(2, 0)}, .verdict = VERDICT_QUIET(EACCES)},
			{.tests = {IN(0, FAMILY_NETLINK), IN(2, 0)}, .verdict = VERDICT_QUIET(EACCES)},
			{.tests = {IN(0, FAMILY_UNIX, FAMILY_INET, FAMILY_INET6, FAMILY_NETLINK)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_DENY(EAFNOSUPPORT),
	},
	[RULE_SOCKETPAIR] = {
		.text = "AF_UNIX only, others are refused (EAFNOSUPPORT)",
		CLAUSES({.tests = {IN(0, FAMILY_UNIX)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EAFNOSUPPORT),
	},
	/* A datagram socket of a pair can be pointed at another socket with connect or sendto; a connected stream cannot. */
	[RULE_SOCKETPAIR_PROCESS] = {
		.text = "AF_UNIX streams and packet streams; datagram pairs can be redirected to a socket of the host and are refused (EPERM)",
		CLAUSES({.tests = {IN(0, FAMILY_UNIX), MASKED_IN(1, TYPE_MASK, TYPE_STREAM, 5)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(0, FAMILY_UNIX)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_DENY(EAFNOSUPPORT),
	},
	[RULE_IOCTL] = {
		.text = "TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, TIOCVHANGUP, FS_IOC_FSSETXATTR are refused (EPERM)",
		CLAUSES({.tests = {IN(1, IOCTL_REFUSED)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_ALLOW,
	},
	/* Also without namespaces: file systems have requests that change an owner's file, or make new ones (btrfs snapshots, verity, flags),
	 * on a descriptor that is only open for reading, and Landlock looks at none of them. */
	[RULE_IOCTL_STRICT] = {
		.text = "terminals, pipes, sockets and file attributes; what default refuses (EPERM); others are answered ENOTTY",
		CLAUSES({.tests = {IN(1, IOCTL_COMMON)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(1, IOCTL_REFUSED)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_QUIET(ENOTTY),
	},
	/* Leases, delegations and directory notification act between all that share an inode, read-only mounts included: a channel between
	 * sandboxes. Locks are one too, but programs cannot do without. */
	[RULE_FCNTL] = {
		.text = "F_SETLEASE, F_NOTIFY and F_SETDELEG are refused (EPERM)",
		CLAUSES({.tests = {IN(1, LEASE_SET, DNOTIFY, DELEGATION_SET)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_PRCTL] = {
		.text = "the options of an ordinary process; PR_SET_MM, PR_SET_IO_FLUSHER, PR_SCHED_CORE, PR_SET_MEMORY_MERGE and raising "
			"ambient capabilities are refused (EPERM); others are answered EINVAL",
		CLAUSES({.tests = {IN(0, PRCTL_COMMON)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(0, PR_CAP_AMBIENT),
				   IN(1, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_LOWER, PR_CAP_AMBIENT_CLEAR_ALL)},
			 .verdict = VERDICT_ALLOW},
			{.tests = {IN(0, PR_CAP_AMBIENT, PRCTL_REFUSED)}, .verdict = VERDICT_DENY(EPERM)}),
		.otherwise = VERDICT_QUIET(EINVAL),
	},
	[RULE_PERSONALITY] = {
		.text = "PER_LINUX, PER_LINUX32 and asking for the present one; others are refused (EPERM)",
		CLAUSES({.tests = {IN(0, PER_LINUX, PER_LINUX32, 0xffffffff)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_PERSONALITY_DEBUG] = {
		.text = "as default, and ADDR_NO_RANDOMIZE",
		CLAUSES({.tests = {IN(0, PER_LINUX, PER_LINUX32, 0xffffffff, ADDR_NO_RANDOMIZE, PER_LINUX32 | ADDR_NO_RANDOMIZE)},
			 .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	/* The sandbox runs with a core limit of 1, the one value that also keeps a crash from the host's piped core handler (core(5)).
	 * Programs that hold secrets lower it to 0, which would open that pipe again, and end when that fails: they are told it worked. */
	[RULE_SETRLIMIT] = {
		.text = "RLIMIT_CORE is left as it is and answered with success",
		CLAUSES({.tests = {IN(0, RLIMIT_CORE)}, .verdict = VERDICT_QUIET(0)}),
		.otherwise = VERDICT_ALLOW,
	},
	/* Process 1 is the agent. It has the uid of the program, so the kernel would let the program set its limits: with no CPU time or
	 * descriptors left the agent ends without a word, and the result could not say how the program ended. */
	[RULE_PRLIMIT] = {
		.text = "reading; setting RLIMIT_CORE is answered with success and not done; those of process 1 cannot be set (EPERM)",
		CLAUSES({.tests = {WITHIN(2, 0)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(0, 1)}, .verdict = VERDICT_DENY(EPERM)},
			{.tests = {IN(1, RLIMIT_CORE)}, .verdict = VERDICT_QUIET(0)}),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_PRLIMIT_PROCESS] = {
		.text = "reading, and setting one's own; RLIMIT_CORE as at the other levels; other processes' limits are refused (EPERM)",
		CLAUSES({.tests = {WITHIN(2, 0)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(1, RLIMIT_CORE)}, .verdict = VERDICT_QUIET(0)},
			{.tests = {IN(0, 0)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_SETSCHEDULER] = {
		.text = "SCHED_OTHER, SCHED_BATCH and SCHED_IDLE; real-time policies are refused (EPERM)",
		CLAUSES({.tests = {MASKED_IN(1, ~(uint32_t) SCHED_RESET_ON_FORK, SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE)},
			 .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	/* Of two filters that both ask a notifier the newer one wins. Should our listener ever be closed while the sandbox lives, a listener of
	 * its own would let it answer "continue" to everything that we refuse. Filters that only take away are welcome. */
	[RULE_SECCOMP] = {
		.text = "further filters; one with a listener of its own is refused (EBUSY)",
		CLAUSES({.tests = {ANY(1, SECCOMP_FILTER_FLAG_NEW_LISTENER)}, .verdict = VERDICT_DENY(EBUSY)}),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_MEMFD_STRICT] = {
		.text = "only with MFD_NOEXEC_SEAL, else refused (ENOSYS)",
		CLAUSES({.tests = {ANY(1, MFD_NOEXEC_SEAL)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(ENOSYS),
	},
	/* What Landlock does not know an owner to do. The level's answer (src/isolation/process-answer.c) comes before the refusal. */
	[RULE_OWNER_PROCESS] = {
		.text = "carried out by the supervisor on files in folders that are writable inside; refused elsewhere (EPERM)",
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_XATTR_PROCESS] = {
		.text = "answered as by a file system without them (EOPNOTSUPP)",
		.otherwise = VERDICT_QUIET(EOPNOTSUPP),
	},
	[RULE_AFFINITY_PROCESS] = {
		.text = "for threads of the calling process; others are refused (EPERM)",
		CLAUSES({.tests = {IN(0, 0)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_SETSCHEDULER_PROCESS] = {
		.text = "SCHED_OTHER, SCHED_BATCH and SCHED_IDLE for threads of the calling process; others are refused (EPERM)",
		CLAUSES({.tests = {IN(0, 0), MASKED_IN(1, ~(uint32_t) SCHED_RESET_ON_FORK, SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE)},
			 .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_PRIORITY_PROCESS] = {
		.text = "for the calling thread and its process group; others are refused (EPERM)",
		CLAUSES({.tests = {IN(0, 0, 1), IN(1, 0)}, .verdict = VERDICT_ALLOW}), /* PRIO_PROCESS, PRIO_PGRP */
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_IOPRIO_PROCESS] = {
		.text = "for the calling thread and its process group; others are refused (EPERM)",
		CLAUSES({.tests = {IN(0, 1, 2), IN(1, 0)}, .verdict = VERDICT_ALLOW}), /* IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP */
		.otherwise = VERDICT_DENY(EPERM),
	},
	[RULE_WATCH_PROCESS] = {
		.text = "carried out by the supervisor in the policy's own folders; refused elsewhere (EPERM)",
		.otherwise = VERDICT_DENY(EPERM),
	},

	/* The network broker. What it must not do is never a probe of honest code: it dies. */
	[RULE_KILL] = {.otherwise = VERDICT_KILL},
	[RULE_SOCKET_BROKER] = {
		.text = "AF_INET and AF_INET6 for TCP and UDP",
		CLAUSES({.tests = {IN(0, FAMILY_INET, FAMILY_INET6), MASKED_IN(1, TYPE_MASK, TYPE_STREAM, TYPE_DGRAM),
				   IN(2, PROTO_DEFAULT, PROTO_TCP, PROTO_UDP)},
			 .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_KILL,
	},
	/* Filters, upper-layer protocols, zero-copy and other modes of a socket are kernel surface that moving bytes does not need. */
	[RULE_SETSOCKOPT_BROKER] = {
		.text = "lingering, keep-alive, buffer sizes, times, delays, congestion control, the address of a datagram",
		CLAUSES({.tests = {IN(1, LEVEL_SOCKET), IN(2, SO_REUSEADDR, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE, SO_LINGER,
							  SO_RCVTIMEO_OLD, SO_SNDTIMEO_OLD)},
			 .verdict = VERDICT_ALLOW},
			{.tests = {IN(1, PROTO_TCP), IN(2, OPTION_NODELAY, OPTION_CORK, OPTION_QUICKACK, OPTION_CONGESTION)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(1, LEVEL_IP), IN(2, OPTION_PKTINFO)}, .verdict = VERDICT_ALLOW},
			{.tests = {IN(1, LEVEL_IPV6), IN(2, OPTION_V6ONLY, OPTION_RECVPKTINFO)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_KILL,
	},
	[RULE_MEMORY_BROKER] = {
		.text = "never executable",
		CLAUSES({.tests = {ANY(2, PROT_EXEC)}, .verdict = VERDICT_KILL}),
		.otherwise = VERDICT_ALLOW,
	},
	[RULE_FCNTL_BROKER] = {
		.text = "flags, close-on-exec, the size of a pipe",
		CLAUSES({.tests = {IN(1, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_SETPIPE_SZ)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_KILL,
	},
	[RULE_IOCTL_BROKER] = {
		.text = "how much lies in a socket, and whether it blocks",
		CLAUSES({.tests = {IN(1, TIOCOUTQ, FIONREAD, FIONBIO)}, .verdict = VERDICT_ALLOW}),
		.otherwise = VERDICT_KILL,
	},
};
/* clang-format on */

static bool test_holds(const struct seccomp_test *t, const struct seccomp_data *data)
{
	uint64_t value = data->args[t->arg];
	uint32_t low = (uint32_t) value & t->mask;

	if (t->op == TEST_WITHIN)
		return (value & ~(uint64_t) t->mask) == 0;
	if (t->op == TEST_ANY)
		return low != 0;
	for (size_t i = 0; i < t->count; i++) {
		if (low == t->set[i])
			return true;
	}
	return false;
}

static bool clause_holds(const struct seccomp_clause *c, const struct seccomp_data *data)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->tests) && c->tests[i].op != TEST_END; i++) {
		if (!test_holds(&c->tests[i], data))
			return false;
	}
	return true;
}

static bool listed(const int *list, size_t count, int nr)
{
	for (size_t i = 0; i < count; i++) {
		if (list[i] == nr)
			return true;
	}
	return false;
}

static bool reported(const struct seccomp_spec *spec, unsigned report)
{
	return (report == REPORT_EXEC && spec->notify_exec) || (report == REPORT_CONNECT && spec->notify_connect) ||
	       (report == REPORT_OPEN && spec->notify_open);
}

uint32_t seccomp_foreign_verdict(const struct seccomp_spec *spec)
{
	return spec->profile == SECCOMP_BROKER ? VERDICT_KILL : VERDICT_DENY(ENOSYS);
}

static struct seccomp_treatment treat_broker(const struct seccomp_numbers *numbers, int nr)
{
	struct seccomp_treatment t = {.rule = RULE_KILL, .allowed = VERDICT_ALLOW};

	if (nr >= 0 && nr < SECCOMP_CALLS_MAX && numbers->row[nr] >= 0)
		t.rule = seccomp_broker_rule(seccomp_calls[numbers->row[nr]].name);
	return t;
}

struct seccomp_treatment seccomp_treat(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, int nr)
{
	struct seccomp_treatment t = {.rule = RULE_ABSENT, .allowed = VERDICT_ALLOW};
	const struct seccomp_call *call;

	if (spec->profile == SECCOMP_BROKER)
		return treat_broker(numbers, nr);
	if (nr < 0 || nr >= SECCOMP_CALLS_MAX || numbers->row[nr] < 0)
		return t;
	call = &seccomp_calls[numbers->row[nr]];
	if (reported(spec, call->report))
		t.allowed = VERDICT_REPORT;
	if (listed(spec->deny, spec->deny_count, nr)) {
		t.rule = RULE_DENY;
		return t;
	}
	if (spec->fixed_processors && strcmp(call->name, "sched_setaffinity") == 0) {
		t.rule = RULE_QUIET_EPERM;
		return t;
	}
	t.rule = (enum seccomp_rule_id) call->rule[spec->profile];
	if (spec->no_namespaces && call->process != RULE_SAME)
		t.rule = (enum seccomp_rule_id) call->process;
	else if (call->lock == LOCK_FREE && listed(spec->allow, spec->allow_count, nr))
		t.rule = RULE_ALLOW;
	return t;
}

uint32_t seccomp_decide(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, const struct seccomp_data *data)
{
	struct seccomp_treatment t;
	const struct seccomp_rule *rule;
	uint32_t verdict;

	if (data->arch != numbers->arch)
		return seccomp_foreign_verdict(spec);
	if (data->nr >= 0 && ((uint32_t) data->nr & SECCOMP_X32_BIT) && numbers->arch == AUDIT_ARCH_X86_64)
		return seccomp_foreign_verdict(spec);
	t = seccomp_treat(numbers, spec, data->nr);
	rule = &seccomp_rules[t.rule];
	verdict = rule->otherwise;
	for (size_t i = 0; i < rule->count; i++) {
		if (clause_holds(&rule->clauses[i], data)) {
			verdict = rule->clauses[i].verdict;
			break;
		}
	}
	return verdict == VERDICT_ALLOW ? t.allowed : verdict;
}
