#include "sandbox/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/caps.h"
#include "sandbox/environment.h"
#include "sandbox/network.h"
#include "sandbox/root.h"
#include "sandbox/summary.h"

#define PATH_INSIDE "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { ID_DIGITS = 20 };

char *plan_make_id(void)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
	unsigned char random[ID_DIGITS];
	char id[3 + ID_DIGITS + 1] = "zw-";

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return NULL;
	for (size_t i = 0; i < ID_DIGITS; i++)
		id[3 + i] = digits[random[i] % 32];
	return xstrdup(id);
}

/* Root of the first user namespace, with what the build needs. Root of a container's namespace cannot map foreign ids: it builds
 * like an ordinary user, in a user namespace of its own. */
static bool caller_is_privileged(void)
{
	char map[64];
	unsigned long inside, outside, count;
	char *p = map;

	if (geteuid() != 0 || !caps_have(CAP_SYS_ADMIN) || !caps_have(CAP_SETUID) || !caps_have(CAP_SETGID) ||
	    !caps_have(CAP_CHOWN))
		return false;
	if (fd_read_file_at(AT_FDCWD, "/proc/self/uid_map", map, sizeof map) <= 0)
		return false;
	inside = strtoul(p, &p, 10);
	outside = strtoul(p, &p, 10);
	count = strtoul(p, &p, 10);
	return inside == 0 && outside == 0 && count >= 0x80000000UL;
}

static int open_source(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};

	return (int) syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static bool is_kernel_interface(int fd)
{
	static const unsigned long types[] = {PROC_SUPER_MAGIC,    SYSFS_MAGIC,   CGROUP_SUPER_MAGIC,
					      CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
					      SECURITYFS_MAGIC,    BPF_FS_MAGIC,  DEVPTS_SUPER_MAGIC};
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((unsigned long) fs.f_type == types[i])
			return true;
	return false;
}

/* Sources that would put a whole host inside: their kernel interfaces would come along, and no read-only mount tames those. What
 * counts is what was opened, not by which name: links, "..", and mounts in other places lead there too. */
static bool source_is_too_much(int fd)
{
	static const char *const roots[] = {"/proc", "/sys", "/dev"};
	char link[32], path[PATH_MAX];
	struct stat root, st;
	ssize_t size;

	(void) snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	size = readlink(link, path, sizeof path - 1);
	if (size <= 0 || size == (ssize_t) sizeof path - 1 || stat("/", &root) < 0 || fstat(fd, &st) < 0)
		return true;
	path[size] = '\0';
	if ((st.st_dev == root.st_dev && st.st_ino == root.st_ino) || strcmp(path, "/") == 0 || is_kernel_interface(fd))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		size_t n = strlen(roots[i]);

		if (strncmp(path, roots[i], n) == 0 && (path[n] == '\0' || path[n] == '/'))
			return true;
	}
	return false;
}

static void add_mount(struct plan *plan, const struct policy_mount *m, enum plan_mount_kind kind, bool writable, const char *key,
		      struct policy_errors *errors)
{
	cleanup_fd int fd = -EBADF;
	struct stat st;

	fd = open_source(m->source);
	if (fd < 0 || fstat(fd, &st) < 0) {
		policy_errors_add(errors, NULL, 0, key, NULL, "cannot open %s: %s%s", m->source, strerror(errno),
				  writable && errno == ENOENT ? " (make the folder first)" : "");
		return;
	}
	if (source_is_too_much(fd)) {
		policy_errors_add(errors, NULL, 0, key, NULL, "%s cannot be shown inside: name the folder that the code needs",
				  m->source);
		return;
	}
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
		policy_errors_add(errors, NULL, 0, key, NULL, "%s is neither a folder nor a regular file", m->source);
		return;
	}
	if (kind == PLAN_WORKSPACE && !S_ISDIR(st.st_mode)) {
		policy_errors_add(errors, NULL, 0, key, NULL, "%s is not a folder", m->source);
		return;
	}
	if (writable && m->size != ZW_UNLIMITED && !S_ISDIR(st.st_mode)) {
		policy_errors_add(errors, NULL, 0, key, NULL, "%s is a file: only a folder can have a size", m->source);
		return;
	}
	plan->mounts = xrealloc(plan->mounts, plan->mount_count + 1, sizeof *plan->mounts);
	plan->mounts[plan->mount_count++] = (struct plan_mount){
	    .kind = kind,
	    .source = xstrdup(m->source),
	    .target = xstrdup(m->target),
	    .writable = writable,
	    .is_dir = S_ISDIR(st.st_mode),
	    .size = writable ? m->size : ZW_UNLIMITED,
	    .fd = take_fd(&fd),
	    .owner_uid = st.st_uid,
	    .owner_gid = st.st_gid,
	    .everybody_writes = (st.st_mode & S_IWOTH) != 0,
	};
}

/* Outer targets first, so that an inner one lands on top of them. */
static int compare_targets(const void *a, const void *b)
{
	const struct plan_mount *x = a, *y = b;

	return strcmp(x->target, y->target);
}

static void plan_mounts(struct plan *plan, const struct policy *policy, struct policy_errors *errors)
{
	char key[64];

	for (size_t i = 0; i < policy->filesystem.read_count; i++) {
		(void) snprintf(key, sizeof key, "filesystem.read[%zu].source", i);
		add_mount(plan, &policy->filesystem.read[i], PLAN_READ, false, key, errors);
	}
	for (size_t i = 0; i < policy->filesystem.write_count; i++) {
		(void) snprintf(key, sizeof key, "filesystem.write[%zu].source", i);
		add_mount(plan, &policy->filesystem.write[i], PLAN_WRITE, true, key, errors);
	}
	if (policy->filesystem.workspace.present)
		add_mount(plan, &policy->filesystem.workspace.mount, PLAN_WORKSPACE,
			  policy->filesystem.workspace.mode != WORKSPACE_RO, "filesystem.workspace.source", errors);
	if (plan->mount_count > PLAN_MOUNTS_MAX)
		policy_errors_add(errors, NULL, 0, "filesystem", NULL,
				  "%zu folders, at most %d are possible: show a folder above them instead", plan->mount_count,
				  PLAN_MOUNTS_MAX);
	if (plan->mount_count > 1)
		qsort(plan->mounts, plan->mount_count, sizeof *plan->mounts, compare_targets);
}

/* Built from nothing: the caller's environment is where its secrets are. */
static void plan_environment(struct plan *plan, const struct policy *policy)
{
	environment_set(plan, "PATH", root_lends_python(plan) ? PATH_INSIDE ":" ROOT_LENT : PATH_INSIDE);
	environment_set(plan, "HOME", plan->home);
	environment_set(plan, "USER", plan->user);
	environment_set(plan, "LANG", "C.UTF-8");
	environment_set(plan, "TMPDIR", "/tmp");
	for (size_t i = 0; i < policy->env.pass.count; i++) {
		const char *value = getenv(policy->env.pass.items[i]);

		if (value != NULL)
			environment_set(plan, policy->env.pass.items[i], value);
	}
	for (size_t i = 0; i < policy->env.set_count; i++)
		environment_set(plan, policy->env.set[i].name, policy->env.set[i].value);
}

static void plan_limits(struct plan *plan, const struct policy *policy)
{
	plan->limits.time = policy->limits.time;
	plan->limits.cpu_time = policy->limits.cpu_time;
	plan->limits.cgroup = (struct cgroup_limits){
	    .memory = policy->limits.memory,
	    .swap = policy->limits.swap,
	    .processes = policy->limits.processes,
	    .cpu_quota = policy->limits.cpus > 0 ? (uint64_t) (policy->limits.cpus * 100000) : ZW_UNLIMITED,
	    .io_read_bps = policy->limits.io_read_bps,
	    .io_write_bps = policy->limits.io_write_bps,
	};
	plan->limits.open_files = policy->limits.open_files;
	plan->limits.file_size = policy->limits.file_size;
	plan->limits.disk = policy->limits.disk;
	plan->limits.output = policy->limits.output;
	plan->limits.output_kill = policy->limits.on_output_limit == OUTPUT_KILL;
	plan->limits.kernel = policy->limits.kernel;
}

static int *syscall_numbers(const struct strv *names)
{
	int *numbers = names->count > 0 ? xcalloc(names->count, sizeof *numbers) : NULL;

	for (size_t i = 0; i < names->count; i++)
		numbers[i] = seccomp_number(names->items[i]);
	return numbers;
}

static void plan_syscalls(struct plan *plan, const struct policy *policy)
{
	static const enum seccomp_profile profiles[] = {
	    [PROFILE_STRICT] = SECCOMP_STRICT, [PROFILE_DEFAULT] = SECCOMP_DEFAULT, [PROFILE_DEBUG] = SECCOMP_DEBUG};

	plan->syscall_allow = syscall_numbers(&policy->syscalls.allow);
	plan->syscall_deny = syscall_numbers(&policy->syscalls.deny);
	plan->syscalls = (struct seccomp_spec){
	    .profile = profiles[policy->syscalls.profile],
	    .no_namespaces = policy->isolation == ISOLATION_PROCESS,
	    .notify_connect = plan->audit_network && policy->isolation != ISOLATION_PROCESS,
	    .notify_open = plan->audit_files == AUDIT_FILES_TRACE,
	    .notify_exec = plan->audit_file != NULL && plan->audit_exec,
	    .allow = plan->syscall_allow,
	    .deny = plan->syscall_deny,
	    .allow_count = policy->syscalls.allow.count,
	    .deny_count = policy->syscalls.deny.count,
	};
}

static void plan_root(struct plan *plan, const struct policy *policy, struct policy_errors *errors)
{
	struct stat st;

	plan->root_fd = -EBADF;
	if (strcmp(policy->root, "host") == 0)
		return;
	plan->root = xstrdup(policy->root);
	plan->root_fd = open_source(plan->root);
	if (plan->root_fd < 0 || fstat(plan->root_fd, &st) < 0)
		policy_errors_add(errors, NULL, 0, "root", NULL, "cannot open the root folder %s: %s", plan->root,
				  strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		policy_errors_add(errors, NULL, 0, "root", NULL, "%s is not a folder", plan->root);
	else if (source_is_too_much(plan->root_fd))
		policy_errors_add(errors, NULL, 0, "root", "host", "%s cannot be the root inside", plan->root);
}

static void plan_command(struct plan *plan, char *const *argv)
{
	while (argv[plan->argc] != NULL)
		plan->argc++;
	plan->argv = xcalloc(plan->argc + 1, sizeof *plan->argv);
	for (size_t i = 0; i < plan->argc; i++)
		plan->argv[i] = xstrdup(argv[i]);
}

static const char *default_cwd(const struct plan *plan, const struct policy *policy)
{
	if (policy->process.cwd != NULL)
		return policy->process.cwd;
	if (policy->filesystem.workspace.present)
		return policy->filesystem.workspace.mount.target;
	return plan->home;
}

void plan_set_tty(struct plan *plan, uint16_t rows, uint16_t columns)
{
	const char *term = getenv("TERM");

	plan->tty = true;
	plan->rows = rows;
	plan->columns = columns;
	environment_default(plan, "TERM", term != NULL && term[0] != '\0' ? term : "xterm-256color");
}

/* A second user takes a second id, which only root can give, and a place for it in the map. */
static bool can_have_root(const struct plan *plan)
{
	return plan->privileged && plan->isolation == ISOLATION_CONTAINER && plan->inside_uid != 0 && plan->inside_gid != 0;
}

static int make(const struct policy *policy, char *const *argv, bool session, struct plan *ret, struct policy_errors *errors)
{
	const char *user = session ? "user" : "sandbox";
	size_t faults = errors->count;
	struct zw_error e = {0};
	struct plan plan = {
	    .id = plan_make_id(),
	    .name = policy->name != NULL ? xstrdup(policy->name) : NULL,
	    .isolation = policy->isolation,
	    .best_effort = policy->best_effort,
	    .privileged = caller_is_privileged(),
	    .caller_uid = getuid(),
	    .caller_gid = getgid(),
	    .inside_uid = policy->process.user,
	    .inside_gid = policy->process.group,
	    .scratch_size = policy->filesystem.scratch.size,
	    .scratch_inodes = policy->filesystem.scratch.inodes,
	    .scratch_exec = policy->filesystem.scratch.exec,
	    .home = xasprintf("/home/%s", user),
	    .user = xstrdup(user),
	    .hostname = xstrdup(policy->process.hostname),
	    .audit_exec = policy->audit.exec,
	    .audit_network = policy->audit.network,
	    .audit_files = policy->audit.files,
	    .audit_file = policy->audit.file != NULL ? xstrdup(policy->audit.file) : NULL,
	};

	plan.has_root = session && can_have_root(&plan);
	if (plan.id == NULL)
		policy_errors_add(errors, NULL, 0, NULL, NULL, "cannot get random bytes: %s", strerror(errno));
	plan_root(&plan, policy, errors);
	plan_mounts(&plan, policy, errors);
	plan_command(&plan, argv);
	plan_environment(&plan, policy);
	network_plan(policy, &plan, errors);
	plan_limits(&plan, policy);
	plan_syscalls(&plan, policy);
	plan.cwd = xstrdup(default_cwd(&plan, policy));
	plan.policy_json = summary_to_json(&plan);
	if (errors->count == faults && root_describe(&plan, &e) < 0)
		policy_errors_add(errors, NULL, 0, "root", NULL, "%s", e.text);
	if (errors->count > faults) {
		plan_done(&plan);
		return -EINVAL;
	}
	*ret = plan;
	return 0;
}

int plan_make(const struct policy *policy, char *const *argv, struct plan *ret, struct policy_errors *errors)
{
	return make(policy, argv, false, ret, errors);
}

int plan_make_session(const struct policy *policy, struct plan *ret, struct policy_errors *errors)
{
	char *const nothing[] = {NULL};

	return make(policy, nothing, true, ret, errors);
}

static void free_strings(char **strings, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(strings[i]);
	free(strings);
}

void plan_done(struct plan *p)
{
	for (size_t i = 0; i < p->mount_count; i++) {
		free(p->mounts[i].source);
		free(p->mounts[i].target);
		fd_close(&p->mounts[i].fd);
	}
	for (size_t i = 0; i < p->bind_count; i++) {
		free(p->binds[i].source);
		free(p->binds[i].target);
	}
	for (size_t i = 0; i < p->file_count; i++) {
		free(p->files[i].path);
		free(p->files[i].data);
	}
	for (size_t i = 0; i < p->link_count; i++) {
		free(p->links[i].path);
		free(p->links[i].target);
	}
	free_strings(p->argv, p->argc);
	free_strings(p->env, p->envc);
	fd_close(&p->root_fd);
	network_plan_done(p);
	free(p->mounts);
	free(p->binds);
	free(p->files);
	free(p->links);
	free(p->syscall_allow);
	free(p->syscall_deny);
	free(p->id);
	free(p->name);
	free(p->root);
	free(p->cwd);
	free(p->home);
	free(p->user);
	free(p->hostname);
	free(p->audit_file);
	free(p->policy_json);
	*p = (struct plan){.root_fd = -EBADF};
}
