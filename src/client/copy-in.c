/* From here into a sandbox. Links in a folder are not followed, so that nothing outside it is sent by mistake. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/copy.h"
#include "client/show.h"

static int refuse(const char *path, const char *why)
{
	cleanup_free char *safe = show_safe(path, SHOW_MAX);

	log_error("%s: %s", safe, why);
	return EXIT_REFUSED;
}

struct source {
	int fd, error;
};

static size_t give_bytes(char *to, size_t one, size_t size, void *ctx)
{
	struct source *s = ctx;
	ssize_t n;

	do
		n = read(s->fd, to, one * size);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return (size_t) n;
	s->error = errno;
	return CURL_READFUNC_ABORT;
}

/* `size` negative: not known. A file that shrinks meanwhile fails, one that grows is cut. */
static int send_file(struct copy *c, int fd, const char *from, const char *path, mode_t mode, off_t size)
{
	cleanup_free char *request = copy_path(c, "", path);
	cleanup_free char *full = xasprintf("%s&mode=%04o", request, (unsigned) (mode & 0777));
	struct source source = {.fd = fd};
	struct transfer t;
	CURLcode code;
	int r;

	transfer_init(&t, c->remote, c->remote->spare, "PUT", full, NULL);
	transfer_upload(&t, give_bytes, &source, size);
	code = curl_easy_perform(c->remote->spare);
	if (source.error != 0)
		r = refuse(from, strerror(source.error));
	else
		r = transfer_judge(&t, code) == 0 ? 0 : refuse(from, "not copied");
	transfer_done(&t);
	c->entries++;
	return r;
}

/* Also fine when there is one already. */
static int make_folder(struct copy *c, const char *from, const char *path, mode_t mode)
{
	cleanup_free char *request = copy_path(c, "/directory", NULL);
	char bits[8];
	json_t *body;

	(void) snprintf(bits, sizeof bits, "%04o", (unsigned) (mode & 0777) | 0700); /* what comes into it must be written */
	body = json_pack("{ss ss}", "path", path, "mode", bits);
	if (body == NULL)
		return refuse(from, "the name of a folder must be UTF-8 inside; not copied");
	c->entries++;
	return remote_ask(c->remote, "POST", request, body, NULL) == 0 ? 0 : refuse(from, "not copied");
}

static int send_entry(struct copy *c, int folder, const char *name, const char *from, const char *path, size_t depth);

/* Takes over `fd`. */
static int send_folder(struct copy *c, int fd, const char *from, const char *path, size_t depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int result = 0;

	if (d == NULL) {
		fd_close(&fd);
		return refuse(from, strerror(errno));
	}
	while ((errno = 0, e = readdir(d)) != NULL) {
		cleanup_free char *inner = xasprintf("%s/%s", from, e->d_name), *target = xasprintf("%s/%s", path, e->d_name);

		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    send_entry(c, dirfd(d), e->d_name, inner, target, depth) != 0)
			result = EXIT_REFUSED;
	}
	if (errno != 0)
		result = refuse(from, strerror(errno));
	(void) closedir(d);
	return result;
}

static int send_open(struct copy *c, int fd, const char *from, const char *path, size_t depth)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return refuse(from, strerror(errno));
	if (S_ISREG(st.st_mode))
		return send_file(c, fd, from, path, st.st_mode, st.st_size);
	if (!S_ISDIR(st.st_mode))
		return refuse(from, "neither file nor folder; not copied");
	if (depth > COPY_DEPTH_MAX)
		return refuse(from, "too deep; not copied");
	if (make_folder(c, from, path, st.st_mode) != 0)
		return EXIT_REFUSED;
	return send_folder(c, fcntl(fd, F_DUPFD_CLOEXEC, 3), from, path, depth + 1);
}

static int send_entry(struct copy *c, int folder, const char *name, const char *from, const char *path, size_t depth)
{
	/* O_NONBLOCK: a FIFO is looked at, not waited for. */
	cleanup_fd int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return refuse(from, errno == ELOOP ? "a link; not copied" : strerror(errno));
	return send_open(c, fd, from, path, depth);
}

/* "dir/" and folders that are there get the source below them, under its own name. */
static int find_place(struct copy *c, const char *from, const char *path, char **ret)
{
	cleanup_free char *request = copy_path(c, "/stat", path), *own = xstrdup(from);
	size_t size = strlen(own), path_size = strlen(path);
	bool into = path[path_size - 1] == '/' || strcmp(path, ".") == 0;
	json_t *entry = NULL;
	const char *slash;
	long status = 0;

	if (!into && remote_try(c->remote, "GET", request, &entry, &status) != 0 && status != 404)
		return (void) remote_ask(c->remote, "GET", request, NULL, NULL), EXIT_REFUSED; /* which says why */
	into = into || copy_entry_is(entry, "directory");
	json_decref(entry);
	while (size > 1 && own[size - 1] == '/')
		own[--size] = '\0';
	slash = strrchr(own, '/');
	slash = slash != NULL ? slash + 1 : own;
	if (into && (*slash == '\0' || strcmp(slash, ".") == 0 || strcmp(slash, "..") == 0 || strcmp(slash, "-") == 0))
		return *slash == '.' ? (*ret = xstrdup(path), 0) : refuse(from, "name the file to write: the source has no name");
	*ret = into ? xasprintf("%s%s%s", path, path[path_size - 1] == '/' ? "" : "/", slash) : xstrdup(path);
	return 0;
}

int copy_into(struct copy *c, const char *from, const char *path)
{
	cleanup_free char *place = NULL;
	cleanup_fd int fd = -EBADF;

	if (strcmp(from, "-") == 0)
		return find_place(c, from, path, &place) != 0 ? EXIT_REFUSED : send_file(c, STDIN_FILENO, from, place, 0644, -1);
	fd = open(from, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* the user's own word may lead through links */
	if (fd < 0)
		return refuse(from, strerror(errno));
	return find_place(c, from, path, &place) != 0 ? EXIT_REFUSED : send_open(c, fd, from, place, 0);
}
