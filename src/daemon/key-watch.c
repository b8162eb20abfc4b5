/* Changes of keys. SQLite's write-ahead log is a file that each commit of any process writes to; inotify tells when. The daemon's
 * own commits are among them, and then the store says that nothing has changed. */
#include <errno.h>
#include <limits.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

/* A commit is several writes; and where nothing can be watched, how often to ask. */
enum { SETTLE_MSEC = 50, ASK_MSEC = 500 };

struct key_watch {
	struct daemon *daemon;
	int fd;
	struct event *changed, *look, *expiry;
};

static bool holds(struct daemon *d, const char *key_id)
{
	const struct key *k = keys_by_id(&d->keys, key_id);

	return k != NULL && !key_expired(k);
}

/* When the next key expires, what it has under way is cut. */
static void await_expiry(struct key_watch *w)
{
	const struct keys *keys = &w->daemon->keys;
	usec_t now = now_realtime(), next = 0;
	struct timeval wait;

	for (size_t i = 0; i < keys->count; i++) {
		usec_t t = keys->items[i].expires;

		if (t > now && (next == 0 || t < next))
			next = t;
	}
	(void) event_del(w->expiry);
	if (next == 0)
		return;
	/* The clock may be set meanwhile: look again after an hour. */
	next = next - now < 3600 * USEC_PER_SEC ? next - now + USEC_PER_MSEC : 3600 * USEC_PER_SEC;
	wait = (struct timeval){.tv_sec = (time_t) (next / USEC_PER_SEC), .tv_usec = (suseconds_t) (next % USEC_PER_SEC)};
	(void) event_add(w->expiry, &wait); /* each request looks at the clock too */
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct key_watch *w = arg;

	(void) fd;
	(void) what;
	if (keys_refresh(&w->daemon->keys))
		dlog(w->daemon->log, DLOG_INFO, "keys changed", dlog_number("keys", w->daemon->keys.count));
	http_cut_keys(&w->daemon->http, holds);
	await_expiry(w);
}

static void look_in(struct key_watch *w, unsigned msec)
{
	const struct timeval wait = {.tv_usec = (suseconds_t) msec * 1000};

	if (event_pending(w->look, EV_TIMEOUT, NULL) == 0 || msec == 0)
		(void) event_add(w->look, &wait);
}

static void on_changed(evutil_socket_t fd, short what, void *arg)
{
	char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];

	(void) what;
	while (read((int) fd, events, sizeof events) > 0) {
	}
	look_in(arg, SETTLE_MSEC);
}

void key_watch_changed(struct key_watch *w)
{
	look_in(w, 0);
}

static int watch(struct key_watch *w)
{
	cleanup_free char *log = xasprintf("%s-wal", w->daemon->store.path);

	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->fd >= 0 && inotify_add_watch(w->fd, log, IN_MODIFY) < 0)
		fd_close(&w->fd);
	return w->fd;
}

struct key_watch *key_watch_new(struct daemon *d, struct zw_error *e)
{
	static const struct timeval often = {.tv_usec = ASK_MSEC * 1000};
	struct key_watch *w = xcalloc(1, sizeof *w);
	bool good;

	*w = (struct key_watch){.daemon = d, .fd = -EBADF};
	w->look = event_new(d->base, -1, 0, on_look, w);
	w->expiry = event_new(d->base, -1, 0, on_look, w);
	if (watch(w) >= 0)
		w->changed = event_new(d->base, w->fd, EV_READ | EV_PERSIST, on_changed, w);
	else
		w->changed = event_new(d->base, -1, EV_PERSIST, on_look, w);
	good =
	    w->look != NULL && w->expiry != NULL && w->changed != NULL && event_add(w->changed, w->fd >= 0 ? NULL : &often) == 0;
	if (!good) {
		(void) zw_error(e, ENOMEM, "there is not enough memory to watch the keys");
		return key_watch_free(w);
	}
	await_expiry(w);
	return w;
}

struct key_watch *key_watch_free(struct key_watch *w)
{
	struct event *events[3];

	if (w == NULL)
		return NULL;
	events[0] = w->look;
	events[1] = w->expiry;
	events[2] = w->changed;
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (events[i] != NULL)
			event_free(events[i]);
	fd_close(&w->fd);
	free(w);
	return NULL;
}
