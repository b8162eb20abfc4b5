/* A group within those of a sandbox, for one process and whatever that starts, however it detaches itself: for its CPU time, and
 * to end it all.
 *
 * It lies in the sandbox's v2 group, where the kernel counts CPU time without any controller, tells when the last process has
 * gone (cgroup.events) and kills all at once (cgroup.kill). No controller is handed out to it: a group that has processes of its
 * own, as the agent, cannot do that. Without a v2 group it is one each below the v1 groups of pids and cpuacct; with pids.max at
 * 0 nothing in it can fork, so that a list of its members is complete, and stays so.
 *
 * The process joins by writing "0" to a descriptor that was opened here: the kernel asks for the rights of whoever opened it
 * (cgroup_attach_permissions), and the sandbox has none.
 *
 * Joining is dear: the kernel waits until no fork is under way anywhere, some 8 ms on a machine at rest. So whoever is alone in a
 * sandbox but for the agent may have the sandbox's own group: its members but the agent are the process and what it started, as
 * long as every other process has a group. That group can be neither removed nor killed as a whole, nor tells it when all but the
 * agent have gone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum {
	MEMBERS_SIZE = 65536, /* of a list of pids as text */
	KILL_ROUNDS = 64,     /* where nothing keeps them from forking meanwhile */
	NAME_SIZE = 16,
	FILE_SIZE = 48,
};

/* Found by name in the sandbox's group, which is locked: with a thousand processes no descriptor is held for each. */
struct member {
	const struct cgroup_part *parent;
	int join; /* until it has joined */
};

struct cgroup_child {
	char name[NAME_SIZE]; /* "." for the sandbox's own */
	pid_t agent;          /* of the sandbox's own: a member that does not count; else 0 */
	usec_t before;        /* what the sandbox's own, without the agent, had used */
	struct member members[CGROUP_CHILD_FDS];
	size_t count;
	int events; /* v2: cgroup.events. v1: a pidfd of the process that is waited for. -EBADF */
};

static bool is_own(const struct cgroup_child *g)
{
	return g->agent != 0;
}

/* A group of its own, of version 2: it tells of its end, and is killed whole. */
static bool is_v2(const struct cgroup_child *g)
{
	return !is_own(g) && g->members[0].parent->place->version == CGROUP_V2;
}

/* "p12/cgroup.kill" */
static const char *file_of(const struct cgroup_child *g, const char *name, char path[FILE_SIZE])
{
	(void) snprintf(path, FILE_SIZE, "%s/%s", g->name, name);
	return path;
}

static int add_member(struct cgroup_child *g, const struct cgroup_part *parent)
{
	const char *join = parent->place->version == CGROUP_V2 ? "cgroup.procs" : "tasks";
	struct member m = {.parent = parent, .join = -EBADF};
	char path[FILE_SIZE];

	if (mkdirat(parent->group, g->name, 0755) < 0)
		return -errno;
	m.join = openat(parent->group, file_of(g, join, path), O_WRONLY | O_CLOEXEC);
	if (m.join < 0) {
		int r = -errno;

		(void) unlinkat(parent->group, g->name, AT_REMOVEDIR);
		return r;
	}
	g->members[g->count++] = m;
	return 0;
}

static bool can_hold(const struct cgroup_part *part)
{
	const unsigned v1 = CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_CPUACCT);

	return part->place->version == CGROUP_V2 || (part->controllers & v1) != 0;
}

enum cgroup_version cgroup_child_kind_at(const struct cgroup_part *parts, size_t count)
{
	enum cgroup_version kind = CGROUP_ABSENT;

	for (size_t i = 0; i < count && kind != CGROUP_V2; i++)
		if (can_hold(&parts[i]))
			kind = parts[i].place->version;
	return kind;
}

int cgroup_child_make_at(const struct cgroup_part *parts, size_t count, uint32_t number, struct cgroup_child **ret)
{
	enum cgroup_version kind = cgroup_child_kind_at(parts, count);
	struct cgroup_child *g = xcalloc(1, sizeof *g);
	int r = 0;

	g->events = -EBADF;
	(void) snprintf(g->name, sizeof g->name, "p%u", number);
	for (size_t i = 0; i < count && r == 0 && g->count < CGROUP_CHILD_FDS; i++)
		if (parts[i].place->version == kind && can_hold(&parts[i]))
			r = add_member(g, &parts[i]);
	if (r == 0 && g->count == 0)
		r = -ENOTSUP;
	if (r < 0) {
		(void) cgroup_child_remove(&g); /* nobody has joined, so it cannot be busy */
		return r;
	}
	*ret = g;
	return 0;
}

size_t cgroup_child_join_fds(const struct cgroup_child *g, int fds[CGROUP_CHILD_FDS])
{
	size_t count = is_own(g) ? 0 : g->count;

	for (size_t i = 0; i < count; i++)
		fds[i] = g->members[i].join;
	return count;
}

void cgroup_child_joined(struct cgroup_child *g)
{
	for (size_t i = 0; i < g->count; i++)
		fd_close(&g->members[i].join);
}

static usec_t agent_cpu(const struct cgroup_child *g)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(g->agent, &clock) != 0 || clock_gettime(clock, &t) < 0)
		return ZW_UNLIMITED;
	return (usec_t) t.tv_sec * USEC_PER_SEC + (usec_t) t.tv_nsec / 1000;
}

static usec_t group_cpu(const struct cgroup_child *g)
{
	for (size_t i = 0; i < g->count; i++) {
		bool v2 = g->members[i].parent->place->version == CGROUP_V2;
		const struct cgroup_figures *figures = v2 ? &cgroup_v2_ops.figures : &cgroup_v1_ops.figures;

		for (size_t j = 0; j < figures->count; j++) {
			const struct cgroup_figure *f = &figures->rows[j];
			cleanup_fd int fd = -EBADF;
			char path[FILE_SIZE];

			if (f->controller != CGROUP_CPUACCT)
				continue;
			fd = openat(g->members[i].parent->group, file_of(g, f->file, path), O_RDONLY | O_CLOEXEC);
			if (fd >= 0)
				return cgroup_figure_read(f, fd);
		}
	}
	return ZW_UNLIMITED;
}

/* What the group has used without the agent, ever. */
static usec_t own_cpu(const struct cgroup_child *g)
{
	usec_t all = group_cpu(g), agent = agent_cpu(g);

	if (all == ZW_UNLIMITED || agent == ZW_UNLIMITED)
		return ZW_UNLIMITED;
	return all > agent ? all - agent : 0;
}

usec_t cgroup_child_cpu(const struct cgroup_child *g)
{
	usec_t now = is_own(g) ? own_cpu(g) : group_cpu(g);

	return now != ZW_UNLIMITED && now > g->before ? now - g->before : now == ZW_UNLIMITED ? now : 0;
}

/* A line is "3:cpuacct:/a/zwinger-12-ab/p7". */
static uint32_t number_of_line(const char *line, size_t size)
{
	static const char prefix[] = CGROUP_PREFIX;
	const char *end = line + size, *child = memrchr(line, '/', size);
	const char *parent = child != NULL ? memrchr(line, '/', (size_t) (child - line)) : NULL;
	uint64_t number;

	if (parent == NULL || strncmp(parent + 1, prefix, sizeof prefix - 1) != 0 || child[1] != 'p')
		return 0;
	child += 2;
	return cgroup_parse_u64(&child, &number) && child == end && number <= UINT32_MAX ? (uint32_t) number : 0;
}

uint32_t cgroup_child_of(pid_t pid)
{
	char path[32], text[4096];
	uint32_t number = 0;
	ssize_t n;

	(void) snprintf(path, sizeof path, "/proc/%d/cgroup", (int) pid);
	n = fd_read_file_at(AT_FDCWD, path, text, sizeof text);
	if (n <= 0)
		return 0;
	for (const char *line = text; *line != '\0' && number == 0;) {
		size_t size = strcspn(line, "\n");

		number = number_of_line(line, size);
		line += size + (line[size] == '\n');
	}
	return number;
}

/* ---- Its processes. ---- */

/* Pids as seen from here, from cgroup.procs. Each is given to `found`; returns how many there were, or negative errno. */
static int each_process(const struct cgroup_child *g, void (*found)(void *ctx, pid_t pid), void *ctx)
{
	cleanup_free char *text = xcalloc(1, MEMBERS_SIZE);
	char path[FILE_SIZE];
	ssize_t n = fd_read_file_at(g->members[0].parent->group, file_of(g, "cgroup.procs", path), text, MEMBERS_SIZE);
	const char *p = text;
	uint64_t pid;
	int count = 0;

	if (n < 0)
		return (int) n;
	while (cgroup_parse_u64(&p, &pid)) {
		if (pid > 0 && pid <= INT32_MAX && (pid_t) pid != g->agent) {
			found(ctx, (pid_t) pid);
			count++;
		}
		p += *p == '\n';
	}
	return count;
}

struct pids {
	pid_t *list;
	size_t count;
};

static void note_pid(void *ctx, pid_t pid)
{
	struct pids *pids = ctx;

	if (pids->count % 64 == 0)
		pids->list = xrealloc(pids->list, pids->count + 64, sizeof *pids->list);
	pids->list[pids->count++] = pid;
}

static bool has_pid(const struct pids *pids, pid_t pid)
{
	for (size_t i = 0; i < pids->count; i++)
		if (pids->list[i] == pid)
			return true;
	return false;
}

/* A number may be given to an innocent process between reading the list and signalling: so first take a handle, and use it only
 * if the number is still listed after that. */
static int signal_listed(const struct cgroup_child *g, int number)
{
	struct pids before = {0}, after = {0};
	int *fds, r = each_process(g, note_pid, &before);

	fds = before.count > 0 ? xcalloc(before.count, sizeof *fds) : NULL;
	for (size_t i = 0; i < before.count; i++)
		fds[i] = (int) syscall(SYS_pidfd_open, before.list[i], 0);
	if (r > 0)
		r = each_process(g, note_pid, &after);
	for (size_t i = 0; i < before.count; i++) {
		if (fds[i] >= 0 && has_pid(&after, before.list[i]))
			(void) syscall(SYS_pidfd_send_signal, fds[i], number, NULL, 0);
		fd_close(&fds[i]);
	}
	free(fds);
	free(before.list);
	free(after.list);
	return r;
}

int cgroup_child_signal(const struct cgroup_child *g, int number)
{
	int r = signal_listed(g, number);

	return r < 0 ? r : 0;
}

/* Nothing keeps those in the sandbox's own group from forking, but that they are stopped: a round leaves only what was forked
 * while it was read. Done when a round finds as many as the one before, and so nobody new. */
static void stop_all(const struct cgroup_child *g)
{
	int before = -1, r = 0;

	for (int i = 0; i < KILL_ROUNDS && r != before; i++) {
		before = r;
		r = signal_listed(g, SIGSTOP);
	}
}

int cgroup_child_kill(const struct cgroup_child *g)
{
	char path[FILE_SIZE];
	bool held = false;
	int r;

	if (is_own(g)) {
		stop_all(g);
		return cgroup_child_signal(g, SIGKILL);
	}
	if (is_v2(g)) {
		r = fd_write_file_at(g->members[0].parent->group, file_of(g, "cgroup.kill", path), "1"); /* 5.14 */
		if (r != -ENOENT)
			return r;
	}
	for (size_t i = 0; i < g->count; i++)
		held |= fd_write_file_at(g->members[i].parent->group, file_of(g, "pids.max", path), "0") == 0;
	/* One that has its death coming cannot fork any more: each round leaves only what was forked while it was read. */
	for (int i = 0; i < KILL_ROUNDS; i++) {
		r = signal_listed(g, SIGKILL);
		if (r <= 0 || held)
			break;
	}
	return r < 0 ? r : 0;
}

static int wait_v2(struct cgroup_child *g)
{
	char text[256], path[FILE_SIZE];
	ssize_t n;

	if (g->events < 0)
		g->events = openat(g->members[0].parent->group, file_of(g, "cgroup.events", path), O_RDONLY | O_CLOEXEC);
	n = g->events < 0 ? -1 : pread(g->events, text, sizeof text - 1, 0);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	return strstr(text, "populated 0") != NULL ? -ENOENT : g->events;
}

static void open_pid(void *ctx, pid_t pid)
{
	struct cgroup_child *g = ctx;

	if (g->events < 0)
		g->events = (int) syscall(SYS_pidfd_open, pid, 0);
	if (g->events < 0)
		g->events = -EBADF;
}

/* Version 1 has no event for "the last one has gone": one after the other is waited for. */
static int wait_v1(struct cgroup_child *g)
{
	int r;

	fd_close(&g->events);
	r = each_process(g, open_pid, g);
	if (r < 0)
		return r;
	return g->events >= 0 ? g->events : -ENOENT;
}

int cgroup_child_wait_fd(struct cgroup_child *g, short *ret_events)
{
	*ret_events = is_v2(g) ? POLLPRI : POLLIN;
	return is_v2(g) ? wait_v2(g) : wait_v1(g);
}

bool cgroup_child_remove(struct cgroup_child **group)
{
	struct cgroup_child *g = *group;

	while (g != NULL && !is_own(g) && g->count > 0) {
		struct member *m = &g->members[g->count - 1];

		if (unlinkat(m->parent->group, g->name, AT_REMOVEDIR) < 0 && errno == EBUSY)
			return false;
		fd_close(&m->join);
		g->count--;
	}
	if (g != NULL)
		fd_close(&g->events);
	free(g);
	*group = NULL;
	return true;
}

void cgroup_child_forget(struct cgroup_child **group)
{
	struct cgroup_child *g = *group;

	if (g != NULL) {
		cgroup_child_joined(g);
		fd_close(&g->events);
	}
	free(g);
	*group = NULL;
}

/* ---- The sandbox's own. ---- */

static void count_one(void *ctx, pid_t pid)
{
	(void) ctx;
	(void) pid;
}

int cgroup_child_own_at(const struct cgroup_part *parts, size_t count, pid_t agent, struct cgroup_child **ret)
{
	enum cgroup_version kind = cgroup_child_kind_at(parts, count);
	struct cgroup_child *g = xcalloc(1, sizeof *g);
	int r = -ENOTSUP;

	*g = (struct cgroup_child){.name = ".", .agent = agent, .events = -EBADF};
	for (size_t i = 0; i < count && g->count < CGROUP_CHILD_FDS; i++)
		if (parts[i].place->version == kind && can_hold(&parts[i]))
			g->members[g->count++] = (struct member){.parent = &parts[i], .join = -EBADF};
	if (g->count > 0)
		r = each_process(g, count_one, NULL);
	if (r == 0) {
		g->before = own_cpu(g);
		*ret = g;
		return g->before != ZW_UNLIMITED ? 0 : (cgroup_child_forget(ret), -ENOTSUP);
	}
	free(g);
	return r > 0 ? -EBUSY : r;
}
