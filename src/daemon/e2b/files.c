/* /files of a sandbox: one file out, one or several in. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/e2b/file-metadata.h"
#include "daemon/e2b/multipart.h"
#include "daemon/files-client.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox.h"
#include "egress/inflate.h"
#include "sandbox/encode.h"

enum { FILES_IN_ONE_MAX = 10000 };

/* Where the file that is being written stands. */
enum phase { PHASE_NONE, PHASE_OPENING, PHASE_WRITING, PHASE_COMMITTING };

struct upload {
	struct request *request;
	struct sandbox_cut cut;
	struct files_client *client;
	struct files_call *call; /* NULL: none */
	enum phase phase;
	struct event *event; /* of the pipe */
	int fd;
	uint64_t moved;

	bool many, gzip, skipping; /* many: multipart; else the whole body is one file */
	bool whole;                /* everything of the body is in `in`, or was */
	bool part_over;            /* everything of the file is in `data`, or was */
	bool stuck;                /* the pipe is full */
	struct evbuffer *in, *data;
	struct multipart multipart;
	struct inflate *inflate;
	const char *path;              /* of the query, as zwinger-files takes it; NULL: each part says its own */
	struct file_metadata metadata; /* of each file */
	json_t *results, *seen;
};

static void upload_free(struct upload *u)
{
	sandbox_cut_remove(&u->cut);
	if (u->call != NULL)
		files_cancel(u->call);
	if (u->event != NULL)
		event_free(u->event);
	fd_close(&u->fd);
	if (u->in != NULL)
		evbuffer_free(u->in);
	if (u->data != NULL)
		evbuffer_free(u->data);
	inflate_free(u->inflate);
	json_decref(u->results);
	json_decref(u->seen);
	free(u);
}

static void upload_cut(struct sandbox_cut *c)
{
	struct upload *u = (struct upload *) ((char *) c - offsetof(struct upload, cut));
	struct request *r = u->request;

	upload_free(u);
	request_reset(r);
}

/* Each ends the upload and gives its caller false. */
static bool upload_refuse(struct upload *u, unsigned status, const char *message)
{
	struct request *r = u->request;

	upload_free(u);
	e2b_refuse(r, status, "%s", message);
	return false;
}

static bool upload_failed(struct upload *u, int error)
{
	struct request *r = u->request;

	if (error == EOPNOTSUPP && u->metadata.size > 0)
		return upload_refuse(u, 501, "the file system that it lies on inside keeps no metadata; leave X-Metadata- out");
	upload_free(u);
	refuse_files(r, error);
	return false;
}

/* ---- One file. ---- */

static void work(struct upload *u);

static void close_pipe(struct upload *u)
{
	if (u->event != NULL)
		event_free(u->event);
	u->event = NULL;
	fd_close(&u->fd);
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
	struct upload *u = arg;

	(void) fd;
	(void) what;
	u->stuck = false;
	work(u);
}

static void opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *e)
{
	struct upload *u = ctx;

	(void) range;
	(void) e;
	u->fd = fd;
	u->phase = PHASE_WRITING;
	u->event = event_new(u->request->daemon->base, fd, EV_WRITE, on_room, u);
	if (u->event == NULL)
		(void) upload_failed(u, ENOMEM);
	else
		work(u);
}

/* What clients compare: exactly these members. */
static json_t *result_of(const struct upload *u, const struct files_entry *e)
{
	cleanup_free char *path = encode_text(e->path);
	const char *slash = strrchr(path, '/');
	json_t *o = json_pack("{ss ss ss}", "name", slash != NULL ? slash + 1 : path, "path", path, "type", "file");

	if (u->metadata.size > 0)
		(void) json_object_set_new(o, "metadata", file_metadata_to_json(u->metadata.set, u->metadata.size));
	return o;
}

static void written(void *ctx, const struct files_end *end)
{
	struct upload *u = ctx;

	u->call = NULL;
	if (end->error != 0 || end->entry == NULL || u->phase != PHASE_COMMITTING) {
		(void) upload_failed(u, end->error != 0 ? end->error : EIO);
		return;
	}
	/* Two names may lead to one path. */
	if (json_object_get(u->seen, end->entry->path) != NULL) {
		(void) upload_refuse(u, 400, "two files of one request have the same path");
		return;
	}
	(void) json_object_set_new(u->seen, end->entry->path, json_true());
	(void) json_array_append_new(u->results, result_of(u, end->entry));
	u->phase = PHASE_NONE;
	work(u);
}

static bool begin_file(struct upload *u, const char *path)
{
	static const struct files_callbacks callbacks = {.opened = opened, .end = written};
	struct files_ask ask = {.type = FILES_WRITE,
				.flags = FILES_METADATA,
				.path = path,
				.metadata = u->metadata.set,
				.metadata_size = u->metadata.size};
	int r;

	if (path == NULL)
		return upload_refuse(u, 400, "path: expected one of 1 to 4095 bytes, absolute or below the home directory");
	if (json_array_size(u->results) >= FILES_IN_ONE_MAX)
		return upload_refuse(u, 400, "there are too many files in one request");
	ask.path_size = strlen(path);
	u->moved = 0;
	u->part_over = false;
	u->phase = PHASE_OPENING;
	r = files_call(u->client, &ask, &callbacks, u, &u->call);
	return r == 0 || upload_failed(u, -r);
}

/* False when the pipe is full, or the upload is over. */
static bool write_data(struct upload *u)
{
	while (evbuffer_get_length(u->data) > 0) {
		int n = evbuffer_write(u->data, u->fd);

		if (n > 0) {
			u->moved += (uint64_t) n;
		} else if (n < 0 && errno == EAGAIN) {
			u->stuck = true;
			if (event_add(u->event, NULL) < 0)
				(void) upload_failed(u, ENOMEM);
			return false;
		} else {
			(void) evbuffer_drain(u->data, evbuffer_get_length(u->data)); /* what failed comes with the end */
		}
	}
	return true;
}

/* ---- The body. ---- */

static void finish(struct upload *u)
{
	struct request *r = u->request;
	json_t *results = json_incref(u->results);

	if (json_array_size(results) == 0) {
		(void) upload_refuse(u, 400, "the body has no part named \"file\"");
		json_decref(results);
		return;
	}
	upload_free(u);
	respond_json(r, 200, results);
}

/* The next step of a body of parts. True: go on; false: wait, or it is over. */
static bool step_parts(struct upload *u)
{
	switch (multipart_next(&u->multipart, u->in, u->data)) {
	case MULTIPART_PART:
		u->skipping = strcmp(u->multipart.name, "file") != 0;
		if (u->skipping)
			return true;
		return begin_file(u, u->path != NULL ? u->path : e2b_path(u->multipart.filename));
	case MULTIPART_DATA:
		if (u->skipping)
			(void) evbuffer_drain(u->data, evbuffer_get_length(u->data));
		return true;
	case MULTIPART_PART_END:
		u->part_over = !u->skipping;
		return true;
	case MULTIPART_END:
		if (u->whole)
			finish(u);
		return false;
	case MULTIPART_MORE:
		return u->whole ? upload_refuse(u, 400, "the multipart body ends early") : false;
	case MULTIPART_BAD:
		break;
	}
	return upload_refuse(u, 400, "the body is not multipart/form-data");
}

static bool step_raw(struct upload *u)
{
	int r = 0;

	if (u->phase == PHASE_NONE) {
		if (json_array_size(u->results) > 0) {
			finish(u);
			return false;
		}
		return begin_file(u, u->path);
	}
	if (!u->gzip) {
		(void) evbuffer_add_buffer(u->data, u->in);
	} else {
		if (!u->part_over)
			r = inflate_take(u->inflate, u->in, u->data, STREAM_ROOM);
		if (r < 0)
			return upload_refuse(u, 400, "the body is not gzip");
	}
	if (r == 1 || (!u->gzip && u->whole)) {
		u->part_over = true;
		return true;
	}
	if (evbuffer_get_length(u->data) > 0 || evbuffer_get_length(request_content(u->request)) > 0)
		return true;
	return u->gzip && u->whole ? upload_refuse(u, 400, "the gzip body ends early") : false;
}

static void pull(struct upload *u)
{
	struct evbuffer *content = request_content(u->request);

	if (evbuffer_get_length(u->in) >= STREAM_ROOM || evbuffer_get_length(content) == 0)
		return;
	(void) evbuffer_add_buffer(u->in, content);
	if (!u->whole)
		request_read_more(u->request);
}

static void work(struct upload *u)
{
	bool more = true;

	while (more) {
		pull(u);
		if (u->phase == PHASE_OPENING || u->phase == PHASE_COMMITTING || u->stuck)
			return;
		if (u->phase == PHASE_WRITING && !write_data(u))
			return;
		if (u->phase == PHASE_WRITING && u->part_over) {
			u->phase = PHASE_COMMITTING;
			close_pipe(u);
			files_commit(u->call, u->moved);
			return;
		}
		more = u->many ? step_parts(u) : step_raw(u);
	}
}

static void take(struct request *r, struct evbuffer *content, enum body_event event)
{
	struct upload *u = r->data;

	(void) content;
	if (event == BODY_BROKEN) {
		upload_free(u);
		refuse_body(r);
		return;
	}
	u->whole = event == BODY_WHOLE;
	work(u);
}

/* ---- The request. ---- */

static bool read_encoding(struct request *r, bool *ret_gzip)
{
	const char *encoding = request_header(r, "content-encoding");

	*ret_gzip = encoding != NULL && strcasecmp(encoding, "gzip") == 0;
	if (request_header_count(r, "content-encoding") == 0 || *ret_gzip ||
	    (encoding != NULL && strcasecmp(encoding, "identity") == 0))
		return true;
	e2b_refuse(r, 415, "Content-Encoding: expected gzip, or none");
	return false;
}

static bool read_metadata(struct request *r, struct file_metadata *ret)
{
	static const char prefix[] = "x-metadata-";
	const char *name, *value, *why = NULL;

	for (size_t i = 0; why == NULL && request_header_at(r, i, &name, &value); i++)
		if (strncasecmp(name, prefix, sizeof prefix - 1) == 0)
			why = file_metadata_add(ret, name + sizeof prefix - 1, value);
	if (why != NULL)
		e2b_refuse(r, 400, "X-Metadata-: %s", why);
	return why == NULL;
}

static void upload(struct request *r, struct sandbox *s, bool root, const char *path)
{
	struct file_metadata metadata = {0};
	struct multipart multipart;
	bool many = multipart_begin(&multipart, request_header(r, "content-type")), gzip;
	struct files_client *client;
	struct inflate *inflate;
	struct upload *u;

	if (!read_encoding(r, &gzip) || !read_metadata(r, &metadata))
		return;
	if ((!many && path == NULL) || (many && gzip)) {
		e2b_refuse(r, 400, many ? "a multipart body cannot be encoded" : "path: expected one in the query");
		return;
	}
	client = sandbox_files_as(s, root);
	if (client == NULL) {
		e2b_refuse(r, 503, "the program that works on files inside cannot be started now; try again");
		return;
	}
	inflate = gzip ? inflate_new() : NULL;
	if (gzip && inflate == NULL) {
		e2b_refuse(r, 503, "there is not enough memory; try again");
		return;
	}
	if (gzip)
		inflate_any_ratio(inflate); /* the sandbox's own limits hold */
	u = xcalloc(1, sizeof *u);
	*u = (struct upload){.request = r,
			     .client = client,
			     .fd = -EBADF,
			     .many = many,
			     .gzip = gzip,
			     .multipart = multipart,
			     .path = path,
			     .metadata = metadata,
			     .in = evbuffer_new(),
			     .data = evbuffer_new(),
			     .inflate = inflate,
			     .results = json_array(),
			     .seen = json_object()};
	if (u->in == NULL || u->data == NULL) {
		(void) upload_refuse(u, 503, "there is not enough memory; try again");
		return;
	}
	u->cut.call = upload_cut;
	sandbox_cut_add(s, &u->cut);
	r->data = u;
	request_read(r, take);
}

/* Files are sent as they are: false where Accept-Encoding (RFC 9110 section 12.5.3) leaves no room for that. */
static bool takes_identity(const struct request *r)
{
	const char *text = request_header(r, "accept-encoding");
	bool takes = true, named = false;

	while (text != NULL && *text != '\0') {
		size_t size = strcspn(text, ","), word = strcspn(text, ",; \t");
		const char *q = memmem(text, size, "q=0", 3);
		bool never = q != NULL && strspn(q + 2, "0.") == strcspn(q + 2, ", \t");

		if (word == 8 && strncasecmp(text, "identity", 8) == 0) {
			takes = !never;
			named = true;
		} else if (word == 1 && *text == '*' && !named) {
			takes = !never;
		}
		text += size;
		text += strspn(text, ", \t");
	}
	return takes;
}

void e2b_files_request(struct request *r, struct sandbox *s)
{
	const char *user = request_query(r, "username"), *asked = request_query(r, "path"), *path = e2b_path(asked);
	bool reads = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

	bool root = user != NULL && strcmp(user, "root") == 0 && s->has_root;

	if (user != NULL && user[0] != '\0' && strcmp(user, "user") != 0 && !root)
		e2b_refuse(r, 401, "username: there is no user %.32s here", user);
	else if (path == NULL && (reads || (asked != NULL && asked[0] != '\0')))
		e2b_refuse(r, 400, "path: expected one of 1 to 4095 bytes, absolute or below the home directory");
	else if (reads && !takes_identity(r))
		e2b_refuse(r, 406, "Accept-Encoding: files are sent as they are, which is \"identity\"");
	else if (reads)
		api_files_send(r, s, root, path);
	else if (strcmp(r->method, "POST") == 0)
		upload(r, s, root, path);
	else
		e2b_refuse(r, 405, "%s is not a method of /files, which has GET and POST", r->method);
}
