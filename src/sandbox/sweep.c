#include "sandbox/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/link.h"

char *sweep_path(const char *target, const char *dir, const char *name)
{
	if (strcmp(target, "/") == 0)
		target = "";
	return xasprintf("%s%s%s%s%s", target, dir[0] != '\0' ? "/" : "", dir, name[0] != '\0' ? "/" : "", name);
}

static void note(struct sweep *s, const struct tree_dir *d, const char *name, const char *what, const char *target)
{
	cleanup_free char *path = sweep_path(s->target, d->path, d->path_cut ? "..." : name);

	changes_note_removed(s->changes, path, what, target);
}

static void fail(struct sweep *s, const struct tree_dir *d, const char *name, const char *what, int r)
{
	if (s->failures++ == 0)
		(void) zw_errno(s->e, -r, "cannot remove the %s left at %s/%s%s%s", what, s->target, d->path,
				d->path_size > 0 ? "/" : "", name);
}

/* Only what was judged is removed. Between the check and the unlinkat(2) somebody of the host may still put another thing there;
 * it then loses a name in this very directory, never more. */
static bool remove_node(struct sweep *s, const struct tree_dir *d, const struct tree_node *n, const char *what,
			const char *target)
{
	struct tree_id root;
	int r = tree_identify(d->fd, &root);

	if (r == 0) {
		cleanup_fd int fd = tree_open_node(d->fd, n->name, &(struct tree_id){.ino = n->ino, .place = root.place});

		r = fd < 0 ? fd : tree_unlink(d->fd, n->name, 0);
	}
	if (r == -ENOENT || r == -ESTALE)
		return true; /* gone by another hand */
	if (r < 0) {
		fail(s, d, n->name, what, r);
		return false;
	}
	note(s, d, n->name, what, target);
	return true;
}

static const char *special_kind(const struct sweep *s, mode_t mode)
{
	bool write = s->kind == PLAN_WRITE;

	if (S_ISBLK(mode) || S_ISCHR(mode))
		return "device";
	/* Whoever collects results from a write mount hangs on the one and may talk to nobody on the other. A workspace is a
	 * place of work. */
	if (S_ISFIFO(mode) && write)
		return "named pipe";
	if (S_ISSOCK(mode) && write)
		return "socket";
	return NULL;
}

static bool sweep_link(struct sweep *s, const struct tree_dir *d, const struct tree_node *n)
{
	struct link_place place = {
	    .root = s->root, .source = s->source, .dir = d->fd, .path = d->path_cut ? NULL : d->path, .depth = d->depth};
	char target[PATH_MAX];
	ssize_t size = readlinkat(d->fd, n->name, target, sizeof target - 1);
	enum link_verdict verdict;

	if (size < 0)
		return errno == ENOENT;
	target[size] = '\0';
	verdict = link_judge(&place, target);
	if (verdict == LINK_INSIDE || (verdict == LINK_SYSTEM && s->kind == PLAN_WORKSPACE))
		return false;
	return remove_node(s, d, n, "link that leads out", target);
}

static const char *id_bits(mode_t mode)
{
	return (mode & S_ISUID) != 0 ? "set-user-ID bit" : "set-group-ID bit";
}

static int clear_ids(int dirfd, struct tree_node *n)
{
	struct tree_id id;
	cleanup_fd int fd = -EBADF;
	struct stat st;
	int r = tree_identify(dirfd, &id);

	if (r < 0)
		return r;
	id.ino = n->ino;
	fd = tree_open_node(dirfd, n->name, &id);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = tree_chmod(fd, st.st_mode & 01777);
	if (r == 0)
		n->mode = (uint16_t) (st.st_mode & ~(mode_t) (S_ISUID | S_ISGID));
	return r;
}

static bool sweep_ids(struct sweep *s, const struct tree_dir *d, struct tree_node *n, bool made)
{
	const char *what = id_bits(n->mode);
	int r;

	if ((n->mode & (S_ISUID | S_ISGID)) == 0 || S_ISLNK(n->mode))
		return false;
	/* On a directory the bit hands the group down. Where the folder's owner has set that up, the run's subfolders inherit it,
	 * and keep it. */
	if (S_ISDIR(n->mode)) {
		bool inherited = (d->mode & S_ISGID) != 0 && d->gid == n->gid;

		if (!made || ((n->mode & S_ISUID) == 0 && inherited))
			return false;
	}
	r = clear_ids(d->fd, n);
	if (r == -ENOENT || r == -ESTALE)
		return true;
	if (r < 0 && !S_ISDIR(n->mode))
		return remove_node(s, d, n, "set-user-ID file", NULL); /* rather no file than that one */
	if (r < 0)
		fail(s, d, n->name, what, r);
	else
		note(s, d, n->name, what, NULL);
	return false;
}

bool sweep_node(struct sweep *s, const struct tree_dir *d, struct tree_node *n, bool made)
{
	const char *special = special_kind(s, n->mode);

	if (n->foreign)
		return false;
	if (special != NULL)
		return remove_node(s, d, n, special, NULL);
	if (S_ISLNK(n->mode))
		return sweep_link(s, d, n);
	return sweep_ids(s, d, n, made);
}

void sweep_file(struct sweep *s, int fd, mode_t mode)
{
	const struct tree_dir nowhere = {.fd = -EBADF, .path = ""};
	int r;

	if ((mode & (S_ISUID | S_ISGID)) == 0)
		return;
	r = tree_chmod(fd, mode & 01777);
	if (r < 0)
		fail(s, &nowhere, "", id_bits(mode), r);
	else
		note(s, &nowhere, "", id_bits(mode), NULL);
}
