#include "sandbox/controls.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char *const control_keys[] = {
    [CONTROL_MEMORY] = "limits.memory",       [CONTROL_PROCESSES] = "limits.processes",
    [CONTROL_CPUS] = "limits.cpus",           [CONTROL_CPU_TIME] = "limits.cpu_time",
    [CONTROL_WALL_TIME] = "limits.time",      [CONTROL_OPEN_FILES] = "limits.open_files",
    [CONTROL_FILE_SIZE] = "limits.file_size", [CONTROL_DISK] = "limits.disk",
    [CONTROL_SCRATCH] = "filesystem.scratch", [CONTROL_OUTPUT] = "limits.output",
    [CONTROL_IO] = "limits.io_read_bps",      [CONTROL_FILESYSTEM] = "filesystem",
    [CONTROL_SYSCALLS] = "syscalls",          [CONTROL_NETWORK] = "network",
    [CONTROL_PROCESS_VIEW] = "isolation",     [CONTROL_IPC] = "isolation",
    [CONTROL_IDENTITY] = "process.user",
};
static_assert(ARRAY_SIZE(control_keys) == CONTROL_MAX, "every control has a key");

const char *control_key(enum control c)
{
	return control_keys[c];
}

bool control_asked(const struct plan *plan, enum control c)
{
	const struct cgroup_limits *g = &plan->limits.cgroup;

	switch (c) {
	case CONTROL_MEMORY:
		return g->memory != ZW_UNLIMITED;
	case CONTROL_PROCESSES:
		return g->processes != ZW_UNLIMITED;
	case CONTROL_CPUS:
		return g->cpu_quota != ZW_UNLIMITED;
	case CONTROL_CPU_TIME:
		return plan->limits.cpu_time != ZW_UNLIMITED;
	case CONTROL_WALL_TIME:
		return plan->limits.time != ZW_UNLIMITED;
	case CONTROL_OPEN_FILES:
		return plan->limits.open_files != ZW_UNLIMITED;
	case CONTROL_FILE_SIZE:
		return plan->limits.file_size != ZW_UNLIMITED;
	case CONTROL_DISK:
		return plan->limits.disk != ZW_UNLIMITED;
	case CONTROL_SCRATCH:
		return plan->scratch_size != ZW_UNLIMITED;
	case CONTROL_OUTPUT:
		return plan->limits.output != ZW_UNLIMITED;
	case CONTROL_IO:
		return g->io_read_bps != ZW_UNLIMITED || g->io_write_bps != ZW_UNLIMITED;
	case CONTROL_FILESYSTEM:
	case CONTROL_SYSCALLS:
	case CONTROL_NETWORK:
	case CONTROL_PROCESS_VIEW:
	case CONTROL_IPC:
	case CONTROL_IDENTITY:
	case CONTROL_MAX:
		break;
	}
	return true;
}

bool control_is(const struct control_state *c, const char *mechanism)
{
	return c->mechanism != NULL && strcmp(c->mechanism, mechanism) == 0;
}

static void hold(struct control_state *c, const char *mechanism)
{
	free(c->why);
	*c = (struct control_state){.mechanism = mechanism};
}

static void lack(struct control_state *c, char *why)
{
	free(c->why);
	*c = (struct control_state){.mechanism = "none", .why = why};
}

static void settle_by_cgroup(const struct plan *plan, const struct cgroup *cgroup, struct control_state *c,
			     enum cgroup_controller controller, bool watchdog)
{
	switch (cgroup_holds(cgroup, controller)) {
	case CGROUP_V2:
		hold(c, "cgroup2");
		return;
	case CGROUP_V1:
		hold(c, "cgroup1");
		return;
	case CGROUP_ABSENT:
		break;
	}
	if (c->mechanism != NULL && !control_is(c, "none"))
		return; /* the level has a means of its own */
	if (watchdog && !plan->limits.kernel)
		hold(c, "watchdog");
	else if (watchdog)
		lack(c, xasprintf("limits.kernel asks for a mechanism of the kernel, and there is none: %s",
				  cgroup_lack(cgroup, controller)));
	else if (c->why == NULL)
		lack(c, xstrdup(cgroup_lack(cgroup, controller)));
}

static void settle_disk(const struct plan *plan, struct control_state *c)
{
	if (c->mechanism != NULL && !control_is(c, "none"))
		return;
	if (plan->limits.kernel)
		lack(
		    c,
		    xstrdup(
			"limits.kernel asks for a mechanism of the kernel, and limits.disk has none: give each writable folder a "
			"`size` instead"));
	else
		hold(c, "watchdog");
}

/* Which controls a control group holds best, and which of them a watchdog can hold in its place. */
static const struct {
	bool present;
	enum cgroup_controller controller;
	bool watchdog;
} by_cgroup[CONTROL_MAX] = {
    [CONTROL_MEMORY] = {true, CGROUP_MEMORY, true}, [CONTROL_PROCESSES] = {true, CGROUP_PIDS, true},
    [CONTROL_CPUS] = {true, CGROUP_CPU, false},     [CONTROL_CPU_TIME] = {true, CGROUP_CPUACCT, true},
    [CONTROL_IO] = {true, CGROUP_IO, false},
};

void controls_settle(const struct plan *plan, const struct cgroup *cgroup, struct control_state controls[CONTROL_MAX])
{
	for (size_t i = 0; i < CONTROL_MAX; i++) {
		struct control_state *c = &controls[i];

		if (!control_asked(plan, (enum control) i))
			hold(c, NULL);
		else if (by_cgroup[i].present)
			settle_by_cgroup(plan, cgroup, c, by_cgroup[i].controller, by_cgroup[i].watchdog);
		else if (i == CONTROL_WALL_TIME)
			hold(c, "timer");
		else if (i == CONTROL_OUTPUT)
			hold(c, "supervisor");
		else if (i == CONTROL_DISK)
			settle_disk(plan, c);
		else if (plan->limits.kernel && control_is(c, "watchdog"))
			lack(c,
			     xasprintf(
				 "limits.kernel asks for a mechanism of the kernel, and this isolation level has none for it"));
		else if (c->mechanism == NULL)
			lack(c, xstrdup("this isolation level has no means to hold it; see `zwinger doctor`"));
	}
}
