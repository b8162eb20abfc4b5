/* From the events of a process's output to our own streams, at the pace of who reads those. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "client/sse-in.h"

enum { EXEC_STREAMS = 2 };

struct exec_output {
	struct sse_in sse;
	struct {
		int fd;
		struct buf waiting;
		size_t at;   /* of `waiting`: written already */
		bool whole;  /* a file: it takes all at once */
		bool broken; /* nobody reads any more: what comes is dropped */
	} streams[EXEC_STREAMS];
	json_t *end;        /* PROCESS, when it has ended */
	const char *fault;  /* what is wrong with the stream; a text of ours */
	int dropped_error;  /* positive errno of a write that failed, other than EPIPE */
	bool paused, moved; /* moved: an event came on this connection */
	bool broken_pipe;   /* to be told to the process, once */
	bool json;          /* nothing on standard output but the document at the end: all goes to standard error */
};

void exec_output_init(struct exec_output *o, bool json);
void exec_output_done(struct exec_output *o);
bool exec_output_is_full(const struct exec_output *o); /* take no more for now */
bool exec_output_waits(const struct exec_output *o, size_t stream);
void exec_output_write(struct exec_output *o); /* as much as goes without waiting */
/* Exit status and line of a process that has ended, as those of `zwinger run`. */
int exec_output_status(const json_t *process);
void exec_output_tell_end(const json_t *process);
