/* Processes of a sandbox, as the daemon sees them: started with pipes of ours, their output kept up to a bound and passed on to
 * readers, of which the slowest sets the pace.
 *
 * Output is a row of chunks, of which each has as its number how many bytes there were with it: so a daemon that takes the
 * process over, and cuts its chunks otherwise, goes on where a reader was. With readers attached nothing is read from the program
 * that one of them is too far behind to take. Without, the newest bytes are kept. A process of `run` has no chunks: its head and
 * tail are captured (capture). */
#pragma once

#include <event2/buffer.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/text-carry.h"

struct journal;
struct process;
struct request;
struct sandbox;

enum { TAG_MAX = 128, STREAM_OUT = 0, STREAM_ERR = 1, STREAMS = 2 };

struct process_wish {
	const json_t *argv; /* a list of texts, or NULL with `shell` */
	const char *shell;
	const json_t *env;
	const char *cwd, *tag;
	int64_t user;           /* -1: the policy's */
	usec_t timeout;         /* ZW_UNLIMITED */
	struct evbuffer *input; /* drained; NULL: none */
	bool keep_input;        /* a pipe for later */
	bool tree;              /* the whole tree ends with it */
	bool capture;
	bool tty;
	unsigned rows, columns;
};

enum process_state { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_ENDED };

struct captured {
	struct evbuffer *head, *tail;
	size_t head_max, tail_max, counted; /* counted: in the budget (output-budget.h) */
	uint64_t dropped;
};

struct stream {
	struct process *process;
	int fd;
	struct event *event;
	bool discard; /* it has ended, and what it left behind goes on writing */
	uint64_t bytes;
	struct text_carry carry;
	struct captured captured;
};

struct process {
	struct process *older, *newer;
	struct sandbox *sandbox;
	uint32_t id; /* of its start */
	int64_t pid;
	char *tag, *cwd;
	json_t *command, *message;
	json_t *env;      /* as its start asked for it, or NULL */
	bool shell_again; /* /bin/bash was not there */
	enum process_state state;
	usec_t started, ended;
	json_t *exit; /* "exited" or "failed"; NULL: the sandbox ended before */
	bool failed, over_limit, tty, capture, keep_input, ending;
	struct stream streams[STREAMS];
	int in;
	struct event *in_event;
	struct evbuffer *input;
	bool in_eof, moving, held;
	struct input_writer *writers;            /* in their order */
	struct chunk *first, *last, **last_link; /* last_link: what leads to the last one */
	size_t output_held;                      /* memory of the chunks */
	uint64_t kept, added, passed, dropped;   /* bytes; passed: the most a reader had */
	struct journal *journal;                 /* NULL: the process ends with this daemon */
	size_t chunk_count;
	struct output_reader *readers;
	void (*on_started)(void *arg, struct process *p); /* failed: look at `exit` */
	void (*on_ended)(void *arg, struct process *p);
	void *arg;
	/* To be set once it is started: sees what a captured one writes, with the `arg` of all. */
	void (*on_output)(void *arg, const char *data, size_t size);
};

/* 0 and *ret, or a positive errno: nothing was started. Callbacks come later, each once, on_ended after on_started; NULL: none.
 */
int process_start(struct sandbox *s, const struct process_wish *wish, void (*on_started)(void *arg, struct process *p),
		  void (*on_ended)(void *arg, struct process *p), void *arg, struct process **ret);
/* By pid or "tag:NAME"; the newest. */
struct process *process_find(struct sandbox *s, const char *name);
json_t *process_to_json(const struct process *p);
/* As in the result document. */
const char *process_status(const struct process *p);
/* Ends it and its tree; nobody waits for the answer. */
void process_kill(struct process *p);
void process_no_answer(void *arg, const json_t *m, int *fd);

/* ---- Standard input. ---- */

/* Somebody who writes: in turn with the others, as fast as the process reads. */
struct input_writer {
	struct input_writer *next;
	struct process *process; /* NULL: it does not wait */
	struct evbuffer *data;   /* the writer's */
	bool eof;                /* close the input behind them */
	/* All bytes have been taken, and the process has read them or has a pipe's worth and a little more before it (0); there
	 * is no input, or no longer one (-EPIPE); too many wait (-EAGAIN). */
	void (*done)(struct input_writer *w, int error);
};
enum { INPUT_WRITERS_MAX = 16 };

bool process_takes_input(const struct process *p);
/* `done` comes once, perhaps before this returns, but not after process_input_forget(). */
void process_input(struct process *p, struct input_writer *w);
/* What has not been taken stays in its buffer. Nothing when it does not wait. */
void process_input_forget(struct input_writer *w);
/* The size of its terminal, which what is written from now on finds. Negative errno: it is to be asked for inside. */
int process_resize(struct process *p, unsigned rows, unsigned columns);
/* One at a time may keep the record of a process, to write to it piece by piece (`held`). */
void process_hold(struct process *p, bool on);

/* Somebody who reads the output of a process. `room` says whether more can be taken; process_readers_wake() when it is so again.
 * Exactly one of `over` (everything was told, and it has ended) and `lost` (its record goes) is the last call, unless the reader
 * was ended before; the reader is gone then. */
struct output_sink {
	void (*chunk)(void *arg, const struct process *p, uint64_t number, unsigned stream, const char *data, size_t size);
	bool (*room)(void *arg);
	void (*over)(void *arg, struct process *p);
	void (*lost)(void *arg);
};
/* From the byte `from` on, of which 1 is the first. Nothing is told before process_readers_wake(). */
struct output_reader *process_read(struct process *p, uint64_t from, const struct output_sink *sink, void *arg);
void process_reader_end(struct output_reader *r);
struct process *process_of_reader(const struct output_reader *r);
void process_readers_wake(struct process *p);
/* Takes the request over: SSE of its output from the byte `from` on. */
void process_follow(struct process *p, struct request *r, uint64_t from);

/* Kept output behind the first `from` bytes of all, in order, until `call` says no. `end` counts all bytes up to the end of the
 * chunk, also those that are not kept any more; the first chunk may begin before `from`, and a chunk may grow later. */
struct chunk_view {
	uint64_t end;
	unsigned stream;
	const char *data;
	size_t size;
};
void process_chunks(const struct process *p, uint64_t from, bool (*call)(void *arg, const struct chunk_view *c), void *arg);
/* Copies the newest bytes that a captured one has written into chunks, for the logs. */
void process_capture_keep(struct process *p);
/* The buffers of a captured one were emptied. */
void process_capture_taken(struct process *p);

/* ---- For sandbox.c. ---- */

void processes_sandbox_ended(struct sandbox *s);
void processes_sweep(struct sandbox *s); /* old records */
void processes_free(struct sandbox *s);

/* From the list of what a supervisor holds, from within the session's `held`. Takes descriptors out of `fds`. False: it makes no
 * sense. end_unknown: for what nobody can go on with. */
bool process_adopt(struct sandbox *s, const json_t *m, int *fds);
bool process_end_unknown(struct sandbox *s, const json_t *m);
/* The descriptor of a process that is held with this meaning, taken; -EBADF: there is none. */
int held_take(const json_t *m, int *fds, int which);

/* ---- Between processes.c, processes-input.c and processes-output.c. ---- */

/* 0 or -ENOMEM; the descriptor is the process's either way. */
int process_input_open(struct process *p, int fd);
void process_input_begin(struct process *p);
void process_input_close(struct process *p);

int process_streams_open(struct process *p, const int fds[STREAMS], size_t count);
void process_streams_drain(struct process *p); /* it has exited */
void process_streams_close(struct process *p);
void process_output_free(struct process *p);
/* Drops the oldest of what is kept and no reader needs, until no more than `most` bytes of memory are held. */
void process_output_shed(struct process *p, size_t most);
int process_capture_init(struct process *p, uint64_t output);
/* What its journal has, into chunks. False: it makes no sense. */
bool process_output_restore(struct process *p);
/* It had ended before: what is in the pipes now is of what it left behind. */
void process_streams_discard(struct process *p);

/* ---- Between processes.c and processes-outlive.c: nothing in a sandbox that ends with the daemon. ---- */

/* Before it is started. 0 or -ENOMEM. */
int process_outlive_begin(struct process *p);
/* Adds what is to be held to the descriptors of its start, of which there is room for SESSION_FDS_MAX. `ours` are the daemon's
 * ends. */
size_t process_outlive_hold(const struct process *p, int fds[], size_t have, const int ours[STREAMS], json_t *message);
void process_outlive_note(const struct process *p);
void process_outlive_note_end(const struct process *p);
void process_outlive_input_over(const struct process *p);
void process_outlive_stream_over(const struct process *p, unsigned which);
void process_outlive_forget(const struct process *p);
/* The file takes no more. */
void process_journal_lost(struct process *p);
void process_restore_end(struct process *p, json_t *exited, usec_t ended);
/* What the supervisor answers to its start. */
void process_answered(void *arg, const json_t *m, int *fd);
