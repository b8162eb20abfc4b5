/* What is asked of the daemon itself: whether it lives, whether it takes work, its numbers, what it can do. */
#include <event2/buffer.h>

#include "base/mem.h"
#include "daemon/api.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/sandbox-levels.h"
#include "daemon/sandbox.h"

static void get_health(struct request *r)
{
	respond_json(r, 200, json_pack("{s:s}", "status", "ok"));
}

static void get_ready(struct request *r)
{
	if (!r->daemon->draining)
		respond_json(r, 200, json_pack("{s:s}", "status", "ready"));
	else
		refuse(r, PROBLEM_UNAVAILABLE, "try again when it is up", "the daemon is about to end");
}

static void measured(void *arg)
{
	struct request *r = arg;
	struct evbuffer *b = evbuffer_new();

	metrics_set(r->daemon->metrics, METRIC_HTTP_CONNECTIONS, NULL, r->daemon->http.count);
	if (b == NULL || metrics_write(r->daemon->metrics, b) < 0)
		refuse(r, PROBLEM_UNAVAILABLE, "try again", "there is not enough memory for the answer");
	else
		respond_buffer(r, 200, "text/plain; version=0.0.4; charset=utf-8", b);
	if (b != NULL)
		evbuffer_free(b);
}

/* The figures of sandboxes are with their supervisors. */
static void get_metrics(struct request *r)
{
	sandboxes_measure(r->daemon->sandboxes, measured, r);
}

static void levels_tried(void *arg, const json_t *levels)
{
	struct request *r = arg;
	json_t *info = json_pack("{s:s, s:O, s:n, s:i}", "version", ZWINGER_VERSION, "levels", (json_t *) (uintptr_t) levels,
				 "ceiling", "running", 0);

	for (size_t i = 0; info != NULL && i < r->daemon->info_count; i++)
		r->daemon->info[i].add(info, r->daemon->info[i].arg);
	respond_json(r, 200, info);
}

static void get_info(struct request *r)
{
	sandbox_levels(r->daemon->sandboxes, levels_tried, r);
}

static const struct route routes[] = {
    {"GET", "/health", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN | ROUTE_LASTING, NULL, get_health, NULL, 0},
    {"GET", "/ready", SCOPE_NONE, TAKES_NOTHING, ROUTE_OPEN | ROUTE_LASTING, NULL, get_ready, NULL, 0},
    {"GET", "/metrics", SCOPE_ADMIN, TAKES_NOTHING, 0, NULL, get_metrics, NULL, 0},
    {"GET", "/v1/info", SCOPE_USE, TAKES_NOTHING, 0, NULL, get_info, NULL, 0},
};

void api_health_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}

void daemon_on_info(struct daemon *d, void (*add)(json_t *info, void *arg), void *arg)
{
	if (d->info_count == DAEMON_INFO_MAX)
		return; /* as many as there are parts, with room to spare */
	d->info[d->info_count].add = add;
	d->info[d->info_count++].arg = arg;
}
