#include "kernel/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernel/uapi.h"

/* <sys/mount.h> and <linux/mount.h> clash in older C libraries; these two are all that is needed of the former. */
enum { MOUNT_FLAG_REC = 16384, MOUNT_FLAG_PRIVATE = 1 << 18, UMOUNT_DETACH = 2 };

int mount_clone_tree(int dirfd, const char *path)
{
	long fd = syscall(SYS_open_tree, dirfd, path,
			  AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	return fd < 0 ? -errno : (int) fd;
}

/* Always private as well: a copy of a shared mount is its peer. What the host mounts below it later would appear inside, with the
 * host's own flags, and what is mounted below it inside would appear on the host and stay there (mount_namespaces(7)). */
static int set_attrs(int mount, uint64_t attrs, int userns, unsigned flags)
{
	struct mount_attr attr = {
	    .attr_set = attrs | (userns >= 0 ? MOUNT_ATTR_IDMAP : 0),
	    .propagation = MOUNT_FLAG_PRIVATE,
	    .userns_fd = userns >= 0 ? (uint64_t) userns : 0,
	};

	if (syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH | flags, &attr, sizeof attr) < 0)
		return -errno;
	return 0;
}

int mount_set_tree(int tree, uint64_t attrs, int userns)
{
	return set_attrs(tree, attrs, userns, AT_RECURSIVE);
}

int mount_set_one(int mount, uint64_t attrs)
{
	return set_attrs(mount, attrs, -EBADF, 0);
}

int mount_clear_one(int mount, uint64_t attrs)
{
	struct mount_attr attr = {.attr_clr = attrs};

	return syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0 ? -errno : 0;
}

int mount_attach(int mount, int dirfd, const char *path)
{
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (path[0] == '\0' ? MOVE_MOUNT_T_EMPTY_PATH : 0);

	if (syscall(SYS_move_mount, mount, "", dirfd, path, flags) < 0)
		return -errno;
	return 0;
}

static int set_options(int fs, const char *const options[][2])
{
	for (size_t i = 0; options != NULL && options[i][0] != NULL; i++) {
		const char *key = options[i][0], *value = options[i][1];
		bool optional = key[0] == '?';
		unsigned command = value != NULL ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (syscall(SYS_fsconfig, fs, command, key + optional, value, 0) < 0 && !optional)
			return -errno;
	}
	return 0;
}

int mount_new(const char *type, const char *const options[][2], uint64_t attrs)
{
	cleanup_fd int fs = (int) syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
	long mount;
	int r;

	if (fs < 0)
		return -errno;
	r = set_options(fs, options);
	if (r < 0)
		return r;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount = syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned) attrs);
	return mount < 0 ? -errno : (int) mount;
}

int mount_reconfigure(int mount, const char *const options[][2])
{
	cleanup_fd int fs = (int) syscall(SYS_fspick, mount, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
	int r;

	if (fs < 0)
		return -errno;
	r = set_options(fs, options);
	if (r < 0)
		return r;
	return syscall(SYS_fsconfig, fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}

int mount_isolate(void)
{
	if (syscall(SYS_mount, NULL, "/", NULL, MOUNT_FLAG_REC | MOUNT_FLAG_PRIVATE, NULL) < 0)
		return -errno;
	return 0;
}

int mount_pivot(void)
{
	/* pivot_root(2), "pivot_root(".", ".")": the old root ends up stacked on the new one, below the current directory's name.
	 */
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return -errno;
	if (syscall(SYS_umount2, ".", UMOUNT_DETACH) < 0)
		return -errno;
	return chdir("/") < 0 ? -errno : 0;
}
