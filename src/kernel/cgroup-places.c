/* Where the caller is in each mounted hierarchy.
 *
 * /proc/self/cgroup names the caller's group from the top of its cgroup namespace. To turn that into a directory one needs the
 * mount and which part of the hierarchy it shows. In the initial cgroup namespace with the usual mount points that takes no look
 * at mountinfo, whose length (and cost) grows with the mounts of the host: the top directory of a hierarchy has inode number 1,
 * so a mount that shows it shows everything. Everywhere else (containers, odd mount points, bind mounts of a part) mountinfo
 * decides. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

/* The inode number of the initial cgroup namespace (PROC_CGROUP_INIT_INO of the kernel, unchanged since 4.6). */
#define USUAL_MOUNT "/sys/fs/cgroup"
#define INIT_NAMESPACE "cgroup:[4026531835]"

enum { MOUNTINFO_MAX = 16 << 20, SELF_CGROUP_MAX = 32 << 10, TOP_INODE = 1 };

const char *const cgroup_names[] = {
    [CGROUP_MEMORY] = "memory", [CGROUP_PIDS] = "pids", [CGROUP_CPU] = "cpu", [CGROUP_CPUACCT] = "cpuacct", [CGROUP_IO] = "io",
};
_Static_assert(ARRAY_SIZE(cgroup_names) == CGROUP_CONTROLLER_MAX, "a name a controller");

char *cgroup_word(char **rest, const char *separators)
{
	char *word = *rest + strspn(*rest, separators);
	char *end = word + strcspn(word, separators);

	*rest = *end == '\0' ? end : end + 1;
	*end = '\0';
	return *word == '\0' ? NULL : word;
}

/* True when `list`, comma-separated, has the item. */
static bool list_has(const char *list, const char *item)
{
	size_t size = strlen(item);

	for (const char *p = list;; p++) {
		size_t n = strcspn(p, ",");

		if (n == size && memcmp(p, item, n) == 0)
			return true;
		p += n;
		if (*p == '\0')
			return false;
	}
}

static unsigned controllers_of(const char *names)
{
	unsigned mask = 0;

	for (size_t i = 0; i < CGROUP_CONTROLLER_MAX; i++)
		if (list_has(names, i == CGROUP_IO ? "blkio" : cgroup_names[i]))
			mask |= CGROUP_BIT(i);
	return mask;
}

/* One line of /proc/self/cgroup: "4:memory:/a/b", "0::/a". */
static void add_place(struct cgroup_places *p, char *line)
{
	char *names = strchr(line, ':'), *path;
	unsigned controllers;
	bool v2;

	if (names == NULL || p->count == ARRAY_SIZE(p->at))
		return;
	names++;
	path = strchr(names, ':');
	/* A path that starts with "/.." lies outside of our cgroup namespace: nothing below it can be named. */
	if (path == NULL || path[1] != '/' || strncmp(path + 1, "/..", 3) == 0)
		return;
	*path++ = '\0';
	v2 = *names == '\0';
	controllers = controllers_of(names);
	if (!v2 && controllers == 0)
		return;
	p->at[p->count++] = (struct cgroup_place){
	    .version = v2 ? CGROUP_V2 : CGROUP_V1,
	    .controllers = controllers,
	    .path = xstrdup(path),
	    .names = xstrdup(names),
	    .root = -EBADF,
	};
}

int cgroup_places_find(struct cgroup_places *ret, struct zw_error *e)
{
	char text[SELF_CGROUP_MAX];
	struct cgroup_places p = {.count = 0};
	char ns[64], *rest = text;
	ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, SELF_CGROUP_MAX);

	if (n < 0)
		return zw_errno(e, (int) -n, "cannot read /proc/self/cgroup");
	for (char *line = cgroup_word(&rest, "\n"); line != NULL; line = cgroup_word(&rest, "\n"))
		add_place(&p, line);
	n = readlink("/proc/self/ns/cgroup", ns, sizeof ns);
	p.init_namespace = n == sizeof INIT_NAMESPACE - 1 && memcmp(ns, INIT_NAMESPACE, (size_t) n) == 0;
	*ret = p;
	return 0;
}

void cgroup_places_done(struct cgroup_places *places)
{
	for (size_t i = 0; i < places->count; i++) {
		fd_close(&places->at[i].root);
		free(places->at[i].path);
		free(places->at[i].names);
	}
	free(places->mountinfo);
	*places = (struct cgroup_places){.count = 0};
}

struct cgroup_place *cgroup_place_of(struct cgroup_places *places, enum cgroup_version version, enum cgroup_controller controller)
{
	for (size_t i = 0; i < places->count; i++) {
		struct cgroup_place *p = &places->at[i];

		if (p->version == version && (version == CGROUP_V2 || (p->controllers & CGROUP_BIT(controller)) != 0))
			return p;
	}
	return NULL;
}

bool cgroup_parent(char *rel)
{
	char *slash = strrchr(rel, '/');

	if (*rel == '\0')
		return false;
	if (slash == NULL)
		*rel = '\0';
	else
		*slash = '\0';
	return true;
}

bool cgroup_place_has_groups(const struct cgroup_places *places, const struct cgroup_place *place)
{
	char path[4096];
	struct stat st;
	int n;

	if (place->version != CGROUP_V1 || !places->init_namespace)
		return true;
	n = snprintf(path, sizeof path, USUAL_MOUNT "/%s%s", place->names, place->path);
	if (n < 0 || (size_t) n >= sizeof path)
		return true;
	return stat(path, &st) < 0 || st.st_nlink != 2;
}

int cgroup_open_dir(int dirfd, const char *rel)
{
	/* Opening and closing a directory of kernfs is not cheap; the same one again is a duplicate. */
	int fd =
	    *rel == '\0' ? fcntl(dirfd, F_DUPFD_CLOEXEC, 3) : openat(dirfd, rel, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Opens a mount point if a hierarchy of the version is mounted on it. */
static int open_mount(const char *path, enum cgroup_version version, int *ret_fd)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (fd < 0)
		return -errno;
	if (fstatfs(fd, &fs) < 0)
		return -errno;
	if ((unsigned long) fs.f_type != (version == CGROUP_V2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC))
		return -ENOENT;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int open_usual(const struct cgroup_places *places, struct cgroup_place *place, const char *mount)
{
	cleanup_fd int fd = -EBADF;
	struct stat st;
	int r;

	if (!places->init_namespace)
		return -ENOENT;
	r = open_mount(mount, place->version, &fd);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || st.st_ino != TOP_INODE)
		return -ENOENT;
	place->rel = place->path + 1;
	place->whole = true;
	place->root = take_fd(&fd);
	return 0;
}

/* Undoes the octal escapes of mountinfo, in place. */
static void unescape(char *s)
{
	char *out = s;

	while (*s != '\0') {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*out++ = (char) ((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 4;
		} else {
			*out++ = *s++;
		}
	}
	*out = '\0';
}

/* The part of `path` below `top`, or NULL when it is not below. */
static const char *below(const char *path, const char *top)
{
	size_t n = strlen(top);

	if (n == 1) /* "/" */
		return path + 1;
	if (strncmp(path, top, n) != 0)
		return NULL;
	if (path[n] == '\0')
		return path + n;
	return path[n] == '/' ? path + n + 1 : NULL;
}

/* One line of mountinfo, proc_pid_mountinfo(5): "31 23 0:28 ROOT POINT opts [tags] - TYPE SOURCE SUPEROPTS". */
static int try_mount(struct cgroup_place *place, char *line)
{
	char *tail = strstr(line, " - "), *rest = line, *field[5], *type, *options;
	const char *rel;
	int r;

	if (tail == NULL)
		return -ENOENT;
	*tail = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(field); i++) {
		field[i] = cgroup_word(&rest, " ");
		if (field[i] == NULL)
			return -ENOENT;
	}
	rest = tail + 3;
	type = cgroup_word(&rest, " ");
	(void) cgroup_word(&rest, " "); /* source */
	options = cgroup_word(&rest, " ");
	if (type == NULL || options == NULL || strcmp(type, place->version == CGROUP_V2 ? "cgroup2" : "cgroup") != 0)
		return -ENOENT;
	if (place->version == CGROUP_V1 && (controllers_of(options) & place->controllers) != place->controllers)
		return -ENOENT;
	unescape(field[3]);
	unescape(field[4]);
	rel = below(place->path, field[3]);
	if (rel == NULL)
		return -ENOENT;
	r = open_mount(field[4], place->version, &place->root);
	if (r == 0)
		place->rel = rel;
	return r;
}

static int open_by_mountinfo(struct cgroup_places *places, struct cgroup_place *place)
{
	const char *next;

	if (places->mountinfo == NULL) {
		cleanup_fd int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
		size_t size;
		int r;

		if (fd < 0)
			return -errno;
		r = fd_read_all(fd, MOUNTINFO_MAX, &places->mountinfo, &size);
		if (r < 0)
			return r;
	}
	for (const char *p = places->mountinfo; *p != '\0'; p = next) {
		size_t n = strcspn(p, "\n");
		cleanup_free char *line = NULL;

		next = p + n + (p[n] == '\n');
		/* Only the lines that matter are copied: most are not cgroups. */
		if (memmem(p, n, " - cgroup", sizeof " - cgroup" - 1) == NULL)
			continue;
		line = xstrndup(p, n);
		if (try_mount(place, line) == 0)
			return 0;
	}
	return -ENOENT;
}

int cgroup_place_open(struct cgroup_places *places, struct cgroup_place *place)
{
	char mount[128];

	if (place->root >= 0)
		return 0;
	if (place->version == CGROUP_V2) {
		/* The hybrid layout first: there the other name is a tmpfs, which open_mount tells apart. */
		if (places->count > 1 && open_usual(places, place, USUAL_MOUNT "/unified") == 0)
			return 0;
		if (open_usual(places, place, USUAL_MOUNT) == 0)
			return 0;
	} else {
		int n = snprintf(mount, sizeof mount, USUAL_MOUNT "/%s", place->names);

		if (n > 0 && (size_t) n < sizeof mount && open_usual(places, place, mount) == 0)
			return 0;
	}
	return open_by_mountinfo(places, place);
}
