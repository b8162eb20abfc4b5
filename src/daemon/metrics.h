/* Numbers about the daemon in Prometheus' text format 0.0.4. The families are rows of one table; a sample is chosen by the texts
 * of its labels, in the order of the table. Label values are words of ours (a route's pattern, a status), never an id, a key or a
 * path: what a peer chose must be mapped to such a word first. A family has at most METRIC_SAMPLES_MAX samples; beyond, they are
 * added up under the label value "other". */
#pragma once

#include <stdint.h>

#include "base/clock.h"

struct evbuffer;
struct metrics;

enum metric {
	METRIC_BUILD_INFO,               /* gauge {version} */
	METRIC_SANDBOXES_RUNNING,        /* gauge */
	METRIC_SANDBOXES_PAUSED,         /* gauge */
	METRIC_SANDBOXES_STARTED,        /* {isolation} */
	METRIC_SANDBOXES_ENDED,          /* {status} */
	METRIC_RUNS,                     /* {status} */
	METRIC_SANDBOX_START_SECONDS,    /* histogram */
	METRIC_HTTP_REQUESTS,            /* {route,method,code} */
	METRIC_HTTP_REQUEST_SECONDS,     /* histogram {route,method} */
	METRIC_HTTP_CONNECTIONS,         /* gauge */
	METRIC_HTTP_CONNECTIONS_REFUSED, /* {reason} */
	METRIC_PROCESSES_STARTED,        /* counter */
	METRIC_EXECUTIONS,               /* {language,status} */
	METRIC_DENIALS,                  /* {kind} */
	METRIC_EGRESS_BYTES,             /* {direction} */
	METRIC_EGRESS_CONNECTIONS,       /* {verdict} */
	METRIC_SANDBOXES_MEMORY_BYTES,   /* gauge */
	METRIC_SANDBOXES_CPU_SECONDS,    /* counter in microseconds, written as seconds */
	METRIC_MAX
};

enum { METRIC_LABELS_MAX = 3, METRIC_SAMPLES_MAX = 1000 };

struct metrics *metrics_new(void);
struct metrics *metrics_free(struct metrics *m);

/* `labels` has as many texts as the family has labels; NULL when it has none. A NULL `m` counts nothing. */
void metrics_add(struct metrics *m, enum metric metric, const char *const *labels, uint64_t n);
void metrics_set(struct metrics *m, enum metric metric, const char *const *labels, uint64_t value);
void metrics_observe(struct metrics *m, enum metric metric, const char *const *labels, usec_t t);

#define METRIC_LABELS(...) ((const char *const[]){__VA_ARGS__})

/* Before each scrape, for gauges that are cheaper to ask than to keep. At most 8. */
void metrics_on_scrape(struct metrics *m, void (*ask)(void *arg), void *arg);

/* Everything, with process_* of this process. 0 or -ENOMEM. */
int metrics_write(struct metrics *m, struct evbuffer *out);
