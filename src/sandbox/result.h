/* The truth about a run: what ended it, by which evidence, and what it used. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "policy/policy.h"
#include "sandbox/changes.h"
#include "sandbox/connections.h"
#include "sandbox/denials.h"
#include "sandbox/sandbox.h"

enum run_status {
	STATUS_EXITED,
	STATUS_SIGNALED,
	STATUS_TIMEOUT,
	STATUS_CPU_TIMEOUT,
	STATUS_OUT_OF_MEMORY,
	STATUS_OUTPUT_LIMIT,
	STATUS_CANCELED,
	STATUS_REFUSED,
	STATUS_ERROR,
	STATUS_MAX,
};

struct stream_result {
	struct buf text;  /* what was captured (head and tail); empty when the stream passed through */
	uint64_t bytes;   /* produced by the sandbox */
	uint64_t dropped; /* of them, not handed on */
	uint64_t head;    /* bytes of `text` before the gap, when dropped > 0 */
	int error;        /* errno with which the caller's side refused further bytes (not EPIPE), 0 */
};

struct result {
	const struct plan *plan; /* NULL when refused before there was one */
	char id[32];
	enum run_status status;
	bool has_main_status; /* the main process ended and was seen: wait_status is valid */
	int wait_status;
	int exit_code; /* for STATUS_ERROR: 125, 126, 127; for STATUS_CANCELED: 128 + the signal that we got */
	char reason[512];
	enum isolation_level isolation;
	struct stream_result out, err;
	bool captured;
	usec_t started_at; /* CLOCK_REALTIME; 0: never started */
	struct {           /* ZW_UNLIMITED: cannot be known */
		usec_t wall, cpu;
		uint64_t memory_peak, processes_peak, scratch_peak, oom_kills, io_read, io_write, net_received, net_sent;
	} usage;
	usec_t setup;
	struct step_time steps[40];
	size_t step_count;
	struct control_state controls[CONTROL_MAX]; /* `why` owned */
	struct denials denials;
	struct connections connections;
	struct changes changes;
	char network_fault[300];     /* the broker ended before the sandbox did, "" when not */
	char files_fault[256];       /* what of the folders could not be looked at or copied out, "" when nothing */
	struct policy_errors errors; /* for STATUS_REFUSED */
};

const char *run_status_name(enum run_status status); /* "exited", "out_of_memory", ... */

void result_init(struct result *r);
void result_done(struct result *r);

/* The exit status of `zwinger run` for this result, as in the contract. */
int result_exit_status(const struct result *r);

/* The document, schema zwinger.result/1. `with_text` puts the captured streams in (--json), without it only their counts
 * (--result). Owned by the caller. */
char *result_to_json(const struct result *r, bool with_text);

/* The one line for stderr ("zwinger: ..."), or NULL when there is nothing to say (exited, signaled by its own doing). Points into
 * r. */
const char *result_line(const struct result *r);
