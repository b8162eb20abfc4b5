/* Processes that outlive the daemon: what the next one needs of them is noted with their supervisor (session-wire.h: note, held),
 * and taken from there.
 *
 * A process of `run` belongs to a client that leaves with the daemon, so nothing is noted of it: the next daemon ends it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/process-journal.h"
#include "daemon/processes.h"
#include "daemon/sandbox.h"

enum { PROCESSES_MAX = 4096 };

/* What a supervisor holds of one. Of a terminal: its journal, and the master that it has added. */
enum { HELD_JOURNAL, HELD_OUT, HELD_ERR, HELD_IN, HELD_MAX };

static void tell(const struct process *p, json_t *m)
{
	if (p->sandbox->session != NULL)
		(void) session_ask(p->sandbox->session, m, NULL, 0, process_no_answer, NULL, NULL);
	else
		json_decref(m);
}

/* ---- What is noted. ---- */

int process_outlive_begin(struct process *p)
{
	if (p->sandbox->outlive == NULL || p->capture)
		return 0;
	p->journal = journal_new();
	return p->journal != NULL ? 0 : -ENOMEM;
}

size_t process_outlive_hold(const struct process *p, int fds[], size_t have, const int ours[STREAMS], json_t *message)
{
	size_t first = have;

	if (p->journal == NULL)
		return have;
	fds[have++] = journal_fd(p->journal);
	if (!p->tty) {
		fds[have++] = ours[STREAM_OUT];
		fds[have++] = ours[STREAM_ERR];
		if (p->in >= 0)
			fds[have++] = p->in;
	}
	(void) json_object_set_new(message, "hold", json_integer((json_int_t) (have - first)));
	return have;
}

void process_outlive_note(const struct process *p)
{
	json_t *memo;

	if (p->journal == NULL)
		return;
	memo = json_pack("{ss sO ss ss? sI sI sb}", "kind", "process", "command", p->command, "cwd", p->cwd, "tag", p->tag,
			 "started", (json_int_t) p->started, "ended", (json_int_t) 0, "tty", (int) p->tty);
	tell(p, json_pack("{ss sI so}", "t", "note", "process", (json_int_t) p->id, "memo", memo));
}

void process_outlive_note_end(const struct process *p)
{
	if (p->journal != NULL)
		tell(p, json_pack("{ss sI s{sI}}", "t", "note", "process", (json_int_t) p->id, "memo", "ended",
				  (json_int_t) p->ended));
}

static void release(const struct process *p, int which)
{
	tell(p, json_pack("{ss sI si}", "t", "release", "process", (json_int_t) p->id, "fd", which));
}

void process_outlive_input_over(const struct process *p)
{
	if (p->journal != NULL && !p->tty && p->id != 0)
		release(p, HELD_IN);
}

void process_outlive_stream_over(const struct process *p, unsigned which)
{
	if (p->journal != NULL && p->id != 0)
		release(p, HELD_OUT + (int) which);
}

void process_outlive_forget(const struct process *p)
{
	if (p->journal != NULL && !p->failed)
		tell(p, json_pack("{ss sI}", "t", "forget", "process", (json_int_t) p->id));
}

void process_journal_lost(struct process *p)
{
	p->journal = journal_free(p->journal);
	release(p, HELD_JOURNAL);
}

/* ---- What is taken. ---- */

int held_take(const json_t *m, int *fds, int which)
{
	const json_t *list = json_object_get(m, "fds");

	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_integer_value(json_array_get(list, i)) == which)
			return take_fd(&fds[i]);
	return -EBADF;
}

/* Nothing else can be read without ever waiting. */
static bool is_stream(int fd, bool tty)
{
	struct stat st;

	return fd < 0 || (fstat(fd, &st) == 0 && (tty ? S_ISCHR(st.st_mode) && isatty(fd) == 1 : S_ISFIFO(st.st_mode)));
}

static bool is_command(const json_t *command)
{
	const json_t *word;
	size_t i;

	json_array_foreach(command, i, word) if (!json_is_string(word)) return false;
	return json_array_size(command) > 0;
}

static bool good_memo(const json_t *memo)
{
	const json_t *tag = json_object_get(memo, "tag");

	return is_command(json_object_get(memo, "command")) && json_is_string(json_object_get(memo, "cwd")) &&
	       (json_is_null(tag) || (json_is_string(tag) && json_string_length(tag) <= TAG_MAX)) &&
	       json_is_integer(json_object_get(memo, "started")) && json_is_boolean(json_object_get(memo, "tty")) &&
	       json_is_integer(json_object_get(memo, "ended"));
}

/* Its place in the list, newest first. NULL: there is one of this number already. */
static struct process **place_of(struct sandbox *s, uint32_t id, struct process **ret_newer)
{
	struct process **at = &s->processes;

	*ret_newer = NULL;
	while (*at != NULL && (*at)->id > id) {
		*ret_newer = *at;
		at = &(*at)->older;
	}
	return *at != NULL && (*at)->id == id ? NULL : at;
}

static struct process *make(struct sandbox *s, uint32_t id, const json_t *m, const json_t *memo)
{
	const char *tag = json_string_value(json_object_get(memo, "tag"));
	struct process *newer, *p, **at = place_of(s, id, &newer);

	if (at == NULL || s->process_count >= PROCESSES_MAX)
		return NULL;
	p = xcalloc(1, sizeof *p);
	*p = (struct process){
	    .sandbox = s,
	    .older = *at,
	    .newer = newer,
	    .id = id,
	    .pid = json_integer_value(json_object_get(m, "pid")),
	    .in = -EBADF,
	    .streams = {{.fd = -EBADF}, {.fd = -EBADF}},
	    .tag = tag != NULL ? xstrdup(tag) : NULL,
	    .cwd = xstrdup(json_string_value(json_object_get(memo, "cwd"))),
	    .command = json_incref(json_object_get(memo, "command")),
	    .started = (usec_t) json_integer_value(json_object_get(memo, "started")),
	    .tty = json_is_true(json_object_get(memo, "tty")),
	    .input = evbuffer_new(),
	};
	if (p->older != NULL)
		p->older->newer = p;
	*at = p;
	s->process_count++;
	return p;
}

/* False: what is held is not what was given. */
static bool take_streams(struct process *p, const json_t *m, int *fds)
{
	int journal = held_take(m, fds, HELD_JOURNAL), in;
	const int ours[STREAMS] = {held_take(m, fds, HELD_OUT), held_take(m, fds, HELD_ERR)};
	bool good;

	in = p->tty && ours[0] >= 0 ? fcntl(ours[0], F_DUPFD_CLOEXEC, 3) : held_take(m, fds, HELD_IN);
	good = is_stream(ours[0], p->tty) && is_stream(ours[1], p->tty) && is_stream(in, p->tty);
	if (journal >= 0) {
		p->journal = journal_open(journal);
		good = good && p->journal != NULL && process_output_restore(p);
	}
	p->keep_input = in >= 0;
	p->in_eof = in < 0;
	if (in >= 0)
		good = process_input_open(p, in) == 0 && good;
	return process_streams_open(p, ours, STREAMS) == 0 && good;
}

/* `told`: when it has ended by the word of the daemon before, 0: that one has not seen it. */
static bool take_end(struct process *p, const json_t *m, json_int_t told)
{
	if (told > 0)
		process_streams_discard(p);
	else
		process_streams_drain(p);
	process_restore_end(p, json_object_get(m, "exit"),
			    (usec_t) (told > 0 ? told : json_integer_value(json_object_get(m, "ended_usec"))));
	if (told == 0)
		process_outlive_note_end(p);
	return true;
}

bool process_adopt(struct sandbox *s, const json_t *m, int *fds)
{
	const json_t *memo = json_object_get(m, "memo");
	const char *state = json_string_value(json_object_get(m, "state"));
	json_int_t id = json_integer_value(json_object_get(m, "process"));
	struct process *p;

	if (!good_memo(memo))
		return false;
	p = make(s, (uint32_t) id, m, memo);
	if (p == NULL || p->input == NULL || !take_streams(p, m, fds))
		return false;
	if (strcmp(state, "ended") == 0)
		return take_end(p, m, json_integer_value(json_object_get(memo, "ended")));
	p->state = strcmp(state, "running") == 0 ? PROCESS_RUNNING : PROCESS_STARTING;
	return session_take_over(s->session, id, p->state == PROCESS_RUNNING, process_answered, p) == 0;
}

bool process_end_unknown(struct sandbox *s, const json_t *m)
{
	const char *state = json_string_value(json_object_get(m, "state"));
	json_int_t id = json_integer_value(json_object_get(m, "process"));

	if (strcmp(state, "ended") == 0)
		return true;
	if (session_take_over(s->session, id, strcmp(state, "running") == 0, process_no_answer, NULL) < 0)
		return false;
	(void) session_ask(s->session, json_pack("{ss sI si sb}", "t", "signal", "process", id, "signal", SIGKILL, "tree", 1),
			   NULL, 0, process_no_answer, NULL, NULL);
	return true;
}
