#include "cli/doctor-checks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/image.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/clone.h"
#include "kernel/idmap.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"
#include "kernel/seccomp.h"
#include "kernel/transit.h"
#include "kernel/uapi.h"
#include "policy/network.h"
#include "sandbox/egress.h"

static bool is_root(void)
{
	return geteuid() == 0;
}

static bool is_not_root(void)
{
	return geteuid() != 0;
}

static int write_map(const char *path, const char *text, struct zw_error *e)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return zw_errno(e, errno, "the ids of a user namespace cannot be set (%s)", path);
	return 0;
}

static int map_caller(uid_t uid, gid_t gid, struct zw_error *e)
{
	cleanup_free char *uids = xasprintf("1000 %u 1", uid);
	cleanup_free char *gids = xasprintf("1000 %u 1", gid);
	int r = write_map("/proc/self/setgroups", "deny", e);

	if (r == 0)
		r = write_map("/proc/self/uid_map", uids, e);
	return r < 0 ? r : write_map("/proc/self/gid_map", gids, e);
}

/* Root makes namespaces in the first user namespace, everybody else in one of their own. */
static int enter_namespaces(int flags, struct zw_error *e)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (!is_root())
		flags |= CLONE_NEWUSER;
	if (unshare(flags) < 0)
		return zw_errno(e, errno, "unshare");
	/* Who is not mapped cannot make a file. */
	return flags & CLONE_NEWUSER ? map_caller(uid, gid, e) : 0;
}

static int try_user_namespace(struct zw_error *e)
{
	return unshare(CLONE_NEWUSER) < 0 ? zw_errno(e, errno, "a user namespace cannot be made") : 0;
}

static int try_namespaces(struct zw_error *e)
{
	return enter_namespaces(
	    CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWNET | CLONE_NEWTIME, e);
}

static int try_mounts(struct zw_error *e)
{
	static const char *const options[][2] = {{"size", "1m"}, {NULL, NULL}};
	cleanup_fd int tree = -EBADF;
	cleanup_fd int scratch = -EBADF;
	int r = enter_namespaces(CLONE_NEWNS, e);

	if (r < 0)
		return r;
	r = mount_isolate();
	if (r < 0)
		return zw_errno(e, -r, "mounts cannot be made private");
	scratch = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (scratch < 0)
		return zw_errno(e, -scratch, "a tmpfs cannot be mounted");
	tree = mount_clone_tree(AT_FDCWD, "/usr");
	if (tree < 0)
		return zw_errno(e, -tree, "/usr cannot be bound");
	r = mount_set_tree(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, -EBADF);
	if (r < 0)
		return zw_errno(e, -r, "a bind mount cannot be made read-only");
	if (mkdirat(scratch, "usr", 0755) < 0)
		return zw_errno(e, errno, "a folder cannot be made in a new tmpfs");
	r = mount_attach(scratch, AT_FDCWD, "/");
	if (r == 0)
		r = mount_attach(tree, scratch, "usr");
	if (r < 0)
		return zw_errno(e, -r, "mounts cannot be attached");
	if (mkdirat(tree, "zwinger-doctor", 0700) == 0 || errno != EROFS)
		return zw_error(e, EROFS, "a read-only mount let a folder be made");
	return 0;
}

static int try_proc(struct zw_error *e)
{
	pid_t pid;
	int status, r = enter_namespaces(CLONE_NEWPID | CLONE_NEWNS, e);

	if (r < 0)
		return r;
	pid = fork(); /* the first child is the first of the new pid namespace */
	if (pid < 0)
		return zw_errno(e, errno, "fork");
	if (pid == 0) {
		int proc = mount_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);

		_exit(proc >= 0 ? 0 : -proc);
	}
	if (waitpid(pid, &status, 0) < 0)
		return zw_errno(e, errno, "wait");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return zw_errno(e, WIFEXITED(status) ? WEXITSTATUS(status) : EIO, "a private /proc cannot be mounted");
}

/* Forbid writing below /tmp, then write there. */
static int try_landlock(struct zw_error *e)
{
	cleanup_fd int ruleset = -EBADF;
	cleanup_fd int root = open("/", O_PATH | O_CLOEXEC);
	cleanup_fd int file = -EBADF;
	int r, abi = landlock_abi();

	if (abi <= 0)
		return zw_error(e, ENOSYS, "this kernel has no Landlock, or it is switched off at boot");
	ruleset = landlock_ruleset((unsigned) abi, true);
	if (ruleset < 0 || root < 0)
		return zw_error(e, EIO, "a ruleset cannot be made");
	r = landlock_allow(ruleset, root, LANDLOCK_READ);
	if (r < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return zw_error(e, EIO, "a rule cannot be added");
	r = landlock_enforce(ruleset);
	if (r < 0)
		return zw_errno(e, -r, "a ruleset cannot be enforced");
	file = open("/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (file >= 0 || errno != EACCES)
		return zw_error(e, EIO, "a forbidden write was not refused");
	return 0;
}

/* Install the default filter, answer for it, and see that mount(2) is refused through the notifier. */
static int try_seccomp(struct zw_error *e)
{
	const struct seccomp_spec spec = {.profile = SECCOMP_DEFAULT};
	struct seccomp_filter filter;
	struct seccomp_notif n;
	int listener, status, sock[2], r = seccomp_filter_make(&spec, &filter, e);
	size_t room = 1;
	char byte;
	pid_t pid;

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
		return zw_errno(e, errno, "socketpair");
	pid = fork();
	if (pid < 0)
		return zw_errno(e, errno, "fork");
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
			_exit(1);
		listener = seccomp_install(&filter);
		if (listener < 0 || fd_send(sock[1], "l", 1, &listener, 1) < 0)
			_exit(2);
		(void) close(listener); /* the parent's copy is the only one, so that its end is seen */
		_exit(syscall(SYS_umount2, "/nowhere", 0) < 0 && errno == EPERM ? 0 : 3);
	}
	(void) close(sock[1]);
	listener = -EBADF;
	if (fd_recv(sock[0], &byte, 1, &listener, &room) == 1 && listener >= 0 && seccomp_receive(listener, &n) == 0)
		(void) seccomp_deny(listener, n.id, EPERM); /* a failure shows in the child's answer */
	if (waitpid(pid, &status, 0) < 0)
		return zw_errno(e, errno, "wait");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
		return zw_error(e, EBUSY, "a filter with a notifier cannot be installed: an outer one already has the listener");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return zw_error(e, EIO, "a refused system call was not refused through the notifier");
	return 0;
}

static int try_agent(struct zw_error *e)
{
	cleanup_fd int fd = agent_memfd(e);

	if (fd < 0)
		return fd;
	if (ftruncate(fd, 1) == 0 || errno != EPERM)
		return zw_error(e, EIO, "a sealed memfd could be changed");
	return 0;
}

static int try_idmap(struct zw_error *e)
{
	cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int userns = -EBADF;
	cleanup_fd int tree = mount_clone_tree(AT_FDCWD, "/tmp");
	int r;

	if (proc < 0 || tree < 0)
		return zw_error(e, EIO, "/proc or /tmp cannot be opened");
	r = idmap_namespace(proc, 0x70000000, 0, 0, &userns, e);
	if (r < 0)
		return r;
	r = mount_set_tree(tree, MOUNT_ATTR_NOSUID, userns);
	return r < 0 ? zw_errno(e, -r, "the file system of /tmp cannot be mounted with mapped ids") : 0;
}

/* What is left of a crash inside must not reach the host's handler: that needs a core limit of 1, which a hard limit of 0
 * forbids. */
static int try_core_limit(struct zw_error *e)
{
	struct rlimit limit;
	char pattern[256];

	if (getrlimit(RLIMIT_CORE, &limit) < 0)
		return zw_errno(e, errno, "getrlimit");
	if (fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/core_pattern", pattern, sizeof pattern) <= 0)
		return 0;
	if (limit.rlim_max == 0 && (pattern[0] == '|' || pattern[0] == '@'))
		return zw_error(e, EPERM,
				"the hard core limit is 0 and crashes go to a program: it would see those of the sandbox");
	return 0;
}

static int keep_socket(void *ctx, size_t first, const int *fds, size_t count)
{
	int *kept = ctx;

	(void) first;
	if (count != 1)
		return -EPROTO;
	*kept = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
	return *kept < 0 ? -errno : 0;
}

/* Make the two network namespaces of a run with rules, and connect from one into the other. */
static int try_network_rules(struct zw_error *e)
{
	struct transit_listener listener = {.port = 443, .address = {198, 18, 1, 0}};
	const struct transit transit = {.listeners = &listener, .listener_count = 1};
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_port = htons(443), .sin_addr.s_addr = htonl(NETWORK_NAMES_FIRST)};
	cleanup_fd int kept = -EBADF, sock = -EBADF, accepted = -EBADF;
	cleanup_free char *path = NULL;
	const char *step = "";
	int r = egress_program(&path, e);

	if (r == 0)
		r = enter_namespaces(0, e);
	if (r < 0)
		return r;
	r = transit_make(&transit, keep_socket, &kept, &step);
	if (r < 0)
		return zw_errno(e, -r, "cannot %s", step);
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || connect(sock, (struct sockaddr *) &address, sizeof address) < 0)
		return zw_errno(e, errno, "a listener in the transit namespace cannot be connected to");
	accepted = accept4(kept, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	return accepted < 0 ? zw_errno(e, errno, "a connection did not arrive in the transit namespace") : 0;
}

const struct doctor_check doctor_checks[] = {
    {"user namespaces", "container as an ordinary user", true, is_not_root, try_user_namespace,
     "allow them: sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, on Ubuntu "
     "kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for zwinger; inside a container they may be "
     "forbidden: use "
     "--isolation process"},
    {"namespaces", "container: mount, pid, ipc, uts, cgroup, net, time", true, NULL, try_namespaces,
     "a kernel of 5.12 or later with all namespaces, and room in the user.max_*_namespaces limits"},
    {"mounts", "container: own root, read-only tree", true, NULL, try_mounts,
     "a kernel of 5.12 or later; inside a container allow the mount calls (open_tree, mount_setattr, move_mount, fsopen)"},
    {"private /proc", "container: other processes are not seen", true, NULL, try_proc,
     "inside a container whose /proc is masked a new one is forbidden: unmask it (--security-opt systempaths=unconfined), or use "
     "--isolation "
     "process"},
    {"Landlock", "process: files; container: second wall over the mounts", false, NULL, try_landlock,
     "a kernel of 5.13 or later with CONFIG_SECURITY_LANDLOCK, and landlock in the lsm= list of the kernel command line"},
    {"seccomp", "all levels: system calls, and their record", true, NULL, try_seccomp,
     "a kernel of 5.14 or later with CONFIG_SECCOMP_FILTER; under another supervisor with a notifier run zwinger outside of it"},
    {"sealed agent", "all levels: pid 1 inside is no file of the host", true, NULL, try_agent,
     "memfd_create with sealing (CONFIG_MEMFD_CREATE), and vm.memfd_noexec below 2"},
    {"id-mapped mounts", "container as root: files outside belong to their folder's owner", false, is_root, try_idmap,
     "a file system with id-mapped mounts (ext4, xfs, btrfs, tmpfs from 6.3, overlay from 5.19) for folders that the code may "
     "write"},
    {"network rules", "container: network.allow and network.publish, by a broker", false, NULL, try_network_rules,
     "the kernel module veth (CONFIG_VETH), and zwinger-egress beside zwinger or in ../libexec/zwinger"},
    {"core dumps", "all levels: a crash inside reaches no handler of the host", false, NULL, try_core_limit,
     "raise the hard limit: ulimit -Hc unlimited before zwinger starts"},
};
const size_t doctor_check_count = sizeof doctor_checks / sizeof doctor_checks[0];

int doctor_try(const struct doctor_check *check, struct zw_error *e)
{
	/* The child's answer comes back through shared memory: it is ours, and runs only our own code. */
	struct zw_error *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, r;
	pid_t pid;

	if (shared == MAP_FAILED)
		return zw_errno(e, errno, "mmap");
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
			_exit(1);
		_exit(check->run(shared) == 0 ? 0 : 1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0) {
		r = zw_errno(e, errno, "cannot run the check");
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		r = 0;
	} else {
		*e = *shared;
		r = e->code != 0 ? e->code : zw_error(e, EIO, "the check crashed");
	}
	(void) munmap(shared, sizeof *shared);
	return r;
}
