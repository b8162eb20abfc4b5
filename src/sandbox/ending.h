/* From evidence to the status of a run. Pure: what was seen goes in, status and sentence come out. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/plan.h"
#include "sandbox/result.h"

/* Why the supervisor ended the sandbox itself; the first reason stands. */
enum killed_for {
	KILLED_NOT,
	KILLED_WALL_TIME,
	KILLED_CPU_TIME,
	KILLED_OUTPUT,
	KILLED_DISK,
	KILLED_SCRATCH,   /* the private folder of the process level, which has no size of its own */
	KILLED_PROCESSES, /* by the watchdog: elsewhere the kernel refuses to make more */
	KILLED_NETWORK,   /* a limit of network.limits, where the policy says that it ends the run */
	KILLED_CANCEL,
	KILLED_FAULT, /* the agent broke the protocol, or the supervisor cannot go on */
};

struct evidence {
	enum killed_for killed_for;
	int cancel_signal; /* the first SIGINT, SIGTERM or SIGHUP that arrived, 0 when none */
	bool has_main_status;
	int wait_status;              /* of the main process, by the agent's word */
	int agent_signal, agent_code; /* how the agent itself ended */
	bool exec_failed;
	int exec_errno;
	unsigned exec_stage;   /* enum exec_stage */
	struct zw_error fault; /* code 0: none */
	uint64_t oom_kills;    /* over the whole run; ZW_UNLIMITED: cannot be known */
	uint64_t oom_survived; /* how many of them the main process was seen to outlive */
	bool watchdog_killed_main;
	uint64_t memory_at_kill;   /* what the watchdog measured, 0 when it did nothing */
	char largest[32];          /* name of the largest process when memory ran out, "" when not known */
	const char *network_limit; /* KILLED_NETWORK: "bytes_out", ... static */
	const char *stream;        /* KILLED_OUTPUT: "stdout" or "stderr" */
};

/* Fills status, has_main_status, wait_status, exit_code and reason. */
void ending_decide(const struct evidence *ev, const struct plan *plan, struct result *ret);
