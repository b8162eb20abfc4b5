#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/protocol.h"
#include "base/clock.h"
#include "base/fd.h"
#include "isolation/build.h"
#include "kernel/affinity.h"
#include "kernel/caps.h"
#include "kernel/clone.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"
#include "kernel/netns.h"
#include "kernel/rlimit.h"

int build_send(const struct build *b, const struct build_message *m, int fd)
{
	return fd_send(b->sync, m, sizeof *m, &fd, fd >= 0 ? 1 : 0);
}

static int close_others(struct build *b)
{
	for (size_t i = 0; i < sizeof b->others / sizeof b->others[0]; i++)
		fd_close(&b->others[i]);
	return 0;
}

/* The child of a dead supervisor has nobody to answer to. PR_SET_PDEATHSIG is forgotten on changes of identity (prctl(2)), so it
 * is set again there; the build socket tells of a death before the call. */
static int die_with_supervisor(struct build *b)
{
	struct pollfd p = {.fd = b->sync, .events = 0};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	if (poll(&p, 1, 0) < 0)
		return -errno;
	return (p.revents & (POLLHUP | POLLERR)) != 0 ? -EPIPE : 0;
}

/* Late, so that what the kernel allocates for the walls is not charged to the sandbox, object by object; all that comes after is.
 */
static int enter_cgroups(struct build *b)
{
	for (size_t i = 0; i < b->join_count; i++)
		if (write(b->join[i], "0", 1) != 1)
			return errno != 0 ? -errno : -EIO;
	/* Only now, so that the groups of the sandbox are the roots that it sees (cgroup_namespaces(7)). */
	return unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
}

/* Started by root, the supervisor makes the groups while this process assembles the root, and hands them over only now. Nothing
 * of the sandbox's has run yet. */
static int receive_cgroups(struct build *b)
{
	struct build_groups groups;
	size_t room = CGROUP_CONTROLLER_MAX;
	ssize_t n = fd_recv(b->sync, &groups, sizeof groups, b->join, &room);

	if (n < 0)
		return (int) n;
	if (n != (ssize_t) sizeof groups)
		return -EPIPE;
	b->join_count = room;
	b->processes = groups.processes;
	b->processors = groups.processors;
	return 0;
}

static int join_cgroups(struct build *b)
{
	int r = b->late_groups ? receive_cgroups(b) : 0;

	return r < 0 ? r : enter_cgroups(b);
}

/* Away from the caller's terminal and session; a umask that is the same for everybody. */
static int leave_session(struct build *b)
{
	(void) b;
	(void) umask(022);
	return setsid() < 0 ? -errno : 0;
}

static int send_sockets(void *ctx, size_t first, const int *fds, size_t count)
{
	const struct build *b = ctx;
	struct build_message message = {.kind = BUILD_SOCKETS, .index = (uint32_t) first};

	return fd_send(b->sync, &message, sizeof message, fds, count);
}

static int enter_new_network(struct build *b)
{
	const struct transit *t = &b->plan->transit;
	const char *step;

	return t->listener_count == 0 ? netns_enter_new() : transit_make(t, send_sockets, b, &step);
}

/* The network namespace is the slowest to make, so somebody else makes it while this process assembles the root; it is joined
 * before the pivot, which would take the helper along into a root where settings are read-only. Started by root that is the
 * supervisor, which has nothing else to do meanwhile. Anybody else may make one only inside the new user namespace, and gets a
 * helper there. */
static int start_network(struct build *b)
{
	int ready[2];

	if (b->plan->privileged)
		return 0;
	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	b->network_ready = ready[0];
	b->network_pid = clone_namespaces(0, -EBADF, &b->network);
	if (b->network_pid == 0) {
		/* Not by a flag of the clone: that would make the caller wait. */
		int r = enter_new_network(b);

		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0)
			(void) !write(ready[1], &r, sizeof r);
		for (;;)
			(void) pause(); /* carries the namespace until it is joined */
	}
	(void) close(ready[1]);
	return b->network_pid < 0 ? (int) b->network_pid : 0;
}

static int receive_network(const struct build *b)
{
	cleanup_fd int network = -EBADF;
	size_t room = 1;
	char message;
	ssize_t n = fd_recv(b->sync, &message, sizeof message, &network, &room);

	if (n < 0)
		return (int) n;
	if (n == 0 || network < 0)
		return -EPIPE;
	return setns(network, CLONE_NEWNET) < 0 ? -errno : 0;
}

static int wait_for_helper(struct build *b)
{
	int r = -EPIPE;
	ssize_t n;

	do
		n = read(b->network_ready, &r, sizeof r);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t) sizeof r && r == 0)
		r = setns(b->network, CLONE_NEWNET) < 0 ? -errno : 0;
	(void) kill(b->network_pid,
		    SIGKILL); /* our own unreaped child; its end is waited for in a later step, when it is long over */
	fd_close(&b->network_ready);
	fd_close(&b->network);
	return r;
}

static int join_network(struct build *b)
{
	int r = b->plan->privileged ? receive_network(b) : wait_for_helper(b);

	if (r == 0) /* programs may serve on low ports: nobody else uses this network */
		r = netns_allow_low_ports(b->settings);
	fd_close(&b->settings);
	return r;
}

static int wait_for_maps(const struct build *b)
{
	char go;
	ssize_t n;

	do
		n = read(b->sync, &go, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -EPIPE;
}

static int enter_identity_early(struct build *b)
{
	return b->plan->privileged ? 0 : wait_for_maps(b);
}

static int isolate_mounts(struct build *b)
{
	(void) b;
	return mount_isolate();
}

static int pivot(struct build *b)
{
	if (fchdir(b->root) < 0)
		return -errno;
	return mount_pivot();
}

static int set_hostname(struct build *b)
{
	static const char domain[] = "(none)";

	if (sethostname(b->plan->hostname, strlen(b->plan->hostname)) < 0)
		return -errno;
	return setdomainname(domain, sizeof domain - 1) < 0 ? -errno : 0;
}

static int limit(int resource, uint64_t value)
{
	int64_t r = value == ZW_UNLIMITED ? 0 : rlimit_apply(resource, (rlim_t) value);

	return r < 0 ? (int) r : 0; /* else what is in force, which an int does not hold */
}

/* A core limit of exactly 1 also keeps a core pipe handler of the host from being started (core(5)); 0 would not. The filter
 * answers attempts to set it with success and leaves it: with the hard limit unlimited, as is usual, that is what the kernel
 * would say. */
static int set_limits(struct build *b)
{
	const struct plan *p = b->plan;
	uint64_t cpu = p->limits.cpu_time == ZW_UNLIMITED ? ZW_UNLIMITED : p->limits.cpu_time / USEC_PER_SEC + 5;
	int r;

	b->object = "RLIMIT_CORE";
	r = rlimit_apply_soft(RLIMIT_CORE, 1);
	if (r < 0)
		return r;
	b->object = "RLIMIT_NOFILE";
	r = limit(RLIMIT_NOFILE, p->limits.open_files);
	if (r < 0)
		return r;
	b->object = "RLIMIT_FSIZE";
	r = limit(RLIMIT_FSIZE, p->limits.file_size < p->limits.disk ? p->limits.file_size : p->limits.disk);
	if (r < 0)
		return r;
	b->object = "RLIMIT_CPU"; /* a backstop behind the supervisor's count of the whole tree */
	r = limit(RLIMIT_CPU, cpu);
	if (r < 0)
		return r;
	b->object = "processors";
	r = b->processors > 0 ? affinity_confine(b->processors) : 0;
	if (r < 0)
		return r;
	b->object = "RLIMIT_NPROC"; /* counted per user namespace since 5.14; the agent is one */
	return limit(RLIMIT_NPROC, b->processes == ZW_UNLIMITED ? ZW_UNLIMITED : b->processes + 1);
}

/* Real root only now becomes the sandbox's own uid, in a user namespace in which nothing else is mapped. */
static int take_identity(struct build *b)
{
	struct build_message m = {.kind = b->plan->privileged ? BUILD_WANT_MAPS : BUILD_ON_ITS_OWN};
	int r;

	if (!b->plan->privileged)
		return build_send(b, &m, -EBADF);
	if (setgroups(0, NULL) < 0)
		return -errno;
	if (unshare(CLONE_NEWUSER) < 0)
		return -errno;
	r = build_send(b, &m, -EBADF);
	if (r < 0)
		return r;
	r = wait_for_maps(b);
	if (r < 0)
		return r;
	if (setresgid(b->plan->inside_gid, b->plan->inside_gid, b->plan->inside_gid) < 0)
		return -errno;
	return setresuid(b->plan->inside_uid, b->plan->inside_uid, b->plan->inside_uid) < 0 ? -errno : 0;
}

/* The agent gets the two that change ids, for as long as it takes to become both users (agent/agent.h). Where processes are
 * counted per uid, a second one would be a second count: there is no root then. */
static bool agent_takes_root(const struct build *b)
{
	return b->plan->has_root && b->processes == ZW_UNLIMITED;
}

static int drop_capabilities(struct build *b)
{
	return agent_takes_root(b) ? caps_drop_all_but_ids() : caps_drop_all();
}

static int no_new_privileges(struct build *b)
{
	(void) b;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int allow_path(struct build *b, int ruleset, const char *path, enum landlock_access what)
{
	/* A target may lie in a folder that another sandbox writes to: no link on the way may lead the right to another place. */
	const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
	cleanup_fd int fd = (int) syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);

	b->object = path;
	if (fd < 0)
		return -errno;
	return landlock_allow_changes(ruleset, (unsigned) b->landlock_abi, fd, what);
}

/* The second wall over the mounts: what was mounted read-only stays so for Landlock's own reasons. Everything in the root may be
 * read and executed, so there is no rule to make for that. */
static int enforce_landlock(struct build *b)
{
	static const struct {
		const char *path;
		enum landlock_access what;
	} fixed[] = {
	    {"/tmp", LANDLOCK_WRITE},     {"/var/tmp", LANDLOCK_WRITE}, {"/dev", LANDLOCK_DEVICES},
	    {"/dev/shm", LANDLOCK_WRITE}, {"/proc", LANDLOCK_DEVICES},
	};
	cleanup_fd int ruleset = -EBADF;
	int r;

	if (b->landlock_abi <= 0)
		return 0;
	ruleset = landlock_changes_ruleset((unsigned) b->landlock_abi, true);
	if (ruleset < 0)
		return ruleset;
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
		r = allow_path(b, ruleset, fixed[i].path, fixed[i].what);
		if (r < 0)
			return r;
	}
	r = allow_path(b, ruleset, b->plan->home, LANDLOCK_WRITE);
	if (r == 0 && b->plan->has_root)
		r = allow_path(b, ruleset, PLAN_ROOT_HOME, LANDLOCK_WRITE);
	if (r < 0)
		return r;
	for (size_t i = 0; i < b->plan->mount_count; i++) {
		if (!b->plan->mounts[i].writable)
			continue;
		r = allow_path(b, ruleset, b->plan->mounts[i].target, LANDLOCK_WRITE);
		if (r < 0)
			return r;
	}
	b->object = "restrict";
	return landlock_enforce(ruleset);
}

static int reap_helper(struct build *b)
{
	if (b->plan->privileged)
		return 0;
	while (waitpid(b->network_pid, NULL, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Nothing of the caller's stays: 0 to 2 become /dev/null, 3 the channel, everything else closes with the exec. */
static int close_descriptors(struct build *b)
{
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (int fd = 0; fd <= 2; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	if (syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return -errno;
	if (null == AGENT_CHANNEL_FD)
		(void) take_fd(&null); /* replaced by the next call */
	return dup2(b->channel, AGENT_CHANNEL_FD) < 0 ? -errno : 0;
}

/* Last of all, so that the filter need not allow what the steps before it do. From here on only a message and the exec follow. */
static int install_filter(struct build *b)
{
	struct build_message m = {.kind = BUILD_LISTENER};
	int listener = seccomp_install(b->processors > 0 ? &b->confined_filter : &b->filter);
	int r;

	if (listener < 0)
		return listener;
	memcpy(m.took, b->took, sizeof m.took);
	r = build_send(b, &m, listener);
	fd_close(&listener);
	return r;
}

static int run_agent(struct build *b)
{
	static char name[] = "zwinger-agent", with_root[] = AGENT_WITH_ROOT;
	char *const argv[] = {name, agent_takes_root(b) ? with_root : NULL, NULL};
	char *const env[] = {NULL};

	(void) syscall(SYS_execveat, b->agent, "", argv, env, AT_EMPTY_PATH);
	return -errno;
}

const struct build_step build_steps[] = {
    {"close the supervisor's ends", close_others},
    {"die with the supervisor", die_with_supervisor},
    {"leave the session", leave_session},
    {"start the network namespace", start_network},
    {"enter the user namespace", enter_identity_early},
    {"isolate mounts", isolate_mounts},
    {"make the root", build_root_tree},
    {"mount the system tree", build_system_tree},
    {"write /etc", build_etc},
    {"mount scratch", build_scratch},
    {"make devices", build_devices},
    {"mount /proc", build_proc},
    {"mount the policy's folders", build_mounts},
    {"join the network namespace", join_network},
    {"add the certificates of this run", build_trust},
    {"seal the root", build_seal_root},
    {"pivot", pivot},
    {"set the host name", set_hostname},
    {"join control groups", join_cgroups},
    {"take the sandbox's identity", take_identity},
    {"drop capabilities", drop_capabilities},
    {"die with the supervisor (again)", die_with_supervisor},
    {"set no_new_privs", no_new_privileges},
    {"enforce Landlock", enforce_landlock},
    {"reap the network helper", reap_helper},
    {"close descriptors", close_descriptors},
    {"set resource limits", set_limits},
    {"install the system call filter", install_filter},
    {"run the agent", run_agent},
};
const size_t build_step_count = sizeof build_steps / sizeof build_steps[0];
_Static_assert(sizeof build_steps / sizeof build_steps[0] <= BUILD_STEPS_MAX, "room for the times of all steps");

_Noreturn void build_child(struct build *b)
{
	usec_t before = now_monotonic();

	for (size_t i = 0; i < build_step_count; i++) {
		struct build_message fault = {.kind = BUILD_FAULT, .index = (uint32_t) i};
		usec_t after;
		int r;

		b->object = "";
		r = build_steps[i].run(b);
		if (r < 0) {
			fault.error = -r;
			for (size_t n = 0; n < sizeof fault.object - 1 && b->object[n] != '\0'; n++)
				fault.object[n] = b->object[n];
			(void) build_send(b, &fault, -EBADF); /* the supervisor may be gone: then nobody needs to know */
			_exit(125);
		}
		after = now_monotonic();
		b->took[i] = (uint32_t) (after - before);
		before = after;
	}
	_exit(125); /* not reached: the last step execs or fails */
}
