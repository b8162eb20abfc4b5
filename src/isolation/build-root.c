/* The root file system of the container level: a small tmpfs of our own, which is sealed read-only, with the system tree, a
 * synthetic /etc, private scratch, a minimal /dev, a masked /proc and the policy's folders mounted into it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolation/build.h"
#include "kernel/idmap.h"
#include "kernel/mount.h"
#include "sandbox/network.h"
#include "sandbox/upper.h"

#define TREE_ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static bool is_ours(const struct build *b, const struct stat *st)
{
	return st->st_dev == b->root_dev;
}

/* Opens the folder `name` (`n` bytes) below `dir`; makes it when `dir` lies on a file system of the sandbox's own, and only then:
 * a mount point is never made in a folder of the host. Nothing is followed. */
static int open_folder(const struct build *b, int dir, const char *name, size_t n)
{
	char component[NAME_MAX + 1];
	struct stat st;
	int fd;

	if (n > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(component, name, n);
	component[n] = '\0';
	fd = openat(dir, component, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 || errno != ENOENT)
		return fd >= 0 ? fd : -errno;
	if (fstat(dir, &st) < 0)
		return -errno;
	if (!is_ours(b, &st))
		return -ENOENT;
	if (mkdirat(dir, component, 0755) < 0)
		return -errno;
	fd = openat(dir, component, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 ? fd : -errno;
}

/* Walks the absolute `path` from the new root, making folders of our own as needed. Returns an O_PATH fd of the folder that holds
 * the last component, and that component in *ret_name. */
static int open_parent(const struct build *b, const char *path, const char **ret_name)
{
	cleanup_fd int dir = openat(b->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	for (;;) {
		size_t n;
		int next;

		while (*path == '/')
			path++;
		n = strcspn(path, "/");
		if (path[n] == '\0') {
			*ret_name = path;
			return take_fd(&dir);
		}
		next = open_folder(b, dir, path, n);
		if (next < 0)
			return next;
		fd_close(&dir);
		dir = next;
		path += n;
	}
}

/* The place for a mount: an O_PATH fd of the folder or file at `path`, made if it is missing and the place is ours. */
static int open_target(const struct build *b, const char *path, bool is_dir)
{
	struct stat st;
	const char *name;
	cleanup_fd int parent = open_parent(b, path, &name);
	int fd;

	if (parent < 0)
		return parent;
	if (is_dir)
		return open_folder(b, parent, name, strlen(name));
	if (fstat(parent, &st) < 0)
		return -errno;
	if (is_ours(b, &st)) {
		fd = openat(parent, name, O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0444);
		if (fd < 0)
			return -errno;
		fd_close(&fd);
	}
	fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		fd_close(&fd);
		return -EEXIST; /* a link, device or folder cannot be covered by a file */
	}
	return fd;
}

static int attach_at(const struct build *b, int tree, const char *path, bool is_dir)
{
	cleanup_fd int target = open_target(b, path, is_dir);

	return target < 0 ? target : mount_attach(tree, target, "");
}

/* Makes the folders above `path` (relative to the new root) that are missing. */
static int make_parents(const struct build *b, const char *path)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		size_t n = (size_t) (slash - path);

		if (n >= sizeof part)
			return -ENAMETOOLONG;
		memcpy(part, path, n);
		part[n] = '\0';
		if (mkdirat(b->root, part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int make_place(const struct build *b, const char *path, bool is_dir)
{
	int r = is_dir ? mkdirat(b->root, path, 0755) : mknodat(b->root, path, S_IFREG | 0444, 0);

	return r < 0 ? -errno : 0;
}

/* Attaches at a place of the sandbox's own making, where nobody else has made anything yet: names can be trusted, and fewer calls
 * do. `path` is absolute. */
static int attach_ours(const struct build *b, int tree, const char *path, bool is_dir)
{
	int r;

	path++;
	r = make_place(b, path, is_dir);
	if (r == -ENOENT) {
		r = make_parents(b, path);
		if (r == 0)
			r = make_place(b, path, is_dir);
	}
	return r < 0 && r != -EEXIST ? r : mount_attach(tree, b->root, path);
}

static int note_device(int fd, dev_t *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = st.st_dev;
	return 0;
}

static int make_folder(const struct build *b, const char *path, mode_t mode)
{
	return mkdirat(b->root, path, mode) < 0 && errno != EEXIST ? -errno : 0;
}

/* One tmpfs for the root and for all that the code may write without leaving anything: at the end it gets the size of scratch and
 * is sealed read-only, but for the places of scratch, which are mounts of their own. */
int build_root_tree(struct build *b)
{
	static const char *const folders[] = {"dev", "etc", "home", "proc",   "run", "run/lock", "run/zwinger", "run/zwinger/bin",
					      "sys", "tmp", "var",  "var/tmp"};
	static const char *const options[][2] = {
	    {"size", "16m"}, {"nr_inodes", "8192"}, {"mode", "755"}, {"?noswap", NULL}, {NULL, NULL}};
	int r;

	b->root = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (b->root < 0)
		return b->root;
	/* On top of "/", which always exists; names still lead to the old root until the pivot. */
	r = mount_attach(b->root, AT_FDCWD, "/");
	if (r == 0)
		r = note_device(b->root, &b->root_dev);
	for (size_t i = 0; r == 0 && i < sizeof folders / sizeof folders[0]; i++)
		r = make_folder(b, folders[i], 0755);
	return r;
}

static int bind_system(struct build *b, const struct plan_bind *bind)
{
	cleanup_fd int tree = mount_clone_tree(AT_FDCWD, bind->source);
	int r;

	if (tree < 0)
		return tree;
	r = mount_set_tree(tree, TREE_ATTRS, -EBADF);
	return r < 0 ? r : attach_ours(b, tree, bind->target, bind->is_dir);
}

int build_system_tree(struct build *b)
{
	for (size_t i = 0; i < b->plan->bind_count; i++) {
		int r;

		b->object = b->plan->binds[i].source;
		r = bind_system(b, &b->plan->binds[i]);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < b->plan->link_count; i++) {
		const struct plan_link *l = &b->plan->links[i];

		b->object = l->path;
		if (symlinkat(l->target, b->root, l->path + 1) < 0)
			return -errno;
	}
	return 0;
}

static int write_file(const struct build *b, const struct plan_file *f)
{
	cleanup_fd int fd = openat(b->root, f->path + 1, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, f->mode);

	return fd < 0 ? -errno : fd_write_all(fd, f->data, f->size);
}

int build_etc(struct build *b)
{
	for (size_t i = 0; i < b->plan->file_count; i++) {
		int r;

		b->object = b->plan->files[i].path;
		r = write_file(b, &b->plan->files[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

struct place {
	const char *path;
	mode_t mode;
	uid_t uid; /* as this process sees ids; -1: stays with whoever makes it */
	gid_t gid;
};

/* A place of scratch: a folder of the root's tmpfs, mounted on itself so that it stays writable when the root is sealed. */
static int make_scratch(struct build *b, const struct place *p)
{
	const char *path = p->path;
	cleanup_fd int folder = -EBADF;
	cleanup_fd int tree = -EBADF;
	int r = make_folder(b, path + 1, p->mode & 0777);

	b->object = path;
	if (r < 0)
		return r;
	folder = openat(b->root, path + 1, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0 || fchmod(folder, p->mode) < 0)
		return -errno;
	if (p->uid != (uid_t) -1 && fchown(folder, p->uid, p->gid) < 0)
		return -errno;
	tree = mount_clone_tree(folder, "");
	if (tree < 0)
		return tree;
	r = b->plan->scratch_exec ? 0 : mount_set_one(tree, MOUNT_ATTR_NOEXEC);
	return r < 0 ? r : mount_attach(tree, folder, "");
}

/* The home of the user is open to root, which has no power to go where it is not let in: to nobody else, because there is nobody
 * else. What either makes there is its own. */
static int make_homes(struct build *b)
{
	struct place home = {b->plan->home, 0700, (uid_t) -1, (gid_t) -1};
	struct place root = {PLAN_ROOT_HOME, 0700, b->outside_uid + IDMAP_ROOT, b->outside_gid + IDMAP_ROOT};
	int r;

	if (b->plan->privileged) {
		home.uid = b->outside_uid;
		home.gid = b->outside_gid;
	}
	if (!b->plan->has_root)
		return make_scratch(b, &home);
	home.gid = root.gid;
	home.mode = 0775;
	r = make_scratch(b, &home);
	return r < 0 ? r : make_scratch(b, &root);
}

int build_scratch(struct build *b)
{
	static const struct place shared[] = {
	    {"/tmp", 01777, (uid_t) -1, (gid_t) -1},
	    {"/var/tmp", 01777, (uid_t) -1, (gid_t) -1},
	    {"/dev/shm", 01777, (uid_t) -1, (gid_t) -1},
	};
	int r = make_homes(b);

	for (size_t i = 0; r == 0 && i < sizeof shared / sizeof shared[0]; i++)
		r = make_scratch(b, &shared[i]);
	return r;
}

static int bind_device(struct build *b, const char *name)
{
	char path[32];
	cleanup_fd int tree = -EBADF;
	int r;

	(void) snprintf(path, sizeof path, "/dev/%s", name);
	tree = mount_clone_tree(AT_FDCWD, path);
	if (tree < 0)
		return tree;
	r = mount_set_tree(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, -EBADF);
	return r < 0 ? r : attach_ours(b, tree, path, false);
}

/* Harmless ones only, the same set that every container runtime gives; numbers as in the kernel's admin-guide/devices.txt. */
static const struct {
	const char *name;
	unsigned number[2]; /* major, minor */
} devices[] = {
    {"null", {1, 3}}, {"zero", {1, 5}}, {"full", {1, 7}}, {"random", {1, 8}}, {"urandom", {1, 9}}, {"tty", {5, 0}},
};

/* Ordinary users may not make devices: they get the host's. */
static int bind_devices(struct build *b)
{
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		int r;

		b->object = devices[i].name;
		r = bind_device(b, devices[i].name);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Devices of the sandbox's own, in the folder of the root's tmpfs and shown by one mount of it on itself, the only one that
 * allows devices, and read-only. Nobody inside can make more there: that takes CAP_MKNOD in the first user namespace. Quicker
 * than a mount for each, and no inode is shared with the host and other sandboxes, on which locks and times would be a channel.
 */
static int make_devices(struct build *b)
{
	cleanup_fd int tree = -EBADF;
	mode_t mask = umask(0);
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof devices / sizeof devices[0]; i++) {
		char path[32];

		b->object = devices[i].name;
		(void) snprintf(path, sizeof path, "dev/%s", devices[i].name);
		r = mknodat(b->root, path, S_IFCHR | 0666, makedev(devices[i].number[0], devices[i].number[1])) < 0 ? -errno : 0;
	}
	(void) umask(mask);
	b->object = "";
	if (r == 0)
		r = make_folder(b, "dev/pts", 0755);
	if (r < 0)
		return r;
	tree = mount_clone_tree(b->root, "dev"); /* with /dev/shm */
	if (tree < 0)
		return tree;
	r = mount_clear_one(tree, MOUNT_ATTR_NODEV);
	if (r == 0)
		r = mount_set_one(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	return r < 0 ? r : mount_attach(tree, b->root, "dev");
}

/* Terminals are private (devpts(5)). */
int build_devices(struct build *b)
{
	static const char *const links[][2] = {
	    {"dev/fd", "/proc/self/fd"},       {"dev/stdin", "/proc/self/fd/0"}, {"dev/stdout", "/proc/self/fd/1"},
	    {"dev/stderr", "/proc/self/fd/2"}, {"dev/ptmx", "pts/ptmx"},
	};
	static const char *const options[][2] = {{"ptmxmode", "0666"}, {"mode", "0620"}, {NULL, NULL}};
	cleanup_fd int pts = -EBADF;
	int r;

	for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
		if (symlinkat(links[i][1], b->root, links[i][0]) < 0)
			return -errno;
	r = b->plan->privileged ? make_devices(b) : bind_devices(b);
	if (r < 0)
		return r;
	b->object = "devpts";
	pts = mount_new("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	return pts < 0 ? pts : attach_ours(b, pts, "/dev/pts", true);
}

/* What this kernel does not have needs no cover. */
static bool is_there(int proc, const char *name)
{
	struct stat st;

	return fstatat(proc, name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

/* Covers `name` of the fresh /proc with `by` (below `dir`), read-only. */
static int cover(int proc, const char *name, int dir, const char *by)
{
	cleanup_fd int tree = mount_clone_tree(dir, by);
	int r;

	if (tree < 0)
		return tree;
	r = mount_set_tree(tree, TREE_ATTRS | MOUNT_ATTR_NOEXEC, -EBADF);
	return r < 0 ? r : mount_attach(tree, proc, name);
}

/* Where scratch may not be executed from, memory that is a file may not either: a setting of the pid namespace since 6.3, which
 * only root may write. Where it cannot be had this wall is missing, and the policy's word, which is about scratch, is held by the
 * mounts alone. */
static int forbid_executable_memory(const struct build *b, int proc)
{
	int r = b->plan->scratch_exec ? 0 : fd_write_file_at(proc, "sys/vm/memfd_noexec", "2");

	return r == -ENOENT || (r == -EACCES && !b->plan->privileged) ? 0 : r;
}

static int open_settings(struct build *b, int proc)
{
	b->settings = openat(proc, "sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return b->settings < 0 ? -errno : 0;
}

/* A /proc of the sandbox's own pid namespace. What belongs to root there and is closed to others (kcore, sysrq-trigger, irq, ...)
 * is closed to the uid inside, which is not root's and has no capability; covered is the tree of settings, and what everybody may
 * read but says something about the host. /dev/null with nodev cannot even be opened. */
int build_proc(struct build *b)
{
	static const char *const hidden[] = {"keys", "key-users", "kallsyms", "interrupts", "kcore", "timer_list"};
	static const char *const hidden_folders[] = {"acpi", "scsi", "asound"};
	cleanup_fd int proc = mount_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	int r;

	if (proc < 0)
		return proc;
	r = attach_ours(b, proc, "/proc", true);
	if (r == 0)
		r = forbid_executable_memory(b, proc);
	b->object = "sys";
	if (r == 0)
		r = open_settings(b, proc);
	if (r == 0)
		r = cover(proc, "sys", proc, "sys");
	for (size_t i = 0; r == 0 && i < sizeof hidden / sizeof hidden[0]; i++) {
		b->object = hidden[i];
		if (is_there(proc, hidden[i]))
			r = cover(proc, hidden[i], AT_FDCWD, "/dev/null");
	}
	for (size_t i = 0; r == 0 && i < sizeof hidden_folders / sizeof hidden_folders[0]; i++) {
		b->object = hidden_folders[i];
		if (is_there(proc, hidden_folders[i]))
			r = cover(proc, hidden_folders[i], b->root, "run/lock");
	}
	return r;
}

/* Only the mount that the policy names becomes writable: what is mounted below it stays read-only, because the comparison and the
 * sweep at the end do not enter other mounts. */
int build_tree_attributes(int tree, const struct plan_mount *m, int userns)
{
	int r = mount_set_tree(tree, TREE_ATTRS, userns);

	return r < 0 || !m->writable ? r : mount_clear_one(tree, MOUNT_ATTR_RDONLY);
}

/* The unprivileged caller cannot clone a tree before it has its namespaces, and an fd of the old mount namespace cannot be cloned
 * in the new one: the path is opened again, and must be what the plan saw. */
static int reopen_source(const struct plan_mount *m)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
	cleanup_fd int source = (int) syscall(SYS_openat2, AT_FDCWD, m->source, &how, sizeof how);
	struct stat seen, now;
	int tree, r;

	if (source < 0 || fstat(source, &now) < 0 || fstat(m->fd, &seen) < 0)
		return -errno;
	if (seen.st_dev != now.st_dev || seen.st_ino != now.st_ino)
		return -ESTALE;
	tree = mount_clone_tree(source, "");
	if (tree < 0)
		return tree;
	r = build_tree_attributes(tree, m, -EBADF);
	if (r < 0)
		fd_close(&tree);
	return r < 0 ? r : tree;
}

/* A write mount with a size is filled in memory: *tree becomes the merged one, and the supervisor gets the upper folder to commit
 * from. */
static int put_upper(struct build *b, size_t index, int *tree)
{
	const struct plan_mount *m = &b->plan->mounts[index];
	struct build_message message = {.kind = BUILD_UPPER, .index = (uint32_t) index};
	cleanup_fd int place = openat(b->root, "run/lock", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int upper = -EBADF;
	/* As this process sees ids: in a user namespace of its own already, or not yet. */
	uid_t uid = b->plan->privileged ? b->outside_uid : b->plan->inside_uid;
	gid_t gid = b->plan->privileged ? b->outside_gid : b->plan->inside_gid;
	int merged, r;

	if (place < 0)
		return -errno;
	r = upper_mount(*tree, m->size, !b->plan->privileged, place, uid, gid, &merged, &upper);
	if (r < 0)
		return r;
	fd_close(tree);
	*tree = merged;
	r = mount_set_tree(merged, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, -EBADF);
	return r < 0 ? r : build_send(b, &message, upper);
}

int build_mounts(struct build *b)
{
	for (size_t i = 0; i < b->plan->mount_count; i++) {
		const struct plan_mount *m = &b->plan->mounts[i];
		cleanup_fd int tree = -EBADF;
		int r;

		b->object = m->source;
		tree = b->trees != NULL ? b->trees[i] : reopen_source(m);
		if (tree < 0)
			return tree;
		if (m->writable && m->size != ZW_UNLIMITED) {
			r = put_upper(b, i, &tree);
			if (r < 0)
				return r;
		}
		b->object = m->target;
		r = attach_at(b, tree, m->target, m->is_dir);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A copy of the memory file in the root's own file system. */
static int copy_in(const struct build *b, int from, const char *path)
{
	cleanup_fd int to = openat(b->root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	off_t at = 0;
	ssize_t n;

	if (to < 0)
		return -errno;
	do
		n = sendfile(to, from, &at, 1 << 20);
	while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 ? -errno : 0;
}

/* Covers what the system tree has at `place`, links of its own followed inside of the root, by our file. A tree that has no such
 * file needs no cover. */
static int cover_file(const struct build *b, const char *place, const char *by)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	cleanup_fd int target = (int) syscall(SYS_openat2, b->root, place, &how, sizeof how);
	cleanup_fd int tree = -EBADF;
	int r;

	if (target < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	tree = mount_clone_tree(b->root, by);
	if (tree < 0)
		return tree;
	r = mount_set_tree(tree, TREE_ATTRS | MOUNT_ATTR_NOEXEC, -EBADF);
	return r < 0 ? r : mount_attach(tree, target, "");
}

/* The certificates that are trusted inside, the CA of this run among them: for programs that are told by the environment, and in
 * place of the system's own bundles for those that are not. */
int build_trust(struct build *b)
{
	static const char *const bundles[] = {"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt",
					      "etc/ssl/cert.pem", "etc/ssl/ca-bundle.pem"};
	int fds[2] = {-EBADF, -EBADF}, r;
	size_t room = 2;
	char message;
	ssize_t n;

	if (!b->plan->trust)
		return 0;
	n = fd_recv(b->sync, &message, sizeof message, fds, &room);
	if (n != 1 || room == 0)
		return n < 0 ? (int) n : -EPIPE;
	r = copy_in(b, fds[0], &TRUST_BUNDLE[1]);
	for (size_t i = 0; r == 0 && i < sizeof bundles / sizeof bundles[0]; i++) {
		b->object = bundles[i];
		r = cover_file(b, bundles[i], &TRUST_BUNDLE[1]);
	}
	if (r == 0 && fds[1] >= 0)
		r = copy_in(b, fds[1], &TRUST_JAVA[1]);
	if (r == 0 && fds[1] >= 0)
		r = cover_file(b, "etc/ssl/certs/java/cacerts", &TRUST_JAVA[1]);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	return r;
}

/* 0 means "no limit" to tmpfs(5). */
static void format_limit(char *buf, size_t size, uint64_t limit, uint64_t used)
{
	(void) snprintf(buf, size, "%llu", limit == ZW_UNLIMITED ? 0ULL : (unsigned long long) (limit + used));
}

/* Scratch gets exactly what the policy says, beyond what the root itself took. */
static int set_scratch_limits(const struct build *b)
{
	char size[32], inodes[32];
	const char *const options[][2] = {{"size", size}, {"nr_inodes", inodes}, {NULL, NULL}};
	struct statfs fs;

	if (fstatfs(b->root, &fs) < 0)
		return -errno;
	format_limit(size, sizeof size, b->plan->scratch_size, (uint64_t) (fs.f_blocks - fs.f_bfree) * (uint64_t) fs.f_bsize);
	format_limit(inodes, sizeof inodes, b->plan->scratch_inodes, (uint64_t) (fs.f_files - fs.f_ffree));
	return mount_reconfigure(b->root, options);
}

int build_seal_root(struct build *b)
{
	int r = set_scratch_limits(b);

	return r < 0 ? r : mount_set_one(b->root, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}
