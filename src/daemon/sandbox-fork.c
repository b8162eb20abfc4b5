#include "daemon/sandbox-fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/sandbox-carry.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox-files.h"

enum {
	SPLICE_MAX = 1 << 20,
	STALLED_SECONDS = 60, /* without a byte: the original was paused, or one side is stuck */
};
#define STREAM_BYTES_MAX (UINT64_C(64) << 30) /* hostile code can write for ever what makes no file */

/* One of the new sandboxes, and one tree after the other on its way there. */
struct copy {
	struct sandbox_fork *fork;
	char id[SANDBOX_ID_SIZE]; /* "": not made yet, or not ours any more */
	size_t root;
	struct files_call *pack, *unpack; /* NULL: over, or not begun */
	int from, to;
	struct event *readable, *writable;
	uint64_t moved, all; /* of this tree */
	bool packed, broken; /* broken: nobody reads the second pipe any more, of which `unpack` will tell why */
};

struct sandbox_fork {
	struct sandboxes *all;
	char id[SANDBOX_ID_SIZE]; /* of the original */
	size_t count, left, root_count;
	sandbox_forked *done;
	void *arg;
	struct event *stalled, *failed;
	struct problem problem;
	bool over;
	struct copy copies[FORK_COUNT_MAX];
};

static void next_tree(struct copy *c);

/* ---- The end. ---- */

static void stop_pump(struct copy *c)
{
	if (c->readable != NULL)
		event_free(c->readable);
	if (c->writable != NULL)
		event_free(c->writable);
	c->readable = c->writable = NULL;
	fd_close(&c->from);
	fd_close(&c->to);
}

static void release(struct sandbox_fork *f, bool keep)
{
	for (size_t i = 0; i < f->count; i++) {
		struct copy *c = &f->copies[i];
		struct sandbox *s = c->id[0] != '\0' ? sandbox_find(f->all->daemon, c->id) : NULL;

		if (c->pack != NULL)
			files_cancel(c->pack);
		if (c->unpack != NULL)
			files_cancel(c->unpack);
		stop_pump(c);
		if (s != NULL && !keep) {
			sandbox_forget(s, c);
			sandbox_end(s, "error", "the fork was not completed");
		}
	}
	if (f->stalled != NULL)
		event_free(f->stalled);
	if (f->failed != NULL)
		event_free(f->failed);
	free(f);
}

void sandbox_fork_cancel(struct sandbox_fork *f)
{
	json_decref(f->problem.errors);
	release(f, false);
}

/* From the loop: whoever found the fault may still be at work with what goes. */
static void on_failed(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox_fork *f = arg;
	struct problem p = f->problem;
	sandbox_forked *done = f->done;
	void *done_arg = f->arg;

	(void) fd;
	(void) what;
	release(f, false);
	done(done_arg, NULL, 0, &p);
}

static void fail(struct sandbox_fork *f, enum problem_code code, const char *message)
{
	if (f->over)
		return;
	f->over = true;
	f->problem.code = code;
	(void) snprintf(f->problem.message, sizeof f->problem.message, "%s", message);
	event_active(f->failed, EV_TIMEOUT, 0);
}

static void on_stalled(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	fail(arg, PROBLEM_UNAVAILABLE, "the copy of the files has stalled: the sandbox was paused, or does not answer");
}

static void moves(struct sandbox_fork *f)
{
	static const struct timeval t = {.tv_sec = STALLED_SECONDS};

	(void) event_add(f->stalled, &t);
}

/* What one side said: `packing` the original, else the new one. */
static void fail_errno(struct sandbox_fork *f, int error, bool packing)
{
	struct problem p;

	carry_problem(error, packing, &p);
	fail(f, p.code, p.message);
}

static void on_completed(struct sandbox_fork *f)
{
	struct sandbox *made[FORK_COUNT_MAX];
	size_t count = f->count;
	sandbox_forked *done = f->done;
	void *arg = f->arg;

	for (size_t i = 0; i < count; i++) {
		made[i] = sandbox_find(f->all->daemon, f->copies[i].id);
		if (made[i] == NULL || made[i]->state != SANDBOX_RUNNING) {
			fail(f, PROBLEM_UNAVAILABLE, "a new sandbox has ended");
			return;
		}
	}
	for (size_t i = 0; i < count; i++) {
		struct problem p;

		if (carry_show(made[i], &p) == 0)
			continue;
		fail(f, p.code, p.message);
		return;
	}
	f->over = true;
	release(f, true);
	done(arg, made, count, NULL);
}

/* ---- The pump. ---- */

static bool has_room(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	return poll(&p, 1, 0) == 1;
}

/* EAGAIN does not say which of the two pipes it means. */
static void wait_more(struct copy *c)
{
	if (event_add(has_room(c->to) ? c->readable : c->writable, NULL) < 0)
		fail(c->fork, PROBLEM_UNAVAILABLE, "there is not enough memory");
}

/* All is in the second pipe, as far as the first one's writer has said how much that is. */
static void commit_if_whole(struct copy *c)
{
	if (!c->packed || c->broken || c->from >= 0 || c->unpack == NULL)
		return;
	if (c->moved != c->all)
		fail(c->fork, PROBLEM_UNAVAILABLE, "the copy of the files was cut short");
	else
		files_commit(c->unpack, c->moved);
}

static void on_move(evutil_socket_t fd, short what, void *arg)
{
	struct copy *c = arg;
	ssize_t n;

	(void) fd;
	(void) what;
	n = splice(c->from, NULL, c->to, NULL, SPLICE_MAX, SPLICE_F_NONBLOCK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		wait_more(c);
		return;
	}
	if (n > 0) {
		c->moved += (uint64_t) n;
		moves(c->fork);
		if (c->moved > STREAM_BYTES_MAX)
			fail(c->fork, PROBLEM_TOO_LARGE, "there are too many files to be carried");
		else
			wait_more(c); /* the other copies have their turn in between */
		return;
	}
	c->broken = n < 0;
	stop_pump(c);
	commit_if_whole(c);
}

static void begin_pump(struct copy *c)
{
	struct event_base *base = c->fork->all->daemon->base;

	if (c->from < 0 || c->to < 0)
		return;
	c->readable = event_new(base, c->from, EV_READ, on_move, c);
	c->writable = event_new(base, c->to, EV_WRITE, on_move, c);
	if (c->readable == NULL || c->writable == NULL)
		fail(c->fork, PROBLEM_UNAVAILABLE, "there is not enough memory");
	else
		wait_more(c);
}

/* ---- One tree. ---- */

static void pack_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	struct copy *c = ctx;

	(void) range;
	(void) entry;
	c->from = fd;
	begin_pump(c);
}

static void unpack_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	struct copy *c = ctx;

	(void) range;
	(void) entry;
	c->to = fd;
	begin_pump(c);
}

static void pack_end(void *ctx, const struct files_end *end)
{
	struct copy *c = ctx;

	c->pack = NULL;
	c->packed = true;
	c->all = end->bytes;
	if (end->error != 0 && !c->broken)
		fail_errno(c->fork, end->error, true);
	else
		commit_if_whole(c);
}

static void unpack_end(void *ctx, const struct files_end *end)
{
	struct copy *c = ctx;

	c->unpack = NULL;
	stop_pump(c);
	if (end->error != 0) {
		fail_errno(c->fork, end->error, false);
		return;
	}
	c->root++;
	next_tree(c);
}

static void ask(struct copy *c, struct sandbox *s, enum files_type type, const struct files_callbacks *callbacks,
		struct files_call **ret)
{
	const char *path = carry_root(c->root);
	const struct files_ask a = {.type = type, .path = path, .path_size = strlen(path)};
	struct files_client *client = s != NULL && s->state == SANDBOX_RUNNING ? sandbox_files(s) : NULL;
	int r = client != NULL ? files_call(client, &a, callbacks, c, ret) : -ESHUTDOWN;

	if (r < 0)
		fail_errno(c->fork, -r, type == FILES_PACK);
}

static void next_tree(struct copy *c)
{
	static const struct files_callbacks pack = {.opened = pack_opened, .end = pack_end},
					    unpack = {.opened = unpack_opened, .end = unpack_end};
	struct sandbox_fork *f = c->fork;

	if (f->over)
		return;
	moves(f);
	if (c->root == f->root_count) {
		if (--f->left == 0)
			on_completed(f);
		return;
	}
	c->moved = c->all = 0;
	c->packed = false;
	ask(c, sandbox_find(f->all->daemon, f->id), FILES_PACK, &pack, &c->pack);
	if (!f->over)
		ask(c, sandbox_find(f->all->daemon, c->id), FILES_UNPACK, &unpack, &c->unpack);
}

/* ---- The beginning. ---- */

static void ready(void *arg, struct sandbox *s)
{
	struct copy *c = arg;
	struct sandbox_fork *f = c->fork;

	if (s->state != SANDBOX_ENDED) {
		next_tree(c);
		return;
	}
	if (f->over)
		return;
	f->problem.hint = s->problem.hint;
	f->problem.errors = json_incref(s->problem.errors);
	fail(f, s->problem.code, s->problem.message);
}

int sandbox_fork(struct sandbox *s, size_t count, usec_t timeout, sandbox_forked *done, void *arg, struct sandbox_fork **ret,
		 struct problem *p)
{
	const struct sandbox_wish wish = {.metadata = s->metadata,
					  .env = s->env,
					  .extras = s->extras,
					  .timeout = timeout,
					  .pause_on_timeout = s->pause_on_timeout,
					  .hidden = true,
					  .like = &s->policy};
	struct sandbox_fork *f = xcalloc(1, sizeof *f);
	struct event_base *base = s->all->daemon->base;

	*f = (struct sandbox_fork){.all = s->all, .left = count, .done = done, .arg = arg};
	memcpy(f->id, s->id, sizeof f->id);
	f->root_count = carry_root_count(s->policy.isolation);
	f->stalled = event_new(base, -1, 0, on_stalled, f);
	f->failed = event_new(base, -1, 0, on_failed, f);
	if (f->stalled == NULL || f->failed == NULL) {
		p->code = PROBLEM_UNAVAILABLE;
		(void) snprintf(p->message, sizeof p->message, "there is not enough memory");
		release(f, false);
		return -EINVAL;
	}
	while (f->count < count) {
		struct copy *c = &f->copies[f->count++];
		struct sandbox *made;
		int r;

		*c = (struct copy){.fork = f, .from = -EBADF, .to = -EBADF};
		r = sandbox_create(s->all, &wish, ready, c, &made, p);
		if (r < 0) {
			release(f, false);
			return r;
		}
		memcpy(c->id, made->id, sizeof c->id);
	}
	moves(f);
	*ret = f;
	return 0;
}
