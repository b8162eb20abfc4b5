#include "daemon/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/event-log.h"
#include "daemon/heap.h"
#include "daemon/launcher-client.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/processes.h"
#include "daemon/sandbox-ceiling.h"
#include "daemon/sandbox-contexts.h"
#include "daemon/sandbox-events.h"
#include "daemon/sandbox-files.h"
#include "daemon/sandbox-levels.h"
#include "daemon/sandbox-outlive.h"
#include "daemon/sandbox-records.h"

enum { SWEEP_SECONDS = 10 }; /* or sooner, where records are kept for less */

/* ---- The table. ---- */

static size_t bucket_of(const char *id)
{
	uint32_t h = 2166136261U;

	for (; *id != '\0'; id++)
		h = (h ^ (unsigned char) *id) * 16777619U;
	return h % SANDBOX_BUCKETS;
}

struct sandbox *sandbox_find(struct daemon *d, const char *id)
{
	struct sandbox *s = d->sandboxes->buckets[bucket_of(id)];

	while (s != NULL && strcmp(s->id, id) != 0)
		s = s->next_in_bucket;
	return s;
}

static void link_in(struct sandboxes *all, struct sandbox *s)
{
	struct sandbox **bucket = &all->buckets[bucket_of(s->id)];

	s->next_in_bucket = *bucket;
	*bucket = s;
	s->older = all->newest;
	if (all->newest != NULL)
		all->newest->newer = s;
	else
		all->oldest = s;
	all->newest = s;
	s->number = all->next_number++;
	all->live++;
}

static void link_out(struct sandboxes *all, struct sandbox *s)
{
	struct sandbox **at = &all->buckets[bucket_of(s->id)];

	while (*at != s)
		at = &(*at)->next_in_bucket;
	*at = s->next_in_bucket;
	*(s->newer != NULL ? &s->newer->older : &all->newest) = s->older;
	*(s->older != NULL ? &s->older->newer : &all->oldest) = s->newer;
	if (s->state == SANDBOX_ENDED)
		all->ended--;
	else
		all->live--;
}

void sandbox_restore(struct sandboxes *all, struct sandbox *s)
{
	s->all = all;
	all->next_number = s->number;
	link_in(all, s);
	if (s->state != SANDBOX_ENDED)
		return;
	all->live--;
	all->ended++;
}

static int make_id(char ret[SANDBOX_ID_SIZE])
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
	unsigned char random[SANDBOX_ID_SIZE - 1];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -EIO;
	for (size_t i = 0; i < sizeof random; i++)
		ret[i] = digits[random[i] % 32];
	ret[sizeof random] = '\0';
	return 0;
}

static void call_waiters(struct sandbox *s)
{
	while (s->waiters != NULL) {
		struct sandbox_waiter *w = s->waiters;

		s->waiters = w->next;
		w->call(w->arg, s);
		free(w);
	}
}

/* ---- Who stops with it. ---- */

void sandbox_cut_add(struct sandbox *s, struct sandbox_cut *c)
{
	c->next = s->cuts;
	c->at = &s->cuts;
	if (c->next != NULL)
		c->next->at = &c->next;
	s->cuts = c;
}

void sandbox_cut_remove(struct sandbox_cut *c)
{
	if (c->at == NULL)
		return;
	*c->at = c->next;
	if (c->next != NULL)
		c->next->at = c->at;
	c->next = NULL;
	c->at = NULL;
}

void sandbox_watch_add(struct sandbox *s, struct sandbox_watch *w)
{
	w->next = s->watches;
	s->watches = w;
}

void sandbox_watch_remove(struct sandbox *s, const struct sandbox_watch *w)
{
	struct sandbox_watch **at = &s->watches;

	while (*at != NULL && *at != w)
		at = &(*at)->next;
	if (*at != NULL)
		*at = w->next;
}

void sandbox_watch_tell(struct sandbox *s, const struct process *p)
{
	for (struct sandbox_watch *w = s->watches, *next; w != NULL; w = next) {
		next = w->next;
		w->moved(w->arg, p);
	}
}

static void cut(struct sandbox *s, bool over)
{
	struct sandbox_cut *c = s->cuts;

	while (c != NULL) {
		if (c->lasting && !over) {
			c = c->next;
			continue;
		}
		sandbox_cut_remove(c);
		c->call(c);
		c = s->cuts; /* it may have taken others with it */
	}
}

/* Those whose requests are gone have nothing left to do. */
static void cut_lasting(struct sandbox *s)
{
	while (s->cuts != NULL) {
		struct sandbox_cut *c = s->cuts;

		sandbox_cut_remove(c);
		if (c->lasting)
			c->call(c);
	}
}

static void destroy(struct sandbox *s)
{
	cut_lasting(s);
	if (s->all->daemon->draining)
		sandbox_outlive_end(s);
	else
		sandbox_outlive_leave(s);      /* it has failed, and another one may do better */
	s->session = session_free(s->session); /* nothing that goes now is to be told to the supervisor */
	link_out(s->all, s);
	sandbox_contexts_free(s);
	processes_free(s);
	sandbox_events_free(s);
	sandbox_files_end(s, "the service ends");
	if (s->timer != NULL)
		event_free(s->timer);
	while (s->waiters != NULL) {
		struct sandbox_waiter *w = s->waiters;

		s->waiters = w->next;
		free(w);
	}
	json_decref(s->metadata);
	json_decref(s->env);
	json_decref(s->extras);
	json_decref(s->limits);
	json_decref(s->enforcement);
	json_decref(s->not_enforced);
	json_decref(s->usage);
	json_decref(s->last_word);
	json_decref(s->problem.errors);
	sandbox_policy_done(&s->policy);
	free(s->start_policy);
	free(s->name);
	free(s->home);
	free(s);
}

/* What cannot be written now is tried again: only an end that is not yet in the store can be told otherwise after a crash. */
static void keep(struct sandbox *s)
{
	if (!s->hidden)
		s->unkept = sandbox_record_keep(s) < 0;
}

/* ---- The end. ---- */

static void count_states(struct sandboxes *all)
{
	uint64_t running = 0, paused = 0;

	for (const struct sandbox *s = all->newest; s != NULL; s = s->older) {
		running += s->state == SANDBOX_RUNNING;
		paused += s->state == SANDBOX_PAUSED;
	}
	metrics_set(all->daemon->metrics, METRIC_SANDBOXES_RUNNING, NULL, running);
	metrics_set(all->daemon->metrics, METRIC_SANDBOXES_PAUSED, NULL, paused);
}

/* The words that a metric may have. */
static const char *end_word(const char *status)
{
	static const char *const words[] = {"deleted",          "timeout",        "out_of_memory",
					    "daemon_restarted", "daemon_stopped", "canceled"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(words[i], status) == 0)
			return words[i];
	return "error";
}

static void finish(struct sandbox *s, const char *status, const char *reason)
{
	struct sandboxes *all = s->all;
	bool started = s->state != SANDBOX_STARTING;

	cut(s, true);
	(void) snprintf(s->end_status, sizeof s->end_status, "%s", end_word(status));
	if (reason != s->end_reason)
		(void) snprintf(s->end_reason, sizeof s->end_reason, "%s", reason);
	s->state = SANDBOX_ENDED;
	s->ended_at = now_realtime();
	all->live--;
	all->ended++;
	if (s->timer != NULL)
		(void) event_del(s->timer);
	sandbox_files_end(s, "the sandbox has ended");
	sandbox_outlive_end(s);
	s->session = session_free(s->session);
	sandbox_measure_over(s);
	processes_sandbox_ended(s);
	sandbox_contexts_ended(s);
	if (started) {
		keep(s);
		metrics_add(all->daemon->metrics, METRIC_SANDBOXES_ENDED, METRIC_LABELS(s->end_status), 1);
		sandbox_event(s, "ended", json_pack("{ss ss}", "status", s->end_status, "reason", s->end_reason));
		dlog(all->daemon->log, DLOG_INFO, "sandbox ended", dlog_text("sandbox_id", s->id),
		     dlog_text("status", s->end_status));
	}
	sandbox_events_over(s);
	sandbox_watch_tell(s, NULL);
	call_waiters(s);
	if (all->stopping && all->live == 0) {
		all->stopping = false;
		daemon_stopped(all->daemon);
	}
}

void sandbox_end(struct sandbox *s, const char *status, const char *reason)
{
	if (s->state == SANDBOX_ENDED || s->state == SANDBOX_ENDING)
		return;
	(void) snprintf(s->end_status, sizeof s->end_status, "%s", status);
	(void) snprintf(s->end_reason, sizeof s->end_reason, "%s", reason);
	/* One that is not ready takes no request yet, and needs none. */
	if (s->state == SANDBOX_STARTING) {
		s->problem.code = PROBLEM_UNAVAILABLE;
		(void) snprintf(s->problem.message, sizeof s->problem.message, "the sandbox was ended before it was ready");
		finish(s, s->end_status, s->end_reason);
		return;
	}
	s->state = SANDBOX_ENDING;
	cut(s, true);
	/* The end of the line ends it too, and says so to all who wait for an answer. */
	if (session_ask(s->session, json_pack("{ss ss ss}", "t", "end", "status", status, "reason", reason), NULL, 0,
			process_no_answer, NULL, NULL) < 0) {
		sandbox_outlive_end(s);
		session_hang_up(s->session);
	}
}

void sandbox_on_end(struct sandbox *s, void (*call)(void *arg, struct sandbox *s), void *arg)
{
	struct sandbox_waiter *w;

	if (s->state == SANDBOX_ENDED) {
		call(arg, s);
		return;
	}
	w = xcalloc(1, sizeof *w);
	*w = (struct sandbox_waiter){.next = s->waiters, .call = call, .arg = arg};
	s->waiters = w;
}

void sandbox_forget(struct sandbox *s, const void *arg)
{
	for (struct sandbox_waiter **at = &s->waiters; *at != NULL;) {
		struct sandbox_waiter *w = *at;

		if (w->arg != arg) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		free(w);
	}
}

/* ---- The clock. ---- */

static void pause_done(void *arg, const json_t *m, int *fd)
{
	struct sandbox *s = arg;

	(void) fd;
	if (m != NULL && json_integer_value(json_object_get(m, "errno")) == 0) {
		sandbox_set_paused(s, true);
		s->left = s->timeout; /* the two clocks differ: a little may seem to be left */
		keep(s);
	} else if (m != NULL) {
		sandbox_end(s, "timeout", "its time was over, and it could not be paused");
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *s = arg;

	(void) fd;
	(void) what;
	if (s->pause_on_timeout && s->state == SANDBOX_RUNNING &&
	    session_ask(s->session, json_pack("{ss}", "t", "pause"), NULL, 0, pause_done, s, NULL) == 0)
		return;
	sandbox_end(s, "timeout", "the time of the sandbox was over");
}

static void arm(struct sandbox *s, usec_t in)
{
	struct timeval t = {.tv_sec = (time_t) (in / USEC_PER_SEC), .tv_usec = (suseconds_t) (in % USEC_PER_SEC)};

	s->expires = now_realtime() + in;
	(void) event_add(s->timer, &t); /* it has been added before, or its failure would be that of the whole loop */
}

void sandbox_set_timeout(struct sandbox *s, usec_t timeout)
{
	s->timeout = timeout;
	if (s->state == SANDBOX_PAUSED)
		s->left = timeout;
	else
		arm(s, timeout);
	keep(s);
}

void sandbox_changed(struct sandbox *s)
{
	if (s->outlive == NULL)
		return;
	sandbox_outlive_memo(s);
	keep(s);
}

void sandbox_set_paused(struct sandbox *s, bool paused)
{
	usec_t now = now_realtime();

	if (s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSED)
		return;
	if (paused) {
		s->left = s->expires > now ? s->expires - now : 0;
		/* One that was paused for its time gets the whole time again. */
		s->left = s->left == 0 ? s->timeout : s->left;
		(void) event_del(s->timer);
		s->paused_at = now;
		s->expires = ZW_UNLIMITED;
		s->state = SANDBOX_PAUSED;
	} else {
		s->state = SANDBOX_RUNNING;
		arm(s, s->left);
	}
	sandbox_contexts_pause(s, paused);
	if (paused)
		cut(s, false);
	keep(s);
	count_states(s->all);
	sandbox_event(s, paused ? "paused" : "resumed", json_object());
}

/* ---- What the supervisor says. ---- */

static void set(json_t **at, const json_t *m, const char *key)
{
	json_decref(*at);
	*at = json_incref(json_object_get(m, key));
}

void sandbox_describe(struct sandbox *s, const json_t *m)
{
	set(&s->limits, m, "limits");
	set(&s->enforcement, m, "enforcement");
	set(&s->not_enforced, m, "not_enforced");
	free(s->home);
	s->home = xstrdup(json_string_value(json_object_get(m, "home")));
	s->has_root = json_is_true(json_object_get(m, "root"));
	s->setup = (usec_t) json_integer_value(json_object_get(m, "setup_usec"));
}

static void on_ready(void *arg, const json_t *m)
{
	struct sandbox *s = arg;
	struct metrics *metrics = s->all->daemon->metrics;
	int r;

	sandbox_describe(s, m);
	sandbox_outlive_begin(s);
	r = s->hidden ? 0 : sandbox_record_keep(s);
	if (r < 0) {
		s->problem.code = r == -ENOSPC ? PROBLEM_INSUFFICIENT_STORAGE : PROBLEM_UNAVAILABLE;
		(void) snprintf(s->problem.message, sizeof s->problem.message, "the record of the sandbox cannot be written%s",
				r == -ENOSPC ? ": there is no room" : "");
		finish(s, "error", s->problem.message);
		return;
	}
	s->state = SANDBOX_RUNNING;
	metrics_add(metrics, METRIC_SANDBOXES_STARTED, METRIC_LABELS(isolation_name(s->policy.isolation)), 1);
	metrics_observe(metrics, METRIC_SANDBOX_START_SECONDS, NULL, now_monotonic() - s->began);
	sandbox_event(s, "created", json_pack("{ss}", "isolation", isolation_name(s->policy.isolation)));
	call_waiters(s);
}

static json_t *error_list(const json_t *errors)
{
	json_t *list = json_array(), *e;
	size_t i;

	json_array_foreach(errors, i, e)
	{
		json_t *key = json_object_get(e, "key"), *message = json_object_get(e, "message"),
		       *suggestion = json_object_get(e, "suggestion");

		if (json_is_string(message) && i < 100)
			(void) json_array_append_new(list, json_pack("{sO? sO sn sO?}", "path", key, "message", message,
								     "expected", "suggestion", suggestion));
	}
	return list;
}

static void on_refused(void *arg, const json_t *m)
{
	struct sandbox *s = arg;
	const char *code = json_string_value(json_object_get(m, "code"));
	const json_t *errors = json_object_get(m, "errors");
	const char *first = json_string_value(json_object_get(json_array_get(errors, 0), "message"));

	s->problem.code = strcmp(code, "invalid_policy") == 0    ? PROBLEM_INVALID_POLICY
			  : strcmp(code, "not_enforceable") == 0 ? PROBLEM_NOT_ENFORCEABLE
								 : PROBLEM_UNAVAILABLE;
	(void) snprintf(s->problem.message, sizeof s->problem.message, "%s",
			first != NULL ? first : json_string_value(json_object_get(m, "reason")));
	if (json_array_size(errors) > 0)
		s->problem.errors = error_list(errors);
	finish(s, "error", s->problem.message);
}

static void on_event(void *arg, const char *kind, const json_t *m)
{
	sandbox_event_of(arg, kind, m);
}

static void on_ended(void *arg, const json_t *m)
{
	struct sandbox *s = arg;

	if (s->state == SANDBOX_STARTING && s->outlive != NULL) {
		dlog(s->all->daemon->log, DLOG_WARNING, "a sandbox could not be taken over", dlog_text("sandbox_id", s->id),
		     dlog_text("why", m == NULL ? "its supervisor has ended, or said what makes no sense" : "it was ending"));
		sandbox_outlive_leave(s); /* and sandboxes_adopt() ends it */
		s->session = session_free(s->session);
		return;
	}
	if (m == NULL) {
		if (s->state == SANDBOX_STARTING) {
			s->problem.code = PROBLEM_UNAVAILABLE;
			(void) snprintf(s->problem.message, sizeof s->problem.message, "the sandbox could not be started");
		}
		if (s->state == SANDBOX_ENDING)
			finish(s, s->end_status, s->end_reason);
		else
			finish(s, "error", "its supervisor has ended");
		return;
	}
	s->last_word = json_incref((json_t *) (uintptr_t) m);
	json_decref(s->usage);
	s->usage = json_incref(json_object_get(m, "usage"));
	sandbox_account(s, m);
	finish(s, json_string_value(json_object_get(m, "status")), json_string_value(json_object_get(m, "reason")));
}

static const struct session_events events = {.ready = on_ready,
					     .refused = on_refused,
					     .event = on_event,
					     .adopted = sandbox_adopted,
					     .held = sandbox_held,
					     .ended = on_ended};

/* ---- One of a daemon before this one. ---- */

int sandbox_reconnect(struct sandbox *s, int line)
{
	struct zw_error e = {0};

	s->timer = event_new(s->all->daemon->base, -1, 0, on_timer, s);
	s->session = session_new(s->all->daemon->base, line, &events, s, &e);
	return s->timer != NULL && s->session != NULL ? 0 : -EINVAL;
}

void sandbox_go_on(struct sandbox *s, bool paused, usec_t left)
{
	s->state = paused ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	s->began = now_monotonic();
	if (paused) {
		s->left = left > 0 ? left : s->timeout;
		s->expires = ZW_UNLIMITED;
		sandbox_contexts_pause(s, true);
	} else {
		arm(s, left);
	}
	keep(s);
	count_states(s->all);
}

void sandbox_lost(struct sandbox *s, const char *status, const char *reason)
{
	s->state = SANDBOX_RUNNING; /* it did run */
	finish(s, status, reason);
}

/* ---- The beginning. ---- */

static int fail(struct problem *p, enum problem_code code, const char *message)
{
	p->code = code;
	(void) snprintf(p->message, sizeof p->message, "%s", message);
	return -EINVAL;
}

static int launch(struct sandbox *s, struct problem *p)
{
	struct sandboxes *all = s->all;
	struct zw_error e = {0};
	int line = -1, r = launcher_client_launch(all->launcher, s->policy.text, &line);

	if (r == -EMSGSIZE)
		return fail(p, PROBLEM_TOO_LARGE, "the policy is too large");
	if (r == -ESHUTDOWN || r == -EPIPE)
		return fail(p, PROBLEM_UNAVAILABLE, "the launcher of sandboxes has ended; the service must be restarted");
	if (r == -EAGAIN)
		return fail(p, PROBLEM_UNAVAILABLE, "too many sandboxes are being started at once");
	if (r < 0)
		return fail(p, PROBLEM_UNAVAILABLE, "no sandbox can be started now: the host lacks descriptors or memory");
	s->session = session_new(all->daemon->base, line, &events, s, &e);
	return s->session != NULL ? 0 : fail(p, PROBLEM_UNAVAILABLE, e.text);
}

int sandbox_create(struct sandboxes *all, const struct sandbox_wish *wish, void (*ready)(void *arg, struct sandbox *s), void *arg,
		   struct sandbox **ret, struct problem *p)
{
	struct sandbox_policy policy = {0};
	struct sandbox *s;
	int r;

	if (all->live >= all->daemon->options->max_sandboxes)
		return fail(p, PROBLEM_BUSY, "there are as many sandboxes as this service allows");
	r = wish->like != NULL ? sandbox_policy_copy(wish->like, &policy)
			       : sandbox_policy_make(&all->policies, wish->policy, wish->template, &policy, p);
	if (r < 0)
		return r;
	s = xcalloc(1, sizeof *s);
	*s = (struct sandbox){
	    .all = all,
	    .policy = policy,
	    .name = wish->name != NULL ? xstrdup(wish->name) : NULL,
	    .metadata = wish->metadata != NULL ? json_deep_copy(wish->metadata) : json_object(),
	    .env = wish->env != NULL ? json_deep_copy(wish->env) : json_object(),
	    .extras = wish->extras != NULL ? json_deep_copy(wish->extras) : NULL,
	    .created = now_realtime(),
	    .began = now_monotonic(),
	    .timeout = wish->timeout,
	    .pause_on_timeout = wish->pause_on_timeout,
	    .hidden = wish->hidden,
	};
	s->timer = event_new(all->daemon->base, -1, 0, on_timer, s);
	r = make_id(s->id) == 0 && s->timer != NULL ? 0 : fail(p, PROBLEM_UNAVAILABLE, "there is not enough memory");
	link_in(all, s);
	if (r == 0)
		r = launch(s, p);
	if (r < 0) {
		destroy(s);
		return r;
	}
	arm(s, s->timeout);
	sandbox_on_end(s, ready, arg);
	*ret = s;
	return 0;
}

/* ---- JSON. ---- */

json_t *json_time(usec_t realtime)
{
	char text[TIMESTAMP_SIZE];

	if (realtime == 0 || realtime == ZW_UNLIMITED)
		return json_null();
	format_timestamp(realtime, text);
	return json_string(text);
}

const char *sandbox_state_name(enum sandbox_state state)
{
	return state == SANDBOX_PAUSED ? "paused" : state == SANDBOX_ENDED || state == SANDBOX_ENDING ? "ended" : "running";
}

bool sandbox_states_read(const char *text, unsigned allowed, unsigned *ret)
{
	cleanup_free char *copy = xstrdup(text);
	char *rest = copy;

	*ret = 0;
	for (const char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
		unsigned found = 0;

		for (unsigned state = SANDBOX_STARTING; state <= SANDBOX_ENDED; state++)
			if ((allowed & 1U << state) != 0 && strcmp(word, sandbox_state_name((enum sandbox_state) state)) == 0)
				found |= 1U << state;
		if (found == 0)
			return false;
		*ret |= found;
	}
	return true;
}

static json_t *end_to_json(const struct sandbox *s)
{
	bool over = s->state == SANDBOX_ENDED;

	if (!over && s->state != SANDBOX_ENDING)
		return json_null();
	return json_pack("{so ss ss}", "at", json_time(over ? s->ended_at : now_realtime()), "status", s->end_status, "reason",
			 s->end_reason);
}

json_t *sandbox_to_json(const struct sandbox *s)
{
	return json_pack("{ss ss? ss? ss ss so so sf ss sO sO? sO? sO? so}", "id", s->id, "name", s->name, "template",
			 s->policy.template, "state", sandbox_state_name(s->state), "isolation",
			 isolation_name(s->policy.isolation), "created_at", json_time(s->created), "expires_at",
			 json_time(s->expires), "timeout_seconds", (double) s->timeout / (double) USEC_PER_SEC, "on_timeout",
			 s->pause_on_timeout ? "pause" : "kill", "metadata", s->metadata, "limits", s->limits, "enforcement",
			 s->enforcement, "usage", s->usage, "end", end_to_json(s));
}

/* ---- For handlers. ---- */

struct sandbox *sandbox_or_record_of(struct request *r)
{
	struct sandbox *s = sandbox_find(r->daemon, r->params[0]);

	if (s != NULL && s->state != SANDBOX_STARTING && !s->hidden)
		return s;
	refuse(r, PROBLEM_NOT_FOUND, NULL, "there is no sandbox %.64s", r->params[0]);
	return NULL;
}

struct sandbox *sandbox_of(struct request *r, bool work)
{
	struct sandbox *s = sandbox_or_record_of(r);

	if (s == NULL)
		return NULL;
	if (s->state == SANDBOX_ENDED || s->state == SANDBOX_ENDING) {
		refuse(r, PROBLEM_SANDBOX_ENDED, "create another one", "%s", s->end_reason);
		return NULL;
	}
	if (work && s->state == SANDBOX_PAUSED) {
		refuse(r, PROBLEM_CONFLICT, "resume it first", "the sandbox is paused");
		return NULL;
	}
	return s;
}

void refuse_errno(struct request *r, int error, const char *what)
{
	if (error == EBUSY || error == EALREADY)
		refuse(r, PROBLEM_CONFLICT, NULL, "%s", what);
	else if (error == ESRCH)
		refuse(r, PROBLEM_CONFLICT, NULL, "the process has ended");
	else if (error == EINVAL)
		refuse(r, PROBLEM_BAD_REQUEST, NULL, "%s", what);
	else if (error == EMSGSIZE || error == E2BIG)
		refuse(r, PROBLEM_TOO_LARGE, "send less of it", "the command and its environment are too long");
	else if (error == EAGAIN)
		refuse(r, PROBLEM_BUSY, "try again", "%s: too much is under way in this sandbox", what);
	else if (error == ESHUTDOWN)
		refuse(r, PROBLEM_SANDBOX_ENDED, NULL, "the sandbox has ended");
	else
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "%s: %s", what, strerror(error));
}

/* ---- All of them. ---- */

static void on_drop(evutil_socket_t fd, short what, void *arg)
{
	struct sandboxes *all = arg;

	(void) fd;
	(void) what;
	while (all->dropped != NULL) {
		struct sandbox *s = all->dropped;

		all->dropped = s->next_dropped;
		destroy(s);
	}
}

void sandbox_drop(struct sandbox *s)
{
	s->next_dropped = s->all->dropped;
	s->all->dropped = s;
	event_active(s->all->drop, EV_TIMEOUT, 0);
}

static void forget_old(struct sandboxes *all)
{
	usec_t now = now_realtime(), keep_for = all->daemon->options->keep_record;

	on_drop(-1, 0, all);
	for (struct sandbox *s = all->oldest, *next; s != NULL; s = next) {
		next = s->newer;
		if (s->state == SANDBOX_ENDED && s->holds == 0 &&
		    (s->hidden || now - s->ended_at > keep_for || all->ended > SANDBOX_RECORDS_MAX)) {
			if (!s->hidden)
				sandbox_record_forget(s);
			destroy(s);
			continue;
		}
		if (s->unkept)
			keep(s);
		processes_sweep(s);
	}
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	forget_old(arg);
	heap_give_back(&((struct sandboxes *) arg)->spare);
}

static void on_scrape(void *arg)
{
	const struct sandboxes *all = arg;

	count_states(arg);
	metrics_set(all->daemon->metrics, METRIC_SANDBOXES_MEMORY_BYTES, NULL, sandboxes_memory(all));
}

static void add_info(json_t *info, void *arg)
{
	struct sandboxes *all = arg;
	json_int_t running = 0;

	for (const struct sandbox *s = all->newest; s != NULL; s = s->older)
		running += s->state == SANDBOX_RUNNING;
	(void) json_object_set_new(info, "ceiling", ceiling_to_json(&all->policies.ceiling));
	(void) json_object_set_new(info, "running", json_integer(running));
}

static void launcher_gone(void *arg)
{
	struct sandboxes *all = arg;

	dlog(all->daemon->log, DLOG_ERROR, "the launcher has ended: no sandbox can be started any more");
}

static void stop(void *arg)
{
	struct sandboxes *all = arg;

	for (struct sandbox *s = all->newest, *next; s != NULL; s = next) {
		next = s->older;
		sandbox_end(s, "daemon_stopped", "the service was stopped");
	}
	if (all->live == 0)
		daemon_stopped(all->daemon);
	else
		all->stopping = true;
}

int sandboxes_start(struct daemon *d, struct zw_error *e)
{
	usec_t keep = d->options->keep_record / USEC_PER_SEC;
	const struct timeval every = {.tv_sec = keep < 1 ? 1 : keep < SWEEP_SECONDS ? (time_t) keep : SWEEP_SECONDS};
	struct sandboxes *all = xcalloc(1, sizeof *all);
	int r;

	all->daemon = d;
	all->next_number = 1;
	all->outlive_dir = -EBADF;
	d->sandboxes = all;
	r = sandbox_policies_init(&all->policies, d->options->ceiling, d->options->policy, d->options->templates, e);
	if (r < 0)
		return r;
	all->policies.own = d->options->own_policy;
	all->launcher = launcher_client_new(d->base, launcher_gone, all, e);
	if (all->launcher == NULL)
		return e->code;
	all->sweep = event_new(d->base, -1, EV_PERSIST, on_sweep, all);
	all->drop = event_new(d->base, -1, 0, on_drop, all);
	if (all->sweep == NULL || all->drop == NULL || event_add(all->sweep, &every) < 0)
		return zw_error(e, ENOMEM, "there is not enough memory for a timer");
	r = sandbox_outlive_open(all, e);
	if (r >= 0)
		r = sandbox_records_load(all, e);
	if (r < 0)
		return r;
	sandboxes_adopt(all);
	metrics_on_scrape(d->metrics, on_scrape, all);
	daemon_on_info(d, add_info, all);
	daemon_on_stop(d, stop, all);
	return 0;
}

struct sandboxes *sandboxes_free(struct sandboxes *all)
{
	if (all == NULL)
		return NULL;
	while (all->newest != NULL)
		destroy(all->newest);
	if (all->sweep != NULL)
		event_free(all->sweep);
	if (all->drop != NULL)
		event_free(all->drop);
	all->events = event_log_free(all->events);
	all->measure = sandbox_measure_free(all->measure);
	all->levels = sandbox_levels_free(all->levels);
	all->launcher = launcher_client_free(all->launcher);
	sandbox_outlive_close(all);
	sandbox_policies_done(&all->policies);
	free(all);
	return NULL;
}
