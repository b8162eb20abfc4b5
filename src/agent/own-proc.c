/* Process level: what a process may read of itself in /proc. The ruleset that it is about to enter can name files, and "one's
 * own" is none: so each process that we start adds a rule for its own before it enters. Its children have none (theirs are other
 * files), and neither it nor they can read those of anybody else. A convenience: what fails here is left out. */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"

#ifndef SYS_landlock_add_rule
#define SYS_landlock_add_rule 445
#endif

/* linux/landlock.h, which musl's headers do not have. */
enum { RULE_PATH_BENEATH = 1, ACCESS_READ_FILE = 1 << 2, ACCESS_READ_DIR = 1 << 3 };
struct path_beneath {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

/* Not the folder itself: "net", "mountinfo" and "cgroup" tell of the host. */
static const struct {
	char name[12];
	uint8_t access;
} own_files[OWN_PROC_COUNT] = {
    {"status", ACCESS_READ_FILE},  {"stat", ACCESS_READ_FILE},    {"statm", ACCESS_READ_FILE}, {"maps", ACCESS_READ_FILE},
    {"cmdline", ACCESS_READ_FILE}, {"environ", ACCESS_READ_FILE}, {"auxv", ACCESS_READ_FILE},  {"limits", ACCESS_READ_FILE},
    {"fd", ACCESS_READ_DIR},       {"task", ACCESS_READ_DIR},
};

/* "/proc/PID/name" or "/proc/self/name" for pid 0. */
static int open_own(pid_t pid, const char *name)
{
	char path[48] = "/proc/self/", digits[12];
	size_t count = 0, at = strlen("/proc/");

	for (; pid > 0; pid /= 10)
		digits[count++] = (char) ('0' + pid % 10);
	if (count > 0) {
		while (count > 0)
			path[at++] = digits[--count];
		path[at++] = '/';
	} else {
		at = strlen(path);
	}
	memcpy(path + at, name, strlen(name) + 1);
	return open(path, O_PATH | O_CLOEXEC); /* Landlock looks at opens for use only, so ours reach all of /proc */
}

void own_proc_allow(int ruleset)
{
	for (size_t i = 0; i < OWN_PROC_COUNT; i++) {
		struct path_beneath rule = {.allowed_access = own_files[i].access, .parent_fd = open_own(0, own_files[i].name)};

		if (rule.parent_fd < 0)
			continue;
		(void) syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0);
		(void) close(rule.parent_fd);
	}
}

/* A rule is tied to an inode, and procfs makes a new one when it has forgotten the old: it cannot while we hold it open. */
void own_proc_hold(struct process *p)
{
	struct rlimit limit;

	/* Half of what may be open stays free for terminals and for what comes with the next START. */
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	for (size_t i = 0; i < OWN_PROC_COUNT; i++) {
		p->own[i] = open_own(p->pid, own_files[i].name);
		if (p->own[i] < 0 || (rlim_t) p->own[i] < limit.rlim_cur / 2)
			continue;
		(void) close(p->own[i]);
		p->own[i] = -1;
		return;
	}
}

void own_proc_release(struct process *p)
{
	for (size_t i = 0; i < OWN_PROC_COUNT; i++)
		if (p->own[i] > 0)
			(void) close(p->own[i]);
}
