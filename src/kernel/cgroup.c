#include "kernel/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernel/cgroup-internal.h"

enum {
	NAMES_TRIED = 8,                       /* when a reaper is faster */
	SCOPE_TIMEOUT = 2000 * USEC_PER_MSEC,  /* for the service manager of the user */
	REMOVE_PATIENCE = 1000 * USEC_PER_MSEC /* for processes on their way out */
};

struct file {
	int fd;
	bool tried;
};

struct cgroup {
	char name[CGROUP_NAME_SIZE]; /* of the part made last; a new one when a reaper took it */
	struct cgroup_places places;
	struct cgroup_part parts[CGROUP_PLACES_MAX]; /* in the order of making */
	size_t part_count;
	const struct cgroup_part *holder[CGROUP_CONTROLLER_MAX]; /* NULL: absent */
	char *lack[CGROUP_CONTROLLER_MAX];
	struct cgroup_limits limits;
	unsigned wanted;
	struct zw_error no_v2; /* why there is no v2 part */
	/* Descriptors opened when first needed: a cache, so that reading is possible through a const object. */
	struct cache {
		struct file figure[CGROUP_PLACES_MAX][CGROUP_FIGURES_MAX];
		struct file oom;
	} * cache;
};

static const struct cgroup_ops *ops_of(const struct cgroup_part *part)
{
	return part->place->version == CGROUP_V2 ? &cgroup_v2_ops : &cgroup_v1_ops;
}

static unsigned wanted_by(const struct cgroup_limits *l)
{
	unsigned mask = CGROUP_BIT(CGROUP_CPUACCT);

	if (l->memory != ZW_UNLIMITED)
		mask |= CGROUP_BIT(CGROUP_MEMORY);
	if (l->processes != ZW_UNLIMITED)
		mask |= CGROUP_BIT(CGROUP_PIDS);
	if (l->cpu_quota != ZW_UNLIMITED)
		mask |= CGROUP_BIT(CGROUP_CPU);
	if (l->io_read_bps != ZW_UNLIMITED || l->io_write_bps != ZW_UNLIMITED)
		mask |= CGROUP_BIT(CGROUP_IO);
	return mask;
}

static void set_lack(struct cgroup *c, enum cgroup_controller controller, const char *text)
{
	free(c->lack[controller]);
	c->lack[controller] = xstrdup(text);
}

static void take_part(struct cgroup *c, const struct cgroup_part *part, unsigned wanted, const struct cgroup_limits *limits)
{
	struct cgroup_part *p = &c->parts[c->part_count++];

	*p = *part;
	memcpy(p->name, c->name, sizeof p->name);
	for (size_t i = 0; i < CGROUP_CONTROLLER_MAX; i++) {
		cgroup_limit_fn limit = ops_of(p)->limit[i];
		struct zw_error why = {0};

		if ((p->controllers & wanted & CGROUP_BIT(i)) == 0)
			continue;
		if (limit != NULL && limit(p->group, limits, &why) < 0)
			set_lack(c, (enum cgroup_controller) i, why.text);
		else
			c->holder[i] = p;
	}
}

static void lack_all(struct cgroup *c, unsigned wanted, const char *text)
{
	for (size_t i = 0; i < CGROUP_CONTROLLER_MAX; i++)
		if ((wanted & CGROUP_BIT(i)) != 0 && c->holder[i] == NULL && c->lack[i] == NULL)
			set_lack(c, (enum cgroup_controller) i, text);
}

/* The v2 group: made even when no controller is there, for its CPU time, kill and birth. Fills `why` when it is not. */
static int make_v2(struct cgroup *c, const struct cgroup_limits *limits, unsigned wanted, struct zw_error *why)
{
	struct cgroup_place *place = cgroup_place_of(&c->places, CGROUP_V2, CGROUP_MEMORY);
	unsigned there = wanted & ~CGROUP_BIT(CGROUP_CPUACCT);
	struct cgroup_part part;
	int r;

	/* A controller is either in a v1 hierarchy or in the v2 tree, never in both. */
	for (size_t i = 0; i < c->places.count; i++)
		if (c->places.at[i].version == CGROUP_V1)
			there &= ~c->places.at[i].controllers;
	if (place == NULL || cgroup_place_open(&c->places, place) < 0)
		return 0;
	r = cgroup_v2_make(place, c->name, there, &part, why);
	if (r == 0)
		take_part(c, &part, wanted, limits);
	if (r != -ESTALE)
		lack_all(c, there, why->text);
	return r == -ESTALE || r == -EMFILE || r == -ENFILE ? r : 0;
}

static int make_v1(struct cgroup *c, const struct cgroup_limits *limits, unsigned wanted, enum cgroup_controller controller)
{
	struct cgroup_place *place = cgroup_place_of(&c->places, CGROUP_V1, controller);
	struct cgroup_part part;
	struct zw_error why = {0};
	int r;

	if (place == NULL || cgroup_place_open(&c->places, place) < 0)
		return 0;
	r = cgroup_v1_make(place, c->name, &part, &why);
	if (r == 0)
		take_part(c, &part, wanted, limits);
	else if (r != -ESTALE)
		lack_all(c, wanted & place->controllers, why.text);
	return r == -ESTALE || r == -EMFILE || r == -ENFILE ? r : 0;
}

static int make_first(struct cgroup *c)
{
	c->no_v2 = (struct zw_error){0};
	return make_v2(c, &c->limits, c->wanted, &c->no_v2);
}

static int make_rest(struct cgroup *c)
{
	int r = 0;

	for (size_t i = 0; i < CGROUP_CONTROLLER_MAX && r == 0; i++) {
		/* Not what the v2 group counts anyway, nor what an earlier group of a shared hierarchy settled. */
		if ((c->wanted & CGROUP_BIT(i)) == 0 || c->holder[i] != NULL || c->lack[i] != NULL)
			continue;
		r = make_v1(c, &c->limits, c->wanted, (enum cgroup_controller) i);
		/* Never the same name again: a second reaper may be about to remove it. */
		for (size_t n = 1; n < NAMES_TRIED && r == -ESTALE; n++) {
			r = cgroup_new_name(c->name);
			if (r == 0)
				r = make_v1(c, &c->limits, c->wanted, (enum cgroup_controller) i);
		}
	}
	/* CPU time could have come from v1 as well. */
	if (r == 0 && c->no_v2.text[0] != '\0')
		lack_all(c, c->wanted & CGROUP_BIT(CGROUP_CPUACCT), c->no_v2.text);
	if (r == 0)
		lack_all(c, c->wanted,
			 "no cgroup hierarchy with this controller is mounted here; mount one, or boot the kernel with the "
			 "controller enabled");
	return r;
}

static void drop_parts(struct cgroup *c, usec_t patience)
{
	while (c->part_count > 0) {
		struct cgroup_part *p = &c->parts[--c->part_count];

		for (size_t i = 0; i < CGROUP_FIGURES_MAX; i++)
			fd_close(&c->cache->figure[c->part_count][i].fd);
		fd_close(&p->tasks);
		/* Best effort: what stays is empty of our doing, and the next start tries again. */
		(void) cgroup_rmdir(p->base, p->name, patience);
		fd_close(&p->group);
		if (p->leaf >= 0)
			cgroup_v2_leave(p);
		fd_close(&p->base);
	}
	for (size_t i = 0; i < CGROUP_CONTROLLER_MAX; i++) {
		c->holder[i] = NULL;
		free(c->lack[i]);
		c->lack[i] = NULL;
	}
}

static struct cgroup *cgroup_new(void)
{
	struct cgroup *c = xcalloc(1, sizeof *c);

	c->cache = xcalloc(1, sizeof *c->cache);
	c->cache->oom.fd = -EBADF;
	for (size_t i = 0; i < CGROUP_PLACES_MAX; i++)
		for (size_t j = 0; j < CGROUP_FIGURES_MAX; j++)
			c->cache->figure[i][j].fd = -EBADF;
	return c;
}

static int fail(struct cgroup *c, int r, struct zw_error *e)
{
	if (c != NULL)
		(void) cgroup_remove(c);
	return zw_errno(e, -r, "cannot make the control groups");
}

static int begin_at(struct cgroup_places *places, const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e)
{
	struct cgroup *c = cgroup_new();
	int r = -ESTALE;

	c->places = *places;
	*places = (struct cgroup_places){.count = 0};
	c->limits = *limits;
	c->wanted = wanted_by(limits);
	for (size_t i = 0; i < NAMES_TRIED && r == -ESTALE; i++) {
		drop_parts(c, 0);
		r = cgroup_new_name(c->name);
		if (r == 0)
			r = make_first(c);
	}
	if (r < 0)
		return fail(c, r, e);
	*ret = c;
	return 0;
}

int cgroup_finish(struct cgroup *c, struct zw_error *e)
{
	/* The most important first, for the sentence. */
	static const enum cgroup_controller order[] = {CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_IO, CGROUP_CPUACCT};
	int r = make_rest(c);

	if (r < 0)
		return fail(NULL, r, e);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		if (c->lack[order[i]] == NULL)
			continue;
		(void) zw_error(e, ENOTSUP, "%s: %s", cgroup_names[order[i]], c->lack[order[i]]);
		break;
	}
	return 0;
}

int cgroup_create_at(struct cgroup_places *places, const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e)
{
	struct cgroup *c;
	int r = begin_at(places, limits, &c, e);

	if (r < 0)
		return r;
	r = cgroup_finish(c, e);
	if (r < 0) {
		(void) cgroup_remove(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* Without /proc nothing can be held, which is not a fault of ours: the controllers are absent. */
static void find_places(struct cgroup_places *ret)
{
	if (cgroup_places_find(ret, NULL) < 0)
		*ret = (struct cgroup_places){.count = 0};
}

int cgroup_begin(const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e)
{
	struct cgroup_places places;

	find_places(&places);
	return begin_at(&places, limits, ret, e);
}

static int create_here(const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e)
{
	struct cgroup_places places;

	find_places(&places);
	return cgroup_create_at(&places, limits, ret, e);
}

/* True when a place of our own in the v2 tree would give what is missing. */
static bool lacks_a_place(struct cgroup *c)
{
	static const enum cgroup_controller grave[] = {CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_IO};

	if (cgroup_place_of(&c->places, CGROUP_V2, CGROUP_MEMORY) == NULL)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(grave); i++)
		if (c->lack[grave[i]] != NULL && cgroup_place_of(&c->places, CGROUP_V1, grave[i]) == NULL)
			return true;
	return false;
}

int cgroup_create(const struct cgroup_limits *limits, struct cgroup **ret, struct zw_error *e)
{
	cleanup_free char *dir = NULL;
	struct zw_error why = {0};
	struct cgroup *c = NULL;
	int r = create_here(limits, &c, e);

	if (r < 0)
		return r;
	if (geteuid() == 0 || !lacks_a_place(c)) {
		*ret = c;
		return 0;
	}
	dir = getenv("XDG_RUNTIME_DIR") != NULL ? xstrdup(getenv("XDG_RUNTIME_DIR"))
						: xasprintf("/run/user/%u", (unsigned) geteuid());
	r = cgroup_scope_enter(dir, getpid(), SCOPE_TIMEOUT, &why);
	if (r < 0) {
		log_debug("%s", why.text);
		*ret = c;
		return 0;
	}
	/* We are somewhere else now. */
	c = cgroup_remove(c);
	if (e != NULL)
		*e = (struct zw_error){0};
	return create_here(limits, ret, e);
}

enum cgroup_version cgroup_holds(const struct cgroup *c, enum cgroup_controller controller)
{
	return c->holder[controller] == NULL ? CGROUP_ABSENT : c->holder[controller]->place->version;
}

const char *cgroup_lack(const struct cgroup *c, enum cgroup_controller controller)
{
	if (c->holder[controller] != NULL)
		return "";
	return c->lack[controller] != NULL ? c->lack[controller] : "no limit asks for it";
}

static const struct cgroup_part *v2_part(const struct cgroup *c)
{
	for (size_t i = 0; i < c->part_count; i++)
		if (c->parts[i].place->version == CGROUP_V2)
			return &c->parts[i];
	return NULL;
}

int cgroup_clone_fd(const struct cgroup *c)
{
	const struct cgroup_part *p = v2_part(c);

	return p == NULL ? -EBADF : p->group;
}

size_t cgroup_join_fds(const struct cgroup *c, int fds[CGROUP_CONTROLLER_MAX])
{
	size_t count = 0;

	for (size_t i = 0; i < c->part_count && count < CGROUP_CONTROLLER_MAX; i++)
		if (c->parts[i].tasks >= 0)
			fds[count++] = c->parts[i].tasks;
	return count;
}

int cgroup_oom_fd(const struct cgroup *c, short *ret_events)
{
	const struct cgroup_part *p = c->holder[CGROUP_MEMORY];
	struct file *oom = &c->cache->oom;

	if (p == NULL)
		return -EBADF;
	if (!oom->tried) {
		oom->fd = p->place->version == CGROUP_V2 ? cgroup_v2_oom_fd(p->group) : cgroup_v1_oom_fd(p->group);
		oom->tried = true;
	}
	if (oom->fd < 0)
		return -EBADF;
	*ret_events = p->place->version == CGROUP_V2 ? POLLPRI : POLLIN;
	return oom->fd;
}

/* The descriptor of a figure of a part, opened once. */
static int figure_fd(const struct cgroup *c, size_t part, size_t row)
{
	const struct cgroup_part *p = &c->parts[part];
	const struct cgroup_figures *figures = &ops_of(p)->figures;
	struct file *f = &c->cache->figure[part][row];

	if (!f->tried) {
		enum cgroup_controller controller = figures->rows[row].controller;

		/* One source a figure: a v1 hierarchy "cpu,cpuacct" counts as well what the v2 group counts. */
		if ((p->controllers & CGROUP_BIT(controller)) != 0 &&
		    (c->holder[controller] == NULL || c->holder[controller] == p))
			f->fd = openat(p->group, figures->rows[row].file, O_RDONLY | O_CLOEXEC);
		f->tried = true;
	}
	return f->fd;
}

void cgroup_prepare(const struct cgroup *c)
{
	for (size_t i = 0; i < c->part_count; i++)
		for (size_t j = 0; j < ops_of(&c->parts[i])->figures.count; j++)
			if (!ops_of(&c->parts[i])->figures.rows[j].passing)
				(void) figure_fd(c, i, j);
}

static void read_figures(const struct cgroup *c, unsigned controllers, bool passing, struct cgroup_stats *ret)
{
	for (size_t i = 0; i < c->part_count; i++) {
		const struct cgroup_figures *figures = &ops_of(&c->parts[i])->figures;

		for (size_t j = 0; j < figures->count; j++) {
			const struct cgroup_figure *f = &figures->rows[j];
			int fd = -EBADF;

			if ((controllers & CGROUP_BIT(f->controller)) != 0 && (passing || !f->passing))
				fd = figure_fd(c, i, j);
			if (fd >= 0)
				*(uint64_t *) (void *) ((char *) ret + f->offset) = cgroup_figure_read(f, fd);
		}
	}
}

static const struct cgroup_stats nothing_known = {
    .memory_peak = ZW_UNLIMITED,
    .memory_current = ZW_UNLIMITED,
    .oom_kills = ZW_UNLIMITED,
    .processes_current = ZW_UNLIMITED,
    .processes_peak = ZW_UNLIMITED,
    .process_limit_hits = ZW_UNLIMITED,
    .cpu = ZW_UNLIMITED,
    .io_read_bytes = ZW_UNLIMITED,
    .io_write_bytes = ZW_UNLIMITED,
};

void cgroup_read_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
	*ret = nothing_known;
	read_figures(c, ~0U, true, ret);
}

void cgroup_read_final_stats(const struct cgroup *c, struct cgroup_stats *ret)
{
	*ret = nothing_known;
	read_figures(c, ~0U, false, ret);
}

usec_t cgroup_cpu(const struct cgroup *c)
{
	struct cgroup_stats stats = nothing_known;

	read_figures(c, CGROUP_BIT(CGROUP_CPUACCT), false, &stats);
	return stats.cpu;
}

uint64_t cgroup_oom_kills(const struct cgroup *c)
{
	struct cgroup_stats stats = nothing_known;

	read_figures(c, CGROUP_BIT(CGROUP_MEMORY), false, &stats);
	return stats.oom_kills;
}

uint64_t cgroup_memory(const struct cgroup *c)
{
	struct cgroup_stats stats = nothing_known;

	read_figures(c, CGROUP_BIT(CGROUP_MEMORY), false, &stats);
	return stats.memory_current;
}

int cgroup_kill(const struct cgroup *c)
{
	const struct cgroup_part *p = v2_part(c);
	int r = p == NULL ? -ENOTSUP : fd_write_file_at(p->group, "cgroup.kill", "1"); /* 5.14 */

	return r == -ENOENT ? -ENOTSUP : r;
}

int cgroup_freeze(const struct cgroup *c, bool freeze)
{
	const struct cgroup_part *p = v2_part(c);
	int r = p == NULL ? -ENOTSUP : fd_write_file_at(p->group, "cgroup.freeze", freeze ? "1" : "0"); /* 5.2 */

	return r == -ENOENT ? -ENOTSUP : r;
}

enum cgroup_version cgroup_child_kind(const struct cgroup *c)
{
	return cgroup_child_kind_at(c->parts, c->part_count);
}

int cgroup_child_make(const struct cgroup *c, uint32_t number, struct cgroup_child **ret)
{
	return cgroup_child_make_at(c->parts, c->part_count, number, ret);
}

int cgroup_child_own(const struct cgroup *c, pid_t agent, struct cgroup_child **ret)
{
	return cgroup_child_own_at(c->parts, c->part_count, agent, ret);
}

struct cgroup *cgroup_remove(struct cgroup *c)
{
	if (c == NULL)
		return NULL;
	fd_close(&c->cache->oom.fd);
	drop_parts(c, REMOVE_PATIENCE);
	cgroup_places_done(&c->places);
	free(c->cache);
	free(c);
	return NULL;
}

static const struct cgroup_part *part_at(const struct cgroup *c, const struct cgroup_place *place)
{
	for (size_t i = 0; i < c->part_count; i++)
		if (c->parts[i].place == place)
			return &c->parts[i];
	return NULL;
}

/* In v2 a run with other limits may have had another ancestor for its base: all of them are looked through. */
static void reap_v2(const struct cgroup *c, const struct cgroup_place *place, const struct cgroup_part *part,
		    struct cgroup_alive *alive)
{
	cleanup_free char *rel = xstrdup(place->rel);
	struct stat st, own = {0};

	if (part != NULL && fstat(part->base, &own) < 0)
		return;
	for (size_t depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
		cleanup_fd int base = cgroup_open_dir(place->root, rel);

		if (base >= 0 && fstat(base, &st) == 0)
			cgroup_reap_base(base, CGROUP_V2, part != NULL ? part->name : c->name, st.st_ino == own.st_ino, alive);
		if (!cgroup_parent(rel))
			break;
	}
}

static void reap_v1(struct cgroup *c, struct cgroup_place *place, const struct cgroup_part *part, struct cgroup_alive *alive)
{
	cleanup_fd int base = -EBADF;

	if (part != NULL) {
		cgroup_reap_base(part->base, CGROUP_V1, part->name, true, alive);
		return;
	}
	/* This run did not need the hierarchy, but another of ours may have. */
	if (!cgroup_place_has_groups(&c->places, place) || cgroup_place_open(&c->places, place) < 0)
		return;
	base = cgroup_open_dir(place->root, place->rel);
	if (base >= 0)
		cgroup_reap_base(base, CGROUP_V1, c->name, false, alive);
}

void cgroup_reap(struct cgroup *c)
{
	struct cgroup_alive alive = {{0}};

	for (size_t i = 0; i < c->places.count; i++) {
		struct cgroup_place *place = &c->places.at[i];
		const struct cgroup_part *part = part_at(c, place);

		if (place->version == CGROUP_V1)
			reap_v1(c, place, part, &alive);
		else if (cgroup_place_open(&c->places, place) == 0)
			reap_v2(c, place, part, &alive);
	}
}
