/* The inside of zwinger-files: what its files share. files-protocol.h has the theory of operation.
 *
 * One thread and one loop. A request becomes a job in a table; a job runs in steps that are short (a chunk of a folder, a piece
 * of a file) so that none keeps the others waiting, and waits between them for one descriptor at most. Nothing is allocated but
 * one mapping of a fixed size by jobs that walk trees or watch. Functions return 0 or an errno (positive) unless they say
 * otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "agent/files/files-protocol.h"

enum step {
	STEP_AGAIN, /* more to do now */
	STEP_WAIT,  /* call again when `wait_fd` is ready for `wait_events`, or a COMMIT has come */
	STEP_DONE,  /* answered */
};

#define TEMP_PREFIX ".zwinger-"
enum { TEMP_NAME_SIZE = sizeof TEMP_PREFIX + 16, COMMITS_KEPT = 64 };

struct job {
	bool used, fresh; /* fresh: no step yet */
	enum step state;
	uint32_t id;
	uint16_t type, flags;
	uint32_t mode, limit, depth;
	uint64_t offset, length; /* READ: what is left; WRITE: what COMMIT said */
	uint64_t count;          /* bytes that have passed */
	int wait_fd;
	short wait_events;
	int pipe, file, folder;       /* -1: none */
	bool plain, ended, committed; /* ended: of the pipe; MOVE: canceled */
	bool exists;                  /* WRITE: something was there at the start */
	mode_t old_mode;              /* with `exists` */
	char temp[TEMP_NAME_SIZE];    /* a name in `folder`, "" none */
	void *state_map;              /* of `state_size`, unmapped at the end */
	size_t state_size;
	const char *data; /* with FILES_WHOLE, during the first step */
	size_t data_size;
	const char *metadata; /* of WRITE, during the first step */
	size_t metadata_size;
	char path[FILES_PATH_MAX];  /* clean, absolute */
	char other[FILES_PATH_MAX]; /* clean, absolute, or "" */
	char final[FILES_PATH_MAX]; /* WRITE: the path with links followed */
};

struct files {
	char home[FILES_PATH_MAX];
	struct job jobs[FILES_JOBS_MAX];
	size_t used; /* no job lies at or behind this one */
	/* The last commits of ours: a watch sees them as renames and tells what they mean. */
	struct {
		char temp[TEMP_NAME_SIZE];
		bool created;
	} commits[COMMITS_KEPT];
	size_t commit_count;
	/* The name found last, of users and groups: for as long as one round of steps takes, so that folders are listed fast. */
	struct {
		bool valid;
		uint32_t id;
		uint8_t size;
		char name[FILES_USER_MAX];
	} names[2];
	size_t out_size;
	char out[65536];
	union {
		struct files_request head;
		char bytes[sizeof(struct files_request) + 2 * FILES_PATH_MAX + FILES_METADATA_MAX + FILES_WHOLE_MAX];
	} in;
	char piece[65536]; /* of a file or folder, within one step */
};

/* The table of operations: the first step does what can be done at once. `release` undoes what is half done. */
struct operation {
	enum step (*step)(struct files *f, struct job *j);
	void (*release)(struct files *f, struct job *j); /* may be NULL */
	bool takes_pipe;
};
const struct operation *operation_of(const struct job *j);

enum step read_step(struct files *f, struct job *j);
enum step write_step(struct files *f, struct job *j);
void write_release(struct files *f, struct job *j);
enum step stat_step(struct files *f, struct job *j);
enum step mkdir_step(struct files *f, struct job *j);
enum step user_step(struct files *f, struct job *j);
enum step list_step(struct files *f, struct job *j);
enum step remove_step(struct files *f, struct job *j);
void remove_release(struct files *f, struct job *j);
enum step move_step(struct files *f, struct job *j);
void move_release(struct files *f, struct job *j);
enum step watch_step(struct files *f, struct job *j);
enum step pack_step(struct files *f, struct job *j);
void pack_release(struct files *f, struct job *j);
enum step unpack_step(struct files *f, struct job *j);

/* ---- Jobs (main.c). ---- */

/* A zeroed mapping that goes with the job. NULL: out of memory, or too many at once. */
void *job_state(struct job *j, size_t size);
enum step wait_for(struct job *j, int fd, short events);
void close_fd(int *fd);

/* ---- Answers (answer.c). All end the program when nobody reads any more. ---- */

/* What an entry is made of; `path` is told as given. `flags`: FILES_REAL, FILES_METADATA. */
struct described {
	const char *path;
	struct stat st;
	unsigned flags;
};

/* lstat(2) of j->path below a clean path. */
int describe(const char *path, unsigned flags, struct described *ret);
/* Each returns STEP_DONE. */
enum step done(struct files *f, const struct job *j, int error);
enum step done_with(struct files *f, const struct job *j, int error, uint32_t flags, const struct described *d);
enum step done_user(struct files *f, const struct job *j, uint32_t uid, uint32_t gid);
void answer_opened(struct files *f, const struct job *j, uint64_t offset, uint64_t length, const struct described *d);
/* Returns the bytes of the answer. */
size_t answer_entry(struct files *f, const struct job *j, const struct described *d);
void answer_event(struct files *f, const struct job *j, enum files_event_kind kind, const char *path, bool folder,
		  const struct described *d);
void answer_flush(struct files *f);

/* ---- Names of users and groups (users.c), from the sandbox's own files. ---- */

/* Writes at most FILES_USER_MAX bytes into `ret`; returns how many, 0 when there is none. */
size_t user_name(uint32_t uid, char *ret);
size_t group_name(uint32_t gid, char *ret);
int user_find(const char *name, uint32_t *ret_uid, uint32_t *ret_gid);

/* ---- The pipe that something comes in by (pipe.c). ---- */

/* COMMIT was there, and so is everything that it speaks of, or the end. */
bool all_has_come(const struct job *j);
/* Bytes read into `to`; 0: none now, and the step ends with *ret. */
size_t take_piece(struct files *f, struct job *j, char *to, size_t size, enum step *ret);

/* ---- Metadata (metadata.c), as files-protocol.h has them. ---- */

/* What `path` leads to has, or what `fd` is (`path` NULL), into `ret` of FILES_METADATA_MAX bytes; the size, 0 for none. What
 * code inside has set beyond the bounds, or with a NUL in it, is left out. */
size_t metadata_read(const char *path, int fd, char *ret);
/* Gives a file that has none its metadata. EOPNOTSUPP: its file system has no room for such a thing. EINVAL: they are none. */
int metadata_write(int fd, const char *set, size_t size);
int metadata_copy(int from, int to);

/* ---- Paths (path.c). ---- */

/* Makes `text` of `size` bytes absolute below `home` and clean. `ret` has FILES_PATH_MAX bytes. EINVAL, ENAMETOOLONG. */
int path_clean(const char *home, const char *text, size_t size, char *ret);
/* The last component; "" of "/". */
const char *path_name(const char *path);
/* Writes `folder`/`name`. ENAMETOOLONG. */
int path_join(const char *folder, const char *name, char *ret);
/* An O_PATH descriptor of the folder that `path` lies in. With `make`, what is missing is made with 0755. */
int path_open_parent(const char *path, bool make, int *ret);
/* Follows links at the last component, as open(2) with O_CREAT does. */
int path_follow(const char *path, char *ret);
/* rename(2) that replaces nothing: -1 and EEXIST; EINVAL, ENOSYS where that cannot be had. */
int rename_new(int from, const char *name, int to, const char *as);
/* A name that nobody else has. */
int temp_name(char ret[TEMP_NAME_SIZE]);
bool is_temp_name(const char *name);

/* ---- Trees. ---- */

/* Removes what `path` is below the folder `parent` (borrowed), step by step. 0: gone; EAGAIN: call removal_step (again); else the
 * fault, and no more is to be called but removal_end. */
struct removal;
size_t removal_size(void);
int removal_start(struct removal *r, int parent, const char *path);
int removal_step(struct removal *r, char *piece, size_t size);
void removal_end(struct removal *r);

struct entry_head { /* linux_dirent64, getdents(2) */
	uint64_t ino;
	int64_t off;
	uint16_t size;
	uint8_t type;
	char name[];
};
/* One getdents64(2): the bytes read, 0 at the end, or negative errno. */
ssize_t read_folder(int fd, char *piece, size_t size);
/* The next entry in the piece but "." and "..", NULL at its end. *at starts at 0. */
const struct entry_head *next_entry(const char *piece, size_t size, size_t *at);
