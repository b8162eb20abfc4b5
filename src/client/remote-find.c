/* Where the daemon is, and which key it is asked with. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "client/remote.h"
#include "client/show.h"
#include "daemon/state.h"

enum { KEY_FILE_MAX = 64 * 1024, KEY_MAX = 512 };

/* A key becomes part of a header line. */
static int set_key(struct remote *r, const char *key, const char *from, struct zw_error *e)
{
	size_t size = strlen(key);

	while (size > 0 && strchr(" \t\r\n", key[size - 1]) != NULL)
		size--;
	for (size_t i = 0; i < size; i++)
		if (key[i] <= ' ' || key[i] >= 0x7f)
			return zw_error(e, EINVAL, "%s: that is no key", from);
	if (size == 0 || size > KEY_MAX)
		return zw_error(e, EINVAL, "%s: that is no key", from);
	r->key = xstrndup(key, size);
	return 0;
}

/* The bare key, or the document of serve --print-key-file, whose address counts where no other was named. */
static int read_key_file(struct remote *r, const char *path, char **ret_url, struct zw_error *e)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
	cleanup_free char *text = NULL;
	const char *key, *url;
	json_t *document;
	size_t size;
	int result;

	if (fd < 0)
		return zw_errno(e, errno, "cannot open the key file %s", path);
	result = fd_read_all(fd, KEY_FILE_MAX, &text, &size);
	if (result < 0)
		return zw_errno(e, -result, "cannot read the key file %s", path);
	document = text[0] == '{' ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
	key = json_string_value(json_object_get(document, "key"));
	url = json_string_value(json_object_get(document, "url"));
	if (document == NULL)
		result = set_key(r, text, path, e);
	else if (key != NULL)
		result = set_key(r, key, path, e);
	else
		result = zw_error(e, EINVAL, "%s has no key: the state already had one when it was written; see zwinger keys add",
				  path);
	*ret_url = url != NULL ? xstrdup(url) : NULL;
	json_decref(document);
	explicit_bzero(text, size);
	return result;
}

static bool is_own_host(const char *url)
{
	static const char *const names[] = {"https://127.", "https://localhost", "https://[::1]"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strncmp(url, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* --cacert, else what --tls self-signed made in the state directory, for addresses of this host or when it was named. */
static void set_trust(struct remote *r, const struct client_options *o)
{
	cleanup_free char *state = o->state != NULL ? xstrdup(o->state) : state_default(NULL);
	cleanup_free char *path = state != NULL ? xasprintf("%s/tls/cert.pem", state) : NULL;
	struct stat st;

	if (o->cacert != NULL)
		r->cacert = xstrdup(o->cacert);
	else if (path != NULL && (o->state != NULL || is_own_host(r->base)) && stat(path, &st) == 0)
		r->cacert = take_ptr(&path);
}

static int set_socket(struct remote *r, const char *path, struct zw_error *e)
{
	cleanup_free char *copy = xstrdup(path);
	char *slash = strrchr(copy, '/');
	const char *folder = ".", *name = copy;

	if (slash != NULL) {
		*slash = '\0';
		folder = slash == copy ? "/" : copy;
		name = slash + 1;
	}
	r->where = show_safe(path, SHOW_MAX);
	r->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r->folder < 0) {
		int error = errno;

		return zw_errno(e, error, "no daemon answers at %s; %s", r->where, r->remedy);
	}
	r->base = xstrdup("http://localhost");
	r->socket = xasprintf("/proc/self/fd/%d/%s", r->folder, name);
	return 0;
}

static int set_url(struct remote *r, const char *url, const struct client_options *o, struct zw_error *e)
{
	size_t size = strlen(url);

	r->remedy = xstrdup("is it running (zwinger serve), and is this its address? Others: --url, ZWINGER_URL, --state");
	if (strncmp(url, "unix:", 5) == 0)
		return set_socket(r, url + 5, e);
	if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
		return zw_error(e, EINVAL, "the address of the daemon must begin with http://, https:// or unix:");
	if (strpbrk(url, "@?# \t\r\n") != NULL)
		return zw_error(e, EINVAL, "the address of the daemon has no user, question mark, fragment or white space");
	while (size > 0 && url[size - 1] == '/')
		size--;
	r->base = xstrndup(url, size);
	r->where = show_safe(r->base, SHOW_MAX);
	set_trust(r, o);
	return 0;
}

static int set_state(struct remote *r, const char *named, struct zw_error *e)
{
	cleanup_free char *state = named != NULL ? xstrdup(named) : state_default(e);
	cleanup_free char *path = state != NULL ? xasprintf("%s/zwinger.sock", state) : NULL;
	cleanup_free char *shown = state != NULL ? show_safe(state, SHOW_MAX) : NULL;

	if (path == NULL)
		return -ENOENT;
	r->remedy = named != NULL ? xasprintf("start one with: zwinger serve --state %s", shown)
				  : xstrdup("start one with: zwinger serve; or name another with --url or --state");
	return set_socket(r, path, e);
}

int remote_open(const struct client_options *o, struct remote *ret, struct zw_error *e)
{
	const char *env_url = getenv("ZWINGER_URL"), *env_key = getenv("ZWINGER_KEY"), *url = o->url;
	cleanup_free char *file_url = NULL;
	int r = 0;

	*ret = (struct remote){.folder = -EBADF};
	if (o->key_file != NULL)
		r = read_key_file(ret, o->key_file, &file_url, e);
	if (url == NULL && o->state == NULL)
		url = file_url != NULL ? file_url : env_url != NULL && env_url[0] != '\0' ? env_url : NULL;
	/* The key of the environment is for the address of the environment, or one that was typed; a socket needs none. */
	if (r == 0 && ret->key == NULL && url != NULL && env_key != NULL && env_key[0] != '\0')
		r = set_key(ret, env_key, "ZWINGER_KEY", e);
	if (r == 0)
		r = url != NULL ? set_url(ret, url, o, e) : set_state(ret, o->state, e);
	ret->spare = r == 0 ? curl_easy_init() : NULL;
	if (r == 0 && ret->spare == NULL)
		r = zw_error(e, ENOMEM, "libcurl cannot be started");
	if (r < 0)
		remote_done(ret);
	return r;
}
