#include "daemon/sandbox-ceiling.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "daemon/sandbox-ceiling-network.h"
#include "policy/text.h"

static const char default_ceiling[] = "{\"version\": 1, \"isolation\": \"container\", \"enforcement\": \"strict\","
				      " \"syscalls\": {\"profile\": \"default\"},"
				      " \"filesystem\": {\"scratch\": {\"size\": null, \"inodes\": null}},"
				      " \"limits\": {\"time\": null, \"cpu_time\": null, \"cpus\": null, \"memory\": \"2G\","
				      " \"processes\": 1024, \"open_files\": 1048576, \"disk\": \"4G\", \"output\": \"64M\"}}";

/* ---- Numbers. ---- */

enum unit { UNIT_SIZE, UNIT_COUNT, UNIT_TIME };

static const struct number {
	const char *section, *name;
	size_t offset;
	enum unit unit;
} numbers[] = {
    {"limits", "time", offsetof(struct policy, limits.time), UNIT_TIME},
    {"limits", "cpu_time", offsetof(struct policy, limits.cpu_time), UNIT_TIME},
    {"limits", "memory", offsetof(struct policy, limits.memory), UNIT_SIZE},
    {"limits", "swap", offsetof(struct policy, limits.swap), UNIT_SIZE},
    {"limits", "processes", offsetof(struct policy, limits.processes), UNIT_COUNT},
    {"limits", "open_files", offsetof(struct policy, limits.open_files), UNIT_COUNT},
    {"limits", "file_size", offsetof(struct policy, limits.file_size), UNIT_SIZE},
    {"limits", "disk", offsetof(struct policy, limits.disk), UNIT_SIZE},
    {"limits", "output", offsetof(struct policy, limits.output), UNIT_SIZE},
    {"limits", "io_read_bps", offsetof(struct policy, limits.io_read_bps), UNIT_SIZE},
    {"limits", "io_write_bps", offsetof(struct policy, limits.io_write_bps), UNIT_SIZE},
    {"filesystem.scratch", "size", offsetof(struct policy, filesystem.scratch.size), UNIT_SIZE},
    {"filesystem.scratch", "inodes", offsetof(struct policy, filesystem.scratch.inodes), UNIT_COUNT},
    {"network.limits", "bytes_out", offsetof(struct policy, network.limits.bytes_out), UNIT_SIZE},
    {"network.limits", "bytes_in", offsetof(struct policy, network.limits.bytes_in), UNIT_SIZE},
    {"network.limits", "requests", offsetof(struct policy, network.limits.requests), UNIT_COUNT},
    {"network.limits", "connections", offsetof(struct policy, network.limits.connections), UNIT_COUNT},
    {"network.limits", "rate", offsetof(struct policy, network.limits.rate), UNIT_SIZE},
};

static uint64_t value_of(const struct policy *p, const struct number *n)
{
	uint64_t value;

	memcpy(&value, (const char *) p + n->offset, sizeof value);
	return value;
}

/* As a policy writes it; owned by the caller. */
static char *word_of(uint64_t value, enum unit unit)
{
	if (value == ZW_UNLIMITED)
		return xstrdup("null");
	if (unit == UNIT_TIME)
		return format_time_word(value);
	return unit == UNIT_SIZE ? format_size_word(value) : xasprintf("%llu", (unsigned long long) value);
}

/* ---- Points. ---- */

void ceiling_point(json_t *list, const char *path, const char *asked, const char *allowed)
{
	cleanup_free char *message = xasprintf("%s: %s is above the ceiling of this service, which is %s", path, asked, allowed);

	(void) json_array_append_new(
	    list, json_pack("{ss ss ss ss}", "path", path, "message", message, "asked", asked, "allowed", allowed));
}

static void check_numbers(json_t *list, const struct policy *c, const struct policy *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const struct number *n = &numbers[i];
		cleanup_free char *path = NULL, *asked = NULL, *allowed = NULL;

		if (value_of(p, n) <= value_of(c, n))
			continue;
		path = xasprintf("%s.%s", n->section, n->name);
		asked = word_of(value_of(p, n), n->unit);
		allowed = word_of(value_of(c, n), n->unit);
		ceiling_point(list, path, asked, allowed);
	}
}

static void check_cpus(json_t *list, const struct policy *c, const struct policy *p)
{
	char asked[32], allowed[32];

	if (c->limits.cpus <= 0 || (p->limits.cpus > 0 && p->limits.cpus <= c->limits.cpus))
		return;
	(void) snprintf(asked, sizeof asked, "%g", p->limits.cpus);
	(void) snprintf(allowed, sizeof allowed, "%g", c->limits.cpus);
	ceiling_point(list, "limits.cpus", p->limits.cpus > 0 ? asked : "null", allowed);
}

/* Walls in their order of strength. */
static int strength(enum isolation_level level)
{
	static const int strengths[] = {
	    [ISOLATION_PROCESS] = 0, [ISOLATION_CONTAINER] = 1, [ISOLATION_WASM] = 2,
	    [ISOLATION_GVISOR] = 3,  [ISOLATION_MICROVM] = 4,
	};

	return strengths[level];
}

static void check_walls(json_t *list, const struct policy *c, const struct policy *p)
{
	static const char *const profiles[] = {
	    [PROFILE_STRICT] = "strict", [PROFILE_DEFAULT] = "default", [PROFILE_DEBUG] = "debug"};

	if (strength(p->isolation) < strength(c->isolation))
		ceiling_point(list, "isolation", isolation_name(p->isolation), isolation_name(c->isolation));
	if (p->best_effort && !c->best_effort)
		ceiling_point(list, "enforcement", "best-effort", "strict");
	if (p->syscalls.profile > c->syscalls.profile)
		ceiling_point(list, "syscalls.profile", profiles[p->syscalls.profile], profiles[c->syscalls.profile]);
	if (c->limits.kernel && !p->limits.kernel)
		ceiling_point(list, "limits.kernel", "false", "true");
	if (p->filesystem.scratch.exec && !c->filesystem.scratch.exec)
		ceiling_point(list, "filesystem.scratch.exec", "true", "false");
	if (strcmp(p->root, c->root) != 0)
		ceiling_point(list, "root", p->root, c->root);
}

static const char *or_none(const char *text)
{
	return text != NULL ? text : "none";
}

static bool same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* What a request may leave out, but not choose. */
static void check_choices(json_t *list, const struct policy *c, const struct policy *p)
{
	if (!same(p->lsm.apparmor, c->lsm.apparmor))
		ceiling_point(list, "lsm.apparmor", or_none(p->lsm.apparmor), or_none(c->lsm.apparmor));
	if (!same(p->lsm.selinux, c->lsm.selinux))
		ceiling_point(list, "lsm.selinux", or_none(p->lsm.selinux), or_none(c->lsm.selinux));
	if (!same(p->audit.file, c->audit.file))
		ceiling_point(list, "audit.file", or_none(p->audit.file), or_none(c->audit.file));
	if (c->audit.file != NULL && c->audit.exec && !p->audit.exec)
		ceiling_point(list, "audit.exec", "false", "true");
	if (c->audit.file != NULL && c->audit.network && !p->audit.network)
		ceiling_point(list, "audit.network", "false", "true");
	if (c->audit.file != NULL && c->audit.files != AUDIT_FILES_OFF && p->audit.files == AUDIT_FILES_OFF)
		ceiling_point(list, "audit.files", "false", "true");
}

/* ---- Lists. ---- */

bool ceiling_strv_has(const struct strv *v, const char *text)
{
	for (size_t i = 0; i < v->count; i++)
		if (strcmp(v->items[i], text) == 0)
			return true;
	return false;
}

static void check_strv(json_t *list, const char *key, const struct strv *of, const struct strv *in, bool missing)
{
	for (size_t i = 0; i < of->count; i++) {
		cleanup_free char *path = NULL;

		if (ceiling_strv_has(in, of->items[i]))
			continue;
		path = missing ? xstrdup(key) : xasprintf("%s[%zu]", key, i);
		ceiling_point(list, path, missing ? "a list without it" : of->items[i],
			      missing ? of->items[i] : "not in the list");
	}
}

/* A path is allowed as it stands in the ceiling: below it a link could lead anywhere. */
static bool has_mount(const struct policy_mount *mounts, size_t count, const struct policy_mount *m, bool with_size)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(mounts[i].source, m->source) == 0 && (!with_size || m->size <= mounts[i].size))
			return true;
	return false;
}

static bool may_read(const struct policy *c, const struct policy_mount *m)
{
	return has_mount(c->filesystem.read, c->filesystem.read_count, m, false) ||
	       has_mount(c->filesystem.write, c->filesystem.write_count, m, false) ||
	       (c->filesystem.workspace.present && has_mount(&c->filesystem.workspace.mount, 1, m, false));
}

static bool may_write(const struct policy *c, const struct policy_mount *m)
{
	return has_mount(c->filesystem.write, c->filesystem.write_count, m, true) ||
	       (c->filesystem.workspace.present && c->filesystem.workspace.mode == WORKSPACE_RW &&
		has_mount(&c->filesystem.workspace.mount, 1, m, true));
}

static void check_mounts(json_t *list, const struct policy *c, const struct policy *p)
{
	char path[64];

	for (size_t i = 0; i < p->filesystem.read_count; i++) {
		(void) snprintf(path, sizeof path, "filesystem.read[%zu]", i);
		if (!may_read(c, &p->filesystem.read[i]))
			ceiling_point(list, path, p->filesystem.read[i].source, "no such path of the host");
	}
	for (size_t i = 0; i < p->filesystem.write_count; i++) {
		(void) snprintf(path, sizeof path, "filesystem.write[%zu]", i);
		if (!may_write(c, &p->filesystem.write[i]))
			ceiling_point(list, path, p->filesystem.write[i].source, "no such path of the host");
	}
	if (!p->filesystem.workspace.present)
		return;
	if (p->filesystem.workspace.mode == WORKSPACE_RW ? !may_write(c, &p->filesystem.workspace.mount)
							 : !may_read(c, &p->filesystem.workspace.mount))
		ceiling_point(list, "filesystem.workspace", p->filesystem.workspace.mount.source, "no such path of the host");
}

json_t *ceiling_check(const struct policy *c, const struct policy *p)
{
	json_t *list = json_array();

	check_walls(list, c, p);
	check_numbers(list, c, p);
	check_cpus(list, c, p);
	check_mounts(list, c, p);
	check_strv(list, "env.pass", &p->env.pass, &c->env.pass, false);
	check_strv(list, "syscalls.allow", &p->syscalls.allow, &c->syscalls.allow, false);
	check_strv(list, "syscalls.deny", &c->syscalls.deny, &p->syscalls.deny, true);
	check_choices(list, c, p);
	ceiling_check_network(list, c, p);
	return list;
}

/* ---- The ceiling itself. ---- */

int ceiling_read(const char *path, struct policy *ret, struct zw_error *e)
{
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	int r = policy_stack_add_text(stack, "default ceiling", default_ceiling, strlen(default_ceiling), &errors);

	if (r == 0 && path != NULL)
		r = policy_stack_add(stack, path, &errors);
	if (r == 0)
		r = policy_stack_resolve(stack, ret, &errors);
	policy_stack_free(stack);
	if (r < 0) {
		cleanup_free char *text = errors.count > 0 ? policy_error_text(&errors.items[0]) : NULL;

		(void) zw_error(e, EINVAL, "--ceiling: %s", text != NULL ? text : "it cannot be used");
	}
	policy_errors_done(&errors);
	return r;
}

static json_t *json_word(uint64_t value, enum unit unit)
{
	cleanup_free char *word = word_of(value, unit);

	if (value == ZW_UNLIMITED)
		return json_null();
	return unit == UNIT_COUNT ? json_integer((json_int_t) value) : json_string(word);
}

static void set_below(json_t *root, const char *section, const char *name, json_t *value)
{
	cleanup_free char *names = xstrdup(section);
	char *rest = names;
	json_t *at = root;

	for (char *part = strsep(&rest, "."); part != NULL; part = strsep(&rest, ".")) {
		json_t *next = json_object_get(at, part);

		if (next == NULL) {
			next = json_object();
			(void) json_object_set_new(at, part, next);
		}
		at = next;
	}
	(void) json_object_set_new(at, name, value);
}

static json_t *json_strv(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		(void) json_array_append_new(list, json_string(v->items[i]));
	return list;
}

/* Members that have no place in a list of numbers. */
static void set_choices(json_t *root, const struct policy *c)
{
	if (c->limits.cpus > 0)
		set_below(root, "limits", "cpus", json_real(c->limits.cpus));
	if (c->limits.kernel)
		set_below(root, "limits", "kernel", json_true());
	if (!c->filesystem.scratch.exec)
		set_below(root, "filesystem.scratch", "exec", json_false());
	if (c->syscalls.profile == PROFILE_STRICT)
		set_below(root, "syscalls", "profile", json_string("strict"));
	if (c->syscalls.deny.count > 0)
		set_below(root, "syscalls", "deny", json_strv(&c->syscalls.deny));
	if (c->lsm.apparmor != NULL)
		set_below(root, "lsm", "apparmor", json_string(c->lsm.apparmor));
	if (c->lsm.selinux != NULL)
		set_below(root, "lsm", "selinux", json_string(c->lsm.selinux));
	if (c->audit.file != NULL)
		set_below(root, "audit", "file", json_string(c->audit.file));
	(void) json_object_set_new(root, "isolation", json_string(isolation_name(c->isolation)));
	(void) json_object_set_new(root, "root", json_string(c->root));
}

char *ceiling_defaults(const struct policy *c)
{
	static const char nothing[] = "{\"version\": 1, \"limits\": {\"time\": null, \"cpu_time\": null}}";
	struct policy_stack *stack = policy_stack_new();
	struct policy_errors errors = {0};
	struct policy plain = {0};
	json_t *root = json_pack("{si}", "version", 1);
	char *text;

	if (policy_stack_add_text(stack, "defaults", nothing, strlen(nothing), &errors) == 0)
		(void) policy_stack_resolve(stack, &plain, &errors); /* has no faults */
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		uint64_t value = value_of(&plain, &numbers[i]), most = value_of(c, &numbers[i]);

		set_below(root, numbers[i].section, numbers[i].name, json_word(value < most ? value : most, numbers[i].unit));
	}
	set_choices(root, c);
	policy_done(&plain);
	policy_errors_done(&errors);
	policy_stack_free(stack);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	return text;
}

json_t *ceiling_to_json(const struct policy *c)
{
	json_t *root = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (strncmp(numbers[i].section, "limits", 6) == 0)
			set_below(root, "limits", numbers[i].name, json_word(value_of(c, &numbers[i]), numbers[i].unit));
	set_below(root, "limits", "cpus", c->limits.cpus > 0 ? json_real(c->limits.cpus) : json_null());
	(void) json_object_set_new(root, "isolation", json_string(isolation_name(c->isolation)));
	(void) json_object_set_new(root, "enforcement", json_string(c->best_effort ? "best-effort" : "strict"));
	(void) json_object_set_new(root, "network", json_boolean(c->network.allow_count > 0));
	return root;
}
