#include "kernel/landlock.h"

#include <errno.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/uapi.h"

/* The attribute as of ABI 6; the kernel takes shorter ones, and longer ones whose rest is 0. */
struct ruleset_attr {
	uint64_t handled_access_fs, handled_access_net, scoped;
};

#define ACCESS_READ_NOEXEC (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ACCESS_WRITE_NOEXEC                                                                                                      \
	(ACCESS_READ_NOEXEC | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |   \
	 LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |                              \
	 LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER | LANDLOCK_ACCESS_FS_TRUNCATE)

/* What may be said of something that is no folder; the kernel refuses a rule with more (landlock_add_rule(2), EINVAL). */
#define ACCESS_FILE                                                                                                              \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE |                             \
	 LANDLOCK_ACCESS_FS_TRUNCATE | LANDLOCK_ACCESS_FS_IOCTL_DEV)

static const uint64_t granted[] = {
    [LANDLOCK_READ] = ACCESS_READ_NOEXEC | LANDLOCK_ACCESS_FS_EXECUTE,
    [LANDLOCK_READ_NOEXEC] = ACCESS_READ_NOEXEC,
    [LANDLOCK_WRITE] = ACCESS_WRITE_NOEXEC | LANDLOCK_ACCESS_FS_EXECUTE,
    [LANDLOCK_WRITE_NOEXEC] = ACCESS_WRITE_NOEXEC,
    [LANDLOCK_DEVICES] = ACCESS_READ_NOEXEC | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_IOCTL_DEV,
};

/* All rights up to and including the newest of each ABI. RESOLVE_UNIX (ABI 9) is handled and never granted: sockets made within
 * the domain can be reached all the same. */
static const uint64_t newest_right[] = {
    [1] = LANDLOCK_ACCESS_FS_MAKE_SYM,  [2] = LANDLOCK_ACCESS_FS_REFER,     [3] = LANDLOCK_ACCESS_FS_TRUNCATE,
    [4] = LANDLOCK_ACCESS_FS_TRUNCATE,  [5] = LANDLOCK_ACCESS_FS_IOCTL_DEV, [6] = LANDLOCK_ACCESS_FS_IOCTL_DEV,
    [7] = LANDLOCK_ACCESS_FS_IOCTL_DEV, [8] = LANDLOCK_ACCESS_FS_IOCTL_DEV, [9] = LANDLOCK_ACCESS_FS_RESOLVE_UNIX,
};

static uint64_t rights_of(unsigned abi)
{
	unsigned newest = ARRAY_SIZE(newest_right) - 1;

	return newest_right[abi < newest ? abi : newest] * 2 - 1;
}

/* Truncation goes with reading: where it is handled, every open is looked up, also one for reading, because the file might be
 * truncated through it later. */
static uint64_t changing_rights_of(unsigned abi)
{
	return rights_of(abi) & ~(uint64_t) (ACCESS_READ_NOEXEC | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_TRUNCATE);
}

int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? -errno : (int) abi;
}

static int create(const struct ruleset_attr *attr, size_t size)
{
	long fd = syscall(SYS_landlock_create_ruleset, attr, size, 0);

	return fd < 0 ? -errno : (int) fd;
}

static int make_ruleset(unsigned abi, uint64_t rights, bool scope)
{
	struct ruleset_attr attr = {.handled_access_fs = rights};

	if (abi == 0)
		return -EINVAL;
	if (scope && abi >= LANDLOCK_ABI_SCOPE)
		attr.scoped = LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
	/* A kernel that knows the first field alone refuses a longer struct only when the rest is not 0. */
	return create(&attr, sizeof attr);
}

int landlock_ruleset(unsigned abi, bool scope)
{
	return make_ruleset(abi, rights_of(abi), scope);
}

int landlock_changes_ruleset(unsigned abi, bool scope)
{
	return make_ruleset(abi, changing_rights_of(abi), scope);
}

int landlock_allow_changes(int ruleset, unsigned abi, int path_fd, enum landlock_access what)
{
	struct landlock_path_beneath_attr attr = {.allowed_access = granted[what] & changing_rights_of(abi),
						  .parent_fd = path_fd};
	struct stat st;

	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		attr.allowed_access &= ACCESS_FILE;
	if (attr.allowed_access == 0)
		return -EINVAL;
	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0 ? -errno : 0;
}

int landlock_allow(int ruleset, int path_fd, enum landlock_access what)
{
	int abi = landlock_abi();
	uint64_t access = granted[what];
	struct stat st;

	if (abi < 0)
		return abi;
	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		access &= ACCESS_FILE;
	/* EINVAL says that the ruleset was made for an older ABI than the kernel's: the rights in between are free for all there.
	 */
	for (;; abi--) {
		struct landlock_path_beneath_attr attr = {.allowed_access = access & rights_of((unsigned) abi),
							  .parent_fd = path_fd};

		if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) == 0)
			return 0;
		if (errno != EINVAL || abi <= 1)
			return -errno;
	}
}

int landlock_enforce(int ruleset)
{
	return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}
