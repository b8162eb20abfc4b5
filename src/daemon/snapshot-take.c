/* Making a snapshot: the zwinger-files of the sandbox packs one tree after the other into a pipe, and a mover writes it into the
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/files-client.h"
#include "daemon/log.h"
#include "daemon/mover.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox.h"
#include "daemon/snapshots.h"

enum { AT_ONCE = 64, STALLED_SECONDS = 60 /* without an answer of the sandbox */ };
#define BYTES_MAX (UINT64_C(16) << 30)
/* Heads of the records; and what has more names than are remembered is packed more than once. */
#define BYTES_BESIDE (UINT64_C(64) << 20)
/* Stays free for the daemon's own records. */
#define BYTES_SPARE (UINT64_C(64) << 20)

struct snapshot_take {
	struct snapshot_take *next;
	struct daemon *daemon;
	char id[SANDBOX_ID_SIZE];
	struct snapshot made; /* made.count: trees that are whole */
	size_t roots;
	int file;
	uint64_t left; /* bytes that it may still have */
	struct files_call *pack;
	struct mover *mover;
	uint64_t said; /* by the packer, of this tree */
	int pack_error;
	struct event *stalled, *failed;
	struct problem problem;
	bool over;
	snapshot_taken *done;
	void *arg;
};

static void next_tree(struct snapshot_take *t);

/* ---- The end. ---- */

/* `keep`: the row stands. */
static void release(struct snapshot_take *t, bool keep)
{
	struct snapshots *all = t->daemon->snapshots;
	struct snapshot_take **at = &all->takes;

	while (*at != NULL && *at != t)
		at = &(*at)->next;
	if (*at == t) {
		*at = t->next;
		all->take_count--;
	}
	if (t->pack != NULL)
		files_cancel(t->pack);
	if (t->mover != NULL)
		mover_cancel(t->mover);
	if (t->file >= 0 && !keep)
		(void) unlinkat(all->folder, t->made.file, 0); /* else the next start does it */
	fd_close(&t->file);
	if (t->stalled != NULL)
		event_free(t->stalled);
	if (t->failed != NULL)
		event_free(t->failed);
	snapshot_done(&t->made);
	free(t);
}

void snapshot_take_cancel(struct snapshot_take *t)
{
	release(t, false);
}

/* From the loop: whoever found the fault may still be at work with what goes. */
static void on_failed(evutil_socket_t fd, short what, void *arg)
{
	struct snapshot_take *t = arg;
	struct problem p = t->problem;
	snapshot_taken *done = t->done;
	void *done_arg = t->arg;

	(void) fd;
	(void) what;
	dlog(t->daemon->log, DLOG_WARNING, "no snapshot", dlog_text("sandbox_id", t->id), dlog_text("why", p.message));
	release(t, false);
	done(done_arg, NULL, &p);
}

static void fail_with(struct snapshot_take *t)
{
	if (t->over)
		return;
	t->over = true;
	event_active(t->failed, EV_TIMEOUT, 0);
}

static void fail(struct snapshot_take *t, enum problem_code code, const char *message)
{
	if (t->over)
		return;
	t->problem.code = code;
	(void) snprintf(t->problem.message, sizeof t->problem.message, "%s", message);
	fail_with(t);
}

static void fail_packing(struct snapshot_take *t, int error)
{
	if (t->over)
		return;
	carry_problem(error, true, &t->problem);
	fail_with(t);
}

static void fail_storing(struct snapshot_take *t, int error)
{
	char message[160];

	if (error == ENOSPC || error == EDQUOT) {
		fail(t, PROBLEM_INSUFFICIENT_STORAGE, "there is no room for the snapshot in the state directory of this service");
	} else if (error == EFBIG) {
		fail(t, PROBLEM_TOO_LARGE, "the files are more than a snapshot may have");
	} else {
		(void) snprintf(message, sizeof message, "the snapshot cannot be written: %s", strerror(error));
		fail(t, PROBLEM_UNAVAILABLE, message);
	}
}

static void on_stalled(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	fail(arg, PROBLEM_UNAVAILABLE, "the copy of the files has stalled: the sandbox was paused, or does not answer");
}

static void await(struct snapshot_take *t)
{
	static const struct timeval patience = {.tv_sec = STALLED_SECONDS};

	(void) event_add(t->stalled, &patience);
}

static void complete(struct snapshot_take *t)
{
	snapshot_taken *done = t->done;
	void *arg = t->arg;
	struct snapshot made;
	int r;

	if (fsync(t->daemon->snapshots->folder) < 0) { /* of a folder: as short as a transaction */
		fail_storing(t, errno);
		return;
	}
	r = snapshot_keep(t->daemon, &t->made);
	if (r < 0) {
		fail_storing(t, -r);
		return;
	}
	made = t->made;
	t->made = (struct snapshot){0};
	release(t, true);
	done(arg, &made, NULL);
	snapshot_done(&made);
}

/* ---- One tree. ---- */

/* Both sides are through. */
static void settle(struct snapshot_take *t)
{
	off_t end = lseek(t->file, 0, SEEK_CUR); /* the mover's descriptor has moved it */
	uint64_t before = 0;

	for (size_t i = 0; i < t->made.count; i++)
		before += t->made.sizes[i];
	if (t->pack_error != 0) {
		fail_packing(t, t->pack_error);
	} else if (end < 0 || (uint64_t) end < before || (uint64_t) end - before != t->said || t->said == 0) {
		fail(t, PROBLEM_UNAVAILABLE, "the copy of the files was cut short");
	} else {
		t->made.sizes[t->made.count++] = t->said;
		t->left -= t->said;
		next_tree(t);
	}
}

static void moved(void *arg, int error)
{
	struct snapshot_take *t = arg;

	t->mover = NULL;
	if (t->over)
		return;
	if (error == ETIMEDOUT)
		on_stalled(-1, 0, t);
	else if (error != 0)
		fail_storing(t, error);
	else if (t->pack == NULL)
		settle(t);
	else
		await(t);
}

static void opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	struct snapshot_take *t = ctx;
	struct move move = {.from = fd,
			    .to = fcntl(t->file, F_DUPFD_CLOEXEC, 3),
			    .most = t->left,
			    .durable = t->made.count + 1 == t->roots,
			    .spare = BYTES_SPARE};

	(void) range;
	(void) entry;
	(void) event_del(t->stalled); /* from here on the mover looks at that */
	if (move.to < 0) {
		fd_close(&move.from);
		fail(t, PROBLEM_UNAVAILABLE, "there are not enough descriptors");
		return;
	}
	t->mover = mover_start(t->daemon->snapshots->movers, &move, moved, t);
	if (t->mover == NULL)
		fail(t, PROBLEM_UNAVAILABLE, "there is not enough memory");
}

static void packed(void *ctx, const struct files_end *end)
{
	struct snapshot_take *t = ctx;

	t->pack = NULL;
	t->pack_error = end->error;
	t->said = end->bytes;
	/* The pipe may have more; and a packer that cannot write has a mover that knows why. */
	if (t->mover == NULL && !t->over)
		settle(t);
}

static void next_tree(struct snapshot_take *t)
{
	static const struct files_callbacks callbacks = {.opened = opened, .end = packed};
	struct sandbox *s = sandbox_find(t->daemon, t->id);
	struct files_client *client = s != NULL && s->state == SANDBOX_RUNNING ? sandbox_files(s) : NULL;
	const char *path;
	struct files_ask ask;
	int r;

	if (t->made.count == t->roots) {
		complete(t);
		return;
	}
	path = carry_root(t->made.count);
	ask = (struct files_ask){.type = FILES_PACK, .path = path, .path_size = strlen(path)};
	r = client != NULL ? files_call(client, &ask, &callbacks, t, &t->pack) : -ESHUTDOWN;
	t->pack_error = 0;
	t->said = 0;
	await(t);
	if (r < 0)
		fail_packing(t, -r);
}

/* ---- The beginning. ---- */

static void set_file(struct snapshot *s)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";

	s->file[0] = 's'; /* as the names of templates, it begins with a letter */
	for (size_t i = 1; i < sizeof s->file - 1; i++)
		s->file[i] = digits[randombytes_uniform(sizeof digits - 1)];
}

static uint64_t room_of(const struct sandbox *s)
{
	const json_t *disk = json_object_get(s->limits, "disk_bytes"), *memory = json_object_get(s->limits, "memory_bytes");
	uint64_t room;

	if (!json_is_integer(disk) || !json_is_integer(memory))
		return BYTES_MAX;
	room = (uint64_t) json_integer_value(disk) + (uint64_t) json_integer_value(memory);
	return room < BYTES_MAX / 2 ? 2 * room + BYTES_BESIDE : BYTES_MAX;
}

static int refuse_take(struct problem *p, enum problem_code code, const char *message)
{
	p->code = code;
	(void) snprintf(p->message, sizeof p->message, "%s", message);
	return -EINVAL;
}

static int open_file(struct snapshot_take *t, struct problem *p)
{
	int error;

	set_file(&t->made);
	t->file = openat(t->daemon->snapshots->folder, t->made.file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	error = t->file < 0 ? errno : 0;
	if (error == 0)
		return 0;
	(void) snprintf(p->message, sizeof p->message, "the snapshot cannot be written: %s", strerror(error));
	p->code = error == ENOSPC || error == EDQUOT ? PROBLEM_INSUFFICIENT_STORAGE : PROBLEM_UNAVAILABLE;
	return -EINVAL;
}

static struct snapshot_take *new_take(const struct sandbox *s, const struct snapshot_key *key)
{
	struct snapshot_take *t = xcalloc(1, sizeof *t);

	*t = (struct snapshot_take){
	    .daemon = s->all->daemon,
	    .made = {.named = key != NULL,
		     .sandbox = xstrdup(s->id),
		     .created = now_realtime(),
		     .policy = json_string_nocheck(s->policy.text),
		     .metadata = json_deep_copy(s->metadata),
		     .env = json_deep_copy(s->env),
		     .extras = s->extras != NULL ? json_deep_copy(s->extras) : NULL},
	    .roots = carry_root_count(s->policy.isolation),
	    .file = -EBADF,
	    .left = room_of(s),
	};
	memcpy(t->id, s->id, sizeof t->id);
	t->stalled = event_new(t->daemon->base, -1, 0, on_stalled, t);
	t->failed = event_new(t->daemon->base, -1, 0, on_failed, t);
	return t;
}

int snapshot_take(struct sandbox *s, const struct snapshot_key *key, snapshot_taken *done, void *arg, struct snapshot_take **ret,
		  struct problem *p)
{
	struct snapshots *all = s->all->daemon->snapshots;
	int64_t count = snapshot_count(s->all->daemon);
	struct snapshot_take *t;

	if (count < 0)
		return refuse_take(p, PROBLEM_UNAVAILABLE, "the records of snapshots cannot be read");
	if (count + (int64_t) all->take_count >= SNAPSHOTS_MAX)
		return refuse_take(p, PROBLEM_INSUFFICIENT_STORAGE,
				   "there are as many snapshots as this service keeps; delete some");
	if (all->take_count >= AT_ONCE)
		return refuse_take(p, PROBLEM_BUSY, "too many snapshots are being made");
	t = new_take(s, key);
	t->next = all->takes;
	all->takes = t;
	all->take_count++;
	t->done = done;
	t->arg = arg;
	if (t->stalled == NULL || t->failed == NULL || open_file(t, p) < 0) {
		if (t->stalled == NULL || t->failed == NULL)
			(void) refuse_take(p, PROBLEM_UNAVAILABLE, "there is not enough memory");
		release(t, false);
		return -EINVAL;
	}
	if (key != NULL)
		t->made.key = *key;
	else
		t->made.key = (struct snapshot_key){.tag = "default"};
	if (key == NULL)
		memcpy(t->made.key.name, t->made.file, sizeof t->made.file);
	*ret = t;
	next_tree(t);
	return 0;
}
