/* The supervisor of a session: the walls, limits, broker and record of a run (run.c, supervise.c), with no command of its own.
 *
 * Theory of operation. When the walls are up it says "ready" and does what the daemon asks over the line (session-request.c). The
 * agent starts each process with descriptors of the daemon's, so no byte of theirs passes through here. While nothing happens it
 * sleeps in epoll_wait(2) without a timer.
 *
 * The end comes by the daemon's word, by the end of the line (unless another daemon may come: session-carry.c), by the death of
 * the agent, or by a limit that ends the whole sandbox. Whoever is still there is told as canceled; "ended" is the last message.
 *
 * What must never happen: a wait for the daemon while the code inside runs on without its limits; an answer to a request that was
 * not made; a sandbox without somebody at the other end of the line, but for a while that has an end. */
#include "sandbox/session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/signame.h"
#include "sandbox/encode.h"
#include "sandbox/processes.h"
#include "sandbox/result-json.h"
#include "sandbox/session-internal.h"

enum { LAST_WORD_PATIENCE = 5000 }; /* milliseconds without progress */

#define DRAIN_MAX (1 * USEC_PER_SEC)

json_t *session_text(const char *text)
{
	cleanup_free char *escaped = text != NULL ? encode_text(text) : NULL;

	return escaped != NULL ? json_string(escaped) : json_null();
}

json_t *session_totals(const struct result *r)
{
	json_t *denials = json_object();

	for (size_t i = 0; i < r->denials.count; i++) {
		const struct denial_entry *d = &r->denials.items[i];
		json_int_t sum = json_integer_value(json_object_get(denials, d->kind)) + (json_int_t) d->count;

		(void) json_object_set_new(denials, d->kind, json_integer(sum));
	}
	if (r->denials.other > 0)
		(void) json_object_set_new(denials, "other", json_integer((json_int_t) r->denials.other));
	return json_pack("{so sI}", "denials", denials, "connections", (json_int_t) r->connections.total);
}

/* ---- Ready. ---- */

static const char *const tree_mechanisms[] = {
    [CGROUP_ABSENT] = "links",
    [CGROUP_V1] = "cgroup1",
    [CGROUP_V2] = "cgroup2",
};

/* Where processes are counted per user there is one only (build-steps.c). */
bool session_has_root(const struct supervisor *s)
{
	return s->plan->has_root && (s->plan->limits.cgroup.processes == ZW_UNLIMITED ||
				     cgroup_holds(s->sandbox->cgroup, CGROUP_PIDS) != CGROUP_ABSENT);
}

json_t *session_describe(struct supervisor *s, const char *type)
{
	const struct session *n = s->work;
	json_t *summary = json_loads(s->plan->policy_json, 0, NULL); /* limits and network as the code inside sees them */
	json_t *not_enforced = result_not_enforced(s->sandbox->controls);
	const char *tree = tree_mechanisms[cgroup_child_kind(s->sandbox->cgroup)];
	json_t *m;

	m = json_pack("{ss ss si sO? so so sO? sI ss ss ss sb}", "t", type, "sandbox", s->plan->id, "pid", (int) s->sandbox->pid,
		      "limits", json_object_get(summary, "limits"), "enforcement", result_enforcement(s->sandbox->controls),
		      "not_enforced", not_enforced != NULL ? not_enforced : json_array(), "network",
		      json_object_get(summary, "network"), "setup_usec", (json_int_t) (s->started - n->begun), "tree", tree,
		      "home", s->plan->home, "cwd", s->plan->cwd, "root", (int) session_has_root(s));
	json_decref(summary);
	return m;
}

static void tell_ready(struct supervisor *s)
{
	struct session *n = s->work;

	session_line_send(&n->line, session_describe(s, "ready"), NULL);
	n->ready = true;
}

static int session_prepare(struct supervisor *s, struct zw_error *e)
{
	(void) s; /* the line is there already */
	(void) e;
	return 0;
}

static int session_begin(struct supervisor *s, struct zw_error *e)
{
	(void) e;
	s->started = now_monotonic();
	s->result->started_at = now_realtime();
	if (s->observer != NULL)
		s->observer->event(s->observer->ctx, &(struct event){.kind = EVENT_START,
								     .when = s->result->started_at,
								     .sandbox_id = s->plan->id,
								     .plan = s->plan});
	tell_ready(s);
	return 0;
}

/* ---- Events. ---- */

static void session_message(struct supervisor *s, struct msg_in *m)
{
	if (m->type == MSG_CONNECTED)
		session_connected(s, m);
	else
		session_process_message(s, m);
}

static void end_by_signal(struct supervisor *s)
{
	struct session *n = s->work;
	struct signalfd_siginfo info;

	while (read(s->signals, &info, sizeof info) == sizeof info) {
		if (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT && info.ssi_signo != SIGHUP)
			continue;
		if (n->end_status[0] == '\0') {
			(void) snprintf(n->end_status, sizeof n->end_status, "error");
			(void) snprintf(n->end_reason, sizeof n->end_reason, "the supervisor was told to end by SIG%s",
					signal_abbreviation((int) info.ssi_signo));
		}
		supervisor_kill(s, KILLED_CANCEL);
	}
}

static void session_event(struct supervisor *s, uint64_t tag, uint32_t events)
{
	if (tag == TAG_LINE)
		session_requests(s);
	else if (tag == TAG_NEXT)
		session_carry_event(s, events);
	else if (tag == TAG_SIGNALS)
		end_by_signal(s);
	else if (tag >= TAG_PROCESS)
		session_process_event(s, (uint32_t) (tag - TAG_PROCESS));
}

static int session_watch(struct supervisor *s)
{
	struct session *n = s->work;

	/* That it takes nothing any more is noticed by us alone: no event tells it. */
	if (n->line.deaf && n->line.fd >= 0 && !s->ended)
		session_requests(s);
	/* The end of the line is not told twice. */
	if (n->line.fd < 0 && !n->carry.alone && !s->ended)
		session_line_over(s, "the daemon does not listen any more");
	return session_line_watch(&n->line, s->epoll, TAG_LINE);
}

static bool session_is_idle(const struct supervisor *s)
{
	const struct session *n = s->work;
	struct processes_sum sum;

	if (n->count > 0)
		return false;
	processes_measure(s->sandbox->pid, 0, &sum); /* what was left running in the background */
	return sum.processes == 0;
}

/* ---- The end. ---- */

static void session_over(struct supervisor *s)
{
	struct session *n = s->work;

	session_process_all_over(s);
	for (; n->connect_count > 0; n->connect_count--)
		if ((n->connects[n->connect_count - 1] & CONNECT_STALE) == 0)
			session_done(n, n->connects[n->connect_count - 1], ESHUTDOWN, "the sandbox has ended", NULL);
	s->due[DUE_DRAIN] = now_monotonic() + DRAIN_MAX;
}

static bool session_finished(struct supervisor *s)
{
	struct session *n = s->work;

	return session_line_is_idle(&n->line) || s->abandoned;
}

static void session_decide(struct supervisor *s)
{
	struct session *n = s->work;

	s->evidence.oom_survived = n->oom_settled;
	ending_decide(&s->evidence, s->plan, s->result);
	if (s->evidence.fault.code != 0 || n->end_status[0] == '\0') {
		(void) snprintf(n->end_status, sizeof n->end_status, "%s",
				s->result->status == STATUS_OUT_OF_MEMORY ? "out_of_memory" : "error");
		(void) snprintf(n->end_reason, sizeof n->end_reason, "%s", s->result->reason);
		return;
	}
	s->result->status = STATUS_CANCELED;
	(void) snprintf(s->result->reason, sizeof s->result->reason, "%s", n->end_reason);
}

static const struct workload workload_session = {
    .prepare = session_prepare,
    .begin = session_begin,
    .message = session_message,
    .event = session_event,
    .due = session_process_due,
    .watch = session_watch,
    .is_idle = session_is_idle,
    .outlived = session_process_outlived,
    .over = session_over,
    .finished = session_finished,
    .denied = session_process_denied,
    .connection = session_process_connection,
    .synced = session_process_synced,
    .decide = session_decide,
};

static void tell_ended(struct session *n)
{
	const struct result *r = &n->result;

	session_line_send(&n->line,
			  json_pack("{ss so so so so so so so}", "t", "ended", "status", session_text(n->end_status), "reason",
				    session_text(n->end_reason), "usage", result_usage(r), "denials", result_denials(&r->denials),
				    "connections", connections_to_json(&r->connections), "files", result_files(r), "totals",
				    session_totals(r)),
			  NULL);
	session_line_drain(&n->line, LAST_WORD_PATIENCE);
}

void session_run(struct session *n, const struct plan *plan, const struct isolation_ops *ops, const struct observer *observer)
{
	sandbox_live(plan, ops, observer, NULL, &workload_session, n, &n->result);
	if (n->ready) {
		tell_ended(n);
		return;
	}
	session_refuse(n, n->result.status == STATUS_REFUSED ? "not_enforceable" : "unavailable", n->result.reason,
		       &n->result.errors);
}

void session_refuse(struct session *n, const char *code, const char *reason, const struct policy_errors *errors)
{
	json_t *list = errors != NULL ? result_errors(errors) : json_array();

	session_line_send(
	    &n->line, json_pack("{ss ss so so}", "t", "refused", "code", code, "errors", list, "reason", session_text(reason)),
	    NULL);
	session_line_drain(&n->line, LAST_WORD_PATIENCE);
}

static void tell_event(void *ctx, const struct event *e)
{
	static const char *const kinds[] = {
	    [EVENT_DENIAL] = "denial",
	    [EVENT_DENIALS_SUMMARISED] = "denial",
	    [EVENT_CONNECTION] = "connection",
	    [EVENT_LIMIT] = "limit",
	    [EVENT_EXEC] = "exec",
	};
	struct session *n = ctx;
	json_t *record;

	if ((size_t) e->kind >= ARRAY_SIZE(kinds) || kinds[e->kind] == NULL)
		return;
	record = n->record(e);
	if (record != NULL)
		session_line_tell(&n->line, json_pack("{ss ss so}", "t", "event", "kind", kinds[e->kind], "record", record));
}

struct observer session_observer(struct session *n, json_t *(*record)(const struct event *e))
{
	n->record = record;
	return (struct observer){.ctx = n, .event = tell_event};
}

struct session *session_new(int line, usec_t begun)
{
	struct session *n = xcalloc(1, sizeof *n);

	n->begun = begun;
	session_carry_init(n);
	result_init(&n->result);
	(void) session_line_open(&n->line, line); /* fails only for what is no descriptor: then nobody is there to be told */
	return n;
}

void session_free(struct session *n)
{
	session_line_close(&n->line);
	session_carry_done(n);
	result_done(&n->result);
	free(n->processes);
	free(n->left);
	free(n);
}
