#include "kernel/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CAP_SCAN_MAX = 64 };

bool caps_have(int capability)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

/* Needs CAP_SETPCAP, so it comes before the thread sets. The kernel answers EINVAL for the first number it does not know. */
static int drop_bounding_set(void)
{
	for (int cap = 0; cap < CAP_SCAN_MAX; cap++) {
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL && cap > 0 ? 0 : -errno;
	}
	return 0;
}

int caps_drop_sets(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -errno;
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static const unsigned long locked = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
				    SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
				    SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

int caps_drop_all(void)
{
	int r = drop_bounding_set();

	if (r < 0)
		return r;
	if (prctl(PR_SET_SECUREBITS, locked, 0, 0, 0) < 0)
		return -errno;
	return caps_drop_sets();
}

int caps_drop_all_but_ids(void)
{
	static const uint32_t ids = CAP_TO_MASK(CAP_SETUID) | CAP_TO_MASK(CAP_SETGID);
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	int r;

	data[0].effective = data[0].permitted = ids | CAP_TO_MASK(CAP_SETPCAP); /* for what follows */
	data[0].inheritable = ids;                                              /* only while the bounding set has them */
	if (syscall(SYS_capset, &header, data) < 0)
		return -errno;
	r = drop_bounding_set();
	if (r < 0)
		return r;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
	    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETUID, 0, 0) < 0 ||
	    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETGID, 0, 0) < 0 || prctl(PR_SET_SECUREBITS, locked, 0, 0, 0) < 0)
		return -errno;
	data[0].effective = data[0].permitted = ids;
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}
