#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/image.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "isolation/build.h"
#include "isolation/level.h"
#include "kernel/clone.h"
#include "kernel/idmap.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"
#include "kernel/netns.h"
#include "kernel/transit.h"
#include "kernel/uapi.h"

/* Fds that the child needs lie above the number it gives to the agent's channel. */
enum { FD_ABOVE = 10, NOBODY = 65534 };

/* What the supervisor holds while it builds. */
struct prepared {
	struct build build;
	int sync; /* the supervisor's end */
	int proc; /* /proc of the host */
	usec_t begun;
};

static void prepared_done(struct prepared *p)
{
	if (p->build.trees != NULL)
		for (size_t i = 0; i < p->build.plan->mount_count; i++)
			fd_close(&p->build.trees[i]);
	free(p->build.trees);
	seccomp_filter_done(&p->build.filter);
	seccomp_filter_done(&p->build.confined_filter);
	fd_close(&p->build.channel);
	fd_close(&p->build.agent);
	fd_close(&p->build.sync);
	fd_close(&p->sync);
	fd_close(&p->proc);
}

/* Replaces *fd by a close-on-exec copy with a higher number. */
static int move_fd(int *fd)
{
	int moved = fcntl(*fd, F_DUPFD_CLOEXEC, FD_ABOVE);

	if (moved < 0)
		return -errno;
	fd_close(fd);
	*fd = moved;
	return 0;
}

static int make_sockets(struct prepared *p, int *ret_channel, struct zw_error *e)
{
	int channel[2], sync[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
		return zw_errno(e, errno, "cannot make the agent's channel");
	*ret_channel = channel[0];
	p->build.channel = channel[1];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0)
		return zw_errno(e, errno, "cannot make the build socket");
	p->sync = sync[0];
	p->build.sync = sync[1];
	p->build.others[0] = channel[0];
	p->build.others[1] = sync[0];
	if (move_fd(&p->build.channel) < 0 || move_fd(&p->build.sync) < 0)
		return zw_errno(e, errno, "cannot move descriptors");
	return 0;
}

/* Whose files are shown as the sandbox's own, and who new files belong to: the owner of the folder. A folder of root that
 * everybody may write needs no such power: there new files belong to nobody, so that nothing made inside is root's. */
static void disk_owner(const struct plan_mount *m, uid_t *ret_uid, gid_t *ret_gid)
{
	bool nobody = m->owner_uid == 0 && m->everybody_writes;

	*ret_uid = nobody ? NOBODY : m->owner_uid;
	*ret_gid = nobody ? NOBODY : m->owner_gid;
}

static int prepare_tree(struct prepared *p, const struct plan_mount *m, int *ret_tree, struct zw_error *e)
{
	cleanup_fd int tree = mount_clone_tree(m->fd, "");
	cleanup_fd int userns = -EBADF;
	uid_t uid;
	gid_t gid;
	int r;

	if (tree < 0)
		return zw_errno(e, -tree, "cannot take a copy of the mounts at %s", m->source);
	disk_owner(m, &uid, &gid);
	/* What may only be read has no group: a socket of the host in there is then out of reach, which no read-only mount
	 * achieves. */
	r = idmap_namespace(p->proc, p->build.outside_uid, uid, m->writable ? gid : IDMAP_NO_GID, &userns, e);
	if (r < 0)
		return r;
	r = build_tree_attributes(tree, m, userns);
	if (r < 0 && !m->writable)
		r = build_tree_attributes(tree, m, -EBADF); /* readable as far as its modes let everybody read */
	if (r < 0)
		return zw_errno(
		    e, -r,
		    "cannot map the owner of %s: its file system does not support id-mapped mounts; run as the user who owns "
		    "it, or use a folder on another file system",
		    m->source);
	*ret_tree = take_fd(&tree);
	return 0;
}

static int prepare_privileged(struct prepared *p, struct zw_error *e)
{
	const struct plan *plan = p->build.plan;
	uid_t base;
	int r = idmap_range(&base, e);

	if (r < 0)
		return r;
	p->build.outside_uid = p->build.outside_gid = base;
	p->build.trees = xcalloc(plan->mount_count, sizeof *p->build.trees);
	for (size_t i = 0; i < plan->mount_count; i++)
		p->build.trees[i] = -EBADF;
	for (size_t i = 0; i < plan->mount_count; i++) {
		r = prepare_tree(p, &plan->mounts[i], &p->build.trees[i], e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Without a controller, affinity can hold the part of the limit that is whole: 1.5 becomes 1. Nothing can be done about less than
 * one. */
static unsigned whole_processors(const struct plan *plan)
{
	uint64_t quota = plan->limits.cgroup.cpu_quota;

	return quota == ZW_UNLIMITED ? 0 : (unsigned) (quota / 100000 < CPU_SETSIZE ? quota / 100000 : CPU_SETSIZE);
}

/* With the processors fixed by affinity, the filter keeps them so. */
static int make_filters(struct prepared *p, struct zw_error *e)
{
	struct seccomp_spec spec = p->build.plan->syscalls;
	int r = seccomp_filter_make(&spec, &p->build.filter, e);

	if (r < 0 || whole_processors(p->build.plan) == 0)
		return r;
	spec.fixed_processors = true;
	return seccomp_filter_make(&spec, &p->build.confined_filter, e);
}

/* What the groups hold, and what the child has to in their place. */
static void decide_groups(const struct sandbox *s, struct build *b)
{
	bool processors = cgroup_holds(s->cgroup, CGROUP_CPU) == CGROUP_ABSENT;
	bool processes = cgroup_holds(s->cgroup, CGROUP_PIDS) == CGROUP_ABSENT;

	b->processors = processors ? whole_processors(s->plan) : 0;
	b->processes = processes ? s->plan->limits.cgroup.processes : ZW_UNLIMITED;
	b->join_count = cgroup_join_fds(s->cgroup, b->join);
}

static int prepare(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	const struct plan *plan = s->plan;
	int r = make_sockets(p, &s->channel, e);

	if (r < 0)
		return r;
	p->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->proc < 0)
		return zw_errno(e, errno, "cannot open /proc");
	p->build.agent = agent_memfd(e);
	if (p->build.agent < 0)
		return p->build.agent;
	if (move_fd(&p->build.agent) < 0)
		return zw_errno(e, errno, "cannot move descriptors");
	r = make_filters(p, e);
	if (r < 0)
		return r;
	p->build.late_groups = s->settle != NULL;
	if (!p->build.late_groups)
		decide_groups(s, &p->build);
	p->build.landlock_abi = landlock_abi();
	if (plan->privileged)
		return prepare_privileged(p, e);
	p->build.outside_uid = plan->caller_uid;
	p->build.outside_gid = plan->caller_gid;
	return 0;
}

static int explain_clone(int err, bool privileged, struct zw_error *e)
{
	switch (err) {
	case EPERM:
	case EACCES:
		return zw_error(e, err,
				"cannot make a user namespace: permission denied; this host or container forbids it (AppArmor, "
				"kernel.unprivileged_userns_clone or a container's filter): see `zwinger doctor`, or use "
				"--isolation process");
	case ENOSPC:
	case EUSERS:
		return zw_error(e, err,
				"cannot make namespaces: the host's limit is reached (user.max_user_namespaces and its "
				"neighbours in sysctl); "
				"raise it, or use --isolation process");
	case EINVAL:
	case ENOSYS:
		return zw_error(
		    e, err,
		    "cannot make namespaces: this kernel is too old or built without them (Linux 5.12 is needed), or a "
		    "container's filter hides clone3; use --isolation process");
	default:
		return zw_errno(e, err, "cannot make namespaces%s", privileged ? "" : " as an ordinary user");
	}
}

static int clone_child(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	uint64_t flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWTIME;
	int cgroup = cgroup_clone_fd(s->cgroup);
	pid_t pid;

	if (!s->plan->privileged)
		flags |= CLONE_NEWUSER;
	pid = clone_namespaces(flags, cgroup, &s->pidfd);
	if (pid == 0) {
		/* Our copies of the supervisor's ends would hide its death from us. */
		(void) close(p->sync);
		(void) close(s->channel);
		build_child(&p->build);
	}
	if (pid < 0)
		return explain_clone((int) -pid, s->plan->privileged, e);
	s->pid = pid;
	fd_close(&p->build.sync); /* so that its end is seen when the child's copy closes */
	fd_close(&p->build.channel);
	return 0;
}

static int write_maps(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	const struct plan *plan = s->plan;
	const struct id_pair pairs[] = {
	    {plan->inside_uid, p->build.outside_uid, plan->inside_gid, p->build.outside_gid},
	    {0, p->build.outside_uid + IDMAP_ROOT, 0, p->build.outside_gid + IDMAP_ROOT},
	};
	int r = idmap_write(p->proc, s->pid, pairs, plan->has_root ? 2 : 1, e);

	if (r < 0)
		return r;
	r = fd_write_all(p->sync, "g", 1);
	return r < 0 ? zw_errno(e, -r, "cannot tell the child that its ids are mapped") : 0;
}

struct network_request {
	struct sandbox *sandbox;
	const char *step;
};

static int enter_network(void *ctx)
{
	struct network_request *q = ctx;
	const struct transit *t = &q->sandbox->plan->transit;

	if (t->listener_count == 0)
		return netns_enter_new();
	return transit_make(t, q->sandbox->give_listeners, q->sandbox->network_ctx, &q->step);
}

/* Made here while the child assembles the root: see start_network in build-steps.c. */
static int give_network(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	struct network_request q = {.sandbox = s, .step = "make a network namespace"};
	cleanup_fd int network = netns_make(enter_network, &q);
	int r;

	if (network < 0)
		return zw_errno(e, -network, "cannot %s", q.step);
	r = fd_send(p->sync, "n", 1, &network, 1);
	/* A child that is gone already has said why. */
	return r < 0 && r != -EPIPE ? zw_errno(e, -r, "cannot hand the network namespace to the child") : 0;
}

/* The child waits for the certificates before it seals its root. */
static int give_trust(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	int fds[2], r = s->trust(s->network_ctx, fds, e);

	if (r < 0)
		return r;
	r = fd_send(p->sync, "t", 1, fds, fds[1] >= 0 ? 2 : 1);
	return r < 0 && r != -EPIPE ? zw_errno(e, -r, "cannot hand the certificates to the child") : 0;
}

/* The rest of the control groups are made only now, for the same reason. A refused run ends here. */
static int give_groups(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	struct build_groups groups = {0}; /* no padding of ours goes out */
	int r = s->settle(s->settle_ctx, e);

	if (r < 0)
		return r;
	decide_groups(s, &p->build);
	groups.processes = p->build.processes;
	groups.processors = p->build.processors;
	r = fd_send(p->sync, &groups, sizeof groups, p->build.join, p->build.join_count);
	return r < 0 && r != -EPIPE ? zw_errno(e, -r, "cannot hand the control groups to the child") : 0;
}

static int explain_fault(const struct build_message *m, struct zw_error *e)
{
	const char *step = m->index < build_step_count ? build_steps[m->index].name : "an unknown step";
	const char *hint = "";

	if (m->error == ESTALE)
		hint = "; it was replaced while the sandbox was being built";
	else if (strcmp(step, "mount /proc") == 0 && m->error == EPERM)
		hint = "; the container around us hides parts of its own /proc, which forbids a new one: use --isolation process";
	else if (strcmp(step, "mount the policy's folders") == 0 && m->error == ENOENT)
		hint = "; the place for the mount does not exist in the folder that is mounted around it: make it there first";
	else if (strcmp(step, "mount the policy's folders") == 0 && m->error == EINVAL)
		hint = "; a folder with a size must have nothing mounted below it";
	if (m->object[0] == '\0')
		return zw_error(e, m->error, "set-up failed at \"%s\": %s%s", step, strerror(m->error), hint);
	return zw_error(e, m->error, "set-up failed at \"%s\" (%.*s): %s%s", step, BUILD_OBJECT_MAX - 1, m->object,
			strerror(m->error), hint);
}

static void note_steps(struct sandbox *s, const struct build_message *m)
{
	for (size_t i = 0; i < build_step_count && s->step_count < ARRAY_SIZE(s->steps); i++)
		s->steps[s->step_count++] = (struct step_time){.name = build_steps[i].name, .took = m->took[i]};
}

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
}

/* Waits for one message while the filter may already be on: its first customer is the agent's own exec, which goes on at once.
 * Returns 1, 0 at the end of file, or negative errno. */
static int next_message(struct sandbox *s, struct prepared *p, struct build_message *ret, int passed[BUILD_FDS_MAX],
			size_t *ret_count, struct zw_error *e)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = p->sync, .events = POLLIN}, {.fd = s->listener, .events = POLLIN}};
		int r = poll(fds, s->listener >= 0 ? 2 : 1, -1);
		ssize_t n;

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return zw_errno(e, errno, "cannot wait for the child");
		if (s->listener >= 0 && (fds[1].revents & POLLIN) != 0) {
			struct seccomp_notif notif;

			if (seccomp_receive(s->listener, &notif) == 0)
				(void) seccomp_continue(s->listener, notif.id); /* a dead caller needs no answer */
		}
		if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0)
			continue;
		*ret_count = BUILD_FDS_MAX;
		n = fd_recv(p->sync, ret, sizeof *ret, passed, ret_count);
		if (n == 0 || n == -ECONNRESET)
			return 0;
		if (n != (ssize_t) sizeof *ret) {
			close_all(passed, *ret_count);
			return zw_error(e, EPROTO, "a message of the child is cut short");
		}
		ret->object[sizeof ret->object - 1] = '\0';
		return 1;
	}
}

/* What can be done while the child goes on without us. Only when it asks for nothing more: before that the walls and the network
 * namespace need both processors. */
static void work_meanwhile(struct sandbox *s)
{
	cgroup_prepare(s->cgroup);
	if (s->meanwhile != NULL)
		s->meanwhile(s->meanwhile_ctx);
	s->meanwhile = NULL;
	cgroup_reap(s->cgroup); /* what others left */
}

static int take_upper(struct sandbox *s, const struct build_message *m, int *fds, size_t count, struct zw_error *e)
{
	if (m->index >= ARRAY_SIZE(s->upper) || count != 1)
		return zw_error(e, EPROTO, "the child sent an upper folder for no mount");
	fd_close(&s->upper[m->index]);
	s->upper[m->index] = take_fd(&fds[0]);
	return 0;
}

static int take_listener(struct sandbox *s, const struct build_message *m, int *fds, size_t count, struct zw_error *e)
{
	if (count != 1)
		return zw_error(e, EPROTO, "the child sent no listener");
	s->listener = take_fd(&fds[0]);
	seccomp_tune_listener(s->listener);
	note_steps(s, m);
	return 0;
}

static int take_sockets(struct sandbox *s, const struct build_message *m, const int *fds, size_t count, struct zw_error *e)
{
	int r = s->give_listeners(s->network_ctx, m->index, fds, count);

	return r < 0 ? zw_errno(e, -r, "cannot hand the sockets of the network rules to the broker") : 0;
}

static int take_message(struct sandbox *s, struct prepared *p, const struct build_message *m, int *fds, size_t count,
			struct zw_error *e)
{
	int r;

	switch (m->kind) {
	case BUILD_WANT_MAPS:
		r = write_maps(s, p, e);
		if (r == 0)
			work_meanwhile(s);
		return r;
	case BUILD_ON_ITS_OWN:
		work_meanwhile(s);
		return 0;
	case BUILD_UPPER:
		return take_upper(s, m, fds, count, e);
	case BUILD_SOCKETS:
		return take_sockets(s, m, fds, count, e);
	case BUILD_LISTENER:
		return take_listener(s, m, fds, count, e);
	case BUILD_FAULT:
		return explain_fault(m, e);
	default:
		return zw_error(e, EPROTO, "the child sent an unknown message");
	}
}

/* Talks with the child until the agent runs. */
static int converse(struct sandbox *s, struct prepared *p, struct zw_error *e)
{
	for (;;) {
		struct build_message m;
		int fds[BUILD_FDS_MAX];
		size_t count = 0;
		int r = next_message(s, p, &m, fds, &count, e);

		if (r < 0)
			return r;
		if (r == 0)
			return s->listener >= 0 ? 0 : zw_error(e, ECHILD, "set-up ended before the walls were complete");
		r = take_message(s, p, &m, fds, count, e);
		close_all(fds, count);
		if (r < 0)
			return r;
	}
}

static void end_child(struct sandbox *s)
{
	if (s->pidfd < 0)
		return;
	(void) syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0); /* fails only when it is dead already */
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	fd_close(&s->pidfd);
}

static int container_start(struct sandbox *s, struct zw_error *e)
{
	struct prepared p = {
	    .build = {.plan = s->plan, .channel = -EBADF, .agent = -EBADF, .sync = -EBADF, .root = -EBADF, .settings = -EBADF},
	    .sync = -EBADF,
	    .proc = -EBADF,
	    .begun = now_monotonic(),
	};
	int r;

	s->pidfd = s->channel = s->listener = -EBADF;
	for (size_t i = 0; i < ARRAY_SIZE(s->upper); i++)
		s->upper[i] = -EBADF;
	r = prepare(s, &p, e);
	if (r == 0)
		r = clone_child(s, &p, e);
	if (r == 0)
		r = s->plan->privileged ? give_network(s, &p, e) : write_maps(s, &p, e);
	if (r == 0 && s->plan->trust)
		r = give_trust(s, &p, e);
	if (r == 0 && s->settle != NULL)
		r = give_groups(s, &p, e);
	if (r == 0)
		r = converse(s, &p, e);
	if (r < 0) {
		end_child(s);
		fd_close(&s->channel);
		fd_close(&s->listener);
	}
	s->setup = now_monotonic() - p.begun;
	prepared_done(&p);
	return r;
}

static void container_kill(struct sandbox *s)
{
	/* The end of pid 1 is the end of its namespace (pid_namespaces(7)). */
	(void) syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0);
}

static int container_probe(const struct plan *plan, struct control_state controls[CONTROL_MAX], struct zw_error *e)
{
	(void) e;
	controls[CONTROL_FILESYSTEM].mechanism = landlock_abi() > 0 ? "mounts+landlock" : "mounts";
	controls[CONTROL_SYSCALLS].mechanism = "seccomp";
	controls[CONTROL_NETWORK].mechanism = plan->network != NULL ? "netns+broker" : "netns";
	controls[CONTROL_PROCESS_VIEW].mechanism = "pidns";
	controls[CONTROL_IPC].mechanism = "ipcns";
	controls[CONTROL_IDENTITY].mechanism = "userns";
	controls[CONTROL_SCRATCH].mechanism = "tmpfs";
	if (plan->limits.open_files != ZW_UNLIMITED)
		controls[CONTROL_OPEN_FILES].mechanism = "rlimit";
	if (plan->limits.file_size != ZW_UNLIMITED)
		controls[CONTROL_FILE_SIZE].mechanism = "rlimit";
	if (whole_processors(plan) > 0)
		controls[CONTROL_CPUS].mechanism = "affinity"; /* likewise */
	if (plan->limits.cgroup.processes != ZW_UNLIMITED)
		controls[CONTROL_PROCESSES].mechanism = "rlimit"; /* a control group is better: the supervisor knows */
	return 0;
}

const struct isolation_ops isolation_container = {
    .name = "container",
    .settles_late = true,
    .probe = container_probe,
    .start = container_start,
    .kill = container_kill,
};
