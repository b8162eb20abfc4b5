/* Snapshots: the files, environment and metadata of a sandbox at one time, from which others are made, also after a restart.
 *
 * One is a row of the store and a file of STATE/snapshots, 0600, which holds the trees of sandbox-carry.h one after the other, as
 * the zwinger-files of the sandbox has packed them. The row is what makes it one: it is written when the file is whole and on the
 * disk, and goes before the file does. A file without a row (a daemon was killed) goes at the next start.
 *
 * What is in the files is hostile. The daemon never reads it; it is unpacked by the zwinger-files of the new sandbox, behind its
 * walls. The policy of a snapshot is held against the ceiling of the day when a sandbox is made from it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "daemon/sandbox-carry.h"

struct daemon;
struct movers;
struct sandbox;

enum { SNAPSHOT_NAME_SIZE = 65, SNAPSHOT_FILE_SIZE = 25, SNAPSHOTS_MAX = 1000 };

struct snapshot_key {
	char name[SNAPSHOT_NAME_SIZE], tag[SNAPSHOT_NAME_SIZE];
};

struct snapshot {
	int64_t number; /* in the order of their making */
	struct snapshot_key key;
	bool named; /* by who made it; else its name is that of its file */
	char file[SNAPSHOT_FILE_SIZE];
	char *sandbox; /* id of the one it is of */
	usec_t created;
	json_t *policy;                  /* a text */
	json_t *metadata, *env, *extras; /* extras may be NULL */
	size_t count;
	uint64_t sizes[CARRY_ROOTS_MAX]; /* of the trees, in order */
};

struct snapshots {
	int folder;
	struct movers *movers;
	struct snapshot_take *takes; /* under way */
	struct snapshot_use *uses;
	size_t take_count;
};

int snapshots_start(struct daemon *d, struct zw_error *e);
struct snapshots *snapshots_free(struct snapshots *all);

/* A name or a tag: 1 to 64 letters, digits, '-', '_' and '.'. */
bool snapshot_is_name(const char *text);
void snapshot_done(struct snapshot *s);

/* 0, -ENOENT or another errno. */
int snapshot_find(struct daemon *d, const struct snapshot_key *key, struct snapshot *ret);
/* The row and then the file. 0, -ENOENT or another errno. */
int snapshot_remove(struct daemon *d, const struct snapshot_key *key);
/* Writes the row; one with the same name and tag goes. */
int snapshot_keep(struct daemon *d, const struct snapshot *s);
/* How many there are; the negative errno. */
int64_t snapshot_count(struct daemon *d);

struct snapshot_filter {
	const char *sandbox, *name, *tag; /* NULL: any */
	int64_t below;                    /* numbers alone that are below this one; 0: all */
};
/* Newest first, at most `limit` (the caller's bound); `call` for each. 0, or a negative errno. */
int snapshot_list(struct daemon *d, const struct snapshot_filter *f, int64_t limit,
		  void (*call)(void *arg, int64_t number, const struct snapshot_key *key, bool named), void *arg);

/* ---- snapshot-take.c ---- */

struct snapshot_take;
/* `made` is good during the call; NULL: there is none, and `p` says why. Once, from the loop, unless canceled. */
typedef void snapshot_taken(void *arg, const struct snapshot *made, const struct problem *p);

/* Of a sandbox that runs, which goes on; `key` NULL: it gets a name of its own. 0 and *ret, good until `done` is called, or
 * -EINVAL with a problem. */
int snapshot_take(struct sandbox *s, const struct snapshot_key *key, snapshot_taken *done, void *arg, struct snapshot_take **ret,
		  struct problem *p);
/* Nothing is left, without a callback. */
void snapshot_take_cancel(struct snapshot_take *t);

/* ---- snapshot-use.c ---- */

struct snapshot_use;
struct sandbox_wish;
/* `made` runs and is shown; NULL: nothing is left, and `p` says why (its errors are the caller's). */
typedef void snapshot_used(void *arg, struct sandbox *made, struct problem *p);

/* A new sandbox as `wish` says, whose `like` is set, with the files of `s`, which may go meanwhile. As snapshot_take. *ret_made
 * is hidden until `done` is called. */
int snapshot_use(struct daemon *d, const struct snapshot *s, const struct sandbox_wish *wish, snapshot_used *done, void *arg,
		 struct snapshot_use **ret, struct sandbox **ret_made, struct problem *p);
void snapshot_use_cancel(struct snapshot_use *u);
