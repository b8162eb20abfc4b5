/* Making, locking and removing the directories of groups; finding those whose supervisor died.
 *
 * A supervisor locks its group right after making it. Between the two a reaper may take the lock and remove the group; the maker
 * notices (its lock fails, or the name is gone) and starts over with the next name. So an obtained lock always means: nobody owns
 * it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum {
	NEST_MAX = 16, /* groups within groups that are removed with a group */
	KILL_PATIENCE = 100 * USEC_PER_MSEC,
	KILL_MAX = 256,          /* left-over processes of one v1 group that are signalled in one start */
	LIST_SIZE = 16384,       /* of a directory, read at once */
	LOOKS_MAX = 64,          /* groups of others that one start looks at in a hierarchy */
	PAUSE_FIRST = 50000,     /* ns */
	PAUSE_LAST = 5 * 1000000 /* ns */
};

int cgroup_new_name(char *name)
{
	uint64_t random;

	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return -errno;
	(void) snprintf(name, CGROUP_NAME_SIZE, CGROUP_PREFIX "%d-%016llx", (int) getpid(), (unsigned long long) random);
	return 0;
}

int cgroup_mkdir(int base, const char *name, int *ret_group)
{
	cleanup_fd int fd = -EBADF;

	if (mkdirat(base, name, 0755) < 0)
		return -errno;
	fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT) {
		int r = -errno;

		(void) unlinkat(base, name, AT_REMOVEDIR);
		return r;
	}
	/* A reaper was faster; the caller takes another name. Both remove, so that it is gone when either goes on. */
	if (fd < 0)
		return -ESTALE;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		(void) unlinkat(base, name, AT_REMOVEDIR);
		return -ESTALE;
	}
	*ret_group = take_fd(&fd);
	return 0;
}

/* Waits until the v2 group has no processes: cgroup.events changes then. */
static void wait_empty(int group, usec_t until)
{
	cleanup_fd int fd = openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);

	for (;;) {
		usec_t now = now_monotonic();
		struct pollfd p = {.fd = fd, .events = POLLPRI};
		char text[256];
		ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);

		if (n < 0 || now >= until)
			return;
		text[n] = '\0';
		if (strstr(text, "populated 0") != NULL)
			return;
		(void) poll(&p, 1, (int) ((until - now) / USEC_PER_MSEC) + 1);
	}
}

/* Removes the groups within `dir`, deepest first. A sandbox cannot make any, but a session that was given a tree can. */
static void remove_nested(int dir, unsigned depth)
{
	char list[LIST_SIZE];
	cleanup_fd int fd = cgroup_open_dir(dir, "."); /* an offset of its own */
	ssize_t n;

	if (fd < 0 || depth > NEST_MAX)
		return;
	for (n = getdents64(fd, (void *) list, sizeof list); n > 0; n = getdents64(fd, (void *) list, sizeof list)) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *) (const void *) (list + at);
			cleanup_fd int child = -EBADF;

			at += d->d_reclen;
			if (d->d_type != DT_DIR || d->d_name[0] == '.')
				continue;
			if (unlinkat(dir, d->d_name, AT_REMOVEDIR) == 0 || errno != EBUSY)
				continue;
			child = cgroup_open_dir(dir, d->d_name);
			if (child < 0)
				continue;
			remove_nested(child, depth + 1);
			(void) unlinkat(dir, d->d_name, AT_REMOVEDIR);
		}
	}
}

int cgroup_rmdir(int base, const char *name, usec_t patience)
{
	usec_t until = 0;
	cleanup_fd int group = -EBADF;

	for (long pause = PAUSE_FIRST;; pause = pause * 2 < PAUSE_LAST ? pause * 2 : PAUSE_LAST) {
		struct timespec t = {.tv_nsec = pause};

		if (unlinkat(base, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY)
			return -errno;
		if (group < 0) {
			until = now_monotonic() + patience;
			group = cgroup_open_dir(base, name);
			if (group < 0)
				continue;
			remove_nested(group, 0);
			wait_empty(group, until); /* v1 has no such file and returns at once */
			if (unlinkat(base, name, AT_REMOVEDIR) == 0)
				return 0;
		}
		if (now_monotonic() >= until)
			return -EBUSY;
		/* v1 has no event for "the last process is gone", and both versions may be busy for a moment after it (offline
		 * work). */
		(void) nanosleep(&t, NULL);
	}
}

/* "zwinger-<pid>-<16 hex digits>" */
static pid_t owner_of(const char *name)
{
	const char *p = name + sizeof CGROUP_PREFIX - 1;
	uint64_t pid;

	if (strncmp(name, CGROUP_PREFIX, sizeof CGROUP_PREFIX - 1) != 0 || !cgroup_parse_u64(&p, &pid))
		return -1;
	if (*p != '-' || strspn(p + 1, "0123456789abcdef") != 16 || p[17] != '\0' || pid == 0 || pid > INT32_MAX)
		return -1;
	return (pid_t) pid;
}

/* True when a process of that number exists in our pid namespace. With many groups most owners live and have one in each
 * hierarchy, so who was found alive is remembered (a table that forgets on collision). */
static bool seems_alive(pid_t pid, struct cgroup_alive *alive)
{
	pid_t *known = &alive->pids[(size_t) pid % ARRAY_SIZE(alive->pids)];

	if (*known == pid)
		return true;
	if (kill(pid, 0) < 0 && errno == ESRCH)
		return false;
	*known = pid;
	return true;
}

/* Reads pids of cgroup.procs. One of another pid namespace reads 0 and is left out. */
static size_t list_procs(int group, pid_t pids[KILL_MAX])
{
	char text[KILL_MAX * 12];
	const char *p = text;
	size_t count = 0;
	uint64_t pid;

	if (fd_read_file_at(group, "cgroup.procs", text, sizeof text) < 0)
		return 0;
	while (count < KILL_MAX && cgroup_parse_u64(&p, &pid)) {
		if (pid > 0 && pid <= INT32_MAX)
			pids[count++] = (pid_t) pid;
		p += *p == '\n';
	}
	return count;
}

static bool is_in(pid_t pid, const pid_t *pids, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* Kills what a dead supervisor left in its v1 group. A number may be given to an innocent process between reading the list and
 * signalling: so first take a pidfd, and signal it only if the number is still listed after that. */
static void kill_listed(int group)
{
	pid_t before[KILL_MAX], after[KILL_MAX];
	int fds[KILL_MAX];
	size_t count = list_procs(group, before), still;

	for (size_t i = 0; i < count; i++)
		fds[i] = (int) syscall(SYS_pidfd_open, before[i], 0);
	still = count > 0 ? list_procs(group, after) : 0;
	for (size_t i = 0; i < count; i++) {
		if (fds[i] >= 0 && is_in(before[i], after, still))
			(void) syscall(SYS_pidfd_send_signal, fds[i], SIGKILL, NULL, 0);
		fd_close(&fds[i]);
	}
}

/* Removes the group if its lock can be had. True when it is gone. */
static bool reap_one(int base, const char *name, enum cgroup_version version, bool alive)
{
	cleanup_fd int group = cgroup_open_dir(base, name);

	if (group < 0 || flock(group, LOCK_EX | LOCK_NB) < 0)
		return false;
	if (unlinkat(base, name, AT_REMOVEDIR) == 0)
		return true;
	/* Where a living process has the number, this is a number given out anew, or a group in the making: then nothing is
	 * killed. */
	if (errno != EBUSY || alive)
		return false;
	if (version == CGROUP_V2)
		(void) fd_write_file_at(group, "cgroup.kill", "1"); /* 5.14 */
	else
		kill_listed(group);
	return cgroup_rmdir(base, name, KILL_PATIENCE) == 0;
}

static void reap_entry(int base, const char *name, enum cgroup_version version, bool probe, struct cgroup_alive *alive)
{
	pid_t pid = owner_of(name);

	if (pid < 0)
		return;
	if (!seems_alive(pid, alive)) {
		(void) reap_one(base, name, version, false);
		return;
	}
	/* A dead supervisor's number may have been given out anew, which only the lock tells. To try them all would cost 8 us
	 * each, so a start tries one in each hierarchy, by chance; what it finds, it removes from the others too. */
	if (strcmp(name, alive->stale) == 0) {
		(void) reap_one(base, name, version, true);
	} else if (probe && reap_one(base, name, version, true)) {
		(void) snprintf(alive->stale, sizeof alive->stale, "%.*s", CGROUP_NAME_SIZE - 1, name);
	}
}

/* Entries of kernfs are ordered by a hash of 31 bits, which is their offset. */
static off_t offset_by_chance(unsigned long chance)
{
	return (off_t) (chance % INT32_MAX);
}

/* What a start costs must not grow with the number of sandboxes that run: where there are more than LOOKS_MAX groups, it looks at
 * so many from a place by chance on, and the next one at others. */
void cgroup_reap_base(int base, enum cgroup_version version, const char *own, bool has_own, struct cgroup_alive *alive)
{
	unsigned long groups, looks, index = 0, chance = 0;
	char list[LOOKS_MAX * 96];
	struct stat st;
	ssize_t n;

	/* kernfs counts the groups below a directory in its link number: two and one for each. */
	if (fstat(base, &st) < 0)
		return;
	groups = st.st_nlink - 2;
	if (groups == (has_own ? 1 : 0))
		return;
	/* Any bits serve as chance: those of our own name. */
	for (const char *p = own; *p != '\0'; p++)
		chance = chance * 31 + (unsigned char) *p;
	looks = groups < LOOKS_MAX ? groups : LOOKS_MAX;
	if (lseek(base, groups > LOOKS_MAX ? offset_by_chance(chance) : 0, SEEK_SET) < 0)
		return;
	for (n = getdents64(base, (void *) list, sizeof list); n > 0; n = getdents64(base, (void *) list, sizeof list)) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *) (const void *) (list + at);

			at += d->d_reclen;
			if (d->d_type != DT_DIR || d->d_name[0] == '.' || strcmp(d->d_name, own) == 0)
				continue;
			reap_entry(base, d->d_name, version, index++ == chance % looks, alive);
			if (index == LOOKS_MAX)
				return;
		}
	}
}
