#include "daemon/sandbox-levels.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/launcher-client.h"
#include "daemon/sandbox.h"
#include "policy/policy.h"

enum { LEVELS = ISOLATION_WASM + 1 };

struct asker {
	struct asker *next;
	void (*call)(void *arg, const json_t *levels);
	void *arg;
};

struct trial {
	struct sandbox_levels *of;
	struct session *session;
	bool works;
};

struct sandbox_levels {
	struct trial trials[LEVELS];
	size_t waiting;
	json_t *list; /* NULL: not known yet */
	struct asker *askers;
	struct event *patience;
};

/* What does not answer in time does not count now, and may the next time. */
static void settle(struct sandbox_levels *l, bool keep)
{
	struct asker *askers = l->askers;
	json_t *list = json_array();

	for (size_t i = 0; i < LEVELS; i++) {
		if (l->trials[i].works)
			(void) json_array_append_new(list, json_string(isolation_name((enum isolation_level) i)));
		l->trials[i].session = session_free(l->trials[i].session);
	}
	l->askers = NULL;
	l->waiting = 0;
	if (l->patience != NULL)
		(void) event_del(l->patience);
	if (keep)
		l->list = json_incref(list);
	while (askers != NULL) {
		struct asker *a = askers;

		askers = a->next;
		a->call(a->arg, list);
		free(a);
	}
	json_decref(list);
}

static void on_patience(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	settle(arg, false);
}

static void over(struct trial *t, bool works)
{
	t->works = works;
	t->session = session_free(t->session); /* which ends the sandbox */
	if (--t->of->waiting == 0)
		settle(t->of, true);
}

static void on_ready(void *arg, const json_t *m)
{
	(void) m;
	over(arg, true);
}

static void on_refused(void *arg, const json_t *m)
{
	(void) m;
	over(arg, false);
}

static void on_event(void *arg, const char *kind, const json_t *m)
{
	(void) arg;
	(void) kind;
	(void) m;
}

static const struct session_events events = {.ready = on_ready, .refused = on_refused, .event = on_event, .ended = on_refused};

static void try(struct sandboxes *all, struct trial *t, enum isolation_level level)
{
	cleanup_free char *policy =
	    xasprintf("{\"version\": 1, \"isolation\": \"%s\", \"enforcement\": \"best-effort\"}", isolation_name(level));
	struct zw_error e = {0};
	int line = -EBADF;

	if (launcher_client_launch(all->launcher, policy, &line) < 0)
		return;
	t->session = session_new(all->daemon->base, line, &events, t, &e);
	if (t->session != NULL)
		t->of->waiting++;
}

void sandbox_levels(struct sandboxes *all, void (*call)(void *arg, const json_t *levels), void *arg)
{
	static const struct timeval patience = {.tv_sec = 5};
	struct sandbox_levels *l = all->levels;
	struct asker *a;

	if (l == NULL)
		l = all->levels = xcalloc(1, sizeof *l);
	if (l->list != NULL) {
		call(arg, l->list);
		return;
	}
	a = xcalloc(1, sizeof *a);
	*a = (struct asker){.next = l->askers, .call = call, .arg = arg};
	l->askers = a;
	if (l->waiting > 0)
		return;
	if (l->patience == NULL)
		l->patience = event_new(all->daemon->base, -1, 0, on_patience, l);
	for (size_t i = 0; i < LEVELS; i++) {
		l->trials[i] = (struct trial){.of = l};
		try(all, &l->trials[i], (enum isolation_level) i);
	}
	if (l->waiting == 0 || l->patience == NULL || event_add(l->patience, &patience) < 0)
		settle(l, false);
}

struct sandbox_levels *sandbox_levels_free(struct sandbox_levels *l)
{
	if (l == NULL)
		return NULL;
	for (size_t i = 0; i < LEVELS; i++)
		l->trials[i].session = session_free(l->trials[i].session);
	while (l->askers != NULL) {
		struct asker *a = l->askers;

		l->askers = a->next;
		free(a);
	}
	if (l->patience != NULL)
		event_free(l->patience);
	json_decref(l->list);
	free(l);
	return NULL;
}
