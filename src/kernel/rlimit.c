#include "kernel/rlimit.h"

#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* prlimit64 by number: the C library's wrappers are not promised to be async-signal-safe, and the kernel's struct is always
 * 64-bit. */
struct limit64 {
	uint64_t soft, hard;
};

static int limit64(int resource, const struct limit64 *set, struct limit64 *get)
{
	return syscall(SYS_prlimit64, 0, resource, set, get) < 0 ? -errno : 0;
}

int64_t rlimit_apply(int resource, rlim_t value)
{
	struct limit64 now, want;
	int r = limit64(resource, NULL, &now);

	if (r < 0)
		return r;
	/* RLIM_INFINITY is the largest number, so the comparison holds for it too. */
	want.hard = value < now.hard ? value : now.hard;
	want.soft = want.hard;
	if (want.soft != now.soft || want.hard != now.hard)
		r = limit64(resource, &want, NULL);
	if (r < 0)
		return r;
	return want.hard > INT64_MAX ? INT64_MAX : (int64_t) want.hard;
}

int rlimit_apply_soft(int resource, rlim_t value)
{
	struct limit64 now;
	int r = limit64(resource, NULL, &now);

	if (r < 0)
		return r;
	now.soft = value < now.hard ? value : now.hard;
	return limit64(resource, &now, NULL);
}
