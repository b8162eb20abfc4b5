/* The filters against the table, call by call, and against an intention written down here a second time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <asm/ioctls.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/mem.h"
#include "bpf.h"
#include "kernel/seccomp-table.h"

enum { NUMBERS = 600 };

static struct seccomp_data call(int nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
	return (struct seccomp_data){.nr = nr, .arch = SECCOMP_ARCH, .args = {a0, a1, a2, a3}};
}

static struct seccomp_filter make(const struct seccomp_spec *spec)
{
	struct seccomp_filter f = {0};
	struct zw_error e = {0};

	if (seccomp_filter_make(spec, &f, &e) < 0)
		fail_msg("%s", e.text);
	return f;
}

/* One call under one profile of the container level. */
static uint32_t verdict_of(enum seccomp_profile profile, struct seccomp_data data)
{
	const struct seccomp_spec spec = {.profile = profile};
	struct seccomp_filter f = make(&spec);
	uint32_t verdict = bpf_run(f.insns, f.count, &data);

	seccomp_filter_done(&f);
	return verdict;
}

static uint32_t verdict_process(struct seccomp_data data)
{
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT, .no_namespaces = true};
	struct seccomp_filter f = make(&spec);
	uint32_t verdict = bpf_run(f.insns, f.count, &data);

	seccomp_filter_done(&f);
	return verdict;
}

#define assert_verdict(profile, expected, nr, ...)                                                                               \
	do {                                                                                                                     \
		uint32_t got_ = verdict_of((profile), call((nr), __VA_ARGS__));                                                  \
		if (got_ != (uint32_t) (expected))                                                                               \
			fail_msg("%s:%d: %s gave 0x%x, not 0x%x", __FILE__, __LINE__, #nr, got_, (unsigned) (expected));         \
	} while (0)
#define assert_default(expected, nr, ...) assert_verdict(SECCOMP_DEFAULT, expected, nr, __VA_ARGS__)
#define assert_process(expected, nr, ...) assert_int_equal(verdict_process(call(nr, __VA_ARGS__)), (uint32_t) (expected))

/* ---- every number, every spec: the program and the table agree ---- */

static uint64_t random_state;

static uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Values that the rules mention, their neighbours, and the same with upper bits set. */
static uint64_t random_argument(void)
{
	static const uint64_t plain[] = {0,
					 1,
					 2,
					 3,
					 4,
					 5,
					 6,
					 10,
					 16,
					 17,
					 35,
					 47,
					 57,
					 62,
					 67,
					 262,
					 0x40,
					 0x400000,
					 0x410000,
					 04755,
					 0644,
					 02000,
					 0x80801,
					 1024,
					 1026,
					 1040,
					 0x5412,
					 0x541c,
					 0x5401,
					 0x5411,
					 0x5413,
					 0x10000000,
					 0x20000,
					 0x40000,
					 0x53564d41,
					 0x80000000,
					 0xffffffff,
					 0x401c5820,
					 S_IFCHR | 0600,
					 S_IFIFO | 0600,
					 8};
	uint64_t value = plain[random_next() % ARRAY_SIZE(plain)];

	switch (random_next() % 8) {
	case 0:
		return value + 1;
	case 1:
		return value - 1;
	case 2:
		return value | 0x100000000;
	case 3:
		return value | random_next() << 32;
	case 4:
		return random_next();
	default:
		return value;
	}
}

static void compare(const struct seccomp_filter *f, const struct seccomp_spec *spec, const struct seccomp_data *data)
{
	uint32_t ran = bpf_run(f->insns, f->count, data);
	uint32_t decided = seccomp_decide(&seccomp_numbers, spec, data);
	int err = -1;
	enum seccomp_verdict judged = seccomp_judge(spec, data, &err);

	if (ran != decided)
		fail_msg("call %d of arch 0x%x, spec %u: the filter says 0x%x, the table 0x%x", data->nr, data->arch,
			 seccomp_spec_key(spec), ran, decided);
	assert_true((judged == SECCOMP_VERDICT_CONTINUE) == (ran == SECCOMP_RET_USER_NOTIF));
	if ((ran & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF && judged == SECCOMP_VERDICT_DENY)
		assert_int_equal(err, (int) (ran & SECCOMP_RET_DATA));
}

static void compare_all(const struct seccomp_spec *spec)
{
	static const int odd[] = {-1,         -2,   INT32_MIN, INT32_MAX, 0x3fffffff, 0x40000000, 0x40000000 | SYS_getpid,
				  0x7fffffff, 1023, 4096};
	struct seccomp_filter f = make(spec);

	for (int i = 0; i < NUMBERS + (int) ARRAY_SIZE(odd); i++) {
		struct seccomp_data data = {.nr = i < NUMBERS ? i : odd[i - NUMBERS], .arch = SECCOMP_ARCH};

		compare(&f, spec, &data);
		for (int k = 0; k < 40; k++) {
			for (size_t a = 0; a < 6; a++)
				data.args[a] = random_argument();
			compare(&f, spec, &data);
		}
		data.arch = AUDIT_ARCH_I386;
		compare(&f, spec, &data);
		data.arch = AUDIT_ARCH_AARCH64;
		compare(&f, spec, &data);
		data.arch = SECCOMP_ARCH;
		data.nr |= (int) SECCOMP_X32_BIT;
		compare(&f, spec, &data);
	}
	seccomp_filter_done(&f);
}

static void test_filters_do_what_the_table_says_for_every_call(void **state)
{
	(void) state;
	random_state = 88172645463325252U;
	for (int profile = SECCOMP_STRICT; profile <= SECCOMP_DEBUG; profile++) {
		for (unsigned bits = 0; bits < 32; bits++) {
			const struct seccomp_spec spec = {.profile = (enum seccomp_profile) profile,
							  .no_namespaces = bits & 1,
							  .notify_exec = bits & 2,
							  .notify_connect = bits & 4,
							  .notify_open = bits & 8,
							  .fixed_processors = bits & 16};

			compare_all(&spec);
		}
	}
}

static void test_the_broker_dies_of_whatever_is_not_its_work(void **state)
{
	static const struct {
		int nr;
		uint64_t args[3];
		uint32_t verdict;
	} rows[] = {
	    {SYS_splice, {0}, SECCOMP_RET_ALLOW},
	    {SYS_openat, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_execve, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_clone, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_clone3, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_bind, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_ptrace, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_kill, {0}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_socket, {2, 1 | 0x80800, 0}, SECCOMP_RET_ALLOW},
	    {SYS_socket, {10, 2, 17}, SECCOMP_RET_ALLOW},
	    {SYS_socket, {1, 1, 0}, SECCOMP_RET_KILL_PROCESS},      /* AF_UNIX */
	    {SYS_socket, {16, 3, 0}, SECCOMP_RET_KILL_PROCESS},     /* AF_NETLINK */
	    {SYS_socket, {2, 3, 1}, SECCOMP_RET_KILL_PROCESS},      /* raw ICMP */
	    {SYS_socket, {2, 1, 132}, SECCOMP_RET_KILL_PROCESS},    /* SCTP */
	    {SYS_setsockopt, {1, 1, 13}, SECCOMP_RET_ALLOW},        /* SO_LINGER */
	    {SYS_setsockopt, {1, 1, 26}, SECCOMP_RET_KILL_PROCESS}, /* SO_ATTACH_FILTER */
	    {SYS_setsockopt, {1, 6, 31}, SECCOMP_RET_KILL_PROCESS}, /* TCP_ULP */
	    {SYS_mmap, {0, 4096, 3}, SECCOMP_RET_ALLOW},
	    {SYS_mmap, {0, 4096, 5}, SECCOMP_RET_KILL_PROCESS},
	    {SYS_mprotect, {0, 4096, 4}, SECCOMP_RET_KILL_PROCESS},
	};
	const struct seccomp_spec spec = {.profile = SECCOMP_BROKER};
	struct seccomp_filter f = make(&spec);

	(void) state;
	compare_all(&spec);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct seccomp_data data = {.nr = rows[i].nr, .arch = SECCOMP_ARCH};

		memcpy(data.args, rows[i].args, sizeof rows[i].args);
		if (bpf_run(f.insns, f.count, &data) != rows[i].verdict)
			fail_msg("row %zu: call %d gets 0x%x", i, data.nr, bpf_run(f.insns, f.count, &data));
		data.arch = AUDIT_ARCH_I386;
		assert_int_equal(bpf_run(f.insns, f.count, &data), SECCOMP_RET_KILL_PROCESS);
	}
	assert_null(f.owned); /* made at build time */
	seccomp_filter_done(&f);
}

/* Lists that alternate make the longest programs there can be, with targets far out of reach of a conditional jump. */
static void test_lists_make_filters_that_agree_too(void **state)
{
	int allow[NUMBERS], deny[NUMBERS];

	(void) state;
	random_state = 2463534242U;
	for (int round = 0; round < 24; round++) {
		struct seccomp_spec spec = {
		    .profile = (enum seccomp_profile)(round % 3), .notify_open = round & 4, .allow = allow, .deny = deny};

		for (int nr = 0; nr < NUMBERS; nr++) {
			bool known = nr < SECCOMP_CALLS_MAX && seccomp_numbers.row[nr] >= 0;

			if (known && seccomp_calls[seccomp_numbers.row[nr]].lock != LOCK_WALL && random_next() % 3 == 0)
				allow[spec.allow_count++] = nr;
			if (round == 0 ? nr % 2 == 0 : random_next() % 3 == 0)
				deny[spec.deny_count++] = nr;
		}
		compare_all(&spec);
	}
}

static void test_prebuilt_filters_equal_those_compiled_now(void **state)
{
	static struct sock_filter insns[4096];

	(void) state;
	assert_true(seccomp_prebuilt_count >= 12);
	for (size_t i = 0; i < seccomp_prebuilt_count; i++) {
		uint32_t key = seccomp_prebuilt[i].key;
		const struct seccomp_spec spec = {.profile = (enum seccomp_profile)(key & 3),
						  .no_namespaces = key & 4,
						  .notify_exec = key & 8,
						  .notify_connect = key & 16,
						  .notify_open = key & 32,
						  .fixed_processors = key & 64};
		int count = seccomp_compile(&seccomp_numbers, &spec, insns, ARRAY_SIZE(insns));
		struct seccomp_filter f = make(&spec);

		assert_null(f.owned);
		assert_int_equal(count, f.count);
		assert_memory_equal(insns, f.insns, (size_t) count * sizeof(insns[0]));
	}
}

static void test_too_long_a_program_is_an_error(void **state)
{
	struct sock_filter insns[64];
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT};

	(void) state;
	assert_int_equal(seccomp_compile(&seccomp_numbers, &spec, insns, ARRAY_SIZE(insns)), -E2BIG);
}

/* ---- the intention, written down a second time ---- */

/* Refused and recorded, whatever the arguments and the profile. */
static const char *const never[] = {
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "setns",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "swapon",
    "swapoff",
    "reboot",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "acct",
    "quotactl",
    "quotactl_fd",
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    "syslog",
    "iopl",
    "ioperm",
    "vhangup",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "open_by_handle_at",
    "fanotify_init",
    "migrate_pages",
    "move_pages",
    "sched_setattr",
    "modify_ldt",
};
/* ENOSYS from the kernel, no record: probes with a fallback. */
static const char *const absent[] = {
    "clone3",       "io_uring_setup", "io_uring_enter", "io_uring_register", "openat2",
    "memfd_secret", "statmount",      "listmount",      "lsm_set_self_attr", "file_setattr",
};
/* Allowed without a look at the arguments: these never enter the filter after the first time. */
static const char *const free_calls[] = {
    "read",
    "write",
    "close",
    "stat",
    "fstat",
    "lstat",
    "newfstatat",
    "statx",
    "poll",
    "ppoll",
    "lseek",
    "mmap",
    "mprotect",
    "munmap",
    "brk",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "access",
    "faccessat2",
    "pipe2",
    "sched_yield",
    "mremap",
    "madvise",
    "dup3",
    "nanosleep",
    "getpid",
    "sendfile",
    "execve",
    "execveat",
    "fork",
    "vfork",
    "exit",
    "exit_group",
    "wait4",
    "waitid",
    "kill",
    "tgkill",
    "uname",
    "flock",
    "fsync",
    "ftruncate",
    "getdents64",
    "getcwd",
    "chdir",
    "rename",
    "renameat2",
    "mkdir",
    "mkdirat",
    "link",
    "unlink",
    "unlinkat",
    "symlink",
    "readlink",
    "umask",
    "gettimeofday",
    "getrusage",
    "sysinfo",
    "getuid",
    "setuid",
    "setresuid",
    "setgroups",
    "getppid",
    "setsid",
    "capget",
    "sigaltstack",
    "statfs",
    "arch_prctl",
    "gettid",
    "futex",
    "sched_getaffinity",
    "set_tid_address",
    "clock_gettime",
    "clock_nanosleep",
    "epoll_wait",
    "epoll_ctl",
    "epoll_pwait2",
    "timerfd_create",
    "eventfd2",
    "signalfd4",
    "inotify_init1",
    "set_robust_list",
    "rseq",
    "getrandom",
    "membarrier",
    "copy_file_range",
    "close_range",
    "futex_waitv",
    "landlock_create_ruleset",
    "connect",
    "bind",
    "listen",
    "accept4",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "setsockopt",
    "getsockopt",
    "shutdown",
    "restart_syscall",
    "cachestat",
    "mseal",
    "map_shadow_stack",
    "getcpu",
    "getpgrp",
    "splice",
    "tee",
    "fallocate",
    "utimensat",
    "mlock2",
    "pkey_alloc",
};

static void assert_all(const char *const *names, size_t count, uint32_t expected, bool process)
{
	for (size_t i = 0; i < count; i++) {
		int nr = seccomp_number(names[i]);

		assert_true(nr >= 0);
		for (int profile = SECCOMP_STRICT; profile <= SECCOMP_DEBUG; profile++) {
			const struct seccomp_spec spec = {.profile = (enum seccomp_profile) profile, .no_namespaces = process};
			struct seccomp_filter f = make(&spec);

			for (int k = 0; k < 8; k++) {
				uint64_t v = k == 0 ? 0 : random_argument();
				struct seccomp_data data = call(nr, v, random_argument(), random_argument(), random_argument());
				uint32_t got = bpf_run(f.insns, f.count, &data);

				if (got != expected)
					fail_msg("%s under profile %d: 0x%x", names[i], profile, got);
			}
		}
	}
}

static void test_walls_hold_in_every_profile(void **state)
{
	(void) state;
	random_state = 1;
	assert_all(never, ARRAY_SIZE(never), SECCOMP_RET_USER_NOTIF | EPERM, false);
	assert_all(never, ARRAY_SIZE(never), SECCOMP_RET_USER_NOTIF | EPERM, true);
}

static void test_probes_of_runtimes_are_answered_in_the_kernel(void **state)
{
	(void) state;
	random_state = 1;
	assert_all(absent, ARRAY_SIZE(absent), SECCOMP_RET_ERRNO | ENOSYS, false);
	assert_all(absent, ARRAY_SIZE(absent), SECCOMP_RET_ERRNO | ENOSYS, true);
}

static void test_ordinary_calls_are_allowed_whatever_their_arguments(void **state)
{
	(void) state;
	random_state = 1;
	assert_all(free_calls, ARRAY_SIZE(free_calls), SECCOMP_RET_ALLOW, false);
}

static void test_numbers_that_do_not_exist_are_absent(void **state)
{
	(void) state;
	for (int nr = 471; nr < 2000; nr++)
		assert_default(SECCOMP_RET_ERRNO | ENOSYS, nr, 0, 0, 0, 0);
	assert_default(SECCOMP_RET_ERRNO | ENOSYS, -1, 0, 0, 0, 0);
}

static void test_other_call_tables_are_refused(void **state)
{
	struct seccomp_data data = call(20, 0, 0, 0, 0);

	(void) state;
	data.arch = AUDIT_ARCH_I386;
	assert_int_equal(verdict_of(SECCOMP_DEBUG, data), SECCOMP_RET_USER_NOTIF | ENOSYS);
	for (int nr = 0; nr < 1024; nr++)
		assert_default(SECCOMP_RET_USER_NOTIF | ENOSYS, (int) (SECCOMP_X32_BIT | (unsigned) nr), 0, 0, 0, 0);
}

static void test_debug_alone_may_look_into_processes(void **state)
{
	static const int calls[] = {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_getfd};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		assert_verdict(SECCOMP_STRICT, VERDICT_DENY(EPERM), calls[i], 0, 0, 0, 0);
		assert_verdict(SECCOMP_DEFAULT, VERDICT_DENY(EPERM), calls[i], 0, 0, 0, 0);
		assert_verdict(SECCOMP_DEBUG, VERDICT_ALLOW, calls[i], 0, 0, 0, 0);
	}
}

/* ---- arguments ---- */

static void test_namespaces_are_refused_by_flag(void **state)
{
	static const uint64_t flags[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
					 CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
	const uint64_t thread = 0x3d0f00;

	(void) state;
	assert_default(VERDICT_ALLOW, SYS_clone, 17, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_clone, thread, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_unshare, CLONE_FILES | CLONE_FS, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_unshare, 0, 0, 0, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_unshare, 0x80, 0, 0, 0); /* CLONE_NEWTIME */
	assert_default(VERDICT_DENY(EPERM), SYS_unshare, 0x100000000, 0, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		assert_default(VERDICT_DENY(EPERM), SYS_clone, flags[i] | 17, 0, 0, 0);
		assert_default(VERDICT_DENY(EPERM), SYS_clone, flags[i] | thread | 0x100000000, 0, 0, 0);
		assert_verdict(SECCOMP_DEBUG, VERDICT_DENY(EPERM), SYS_unshare, flags[i] | CLONE_FS, 0, 0, 0);
	}
}

static void test_no_set_id_file_can_be_made(void **state)
{
	(void) state;
	for (int profile = SECCOMP_STRICT; profile <= SECCOMP_DEBUG; profile++) {
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_openat, 0, 0, O_CREAT | O_WRONLY, 04755);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_openat, 0, 0, O_TMPFILE | O_WRONLY, 02755);
		assert_verdict(profile, VERDICT_ALLOW, SYS_openat, 0, 0, O_CREAT | O_WRONLY, 01777);
		assert_verdict(profile, VERDICT_ALLOW, SYS_openat, 0, 0, O_RDONLY, 07777); /* mode not used */
		assert_verdict(profile, VERDICT_ALLOW, SYS_openat, 0, 0, O_DIRECTORY, 07777);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_open, 0, O_CREAT, 06755, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_open, 0, 0, 06755, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_creat, 0, 04000, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_chmod, 0, 04755, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_chmod, 0, 0x100000000 | 02755, 0, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_chmod, 0, 01777, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_fchmod, 0, 06755, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_fchmodat, 0, 0, 04755, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), 452, 0, 0, 04755, 0); /* fchmodat2 */
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_mknod, 0, S_IFREG | 04755, 0, 0);
	}
}

static void test_device_nodes_are_refused(void **state)
{
	(void) state;
	assert_default(VERDICT_DENY(EPERM), SYS_mknod, 0, S_IFCHR | 0666, 0x103, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_mknod, 0, S_IFBLK | 0666, 0x103, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_mknodat, 0, 0, S_IFCHR | 0666, 0x103);
	assert_default(VERDICT_ALLOW, SYS_mknodat, 0, 0, S_IFIFO | 0666, 0);
	assert_default(VERDICT_ALLOW, SYS_mknod, 0, S_IFSOCK | 0666, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_mknod, 0, 0666, 0, 0);
}

static void test_sockets_by_family_type_and_protocol(void **state)
{
	(void) state;
	assert_default(VERDICT_ALLOW, SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 6, 0);
	assert_default(VERDICT_ALLOW, SYS_socket, AF_INET6, SOCK_DGRAM, 17, 0);
	assert_default(VERDICT_ALLOW, SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0, 0);
	assert_default(VERDICT_QUIET(EPROTONOSUPPORT), SYS_socket, AF_INET, SOCK_STREAM, 262, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_socket, AF_INET, SOCK_RAW, 1, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_socket, AF_INET6, SOCK_RAW | SOCK_CLOEXEC, 58, 0);
	assert_default(VERDICT_DENY(EPROTONOSUPPORT), SYS_socket, AF_INET, SOCK_STREAM, 132, 0);
	assert_default(VERDICT_DENY(EPROTONOSUPPORT), SYS_socket, AF_INET, SOCK_SEQPACKET, 132, 0);
	assert_default(VERDICT_DENY(EPROTONOSUPPORT), SYS_socket, AF_INET, SOCK_DGRAM, 136, 0);
	assert_default(VERDICT_DENY(EPROTONOSUPPORT), SYS_socket, AF_INET, SOCK_DCCP, 33, 0);
	assert_default(VERDICT_DENY(EPROTONOSUPPORT), SYS_socket, AF_INET, SOCK_PACKET, 3, 0);
	for (uint64_t protocol = 1; protocol < 32; protocol++)
		assert_default(VERDICT_DENY(EPROTONOSUPPORT), SYS_socket, AF_NETLINK, SOCK_RAW, protocol, 0);
	for (uint64_t family = 0; family < 64; family++) {
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6 && family != AF_NETLINK)
			assert_default(VERDICT_DENY(EAFNOSUPPORT), SYS_socket, family, SOCK_STREAM, 0, 0);
	}
	/* The kernel reads the family as int: upper bits change nothing. */
	assert_default(VERDICT_DENY(EAFNOSUPPORT), SYS_socket, 0x100000000 | AF_VSOCK, SOCK_STREAM, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, 0);
	assert_default(VERDICT_DENY(EAFNOSUPPORT), SYS_socketpair, AF_TIPC, SOCK_STREAM, 0, 0);
}

static void test_terminal_input_cannot_be_forged(void **state)
{
	(void) state;
	for (int profile = SECCOMP_STRICT; profile <= SECCOMP_DEBUG; profile++) {
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_ioctl, 0, TIOCSTI, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_ioctl, 0, 0xffffffff00000000 | TIOCSTI, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_ioctl, 0, TIOCLINUX, 0, 0);
		assert_verdict(profile, VERDICT_DENY(EPERM), SYS_ioctl, 0, TIOCSETD, 0, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_ioctl, 0, TCGETS, 0, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_ioctl, 0, TIOCGWINSZ, 0, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_ioctl, 0, FIONREAD, 0, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_ioctl, 0, TIOCSCTTY, 0, 0);
		assert_verdict(profile, VERDICT_ALLOW, SYS_ioctl, 0, 0x80045430, 0, 0); /* TIOCGPTN */
	}
	assert_verdict(SECCOMP_STRICT, VERDICT_QUIET(ENOTTY), SYS_ioctl, 0, 0xae01, 0, 0); /* KVM_CREATE_VM */
}

static void test_channels_over_shared_inodes_are_refused(void **state)
{
	(void) state;
	assert_default(VERDICT_DENY(EPERM), SYS_fcntl, 0, 1024, 0, 0); /* F_SETLEASE */
	assert_default(VERDICT_DENY(EPERM), SYS_fcntl, 0, 1026, 0, 0); /* F_NOTIFY */
	assert_default(VERDICT_ALLOW, SYS_fcntl, 0, F_SETLK, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_fcntl, 0, F_DUPFD_CLOEXEC, 0, 0);
}

static void test_prctl_options(void **state)
{
	(void) state;
	assert_default(VERDICT_ALLOW, SYS_prctl, PR_SET_NAME, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_prctl, PR_SET_SECCOMP, 2, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_prctl, PR_CAPBSET_READ, 5, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_prctl, PR_SET_VMA, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 5, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 5, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_prctl, PR_SET_MM, 14, 0, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_prctl, PR_SCHED_CORE, 0, 0, 0);
	assert_default(VERDICT_QUIET(EINVAL), SYS_prctl, 4711, 0, 0, 0);
}

static void test_personality(void **state)
{
	(void) state;
	assert_default(VERDICT_ALLOW, SYS_personality, 0xffffffff, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_personality, 0, 0, 0, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_personality, READ_IMPLIES_EXEC, 0, 0, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_personality, ADDR_NO_RANDOMIZE, 0, 0, 0);
	assert_verdict(SECCOMP_DEBUG, VERDICT_ALLOW, SYS_personality, ADDR_NO_RANDOMIZE, 0, 0, 0);
	assert_verdict(SECCOMP_DEBUG, VERDICT_DENY(EPERM), SYS_personality, ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC, 0, 0, 0);
}

static void test_the_core_limit_stays(void **state)
{
	(void) state;
	assert_default(VERDICT_QUIET(0), SYS_setrlimit, RLIMIT_CORE, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_setrlimit, RLIMIT_NOFILE, 0, 0, 0);
	assert_default(VERDICT_QUIET(0), SYS_prlimit64, 0, RLIMIT_CORE, 0x7fff0000, 0);
	assert_default(VERDICT_QUIET(0), SYS_prlimit64, 0, RLIMIT_CORE, 0x100000000, 0); /* a pointer whose low half is zero */
	assert_default(VERDICT_ALLOW, SYS_prlimit64, 0, RLIMIT_CORE, 0, 0x7fff0000);
	assert_default(VERDICT_ALLOW, SYS_prlimit64, 0, RLIMIT_NOFILE, 0x7fff0000, 0);
	assert_default(VERDICT_ALLOW, SYS_prlimit64, 2, RLIMIT_NOFILE, 0x7fff0000, 0);
	assert_default(VERDICT_DENY(EPERM), SYS_prlimit64, 1, RLIMIT_CPU, 0x7fff0000, 0); /* the agent */
	assert_default(VERDICT_DENY(EPERM), SYS_prlimit64, 0x500000001, RLIMIT_CPU, 0x7fff0000, 0);
	assert_default(VERDICT_ALLOW, SYS_prlimit64, 1, RLIMIT_CPU, 0, 0x7fff0000);
}

static void test_real_time_scheduling_is_refused(void **state)
{
	(void) state;
	assert_default(VERDICT_ALLOW, SYS_sched_setscheduler, 0, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_sched_setscheduler, 0, 3 | 0x40000000, 0, 0);
	for (uint64_t policy = 1; policy < 8; policy++) {
		if (policy != 3 && policy != 5)
			assert_default(VERDICT_DENY(EPERM), SYS_sched_setscheduler, 0, policy, 0, 0);
	}
}

/* A listener of the guest's own would outvote ours if that were ever closed (see RULE_SECCOMP). */
static void test_nested_filters_may_have_no_listener(void **state)
{
	(void) state;
	assert_default(VERDICT_ALLOW, SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, 0, 0);
	assert_default(VERDICT_DENY(EBUSY), SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0);
	assert_default(VERDICT_DENY(EBUSY), SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0xff, 0, 0);
}

static void test_strict_needs_memory_files_without_code(void **state)
{
	(void) state;
	assert_verdict(SECCOMP_STRICT, VERDICT_DENY(ENOSYS), SYS_memfd_create, 0, 1, 0, 0);
	assert_verdict(SECCOMP_STRICT, VERDICT_ALLOW, SYS_memfd_create, 0, 9, 0, 0);
	assert_default(VERDICT_ALLOW, SYS_memfd_create, 0, 1, 0, 0);
}

static void test_without_namespaces_sockets_and_shared_ipc_are_refused(void **state)
{
	static const int ipc[] = {SYS_shmget, SYS_shmat, SYS_semget, SYS_semop, SYS_msgget, SYS_msgsnd, SYS_mq_open};

	(void) state;
	assert_process(VERDICT_DENY(EPERM), SYS_socket, AF_INET, SOCK_STREAM, 0, 0);
	assert_process(VERDICT_DENY(EPERM), SYS_socket, AF_INET6, SOCK_DGRAM, 0, 0);
	assert_process(VERDICT_DENY(EPERM), SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0);
	assert_process(VERDICT_DENY(EPERM), SYS_socket, AF_UNIX, SOCK_DGRAM, 0, 0);
	assert_process(VERDICT_ALLOW, SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, 0);
	assert_process(VERDICT_DENY(EPERM), SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, 0);
	assert_process(VERDICT_DENY(EPERM), SYS_prlimit64, 1, RLIMIT_NOFILE, 0x7fff0000, 0);
	assert_process(VERDICT_ALLOW, SYS_prlimit64, 0, RLIMIT_NOFILE, 0x7fff0000, 0);
	for (size_t i = 0; i < ARRAY_SIZE(ipc); i++)
		assert_process(VERDICT_DENY(EPERM), ipc[i], 0, 0, 0, 0);
}

static void test_reports_let_calls_go_on(void **state)
{
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT, .notify_exec = true, .notify_open = true};
	struct seccomp_filter f = make(&spec);
	struct seccomp_data set_id = call(SYS_openat, 0, 0, O_CREAT, 04755), plain = call(SYS_openat, 0, 0, 0, 0);
	struct seccomp_data user = call(SYS_clone, CLONE_NEWUSER, 0, 0, 0);
	struct seccomp_data exec = call(SYS_execve, 0, 0, 0, 0), connect_call = call(SYS_connect, 0, 0, 0, 0);

	(void) state;
	assert_int_equal(bpf_run(f.insns, f.count, &plain), VERDICT_REPORT);
	assert_int_equal(bpf_run(f.insns, f.count, &exec), VERDICT_REPORT);
	assert_int_equal(bpf_run(f.insns, f.count, &connect_call), VERDICT_ALLOW);
	assert_int_equal(bpf_run(f.insns, f.count, &set_id), VERDICT_DENY(EPERM));
	assert_int_equal(bpf_run(f.insns, f.count, &user), VERDICT_DENY(EPERM));
	seccomp_filter_done(&f);
}

/* ---- lists of the policy ---- */

static void test_a_policy_may_allow_what_is_no_wall(void **state)
{
	const int allow[] = {SYS_ptrace, SYS_clone, SYS_openat};
	const struct seccomp_spec spec = {.profile = SECCOMP_STRICT, .allow = allow, .allow_count = ARRAY_SIZE(allow)};
	struct seccomp_filter f = make(&spec);
	struct seccomp_data trace = call(SYS_ptrace, 0, 0, 0, 0), user = call(SYS_clone, CLONE_NEWUSER, 0, 0, 0);

	(void) state;
	assert_int_equal(bpf_run(f.insns, f.count, &trace), VERDICT_ALLOW);
	assert_int_equal(bpf_run(f.insns, f.count, &user), VERDICT_DENY(EPERM));
	seccomp_filter_done(&f);
}

static void test_a_policy_cannot_allow_a_wall(void **state)
{
	static const int walls[] = {SYS_mount, SYS_setns, SYS_clone3, SYS_openat2, SYS_io_uring_setup, SYS_open_by_handle_at,
				    SYS_reboot};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(walls); i++) {
		const struct seccomp_spec spec = {.profile = SECCOMP_DEBUG, .allow = &walls[i], .allow_count = 1};
		struct seccomp_filter f = {0};
		struct zw_error e = {0};

		assert_int_equal(seccomp_filter_make(&spec, &f, &e), -EPERM);
		assert_non_null(strstr(e.text, seccomp_name(walls[i])));
		assert_null(f.insns);
	}
}

static void test_without_namespaces_a_policy_cannot_allow_what_they_would_contain(void **state)
{
	static const int call_nr = SYS_shmget;
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT, .no_namespaces = true, .allow = &call_nr, .allow_count = 1};
	struct seccomp_filter f = {0};
	struct zw_error e = {0};

	(void) state;
	assert_int_equal(seccomp_filter_make(&spec, &f, &e), -EPERM);
	assert_non_null(strstr(e.text, "shmget"));
}

static void test_deny_wins(void **state)
{
	const int both[] = {SYS_ptrace, SYS_read};
	const struct seccomp_spec spec = {
	    .profile = SECCOMP_DEFAULT, .allow = both, .allow_count = 2, .deny = both, .deny_count = 2, .notify_exec = true};
	struct seccomp_filter f = make(&spec);
	struct seccomp_data a = call(SYS_ptrace, 0, 0, 0, 0), b = call(SYS_read, 0, 0, 0, 0);

	(void) state;
	assert_int_equal(bpf_run(f.insns, f.count, &a), VERDICT_DENY(EPERM));
	assert_int_equal(bpf_run(f.insns, f.count, &b), VERDICT_DENY(EPERM));
	seccomp_filter_done(&f);
}

static void test_unknown_numbers_and_profiles_are_errors(void **state)
{
	static const int unknown[] = {-1, 500, 100000};
	struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT, .allow_count = 1};
	struct seccomp_filter f = {0};
	struct zw_error e = {0};

	(void) state;
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		spec.allow = &unknown[i];
		assert_int_equal(seccomp_filter_make(&spec, &f, &e), -EINVAL);
	}
	spec = (struct seccomp_spec){.profile = (enum seccomp_profile) 7};
	assert_int_equal(seccomp_filter_make(&spec, &f, &e), -EINVAL);
}

/* ---- the rest ---- */

static void test_without_a_notifier_refusals_stay_refusals(void **state)
{
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT, .notify_exec = true};
	struct seccomp_filter f = make(&spec);
	struct seccomp_data mount = call(SYS_mount, 0, 0, 0, 0), exec = call(SYS_execve, 0, 0, 0, 0);

	(void) state;
	seccomp_filter_without_notify(&f);
	for (size_t i = 0; i < f.count; i++)
		assert_false(f.insns[i].code == (BPF_RET | BPF_K) &&
			     (f.insns[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF);
	assert_int_equal(bpf_run(f.insns, f.count, &mount), SECCOMP_RET_ERRNO | EPERM);
	assert_int_equal(bpf_run(f.insns, f.count, &exec), SECCOMP_RET_ALLOW);
	seccomp_filter_done(&f);
	seccomp_filter_done(&f);
	seccomp_filter_done(NULL);
}

static void test_names_and_numbers(void **state)
{
	(void) state;
	assert_int_equal(seccomp_number("read"), SYS_read);
	assert_int_equal(seccomp_number("openat"), SYS_openat);
	assert_int_equal(seccomp_number("landlock_restrict_self"), SYS_landlock_restrict_self);
	assert_int_equal(seccomp_number("fchmodat2"), 452);
	assert_int_equal(seccomp_number("no_such_call"), -ENOENT);
	assert_int_equal(seccomp_number(""), -ENOENT);
	assert_null(seccomp_name(-1));
	assert_null(seccomp_name(100000));
	for (int nr = 0; nr < SECCOMP_CALLS_MAX; nr++) {
		if (seccomp_name(nr))
			assert_int_equal(seccomp_number(seccomp_name(nr)), nr);
	}
}

static void assert_format(const char *expected, struct seccomp_data data)
{
	char buf[256];

	seccomp_format(&data, buf, sizeof(buf));
	assert_string_equal(buf, expected);
}

static void test_calls_are_shown_by_what_their_arguments_mean(void **state)
{
	struct seccomp_data foreign = call(20, 0, 0, 0, 0);
	char small[8];

	(void) state;
	assert_format("mount(0x7f00, 0, 0x10, 0x1, 0)", call(SYS_mount, 0x7f00, 0, 16, 1));
	assert_format("socket(AF_PACKET, SOCK_RAW, 768)", call(SYS_socket, 17, 3 | SOCK_CLOEXEC, 768, 0));
	assert_format("unshare(CLONE_NEWUSER|CLONE_NEWNET)", call(SYS_unshare, CLONE_NEWUSER | CLONE_NEWNET, 0, 0, 0));
	assert_format("chmod(0x1000, 04755)", call(SYS_chmod, 0x1000, 04755, 0, 0));
	assert_format("ioctl(0, TIOCSTI, 0x10)", call(SYS_ioctl, 0, TIOCSTI, 16, 0));
	assert_format("x32_39(0, 0, 0, 0, 0, 0)", call((int) SECCOMP_X32_BIT | 39, 0, 0, 0, 0));
	foreign.arch = AUDIT_ARCH_I386;
	assert_format("i386_20(0, 0, 0, 0, 0, 0)", foreign);
	foreign = call(SYS_mount, 1, 2, 3, 4);
	seccomp_format(&foreign, small, sizeof(small));
	assert_string_equal(small, "mount(0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_filters_do_what_the_table_says_for_every_call),
	    cmocka_unit_test(test_the_broker_dies_of_whatever_is_not_its_work),
	    cmocka_unit_test(test_lists_make_filters_that_agree_too),
	    cmocka_unit_test(test_prebuilt_filters_equal_those_compiled_now),
	    cmocka_unit_test(test_too_long_a_program_is_an_error),
	    cmocka_unit_test(test_walls_hold_in_every_profile),
	    cmocka_unit_test(test_probes_of_runtimes_are_answered_in_the_kernel),
	    cmocka_unit_test(test_ordinary_calls_are_allowed_whatever_their_arguments),
	    cmocka_unit_test(test_numbers_that_do_not_exist_are_absent),
	    cmocka_unit_test(test_other_call_tables_are_refused),
	    cmocka_unit_test(test_debug_alone_may_look_into_processes),
	    cmocka_unit_test(test_namespaces_are_refused_by_flag),
	    cmocka_unit_test(test_no_set_id_file_can_be_made),
	    cmocka_unit_test(test_device_nodes_are_refused),
	    cmocka_unit_test(test_sockets_by_family_type_and_protocol),
	    cmocka_unit_test(test_terminal_input_cannot_be_forged),
	    cmocka_unit_test(test_channels_over_shared_inodes_are_refused),
	    cmocka_unit_test(test_prctl_options),
	    cmocka_unit_test(test_personality),
	    cmocka_unit_test(test_the_core_limit_stays),
	    cmocka_unit_test(test_real_time_scheduling_is_refused),
	    cmocka_unit_test(test_nested_filters_may_have_no_listener),
	    cmocka_unit_test(test_strict_needs_memory_files_without_code),
	    cmocka_unit_test(test_without_namespaces_sockets_and_shared_ipc_are_refused),
	    cmocka_unit_test(test_reports_let_calls_go_on),
	    cmocka_unit_test(test_a_policy_may_allow_what_is_no_wall),
	    cmocka_unit_test(test_a_policy_cannot_allow_a_wall),
	    cmocka_unit_test(test_without_namespaces_a_policy_cannot_allow_what_they_would_contain),
	    cmocka_unit_test(test_deny_wins),
	    cmocka_unit_test(test_unknown_numbers_and_profiles_are_errors),
	    cmocka_unit_test(test_without_a_notifier_refusals_stay_refusals),
	    cmocka_unit_test(test_names_and_numbers),
	    cmocka_unit_test(test_calls_are_shown_by_what_their_arguments_mean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
