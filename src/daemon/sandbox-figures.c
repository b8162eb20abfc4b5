/* What the sandboxes use and are denied, for the metrics. Their supervisors know; they are asked when somebody wants to know. */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/sandbox.h"

struct asker {
	struct asker *next;
	void (*call)(void *arg);
	void *arg;
};

/* One round of questions. Who comes while one is under way shares its answers. */
struct sandbox_measure {
	struct asker *askers;
	struct event *patience;
	size_t waiting;
};

/* The last one is for what the supervisor could not keep apart. */
static const char *const kinds[DENIAL_KINDS] = {"syscall", "file", "network", "dns", "http", "process", "other"};

/* ---- Sums. ---- */

/* What a value has grown by; a supervisor that says less than before is not believed. */
static uint64_t growth(uint64_t *known, const json_t *value)
{
	double seconds = json_real_value(value) * (double) USEC_PER_SEC;
	uint64_t now = 0, more;

	if (json_is_integer(value) && json_integer_value(value) > 0)
		now = (uint64_t) json_integer_value(value);
	else if (json_is_real(value) && seconds > 0 && seconds < 9e18)
		now = (uint64_t) seconds;
	more = now > *known ? now - *known : 0;
	*known += more;
	return more;
}

static bool is_of_network(const char *kind)
{
	return strcmp(kind, "network") == 0 || strcmp(kind, "dns") == 0 || strcmp(kind, "http") == 0;
}

static void account_denials(struct sandbox *s, const json_t *denials)
{
	struct metrics *m = s->all->daemon->metrics;

	for (size_t i = 0; i < DENIAL_KINDS; i++) {
		uint64_t more = growth(&s->figures.denials[i], json_object_get(denials, kinds[i]));

		if (more == 0)
			continue;
		metrics_add(m, METRIC_DENIALS, METRIC_LABELS(kinds[i]), more);
		if (is_of_network(kinds[i]))
			metrics_add(m, METRIC_EGRESS_CONNECTIONS, METRIC_LABELS("denied"), more);
	}
}

void sandbox_account(struct sandbox *s, const json_t *m)
{
	struct metrics *metrics = s->all->daemon->metrics;
	const json_t *usage = json_object_get(m, "usage"), *totals = json_object_get(m, "totals");
	json_int_t memory = json_integer_value(json_object_get(m, "memory_bytes"));
	struct sandbox_figures *f = &s->figures;
	uint64_t connections = growth(&f->connections, json_object_get(totals, "connections"));

	f->memory = memory > 0 ? (uint64_t) memory : 0;
	metrics_add(metrics, METRIC_SANDBOXES_CPU_SECONDS, NULL, growth(&f->cpu_usec, json_object_get(usage, "cpu_seconds")));
	metrics_add(metrics, METRIC_EGRESS_BYTES, METRIC_LABELS("sent"),
		    growth(&f->sent, json_object_get(usage, "net_sent_bytes")));
	metrics_add(metrics, METRIC_EGRESS_BYTES, METRIC_LABELS("received"),
		    growth(&f->received, json_object_get(usage, "net_received_bytes")));
	if (connections > 0)
		metrics_add(metrics, METRIC_EGRESS_CONNECTIONS, METRIC_LABELS("allowed"), connections);
	account_denials(s, json_object_get(totals, "denials"));
}

uint64_t sandboxes_memory(const struct sandboxes *all)
{
	uint64_t sum = 0;

	for (const struct sandbox *s = all->newest; s != NULL; s = s->older)
		if (s->state == SANDBOX_RUNNING || s->state == SANDBOX_PAUSED)
			sum += s->figures.memory;
	return sum;
}

/* ---- Questions. ---- */

static void tell(struct sandbox_measure *m)
{
	struct asker *askers = m->askers;

	m->askers = NULL;
	(void) event_del(m->patience);
	while (askers != NULL) {
		struct asker *a = askers;

		askers = a->next;
		a->call(a->arg);
		free(a);
	}
}

static void on_patience(evutil_socket_t fd, short what, void *arg)
{
	(void) fd;
	(void) what;
	tell(arg);
}

void sandbox_measure_over(struct sandbox *s)
{
	struct sandbox_measure *m = s->all->measure;

	if (!s->figures.asked)
		return;
	s->figures.asked = false;
	if (--m->waiting == 0)
		tell(m);
}

static void answered(void *arg, const json_t *m, int *fd)
{
	struct sandbox *s = arg;

	(void) fd;
	if (m != NULL && json_object_get(m, "usage") != NULL)
		sandbox_account(s, m);
	sandbox_measure_over(s);
}

/* One that has not answered the round before is not asked again. */
static void ask(struct sandbox_measure *m, struct sandbox *s)
{
	if (s->figures.asked || (s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSED) ||
	    session_ask(s->session, json_pack("{ss}", "t", "stats"), NULL, 0, answered, s, NULL) < 0)
		return;
	s->figures.asked = true;
	m->waiting++;
}

static struct sandbox_measure *measure_of(struct sandboxes *all)
{
	struct sandbox_measure *m = all->measure;

	if (m != NULL)
		return m;
	m = xcalloc(1, sizeof *m);
	m->patience = event_new(all->daemon->base, -1, 0, on_patience, m);
	if (m->patience == NULL) {
		free(m);
		return NULL;
	}
	all->measure = m;
	return m;
}

void sandboxes_measure(struct sandboxes *all, void (*call)(void *arg), void *arg)
{
	static const struct timeval patience = {.tv_sec = 1};
	struct sandbox_measure *m = measure_of(all);
	bool first = m != NULL && m->askers == NULL;
	struct asker *a;

	for (struct sandbox *s = all->newest; first && s != NULL; s = s->older)
		ask(m, s);
	if (m == NULL || m->waiting == 0 || (first && event_add(m->patience, &patience) < 0)) {
		call(arg); /* with what is known */
		return;
	}
	a = xcalloc(1, sizeof *a);
	*a = (struct asker){.next = m->askers, .call = call, .arg = arg};
	m->askers = a;
}

struct sandbox_measure *sandbox_measure_free(struct sandbox_measure *m)
{
	if (m == NULL)
		return NULL;
	while (m->askers != NULL) {
		struct asker *a = m->askers;

		m->askers = a->next;
		free(a);
	}
	event_free(m->patience);
	free(m);
	return NULL;
}
