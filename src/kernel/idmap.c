#include "kernel/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernel/clone.h"

static int write_map(int proc, pid_t pid, const char *file, const char *map, struct zw_error *e)
{
	char path[64];
	int r;

	(void) snprintf(path, sizeof path, "%d/%s", (int) pid, file);
	r = fd_write_file_at(proc, path, map);
	return r < 0 ? zw_errno(e, -r, "cannot map ids in /proc/%s (%.*s)", path, (int) strcspn(map, "\n"), map) : 0;
}

static int write_maps(int proc, pid_t pid, const char *uid_map, const char *gid_map, struct zw_error *e)
{
	char path[64];
	int r;

	(void) snprintf(path, sizeof path, "%d/setgroups", (int) pid);
	r = fd_write_file_at(proc, path, "deny");
	if (r < 0)
		return zw_errno(e, -r, "cannot deny setgroups in /proc/%s", path);
	r = write_map(proc, pid, "uid_map", uid_map, e);
	return r < 0 ? r : write_map(proc, pid, "gid_map", gid_map, e);
}

/* A map must not be empty: the highest id that the kernel takes, which no file has. */
#define UNUSED_GID 4294967294U

struct id_map {
	char text[128];
	size_t size;
};

static void add_id(struct id_map *m, uint32_t inner, uint32_t outer)
{
	m->size += (size_t) snprintf(m->text + m->size, sizeof m->text - m->size, "%u %u 1\n", inner, outer);
}

int idmap_write(int proc, pid_t pid, const struct id_pair *pairs, size_t count, struct zw_error *e)
{
	struct id_map uids = {.size = 0}, gids = {.size = 0};

	for (size_t i = 0; i < count && i < 2; i++) {
		add_id(&uids, pairs[i].inside, pairs[i].outside);
		add_id(&gids, pairs[i].inside_gid, pairs[i].outside_gid);
	}
	return write_maps(proc, pid, uids.text, gids.text, e);
}

/* The owner first, then root and nobody, unless one of them is the owner. */
static void map_owner(struct id_map *m, uint32_t base, uint32_t owner)
{
	static const uint32_t others[] = {0, 65534};

	*m = (struct id_map){.size = 0};
	add_id(m, owner, base);
	for (uint32_t i = 0; i < 2; i++)
		if (others[i] != owner)
			add_id(m, others[i], base + 1 + i);
}

/* Above every range in common use: system accounts, login users, /etc/subuid, systemd's dynamic and container ranges end at
 * 0x6fffffff; ids from 0x80000000 on are negative to some programs. Pids have at most 22 bits (PID_MAX_LIMIT). */
enum { RANGE_FIRST = 0x70000000, PID_MASK = (1 << 22) - 1 };
_Static_assert(IDMAP_ROOT > 2 && IDMAP_ROOT < IDMAP_RANGE - 1, "not one of a mount, nor the broker's");
_Static_assert(RANGE_FIRST + (PID_MASK + 1L) * IDMAP_RANGE <= 0x80000000L, "all ranges fit");

/* Does an account of /etc/passwd lie in the range? An unreadable or missing file has none. */
static bool range_has_account(uid_t base)
{
	FILE *f = fopen("/etc/passwd", "re");
	char line[1024];
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof line, f) != NULL) {
		const char *field = strchr(line, ':');
		unsigned long uid;
		char *end;

		field = field != NULL ? strchr(field + 1, ':') : NULL;
		if (field == NULL)
			continue;
		uid = strtoul(field + 1, &end, 10);
		found = *end == ':' && uid >= base && uid < (unsigned long) base + IDMAP_RANGE;
	}
	(void) fclose(f);
	return found;
}

static uid_t range_of(pid_t pid)
{
	return RANGE_FIRST + (uid_t) (pid & PID_MASK) * IDMAP_RANGE;
}

uid_t idmap_broker(pid_t pid)
{
	return range_of(pid) + IDMAP_RANGE - 1;
}

int idmap_range(uid_t *ret_base, struct zw_error *e)
{
	uid_t base = range_of(getpid());

	if (range_has_account(base))
		return zw_error(e, EEXIST,
				"an account of /etc/passwd has an id between %u and %u, which sandboxes use: give it another id",
				base, base + IDMAP_RANGE - 1);
	*ret_base = base;
	return 0;
}

/* Exists only to carry a user namespace until the parent has opened it; dies with the parent. */
static _Noreturn void carry_namespace(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(0);
	for (;;)
		(void) pause();
}

int idmap_namespace(int proc, uid_t base, uid_t disk_uid, gid_t disk_gid, int *ret_fd, struct zw_error *e)
{
	cleanup_fd int pidfd = -EBADF;
	cleanup_fd int ns = -EBADF;
	struct id_map uids, gids;
	char path[64];
	int r;
	pid_t parent = getpid();
	pid_t pid = clone_namespaces(CLONE_NEWUSER, -EBADF, &pidfd);

	if (pid == 0)
		carry_namespace(parent);
	if (pid < 0)
		return zw_errno(e, -pid, "cannot make a user namespace for an id-mapped mount");
	map_owner(&uids, base, disk_uid);
	if (disk_gid == IDMAP_NO_GID)
		(void) snprintf(gids.text, sizeof gids.text, "%u %u 1\n", UNUSED_GID, base);
	else
		map_owner(&gids, base, disk_gid);
	r = write_maps(proc, pid, uids.text, gids.text, e);
	if (r == 0) {
		(void) snprintf(path, sizeof path, "%d/ns/user", (int) pid);
		ns = openat(proc, path, O_RDONLY | O_CLOEXEC);
		if (ns < 0)
			r = zw_errno(e, errno, "cannot open /proc/%s", path);
	}
	(void) kill(pid, SIGKILL); /* our own unreaped child: the pid cannot have been reused */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return r;
	*ret_fd = take_fd(&ns);
	return 0;
}
