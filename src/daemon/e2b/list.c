/* GET /v2/sandboxes and GET /sandboxes/{id}. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/e2b/e2b.h"
#include "daemon/sandbox.h"
#include "policy/text.h"

enum { PAGE_MAX = 100, DAYS_IN_MONTH_MAX = 31 };

/* ---- One sandbox. ---- */

static json_t *mebibytes(const struct sandbox *s, const char *limit)
{
	const json_t *bytes = json_object_get(s->limits, limit);

	return json_is_integer(bytes) ? json_integer(json_integer_value(bytes) / (1024 * 1024)) : json_null();
}

static json_t *cpu_count(const struct sandbox *s)
{
	double cpus = json_number_value(json_object_get(s->limits, "cpus"));

	return json_integer(cpus > 0 ? (json_int_t) (cpus + 0.999) : (json_int_t) sysconf(_SC_NPROCESSORS_ONLN));
}

static json_t *element(const struct sandbox *s)
{
	const char *template = s->policy.template != NULL ? s->policy.template : "";
	bool paused = s->state == SANDBOX_PAUSED;

	return json_pack("{ss ss ss ss so so ss so so so ss sO s[]}", "sandboxID", s->id, "templateID", template, "alias",
			 template, "clientID", "local", "startedAt", json_time(s->created), "endAt",
			 json_time(paused ? s->paused_at : s->expires), "state", paused ? "paused" : "running", "cpuCount",
			 cpu_count(s), "memoryMB", mebibytes(s, "memory_bytes"), "diskSizeMB", mebibytes(s, "disk_bytes"),
			 "envdVersion", E2B_ENVD_VERSION, "metadata", s->metadata, "volumeMounts");
}

static json_t *or_null(json_t *value)
{
	return value != NULL ? json_incref(value) : json_null();
}

static void get_sandbox(struct request *r)
{
	const struct sandbox *s = e2b_sandbox_of(r);
	json_t *o, *network;
	char token[E2B_TOKEN_SIZE];

	if (s == NULL)
		return;
	o = element(s);
	network = json_object_get(s->extras, "network");
	e2b_access_token(r->daemon, s->id, token);
	(void) json_object_set_new(o, "envdAccessToken", json_string(token));
	(void) json_object_set_new(o, "domain",
				   r->daemon->options->domain != NULL ? json_string(r->daemon->options->domain) : json_null());
	(void) json_object_set_new(o, "allowInternetAccess", or_null(json_object_get(s->extras, "allow_internet_access")));
	if (network != NULL)
		(void) json_object_set(o, "network", network);
	(void) json_object_set_new(
	    o, "lifecycle",
	    json_pack("{ss sb}", "onTimeout", s->pause_on_timeout ? "pause" : "kill", "autoResume", e2b_wakes(s)));
	respond_json(r, 200, o);
}

/* ---- Filters. ---- */

struct filter {
	unsigned states; /* bits */
	bool ascending;
	const char *template;
	usec_t started_after;
	json_t *metadata;
	uint64_t limit, token; /* token: number of the last one of the page before; 0: none */
};

static bool digits(const char **at, size_t count, unsigned most, unsigned *ret)
{
	unsigned value = 0;

	for (size_t i = 0; i < count; i++, (*at)++) {
		if (**at < '0' || **at > '9')
			return false;
		value = value * 10 + (unsigned) (**at - '0');
	}
	*ret = value;
	return value <= most;
}

static bool letter(const char **at, const char *set)
{
	if (**at == '\0' || strchr(set, **at) == NULL)
		return false;
	(*at)++;
	return true;
}

/* RFC 3339. */
static bool read_time(const char *text, usec_t *ret)
{
	unsigned year, month, day, hour, minute, second, ahead_hours = 0, ahead_minutes = 0, scale = 100000;
	usec_t fraction = 0;
	bool behind = false;
	struct tm tm;
	time_t t;

	if (!digits(&text, 4, 9999, &year) || !letter(&text, "-") || !digits(&text, 2, 12, &month) || !letter(&text, "-") ||
	    !digits(&text, 2, DAYS_IN_MONTH_MAX, &day) || !letter(&text, "Tt ") || !digits(&text, 2, 23, &hour) ||
	    !letter(&text, ":") || !digits(&text, 2, 59, &minute) || !letter(&text, ":") || !digits(&text, 2, 60, &second))
		return false;
	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9'; text++, scale /= 10)
			fraction += (usec_t) (*text - '0') * scale;
	if (*text == '+' || *text == '-' || *text == ' ') { /* '+' may have been decoded */
		behind = *text++ == '-';
		if (!digits(&text, 2, 23, &ahead_hours) || !letter(&text, ":") || !digits(&text, 2, 59, &ahead_minutes))
			return false;
	} else if (!letter(&text, "Zz")) {
		return false;
	}
	if (*text != '\0' || month == 0 || day == 0)
		return false;
	tm = (struct tm){.tm_year = (int) year - 1900,
			 .tm_mon = (int) month - 1,
			 .tm_mday = (int) day,
			 .tm_hour = (int) hour,
			 .tm_min = (int) minute,
			 .tm_sec = (int) second};
	t = timegm(&tm) + (behind ? 1 : -1) * (time_t) (ahead_hours * 3600 + ahead_minutes * 60);
	*ret = t > 0 ? (usec_t) t * USEC_PER_SEC + fraction : 0;
	return true;
}

/* NULL, or what is wrong. */
static const char *read_filter(const struct request *r, struct filter *f)
{
	const char *states = request_query(r, "state"), *limit = request_query(r, "limit"), *order = request_query(r, "order");
	const char *token = request_query(r, "nextToken"), *after = request_query(r, "startedAfter");
	const char *metadata = request_query(r, "metadata");

	*f = (struct filter){.limit = PAGE_MAX, .template = request_query(r, "template")};
	if (!sandbox_states_read(states != NULL && states[0] != '\0' ? states : "running,paused",
				 1U << SANDBOX_RUNNING | 1U << SANDBOX_PAUSED, &f->states))
		return "state: expected running and paused, separated by commas";
	if (limit != NULL && (parse_whole(limit, &f->limit) < 0 || f->limit < 1 || f->limit > PAGE_MAX))
		return "limit: expected 1 to 100";
	if (token != NULL && token[0] != '\0' && (parse_whole(token, &f->token) < 0 || f->token == 0))
		return "nextToken: expected what x-next-token said";
	if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
		return "order: expected asc or desc";
	f->ascending = order != NULL && strcmp(order, "asc") == 0;
	if (after != NULL && !read_time(after, &f->started_after))
		return "startedAfter: expected a time such as 2026-01-31T12:00:00Z";
	if (metadata != NULL) {
		f->metadata = e2b_metadata_filter(metadata);
		if (f->metadata == NULL)
			return "metadata: expected key=value pairs, encoded";
	}
	return NULL;
}

static bool fits(const struct filter *f, const struct sandbox *s)
{
	const char *key;
	json_t *value;

	if (s->hidden || (f->states & 1U << s->state) == 0)
		return false;
	if (f->template != NULL && (s->policy.template == NULL || strcmp(s->policy.template, f->template) != 0))
		return false;
	if (s->created / USEC_PER_MSEC < f->started_after / USEC_PER_MSEC)
		return false;
	json_object_foreach(f->metadata, key, value) if (!json_equal(json_object_get(s->metadata, key), value)) return false;
	return true;
}

static bool before_page(const struct filter *f, const struct sandbox *s)
{
	return f->token != 0 && (f->ascending ? s->number <= f->token : s->number >= f->token);
}

/* Numbers are in the order of creation, so that pages are stable. */
static void list(struct request *r, const struct filter *f)
{
	const struct sandboxes *all = r->daemon->sandboxes;
	json_t *array = json_array();
	size_t running = 0;
	uint64_t last = 0;

	for (const struct sandbox *s = f->ascending ? all->oldest : all->newest; s != NULL;
	     s = f->ascending ? s->newer : s->older) {
		if (!fits(f, s))
			continue;
		running += s->state == SANDBOX_RUNNING;
		if (before_page(f, s) || json_array_size(array) > f->limit)
			continue;
		if (json_array_size(array) == f->limit) {
			if (last != 0)
				respond_header(r, "x-next-token", "%llu", (unsigned long long) last);
			last = 0; /* once */
			continue;
		}
		last = s->number;
		(void) json_array_append_new(array, element(s));
	}
	respond_header(r, "x-total-running", "%zu", running);
	respond_json(r, 200, array);
}

static void list_sandboxes(struct request *r)
{
	struct filter f;
	const char *wrong = read_filter(r, &f);

	if (wrong != NULL)
		e2b_refuse(r, 400, "%s", wrong);
	else
		list(r, &f);
	json_decref(f.metadata);
}

/* ---- Numbers. ---- */

static json_t *or_zero(const json_t *usage, const char *name)
{
	json_t *value = json_object_get(usage, name);

	return value != NULL ? json_incref(value) : json_null();
}

static bool within(const struct request *r, usec_t now)
{
	const char *start = request_query(r, "start"), *end = request_query(r, "end");
	uint64_t seconds;

	if (start != NULL && (parse_whole(start, &seconds) < 0 || now / USEC_PER_SEC < seconds))
		return false;
	return end == NULL || (parse_whole(end, &seconds) == 0 && now / USEC_PER_SEC <= seconds);
}

static void told_metrics(void *arg, const json_t *m, int *fd)
{
	struct request *r = arg;
	const struct sandbox *s = e2b_find(r);
	const json_t *usage = json_object_get(m, "usage");
	double wall = json_number_value(json_object_get(usage, "wall_seconds")), cpu;
	usec_t now = now_realtime();
	json_t *array;

	(void) fd;
	if (usage == NULL || s == NULL || s->limits == NULL) {
		e2b_refuse(r, 404, "there is no sandbox %.64s", r->params[0]);
		return;
	}
	array = json_array();
	cpu = json_number_value(json_object_get(usage, "cpu_seconds"));
	if (within(r, now)) {
		json_t *cpus = cpu_count(s);
		double share = wall > 0 ? 100 * cpu / wall / (double) json_integer_value(cpus) : 0;

		(void) json_array_append_new(array, json_pack("{so sI so sf so so sn so so}", "timestamp", json_time(now),
							      "timestampUnix", (json_int_t) (now / USEC_PER_SEC), "cpuCount",
							      cpus, "cpuUsedPct", share, "memTotal",
							      or_null(json_object_get(s->limits, "memory_bytes")), "memUsed",
							      or_zero(usage, "memory_peak_bytes"), "memCache", "diskTotal",
							      or_null(json_object_get(s->limits, "disk_bytes")), "diskUsed",
							      or_zero(usage, "scratch_peak_bytes")));
	}
	respond_json(r, 200, array);
}

static void get_metrics(struct request *r)
{
	const struct sandbox *s = e2b_sandbox_of(r);

	if (s != NULL && session_ask(s->session, json_pack("{ss}", "t", "stats"), NULL, 0, told_metrics, r, NULL) < 0)
		e2b_refuse(r, 503, "the sandbox cannot be asked now; try again");
}

static const struct route routes[] = {
    {"GET", "/v2/sandboxes", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, list_sandboxes, e2b_write_problem, 0},
    {"GET", "/sandboxes", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, list_sandboxes, e2b_write_problem, 0},
    {"GET", "/sandboxes/{id}", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, get_sandbox, e2b_write_problem, 0},
    {"GET", "/sandboxes/{id}/metrics", SCOPE_CREATE, TAKES_NOTHING, 0, NULL, get_metrics, e2b_write_problem, 0},
};

void e2b_list_add(struct daemon *d)
{
	router_add(d->router, routes, ARRAY_SIZE(routes));
}
