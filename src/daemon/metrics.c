#include "daemon/metrics.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

enum kind { COUNTER, COUNTER_SECONDS, GAUGE, HISTOGRAM };

struct family {
	const char *name, *help;
	enum kind kind;
	const char *labels[METRIC_LABELS_MAX];
};

static const struct family families[] = {
    [METRIC_BUILD_INFO] = {"zwinger_build_info", "1, labelled with the version", GAUGE, {"version"}},
    [METRIC_SANDBOXES_RUNNING] = {"zwinger_sandboxes_running", "sandboxes that run", GAUGE, {0}},
    [METRIC_SANDBOXES_PAUSED] = {"zwinger_sandboxes_paused", "sandboxes that are paused", GAUGE, {0}},
    [METRIC_SANDBOXES_STARTED] = {"zwinger_sandboxes_started_total", "sandboxes started", COUNTER, {"isolation"}},
    [METRIC_SANDBOXES_ENDED] = {"zwinger_sandboxes_ended_total", "sandboxes ended", COUNTER, {"status"}},
    [METRIC_RUNS] = {"zwinger_runs_total", "commands run to their end", COUNTER, {"status"}},
    [METRIC_SANDBOX_START_SECONDS] = {"zwinger_sandbox_start_seconds", "time until a sandbox was ready", HISTOGRAM, {0}},
    [METRIC_HTTP_REQUESTS] = {"zwinger_http_requests_total", "HTTP requests answered", COUNTER, {"route", "method", "code"}},
    [METRIC_HTTP_REQUEST_SECONDS] = {"zwinger_http_request_seconds",
				     "time from the head of a request to the end of its answer",
				     HISTOGRAM,
				     {"route", "method"}},
    [METRIC_HTTP_CONNECTIONS] = {"zwinger_http_connections", "open connections of clients", GAUGE, {0}},
    [METRIC_HTTP_CONNECTIONS_REFUSED] = {"zwinger_http_connections_refused_total",
					 "connections that were turned away",
					 COUNTER,
					 {"reason"}},
    [METRIC_PROCESSES_STARTED] = {"zwinger_processes_started_total", "processes started in sandboxes", COUNTER, {0}},
    [METRIC_EXECUTIONS] = {"zwinger_executions_total", "executions of code in contexts", COUNTER, {"language", "status"}},
    [METRIC_DENIALS] = {"zwinger_denials_total", "attempts on a wall", COUNTER, {"kind"}},
    [METRIC_EGRESS_BYTES] = {"zwinger_egress_bytes_total", "bytes through the network broker", COUNTER, {"direction"}},
    [METRIC_EGRESS_CONNECTIONS] = {"zwinger_egress_connections_total", "connections asked of the broker", COUNTER, {"verdict"}},
    [METRIC_SANDBOXES_MEMORY_BYTES] = {"zwinger_sandboxes_memory_bytes", "memory of all sandboxes", GAUGE, {0}},
    [METRIC_SANDBOXES_CPU_SECONDS] = {"zwinger_sandboxes_cpu_seconds_total",
				      "processor time of all sandboxes",
				      COUNTER_SECONDS,
				      {0}},
};
static_assert(ARRAY_SIZE(families) == METRIC_MAX, "a row for each metric");

/* Upper bounds in microseconds: from what a look-up takes to what a long run takes. */
static const usec_t bounds[] = {500,    1000,   2000,    4000,    6000,    10000,    25000,    50000,
				100000, 250000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000};
enum { BOUNDS = sizeof bounds / sizeof bounds[0], SCRAPERS_MAX = 8, LABEL_MAX = 64 };

struct histogram {
	uint64_t counts[BOUNDS + 1];
	usec_t sum;
};

struct sample {
	char labels[METRIC_LABELS_MAX][LABEL_MAX];
	uint64_t value; /* of a histogram: the number of observations */
	struct histogram *histogram;
};

struct samples {
	struct sample **items;
	size_t count;
};

struct metrics {
	struct samples families[METRIC_MAX];
	struct {
		void (*ask)(void *arg);
		void *arg;
	} scrapers[SCRAPERS_MAX];
	size_t scraper_count;
	usec_t started; /* real time */
};

struct metrics *metrics_new(void)
{
	struct metrics *m = xcalloc(1, sizeof *m);

	m->started = now_realtime();
	return m;
}

struct metrics *metrics_free(struct metrics *m)
{
	if (m == NULL)
		return NULL;
	for (size_t f = 0; f < METRIC_MAX; f++) {
		for (size_t i = 0; i < m->families[f].count; i++) {
			free(m->families[f].items[i]->histogram);
			free(m->families[f].items[i]);
		}
		free(m->families[f].items);
	}
	free(m);
	return NULL;
}

static size_t label_count(const struct family *f)
{
	size_t n = 0;

	while (n < METRIC_LABELS_MAX && f->labels[n] != NULL)
		n++;
	return n;
}

static bool same_labels(const struct sample *s, const char *const *labels, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strncmp(s->labels[i], labels[i], LABEL_MAX - 1) != 0)
			return false;
	return true;
}

static struct sample *new_sample(struct samples *all, const struct family *f, const char *const *labels, size_t count)
{
	struct sample *s = xcalloc(1, sizeof *s);

	for (size_t i = 0; i < count; i++)
		(void) snprintf(s->labels[i], LABEL_MAX, "%s", labels[i]);
	if (f->kind == HISTOGRAM)
		s->histogram = xcalloc(1, sizeof *s->histogram);
	if ((all->count & (all->count - 1)) == 0)
		all->items = xrealloc(all->items, all->count == 0 ? 1 : all->count * 2, sizeof(struct sample *));
	all->items[all->count++] = s;
	return s;
}

static struct sample *find_sample(struct metrics *m, enum metric metric, const char *const *labels)
{
	static const char *const other[METRIC_LABELS_MAX] = {"other", "other", "other"};
	struct samples *all = &m->families[metric];
	size_t count = label_count(&families[metric]);

	for (size_t i = 0; i < all->count; i++) {
		if (!same_labels(all->items[i], labels, count))
			continue;
		/* What is counted often is found soon. */
		if (i > 0) {
			struct sample *s = all->items[i];

			all->items[i] = all->items[i - 1];
			all->items[i - 1] = s;
			return s;
		}
		return all->items[i];
	}
	if (all->count >= METRIC_SAMPLES_MAX && labels != other)
		return all->count > METRIC_SAMPLES_MAX ? find_sample(m, metric, other)
						       : new_sample(all, &families[metric], other, count);
	return new_sample(all, &families[metric], labels, count);
}

void metrics_add(struct metrics *m, enum metric metric, const char *const *labels, uint64_t n)
{
	if (m != NULL)
		find_sample(m, metric, labels)->value += n;
}

void metrics_set(struct metrics *m, enum metric metric, const char *const *labels, uint64_t value)
{
	if (m != NULL)
		find_sample(m, metric, labels)->value = value;
}

void metrics_observe(struct metrics *m, enum metric metric, const char *const *labels, usec_t t)
{
	struct sample *s;
	size_t i = 0;

	if (m == NULL)
		return;
	s = find_sample(m, metric, labels);
	if (s->histogram == NULL)
		return;
	while (i < BOUNDS && t > bounds[i])
		i++;
	s->histogram->counts[i]++;
	s->histogram->sum += t;
	s->value++;
}

void metrics_on_scrape(struct metrics *m, void (*ask)(void *arg), void *arg)
{
	if (m->scraper_count == SCRAPERS_MAX)
		return;
	m->scrapers[m->scraper_count].ask = ask;
	m->scrapers[m->scraper_count++].arg = arg;
}

/* ---- Writing. ---- */

static void put_label(struct evbuffer *out, const char *name, const char *value, bool first)
{
	(void) evbuffer_add_printf(out, "%s%s=\"", first ? "" : ",", name);
	for (const char *p = value; *p != '\0'; p++) {
		if (*p == '\\' || *p == '"')
			(void) evbuffer_add(out, "\\", 1);
		(void) evbuffer_add(out, *p == '\n' ? "\\n" : p, *p == '\n' ? 2 : 1);
	}
	(void) evbuffer_add(out, "\"", 1);
}

static void put_labels(struct evbuffer *out, const struct family *f, const struct sample *s, const char *le)
{
	size_t count = label_count(f);

	if (count == 0 && le == NULL)
		return;
	(void) evbuffer_add(out, "{", 1);
	for (size_t i = 0; i < count; i++)
		put_label(out, f->labels[i], s->labels[i], i == 0);
	if (le != NULL)
		put_label(out, "le", le, count == 0);
	(void) evbuffer_add(out, "}", 1);
}

static void put_histogram(struct evbuffer *out, const struct family *f, const struct sample *s)
{
	uint64_t sum = 0;
	char le[32];

	for (size_t i = 0; i <= BOUNDS; i++) {
		sum += s->histogram->counts[i];
		if (i < BOUNDS)
			(void) snprintf(le, sizeof le, "%g", (double) bounds[i] / (double) USEC_PER_SEC);
		(void) evbuffer_add_printf(out, "%s_bucket", f->name);
		put_labels(out, f, s, i < BOUNDS ? le : "+Inf");
		(void) evbuffer_add_printf(out, " %llu\n", (unsigned long long) sum);
	}
	(void) evbuffer_add_printf(out, "%s_sum", f->name);
	put_labels(out, f, s, NULL);
	(void) evbuffer_add_printf(out, " %.6f\n%s_count", (double) s->histogram->sum / (double) USEC_PER_SEC, f->name);
	put_labels(out, f, s, NULL);
	(void) evbuffer_add_printf(out, " %llu\n", (unsigned long long) s->value);
}

static void put_family(struct evbuffer *out, const struct family *f, const struct samples *all)
{
	static const char *const types[] = {"counter", "counter", "gauge", "histogram"};
	static const struct sample nothing = {0};

	(void) evbuffer_add_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, types[f->kind]);
	/* Without labels there is a value from the start, so that a rate over it has a beginning. */
	if (all->count == 0 && label_count(f) == 0 && f->kind != HISTOGRAM)
		(void) evbuffer_add_printf(out, "%s %llu\n", f->name, (unsigned long long) nothing.value);
	for (size_t i = 0; i < all->count; i++) {
		const struct sample *s = all->items[i];

		if (f->kind == HISTOGRAM) {
			put_histogram(out, f, s);
			continue;
		}
		(void) evbuffer_add_printf(out, "%s", f->name);
		put_labels(out, f, s, NULL);
		if (f->kind == COUNTER_SECONDS)
			(void) evbuffer_add_printf(out, " %.6f\n", (double) s->value / (double) USEC_PER_SEC);
		else
			(void) evbuffer_add_printf(out, " %llu\n", (unsigned long long) s->value);
	}
}

static uint64_t count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (d == NULL)
		return 0;
	while (readdir(d) != NULL)
		n++;
	(void) closedir(d);
	return n > 3 ? n - 3 : 0; /* ".", "..", and the folder itself */
}

/* /proc/self/statm: size, resident..., in pages. */
static void memory_pages(uint64_t *ret_virtual, uint64_t *ret_resident)
{
	char text[128], *end;

	*ret_virtual = *ret_resident = 0;
	if (fd_read_file_at(AT_FDCWD, "/proc/self/statm", text, sizeof text) <= 0)
		return;
	*ret_virtual = strtoull(text, &end, 10);
	*ret_resident = strtoull(end, NULL, 10);
}

static void put_process(struct evbuffer *out, const struct metrics *m)
{
	uint64_t page = (uint64_t) sysconf(_SC_PAGESIZE), virtual, resident;
	struct rlimit files = {0};
	struct rusage usage = {0};
	double cpu;

	(void) getrusage(RUSAGE_SELF, &usage);
	(void) getrlimit(RLIMIT_NOFILE, &files);
	memory_pages(&virtual, &resident);
	cpu = (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	      (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	const struct {
		const char *name, *help, *type;
		double value;
	} rows[] = {
	    {"process_cpu_seconds_total", "processor time of the daemon", "counter", cpu},
	    {"process_open_fds", "open descriptors of the daemon", "gauge", (double) count_fds()},
	    {"process_max_fds", "how many it may have", "gauge", (double) files.rlim_cur},
	    {"process_virtual_memory_bytes", "address space of the daemon", "gauge", (double) (virtual * page)},
	    {"process_resident_memory_bytes", "memory of the daemon", "gauge", (double) (resident * page)},
	    {"process_start_time_seconds", "when it was started", "gauge", (double) m->started / (double) USEC_PER_SEC},
	};
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		(void) evbuffer_add_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", rows[i].name, rows[i].help,
					   rows[i].name, rows[i].type, rows[i].name, rows[i].value);
}

int metrics_write(struct metrics *m, struct evbuffer *out)
{
	size_t before = evbuffer_get_length(out);

	for (size_t i = 0; i < m->scraper_count; i++)
		m->scrapers[i].ask(m->scrapers[i].arg);
	for (size_t f = 0; f < METRIC_MAX; f++)
		put_family(out, &families[f], &m->families[f]);
	put_process(out, m);
	return evbuffer_get_length(out) > before ? 0 : -ENOMEM;
}
