/* A session that outlives its daemon ("carry"), and what the next one finds.
 *
 * Theory of operation. The daemon has given us a socket that listens in its state directory. When its line closes, and it has not
 * shut that socket down (which says that it gave the session up), the session goes on alone: whoever connects next, as the user
 * that we are, is the daemon from then on; when nobody has for so long as was said, the sandbox ends. While a line is there,
 * nobody is accepted: a living daemon cannot lose its session.
 *
 * Of each process we keep the daemon's memo and its ends of the pipes, so that a pipe breaks no sooner than the session. Nothing
 * is read from them here: a program that writes more than a pipe holds waits for the next daemon. How a process ended is kept
 * until the daemon says that it has no use for it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/session-internal.h"

enum { WORDS_ROOM = 16 * 1024 }; /* of a message, for all but a memo */

/* It has to go out again in one message with what we add. */
static bool fits(const json_t *memo)
{
	return json_dumpb(memo, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) <= SESSION_MESSAGE_MAX - WORDS_ROOM;
}

void session_carry_init(struct session *n)
{
	n->carry = (struct session_carry){.listener = -EBADF, .due = ZW_UNLIMITED};
}

/* ---- What is held of a process. ---- */

void session_hold_done(struct session_hold *h)
{
	json_decref(h->memo);
	for (size_t i = 0; i < h->count; i++)
		fd_close(&h->fds[i]);
	*h = (struct session_hold){0};
}

int session_hold_take(struct session_hold *h, json_int_t count, int *fds, size_t *nfds)
{
	if (count < 0 || count > (json_int_t) *nfds || count > SESSION_FDS_MAX)
		return -EINVAL;
	*nfds -= (size_t) count;
	for (h->count = 0; h->count < (size_t) count; h->count++)
		h->fds[h->count] = take_fd(&fds[*nfds + h->count]);
	return 0;
}

static void drop_record(struct session_carry *c, size_t at)
{
	json_decref(c->records[at].exit);
	session_hold_done(&c->records[at].hold);
	for (size_t i = at + 1; i < c->count; i++)
		c->records[i - 1] = c->records[i];
	c->count--;
}

void session_carry_ended(struct session *n, struct session_process *p, json_t *exited)
{
	struct session_carry *c = &n->carry;

	if (p->hold.memo == NULL)
		return;
	if (c->count == SESSION_RECORDS_MAX)
		drop_record(c, 0);
	if (c->count == c->room) {
		c->room = c->room == 0 ? 16 : c->room * 2;
		c->records = xrealloc(c->records, c->room, sizeof *c->records);
	}
	c->records[c->count++] = (struct session_record){
	    .id = p->id, .inside = p->inside, .ended = now_realtime(), .exit = json_incref(exited), .hold = p->hold};
	p->hold = (struct session_hold){0};
}

void session_carry_done(struct session *n)
{
	struct session_carry *c = &n->carry;

	while (c->count > 0)
		drop_record(c, c->count - 1);
	free(c->records);
	json_decref(c->memo);
	fd_close(&c->listener);
	session_carry_init(n);
}

/* ---- Alone. ---- */

bool session_carry_wait(struct supervisor *s)
{
	struct session *n = s->work;
	struct session_carry *c = &n->carry;

	if (c->listener < 0 || n->end_status[0] != '\0' || s->killed || s->ended)
		return false;
	if (c->alone)
		return true;
	if (supervisor_watch(s, c->listener, EPOLLIN, TAG_NEXT) < 0)
		return false;
	c->alone = true;
	c->due = now_monotonic() + c->wait;
	for (size_t i = 0; i < n->connect_count; i++)
		n->connects[i] |= CONNECT_STALE;
	session_process_schedule(s);
	return true;
}

static void give_up(struct supervisor *s, const char *why)
{
	struct session *n = s->work;

	supervisor_unwatch(s, n->carry.listener);
	fd_close(&n->carry.listener);
	n->carry.due = ZW_UNLIMITED;
	session_line_over(s, why);
}

static bool is_ours(int fd)
{
	struct ucred peer = {0};
	socklen_t size = sizeof peer;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

void session_carry_event(struct supervisor *s, uint32_t events)
{
	struct session *n = s->work;
	struct session_carry *c = &n->carry;
	cleanup_fd int fd = -EBADF;

	if (!c->alone)
		return;
	if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
		give_up(s, "the daemon gave it up");
		return;
	}
	fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 || !is_ours(fd))
		return;
	supervisor_unwatch(s, c->listener);
	c->alone = false;
	c->due = ZW_UNLIMITED;
	(void) session_line_open(&n->line, take_fd(&fd)); /* it is a descriptor */
	session_process_schedule(s);
}

void session_carry_due(struct supervisor *s, usec_t now)
{
	const struct session *n = s->work;

	if (n->carry.due <= now)
		give_up(s, "the daemon ended, and no other one came");
}

/* ---- Requests. ---- */

int session_carry_begin(struct session *n, const json_t *m, int *fds, size_t nfds)
{
	struct session_carry *c = &n->carry;
	json_int_t wait = json_integer_value(json_object_get(m, "wait_usec"));
	int listening = 0;
	socklen_t size = sizeof listening;

	if (!fits(json_object_get(m, "memo")))
		return EMSGSIZE;
	if (c->listener >= 0 && nfds == 0) {
		json_decref(c->memo);
		c->memo = json_incref(json_object_get(m, "memo"));
		return 0;
	}
	if (c->listener >= 0)
		return EALREADY;
	if (nfds != 1 || wait < 0 || getsockopt(fds[0], SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || listening == 0 ||
	    fd_nonblock(fds[0]) < 0)
		return EINVAL;
	c->listener = take_fd(&fds[0]);
	c->wait = (usec_t) wait;
	c->memo = json_incref(json_object_get(m, "memo"));
	return 0;
}

static struct session_record *record_of(struct session_carry *c, uint32_t id)
{
	for (size_t i = c->count; i-- > 0;)
		if (c->records[i].id == id)
			return &c->records[i];
	return NULL;
}

static struct session_hold *hold_of(struct session *n, uint32_t id)
{
	struct session_process *p = session_process_find(n, id);
	struct session_record *r = p == NULL ? record_of(&n->carry, id) : NULL;

	return p != NULL ? &p->hold : r != NULL ? &r->hold : NULL;
}

int session_carry_note(struct session *n, uint32_t process, const json_t *m)
{
	struct session_hold *h = hold_of(n, process);
	json_t *memo = json_object_get(m, "memo");

	if (h == NULL)
		return ESRCH;
	if (!json_is_object(memo))
		return EINVAL;
	if (h->memo == NULL)
		h->memo = json_incref(memo);
	else
		(void) json_object_update(h->memo, memo);
	if (fits(h->memo))
		return 0;
	json_decref(h->memo);
	h->memo = NULL;
	return EMSGSIZE;
}

int session_carry_release(struct session *n, uint32_t process, const json_t *m)
{
	struct session_hold *h = hold_of(n, process);
	json_int_t which = json_integer_value(json_object_get(m, "fd"));

	if (h == NULL)
		return ESRCH;
	if (which < 0 || which >= (json_int_t) h->count)
		return EINVAL;
	fd_close(&h->fds[which]);
	return 0;
}

int session_carry_forget(struct session *n, uint32_t process)
{
	struct session_process *p = session_process_find(n, process);
	const struct session_record *r = record_of(&n->carry, process);

	if (p != NULL)
		session_hold_done(&p->hold);
	else if (r != NULL)
		drop_record(&n->carry, (size_t) (r - n->carry.records));
	return p != NULL || r != NULL ? 0 : ESRCH;
}

/* ---- To the next daemon. ---- */

static void tell_held(struct session *n, json_t *m, const struct session_hold *h)
{
	int fds[SESSION_FDS_MAX];
	json_t *which = json_array();
	size_t count = 0;

	for (size_t i = 0; i < h->count; i++) {
		if (h->fds[i] < 0)
			continue;
		fds[count++] = h->fds[i];
		(void) json_array_append_new(which, json_integer((json_int_t) i));
	}
	(void) json_object_set_new(m, "memo", h->memo != NULL ? json_incref(h->memo) : json_null());
	(void) json_object_set_new(m, "fds", which);
	session_line_send_with(&n->line, m, fds, count);
}

static void tell_running(struct session *n, const struct session_process *p)
{
	bool starting = p->state == PROCESS_STARTING;

	tell_held(n,
		  json_pack("{ss sI ss so}", "t", "held", "process", (json_int_t) p->id, "state",
			    starting ? "starting" : "running", "pid", starting ? json_null() : json_integer(p->inside)),
		  &p->hold);
}

static void tell_record(struct session *n, const struct session_record *r)
{
	tell_held(n,
		  json_pack("{ss sI ss sI sO sI}", "t", "held", "process", (json_int_t) r->id, "state", "ended", "pid",
			    (json_int_t) r->inside, "exit", r->exit, "ended_usec", (json_int_t) r->ended),
		  &r->hold);
}

void session_carry_tell(struct supervisor *s)
{
	struct session *n = s->work;
	struct session_carry *c = &n->carry;
	json_t *m = session_describe(s, "adopted");

	(void) json_object_set_new(m, "paused", json_boolean(n->paused_at != 0));
	(void) json_object_set_new(m, "next", json_integer((json_int_t) (c->highest < INT32_MAX - 1 ? c->highest + 1 : 1)));
	(void) json_object_set_new(m, "memo", c->memo != NULL ? json_incref(c->memo) : json_null());
	session_line_send_with(&n->line, m, &c->listener, c->listener >= 0 ? 1 : 0);
	for (size_t i = 0; i < c->count; i++)
		tell_record(n, &c->records[i]);
	for (size_t i = 0; i < n->count; i++)
		tell_running(n, n->processes[i]);
}
