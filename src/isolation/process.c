#include "isolation/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "isolation/level.h"
#include "kernel/landlock.h"

/* ---- The plan. ---- */

static void replace(char **text, const char *value)
{
	free(*text);
	*text = xstrdup(value);
}

/* Sets a variable that still has the value which the plan gives by default. */
static void replace_env(struct plan *plan, const char *name, const char *old, const char *value)
{
	cleanup_free char *is = xasprintf("%s=%s", name, old);

	for (size_t i = 0; i < plan->envc; i++) {
		if (strcmp(plan->env[i], is) != 0)
			continue;
		free(plan->env[i]);
		plan->env[i] = xasprintf("%s=%s", name, value);
		return;
	}
}

static void add_env(struct plan *plan, const char *name, const char *value)
{
	plan->env = xrealloc(plan->env, plan->envc + 2, sizeof *plan->env);
	plan->env[plan->envc++] = xasprintf("%s=%s", name, value);
	plan->env[plan->envc] = NULL;
}

/* Root's program has another uid, which must get through to the folder: everybody does through /tmp. */
static const char *scratch_parent(void)
{
	const char *tmp = getenv("TMPDIR");

	return tmp != NULL && tmp[0] == '/' && geteuid() != 0 ? tmp : "/tmp";
}

/* Without mounts there is no /tmp and no home of the sandbox's own: both are one private folder. */
static int process_prepare(struct plan *plan, struct zw_error *e)
{
	const char *parent = scratch_parent();
	size_t n = strlen(parent);
	cleanup_free char *scratch = NULL;
	cleanup_free char *summary = NULL;

	(void) e;
	while (n > 1 && parent[n - 1] == '/')
		n--;
	scratch = xasprintf("%.*s/zwinger-%s", n > 1 ? (int) n : 0, parent, plan->id);
	summary = xasprintf("%s/policy.json", scratch);
	replace_env(plan, "HOME", plan->home, scratch);
	replace_env(plan, "TMPDIR", "/tmp", scratch);
	add_env(plan, "ZWINGER_POLICY", summary);
	if (strcmp(plan->cwd, plan->home) == 0 || strcmp(plan->cwd, "/tmp") == 0)
		replace(&plan->cwd, scratch);
	replace(&plan->home, scratch);
	return 0;
}

/* ---- What is held, and by what. ---- */

static void hold(struct control_state *c, const char *mechanism)
{
	free(c->why);
	*c = (struct control_state){.mechanism = mechanism};
}

static void lack(struct control_state *c, const char *why)
{
	free(c->why);
	*c = (struct control_state){.mechanism = "none", .why = xstrdup(why)};
}

/* A uid that nobody else has holds what belongs to others by the plain rules of Unix, whatever Landlock knows. With the caller's
 * own uid everything hangs on Landlock. */
static void probe_walls(const struct identity *id, unsigned abi, bool network, struct control_state controls[CONTROL_MAX])
{
	bool fresh = id->kind == IDENTITY_FRESH;

	if (fresh)
		hold(&controls[CONTROL_FILESYSTEM], "uid+landlock");
	else if (abi >= LANDLOCK_ABI_TRUNCATE)
		hold(&controls[CONTROL_FILESYSTEM], "landlock+seccomp");
	else
		lack(&controls[CONTROL_FILESYSTEM],
		     "this kernel's Landlock does not hold truncate(2): Linux 6.2 is needed, or --isolation container");
	if (fresh)
		hold(&controls[CONTROL_PROCESS_VIEW], "uid+landlock");
	else if (abi >= LANDLOCK_ABI_SCOPE)
		hold(&controls[CONTROL_PROCESS_VIEW], "landlock");
	else
		lack(&controls[CONTROL_PROCESS_VIEW], "without a pid namespace, signals to your other processes are held by "
						      "Landlock only from Linux 6.12 on: use --isolation container");
	if (id->kind == IDENTITY_ROOT)
		lack(&controls[CONTROL_IDENTITY], "the program would stay root, if without capabilities: a writable folder "
						  "belongs to root or to several users, or no other uid "
						  "can be had here; give the folder to an ordinary user (chown), or run zwinger "
						  "as one, or use --isolation container");
	else
		hold(&controls[CONTROL_IDENTITY], id->kind == IDENTITY_CALLER ? "no_new_privs" : "uid");
	hold(&controls[CONTROL_SYSCALLS], "seccomp");
	if (network)
		lack(&controls[CONTROL_NETWORK],
		     "names cannot be told apart without network namespaces of the sandbox's own, which the "
		     "process level does not have: use --isolation container");
	else
		hold(&controls[CONTROL_NETWORK], "seccomp");
	hold(&controls[CONTROL_IPC], "seccomp+landlock");
}

static void probe_limits(const struct plan *plan, const struct identity *id, struct control_state controls[CONTROL_MAX])
{
	if (plan->limits.open_files != ZW_UNLIMITED)
		hold(&controls[CONTROL_OPEN_FILES], "rlimit");
	if (plan->limits.file_size != ZW_UNLIMITED)
		hold(&controls[CONTROL_FILE_SIZE], "rlimit");
	/* RLIMIT_NPROC counts a uid's processes: with the caller's own it would count all of the caller's. */
	if (id->kind == IDENTITY_FRESH && plan->limits.cgroup.processes != ZW_UNLIMITED)
		hold(&controls[CONTROL_PROCESSES], "rlimit");
	if (plan->scratch_size == ZW_UNLIMITED)
		return;
	if (plan->limits.kernel)
		lack(&controls[CONTROL_SCRATCH], "limits.kernel asks for a mechanism of the kernel, and without mounts the "
						 "private folder has none: use --isolation container");
	else
		hold(&controls[CONTROL_SCRATCH], "watchdog");
}

/* That rules can be made and enforced, not only that the version is known. */
static int try_landlock(struct zw_error *e)
{
	int abi = landlock_abi();
	cleanup_fd int ruleset = abi > 0 ? landlock_ruleset((unsigned) abi, true) : abi;

	if (ruleset >= 0)
		return abi;
	if (ruleset == -EOPNOTSUPP)
		return zw_error(e, EOPNOTSUPP,
				"Landlock, the wall of this level, is switched off on this host: add it to the lsm= list of the "
				"kernel's command line, or use --isolation container");
	if (ruleset == -ENOSYS)
		return zw_error(
		    e, ENOSYS,
		    "this kernel has no Landlock (Linux 5.13 is needed), the wall of this level: use --isolation container");
	return zw_errno(e, -ruleset, "Landlock, the wall of this level, cannot be used (a container's filter may forbid it)");
}

static int process_probe(const struct plan *plan, struct control_state controls[CONTROL_MAX], struct zw_error *e)
{
	struct identity id;
	int abi = try_landlock(e), r;

	if (abi < 0)
		return abi;
	identity_decide(plan, &id);
	r = process_check_paths(plan, &id, e);
	if (r < 0)
		return r;
	probe_walls(&id, (unsigned) abi, plan->network != NULL, controls);
	probe_limits(plan, &id, controls);
	return 0;
}

/* ---- Start and end. ---- */

/* How many tasks the uid has now, as far as /proc shows them. */
static uint64_t tasks_of(uid_t uid)
{
	DIR *proc = opendir("/proc");
	uint64_t tasks = 0;

	if (proc == NULL)
		return 0;
	for (;;) {
		const struct dirent *entry = readdir(proc);
		char path[NAME_MAX + 8];
		struct stat st;

		if (entry == NULL)
			break;
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		(void) snprintf(path, sizeof path, "%s/task", entry->d_name);
		if (fstatat(dirfd(proc), path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == uid)
			tasks += st.st_nlink - 2; /* a folder a thread */
	}
	(void) closedir(proc);
	return tasks;
}

/* With a uid of its own the limit itself. With another's, whose other processes count too, a backstop behind the watchdog, which
 * a burst of forks outruns: room for twice the limit, because others of the uid may start processes of their own meanwhile. */
static uint64_t process_rlimit(const struct plan *plan, const struct identity *id)
{
	uint64_t limit = plan->limits.cgroup.processes;

	if (limit == ZW_UNLIMITED || id->kind == IDENTITY_FRESH)
		return limit;
	return tasks_of(id->uid) + 2 * limit;
}

static int build_walls(struct sandbox *s, struct process_level *l, struct process_walls *w, struct zw_error *e)
{
	int r = process_rulesets(s->plan, &l->identity, s->scratch, &w->rules, e);

	if (r < 0)
		return r;
	w->identity = l->identity;
	if (cgroup_holds(s->cgroup, CGROUP_PIDS) == CGROUP_ABSENT)
		w->processes = process_rlimit(s->plan, &l->identity);
	r = seccomp_filter_make(&s->plan->syscalls, &w->filter, e);
	if (r < 0)
		return r;
	/* Whatever the agent cannot end, when it is killed from outside say, becomes our child and not that of the host's init.
	 */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		return zw_errno(e, errno, "cannot become a subreaper");
	r = process_build(s, w, e);
	if (r < 0)
		return r;
	r = keeper_tell(l, s->pidfd, e);
	if (r < 0)
		process_undo(s);
	return r;
}

static void process_kill(struct sandbox *s)
{
	/* The end of the channel is the agent's sign to kill everything and exit; it can still tell us how the program ended. */
	(void) shutdown(s->channel, SHUT_WR);
	(void) cgroup_kill(s->cgroup);                                     /* at once, where the kernel can */
	(void) syscall(SYS_pidfd_send_signal, s->pidfd, SIGCONT, NULL, 0); /* if somebody has stopped it */
}

static int process_start(struct sandbox *s, struct zw_error *e)
{
	struct process_level *l = xcalloc(1, sizeof *l);
	struct process_walls w = {.rules = {-EBADF, -EBADF}, .processes = ZW_UNLIMITED};
	usec_t begun = now_monotonic();
	int r;

	s->pidfd = s->channel = s->listener = s->scratch = -EBADF;
	for (size_t i = 0; i < ARRAY_SIZE(s->upper); i++)
		s->upper[i] = -EBADF;
	l->parent = l->keeper_socket = -EBADF;
	identity_decide(s->plan, &l->identity);
	r = identity_take(&l->identity, e);
	if (r == 0)
		r = scratch_make(s, l, e);
	if (r == 0)
		r = build_walls(s, l, &w, e);
	seccomp_filter_done(&w.filter);
	fd_close(&w.rules.outer);
	fd_close(&w.rules.inner);
	if (r < 0) {
		scratch_remove(s, l);
		free(l);
		return r;
	}
	s->level = l;
	s->setup = now_monotonic() - begun;
	return 0;
}

/* How many system call filters `pid` runs under; -1 when that cannot be known (before Linux 5.9). */
static long count_filters(const char *pid)
{
	char path[64], text[4096];
	const char *field;

	(void) snprintf(path, sizeof path, "/proc/%s/status", pid);
	if (fd_read_file_at(AT_FDCWD, path, text, sizeof text) <= 0)
		return -1;
	field = strstr(text, "\nSeccomp_filters:");
	return field != NULL ? (long) strtoul(field + strlen("\nSeccomp_filters:"), NULL, 10) : -1;
}

/* Is our child `pid` one that the sandbox left to us? All that ran inside is under one filter more than we are; of the children
 * that we made ourselves only agents are, and those run the agent's image. */
static bool is_orphan(pid_t pid)
{
	static const char agent[] = "/memfd:zwinger-agent";
	char number[16], path[64], exe[64];
	ssize_t n;

	(void) snprintf(number, sizeof number, "%d", (int) pid);
	if (count_filters(number) <= count_filters("self"))
		return false;
	(void) snprintf(path, sizeof path, "/proc/%d/exe", (int) pid);
	n = readlink(path, exe, sizeof exe);
	return n < (ssize_t) sizeof agent - 1 || strncmp(exe, agent, sizeof agent - 1) != 0;
}

/* Kills the orphans among our children and waits for them; true when there were any, whose own children may be ours now. */
static bool end_orphans_once(void)
{
	char text[65536];
	bool any = false;

	if (fd_read_file_at(AT_FDCWD, "/proc/thread-self/children", text, sizeof text) <= 0)
		return false;
	for (char *p = text; *p >= '0' && *p <= '9';) {
		pid_t pid = (pid_t) strtoul(p, &p, 10);

		while (*p == ' ')
			p++;
		if (!is_orphan(pid) || kill(pid, SIGKILL) < 0)
			continue;
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		any = true;
	}
	return any;
}

static void process_finish(struct sandbox *s)
{
	struct process_level *l = s->level;

	while (end_orphans_once())
		;
	scratch_remove(s, l);
	free(l);
	s->level = NULL;
}

const struct isolation_ops isolation_process = {
    .name = "process",
    .prepare = process_prepare,
    .probe = process_probe,
    .start = process_start,
    .kill = process_kill,
    .answer = process_answer,
    .finish = process_finish,
};
