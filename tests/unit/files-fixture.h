/* The real zwinger-files, unconfined, with a temporary folder as HOME, behind the real client. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/files-image.h"
#include "base/fd.h"
#include "base/mem.h"
#include "daemon/files-client.h"

enum { ENTRIES_KEPT = 1000, CHANGES_KEPT = 8192 };

struct rig {
	struct event_base *base;
	struct files_client *client;
	pid_t pid;
	char home[64];
	unsigned gone;
};

struct kept {
	char *path, *target, *metadata;
	char user[FILES_USER_MAX + 1], group[FILES_USER_MAX + 1];
	struct files_entry entry; /* its pointers lead to the members above */
};

/* What came of a call. */
struct reply {
	struct event_base *base;
	bool opened, ended;
	int fd;
	struct files_opened range;
	struct kept file;
	int error;
	bool created, more;
	uint64_t bytes;
	uint32_t uid, gid;
	struct kept entry;
	struct kept *entries;
	size_t count;
	struct {
		enum files_event_kind kind;
		char *path;
		bool folder, has_entry;
		uint64_t size;
	} * changes;
	size_t change_count;
	char *data; /* of READ */
	size_t data_size;
};

static inline void keep(struct kept *k, const struct files_entry *e)
{
	k->entry = *e;
	k->path = xstrdup(e->path);
	k->target = e->target != NULL ? xstrdup(e->target) : NULL;
	(void) snprintf(k->user, sizeof k->user, "%s", e->user);
	(void) snprintf(k->group, sizeof k->group, "%s", e->group);
	k->metadata = xcalloc(1, e->metadata_size + 1);
	memcpy(k->metadata, e->metadata, e->metadata_size);
	k->entry.metadata = k->metadata;
	k->entry.path = k->path;
	k->entry.target = k->target;
	k->entry.user = k->user;
	k->entry.group = k->group;
}

static inline void on_opened(void *ctx, int fd, const struct files_opened *range, const struct files_entry *entry)
{
	struct reply *r = ctx;

	assert_false(r->opened);
	r->opened = true;
	r->fd = fd;
	r->range = *range;
	if (entry != NULL)
		keep(&r->file, entry);
	(void) event_base_loopbreak(r->base);
}

static inline void on_entry(void *ctx, const struct files_entry *entry)
{
	struct reply *r = ctx;

	if (r->entries == NULL)
		r->entries = xcalloc(ENTRIES_KEPT, sizeof *r->entries);
	assert_true(r->count < ENTRIES_KEPT);
	keep(&r->entries[r->count++], entry);
}

static inline void on_change(void *ctx, const struct files_change *change)
{
	struct reply *r = ctx;

	if (r->changes == NULL)
		r->changes = xcalloc(CHANGES_KEPT, sizeof *r->changes);
	assert_true(r->change_count < CHANGES_KEPT);
	r->changes[r->change_count].kind = change->kind;
	r->changes[r->change_count].path = xstrdup(change->path);
	r->changes[r->change_count].folder = change->folder;
	r->changes[r->change_count].has_entry = change->entry != NULL;
	r->changes[r->change_count].size = change->entry != NULL ? change->entry->size : 0;
	r->change_count++;
	(void) event_base_loopbreak(r->base);
}

static inline void on_end(void *ctx, const struct files_end *end)
{
	struct reply *r = ctx;

	assert_false(r->ended);
	r->ended = true;
	r->error = end->error;
	r->created = end->created;
	r->more = end->more;
	r->bytes = end->bytes;
	r->uid = end->uid;
	r->gid = end->gid;
	if (end->entry != NULL)
		keep(&r->entry, end->entry);
	(void) event_base_loopbreak(r->base);
}

static const struct files_callbacks test_callbacks = {on_opened, on_entry, on_change, on_end};

static inline void forget_kept(struct kept *k)
{
	free(k->path);
	free(k->target);
	free(k->metadata);
}

/* Ready for the next call. */
static inline void reply_reset(struct reply *r)
{
	fd_close(&r->fd);
	forget_kept(&r->file);
	forget_kept(&r->entry);
	for (size_t i = 0; i < r->count; i++)
		forget_kept(&r->entries[i]);
	for (size_t i = 0; i < r->change_count; i++)
		free(r->changes[i].path);
	free(r->entries);
	free(r->changes);
	free(r->data);
	*r = (struct reply){.fd = -EBADF};
}

static inline void on_patience_end(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	*(bool *) arg = true;
}

static inline void on_data(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	(void) event_base_loopbreak(arg);
}

/* Runs the loop until something of a reply has come, or `fd`, if any, has something to read. */
static inline void run_until(struct rig *g, int fd)
{
	const struct timeval patience = {.tv_sec = 30};
	bool over = false;
	struct event *timer = event_new(g->base, -1, 0, on_patience_end, &over);
	struct event *data = fd >= 0 ? event_new(g->base, fd, EV_READ, on_data, g->base) : NULL;

	(void) event_add(timer, &patience);
	if (data != NULL)
		(void) event_add(data, NULL);
	assert_true(event_base_loop(g->base, EVLOOP_ONCE) >= 0);
	event_free(timer);
	if (data != NULL)
		event_free(data);
	assert_false(over);
}

static inline void run_once(struct rig *g)
{
	run_until(g, -1);
}

static inline void begin(struct rig *g, struct files_ask ask, struct reply *r, struct files_call **ret)
{
	*r = (struct reply){.base = g->base, .fd = -EBADF};
	if (ask.path_size == 0)
		ask.path_size = strlen(ask.path);
	if (ask.other != NULL && ask.other_size == 0)
		ask.other_size = strlen(ask.other);
	assert_int_equal(files_call(g->client, &ask, &test_callbacks, r, ret), 0);
}

/* Takes what is in the pipe of a READ. False at its end. */
static inline bool drain(struct reply *r)
{
	for (;;) {
		ssize_t n;

		r->data = xrealloc(r->data, r->data_size + 65537, 1);
		n = read(r->fd, r->data + r->data_size, 65536);
		if (n < 0 && errno == EAGAIN)
			return true;
		assert_true(n >= 0);
		r->data[r->data_size + (size_t) n] = '\0';
		if (n == 0)
			return false;
		r->data_size += (size_t) n;
	}
}

static inline void ask(struct rig *g, struct files_ask ask, struct reply *r)
{
	bool open = true;

	begin(g, ask, r, NULL);
	while (!r->ended || (r->fd >= 0 && ask.type == FILES_READ && open)) {
		bool reading = r->fd >= 0 && ask.type == FILES_READ && open;

		if (!r->ended)
			run_until(g, reading ? r->fd : -1);
		if (r->fd >= 0 && ask.type == FILES_READ && open)
			open = drain(r);
	}
}

/* The error of a call that has no other interesting answer. */
static inline int ask_error(struct rig *g, struct files_ask a)
{
	struct reply r;
	int error;

	ask(g, a, &r);
	error = r.error;
	reply_reset(&r);
	return error;
}

static inline void on_gone(void *ctx, const char *why)
{
	assert_non_null(why);
	((struct rig *) ctx)->gone++;
}

static inline int moved_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 30);

	assert_true(moved >= 0);
	(void) close(fd);
	return moved;
}

static inline void start_program(struct rig *g, struct files_ends *ends)
{
	cleanup_fd int image = moved_up(files_memfd(NULL));
	char *argv[] = {(char *) (uintptr_t) "zwinger-files", g->home, NULL}, *env[] = {NULL};
	int fds[] = {ends->in, ends->out, ends->err, ends->channel};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = moved_up(fds[i]);
	g->pid = fork();
	assert_true(g->pid >= 0);
	if (g->pid == 0) {
		for (int i = 0; i < 4; i++)
			if (dup2(fds[i], i) < 0)
				_exit(99);
		(void) execveat(image, "", argv, env, AT_EMPTY_PATH);
		_exit(98);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		(void) close(fds[i]);
}

static inline int rig_set_up(void **state)
{
	struct rig *g = xcalloc(1, sizeof *g);
	struct files_ends ends;

	(void) signal(SIGPIPE, SIG_IGN);
	(void) snprintf(g->home, sizeof g->home, "/tmp/zwinger-test-files-XXXXXX");
	if (mkdtemp(g->home) == NULL)
		return -1;
	g->base = event_base_new();
	assert_int_equal(files_client_new(g->base, on_gone, g, &g->client, &ends, NULL), 0);
	start_program(g, &ends);
	*state = g;
	return 0;
}

static inline int rig_tear_down(void **state)
{
	struct rig *g = *state;
	const char *const argv[] = {"rm", "-rf", g->home, NULL};
	int status;
	pid_t pid;

	files_client_free(g->client);
	event_base_free(g->base);
	if (g->pid > 0) {
		assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
		assert_int_equal(status, 0); /* it ends by itself, in order */
	}
	pid = fork();
	if (pid == 0) {
		(void) execv("/bin/rm", (char *const *) (uintptr_t) argv);
		_exit(99);
	}
	(void) waitpid(pid, &status, 0);
	free(g);
	return status == 0 ? 0 : -1;
}

/* HOME/name in static room, four of them in turn. */
static inline const char *in_home(const struct rig *g, const char *name)
{
	static char paths[4][FILES_PATH_MAX];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	(void) snprintf(path, FILES_PATH_MAX, "%s/%s", g->home, name);
	return path;
}

static inline void make_file(const struct rig *g, const char *name, const char *text)
{
	cleanup_fd int fd = open(in_home(g, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static inline void assert_file(const struct rig *g, const char *name, const char *text)
{
	cleanup_fd int fd = open(in_home(g, name), O_RDONLY | O_CLOEXEC);
	cleanup_free char *data = NULL;
	size_t size;

	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, 1 << 20, &data, &size), 0);
	assert_string_equal(data, text);
}

static inline bool is_there(const struct rig *g, const char *name)
{
	struct stat st;

	return lstat(in_home(g, name), &st) == 0;
}

/* A folder on another file system, or skips. */
static inline void other_home(const struct rig *g, char other[64])
{
	static const char *const places[] = {"/dev/shm", "/run", "/var/tmp"};
	struct stat here, there;

	assert_int_equal(stat(g->home, &here), 0);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		(void) snprintf(other, 64, "%s/zwinger-test-files-XXXXXX", places[i]);
		if (stat(places[i], &there) == 0 && there.st_dev != here.st_dev && mkdtemp(other) != NULL)
			return;
	}
	skip();
}
