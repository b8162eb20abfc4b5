#include "daemon/files-client.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

static_assert(sizeof(struct files_request) == 48 && sizeof(struct files_answer) == 12 && sizeof(struct files_stat) == 48 &&
		  sizeof(struct files_opened) == 16 && sizeof(struct files_event) == 8 && sizeof(struct files_done) == 24,
	      "messages have no padding");

enum {
	QUEUE_MAX = 1024,
	READS_A_ROUND = 16, /* so that one sandbox that talks does not keep the others waiting */
	SEND_BUFFER = 4 * (FILES_WHOLE_MAX + FILES_METADATA_MAX + 2 * FILES_PATH_MAX),
};

/* Requests of one class do not keep those of another waiting; together they stay below FILES_JOBS_MAX. */
enum class { QUICK, STREAM, HEAVY, WATCHING, CLASS_MAX };
static const unsigned class_limits[CLASS_MAX] = {[QUICK] = 8, [STREAM] = 32, [HEAVY] = 4, [WATCHING] = 16};
static_assert(8 + 32 + 4 + 16 <= FILES_JOBS_MAX, "the program takes so many at once");

struct files_call {
	TAILQ_ENTRY(files_call) link; /* while queued */
	struct files_client *client;
	struct files_callbacks callbacks;
	void *ctx;
	struct files_request *message; /* NULL once sent */
	size_t message_size;
	enum class class;
	uint32_t id; /* 0: not sent yet */
	uint16_t type, flags;
	bool opened, canceled;
	bool commit_due, cancel_due, committed;
	uint64_t commit_bytes;
	int pipe; /* our end, until `opened` hands it out */
	size_t entries, entry_bytes;
	uint32_t limit;
};

TAILQ_HEAD(call_queue, files_call);

struct files_client {
	struct event_base *base;
	void (*gone)(void *ctx, const char *why);
	void *ctx;
	int socket, answers;
	struct event *readable, *writable;
	bool ended, freed;
	unsigned nesting; /* callbacks under way: freeing waits for them */
	uint32_t serial;
	struct files_call *calls[FILES_JOBS_MAX]; /* sent, not ended */
	unsigned running[CLASS_MAX];
	struct call_queue queue;
	size_t queued;
	size_t have; /* bytes in `in` */
	struct files_decoded decoded;
	union {
		struct files_answer head;
		char bytes[sizeof(struct files_answer) + FILES_BODY_MAX];
	} in;
};

static void free_call(struct files_call *call)
{
	fd_close(&call->pipe);
	free(call->message);
	free(call);
}

static void enter(struct files_client *c)
{
	c->nesting++;
}

/* False when the client is gone. */
static bool leave(struct files_client *c)
{
	if (--c->nesting > 0 || !c->freed)
		return !c->freed;
	free(c);
	return false;
}

/* Takes the call out of everything, tells its end, and frees it. */
static void end_call(struct files_call *call, const struct files_end *end)
{
	struct files_client *c = call->client;
	bool silent = call->canceled;

	call->canceled = true; /* also for a callback that cancels what ends */
	if (call->id != 0) {
		c->calls[call->id % FILES_JOBS_MAX] = NULL;
		c->running[call->class]--;
	} else {
		TAILQ_REMOVE(&c->queue, call, link);
		c->queued--;
	}
	if (!silent)
		call->callbacks.end(call->ctx, end);
	free_call(call);
}

/* ---- The end of the line. ---- */

static void close_line(struct files_client *c)
{
	c->ended = true;
	if (c->readable != NULL)
		event_free(c->readable);
	if (c->writable != NULL)
		event_free(c->writable);
	c->readable = c->writable = NULL;
	fd_close(&c->socket);
	fd_close(&c->answers);
}

static struct files_call *any_call(struct files_client *c)
{
	for (size_t i = 0; i < FILES_JOBS_MAX; i++)
		if (c->calls[i] != NULL)
			return c->calls[i];
	return TAILQ_FIRST(&c->queue);
}

void files_client_end(struct files_client *c, const char *why)
{
	const struct files_end end = {.error = ESHUTDOWN};

	if (c->ended)
		return;
	close_line(c);
	enter(c);
	for (struct files_call *call = any_call(c); call != NULL; call = any_call(c))
		end_call(call, &end);
	if (!c->freed && c->gone != NULL)
		c->gone(c->ctx, why);
	(void) leave(c);
}

void files_client_free(struct files_client *c)
{
	if (c == NULL || c->freed)
		return;
	close_line(c);
	enter(c);
	for (struct files_call *call = any_call(c); call != NULL; call = any_call(c)) {
		call->canceled = true;
		end_call(call, NULL);
	}
	c->freed = true;
	(void) leave(c);
}

/* ---- Sending. ---- */

/* 0, -EAGAIN: later, or another fault of the line. */
static int send_message(struct files_client *c, const void *data, size_t size, int fd)
{
	int r = fd_send(c->socket, data, size, &fd, fd >= 0 ? 1 : 0);

	if (r == -EAGAIN)
		(void) event_add(c->writable, NULL);
	return r;
}

static int send_control(struct files_client *c, uint16_t type, uint32_t id, uint64_t length)
{
	const struct files_request message = {.id = id, .type = type, .length = length};

	return send_message(c, &message, sizeof message, -EBADF);
}

/* COMMIT and CANCEL that are due. */
static int send_controls(struct files_client *c)
{
	for (size_t i = 0; i < FILES_JOBS_MAX; i++) {
		struct files_call *call = c->calls[i];
		int r = 0;

		if (call == NULL)
			continue;
		if (call->commit_due)
			r = send_control(c, FILES_COMMIT, call->id, call->commit_bytes);
		if (r < 0)
			return r;
		call->commit_due = false;
		if (call->cancel_due)
			r = send_control(c, FILES_CANCEL, call->id, 0);
		if (r < 0)
			return r;
		call->cancel_due = false;
	}
	return 0;
}

static bool wants_pipe(const struct files_call *call)
{
	return call->type == FILES_READ || call->type == FILES_PACK || call->type == FILES_UNPACK ||
	       (call->type == FILES_WRITE && (call->flags & FILES_WHOLE) == 0);
}

/* Makes the pipe that the request needs, if any: our end stays with the call, the other one is sent. */
static int make_pipe(struct files_call *call, int *ret_theirs)
{
	bool reads = call->type == FILES_READ || call->type == FILES_PACK;
	int fds[2], r;

	if (!wants_pipe(call))
		return 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	call->pipe = fds[reads ? 0 : 1];
	*ret_theirs = fds[reads ? 1 : 0];
	r = fd_nonblock(call->pipe);
	if (r < 0)
		fd_close(ret_theirs);
	return r;
}

static size_t free_slot(const struct files_client *c)
{
	size_t i = 0;

	while (c->calls[i] != NULL) /* class_limits leave some */
		i++;
	return i;
}

/* 0: sent; -EAGAIN: the line is full; else this call cannot be. */
static int send_call(struct files_client *c, struct files_call *call)
{
	size_t slot = free_slot(c);
	cleanup_fd int theirs = -EBADF;
	int r = make_pipe(call, &theirs);

	if (r < 0)
		return r == -EAGAIN ? -ENOMEM : r; /* pipe(2) never says the former */
	call->message->id = (uint32_t) (slot + FILES_JOBS_MAX * (c->serial % (UINT32_MAX / FILES_JOBS_MAX - 1) + 1));
	r = send_message(c, call->message, call->message_size, theirs);
	if (r < 0) {
		fd_close(&call->pipe);
		return r;
	}
	c->serial++;
	call->id = call->message->id;
	c->calls[slot] = call;
	c->running[call->class]++;
	TAILQ_REMOVE(&c->queue, call, link);
	c->queued--;
	free(call->message);
	call->message = NULL;
	return 0;
}

/* The first call that may be sent. */
static struct files_call *next_call(const struct files_client *c)
{
	struct files_call *call;

	TAILQ_FOREACH(call, &c->queue, link)
	if (c->running[call->class] < class_limits[call->class])
		return call;
	return NULL;
}

/* Sends what can be sent. The client may be gone afterwards. */
static void send_all(struct files_client *c)
{
	enter(c);
	while (!c->ended) {
		int r = send_controls(c);
		struct files_call *call = r == 0 ? next_call(c) : NULL;

		if (call != NULL)
			r = send_call(c, call);
		if (r == -EAGAIN || (r == 0 && call == NULL))
			break;
		if (r == 0)
			continue;
		/* Such as ETOOMANYREFS: more descriptors are under way to slow receivers than one user may have in flight. */
		if (call != NULL && r != -EPIPE && r != -ECONNRESET)
			end_call(call, &(struct files_end){.error = -r});
		else
			files_client_end(c, "the program that works on files has closed its line");
	}
	(void) leave(c);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	send_all(arg);
}

/* ---- Receiving. ---- */

static struct files_call *find_call(const struct files_client *c, uint32_t id)
{
	struct files_call *call = c->calls[id % FILES_JOBS_MAX];

	return call != NULL && call->id == id ? call : NULL;
}

static const char *handle_opened(struct files_call *call, const struct files_decoded *d)
{
	bool reads = call->type == FILES_READ;
	int fd;

	/* One that was canceled meanwhile has lost its pipe. */
	if (call->opened || (call->type != FILES_WATCH && !wants_pipe(call)))
		return "opened what was not asked for, or twice";
	if (reads != d->has_entry || (reads && !S_ISREG(d->entry.mode)))
		return "opened something else than a file";
	call->opened = true;
	fd = take_fd(&call->pipe);
	if (call->canceled)
		fd_close(&fd);
	else
		call->callbacks.opened(call->ctx, fd, &d->opened, d->has_entry ? &d->entry : NULL);
	return NULL;
}

static const char *handle_entry(struct files_call *call, const struct files_decoded *d, size_t size)
{
	if (call->type != FILES_LIST || call->entries == call->limit || call->entry_bytes > FILES_LIST_BYTES)
		return "more entries than were asked for";
	call->entries++;
	call->entry_bytes += size;
	if (!call->canceled)
		call->callbacks.entry(call->ctx, &d->entry);
	return NULL;
}

static const char *handle_event(struct files_call *call, const struct files_decoded *d)
{
	const struct files_change change = {.kind = (enum files_event_kind) d->event.kind,
					    .path = d->path,
					    .folder = d->event.folder != 0,
					    .entry = d->has_entry ? &d->entry : NULL};

	/* An overflow can come while the watch is being set up. */
	if (call->type != FILES_WATCH || (!call->opened && change.kind != FILES_EVENT_OVERFLOW))
		return "an event that was not asked for";
	if (!call->canceled)
		call->callbacks.change(call->ctx, &change);
	return NULL;
}

/* What an end may say depends on what was asked. */
static const char *check_done(const struct files_call *call, const struct files_decoded *d)
{
	bool good = d->done.error == 0, gives_entry, may_create = call->type == FILES_WRITE || call->type == FILES_MKDIR;

	gives_entry = may_create || call->type == FILES_STAT || call->type == FILES_MOVE;
	if (d->has_entry != (good && gives_entry))
		return "an end with an entry too many or too few";
	if ((d->done.flags & FILES_DONE_CREATED) != 0 && !(good && may_create))
		return "something made that was not asked for";
	if ((d->done.flags & FILES_DONE_MORE) != 0 && !(good && call->type == FILES_LIST && call->entries > 0))
		return "more of what was not asked for";
	if (good && (call->type == FILES_READ || call->type == FILES_PACK) && !call->opened)
		return "the end of a file that was never opened";
	if (good && (call->type == FILES_UNPACK || (call->type == FILES_WRITE && (call->flags & FILES_WHOLE) == 0)) &&
	    !call->committed)
		return "the end of a write before its commit";
	return NULL;
}

static const char *handle_done(struct files_call *call, const struct files_decoded *d)
{
	const char *fault = check_done(call, d);
	const struct files_end end = {.error = d->done.error,
				      .created = (d->done.flags & FILES_DONE_CREATED) != 0,
				      .more = (d->done.flags & FILES_DONE_MORE) != 0,
				      .bytes = d->done.bytes,
				      .uid = d->done.uid,
				      .gid = d->done.gid,
				      .entry = d->has_entry ? &d->entry : NULL};

	if (fault == NULL)
		end_call(call, &end);
	return fault;
}

/* One answer. NULL, or how it breaks the protocol. */
static const char *handle_answer(struct files_client *c)
{
	struct files_call *call = find_call(c, c->in.head.id);
	const char *fault = call == NULL ? "an answer to no request" : NULL;

	if (fault == NULL)
		fault = files_decode(&c->in.head, c->in.bytes + sizeof c->in.head, &c->decoded);
	if (fault != NULL)
		return fault;
	switch (c->in.head.type) {
	case FILES_OPENED:
		return handle_opened(call, &c->decoded);
	case FILES_ENTRY:
		return handle_entry(call, &c->decoded, c->in.head.size);
	case FILES_EVENT:
		return handle_event(call, &c->decoded);
	default:
		return handle_done(call, &c->decoded);
	}
}

/* Handles the answers that are whole, and moves the rest to the front. */
static const char *handle_answers(struct files_client *c)
{
	const char *fault = NULL;

	while (fault == NULL && !c->ended && c->have >= sizeof c->in.head) {
		size_t size = sizeof c->in.head + c->in.head.size;

		fault = files_check_head(&c->in.head);
		if (fault != NULL || c->have < size)
			break;
		fault = handle_answer(c);
		c->have -= size;
		memmove(c->in.bytes, c->in.bytes + size, c->have);
	}
	return fault;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct files_client *c = arg;
	const char *fault = NULL;

	(void) what;
	enter(c);
	for (int i = 0; i < READS_A_ROUND && !c->ended && fault == NULL; i++) {
		ssize_t n = read(fd, c->in.bytes + c->have, sizeof c->in - c->have);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			fault = "the program that works on files has ended";
			break;
		}
		c->have += (size_t) n;
		fault = handle_answers(c);
	}
	if (fault != NULL)
		files_client_end(c, fault);
	if (leave(c) && !c->ended)
		send_all(c); /* there may be room now */
}

/* ---- Calls. ---- */

static bool is_path(const char *path, size_t size)
{
	return size > 0 && size < FILES_PATH_MAX && memchr(path, '\0', size) == NULL;
}

static bool is_metadata(const struct files_ask *a)
{
	const char *bytes = a->metadata;

	return a->metadata_size <= FILES_METADATA_MAX && bytes[a->metadata_size - 1] == '\0';
}

static bool is_sound(const struct files_ask *a)
{
	bool whole = (a->flags & FILES_WHOLE) != 0;

	if (a->type < FILES_READ || a->type > FILES_UNPACK || a->type == FILES_COMMIT || a->type == FILES_CANCEL)
		return false;
	if ((a->flags & ~(unsigned) FILES_FLAGS) != 0 || a->mode > 0777 || !is_path(a->path, a->path_size))
		return false;
	if ((a->other_size > 0 || a->type == FILES_MOVE) && !is_path(a->other, a->other_size))
		return false;
	if (a->metadata_size > 0 && (a->type != FILES_WRITE || (a->flags & FILES_METADATA) == 0 || !is_metadata(a)))
		return false;
	return whole ? a->type == FILES_WRITE && a->data_size <= FILES_WHOLE_MAX : a->data_size == 0;
}

static enum class class_of(const struct files_ask *a) {
	switch (a->type){
		case FILES_READ : case FILES_PACK : case FILES_UNPACK : return STREAM;
		case FILES_WRITE : return (a->flags & FILES_WHOLE) != 0 ? QUICK : STREAM;
		case FILES_LIST : case FILES_MOVE : case FILES_REMOVE : return HEAVY;
		case FILES_WATCH : return WATCHING;
		case FILES_STAT : case FILES_MKDIR : case FILES_USER : case FILES_COMMIT : case FILES_CANCEL : case
		FILES_OPENED : case FILES_ENTRY : case FILES_EVENT : case FILES_DONE : default : return QUICK;
	}
}

/* Also those that have not been sent. They end by no work of their own, so none of them waits for another. */
static unsigned count_watches(const struct files_client *c)
{
	const struct files_call *call;
	unsigned count = c->running[WATCHING];

	TAILQ_FOREACH(call, &c->queue, link)
	count += call->class == WATCHING;
	return count;
}

/* Copies `size` bytes to *at, which moves behind them. */
static void put(char **at, const void *data, size_t size)
{
	if (size > 0)
		memcpy(*at, data, size);
	*at += size;
}

static struct files_request *encode(const struct files_ask *a, size_t *ret_size)
{
	size_t size = sizeof(struct files_request) + a->path_size + a->other_size + a->metadata_size + a->data_size;
	struct files_request *r = malloc(size);
	char *at;

	if (r == NULL)
		return NULL;
	*r = (struct files_request){
	    .type = (uint16_t) a->type,
	    .flags = (uint16_t) a->flags,
	    .mode = a->mode,
	    .limit = a->limit,
	    .depth = a->depth,
	    .path_size = (uint16_t) a->path_size,
	    .other_size = (uint16_t) a->other_size,
	    .data_size = (uint32_t) a->data_size,
	    .metadata_size = (uint16_t) a->metadata_size,
	    .offset = a->offset,
	    .length = a->length,
	};
	at = (char *) (r + 1);
	put(&at, a->path, a->path_size);
	put(&at, a->other, a->other_size);
	put(&at, a->metadata, a->metadata_size);
	put(&at, a->data, a->data_size);
	*ret_size = size;
	return r;
}

int files_call(struct files_client *c, const struct files_ask *ask, const struct files_callbacks *callbacks, void *ctx,
	       struct files_call **ret)
{
	struct files_call *call;

	if (!is_sound(ask))
		return -EINVAL;
	if (c->ended)
		return -ESHUTDOWN;
	if (c->queued == QUEUE_MAX || (ask->type == FILES_WATCH && count_watches(c) >= class_limits[WATCHING]))
		return -EAGAIN;
	call = calloc(1, sizeof *call);
	if (call == NULL)
		return -ENOMEM;
	call->message = encode(ask, &call->message_size);
	if (call->message == NULL) {
		free(call);
		return -ENOMEM;
	}
	call->client = c;
	call->callbacks = *callbacks;
	call->ctx = ctx;
	call->class = class_of(ask);
	call->type = (uint16_t) ask->type;
	call->flags = (uint16_t) ask->flags;
	call->limit = ask->limit == 0 || ask->limit > FILES_LIST_MAX ? FILES_LIST_MAX : ask->limit;
	call->pipe = -EBADF;
	TAILQ_INSERT_TAIL(&c->queue, call, link);
	c->queued++;
	/* From the loop, so that no callback comes before the caller knows the call. */
	event_active(c->writable, EV_WRITE, 0);
	if (ret != NULL)
		*ret = call;
	return 0;
}

void files_commit(struct files_call *call, uint64_t bytes)
{
	if ((call->type != FILES_WRITE && call->type != FILES_UNPACK) || !call->opened || call->committed || call->client->ended)
		return;
	call->committed = call->commit_due = true;
	call->commit_bytes = bytes;
	event_active(call->client->writable, EV_WRITE, 0);
}

void files_cancel(struct files_call *call)
{
	if (call->canceled)
		return;
	call->canceled = true;
	fd_close(&call->pipe);
	if (call->id == 0) {
		end_call(call, NULL);
		return;
	}
	call->cancel_due = true;
	if (!call->client->ended)
		event_active(call->client->writable, EV_WRITE, 0);
}

/* ---- Beginning. ---- */

static int make_line(struct files_client *c, struct files_ends *ends)
{
	int sockets[2], pipes[2], size = SEND_BUFFER, r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return -errno;
	c->socket = sockets[0];
	ends->channel = sockets[1];
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	c->answers = pipes[0];
	ends->out = pipes[1];
	/* From now on the other side's sends fail, and with them any descriptor that it would pass (unix(7)). */
	if (shutdown(c->socket, SHUT_RD) < 0)
		return -errno;
	(void) setsockopt(c->socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* a wish: a smaller one is only slower */
	r = fd_nonblock(c->socket);
	if (r == 0)
		r = fd_nonblock(c->answers);
	ends->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ends->err = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (ends->in < 0 || ends->err < 0)
		return -errno;
	return r;
}

static int make_events(struct files_client *c)
{
	c->readable = event_new(c->base, c->answers, EV_READ | EV_PERSIST, on_readable, c);
	c->writable = event_new(c->base, c->socket, EV_WRITE, on_writable, c);
	return c->readable == NULL || c->writable == NULL || event_add(c->readable, NULL) < 0 ? -ENOMEM : 0;
}

int files_client_new(struct event_base *base, void (*gone)(void *ctx, const char *why), void *ctx, struct files_client **ret,
		     struct files_ends *ret_ends, struct zw_error *e)
{
	struct files_ends ends = {-EBADF, -EBADF, -EBADF, -EBADF};
	struct files_client *c = calloc(1, sizeof *c);
	int r;

	if (c == NULL)
		return zw_errno(e, ENOMEM, "cannot make a line to the sandbox's files");
	c->base = base;
	c->gone = gone;
	c->ctx = ctx;
	c->socket = c->answers = -EBADF;
	TAILQ_INIT(&c->queue);
	r = make_line(c, &ends);
	if (r == 0)
		r = make_events(c);
	if (r == 0) {
		*ret = c;
		*ret_ends = ends;
		return 0;
	}
	files_client_free(c);
	fd_close(&ends.in);
	fd_close(&ends.out);
	fd_close(&ends.err);
	fd_close(&ends.channel);
	return zw_errno(e, -r, "cannot make a line to the sandbox's files");
}
