/* What the supervisor of a session says to the daemon: messages, one a line. It speaks with hostile code and may have been taken
 * over. Whatever it says, each request is answered once, or with the end, and after the end nothing comes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ASKED = 4 };

struct seen {
	unsigned ready, ended, answers[ASKED];
	size_t next;
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

static const struct session_events events = {.ready = on_ready, .refused = on_refused, .event = on_event, .ended = on_ended};

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
	int line[2];

	if (base == NULL)
		base = event_base_new();
	if (base == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) < 0)
		return 0;
	s = session_new(base, line[0], &events, &seen, NULL);
	must(s != NULL);
	for (size_t i = 0; i < ASKED; i++) {
		static const char *const kinds[ASKED] = {"start", "stats", "signal", "denials"};

		questions[i] = (struct question){.seen = &seen, .number = i};
		must(session_ask(s, json_pack("{ss}", "t", kinds[i]), NULL, 0, on_answer, &questions[i], NULL) == 0);
	}
	say(base, line[1], (const char *) data, size);
	(void) close(line[1]);
	(void) event_base_loop(base, EVLOOP_NONBLOCK);
	must(seen.ended == 1);
	session_free(s);
	return 0;
}
