/* What is done at once: descriptions, folders, users. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/files/files.h"

enum step stat_step(struct files *f, struct job *j)
{
	struct described d;
	int error = describe(j->path, j->flags, &d);

	return error != 0 ? done(f, j, error) : done_with(f, j, 0, 0, &d);
}

/* A folder that is there already, also behind a link, is as good. */
static int find_folder(int parent, const char *name)
{
	int folder = openat(parent, name, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (folder < 0)
		return errno == ENOENT ? EEXIST : errno; /* a link that leads nowhere */
	close_fd(&folder);
	return 0;
}

static int make_folder(const struct job *j, bool *ret_created)
{
	const char *name = path_name(j->path);
	int parent, error;

	*ret_created = false;
	if (name[0] == '\0')
		return 0;
	error = path_open_parent(j->path, true, &parent);
	if (error != 0)
		return error;
	*ret_created = mkdirat(parent, name, (j->flags & FILES_MODE) != 0 ? j->mode : 0755) == 0;
	if (!*ret_created)
		error = errno == EEXIST ? find_folder(parent, name) : errno;
	close_fd(&parent);
	return error;
}

enum step mkdir_step(struct files *f, struct job *j)
{
	struct described d;
	bool created;
	int error = make_folder(j, &created);

	if (error == 0)
		error = describe(j->path, j->flags, &d);
	return error != 0 ? done(f, j, error) : done_with(f, j, 0, created ? FILES_DONE_CREATED : 0, &d);
}

enum step user_step(struct files *f, struct job *j)
{
	uint32_t uid, gid;
	int error = user_find(j->path, &uid, &gid);

	return error != 0 ? done(f, j, error) : done_user(f, j, uid, gid);
}
