#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolation/process.h"
#include "kernel/caps.h"
#include "kernel/idmap.h"

/* systemd's dynamic users: ids that no account has, and that lie within the 65536 that a container usually maps. */
enum { FALLBACK_FIRST = 61184, FALLBACK_COUNT = 65520 - 61184 };

/* Does /proc/self/uid_map (or gid_map) have `id`? */
static bool id_is_mapped(const char *map_path, unsigned id)
{
	char text[4096];
	char *p = text;

	if (fd_read_file_at(AT_FDCWD, map_path, text, sizeof text) <= 0)
		return false;
	while (*p != '\0') {
		unsigned long first = strtoul(p, &p, 10), count;

		(void) strtoul(p, &p, 10);
		count = strtoul(p, &p, 10);
		if (count == 0)
			return false;
		if (id >= first && id - first < count)
			return true;
		while (*p == '\n' || *p == ' ')
			p++;
	}
	return false;
}

static bool both_mapped(unsigned id)
{
	return id_is_mapped("/proc/self/uid_map", id) && id_is_mapped("/proc/self/gid_map", id);
}

/* Root of a user namespace can be an ordinary user outside: then what it owns is an ordinary user's. */
static bool is_real_root(void)
{
	char text[4096];
	char *p = text;

	if (fd_read_file_at(AT_FDCWD, "/proc/self/uid_map", text, sizeof text) <= 0)
		return true;
	for (;;) {
		char *start = p;
		unsigned long first = strtoul(p, &p, 10), outside = strtoul(p, &p, 10);

		(void) strtoul(p, &p, 10);
		if (p == start)
			return true;
		if (first == 0)
			return outside == 0;
	}
}

/* Files made inside belong to whoever makes them, so the owner of the folders that may be written to is who the program must be.
 */
static enum identity_kind owner_of_writable(const struct plan *plan, struct identity *ret)
{
	bool found = false;

	for (size_t i = 0; i < plan->mount_count; i++) {
		const struct plan_mount *m = &plan->mounts[i];

		if (!m->writable || m->everybody_writes)
			continue;
		if (m->owner_uid == 0 || !both_mapped(m->owner_uid) || (found && m->owner_uid != ret->uid))
			return IDENTITY_ROOT;
		*ret = (struct identity){.uid = m->owner_uid, .gid = m->owner_gid != 0 ? m->owner_gid : m->owner_uid};
		found = true;
	}
	return found ? IDENTITY_OWNER : IDENTITY_FRESH;
}

void identity_decide(const struct plan *plan, struct identity *ret)
{
	struct identity owner;
	enum identity_kind kind;

	*ret = (struct identity){.kind = IDENTITY_CALLER, .uid = geteuid(), .gid = getegid()};
	if (ret->uid != 0)
		return;
	ret->kind = is_real_root() ? IDENTITY_ROOT : IDENTITY_CALLER;
	if (!caps_have(CAP_SETUID) || !caps_have(CAP_SETGID) || !caps_have(CAP_CHOWN))
		return;
	kind = owner_of_writable(plan, &owner);
	if (kind == IDENTITY_OWNER)
		*ret = (struct identity){.kind = IDENTITY_OWNER, .uid = owner.uid, .gid = owner.gid};
	else if (kind == IDENTITY_FRESH && both_mapped(FALLBACK_FIRST) && both_mapped(FALLBACK_FIRST + FALLBACK_COUNT - 1))
		*ret = (struct identity){.kind = IDENTITY_FRESH};
}

int identity_take(struct identity *id, struct zw_error *e)
{
	uid_t base;
	int r;

	if (id->kind != IDENTITY_FRESH)
		return 0;
	r = idmap_range(&base, e);
	if (r < 0)
		return r;
	/* In a container with few ids one of those that are no account's; two sandboxes may then share one, and Landlock alone is
	 * between them. */
	id->uid = both_mapped(base) ? base : FALLBACK_FIRST + (unsigned) getpid() % FALLBACK_COUNT;
	id->gid = id->uid;
	return 0;
}
