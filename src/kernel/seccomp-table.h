/* The data behind the system-call filters, private to src/kernel. One row per call name says by which rule each profile treats
 * it; a rule is a constant verdict or a few clauses over the arguments. The compiler (seccomp-compile.c), the supervisor's judge
 * (seccomp-rules.c), the generated documentation and the tests read the same rows, so they cannot disagree. */
#pragma once

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/seccomp.h"

#if defined(__x86_64__)
#define SECCOMP_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SECCOMP_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call tables for this architecture"
#endif

/* A verdict is a return value of the filter. The kernel ignores the data bits of SECCOMP_RET_USER_NOTIF, so they carry the errno
 * that the supervisor answers; 0 stands for "report it, then let it go on". */
#define VERDICT_ALLOW SECCOMP_RET_ALLOW
#define VERDICT_REPORT SECCOMP_RET_USER_NOTIF
#define VERDICT_DENY(err) (SECCOMP_RET_USER_NOTIF | (err)) /* refused, recorded */
#define VERDICT_QUIET(err) (SECCOMP_RET_ERRNO | (err))     /* answered by the kernel, never recorded */
#define VERDICT_KILL SECCOMP_RET_KILL_PROCESS

#define SECCOMP_CALLS_MAX 512             /* call numbers known to the tables; those beyond do not exist yet */
#define SECCOMP_X32_BIT 0x40000000U       /* __X32_SYSCALL_BIT: the x32 table, reached from 64-bit code */
#define SECCOMP_TEST_MASK_ALL 0xffffffffU /* the whole low half of an argument */

enum seccomp_test_op {
	TEST_END,
	TEST_IN,     /* (low half & mask) is one of the set */
	TEST_ANY,    /* low half has one of the bits of the mask */
	TEST_WITHIN, /* all 64 bits lie within the mask; mask 0 asks for zero (a NULL pointer) */
};

/* Most flags and selectors are int in the kernel, which drops the upper half of the register: they are compared by their low half
 * alone, or a set upper bit would walk past the test (CVE-2019-10063). What the kernel reads as 64 bits uses TEST_WITHIN. */
struct seccomp_test {
	uint8_t op, arg, count;
	uint32_t mask;
	const uint32_t *set;
};

struct seccomp_clause {
	struct seccomp_test tests[3]; /* all must hold; an empty list always does */
	uint32_t verdict;
};

struct seccomp_rule {
	const char *text; /* for the documentation; NULL for the plain verdicts */
	const struct seccomp_clause *clauses;
	size_t count; /* the first clause that holds decides */
	uint32_t otherwise;
};

enum seccomp_rule_id {
	RULE_SAME, /* process level: no difference */
	RULE_ALLOW,
	RULE_DENY,        /* EPERM, recorded */
	RULE_DENY_ENOSYS, /* ENOSYS, recorded: programs go on by other means */
	RULE_ABSENT,      /* ENOSYS by the kernel: a probe that every libc or runtime makes, with a fallback */
	RULE_QUIET_EPERM,
	RULE_CLONE,
	RULE_UNSHARE,
	RULE_OPEN,
	RULE_OPENAT,
	RULE_MODE1,
	RULE_MODE2,
	RULE_MKNOD,
	RULE_MKNODAT,
	RULE_SOCKET,
	RULE_SOCKET_PROCESS,
	RULE_SOCKETPAIR,
	RULE_SOCKETPAIR_PROCESS,
	RULE_IOCTL,
	RULE_IOCTL_STRICT,
	RULE_FCNTL,
	RULE_PRCTL,
	RULE_PERSONALITY,
	RULE_PERSONALITY_DEBUG,
	RULE_SETRLIMIT,
	RULE_PRLIMIT,
	RULE_PRLIMIT_PROCESS,
	RULE_SETSCHEDULER,
	RULE_SECCOMP,
	RULE_MEMFD_STRICT,
	RULE_OWNER_PROCESS,
	RULE_XATTR_PROCESS,
	RULE_AFFINITY_PROCESS,
	RULE_SETSCHEDULER_PROCESS,
	RULE_PRIORITY_PROCESS,
	RULE_IOPRIO_PROCESS,
	RULE_WATCH_PROCESS,
	RULE_KILL,
	RULE_SOCKET_BROKER,
	RULE_SETSOCKOPT_BROKER,
	RULE_MEMORY_BROKER,
	RULE_FCNTL_BROKER,
	RULE_IOCTL_BROKER,
	RULE_MAX,
};

/* What `syscalls.allow` of a policy may do with a call. */
enum seccomp_lock {
	LOCK_FREE, /* allowed fully */
	LOCK_KEEP, /* allowed already; what its rule still refuses holds a wall and stays refused */
	LOCK_WALL, /* an error: it would open a wall, or needs a privilege that no sandbox has */
};

enum seccomp_report { REPORT_NEVER, REPORT_EXEC, REPORT_CONNECT, REPORT_OPEN };

enum seccomp_why {
	WHY_PROGRAM,
	WHY_CHECKED,
	WHY_OWNER,
	WHY_MOUNT,
	WHY_NAMESPACE,
	WHY_MACHINE,
	WHY_CLOCK,
	WHY_OTHERS,
	WHY_SURFACE,
	WHY_KEYS,
	WHY_HIDDEN,
	WHY_HANDLE,
	WHY_NUMA,
	WHY_REALTIME,
	WHY_OLD,
	WHY_INFO,
	WHY_SHARED_IPC,
	WHY_MEMFD,
	WHY_PIDFD,
	WHY_WATCH,
	WHY_MAX,
};

struct seccomp_call {
	char name[24];   /* an array, not a pointer: nothing to relocate when a static program starts */
	uint8_t rule[3]; /* by enum seccomp_profile */
	uint8_t process; /* replaces it without namespaces; RULE_SAME: no difference */
	uint8_t lock, why, report;
};

/* Rows in alphabetic order. */
extern const struct seccomp_call seccomp_calls[];
extern const size_t seccomp_call_count;
extern const struct seccomp_rule seccomp_rules[RULE_MAX];

/* SECCOMP_BROKER: the rule of a call by its name, RULE_KILL when it is not in the broker's list. */
enum seccomp_rule_id seccomp_broker_rule(const char *name);

/* One sentence, without a full stop, for documentation and errors. */
const char *seccomp_why_text(enum seccomp_why why);

/* Numbers of one architecture, generated at build time: index of the row, or -1. */
struct seccomp_numbers {
	uint32_t arch;
	int16_t row[SECCOMP_CALLS_MAX];
};
extern const struct seccomp_numbers seccomp_numbers;

/* A filter made at build time for a spec without allow and deny lists. */
struct seccomp_prebuilt {
	uint32_t key;
	unsigned short count;
	const struct sock_filter *insns;
};
extern const struct seccomp_prebuilt seccomp_prebuilt[];
extern const size_t seccomp_prebuilt_count;

/* The spec as one number: profile and switches, lists left out. */
uint32_t seccomp_spec_key(const struct seccomp_spec *spec);

/* The verdict for calls of other architectures' tables. */
uint32_t seccomp_foreign_verdict(const struct seccomp_spec *spec);

/* How one call number is treated under a spec: rule, and the verdict that takes the place of its VERDICT_ALLOW. */
struct seccomp_treatment {
	enum seccomp_rule_id rule;
	uint32_t allowed;
};
struct seccomp_treatment seccomp_treat(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, int nr);

/* The filter's return value for a call, worked out from the table without any BPF. */
uint32_t seccomp_decide(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, const struct seccomp_data *data);

/* Compiles into `insns` (room for `max`). Returns the count, or -E2BIG. */
int seccomp_compile(const struct seccomp_numbers *numbers, const struct seccomp_spec *spec, struct sock_filter *insns,
		    size_t max);
