#include "sandbox/upper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernel/mount.h"

enum { UMOUNT_DETACH = 2, DIGITS_MAX = 21 };

#define PAGE 4096 /* the granule of tmpfs; a size of 0 would mean no limit */
#define INODES_MAX (1U << 20)

/* snprintf is not async-signal-safe. */
static const char *decimal(uint64_t n, char buf[DIGITS_MAX])
{
	char *p = buf + DIGITS_MAX - 1;

	*p = '\0';
	do {
		*--p = (char) ('0' + n % 10);
		n /= 10;
	} while (n > 0);
	return p;
}

static int new_tmpfs(uint64_t size)
{
	char size_text[DIGITS_MAX], inodes_text[DIGITS_MAX];
	uint64_t inodes = size / 2048 + 1024;
	const char *const options[][2] = {
	    {"size", decimal(size < PAGE ? PAGE : size, size_text)},
	    {"nr_inodes", decimal(inodes < INODES_MAX ? inodes : INODES_MAX, inodes_text)},
	    {"mode", "0700"},
	    {NULL, NULL},
	};

	return mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* The layers are named relative to the current directory, so that neither /proc nor a path is needed. Without redirects and
 * metacopy the upper folder is complete in itself: a renamed folder is copied by the program that renames it (EXDEV), as between
 * file systems. With userxattr both are off by themselves, and may not be named (overlayfs.rst). */
static int new_overlay(bool userns)
{
	const char *const in_userns[][2] = {
	    {"lowerdir", "lower"}, {"upperdir", "upper"}, {"workdir", "work"}, {"userxattr", NULL}, {NULL, NULL}};
	const char *const as_root[][2] = {{"lowerdir", "lower"},        {"upperdir", "upper"}, {"workdir", "work"},
					  {"redirect_dir", "nofollow"}, {"metacopy", "off"},   {NULL, NULL}};

	return mount_new("overlay", userns ? in_userns : as_root, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* The merged root shows the owner and mode of the upper folder. An owner that has no id in this namespace cannot be set (EINVAL):
 * then the given one, else the folder is ours, as it was made. */
static int copy_owner(int lower, uid_t uid, gid_t gid)
{
	struct stat st;

	if (fstat(lower, &st) < 0)
		return -errno;
	if (fchownat(AT_FDCWD, "upper", st.st_uid, (gid_t) -1, AT_SYMLINK_NOFOLLOW) < 0)
		(void) !fchownat(AT_FDCWD, "upper", uid, (gid_t) -1, AT_SYMLINK_NOFOLLOW);
	if (fchownat(AT_FDCWD, "upper", (uid_t) -1, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		(void) !fchownat(AT_FDCWD, "upper", (uid_t) -1, gid, AT_SYMLINK_NOFOLLOW);
	return fchmodat(AT_FDCWD, "upper", st.st_mode & 01777, 0) < 0 ? -errno : 0; /* lint: by-name; ours */
}

/* The current directory is the tmpfs. */
static int assemble(int lower, bool userns, uid_t uid, gid_t gid, int *ret_mount, int *ret_upper)
{
	cleanup_fd int upper = -EBADF;
	int r;

	if (mkdirat(AT_FDCWD, "upper", 0700) < 0 || mkdirat(AT_FDCWD, "work", 0700) < 0 || mkdirat(AT_FDCWD, "lower", 0700) < 0)
		return -errno;
	r = copy_owner(lower, uid, gid);
	if (r == 0)
		r = mount_attach(lower, AT_FDCWD, "lower");
	if (r < 0)
		return r;
	upper = openat(AT_FDCWD, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (upper < 0)
		return -errno;
	r = new_overlay(userns);
	if (r < 0)
		return r;
	*ret_mount = r;
	*ret_upper = take_fd(&upper);
	return 0;
}

int upper_mount(int lower, uint64_t size, bool userns, int place, uid_t uid, gid_t gid, int *ret_mount, int *ret_upper)
{
	cleanup_fd int here = openat(AT_FDCWD, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int tmpfs = -EBADF;
	int r;

	if (here < 0)
		return -errno;
	tmpfs = new_tmpfs(size);
	if (tmpfs < 0)
		return tmpfs;
	r = mount_attach(tmpfs, place, "");
	if (r < 0)
		return r;
	r = fchdir(tmpfs) < 0 ? -errno : assemble(lower, userns, uid, gid, ret_mount, ret_upper);
	/* The overlay holds its own clones of the layers: the place is free again. */
	if (syscall(SYS_umount2, ".", UMOUNT_DETACH) < 0 && r == 0)
		r = -errno;
	if (fchdir(here) < 0 && r == 0)
		r = -errno;
	return r;
}
