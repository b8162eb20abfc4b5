/* Reading the counters of a group, and the small parsers and writers that both versions use. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum { DISKS_MAX = 1024 };

bool cgroup_parse_u64(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t n = 0;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		unsigned digit = (unsigned) (*p - '0');

		if (n > (UINT64_MAX - digit) / 10)
			return false;
		n = n * 10 + digit;
	}
	*text = p;
	*ret = n;
	return true;
}

int cgroup_write_u64(int group, const char *file, uint64_t value)
{
	char text[24];

	(void) snprintf(text, sizeof text, "%llu", (unsigned long long) value);
	return fd_write_file_at(group, file, text);
}

/* PIDS_MAX of the kernel: larger numbers are refused with EINVAL, and no system has more tasks. */
#define TASKS_MAX UINT64_C(4194304)

int cgroup_limit_processes(int group, const struct cgroup_limits *l, struct zw_error *why)
{
	int r = 0;

	if (l->processes < TASKS_MAX - 1)
		r = cgroup_write_u64(group, "pids.max", l->processes + 1);
	return r < 0 ? zw_errno(why, -r, "cannot set pids.max") : 0;
}

bool cgroup_host_has_no_swap(void)
{
	char text[512];
	ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/swaps", text, sizeof text);
	const char *line;

	if (n == -ENOENT) /* CONFIG_SWAP=n */
		return true;
	if (n < 0)
		return false;
	line = strchr(text, '\n'); /* a heading, then one line an area */
	return line == NULL || line[1] == '\0';
}

/* "8:0" of a disk with a size, else false. */
static bool disk_device(int block, const char *name, char device[24])
{
	char file[300], text[24];
	const char *p = text;
	uint64_t major, minor;

	(void) snprintf(file, sizeof file, "%s/size", name);
	if (fd_read_file_at(block, file, text, sizeof text) <= 0 || text[0] == '0')
		return false;
	(void) snprintf(file, sizeof file, "%s/dev", name); /* missing for the hidden paths of a multipath disk */
	if (fd_read_file_at(block, file, text, sizeof text) <= 0)
		return false;
	if (!cgroup_parse_u64(&p, &major) || *p++ != ':' || !cgroup_parse_u64(&p, &minor))
		return false;
	(void) snprintf(device, 24, "%u:%u", (unsigned) major, (unsigned) minor);
	return true;
}

int cgroup_each_disk(int (*one)(void *arg, const char *device), void *arg)
{
	DIR *dir = opendir("/sys/block");
	size_t count = 0;
	int r = 0;

	if (dir == NULL)
		return -errno;
	for (const struct dirent *d = readdir(dir); d != NULL && r >= 0; d = readdir(dir)) {
		char device[24];

		if (d->d_name[0] == '.' || !disk_device(dirfd(dir), d->d_name, device))
			continue;
		r = ++count > DISKS_MAX ? -E2BIG : one(arg, device);
		if (r == -ENODEV || r == -ENXIO) /* gone since, or without a queue to limit */
			r = 0;
	}
	(void) closedir(dir);
	return r;
}

/* The number behind "key " at the start of a line. */
static bool keyed(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	for (const char *line = text;; line++) {
		if (strncmp(line, key, n) == 0 && line[n] == ' ') {
			line += n + 1;
			return cgroup_parse_u64(&line, ret);
		}
		line = strchr(line, '\n');
		if (line == NULL)
			return false;
	}
}

/* True for a device made of others (LVM, RAID, encryption): the kernel counts its transfers once more on those below. */
static bool is_stacked(const char *line)
{
	char path[80];
	size_t n = strspn(line, "0123456789:");
	const struct dirent *d;
	bool found = false;
	DIR *dir;

	(void) snprintf(path, sizeof path, "/sys/dev/block/%.*s/slaves", (int) (n < 24 ? n : 24), line);
	dir = opendir(path);
	if (dir == NULL)
		return false;
	for (d = readdir(dir); d != NULL && !found; d = readdir(dir))
		found = d->d_name[0] != '.';
	(void) closedir(dir);
	return found;
}

/* The sum of the numbers behind `key` over all lines of devices. No line: nothing was transferred yet. */
static uint64_t devices(const char *text, const char *key)
{
	uint64_t sum = 0;

	for (const char *line = text; *line != '\0';) {
		const char *end = strchrnul(line, '\n'), *p = strstr(line, key);
		uint64_t n;

		if (p != NULL && p < end && line[0] >= '0' && line[0] <= '9') {
			p += strlen(key);
			if (cgroup_parse_u64(&p, &n) && n > 0 && !is_stacked(line))
				sum += n;
		}
		line = *end == '\0' ? end : end + 1;
	}
	return sum;
}

uint64_t cgroup_figure_of(const struct cgroup_figure *f, const char *text)
{
	const char *p = text;
	uint64_t n = ZW_UNLIMITED;

	switch (f->form) {
	case CGROUP_FIGURE_NUMBER:
		if (!cgroup_parse_u64(&p, &n))
			return ZW_UNLIMITED;
		break;
	case CGROUP_FIGURE_KEYED:
		if (!keyed(text, f->key, &n))
			return ZW_UNLIMITED;
		break;
	case CGROUP_FIGURE_DEVICES:
		n = devices(text, f->key);
		break;
	}
	if (f->divisor > 1)
		n /= f->divisor;
	return n > f->less ? n - f->less : 0;
}

uint64_t cgroup_figure_read(const struct cgroup_figure *f, int fd)
{
	char text[16384];
	ssize_t n;

	/* From offset 0 each time: kernfs makes the text anew, and gives such a file whole in one read when there is room. */
	do
		n = pread(fd, text, sizeof text - 1, 0);
	while (n < 0 && errno == EINTR);
	/* Longer than the room, as io.stat with very many disks: a part is not the truth. */
	if (n < 0 || n == (ssize_t) sizeof text - 1)
		return ZW_UNLIMITED;
	text[n] = '\0';
	return cgroup_figure_of(f, text);
}
