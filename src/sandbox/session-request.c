/* What the daemon asks of a session. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/egress-internal.h"
#include "sandbox/processes.h"
#include "sandbox/result-json.h"
#include "sandbox/session-internal.h"

enum { REQUESTS_AT_ONCE = 64, NARROW_HEAD = 64 /* bytes around the entries */ };

struct message {
	uint32_t id; /* 0: none */
	const json_t *json;
	int *fds;
	size_t nfds;
};

/* 0 when it is missing or no number of a request. */
static uint32_t number_of(const json_t *m, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(m, key));

	return value > 0 && value <= INT32_MAX ? (uint32_t) value : 0;
}

/* `error`: 0 or a positive errno. */
void session_done(struct session *n, uint32_t id, int error, const char *message, int *fd)
{
	json_t *answer = json_pack("{ss sI si}", "t", "done", "id", (json_int_t) id, "errno", error);

	if (error != 0)
		(void) json_object_set_new(answer, "message", session_text(message != NULL ? message : strerror(error)));
	session_line_send(&n->line, answer, fd);
}

static void on_start(struct supervisor *s, const struct message *m)
{
	session_process_start(s, m->id, m->json, m->fds, m->nfds);
}

static void on_signal(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	struct session_process *p = session_process_find(n, number_of(m->json, "process"));
	int error = ESRCH;

	if (n->paused_at != 0)
		error = EBUSY;
	else if (p != NULL)
		error = session_process_signal(s, p, (int) number_of(m->json, "signal"),
					       json_is_true(json_object_get(m->json, "tree")));
	session_done(n, m->id, error, error == ESRCH ? "there is no such process, or it has ended" : NULL, NULL);
}

static void on_meter(struct supervisor *s, const struct message *m)
{
	struct session_process *p = session_process_find(s->work, number_of(m->json, "process"));

	session_done(s->work, m->id, p != NULL ? session_process_meter(s, p, m->json) : ESRCH, NULL, NULL);
}

static void on_denials(struct supervisor *s, const struct message *m)
{
	struct session_process *p = session_process_find(s->work, number_of(m->json, "process"));

	if (p == NULL)
		session_done(s->work, m->id, ESRCH, NULL, NULL);
	else
		session_process_tell_denials(s, p, m->id, json_is_true(json_object_get(m->json, "settle")));
}

static void on_resize(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	uint32_t rows = number_of(m->json, "rows"), columns = number_of(m->json, "columns");
	const struct session_process *p = session_process_find(n, number_of(m->json, "process"));
	struct zw_error e = {0};
	int error = 0;

	if (p == NULL)
		error = ESRCH;
	else if (rows == 0 || columns == 0 || rows > UINT16_MAX || columns > UINT16_MAX)
		error = EINVAL;
	else
		error = -channel_send_resize(&s->channel, p->id, (uint16_t) rows, (uint16_t) columns, &e);
	session_done(n, m->id, error, NULL, NULL);
}

/* ---- Ports inside. ---- */

static void on_connect(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	uint32_t port = number_of(m->json, "port");
	struct zw_error e = {0};
	int error = 0;

	if (n->paused_at != 0)
		error = EBUSY;
	else if (port == 0 || port > UINT16_MAX)
		error = EINVAL;
	else if (n->connect_count == SESSION_CONNECTS_MAX)
		error = EAGAIN;
	else
		error = -channel_send_connect(&s->channel, m->id | CONNECT_OF_WORKLOAD, (uint16_t) port, &e);
	if (error == 0)
		n->connects[n->connect_count++] = m->id;
	else
		session_done(n, m->id, error, NULL, NULL);
}

void session_connected(struct supervisor *s, struct msg_in *m)
{
	struct session *n = s->work;
	uint32_t id = m->id & ~CONNECT_OF_WORKLOAD;
	struct zw_error e = {0};
	size_t i = 0;
	bool stale;

	while (i < n->connect_count && (n->connects[i] & ~CONNECT_STALE) != id)
		i++;
	if (i == n->connect_count) {
		(void) zw_error(&e, EPROTO, "the agent reports a connection that nobody asked for");
		supervisor_fault(s, &e);
		return;
	}
	stale = (n->connects[i] & CONNECT_STALE) != 0;
	n->connects[i] = n->connects[--n->connect_count];
	if (!stale) /* else the message is closed with what came in it */
		session_done(n, id, m->connected.error, NULL, &m->fd);
}

/* ---- Pausing. ---- */

static void on_pause(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;

	if (n->paused_at != 0) {
		session_done(n, m->id, EALREADY, "it is paused already", NULL);
		return;
	}
	s->frozen_by_cgroup = cgroup_freeze(s->sandbox->cgroup, true) == 0; /* an ending thaws it again */
	n->stopped = !s->frozen_by_cgroup;
	if (n->stopped && !processes_stop(s->sandbox->pid)) {
		processes_continue(s->sandbox->pid);
		n->stopped = false;
		session_done(n, m->id, EAGAIN, "not every process could be stopped", NULL);
		return;
	}
	n->paused_at = now_monotonic();
	/* Nothing can change: nobody needs to look. */
	s->due[DUE_WATCH] = s->due[DUE_DISK] = s->due[DUE_SCRATCH] = ZW_UNLIMITED;
	session_process_schedule(s);
	session_done(n, m->id, 0, NULL, NULL);
}

static void on_resume(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	usec_t stood;

	if (n->paused_at == 0) {
		session_done(n, m->id, EALREADY, "it is not paused", NULL);
		return;
	}
	stood = now_monotonic() - n->paused_at;
	s->stood_still += stood;
	session_process_shift(n, stood);
	n->paused_at = 0;
	signals_thaw(s);
	if (n->stopped)
		processes_continue(s->sandbox->pid);
	n->stopped = false;
	limits_watch(s);
	session_process_schedule(s);
	session_done(n, m->id, 0, NULL, NULL);
}

/* ---- The rest. ---- */

static void on_stats(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	uint64_t processes = supervisor_usage(s), memory = cgroup_memory(s->sandbox->cgroup);
	struct processes_sum sum = {0};

	if (processes == ZW_UNLIMITED || memory == ZW_UNLIMITED)
		processes_measure(s->sandbox->pid, 0, &sum);
	if (processes == ZW_UNLIMITED)
		processes = sum.tasks;
	if (memory == ZW_UNLIMITED)
		memory = sum.resident; /* what is shared counts for each */
	session_line_send(&n->line,
			  json_pack("{ss sI so sI sI so}", "t", "stats", "id", (json_int_t) m->id, "usage",
				    result_usage(s->result), "processes", (json_int_t) processes, "memory_bytes",
				    (json_int_t) memory, "totals", session_totals(s->result)),
			  NULL);
}

/* Only for rules that the policy has: the broker puts it into requests that they cover. */
static void on_secret(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	const char *name = json_string_value(json_object_get(m->json, "name"));
	const json_t *value = json_object_get(m->json, "value");
	int error = ENOENT;

	for (size_t i = 0; name != NULL && i < s->plan->secret_count && error == ENOENT; i++) {
		if (strcmp(s->plan->secrets[i].name, name) != 0)
			continue;
		error = json_is_string(value) || json_is_null(value) ? 0 : EINVAL;
	}
	if (error == 0)
		error = -egress_send(&s->egress,
				     json_pack("{ss ss sO}", "t", "secret", "name", name, "value", (json_t *) (uintptr_t) value),
				     NULL, 0);
	session_done(n, m->id, error, error == ENOENT ? "no rule of the policy uses a secret of this name" : NULL, NULL);
}

/* The broker holds what is left against the rules, which stay as they are: this opens nothing. */
static void on_narrow(struct supervisor *s, const struct message *m)
{
	json_t *entries = json_object_get(m->json, "entries");
	int error = 0;

	if (s->plan->network == NULL || s->plan->isolation == ISOLATION_PROCESS)
		error = ENOTSUP;
	else if (!json_is_array(entries) && !json_is_null(entries))
		error = EINVAL;
	else if (json_dumpb(entries, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) > EGRESS_MESSAGE_MAX - NARROW_HEAD)
		error = EMSGSIZE;
	if (error == 0)
		error = -egress_send(&s->egress, json_pack("{ss sO}", "t", "narrow", "entries", entries), NULL, 0);
	session_done(s->work, m->id, error, error == ENOTSUP ? "the sandbox has no network broker" : NULL, NULL);
}

static void on_end(struct supervisor *s, const struct message *m)
{
	struct session *n = s->work;
	const char *status = json_string_value(json_object_get(m->json, "status"));
	const char *reason = json_string_value(json_object_get(m->json, "reason"));

	if (n->end_status[0] == '\0') {
		(void) snprintf(n->end_status, sizeof n->end_status, "%s", status != NULL ? status : "deleted");
		(void) snprintf(n->end_reason, sizeof n->end_reason, "%s", reason != NULL ? reason : "");
	}
	supervisor_kill(s, KILLED_CANCEL);
}

/* ---- For the next daemon. ---- */

static void on_carry(struct supervisor *s, const struct message *m)
{
	session_done(s->work, m->id, session_carry_begin(s->work, m->json, m->fds, m->nfds), NULL, NULL);
}

static void on_note(struct supervisor *s, const struct message *m)
{
	session_done(s->work, m->id, session_carry_note(s->work, number_of(m->json, "process"), m->json), NULL, NULL);
}

static void on_release(struct supervisor *s, const struct message *m)
{
	session_done(s->work, m->id, session_carry_release(s->work, number_of(m->json, "process"), m->json), NULL, NULL);
}

static void on_forget(struct supervisor *s, const struct message *m)
{
	session_done(s->work, m->id, session_carry_forget(s->work, number_of(m->json, "process")), NULL, NULL);
}

static void on_adopt(struct supervisor *s, const struct message *m)
{
	session_carry_tell(s);
	session_done(s->work, m->id, 0, NULL, NULL);
}

static const struct handler {
	const char *type;
	void (*handle)(struct supervisor *s, const struct message *m);
} handlers[] = {
    {"start", on_start}, {"signal", on_signal},   {"meter", on_meter}, {"resize", on_resize},   {"connect", on_connect},
    {"pause", on_pause}, {"resume", on_resume},   {"stats", on_stats}, {"secret", on_secret},   {"narrow", on_narrow},
    {"end", on_end},     {"carry", on_carry},     {"note", on_note},   {"release", on_release}, {"forget", on_forget},
    {"adopt", on_adopt}, {"denials", on_denials},
};

static const struct handler *handler_of(const json_t *m)
{
	const char *type = json_string_value(json_object_get(m, "t"));

	for (size_t i = 0; type != NULL && i < ARRAY_SIZE(handlers); i++)
		if (strcmp(handlers[i].type, type) == 0)
			return &handlers[i];
	return NULL;
}

void session_line_over(struct supervisor *s, const char *why)
{
	struct session *n = s->work;

	session_line_close(&n->line);
	if (session_carry_wait(s))
		return;
	if (n->end_status[0] == '\0') {
		(void) snprintf(n->end_status, sizeof n->end_status, "error");
		(void) snprintf(n->end_reason, sizeof n->end_reason, "%s", why);
	}
	supervisor_kill(s, KILLED_CANCEL);
}

void session_requests(struct supervisor *s)
{
	struct session *n = s->work;

	session_line_flush(&n->line);
	for (size_t i = 0; i < REQUESTS_AT_ONCE && !s->ended; i++) {
		int fds[SESSION_FDS_MAX];
		struct message m = {.fds = fds};
		const struct handler *h;
		json_t *json = NULL;
		int r = session_line_receive(&n->line, &json, fds, &m.nfds);

		if (r == 0)
			return;
		if (r < 0) {
			session_line_over(s,
					  r == -EPROTO ? "the daemon sent what is no message" : "the daemon has closed its line");
			return;
		}
		m.json = json;
		m.id = number_of(json, "id");
		if (m.id > n->carry.highest && m.id != SESSION_ADOPT_ID)
			n->carry.highest = m.id;
		h = handler_of(json);
		/* Without a number nobody could be answered. */
		if (h != NULL && m.id != 0 && s->channel.fd >= 0)
			h->handle(s, &m);
		else if (m.id != 0)
			session_done(n, m.id, h == NULL ? ENOSYS : ESHUTDOWN, NULL, NULL);
		json_decref(json);
		for (size_t k = 0; k < m.nfds; k++)
			fd_close(&fds[k]);
	}
}
