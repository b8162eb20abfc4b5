#include "daemon/session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/session-wire.h"

enum { QUEUE_MAX = 256, REQUESTS_MAX = 4096, MESSAGES_AT_ONCE = 64 };

struct waiting { /* to be sent */
	struct waiting *next;
	char *text;
	size_t size, nfds;
	int fds[SESSION_FDS_MAX];
};

struct asked {
	uint32_t id;
	bool start, started;
	session_answer *answer;
	void *arg;
};

struct session {
	int line;
	struct event *readable, *writable;
	const struct session_events *events;
	void *arg;
	bool ready, ended, busy, freed; /* busy: within a callback */
	bool adopting;
	struct asked *asked;
	size_t asked_count, asked_room;
	struct waiting *first, **last;
	size_t waiting_count;
	uint32_t next;
};

/* ---- Out. ---- */

static void drop_first(struct session *s)
{
	struct waiting *w = s->first;

	s->first = w->next;
	if (s->first == NULL)
		s->last = &s->first;
	s->waiting_count--;
	for (size_t i = 0; i < w->nfds; i++)
		fd_close(&w->fds[i]);
	free(w->text);
	free(w);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct session *s = arg;

	(void) what;
	while (s->first != NULL) {
		int r = fd_send((int) fd, s->first->text, s->first->size, s->first->fds, s->first->nfds);

		if (r == -EAGAIN)
			return;
		drop_first(s); /* a line that is gone shows when it is read */
	}
	(void) event_del(s->writable);
}

/* Copies of the descriptors, since the caller closes its own. */
static int enqueue(struct session *s, char *text, const int *fds, size_t nfds)
{
	struct waiting *w;

	if (s->waiting_count >= QUEUE_MAX || event_add(s->writable, NULL) < 0)
		return -EAGAIN;
	w = xcalloc(1, sizeof *w);
	w->size = strlen(text);
	for (; w->nfds < nfds; w->nfds++) {
		w->fds[w->nfds] = fcntl(fds[w->nfds], F_DUPFD_CLOEXEC, 3);
		if (w->fds[w->nfds] >= 0)
			continue;
		while (w->nfds-- > 0)
			fd_close(&w->fds[w->nfds]);
		free(w);
		return -EMFILE;
	}
	w->text = xstrdup(text);
	*s->last = w;
	s->last = &w->next;
	s->waiting_count++;
	return 0;
}

static int send_text(struct session *s, char *text, const int *fds, size_t nfds)
{
	int r = s->first == NULL ? fd_send(s->line, text, strlen(text), fds, nfds) : -EAGAIN;

	return r == -EAGAIN ? enqueue(s, text, fds, nfds) : r == -EPIPE ? -ESHUTDOWN : r;
}

static void note(struct session *s, const struct asked *a)
{
	if (s->asked_count == s->asked_room) {
		s->asked_room = s->asked_room == 0 ? 8 : s->asked_room * 2;
		s->asked = xrealloc(s->asked, s->asked_room, sizeof *s->asked);
	}
	s->asked[s->asked_count++] = *a;
}

int session_ask(struct session *s, json_t *m, const int *fds, size_t nfds, session_answer *answer, void *arg, uint32_t *ret_id)
{
	uint32_t id = s->next;
	bool start = m != NULL && strcmp(json_string_value(json_object_get(m, "t")), "start") == 0;
	cleanup_free char *text = NULL;
	int r;

	if (m != NULL && json_object_set_new(m, "id", json_integer((json_int_t) id)) == 0)
		text = json_dumps(m, JSON_COMPACT);
	json_decref(m);
	if (text == NULL)
		return -ENOMEM;
	if (s->ended)
		return -ESHUTDOWN;
	if (s->asked_count >= REQUESTS_MAX)
		return -EAGAIN;
	if (strlen(text) > SESSION_MESSAGE_MAX)
		return -EMSGSIZE;
	r = send_text(s, text, fds, nfds);
	if (r < 0)
		return r;
	s->next = s->next < SESSION_ADOPT_ID - 1 ? s->next + 1 : 1;
	note(s, &(struct asked){.id = id, .start = start, .answer = answer, .arg = arg});
	if (ret_id != NULL)
		*ret_id = id;
	return 0;
}

int session_adopt(struct session *s, session_answer *answer, void *arg)
{
	s->adopting = true;
	s->next = SESSION_ADOPT_ID;
	return session_ask(s, json_pack("{ss}", "t", "adopt"), NULL, 0, answer, arg, NULL);
}

static struct asked *asked_of(struct session *s, json_int_t id)
{
	for (size_t i = 0; i < s->asked_count; i++)
		if (s->asked[i].id == id)
			return &s->asked[i];
	return NULL;
}

int session_take_over(struct session *s, json_int_t process, bool started, session_answer *answer, void *arg)
{
	if (process < 1 || process >= SESSION_ADOPT_ID || s->asked_count >= REQUESTS_MAX)
		return -EINVAL;
	if (asked_of(s, process) != NULL)
		return -EEXIST;
	note(s, &(struct asked){.id = (uint32_t) process, .start = true, .started = started, .answer = answer, .arg = arg});
	return 0;
}

/* ---- In. ---- */

static bool has_text(const json_t *m, const char *key)
{
	return json_is_string(json_object_get(m, key));
}

static bool has_whole(const json_t *m, const char *key)
{
	return json_is_integer(json_object_get(m, key));
}

static bool has_object(const json_t *m, const char *key)
{
	return json_is_object(json_object_get(m, key));
}

static bool whole_or_null(const json_t *m, const char *key)
{
	const json_t *v = json_object_get(m, key);

	return json_is_integer(v) || json_is_null(v);
}

static bool list_or_none(const json_t *m, const char *key)
{
	const json_t *v = json_object_get(m, key);

	return v == NULL || json_is_array(v);
}

static bool good_ready(const json_t *m)
{
	return has_text(m, "home") && has_text(m, "cwd") && has_object(m, "enforcement") && has_whole(m, "setup_usec") &&
	       json_is_array(json_object_get(m, "not_enforced"));
}

static bool good_refused(const json_t *m)
{
	return has_text(m, "code") && has_text(m, "reason") && json_is_array(json_object_get(m, "errors"));
}

static bool good_event(const json_t *m)
{
	return has_text(m, "kind") && (has_object(m, "record") || has_whole(m, "count"));
}

static bool good_ended(const json_t *m)
{
	return has_text(m, "status") && has_text(m, "reason") && has_object(m, "usage");
}

static bool good_exited(const json_t *m)
{
	return whole_or_null(m, "exit_code") && whole_or_null(m, "signal") && has_text(m, "status") && has_text(m, "reason") &&
	       has_whole(m, "cpu_usec") && has_whole(m, "max_rss") && has_whole(m, "wall_usec") && list_or_none(m, "denials") &&
	       list_or_none(m, "connections");
}

static bool is_id(const json_t *m, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(m, key));

	return value >= 1 && value < SESSION_ADOPT_ID;
}

static bool good_adopted(const json_t *m)
{
	return good_ready(m) && json_is_boolean(json_object_get(m, "paused")) && is_id(m, "next");
}

/* The numbers of its descriptors are told in order, each once. */
static bool good_which(const json_t *list, size_t nfds)
{
	json_int_t last = -1;
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (!json_is_integer(one) || json_integer_value(one) <= last || json_integer_value(one) >= SESSION_FDS_MAX)
			return false;
		last = json_integer_value(one);
	}
	return json_is_array(list) && json_array_size(list) == nfds;
}

static bool good_held(const json_t *m, size_t nfds)
{
	const char *state = json_string_value(json_object_get(m, "state")),
		   *end = json_string_value(json_object_get(json_object_get(m, "exit"), "t"));
	const json_t *memo = json_object_get(m, "memo");

	if (state == NULL || !is_id(m, "process") || (!json_is_object(memo) && !json_is_null(memo)) ||
	    !good_which(json_object_get(m, "fds"), nfds))
		return false;
	if (strcmp(state, "starting") == 0)
		return true;
	if (!has_whole(m, "pid"))
		return false;
	if (strcmp(state, "running") == 0)
		return true;
	return strcmp(state, "ended") == 0 && end != NULL && strcmp(end, "exited") == 0 && has_whole(m, "ended_usec") &&
	       good_exited(json_object_get(m, "exit"));
}

/* Is `m` what the request can be answered with now? */
static bool fits(struct asked *a, const char *type, const json_t *m, bool *ret_last)
{
	*ret_last = true;
	if (!a->start)
		return (strcmp(type, "done") == 0 && has_whole(m, "errno")) ||
		       (strcmp(type, "denials") == 0 && json_is_array(json_object_get(m, "denials"))) ||
		       (strcmp(type, "stats") == 0 && has_object(m, "usage") && has_whole(m, "processes"));
	if (strcmp(type, "exited") == 0)
		return a->started && good_exited(m);
	if (a->started)
		return false;
	if (strcmp(type, "started") == 0) {
		a->started = true;
		*ret_last = false;
		return has_whole(m, "pid");
	}
	/* A session that ends answers everything. */
	return (strcmp(type, "failed") == 0 && has_whole(m, "errno") && has_text(m, "stage") && has_text(m, "message")) ||
	       (strcmp(type, "done") == 0 && has_whole(m, "errno"));
}

static bool take_answer(struct session *s, const char *type, const json_t *m, int *fd)
{
	struct asked *at = asked_of(s, json_integer_value(json_object_get(m, "id"))), a;
	bool last;

	if (at == NULL || !fits(at, type, m, &last))
		return false;
	a = *at;
	if (last)
		*at = s->asked[--s->asked_count];
	s->adopting = s->adopting && a.id != SESSION_ADOPT_ID;
	a.answer(a.arg, m, fd);
	return true;
}

static bool take_adopted(struct session *s, const json_t *m, int *fd)
{
	if (!s->adopting || s->ready || !good_adopted(m))
		return false;
	s->ready = true;
	s->next = (uint32_t) json_integer_value(json_object_get(m, "next"));
	return s->events->adopted(s->arg, m, fd);
}

/* `fd`: room for SESSION_FDS_MAX, of which the first alone is looked at but for "held". */
static bool take_message(struct session *s, const json_t *m, int *fd, size_t nfds)
{
	const char *type = json_string_value(json_object_get(m, "t"));

	if (type == NULL || s->ended)
		return false;
	if (strcmp(type, "ready") == 0) {
		if (s->ready || s->adopting || !good_ready(m))
			return false;
		s->ready = true;
		s->events->ready(s->arg, m);
	} else if (strcmp(type, "refused") == 0) {
		if (s->ready || s->adopting || !good_refused(m))
			return false;
		s->events->refused(s->arg, m);
	} else if (strcmp(type, "adopted") == 0) {
		return take_adopted(s, m, fd);
	} else if (strcmp(type, "held") == 0) {
		return s->adopting && s->ready && good_held(m, nfds) && s->events->held(s->arg, m, fd, nfds);
	} else if (strcmp(type, "event") == 0) {
		if (!good_event(m))
			return false;
		s->events->event(s->arg, json_string_value(json_object_get(m, "kind")), m);
	} else {
		return take_answer(s, type, m, fd);
	}
	return true;
}

static void destroy(struct session *s)
{
	if (s->readable != NULL)
		event_free(s->readable);
	if (s->writable != NULL)
		event_free(s->writable);
	while (s->first != NULL)
		drop_first(s);
	fd_close(&s->line);
	free(s->asked);
	free(s);
}

static void over(struct session *s, const json_t *m)
{
	if (s->ended)
		return;
	s->ended = true;
	(void) event_del(s->readable);
	(void) event_del(s->writable);
	while (s->asked_count > 0 && !s->freed) {
		struct asked a = s->asked[--s->asked_count];
		int none = -EBADF;

		a.answer(a.arg, NULL, &none);
	}
	if (!s->freed)
		s->events->ended(s->arg, m);
}

/* False when the line has nothing more for now, or is over. */
static bool receive(struct session *s)
{
	static char text[SESSION_MESSAGE_MAX + 1]; /* one thread, and nobody reads within a reading */
	int fds[SESSION_FDS_MAX] = {-EBADF};
	size_t nfds = SESSION_FDS_MAX;
	ssize_t n = fd_recv(s->line, text, sizeof text, fds, &nfds);
	const char *type;
	json_t *m;
	bool good = false;

	if (n == -EAGAIN || n == -EINTR)
		return false;
	m = n > 0 && n <= SESSION_MESSAGE_MAX ? json_loadb(text, (size_t) n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	type = json_string_value(json_object_get(m, "t"));
	if (type != NULL && strcmp(type, "ended") == 0 && good_ended(m))
		over(s, m);
	else
		good = m != NULL && take_message(s, m, fds, nfds);
	json_decref(m);
	for (size_t i = 0; i < nfds; i++)
		fd_close(&fds[i]);
	if (!good && !s->freed)
		over(s, NULL);
	return good && !s->freed && !s->ended;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct session *s = arg;

	(void) fd;
	(void) what;
	s->busy = true;
	for (size_t i = 0; i < MESSAGES_AT_ONCE && receive(s); i++)
		;
	s->busy = false;
	if (s->freed)
		destroy(s);
}

struct session *session_new(struct event_base *base, int line, const struct session_events *events, void *arg, struct zw_error *e)
{
	struct session *s = xcalloc(1, sizeof *s);

	*s = (struct session){.line = line, .events = events, .arg = arg, .next = 1};
	s->last = &s->first;
	(void) fd_nonblock(line);
	s->readable = event_new(base, line, EV_READ | EV_PERSIST, on_readable, s);
	s->writable = event_new(base, line, EV_WRITE | EV_PERSIST, on_writable, s);
	if (s->readable != NULL && s->writable != NULL && event_add(s->readable, NULL) == 0)
		return s;
	(void) zw_error(e, ENOMEM, "there is not enough memory for a session");
	destroy(s);
	return NULL;
}

void session_hang_up(struct session *s)
{
	(void) shutdown(s->line, SHUT_RDWR); /* which is then read as the end of the line */
}

struct session *session_free(struct session *s)
{
	if (s == NULL)
		return NULL;
	s->freed = true;
	if (!s->busy)
		destroy(s);
	return NULL;
}
