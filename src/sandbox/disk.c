#include "sandbox/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/processes.h"
#include "sandbox/tree.h"

enum {
	UNNAMED_MAX = 65536,
	INODE_BYTES =
	    256, /* what a file takes at least: without it empty ones cost nothing, and a walk over millions takes long */
};

static uint64_t blocks_of(const struct stat *st)
{
	uint64_t bytes = (uint64_t) st->st_blocks * 512;

	/* A file with several links is found several times: each counts its share. */
	return S_ISDIR(st->st_mode) || st->st_nlink < 2 ? bytes : bytes / st->st_nlink;
}

struct tree_sum {
	uint64_t bytes, files;
	uint64_t bytes_max, files_max;
	uint64_t each; /* bytes that a name costs besides its blocks */
};

static int add_nodes(void *ctx, const struct tree_dir *d, struct tree_node *nodes, size_t count)
{
	struct tree_sum *sum = ctx;

	sum->files += count;
	sum->bytes += count * sum->each;
	for (size_t i = 0; i < count; i++) {
		struct stat st;

		if (!nodes[i].foreign && fstatat(d->fd, nodes[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			sum->bytes += blocks_of(&st);
	}
	return sum->bytes > sum->bytes_max || sum->files > sum->files_max ? -E2BIG : 0;
}

/* Files without a name, which no walk finds: unlinked while open, or made by O_TMPFILE. They take room as long as a process has
 * them open or mapped. */
struct unnamed {
	dev_t device;
	ino_t inode;
	uint64_t bytes;
};

struct unnamed_list {
	dev_t devices[PLAN_MOUNTS_MAX]; /* of the writable folders */
	size_t device_count;
	struct unnamed *items;
	size_t count, room;
};

static void add_unnamed(struct unnamed_list *l, dev_t device, ino_t inode, uint64_t bytes)
{
	bool ours = false;

	for (size_t i = 0; i < l->device_count; i++)
		ours |= l->devices[i] == device;
	if (!ours || l->count == UNNAMED_MAX)
		return;
	if (l->count == l->room) {
		l->room = l->room == 0 ? 64 : l->room * 2;
		l->items = xrealloc(l->items, l->room, sizeof *l->items);
	}
	l->items[l->count++] = (struct unnamed){.device = device, .inode = inode, .bytes = bytes};
}

static void add_open_files(struct unnamed_list *l, pid_t pid)
{
	struct dirent *d;
	char path[32];
	DIR *dir;

	(void) snprintf(path, sizeof path, "/proc/%d/fd", (int) pid);
	dir = opendir(path);
	if (dir == NULL)
		return;
	for (d = readdir(dir); d != NULL; d = readdir(dir)) {
		struct stat st;

		if (d->d_name[0] != '.' && fstatat(dirfd(dir), d->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0)
			add_unnamed(l, st.st_dev, st.st_ino, (uint64_t) st.st_blocks * 512);
	}
	(void) closedir(dir);
}

/* proc_pid_maps(5). How much of the file is on disk is not said there: up to the end of the mapping is never too little, and no
 * file can be larger than the limit (RLIMIT_FSIZE). */
static void add_mapped_files(struct unnamed_list *l, pid_t pid)
{
	static const char mark[] = " (deleted)\n";
	char *line = NULL, path[32];
	size_t room = 0;
	ssize_t n;
	FILE *f;

	(void) snprintf(path, sizeof path, "/proc/%d/maps", (int) pid);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	for (n = getline(&line, &room, f); n > 0; n = getline(&line, &room, f)) {
		uint64_t start, end, offset, major, minor;
		char *p = line;

		if ((size_t) n < sizeof mark || strcmp(line + n - (sizeof mark - 1), mark) != 0)
			continue;
		start = strtoull(p, &p, 16);
		end = *p == '-' ? strtoull(p + 1, &p, 16) : 0;
		p += strcspn(p + (*p == ' '), " ") + (*p == ' '); /* the permissions */
		offset = strtoull(p, &p, 16);
		major = strtoull(p, &p, 16);
		minor = *p == ':' ? strtoull(p + 1, &p, 16) : 0;
		add_unnamed(l, makedev((unsigned) major, (unsigned) minor), strtoull(p, &p, 10),
			    end > start ? offset + (end - start) : 0);
	}
	free(line);
	(void) fclose(f);
}

static bool add_process(void *ctx, const struct process *p)
{
	add_open_files(ctx, p->pid);
	add_mapped_files(ctx, p->pid);
	return true;
}

/* The same file together, the exact figure of an open one before what its mappings say. */
static int compare_unnamed(const void *a, const void *b)
{
	const struct unnamed *x = a, *y = b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool is_counted(const struct sandbox *s, size_t i)
{
	return s->plan->mounts[i].writable && (i >= ARRAY_SIZE(s->upper) || s->upper[i] < 0);
}

static uint64_t unnamed_used(const struct sandbox *s)
{
	struct unnamed_list l = {.count = 0};
	uint64_t sum = 0;

	for (size_t i = 0; i < s->plan->mount_count && l.device_count < ARRAY_SIZE(l.devices); i++) {
		struct stat st;

		if (is_counted(s, i) && fstat(s->plan->mounts[i].fd, &st) == 0)
			l.devices[l.device_count++] = st.st_dev;
	}
	if (s->pid > 0 && l.device_count > 0)
		processes_walk(s->pid, false, add_process, &l);
	if (l.count > 1)
		qsort(l.items, l.count, sizeof *l.items, compare_unnamed);
	for (size_t i = 0; i < l.count; i++)
		if (i == 0 || l.items[i].device != l.items[i - 1].device || l.items[i].inode != l.items[i - 1].inode)
			sum += l.items[i].bytes;
	free(l.items);
	return sum;
}

/* However deep: the walk has no limit that could be hidden behind. Folders that the program has closed to its own user are opened
 * up for the look. */
uint64_t disk_used(const struct sandbox *s)
{
	struct tree_sum sum = {.bytes_max = UINT64_MAX, .files_max = UINT64_MAX, .each = INODE_BYTES};
	const struct tree_visitor visitor = {.ctx = &sum, .dir = add_nodes};

	for (size_t i = 0; i < s->plan->mount_count; i++) {
		const struct plan_mount *m = &s->plan->mounts[i];
		struct tree_gaps gaps;
		struct stat st;

		if (!is_counted(s, i) || fstat(m->fd, &st) < 0)
			continue;
		sum.bytes += blocks_of(&st);
		if (S_ISDIR(st.st_mode))
			(void) tree_walk(m->fd, &visitor, 0, true, &gaps);
	}
	return sum.bytes + unnamed_used(s);
}

bool disk_scratch_over(const struct sandbox *s, uint64_t *ret_left)
{
	struct tree_sum sum = {.bytes_max = s->plan->scratch_size, .files_max = s->plan->scratch_inodes};
	const struct tree_visitor visitor = {.ctx = &sum, .dir = add_nodes};
	struct tree_gaps gaps;

	if (s->scratch < 0)
		return false;
	if (tree_walk(s->scratch, &visitor, 0, true, &gaps) == -E2BIG)
		return true;
	*ret_left = sum.bytes_max - sum.bytes;
	return false;
}
