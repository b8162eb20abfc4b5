/* What the supervisor of a session says to the daemon: messages, one a line. It speaks with hostile code and may have been taken
 * over. Whatever it says, each request is answered once, or with the end, and after the end nothing comes. The same when it is
 * taken over from a daemon before this one ('+' as the first byte): then it says first what it holds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ASKED = 4, HELD_MAX = 64 };

struct seen {
	unsigned ready, ended, answers[ASKED], held[HELD_MAX], complete;
	size_t next, held_count;
	struct session *session;
};

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void on_ready(void *arg, const json_t *m)
{
	struct seen *s = arg;

	must(s->ended == 0 && s->ready++ == 0 && json_is_object(json_object_get(m, "enforcement")));
}

static void on_refused(void *arg, const json_t *m)
{
	struct seen *s = arg;

	must(s->ended == 0 && json_is_array(json_object_get(m, "errors")));
}

static void on_event(void *arg, const char *kind, const json_t *m)
{
	struct seen *s = arg;

	must(s->ended == 0 && kind != NULL && json_is_object(m));
}

static void on_ended(void *arg, const json_t *m)
{
	struct seen *s = arg;

	must(s->ended++ == 0);
	must(m == NULL || json_is_object(json_object_get(m, "usage")));
	for (size_t i = 0; i < ASKED; i++)
		must(s->answers[i] > 0); /* all are answered before */
}

struct question {
	struct seen *seen;
	size_t number;
};

static void on_answer(void *arg, const json_t *m, int *fd)
{
	struct question *q = arg;

	(void) fd;
	must(q->seen->ended == 0 && (m == NULL || json_is_string(json_object_get(m, "t"))));
	must(++q->seen->answers[q->number] <= 2); /* started, and its end */
}

/* ---- Taken over. ---- */

static void on_complete(void *arg, const json_t *m, int *fd)
{
	struct seen *s = arg;

	(void) m;
	(void) fd;
	must(s->ended == 0 && s->complete++ == 0);
}

static bool on_adopted(void *arg, const json_t *m, int *listener)
{
	struct seen *s = arg;

	(void) listener;
	must(s->ended == 0 && s->complete == 0 && s->ready++ == 0 && json_is_string(json_object_get(m, "home")));
	return true;
}

static void on_told(void *arg, const json_t *m, int *fd)
{
	unsigned *told = arg;

	(void) fd;
	must(m == NULL || json_is_string(json_object_get(m, "t")));
	must(++*told <= 2);
}

static bool on_held(void *arg, const json_t *m, int *fds, size_t nfds)
{
	struct seen *s = arg;
	const char *state = json_string_value(json_object_get(m, "state"));

	(void) fds;
	must(s->ended == 0 && s->ready == 1 && s->complete == 0 && json_array_size(json_object_get(m, "fds")) == nfds);
	if (strcmp(state, "ended") == 0) {
		must(json_is_object(json_object_get(m, "exit")));
		return true;
	}
	if (s->held_count == HELD_MAX)
		return false;
	if (session_take_over(s->session, json_integer_value(json_object_get(m, "process")), strcmp(state, "running") == 0,
			      on_told, &s->held[s->held_count]) < 0)
		return false;
	s->held_count++;
	return true;
}

static const struct session_events events = {
    .ready = on_ready, .refused = on_refused, .event = on_event, .adopted = on_adopted, .held = on_held, .ended = on_ended};

static void ask_all(struct session *s, struct question questions[ASKED])
{
	static const char *const kinds[ASKED] = {"start", "stats", "signal", "denials"};

	for (size_t i = 0; i < ASKED; i++)
		must(session_ask(s, json_pack("{ss}", "t", kinds[i]), NULL, 0, on_answer, &questions[i], NULL) == 0);
}

/* Sends the lines; the room of a socket is theirs. */
static void say(struct event_base *base, int fd, const char *text, size_t size)
{
	while (size > 0) {
		const char *end = memchr(text, '\n', size);
		size_t n = end != NULL ? (size_t) (end - text) : size;

		if (n > 0)
			(void) send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		(void) event_base_loop(base, EVLOOP_NONBLOCK);
		n += end != NULL;
		text += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct event_base *base;
	struct seen seen = {0};
	struct question questions[ASKED];
	struct session *s;
	bool next = size > 0 && data[0] == '+';
	int line[2];

	if (base == NULL)
		base = event_base_new();
	if (base == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) < 0)
		return 0;
	s = session_new(base, line[0], &events, &seen, NULL);
	must(s != NULL);
	seen.session = s;
	for (size_t i = 0; i < ASKED; i++) {
		questions[i] = (struct question){.seen = &seen, .number = i};
		seen.answers[i] = next; /* then nothing is asked */
	}
	if (next)
		must(session_adopt(s, on_complete, &seen) == 0);
	else
		ask_all(s, questions);
	say(base, line[1], (const char *) data + next, size - next);
	(void) close(line[1]);
	(void) event_base_loop(base, EVLOOP_NONBLOCK);
	must(seen.ended == 1 && seen.complete == next);
	for (size_t i = 0; i < seen.held_count; i++)
		must(seen.held[i] > 0);
	session_free(s);
	return 0;
}
