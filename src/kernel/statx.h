/* statx(2) for C libraries that do not have it yet (musl before 1.2.4): the kernel's own header and a plain call. */
#pragma once

#include <sys/stat.h>

#ifndef STATX_TYPE
#include <linux/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int statx(int dir, const char *path, int flags, unsigned mask, struct statx *ret)
{
	return (int) syscall(SYS_statx, dir, path, flags, mask, ret);
}
#endif
