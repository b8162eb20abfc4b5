/* A sandbox from a snapshot: one tree after the other, a mover writes from the file into a pipe, from which the zwinger-files of
 * the new sandbox unpacks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/mover.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox.h"
#include "daemon/snapshots.h"

enum { STALLED_SECONDS = 60 /* without an answer of the sandbox */ };

struct snapshot_use {
	struct snapshot_use *next;
	struct daemon *daemon;
	char id[SANDBOX_ID_SIZE]; /* of the new one; "": not made yet */
	int file;
	size_t root, count;
	uint64_t sizes[CARRY_ROOTS_MAX];
	struct files_call *unpack;
	struct mover *mover;
	struct event *stalled, *failed;
	struct problem problem;
	bool committed, over; /* committed: all of this tree is in the pipe */
	snapshot_used *done;
	void *arg;
};

static void next_tree(struct snapshot_use *u);

/* ---- The end. ---- */

static void release(struct snapshot_use *u, bool keep)
{
	struct snapshot_use **at = &u->daemon->snapshots->uses;
	struct sandbox *s = u->id[0] != '\0' ? sandbox_find(u->daemon, u->id) : NULL;

	while (*at != NULL && *at != u)
		at = &(*at)->next;
	if (*at == u)
		*at = u->next;
	if (u->unpack != NULL)
		files_cancel(u->unpack);
	if (u->mover != NULL)
		mover_cancel(u->mover);
	if (s != NULL && !keep) {
		sandbox_forget(s, u);
		sandbox_end(s, "error", "the files of the snapshot were not completed");
	}
	fd_close(&u->file);
	if (u->stalled != NULL)
		event_free(u->stalled);
	if (u->failed != NULL)
		event_free(u->failed);
	free(u);
}

void snapshot_use_cancel(struct snapshot_use *u)
{
	json_decref(u->problem.errors);
	release(u, false);
}

/* From the loop: whoever found the fault may still be at work with what goes. */
static void on_failed(evutil_socket_t fd, short what, void *arg)
{
	struct snapshot_use *u = arg;
	struct problem p = u->problem;
	snapshot_used *done = u->done;
	void *done_arg = u->arg;

	(void) fd;
	(void) what;
	release(u, false);
	done(done_arg, NULL, &p);
}

static void fail_with(struct snapshot_use *u)
{
	u->over = true;
	event_active(u->failed, EV_TIMEOUT, 0);
}

static void fail(struct snapshot_use *u, enum problem_code code, const char *message)
{
	if (u->over)
		return;
	u->problem.code = code;
	(void) snprintf(u->problem.message, sizeof u->problem.message, "%s", message);
	fail_with(u);
}

static void fail_unpacking(struct snapshot_use *u, int error)
{
	if (u->over)
		return;
	carry_problem(error, false, &u->problem);
	fail_with(u);
}

static void on_stalled(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	fail(arg, PROBLEM_UNAVAILABLE, "the copy of the files has stalled: the new sandbox does not answer");
}

static void await(struct snapshot_use *u)
{
	static const struct timeval patience = {.tv_sec = STALLED_SECONDS};

	(void) event_add(u->stalled, &patience);
}

static void complete(struct snapshot_use *u)
{
	struct sandbox *s = sandbox_find(u->daemon, u->id);
	snapshot_used *done = u->done;
	void *arg = u->arg;
	struct problem p;

	if (s == NULL || s->state != SANDBOX_RUNNING) {
		fail(u, PROBLEM_UNAVAILABLE, "the new sandbox has ended");
	} else if (carry_show(s, &p) < 0) {
		fail(u, p.code, p.message);
	} else {
		release(u, true);
		done(arg, s, NULL);
	}
}

/* ---- One tree. ---- */

static void moved(void *arg, int error)
{
	struct snapshot_use *u = arg;

	u->mover = NULL;
	if (u->over)
		return;
	await(u);
	u->committed = error == 0;
	if (u->committed)
		files_commit(u->unpack, u->sizes[u->root]);
	else if (error == ETIMEDOUT)
		on_stalled(-1, 0, u);
	else if (error != EPIPE) /* else the reader will tell why */
		fail(u, PROBLEM_UNAVAILABLE, "the files of the snapshot cannot be read");
}

static void opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	struct snapshot_use *u = ctx;
	struct move move = {.from = fcntl(u->file, F_DUPFD_CLOEXEC, 3), .to = fd, .most = u->sizes[u->root], .exact = true};

	(void) range;
	(void) entry;
	(void) event_del(u->stalled); /* from here on the mover looks at that */
	if (move.from < 0) {
		fd_close(&move.to);
		fail(u, PROBLEM_UNAVAILABLE, "there are not enough descriptors");
		return;
	}
	u->mover = mover_start(u->daemon->snapshots->movers, &move, moved, u);
	if (u->mover == NULL)
		fail(u, PROBLEM_UNAVAILABLE, "there is not enough memory");
}

static void unpacked(void *ctx, const struct files_end *end)
{
	struct snapshot_use *u = ctx;

	u->unpack = NULL;
	if (u->over)
		return;
	if (end->error != 0) {
		fail_unpacking(u, end->error);
	} else if (!u->committed) {
		fail(u, PROBLEM_UNAVAILABLE, "the new sandbox does not keep to its protocol");
	} else {
		u->root++;
		next_tree(u);
	}
}

static void next_tree(struct snapshot_use *u)
{
	static const struct files_callbacks callbacks = {.opened = opened, .end = unpacked};
	struct sandbox *s = sandbox_find(u->daemon, u->id);
	struct files_client *client = s != NULL && s->state == SANDBOX_RUNNING ? sandbox_files(s) : NULL;
	const char *path;
	struct files_ask ask;
	int r;

	if (u->root == u->count) {
		complete(u);
		return;
	}
	u->committed = false;
	path = carry_root(u->root);
	ask = (struct files_ask){.type = FILES_UNPACK, .path = path, .path_size = strlen(path)};
	r = client != NULL ? files_call(client, &ask, &callbacks, u, &u->unpack) : -ESHUTDOWN;
	await(u);
	if (r < 0)
		fail_unpacking(u, -r);
}

/* ---- The beginning. ---- */

static void ready(void *arg, struct sandbox *s)
{
	struct snapshot_use *u = arg;

	if (u->over)
		return;
	if (s->state != SANDBOX_ENDED) {
		next_tree(u);
		return;
	}
	u->problem.hint = s->problem.hint;
	u->problem.errors = json_incref(s->problem.errors);
	fail(u, s->problem.code, s->problem.message);
}

static int fail_start(struct problem *p, enum problem_code code, const char *message)
{
	p->code = code;
	(void) snprintf(p->message, sizeof p->message, "%s", message);
	return -EINVAL;
}

int snapshot_use(struct daemon *d, const struct snapshot *s, const struct sandbox_wish *wish, snapshot_used *done, void *arg,
		 struct snapshot_use **ret, struct sandbox **ret_made, struct problem *p)
{
	struct sandbox_wish hidden = *wish;
	struct snapshot_use *u = xcalloc(1, sizeof *u);
	int r = 0;

	hidden.hidden = true;
	*u = (struct snapshot_use){.daemon = d, .count = s->count, .done = done, .arg = arg, .next = d->snapshots->uses};
	d->snapshots->uses = u;
	memcpy(u->sizes, s->sizes, sizeof u->sizes);
	u->file = openat(d->snapshots->folder, s->file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	u->stalled = event_new(d->base, -1, 0, on_stalled, u);
	u->failed = event_new(d->base, -1, 0, on_failed, u);
	if (s->count > carry_root_count(wish->like->isolation))
		r = fail_start(p, PROBLEM_CONFLICT, "the snapshot has more than a sandbox of this isolation has room for");
	else if (u->file < 0)
		r = fail_start(p, PROBLEM_UNAVAILABLE, "the files of the snapshot cannot be opened");
	else if (u->stalled == NULL || u->failed == NULL)
		r = fail_start(p, PROBLEM_UNAVAILABLE, "there is not enough memory");
	if (r == 0)
		r = sandbox_create(d->sandboxes, &hidden, ready, u, ret_made, p);
	if (r < 0) {
		release(u, false);
		return r;
	}
	memcpy(u->id, (*ret_made)->id, sizeof u->id);
	*ret = u;
	return 0;
}
