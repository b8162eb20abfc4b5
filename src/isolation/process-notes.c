#include <assert.h>

#include "base/mem.h"
#include "isolation/notes.h"

static const struct isolation_note notes[] = {
    {CONTROL_MEMORY, "a control group (memory and swap); without one a watchdog that adds up the processes and ends the largest.",
     "The private folder lies on disk and does not count as memory. The watchdog looks every few milliseconds: a short peak can "
     "pass it."},
    {CONTROL_PROCESSES,
     "a control group; without one RLIMIT_NPROC when root gives the program a uid of its own, else a watchdog that ends the "
     "sandbox.",
     "The watchdog ends the run where the kernel would refuse the fork. Behind it RLIMIT_NPROC leaves room for twice the limit "
     "beyond the uid's "
     "processes at the start, so that a burst of forks cannot outrun it."},
    {CONTROL_CPUS, "a control group.", "Without one it cannot be held, and the run is refused."},
    {CONTROL_CPU_TIME, "a control group's count, else the sum over the processes; RLIMIT_CPU behind it.", ""},
    {CONTROL_WALL_TIME, "the supervisor's timer.", ""},
    {CONTROL_OPEN_FILES, "RLIMIT_NOFILE, for each process.", ""},
    {CONTROL_FILE_SIZE, "RLIMIT_FSIZE, for each file.", ""},
    {CONTROL_DISK, "a watchdog over the writable folders, and RLIMIT_FSIZE for a single file.",
     "More than the limit can be written before the watchdog sees it. A `size` for one folder is refused."},
    {CONTROL_SCRATCH, "a watchdog over the private folder, which is TMPDIR and HOME inside; it ends the run.",
     "No ENOSPC: the run is over. /tmp, /var/tmp and /dev/shm are closed, so POSIX semaphores and shared memory (multiprocessing "
     "pools of "
     "Python, for one) do not work."},
    {CONTROL_OUTPUT, "the supervisor, which counts what it passes on.", ""},
    {CONTROL_IO, "a control group.", "Without one it cannot be held, and the run is refused."},
    {CONTROL_FILESYSTEM,
     "Landlock: nothing can be opened, executed, made, moved or removed but what the policy names, the system's programs and "
     "libraries, and "
     "a few files of /etc, /proc, /sys and /dev. Modes, times, owners and attributes of files, which Landlock does not know, are "
     "held by "
     "the filter and the supervisor: they can be changed in writable folders alone.",
     "stat(2), access(2) and readlink(2) answer for every path that the uid may reach: whether a file exists, its size, owner "
     "and times. "
     "Advisory locks can be taken on what can be read. Paths are the host's own: a target other than the source, a read-only "
     "folder in a "
     "writable one, and a root of another tree are refused. /etc/passwd and its neighbours are the host's. Needs Linux 6.2 "
     "without a uid "
     "of its own."},
    {CONTROL_SYSCALLS, "the same filter as at the other levels, and stricter where a namespace is missing.", ""},
    {CONTROL_NETWORK, "the filter: no socket can be made but connected pairs, so there is none to reach a network with.",
     "Programs cannot serve themselves on loopback or named Unix sockets (Python's forkserver, for one). The network namespace, "
     "and with "
     "it the names of interfaces, is the host's. Nothing is published and no rule can allow a host."},
    {CONTROL_PROCESS_VIEW,
     "Landlock: processes outside cannot be traced, their memory, environment and files in /proc cannot be read, and (from Linux "
     "6.12, or "
     "with a uid of its own) they cannot be signalled. Limits, priorities and processors of others cannot be changed.",
     "That a process with some number exists can be found out. A process can read its own /proc/self only when the supervisor "
     "started it, "
     "its children cannot. The host's name can be read (uname). No pid namespace: what a killed supervisor leaves is ended by "
     "the agent."},
    {CONTROL_IPC,
     "the filter (System V objects, message queues, keyrings, named sockets) and Landlock (/dev/shm, abstract sockets, signals).",
     "Locks on files that two sandboxes can both read."},
    {CONTROL_IDENTITY,
     "no capabilities and no_new_privs. Started by root: a uid of its own that no account has, or that of the folders that may "
     "be written to.",
     "Started by an ordinary user: that user's own uid and groups, and a bounding set that only root could empty. Root's own "
     "uid, where nothing "
     "else will do, only with enforcement: best-effort. process.user and process.hostname have no effect."},
};
static_assert(ARRAY_SIZE(notes) == CONTROL_MAX, "every control has a note");

const struct isolation_note *isolation_process_notes(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(notes);
	return notes;
}
