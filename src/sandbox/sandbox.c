#include "sandbox/sandbox.h"

#include <assert.h>

#include "base/fd.h"
#include "base/mem.h"

static const char *const control_names[] = {
    [CONTROL_MEMORY] = "memory",
    [CONTROL_PROCESSES] = "processes",
    [CONTROL_CPUS] = "cpus",
    [CONTROL_CPU_TIME] = "cpu_time",
    [CONTROL_WALL_TIME] = "wall_time",
    [CONTROL_OPEN_FILES] = "open_files",
    [CONTROL_FILE_SIZE] = "file_size",
    [CONTROL_DISK] = "disk",
    [CONTROL_SCRATCH] = "scratch",
    [CONTROL_OUTPUT] = "output",
    [CONTROL_IO] = "io",
    [CONTROL_FILESYSTEM] = "filesystem",
    [CONTROL_SYSCALLS] = "syscalls",
    [CONTROL_NETWORK] = "network",
    [CONTROL_PROCESS_VIEW] = "process_view",
    [CONTROL_IPC] = "ipc",
    [CONTROL_IDENTITY] = "identity",
};
static_assert(ARRAY_SIZE(control_names) == CONTROL_MAX, "every control has a name");

const char *control_name(enum control c)
{
	return control_names[c];
}

void sandbox_done(struct sandbox *s)
{
	fd_close(&s->channel);
	fd_close(&s->listener);
	fd_close(&s->pidfd);
	fd_close(&s->scratch);
	for (size_t i = 0; i < ARRAY_SIZE(s->upper); i++)
		fd_close(&s->upper[i]);
	s->cgroup = cgroup_remove(s->cgroup);
	for (size_t i = 0; i < CONTROL_MAX; i++) {
		free(s->controls[i].why);
		s->controls[i] = (struct control_state){0};
	}
}
