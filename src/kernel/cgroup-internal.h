/* What the files of the cgroup facility share. Nobody else but its tests includes this.
 *
 * Who does what: cgroup-places.c finds where in each mounted hierarchy the caller is; cgroup-v1.c and cgroup-v2.c make the
 * sandbox's group there and know the control files; cgroup.c chooses controller by controller and is the face; cgroup-figures.c
 * reads the counters; cgroup-reap.c removes groups, ours and those of dead supervisors.
 *
 * A group is a directory "zwinger-<pid>-<random>" right below the caller's own group (v1), or below the nearest ancestor that can
 * hand out the controllers (v2). There is no directory between: making and removing one in three hierarchies for each run costs
 * 0.14 ms, more than a namespace, and the common prefix finds the groups as well. Whoever made a group holds flock(LOCK_EX) on
 * its directory for as long as it lives; the kernel drops the lock with the last descriptor, so a lock that can be had tells that
 * the owner is gone, across pid namespaces too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernel/cgroup.h"

#define CGROUP_PREFIX "zwinger-"

enum {
	CGROUP_PLACES_MAX = CGROUP_CONTROLLER_MAX + 1, /* each v1 controller alone, and v2 */
	CGROUP_NAME_SIZE = 48,
	CGROUP_DEPTH_MAX = 64, /* ancestors looked at */
	CGROUP_FIGURES_MAX = 10,
};

#define CGROUP_BIT(controller) (1U << (controller))

/* A mounted hierarchy and where in it the caller is. */
struct cgroup_place {
	enum cgroup_version version;
	unsigned controllers; /* v1: bits of those it carries */
	char *path;           /* of the caller's group, as /proc/self/cgroup has it */
	char *names;          /* v1: the kernel's names of the controllers, "cpu,cpuacct" */
	int root;             /* the visible top, opened when needed; -EBADF */
	bool whole;           /* the initial cgroup namespace and the whole hierarchy */
	const char *rel;      /* the caller's group below root, without leading slash: "" or "a/b". Points into path */
};

struct cgroup_places {
	struct cgroup_place at[CGROUP_PLACES_MAX];
	size_t count;
	bool init_namespace; /* paths are not relative to a cgroup namespace */
	char *mountinfo;     /* read at most once */
};

/* Reads /proc/self/cgroup. Opens nothing else. */
int cgroup_places_find(struct cgroup_places *ret, struct zw_error *e);
void cgroup_places_done(struct cgroup_places *places);
/* Opens place->root. 0, also when it is open already; -ENOENT when the hierarchy is not mounted where we can see our own group.
 */
int cgroup_place_open(struct cgroup_places *places, struct cgroup_place *place);
/* False when a look from outside shows that our own group there has none below it. kernfs counts them in the directory's links.
 */
bool cgroup_place_has_groups(const struct cgroup_places *places, const struct cgroup_place *place);
/* The v1 hierarchy that carries the controller, or the v2 tree (controller ignored). NULL when there is none. */
struct cgroup_place *cgroup_place_of(struct cgroup_places *places, enum cgroup_version version,
				     enum cgroup_controller controller);
/* The next word of *rest, which is cut up; NULL at the end. */
char *cgroup_word(char **rest, const char *separators);
/* "a/b" to "a", "a" to ""; false when it was "". */
bool cgroup_parent(char *rel);
/* "" is dirfd itself, with a shared offset. */
int cgroup_open_dir(int dirfd, const char *rel);

/* The sandbox's group in one hierarchy. */
struct cgroup_part {
	const struct cgroup_place *place;
	unsigned controllers; /* bits of those whose files are there */
	char name[CGROUP_NAME_SIZE];
	int base; /* the directory it lies in */
	int group;
	int tasks; /* v1 */
	int leaf;  /* v2: the group in `base` that we moved ourselves into to make room, -EBADF */
	char leaf_name[CGROUP_NAME_SIZE];
};

/* A limit that takes one or more writes. Fills `why` and returns negative errno when it does not hold. NULL: nothing to write. */
typedef int (*cgroup_limit_fn)(int group, const struct cgroup_limits *limits, struct zw_error *why);

/* How to read one number. */
enum cgroup_figure_form {
	CGROUP_FIGURE_NUMBER, /* the file is the number */
	CGROUP_FIGURE_KEYED,  /* a line "key number" */
	CGROUP_FIGURE_DEVICES /* the sum over devices: v1 "8:0 Read 1", v2 "8:0 rbytes=1 wbytes=2" */
};

struct cgroup_figure {
	enum cgroup_controller controller;
	const char *file, *key;
	enum cgroup_figure_form form;
	unsigned divisor; /* to the unit of the field */
	unsigned less;    /* tasks of our own in the count */
	size_t offset;    /* in struct cgroup_stats */
	bool passing;     /* says nothing once the run has ended */
};

/* The value, ZW_UNLIMITED when the text does not have it. */
uint64_t cgroup_figure_of(const struct cgroup_figure *f, const char *text);
uint64_t cgroup_figure_read(const struct cgroup_figure *f, int fd);

struct cgroup_figures {
	const struct cgroup_figure *rows;
	size_t count;
};

/* The two versions. */
struct cgroup_ops {
	cgroup_limit_fn limit[CGROUP_CONTROLLER_MAX];
	struct cgroup_figures figures;
};
extern const struct cgroup_ops cgroup_v1_ops, cgroup_v2_ops;

/* Makes and locks the directory `name` below base. -ESTALE when a reaper took it before it was locked: take another name. That
 * may also show later, when the first file in it is opened: then ENOENT. */
int cgroup_mkdir(int base, const char *name, int *ret_group);
/* Both fill in *ret (but its place) and say why not. */
int cgroup_v1_make(const struct cgroup_place *place, const char *name, struct cgroup_part *ret, struct zw_error *why);
int cgroup_v2_make(const struct cgroup_place *place, const char *name, unsigned wanted, struct cgroup_part *ret,
		   struct zw_error *why);
/* After the group is gone: moves us back where we were, if we made room and no sandbox is left there. */
void cgroup_v2_leave(struct cgroup_part *part);
/* A name that nobody has: CGROUP_NAME_SIZE bytes. */
int cgroup_new_name(char *name);
/* v1: prepares the eventfd. v2: opens the events file. */
int cgroup_v1_oom_fd(int group);
int cgroup_v2_oom_fd(int group);

extern const char *const cgroup_names[CGROUP_CONTROLLER_MAX];

int cgroup_write_u64(int group, const char *file, uint64_t value);

/* pids.max is the same file in both versions. */
int cgroup_limit_processes(int group, const struct cgroup_limits *l, struct zw_error *why);
/* Strict decimal at *text; moves *text behind it. False when there is none or it overflows. */
bool cgroup_parse_u64(const char **text, uint64_t *ret);
/* True when no swap area is in use on this host. */
bool cgroup_host_has_no_swap(void);
/* Calls one for each whole block device that has a size, "8:0". Stops at the first negative result and returns it. */
int cgroup_each_disk(int (*one)(void *arg, const char *device), void *arg);

/* Removes the group and what is below it. Waits up to `patience` for processes on their way out. */
int cgroup_rmdir(int base, const char *name, usec_t patience);
/* Removes the dead among the groups of `base`, but never `own`, which is in it if `has_own`. `alive` remembers owners. */
struct cgroup_alive {
	pid_t pids[1024];
	char stale[CGROUP_NAME_SIZE]; /* where that showed that the number was given out anew */
};
void cgroup_reap_base(int base, enum cgroup_version version, const char *own, bool has_own, struct cgroup_alive *alive);

/* Asks the service manager of the user, whose sockets are below runtime_dir, to move process `pid` into a transient scope with
 * Delegate=yes. 0 when that has happened, negative errno with a sentence else. Takes no longer than `timeout`. */
int cgroup_scope_enter(const char *runtime_dir, pid_t pid, usec_t timeout, struct zw_error *e);

/* cgroup_create below; the places are taken over, also on failure. */
int cgroup_create_at(struct cgroup_places *places, const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e);
/* cgroup_child_kind, cgroup_child_make and cgroup_child_own, of these parts. */
enum cgroup_version cgroup_child_kind_at(const struct cgroup_part *parts, size_t count);
int cgroup_child_make_at(const struct cgroup_part *parts, size_t count, uint32_t number, struct cgroup_child **ret);
int cgroup_child_own_at(const struct cgroup_part *parts, size_t count, pid_t agent, struct cgroup_child **ret);
