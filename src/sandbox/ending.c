#include "sandbox/ending.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/protocol.h"
#include "base/signame.h"

#define REASON(r, ...) ((void) snprintf((r)->reason, sizeof(r)->reason, __VA_ARGS__))

static const char *signal_name(int number, char *buf, size_t size)
{
	const char *abbreviation = signal_abbreviation(number);

	if (abbreviation != NULL)
		(void) snprintf(buf, size, "SIG%s", abbreviation);
	else
		(void) snprintf(buf, size, "signal %d", number);
	return buf;
}

static bool died_from_kill(const struct evidence *ev)
{
	return ev->has_main_status && WIFSIGNALED(ev->wait_status) && WTERMSIG(ev->wait_status) == SIGKILL;
}

/* An out-of-memory kill shows to wait(2) as a plain SIGKILL. The count of the cgroup says that one happened, and it was this
 * process that it hit unless the process was seen alive after the last of them. */
static bool main_out_of_memory(const struct evidence *ev)
{
	if (ev->watchdog_killed_main)
		return true;
	if (ev->oom_kills == ZW_UNLIMITED || ev->oom_kills <= ev->oom_survived)
		return false;
	/* Without a status the agent was taken down with everything else. */
	return died_from_kill(ev) || !ev->has_main_status;
}

static void decide_exec_failed(const struct evidence *ev, const struct plan *plan, struct result *r)
{
	const char *command = plan->argv[0], *what = strerror(ev->exec_errno);

	r->status = STATUS_ERROR;
	r->exit_code = 125;
	switch (ev->exec_stage) {
	case EXEC_STAGE_FORK:
		REASON(r, "cannot start a process inside: %s%s", what, ev->exec_errno == EAGAIN ? "; see limits.processes" : "");
		return;
	case EXEC_STAGE_TTY:
		REASON(r, "cannot make a terminal inside: %s", what);
		return;
	case EXEC_STAGE_CWD:
		REASON(r, "cannot enter the working directory %s inside: %s; see process.cwd", plan->cwd, what);
		return;
	default:
		break;
	}
	if (ev->exec_errno == ENOENT || ev->exec_errno == ENOTDIR) {
		r->exit_code = 127;
		/* execve(2) says ENOENT for the interpreter as well. */
		REASON(r, "%s: not found inside the sandbox%s", command,
		       command[0] == '\0'             ? " (the name of the command is empty)"
		       : strchr(command, '/') != NULL ? " (your own files are shown by --ro, --rw or --workspace), or the "
							"interpreter that its first line names is not"
						      : "");
	} else if (ev->exec_errno == E2BIG) {
		r->exit_code = 126;
		REASON(r, "%s: cannot be executed: the arguments and the environment are longer than the kernel takes", command);
	} else {
		r->exit_code = 126;
		REASON(r, "%s: cannot be executed: %s%s", command, what,
		       ev->exec_errno == EACCES    ? " (it must be a file with its x bit set; chmod +x, or name its interpreter)"
		       : ev->exec_errno == ENOEXEC ? " (a script needs a first line such as #!/bin/sh, a program must be of this "
						     "architecture)"
						   : "");
	}
}

static void decide_out_of_memory(const struct evidence *ev, const struct plan *plan, struct result *r)
{
	char size[32], over[64] = "";
	uint64_t limit = plan->limits.cgroup.memory, used = ev->memory_at_kill > limit ? ev->memory_at_kill : limit;

	r->status = STATUS_OUT_OF_MEMORY;
	/* A watchdog comes late. */
	if (used > limit)
		(void) snprintf(over, sizeof over, " of %s", format_bytes(limit, size, sizeof size));
	if (limit == ZW_UNLIMITED)
		REASON(r, "the host or an outer control group ran out of memory; the policy sets no limit of its own");
	else if (ev->largest[0] != '\0')
		REASON(r, "used %s of memory, %sits limit%s; the largest process was %s", format_bytes(used, size, sizeof size),
		       used > limit ? "over " : "", over, ev->largest);
	else
		REASON(r, "used %s of memory, %sits limit%s", format_bytes(used, size, sizeof size), used > limit ? "over " : "",
		       over);
}

static void decide_killed(const struct evidence *ev, const struct plan *plan, struct result *r)
{
	char text[48];

	switch (ev->killed_for) {
	case KILLED_WALL_TIME:
		r->status = STATUS_TIMEOUT;
		REASON(r, "ran for %s, its wall time limit", format_usec(plan->limits.time, text, sizeof text));
		break;
	case KILLED_CPU_TIME:
		r->status = STATUS_CPU_TIMEOUT;
		REASON(r, "used %s of CPU time, its limit", format_usec(plan->limits.cpu_time, text, sizeof text));
		break;
	case KILLED_OUTPUT:
		r->status = STATUS_OUTPUT_LIMIT;
		REASON(r, "wrote more than its output limit of %s to %s", format_bytes(plan->limits.output, text, sizeof text),
		       ev->stream);
		break;
	case KILLED_DISK:
		r->status = STATUS_OUTPUT_LIMIT;
		REASON(r, "wrote more than its disk limit of %s to writable folders",
		       format_bytes(plan->limits.disk, text, sizeof text));
		break;
	case KILLED_SCRATCH:
		r->status = STATUS_OUTPUT_LIMIT;
		REASON(r, "wrote more than its limit of %s or %llu files to its private folder",
		       format_bytes(plan->scratch_size, text, sizeof text), (unsigned long long) plan->scratch_inodes);
		break;
	case KILLED_PROCESSES:
		r->status = STATUS_OUTPUT_LIMIT;
		REASON(r, "had more than %llu processes and threads, its limit",
		       (unsigned long long) plan->limits.cgroup.processes);
		break;
	case KILLED_NETWORK:
		r->status = STATUS_OUTPUT_LIMIT;
		REASON(r, "reached network.limits.%s, which ends the run", ev->network_limit);
		break;
	case KILLED_CANCEL:
	case KILLED_FAULT:
	case KILLED_NOT:
		break; /* not decided here */
	}
}

static void decide_own_end(const struct evidence *ev, const struct plan *plan, struct result *r)
{
	char text[32], limit[32] = "";

	if (WIFSIGNALED(ev->wait_status)) {
		r->status = STATUS_SIGNALED;
		REASON(r, "killed by %s", signal_name(WTERMSIG(ev->wait_status), text, sizeof text));
	} else {
		r->status = STATUS_EXITED;
		REASON(r, "exited with %d", WEXITSTATUS(ev->wait_status));
	}
	if (ev->oom_kills != ZW_UNLIMITED && ev->oom_kills > 0) {
		size_t n = strlen(r->reason);

		if (plan->limits.cgroup.memory != ZW_UNLIMITED)
			(void) format_bytes(plan->limits.cgroup.memory, limit, sizeof limit);
		(void) snprintf(
		    r->reason + n, sizeof r->reason - n, "; before that the memory limit%s%s ended %llu other process%s%s%s",
		    limit[0] != '\0' ? " of " : "", limit, (unsigned long long) ev->oom_kills, ev->oom_kills == 1 ? "" : "es",
		    ev->largest[0] != '\0' ? ", the largest then was " : "", ev->largest);
	}
}

void ending_decide(const struct evidence *ev, const struct plan *plan, struct result *r)
{
	/* A process that ended by itself in the moment of the kill did end by itself; but too much output stays too much even
	 * when the program was quicker than its reader. */
	bool by_itself = ev->has_main_status && !died_from_kill(ev) && ev->killed_for != KILLED_OUTPUT;
	char name[32];

	r->has_main_status = ev->has_main_status;
	r->wait_status = ev->wait_status;
	if (ev->fault.code != 0) {
		r->status = STATUS_ERROR;
		r->exit_code = 125;
		REASON(r, "%s", ev->fault.text);
	} else if (ev->exec_failed) {
		decide_exec_failed(ev, plan, r);
	} else if (ev->cancel_signal != 0 && (ev->killed_for == KILLED_NOT || ev->killed_for == KILLED_CANCEL)) {
		r->status = STATUS_CANCELED;
		r->exit_code = 128 + ev->cancel_signal;
		REASON(r, "canceled by %s", signal_name(ev->cancel_signal, name, sizeof name));
	} else if (ev->killed_for != KILLED_NOT && !by_itself) {
		decide_killed(ev, plan, r);
	} else if (main_out_of_memory(ev)) {
		decide_out_of_memory(ev, plan, r);
	} else if (ev->has_main_status) {
		decide_own_end(ev, plan, r);
	} else {
		r->status = STATUS_ERROR;
		r->exit_code = 125;
		if (ev->agent_signal != 0)
			REASON(r, "the first process of the sandbox was killed from outside by %s",
			       signal_name(ev->agent_signal, name, sizeof name));
		else
			REASON(r, "the first process of the sandbox ended (%d) without a word about the command", ev->agent_code);
	}
}
