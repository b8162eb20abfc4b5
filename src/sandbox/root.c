#include "sandbox/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/network.h"

/* The system tree of the host. What is a symlink there (merged /usr) becomes the same symlink inside. */
static const char *const system_tree[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};

/* What programs read of the machine in /sys: the processors. Nothing else of /sys is shown. */
static const char *const sys_tree[] = {"/sys/devices/system/cpu"};

/* Of /etc only what programs do not run without, and what holds no secret and no name of this host. Each entry costs every start
 * some microseconds, so what has a good default without its file is left out, as in the small images that containers run. */
static const char *const etc_names[] = {
    "R",
    "alternatives",
    "crypto-policies",
    "fonts",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "ld.so.cache",
    "localtime",
    "matplotlibrc",
    "maven",
    "os-release",
    "pki",
    "ssl",
    "texmf",
};

static void add_bind(struct plan *plan, const char *source, const char *target, bool is_dir)
{
	plan->binds = xrealloc(plan->binds, plan->bind_count + 1, sizeof *plan->binds);
	plan->binds[plan->bind_count++] =
	    (struct plan_bind){.source = xstrdup(source), .target = xstrdup(target), .is_dir = is_dir};
}

static void add_link(struct plan *plan, const char *path, const char *target)
{
	plan->links = xrealloc(plan->links, plan->link_count + 1, sizeof *plan->links);
	plan->links[plan->link_count++] = (struct plan_link){.path = xstrdup(path), .target = xstrdup(target)};
}

/* Takes `data`. */
static void add_file(struct plan *plan, const char *path, char *data, size_t size)
{
	plan->files = xrealloc(plan->files, plan->file_count + 1, sizeof *plan->files);
	plan->files[plan->file_count++] = (struct plan_file){.path = xstrdup(path), .data = data, .size = size, .mode = 0444};
}

static void add_text(struct plan *plan, const char *path, char *text)
{
	add_file(plan, path, text, strlen(text));
}

static bool has_file(const struct plan *plan, const char *path)
{
	for (size_t i = 0; i < plan->file_count; i++)
		if (strcmp(plan->files[i].path, path) == 0)
			return true;
	return false;
}

/* One entry of a system tree: a link stays a link, a folder or file is bound. What is missing or not for everybody's eyes is left
 * out: the tree shows nothing that any user of this host could not read. */
static void describe_entry(struct plan *plan, const char *source, const char *target)
{
	struct stat st;

	if (has_file(plan, target) || lstat(source, &st) < 0)
		return;
	if (S_ISLNK(st.st_mode)) {
		char link[PATH_MAX];
		ssize_t n = readlink(source, link, sizeof link - 1);

		if (n <= 0)
			return;
		link[n] = '\0';
		add_link(plan, target, link);
	} else if (S_ISDIR(st.st_mode) && (st.st_mode & 05) == 05) {
		add_bind(plan, source, target, true);
	} else if (S_ISREG(st.st_mode) && (st.st_mode & 04) != 0) {
		add_bind(plan, source, target, false);
	}
}

/* Every entry of a folder of a root directory, but those that the sandbox makes itself. */
static int describe_folder(struct plan *plan, const char *folder, const char *inside, const char *const *except,
			   size_t except_count, struct zw_error *e)
{
	DIR *dir = opendir(folder);

	if (dir == NULL)
		return zw_errno(e, errno, "cannot list the root folder %s", folder);
	for (;;) {
		const struct dirent *entry = readdir(dir);
		cleanup_free char *source = NULL;
		cleanup_free char *target = NULL;
		bool skip = false;

		if (entry == NULL)
			break;
		skip = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
		for (size_t i = 0; i < except_count && !skip; i++)
			skip = strcmp(entry->d_name, except[i]) == 0;
		if (skip)
			continue;
		source = xasprintf("%s/%s", folder, entry->d_name);
		target = xasprintf("%s/%s", inside, entry->d_name);
		describe_entry(plan, source, target);
	}
	(void) closedir(dir);
	return 0;
}

static void describe_host_etc(struct plan *plan)
{
	for (size_t i = 0; i < ARRAY_SIZE(etc_names); i++) {
		char path[64];

		(void) snprintf(path, sizeof path, "/etc/%s", etc_names[i]);
		describe_entry(plan, path, path);
	}
}

/* Files with the sandbox's own truth: who it is, what it is called, where names come from. */
static void describe_identity(struct plan *plan)
{
	add_text(plan, "/etc/passwd",
		 xasprintf("root:x:0:0:root:%s\n%s:x:%u:%u:%s:%s:/bin/sh\n"
			   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			   plan->has_root ? PLAN_ROOT_HOME ":/bin/sh" : "/nonexistent:/usr/sbin/nologin", plan->user,
			   plan->inside_uid, plan->inside_gid, plan->user, plan->home));
	add_text(plan, "/etc/group",
		 xasprintf("root:x:0:\n%s:x:%u:\ntty:x:5:\nnogroup:x:65534:\n", plan->user, plan->inside_gid));
	add_text(plan, "/etc/hostname", xasprintf("%s\n", plan->hostname));
	add_text(plan, "/etc/hosts",
		 xasprintf("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n", plan->hostname));
	add_text(plan, "/etc/nsswitch.conf",
		 xstrdup("passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\n"
			 "services: files\nethers: files\nrpc: files\n"));
	/* One try: the stub of the broker answers at once; without a network nothing listens there and the look-up fails at once.
	 */
	add_text(plan, "/etc/resolv.conf",
		 xasprintf("nameserver %s\noptions timeout:%d attempts:1\n",
			   plan->transit.listener_count > 0 ? NETWORK_STUB_TEXT : "127.0.0.1",
			   plan->transit.listener_count > 0 ? 5 : 1));
	add_text(plan, "/run/zwinger/policy.json", xstrdup(plan->policy_json));
}

static bool exists(const char *path)
{
	cleanup_fd int fd = open(path, O_PATH | O_CLOEXEC);

	return fd >= 0;
}

bool root_lends_python(const struct plan *plan)
{
	return plan->root == NULL && plan->isolation == ISOLATION_CONTAINER && exists("/usr/bin/python3") &&
	       !exists("/usr/bin/python") && !exists("/usr/local/bin/python");
}

static int describe_directory_root(struct plan *plan, struct zw_error *e)
{
	static const char *const own[] = {"proc", "sys", "dev", "tmp", "run", "home", "root", "var", "etc"};
	cleanup_free char *etc = xasprintf("%s/etc", plan->root);
	struct stat st;
	int r = describe_folder(plan, plan->root, "", own, ARRAY_SIZE(own), e);

	if (r < 0)
		return r;
	if (lstat(etc, &st) == 0 && S_ISDIR(st.st_mode))
		r = describe_folder(plan, etc, "/etc", NULL, 0, e);
	return r;
}

int root_describe(struct plan *plan, struct zw_error *e)
{
	describe_identity(plan);
	for (size_t i = 0; i < ARRAY_SIZE(sys_tree); i++)
		describe_entry(plan, sys_tree[i], sys_tree[i]);
	if (plan->root != NULL)
		return describe_directory_root(plan, e);
	for (size_t i = 0; i < ARRAY_SIZE(system_tree); i++)
		describe_entry(plan, system_tree[i], system_tree[i]);
	describe_host_etc(plan);
	if (root_lends_python(plan))
		add_link(plan, ROOT_LENT "/python", "/usr/bin/python3");
	return 0;
}
