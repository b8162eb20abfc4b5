#include "daemon/files-json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/files-decode.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox.h"
#include "policy/text.h"
#include "sandbox/encode.h"

void refuse_files(struct request *r, int error)
{
	static const struct {
		int error;
		enum problem_code code;
		const char *message;
	} rows[] = {
	    {ENOENT, PROBLEM_NOT_FOUND, "there is no such file"},
	    {EACCES, PROBLEM_PERMISSION_DENIED, "the file system inside does not permit it"},
	    {EPERM, PROBLEM_PERMISSION_DENIED, "the file system inside does not permit it"},
	    {EROFS, PROBLEM_PERMISSION_DENIED, "it lies on a file system that is read-only inside"},
	    {EEXIST, PROBLEM_CONFLICT, "there is a file already"},
	    {ENOTEMPTY, PROBLEM_CONFLICT, "the directory is not empty"},
	    {EBUSY, PROBLEM_CONFLICT, "it is in use"},
	    {EXDEV, PROBLEM_CONFLICT, "it cannot be moved to another file system"},
	    {ENOTDIR, PROBLEM_NOT_A_DIRECTORY, "a part of the path is no directory"},
	    {EISDIR, PROBLEM_IS_A_DIRECTORY, "it is a directory"},
	    {FILES_NOT_REGULAR, PROBLEM_NOT_A_REGULAR_FILE, "it is no regular file"},
	    {ENOSPC, PROBLEM_INSUFFICIENT_STORAGE, "there is no room left inside"},
	    {EDQUOT, PROBLEM_INSUFFICIENT_STORAGE, "there is no room left inside"},
	    {EFBIG, PROBLEM_TOO_LARGE, "it is larger than the policy allows"},
	    {ENAMETOOLONG, PROBLEM_BAD_REQUEST, "the path is too long"},
	    {EINVAL, PROBLEM_BAD_REQUEST, "the path or an argument is not good"},
	    {ELOOP, PROBLEM_BAD_REQUEST, "there are too many links on the way"},
	    {EOPNOTSUPP, PROBLEM_NOT_SUPPORTED, "the file system inside cannot do that"},
	    {FILES_SHORT, PROBLEM_CONFLICT, "the file was changed meanwhile"},
	    {EAGAIN, PROBLEM_BUSY, "too much is under way in this sandbox"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].error == error) {
			refuse(r, rows[i].code, NULL, "path: %s", rows[i].message);
			return;
		}
	if (error == ESHUTDOWN)
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "the program that works on files inside has ended");
	else
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "it failed: %s",
		       error < 4000 ? strerror(error) : "for no known reason");
}

const char *files_type(uint32_t mode)
{
	static const struct {
		uint32_t mode;
		const char *name;
	} types[] = {{S_IFREG, "file"}, {S_IFDIR, "directory"}, {S_IFLNK, "symlink"}, {S_IFIFO, "fifo"}, {S_IFSOCK, "socket"}};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((mode & S_IFMT) == types[i].mode)
			return types[i].name;
	return "device";
}

json_t *files_text(const char *text)
{
	cleanup_free char *escaped = encode_text(text);

	return json_string(escaped);
}

bool files_is_utf8(const char *text)
{
	size_t bad;

	return text_is_utf8(text, strlen(text), &bad);
}

json_t *files_percent(const char *path)
{
	cleanup_free char *out = xcalloc(strlen(path) * 3 + 1, 1);
	char *to = out;

	for (const unsigned char *p = (const unsigned char *) path; *p != '\0'; p++)
		if (*p <= ' ' || *p >= 0x7f || strchr("%?#&+", *p) != NULL)
			to += snprintf(to, 4, "%%%02X", *p);
		else
			*to++ = (char) *p;
	return json_string(out);
}

static json_t *owner(const char *name, uint32_t id)
{
	return name[0] != '\0' ? json_string(name) : json_sprintf("%u", id);
}

json_t *files_entry_to_json(const struct files_entry *e)
{
	const char *slash = strrchr(e->path, '/');
	char mode[8];
	json_t *o;

	(void) snprintf(mode, sizeof mode, "%04o", e->mode & 07777);
	o = json_pack("{so so ss sI ss so so so}", "name", files_text(slash != NULL && slash[1] != '\0' ? slash + 1 : e->path),
		      "path", files_text(e->path), "type", files_type(e->mode), "size", (json_int_t) e->size, "mode", mode,
		      "user", owner(e->user, e->uid), "group", owner(e->group, e->gid), "modified_at",
		      e->mtime > 0 ? json_time((usec_t) e->mtime * USEC_PER_SEC + e->mtime_nsec / 1000) : json_null());
	if (e->target != NULL)
		(void) json_object_set_new(o, "target", files_text(e->target));
	if (!files_is_utf8(e->path))
		(void) json_object_set_new(o, "path_encoded", files_percent(e->path));
	return o;
}

bool files_path_of(struct request *r, const char **ret)
{
	const char *path = request_query(r, "path");

	if (path == NULL || path[0] == '\0' || strlen(path) >= FILES_PATH_MAX) {
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "path: expected a path of 1 to %d bytes", FILES_PATH_MAX - 1);
		return false;
	}
	*ret = path;
	return true;
}

/* /etc/passwd inside is our own (sandbox/root.c): these are all names. */
static bool files_user_of(struct request *r, const struct sandbox *s, bool *ret_root)
{
	const char *user = request_query(r, "user");
	uint64_t number = 1000;

	*ret_root = user != NULL && (strcmp(user, "root") == 0 || strcmp(user, "0") == 0);
	if (user == NULL || strcmp(user, "user") == 0 || strcmp(user, "1000") == 0 || (*ret_root && s->has_root))
		return true;
	if (!*ret_root && strcmp(user, "nobody") != 0 && parse_whole(user, &number) < 0)
		refuse(r, PROBLEM_BAD_REQUEST, "use user, root or a number", "user: there is no user of this name inside");
	else
		refuse(r, PROBLEM_NOT_ENFORCEABLE,
		       *ret_root ? "leave `user` out, or start the service as root, with isolation: container"
				 : "leave `user` out",
		       "user: no call can act as this one, there is %s `user` (1000) inside",
		       s->has_root ? "`root` (0) and" : "only");
	return false;
}

struct files_client *files_client_as(struct request *r, struct sandbox *s, bool root)
{
	struct files_client *c = sandbox_files_as(s, root);

	if (c == NULL)
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "the program that works on files inside cannot be started now");
	return c;
}

struct files_client *files_client_of(struct request *r, struct sandbox *s)
{
	bool root = false;

	return files_user_of(r, s, &root) ? files_client_as(r, s, root) : NULL;
}
