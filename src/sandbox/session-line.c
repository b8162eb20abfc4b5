#include "sandbox/session-line.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/mem.h"

enum { EVENTS_QUEUED_MAX = 256 * 1024 }; /* bytes queued from which on events are dropped */

struct queued {
	struct queued *next;
	char *text;
	size_t size, nfds;
	int fds[SESSION_FDS_MAX];
};

int session_line_open(struct session_line *l, int fd)
{
	*l = (struct session_line){.fd = fd};
	return fd_nonblock(fd);
}

static void drop_first(struct session_line *l)
{
	struct queued *q = l->first;

	l->first = q->next;
	if (l->first == NULL)
		l->last = NULL;
	l->bytes -= q->size;
	explicit_bzero(q->text, q->size);
	free(q->text);
	for (size_t i = 0; i < q->nfds; i++)
		fd_close(&q->fds[i]);
	free(q);
}

static void drop_all(struct session_line *l)
{
	while (l->first != NULL)
		drop_first(l);
}

void session_line_close(struct session_line *l)
{
	drop_all(l);
	fd_close(&l->fd);
}

/* Arrays are what grows: the longest that are left are cut, and say so, until the message fits. */
static bool shorten(json_t *message)
{
	const char *key, *longest = NULL;
	size_t most = 1;
	json_t *value;

	json_object_foreach(message, key, value) if (json_array_size(value) > most)
	{
		most = json_array_size(value);
		longest = key;
	}
	if (longest == NULL)
		return false;
	value = json_object_get(message, longest);
	while (json_array_size(value) > most / 2)
		(void) json_array_remove(value, json_array_size(value) - 1);
	(void) json_object_set_new(message, "shortened", json_true());
	return true;
}

/* Owned by the caller; NULL for one that cannot be made to fit. */
static char *text_of(json_t *message)
{
	for (;;) {
		char *text = json_dumps(message, JSON_COMPACT);

		if (text == NULL || strlen(text) <= SESSION_MESSAGE_MAX)
			return text;
		free(text);
		if (!shorten(message))
			return NULL;
	}
}

static struct queued *enqueue(struct session_line *l, char *text)
{
	struct queued *q = xcalloc(1, sizeof *q);

	*q = (struct queued){.text = text, .size = strlen(text)};
	if (l->last != NULL)
		l->last->next = q;
	else
		l->first = q;
	l->last = q;
	l->bytes += q->size;
	return q;
}

void session_line_flush(struct session_line *l)
{
	while (l->first != NULL && l->fd >= 0) {
		int r = fd_send(l->fd, l->first->text, l->first->size, l->first->fds, l->first->nfds);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			drop_all(l);
			l->deaf = true;
			return;
		}
		drop_first(l);
	}
}

void session_line_send(struct session_line *l, json_t *message, int *fd)
{
	char *text = l->fd >= 0 && !l->deaf ? text_of(message) : NULL;

	json_decref(message);
	if (text != NULL) {
		struct queued *q = enqueue(l, text);

		if (fd != NULL && *fd >= 0)
			q->fds[q->nfds++] = take_fd(fd);
		session_line_flush(l);
	}
	if (fd != NULL)
		fd_close(fd);
}

void session_line_send_with(struct session_line *l, json_t *message, const int *fds, size_t nfds)
{
	char *text = l->fd >= 0 && !l->deaf ? text_of(message) : NULL;
	struct queued *q;

	json_decref(message);
	if (text == NULL)
		return;
	q = enqueue(l, text);
	for (size_t i = 0; i < nfds && i < SESSION_FDS_MAX; i++) {
		int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (copy >= 0)
			q->fds[q->nfds++] = copy; /* one that is missing shows in their number */
	}
	session_line_flush(l);
}

void session_line_tell(struct session_line *l, json_t *event)
{
	if (l->bytes >= EVENTS_QUEUED_MAX) {
		l->lost++;
		json_decref(event);
		return;
	}
	if (l->lost > 0)
		session_line_send(l, json_pack("{ss ss sI}", "t", "event", "kind", "lost", "count", (json_int_t) l->lost), NULL);
	l->lost = 0;
	session_line_send(l, event, NULL);
}

int session_line_receive(struct session_line *l, json_t **ret, int fds[SESSION_FDS_MAX], size_t *ret_count)
{
	cleanup_free char *text = NULL;
	ssize_t n;

	if (l->fd < 0)
		return -EPIPE;
	if (l->first != NULL)
		return 0;
	n = fd_next_size(l->fd); /* room for the largest would be a mapping for each message */
	if (n == -EAGAIN && !l->deaf)
		return 0;
	if (n <= 0)
		return -EPIPE;
	n = n <= SESSION_MESSAGE_MAX ? n : SESSION_MESSAGE_MAX + 1;
	text = xrealloc(NULL, (size_t) n, 1);
	*ret_count = SESSION_FDS_MAX;
	n = fd_recv(l->fd, text, (size_t) n, fds, ret_count);
	if (n <= 0)
		return -EPIPE;
	*ret = n <= SESSION_MESSAGE_MAX ? json_loadb(text, (size_t) n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	explicit_bzero(text, (size_t) n); /* it may have held a secret */
	if (json_is_object(*ret))
		return 1;
	json_decref(*ret);
	for (size_t i = 0; i < *ret_count; i++)
		fd_close(&fds[i]);
	return -EPROTO;
}

void session_line_drain(struct session_line *l, int patience)
{
	session_line_flush(l);
	while (!session_line_is_idle(l)) {
		struct pollfd p = {.fd = l->fd, .events = POLLOUT};
		int n = poll(&p, 1, patience);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		session_line_flush(l);
	}
}

int session_line_watch(struct session_line *l, int epoll, uint64_t tag)
{
	struct epoll_event ev = {.events = l->first != NULL ? EPOLLOUT : EPOLLIN, .data.u64 = tag};
	int how = l->watched != 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (l->fd < 0 || l->watched == ev.events)
		return 0; /* a closed descriptor has left the set */
	if (epoll_ctl(epoll, how, l->fd, &ev) < 0)
		return -errno;
	l->watched = ev.events;
	return 0;
}
