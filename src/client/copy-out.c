/* From a sandbox to here. Names, types and modes are a stranger's: a request path is made of ours and one checked name, a name
 * here is one component below the folder that the user named (beneath.h). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/beneath.h"
#include "client/copy.h"
#include "client/show.h"

static int refuse(const char *path, const char *why)
{
	cleanup_free char *safe = show_safe(path, SHOW_MAX);

	log_error("%s: %s", safe, why);
	return EXIT_REFUSED;
}

/* ---- Contents. ---- */

struct target {
	int fd, error;
};

static int take_bytes(void *ctx, const char *data, size_t size)
{
	struct target *t = ctx;

	t->error = fd_write_stream(t->fd, data, size);
	return t->error;
}

static int fetch(struct copy *c, const char *path, int fd)
{
	cleanup_free char *request = copy_path(c, "", path);
	struct target target = {.fd = fd};
	struct transfer t;
	CURLcode code;
	int r;

	transfer_init(&t, c->remote, c->remote->spare, "GET", request, NULL);
	t.sink = take_bytes;
	t.ctx = &target;
	code = curl_easy_perform(c->remote->spare);
	if (target.error != 0)
		r = refuse(path, strerror(-target.error));
	else
		r = transfer_judge(&t, code) == 0 ? 0 : refuse(path, "not copied");
	transfer_done(&t);
	return r;
}

static int fetch_into(struct copy *c, const char *path, int parent, const char *name, mode_t mode)
{
	cleanup_free char *temporary = NULL;
	cleanup_fd int fd = beneath_file(parent, &temporary);
	int r;

	if (fd < 0)
		return refuse(path, strerror(-fd));
	r = fetch(c, path, fd);
	if (r != 0) {
		(void) unlinkat(parent, temporary, 0);
		return r;
	}
	r = beneath_place(parent, fd, temporary, name, mode);
	return r < 0 ? refuse(path, strerror(-r)) : 0;
}

/* ---- Folders. ---- */

static char *decode(const char *text)
{
	char *out = xcalloc(strlen(text) + 1, 1), *to = out;

	for (const char *p = text; *p != '\0'; p++)
		if (p[0] == '%' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
			*to++ = (char) (hex_digit(p[1]) * 16 + hex_digit(p[2]));
			p += 2;
		} else {
			*to++ = *p;
		}
	return out;
}

/* The name an entry has in its folder; NULL when that is none. Of its path only the last part counts. */
static char *name_of(const json_t *entry)
{
	const char *encoded = json_string_value(json_object_get(entry, "path_encoded")),
		   *plain = json_string_value(json_object_get(entry, "name"));
	cleanup_free char *path = encoded != NULL ? decode(encoded) : plain != NULL ? xstrdup(plain) : NULL;
	const char *slash = encoded != NULL && path != NULL ? strrchr(path, '/') : NULL, *name = slash != NULL ? slash + 1 : path;

	return name != NULL && beneath_name_is_good(name) ? xstrdup(name) : NULL;
}

static int copy_folder(struct copy *c, const char *path, int folder, size_t depth);

static int copy_entry(struct copy *c, const json_t *entry, const char *folder_path, int folder, size_t depth)
{
	cleanup_free char *name = name_of(entry);
	cleanup_free char *path = name != NULL ? xasprintf("%s/%s", folder_path, name) : NULL;
	const char *target = json_string_value(json_object_get(entry, "target"));
	cleanup_fd int inner = -EBADF;
	int r;

	if (name == NULL)
		return refuse(folder_path, "it lists an entry whose name could lead elsewhere; not copied");
	if (copy_entry_is(entry, "file"))
		return fetch_into(c, path, folder, name, copy_entry_mode(entry));
	if (copy_entry_is(entry, "symlink")) {
		if (target == NULL || !beneath_link_is_inside(target, depth))
			return refuse(path, "a link that leads out of the copied folder; not copied");
		r = beneath_link(folder, name, target);
		return r < 0 ? refuse(path, strerror(-r)) : 0;
	}
	if (!copy_entry_is(entry, "directory"))
		return refuse(path, "neither file, folder nor link; not copied");
	if (depth >= COPY_DEPTH_MAX)
		return refuse(path, "too deep; not copied");
	inner = beneath_folder(folder, name);
	if (inner < 0)
		return refuse(path, strerror(-inner));
	r = copy_folder(c, path, inner, depth + 1);
	if (fchmod(inner, copy_entry_mode(entry)) < 0)
		r = refuse(path, strerror(errno));
	return r;
}

/* Faults of single entries do not keep the others from being copied. */
static int copy_page(struct copy *c, const char *path, const json_t *page, int folder, size_t depth)
{
	const json_t *entries = json_object_get(page, "entries"), *entry;
	int result = 0;
	size_t i;

	json_array_foreach(entries, i, entry)
	{
		if (c->entries >= COPY_ENTRIES_MAX)
			return refuse(path, "more entries than one copy takes");
		c->entries++;
		if (copy_entry(c, entry, path, folder, depth) != 0)
			result = EXIT_REFUSED;
	}
	return result;
}

static int copy_folder(struct copy *c, const char *path, int folder, size_t depth)
{
	cleanup_free char *request = copy_path(c, "/list", path);
	cleanup_free char *next = xasprintf("%s&limit=1000", request);
	int result = 0;

	while (next != NULL) {
		json_t *page = NULL;
		const char *cursor;

		if (remote_ask(c->remote, "GET", next, NULL, &page) != 0)
			return refuse(path, "not copied");
		next = (free(next), NULL);
		if (copy_page(c, path, page, folder, depth) != 0)
			result = EXIT_REFUSED;
		cursor = json_string_value(json_object_get(page, "next_cursor"));
		if (cursor != NULL && json_array_size(json_object_get(page, "entries")) > 0 && c->entries < COPY_ENTRIES_MAX) {
			cleanup_free char *escaped = remote_path("%s", cursor, NULL);

			next = xasprintf("%s&limit=1000&cursor=%s", request, escaped);
		} else if (cursor != NULL) {
			result = refuse(path, "its list has no end");
		}
		json_decref(page);
	}
	return result;
}

/* ---- The top. ---- */

/* The folder and the name that the user means: `to` itself is trusted, and may be a folder or lead through links. */
static int open_place(const char *to, const char *path, bool into_only, int *ret_folder, char **ret_name)
{
	cleanup_free char *source = xstrdup(path), *place = xstrdup(to);
	size_t size = strlen(source);
	char *slash;
	const char *own;

	while (size > 1 && source[size - 1] == '/')
		source[--size] = '\0';
	slash = strrchr(source, '/');
	own = slash != NULL ? slash + 1 : source;
	*ret_folder = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_folder >= 0) {
		*ret_name = beneath_name_is_good(own) ? xstrdup(own) : NULL;
		return *ret_name != NULL || into_only ? 0
						      : refuse(to, "name the file to write: the source has no name of its own");
	}
	size = strlen(place);
	while (size > 1 && place[size - 1] == '/')
		place[--size] = '\0';
	slash = strrchr(place, '/');
	own = slash != NULL ? slash + 1 : place;
	if (!beneath_name_is_good(own))
		return refuse(to, "there is no such folder");
	*ret_name = xstrdup(own);
	if (slash != NULL)
		*slash = '\0';
	*ret_folder = open(slash == NULL ? "." : slash == place ? "/" : place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret_folder >= 0 ? 0 : refuse(to, strerror(errno));
}

int copy_out_of(struct copy *c, const char *path, const char *to)
{
	cleanup_free char *request = copy_path(c, "/stat", path), *name = NULL;
	cleanup_fd int folder = -EBADF, inner = -EBADF;
	json_t *entry = NULL;
	bool is_folder;
	mode_t mode;
	int r;

	if (strcmp(to, "-") == 0)
		return fetch(c, path, STDOUT_FILENO);
	if (remote_ask(c->remote, "GET", request, NULL, &entry) != 0)
		return EXIT_REFUSED;
	is_folder = copy_entry_is(entry, "directory");
	mode = copy_entry_is(entry, "file") ? copy_entry_mode(entry) : is_folder ? copy_entry_mode(entry) : 0644;
	json_decref(entry);
	if (open_place(to, path, is_folder, &folder, &name) != 0)
		return EXIT_REFUSED;
	c->entries++;
	if (!is_folder)
		return fetch_into(c, path, folder, name, mode);
	if (name == NULL)
		return copy_folder(c, path, folder, 0);
	inner = beneath_folder(folder, name);
	if (inner < 0)
		return refuse(to, strerror(-inner));
	r = copy_folder(c, path, inner, 0);
	return fchmod(inner, mode) < 0 ? refuse(to, strerror(errno)) : r;
}
