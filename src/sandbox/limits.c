/* Limits that the supervisor itself holds: wall time by a timer, CPU time by reading the group's clock when it could first be
 * used up, and, where no control group does it, memory, processes and CPU time by looking. The next look is set to when the limit
 * could be reached at the earliest, so a program far from its limits is looked at seldom, one close to them often. */
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/controls.h"
#include "sandbox/disk.h"
#include "sandbox/processes.h"
#include "sandbox/supervise.h"

#define CPU_STEP_MIN (5 * USEC_PER_MSEC)
#define WATCH_MIN (2 * USEC_PER_MSEC)
#define SETTLE_MAX (30 * USEC_PER_MSEC) /* a process that was ended is gone by then */
#define WATCH_MAX (50 * USEC_PER_MSEC)
#define DISK_STEP_MIN (10 * USEC_PER_MSEC)
#define SCRATCH_STEP_MAX (500 * USEC_PER_MSEC) /* small files fill the count before they fill the size */
#define BYTES_PER_USEC UINT64_C(2000)          /* how fast memory or a disk can be filled: 2 GB/s */
#define OOM_SETTLE (20 * USEC_PER_MSEC)

static usec_t clamp(usec_t t, usec_t low, usec_t high)
{
	return t < low ? low : t > high ? high : t;
}

static struct processes_sum measure(const struct supervisor *s)
{
	struct processes_sum sum;

	processes_measure(s->sandbox->pid, s->main_inside, &sum);
	return sum;
}

/* How much of the CPU time limit may pass before the next look: all CPUs that the sandbox can use at once. */
usec_t limits_cpu_step(const struct supervisor *s, usec_t remaining)
{
	uint64_t cpus = (uint64_t) sysconf(_SC_NPROCESSORS_ONLN), quota = s->plan->limits.cgroup.cpu_quota;
	usec_t step = remaining / (cpus > 0 ? cpus : 1);

	if (quota != ZW_UNLIMITED && quota > 0 && quota < cpus * 100 * USEC_PER_MSEC)
		step = (usec_t) ((double) remaining * 100000.0 / (double) quota);
	return step < CPU_STEP_MIN ? CPU_STEP_MIN : step;
}

/* Times of processes that nobody waited for are lost to their parents; what was seen once stays counted. */
usec_t limits_cpu_seen(struct supervisor *s)
{
	usec_t used = measure(s).cpu;

	if (used > s->watch.cpu_seen)
		s->watch.cpu_seen = used;
	return s->watch.cpu_seen;
}

static usec_t cpu_used(struct supervisor *s)
{
	usec_t used = cgroup_cpu(s->sandbox->cgroup);

	return used != ZW_UNLIMITED ? used : limits_cpu_seen(s);
}

static void check_cpu(struct supervisor *s, usec_t now)
{
	usec_t limit = s->plan->limits.cpu_time, used = cpu_used(s);

	if (used >= limit) {
		supervisor_kill(s, KILLED_CPU_TIME);
		return;
	}
	s->due[DUE_CPU] = now + limits_cpu_step(s, limit - used);
}

static uint64_t tmpfs_used_by(int fd)
{
	struct statfs st;

	if (fd < 0 || fstatfs(fd, &st) < 0)
		return 0;
	return (uint64_t) (st.f_blocks - st.f_bfree) * (uint64_t) st.f_bsize;
}

/* Of all that lies in the sandbox's own tmpfs mounts. Keeps the most that was seen in the scratch. */
static uint64_t tmpfs_used(struct supervisor *s)
{
	uint64_t scratch = tmpfs_used_by(s->watch.scratch_fd);

	if (scratch > s->watch.scratch_peak)
		s->watch.scratch_peak = scratch;
	return scratch + tmpfs_used_by(s->watch.shm_fd);
}

/* What a memory controller would charge, as near as can be seen from outside: private pages, each shared page once, memory files,
 * and what lies in the sandbox's own tmpfs mounts. Resident sizes added up are quick to have and never too little for mapped
 * pages; the exact figure is dear (page tables, every descriptor): it is had when the sum is over the limit, else in at most a
 * twentieth of the time. */
static uint64_t memory_used(struct supervisor *s, const struct processes_sum *sum)
{
	uint64_t files = tmpfs_used(s), rough = sum->resident + files + s->watch.memfd_bytes, exact, shmem;
	usec_t now = now_monotonic();

	if (rough <= s->plan->limits.cgroup.memory && now < s->watch.exact_next)
		return rough;
	s->watch.memfd_bytes = processes_memfd(s->sandbox->pid);
	files += s->watch.memfd_bytes;
	exact = processes_pss(s->sandbox->pid, &shmem) + (shmem > files ? shmem : files);
	s->watch.exact_next = now + clamp(20 * (now_monotonic() - now), WATCH_MIN, USEC_PER_SEC);
	if (exact > s->watch.memory_peak)
		s->watch.memory_peak = exact;
	return exact;
}

static void name_largest(struct supervisor *s, const struct process *p)
{
	if (p->pid != 0)
		(void) snprintf(s->evidence.largest, sizeof s->evidence.largest, "%s", p->comm);
}

/* A process may take a while to die, and its memory to come back. */
bool limits_has_killed(const struct supervisor *s, pid_t pid)
{
	for (size_t i = 0; i < KILLS_AT_ONCE; i++)
		if (s->watch.killed[i] == pid)
			return true;
	return false;
}

/* The largest first, as many as it takes. */
static void end_largest(struct supervisor *s, const struct processes_sum *sum, uint64_t used)
{
	uint64_t excess = used - s->plan->limits.cgroup.memory, freed = 0;
	struct process list[KILLS_AT_ONCE];
	unsigned killed = 0;
	size_t count = processes_largest(s->sandbox->pid, list, ARRAY_SIZE(list));

	for (size_t i = 0; i < count && freed < excess; i++) {
		if (limits_has_killed(s, list[i].pid)) {
			freed += list[i].resident; /* it will be */
			continue;
		}
		if (processes_kill(s->sandbox->pid, list[i].pid) < 0)
			continue;
		freed += list[i].resident;
		s->watch.killed[s->watch.kills++ % KILLS_AT_ONCE] = list[i].pid;
		s->watch.killed_at = now_monotonic();
		if (killed++ == 0)
			name_largest(s, &list[i]);
		if (list[i].pid == sum->main.pid)
			s->evidence.watchdog_killed_main = true;
	}
	if (killed == 0)
		return;
	s->evidence.memory_at_kill = used;
	supervisor_limit_event(s, "memory");
}

/* Is one of those that were ended a moment ago still there? Its memory may then be counted in one half of a look and not in the
 * other, and the next largest would die for it. */
static bool is_settling(const struct supervisor *s)
{
	if (s->watch.kills == 0 || now_monotonic() - s->watch.killed_at > SETTLE_MAX)
		return false;
	for (size_t i = 0; i < KILLS_AT_ONCE; i++)
		if (s->watch.killed[i] != 0 && kill(s->watch.killed[i], 0) == 0)
			return true;
	return false;
}

/* Returns when memory could be used up at the earliest. */
static usec_t watch_memory(struct supervisor *s, const struct processes_sum *sum)
{
	bool settling = is_settling(s);
	uint64_t limit = s->plan->limits.cgroup.memory, used = memory_used(s, sum);

	if (used > limit && settling)
		return WATCH_MIN;
	if (used > limit) {
		end_largest(s, sum, used);
		return WATCH_MIN;
	}
	return (limit - used) / BYTES_PER_USEC;
}

static usec_t watch_processes(struct supervisor *s, const struct processes_sum *sum)
{
	uint64_t limit = s->plan->limits.cgroup.processes;

	if (sum->tasks > limit) {
		supervisor_denial(s, &(struct denial){.kind = "process", .name = "processes"});
		supervisor_kill(s, KILLED_PROCESSES);
		return WATCH_MAX;
	}
	return (limit - sum->tasks) * 20; /* a fork takes longer than that */
}

/* Recorded once: how often the kernel refused cannot be known. */
static usec_t record_process_limit(struct supervisor *s, const struct processes_sum *sum)
{
	uint64_t limit = s->plan->limits.cgroup.processes;

	if (s->watch.process_limit_met)
		return WATCH_MAX;
	if (sum->tasks < limit)
		return (limit - sum->tasks) * 20;
	s->watch.process_limit_met = true;
	supervisor_denial(s, &(struct denial){.kind = "process", .name = "processes"});
	return WATCH_MAX;
}

static void check_watch(struct supervisor *s, usec_t now)
{
	struct processes_sum sum = measure(s);
	usec_t step = WATCH_MAX, memory;

	if (s->watch.processes)
		step = watch_processes(s, &sum);
	if (s->watch.process_limit)
		step = record_process_limit(s, &sum);
	if (s->watch.memory) {
		memory = watch_memory(s, &sum);
		step = memory < step ? memory : step;
	}
	s->due[DUE_WATCH] = now + clamp(step, WATCH_MIN, WATCH_MAX);
}

/* A walk costs what the folders hold: at most a tenth of the time goes into walks. */
static void check_disk(struct supervisor *s, usec_t now)
{
	uint64_t used = disk_used(s->sandbox), limit = s->plan->limits.disk;
	uint64_t grown = used > s->watch.disk_before ? used - s->watch.disk_before : 0;
	usec_t cost = now_monotonic() - now, step;

	if (grown > limit) {
		supervisor_kill(s, KILLED_DISK);
		return;
	}
	step = (limit - grown) / BYTES_PER_USEC;
	step = step > DISK_STEP_MIN ? step : DISK_STEP_MIN;
	s->due[DUE_DISK] = now + (step > 10 * cost ? step : 10 * cost);
}

static void check_scratch(struct supervisor *s, usec_t now)
{
	uint64_t left = 0;
	bool over = disk_scratch_over(s->sandbox, &left);
	usec_t cost = now_monotonic() - now, step = left / BYTES_PER_USEC;

	if (over) {
		supervisor_kill(s, KILLED_SCRATCH);
		return;
	}
	step = clamp(step, DISK_STEP_MIN, SCRATCH_STEP_MAX);
	s->due[DUE_SCRATCH] = now + (step > 10 * cost ? step : 10 * cost);
}

uint64_t limits_oom_kills(const struct supervisor *s)
{
	return s->watch.memory ? s->watch.kills : cgroup_oom_kills(s->sandbox->cgroup);
}

static void note_oom(struct supervisor *s, uint64_t kills)
{
	if (kills != ZW_UNLIMITED && kills > s->oom_seen)
		supervisor_limit_event(s, "memory");
	s->oom_seen = kills;
}

/* The kernel has killed something for memory. Whoever is there a moment later, neither dying nor about to, was not it. */
static void check_oom(struct supervisor *s, usec_t now)
{
	struct cgroup_stats stats;

	cgroup_read_stats(s->sandbox->cgroup, &stats);
	if (stats.oom_kills != s->oom_seen) {
		note_oom(s, stats.oom_kills); /* version 1 wakes us before it kills */
		s->due[DUE_OOM] = now + OOM_SETTLE;
		return;
	}
	if (stats.oom_kills != ZW_UNLIMITED && !s->workload->outlived(s, stats.oom_kills))
		s->due[DUE_OOM] = now + OOM_SETTLE;
}

static void drain_event(int fd)
{
	char buf[512];

	/* The group's file is cleared by reading it from the start, an eventfd by reading it. */
	if (pread(fd, buf, sizeof buf, 0) < 0)
		(void) !read(fd, buf, 8);
}

void limits_oom(struct supervisor *s)
{
	uint64_t limit = s->plan->limits.cgroup.memory;
	struct processes_sum sum = measure(s);
	struct cgroup_stats stats;
	short events;

	drain_event(cgroup_oom_fd(s->sandbox->cgroup, &events));
	cgroup_read_stats(s->sandbox->cgroup, &stats);
	/* Only a claim that holds: when the victim's memory is back already, the largest that is left says nothing. */
	if (limit != ZW_UNLIMITED && sum.resident > limit / 2)
		name_largest(s, &sum.largest);
	else if (s->evidence.largest[0] == '\0')
		name_largest(s, sum.main.dying ? &sum.main : &(struct process){0});
	note_oom(s, stats.oom_kills);
	s->due[DUE_OOM] = now_monotonic() + OOM_SETTLE;
}

/* /proc/PID/root leads into the sandbox; a mount point can't be moved away by what runs there. A place that is the host's own
 * (process level) is not the sandbox's memory. */
static int open_tmpfs(const struct supervisor *s, const char *place)
{
	cleanup_fd int fd = -EBADF;
	struct stat inside, outside;
	struct statfs fs;
	char path[64];

	(void) snprintf(path, sizeof path, "/proc/%d/root%s", (int) s->sandbox->pid, place);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC || fstat(fd, &inside) < 0)
		return -EBADF;
	if (stat(place, &outside) == 0 && outside.st_dev == inside.st_dev)
		return -EBADF;
	return take_fd(&fd);
}

static bool same_device(int a, int b)
{
	struct stat x, y;

	return a >= 0 && b >= 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev;
}

void limits_prepare(struct supervisor *s)
{
	const struct control_state *controls = s->sandbox->controls;

	s->watch.memory = control_is(&controls[CONTROL_MEMORY], "watchdog");
	s->watch.processes = control_is(&controls[CONTROL_PROCESSES], "watchdog");
	s->watch.process_limit = control_is(&controls[CONTROL_PROCESSES], "rlimit");
	s->watch.scratch = control_is(&controls[CONTROL_SCRATCH], "watchdog");
	s->watch.disk = control_is(&controls[CONTROL_DISK], "watchdog");
	if (s->watch.disk)
		s->watch.disk_before = disk_used(s->sandbox);
	s->watch.scratch_fd = open_tmpfs(s, "/tmp");
	if (s->watch.memory)
		s->watch.shm_fd = open_tmpfs(s, "/dev/shm");
	if (same_device(s->watch.scratch_fd, s->watch.shm_fd))
		fd_close(&s->watch.shm_fd);                           /* counted already */
	s->watch.scratch_before = tmpfs_used_by(s->watch.scratch_fd); /* what the level itself keeps in the same file system */
}

void limits_arm_wall(struct supervisor *s, usec_t from)
{
	if (s->plan->limits.time != ZW_UNLIMITED)
		s->due[DUE_WALL] = from + s->plan->limits.time;
}

static void watch_from(struct supervisor *s, enum deadline which, usec_t step)
{
	if (s->due[which] == ZW_UNLIMITED)
		s->due[which] = now_monotonic() + step;
}

void limits_watch(struct supervisor *s)
{
	if (s->watch.memory || s->watch.processes || s->watch.process_limit)
		watch_from(s, DUE_WATCH, WATCH_MIN);
	if (s->watch.scratch)
		watch_from(s, DUE_SCRATCH, DISK_STEP_MIN);
	if (s->watch.disk)
		watch_from(s, DUE_DISK, DISK_STEP_MIN);
}

void limits_start(struct supervisor *s)
{
	const struct control_state *controls = s->sandbox->controls;
	usec_t limit = s->plan->limits.cpu_time;

	limits_arm_wall(s, s->started);
	if (limit != ZW_UNLIMITED && !control_is(&controls[CONTROL_CPU_TIME], "none"))
		s->due[DUE_CPU] = s->started + limits_cpu_step(s, limit);
	limits_watch(s);
}

void limits_due(struct supervisor *s, enum deadline which)
{
	usec_t now = now_monotonic();

	/* Nobody is there who could use anything: the next start asks for the looks again. */
	if ((which == DUE_WATCH || which == DUE_SCRATCH || which == DUE_DISK) && s->workload->is_idle(s))
		return;
	switch (which) {
	case DUE_WALL:
		supervisor_kill(s, KILLED_WALL_TIME);
		break;
	case DUE_CPU:
		check_cpu(s, now);
		break;
	case DUE_WATCH:
		check_watch(s, now);
		break;
	case DUE_DISK:
		check_disk(s, now);
		break;
	case DUE_SCRATCH:
		check_scratch(s, now);
		break;
	case DUE_OOM:
		check_oom(s, now);
		break;
	case DUE_REPLY:
	case DUE_GRACE:
	case DUE_DRAIN:
	case DUE_EGRESS:
	case DUE_WORK:
	case DUE_MAX:
		break;
	}
}

uint64_t limits_scratch_peak(struct supervisor *s)
{
	if (s->watch.scratch_fd < 0 || s->plan->scratch_size == ZW_UNLIMITED)
		return ZW_UNLIMITED;
	(void) tmpfs_used(s);
	return s->watch.scratch_peak > s->watch.scratch_before ? s->watch.scratch_peak - s->watch.scratch_before : 0;
}

void limits_done(struct supervisor *s)
{
	fd_close(&s->watch.scratch_fd);
	fd_close(&s->watch.shm_fd);
}
