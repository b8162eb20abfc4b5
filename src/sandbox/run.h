/* One run, from a plan to the truth about its end. */
#pragma once

#include "base/err.h"
#include "sandbox/plan.h"
#include "sandbox/result.h"
#include "sandbox/sandbox.h"

struct run_streams {
	int in, out, err; /* the caller's, borrowed. in: -EBADF for /dev/null. With `capture`, out and err are not written to */
	bool capture;     /* keep head and tail of both streams in the result */
	int tty;          /* the caller's terminal for --tty (raw mode, resizes), -EBADF */
};

/* Runs to the end. Always leaves a complete result, whatever happens; the return value says nothing more. SIGINT, SIGTERM,
 * SIGHUP, SIGQUIT, SIGWINCH, SIGCONT, SIGTSTP must be at their defaults on entry: they are blocked and read by the loop, and
 * restored. */
void sandbox_run(const struct plan *plan, const struct isolation_ops *ops, const struct observer *observer,
		 const struct run_streams *streams, struct result *ret);
