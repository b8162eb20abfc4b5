/* Signals, and the end: no new work; what is under way may end, for a while; the parts end; answers reach the kernel; the loop
 * ends. */
#include <errno.h>
#include <signal.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

enum { FLUSH_SECONDS = 2 };

static void flushed(struct http_server *s)
{
	(void) event_base_loopexit(s->base, NULL); /* cannot fail without a time */
}

static void on_flush_over(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;

	(void) fd;
	(void) what;
	flushed(&d->http);
}

static void finish(struct daemon *d)
{
	static const struct timeval wait = {.tv_sec = FLUSH_SECONDS};

	d->listeners = http_listeners_free(d->listeners);
	d->http.on_empty = flushed;
	(void) event_add(d->flush_timer, &wait); /* without it a client that reads nothing could hold us */
	http_server_end(&d->http);
}

static void stop_parts(struct daemon *d)
{
	if (d->stopping)
		return;
	d->stopping = true;
	d->stoppers_left = d->stopper_count;
	if (d->stopper_count == 0)
		finish(d);
	for (size_t i = 0; i < d->stopper_count; i++)
		d->stoppers[i].stop(d->stoppers[i].arg);
}

void daemon_on_stop(struct daemon *d, void (*stop)(void *arg), void *arg)
{
	if (d->stopper_count == DAEMON_STOPPERS_MAX)
		return; /* as many as there are parts, with room to spare */
	d->stoppers[d->stopper_count].stop = stop;
	d->stoppers[d->stopper_count++].arg = arg;
}

void daemon_stopped(struct daemon *d)
{
	if (--d->stoppers_left == 0)
		finish(d);
}

static void on_drain_over(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	stop_parts(arg);
}

static void on_quiet(struct http_server *s)
{
	static const struct timeval now = {0};

	/* Not from within the handler that has just ended its request. */
	if (s->daemon->draining && !s->daemon->stopping)
		(void) event_add(s->daemon->drain_timer, &now); /* it was added before */
}

void daemon_drain(struct daemon *d)
{
	struct timeval wait = {.tv_sec = (time_t) (d->options->drain / USEC_PER_SEC),
			       .tv_usec = (suseconds_t) (d->options->drain % USEC_PER_SEC)};

	if (d->draining) {
		dlog(d->log, DLOG_WARNING, "ending at once");
		(void) event_base_loopbreak(d->base); /* cannot fail from within the loop */
		return;
	}
	d->draining = true;
	dlog(d->log, DLOG_INFO, "draining", dlog_number("requests", d->http.pending));
	if (d->http.pending == 0)
		wait = (struct timeval){0};
	if (event_add(d->drain_timer, &wait) < 0)
		stop_parts(d);
}

static void on_end_signal(evutil_socket_t number, short what, void *arg)
{
	(void) number;
	(void) what;
	daemon_drain(arg);
}

static void on_hangup(evutil_socket_t number, short what, void *arg)
{
	struct daemon *d = arg;
	struct zw_error e = {0};

	(void) number;
	(void) what;
	if (d->log != NULL && dlog_reopen(d->log, &e) < 0)
		dlog(d->log, DLOG_ERROR, "log not reopened", dlog_text("why", e.text));
	if (d->tls && d->listeners != NULL && daemon_load_tls(d, NULL, 0, &e) < 0)
		dlog(d->log, DLOG_ERROR, "certificate not reloaded", dlog_text("why", e.text));
	dlog(d->log, DLOG_INFO, "reloaded");
}

int daemon_watch_signals(struct daemon *d, struct zw_error *e)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	bool good = sigaction(SIGPIPE, &ignore, NULL) == 0;

	d->http.on_quiet = on_quiet;
	d->signals[0] = evsignal_new(d->base, SIGTERM, on_end_signal, d);
	d->signals[1] = evsignal_new(d->base, SIGINT, on_end_signal, d);
	d->signals[2] = evsignal_new(d->base, SIGHUP, on_hangup, d);
	d->drain_timer = event_new(d->base, -1, 0, on_drain_over, d);
	d->flush_timer = event_new(d->base, -1, 0, on_flush_over, d);
	for (size_t i = 0; i < 3; i++)
		good = good && d->signals[i] != NULL && event_add(d->signals[i], NULL) == 0;
	return good && d->drain_timer != NULL && d->flush_timer != NULL
		   ? 0
		   : zw_error(e, ENOMEM, "there is not enough memory for signals");
}

void daemon_forget_signals(struct daemon *d)
{
	struct event *const events[] = {d->signals[0], d->signals[1], d->signals[2], d->drain_timer, d->flush_timer};

	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (events[i] != NULL)
			event_free(events[i]);
}
