#include "sandbox/connections.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { TEXT_MAX = 1024, REQUESTS_MAX = 100 };

/* ---- Taking over what makes sense of a message. ---- */

static void take_text(json_t *to, const json_t *from, const char *key)
{
	const char *text = json_string_value(json_object_get(from, key));

	if (text != NULL && strlen(text) <= TEXT_MAX)
		(void) json_object_set_new(to, key, json_string(text));
}

static uint64_t count_of(const json_t *from, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(from, key));

	return value > 0 ? (uint64_t) value : 0;
}

static void take_count(json_t *to, const json_t *from, const char *key)
{
	(void) json_object_set_new(to, key, json_integer((json_int_t) count_of(from, key)));
}

static json_t *take_requests(const json_t *from)
{
	json_t *list = json_array();

	for (size_t i = 0; i < json_array_size(from) && i < REQUESTS_MAX; i++) {
		const json_t *one = json_array_get(from, i);
		json_t *entry = json_object();

		take_text(entry, one, "method");
		take_text(entry, one, "path");
		if (count_of(one, "status") != 0)
			take_count(entry, one, "status");
		else
			(void) json_object_set_new(entry, "status", json_null());
		(void) json_array_append_new(list, entry);
	}
	return list;
}

static json_t *make_entry(const json_t *report)
{
	json_t *entry = json_object();

	take_text(entry, report, "host");
	take_count(entry, report, "port");
	take_text(entry, report, "protocol");
	take_text(entry, report, "address");
	take_count(entry, report, "sent");
	take_count(entry, report, "received");
	(void) json_object_set_new(entry, "seconds", json_real((double) count_of(report, "usec") / (double) USEC_PER_SEC));
	take_text(entry, report, "rule");
	take_text(entry, report, "error");
	if (json_is_true(json_object_get(report, "inbound")))
		(void) json_object_set_new(entry, "inbound", json_true());
	if (json_is_array(json_object_get(report, "requests"))) {
		(void) json_object_set_new(entry, "requests", take_requests(json_object_get(report, "requests")));
		take_count(entry, report, "request_count");
	}
	if (count_of(report, "count") > 1)
		take_count(entry, report, "count");
	return entry;
}

/* ---- Sums. ---- */

static struct connection_sum *find_sum(struct connections *c, const char *host, unsigned port, const char *protocol)
{
	for (size_t i = 0; i < c->sum_count; i++) {
		struct connection_sum *s = &c->sums[i];

		if (s->port == port && strcmp(s->host, host) == 0 && strcmp(s->protocol, protocol) == 0)
			return s;
	}
	if (c->sum_count == CONNECTION_SUMS_MAX)
		return NULL;
	if (c->sums == NULL)
		c->sums = xcalloc(CONNECTION_SUMS_MAX, sizeof *c->sums);
	c->sums[c->sum_count] = (struct connection_sum){.host = xstrdup(host), .port = port, .protocol = xstrdup(protocol)};
	return &c->sums[c->sum_count++];
}

static void add_sum(struct connections *c, const json_t *entry)
{
	const char *protocol = json_string_value(json_object_get(entry, "protocol"));
	struct connection_sum *s = find_sum(c, json_string_value(json_object_get(entry, "host")),
					    (unsigned) count_of(entry, "port"), protocol != NULL ? protocol : "tcp");
	uint64_t count = count_of(entry, "count") > 1 ? count_of(entry, "count") : 1;

	if (s == NULL) {
		c->more += count;
		return;
	}
	s->count += count;
	s->sent += count_of(entry, "sent");
	s->received += count_of(entry, "received");
	s->requests += count_of(entry, "request_count");
	s->usec += (uint64_t) (json_real_value(json_object_get(entry, "seconds")) * (double) USEC_PER_SEC);
}

json_t *connections_add(struct connections *c, const json_t *report)
{
	json_t *entry = make_entry(report);

	if (json_object_get(entry, "host") == NULL || count_of(entry, "port") > UINT16_MAX) {
		json_decref(entry);
		return NULL;
	}
	c->total += count_of(entry, "count") > 1 ? count_of(entry, "count") : 1;
	if (c->list == NULL)
		c->list = json_array();
	if (json_array_size(c->list) < CONNECTIONS_MAX) {
		(void) json_array_append_new(c->list, entry);
		return entry;
	}
	add_sum(c, entry);
	json_decref(c->summed);
	c->summed = entry;
	return entry;
}

json_t *connections_to_json(const struct connections *c)
{
	json_t *list = json_array();

	if (c->list != NULL)
		(void) json_array_extend(list, c->list);
	for (size_t i = 0; i < c->sum_count; i++) {
		const struct connection_sum *s = &c->sums[i];
		json_t *entry = json_pack("{ss sI ss sI sI sI sf}", "host", s->host, "port", (json_int_t) s->port, "protocol",
					  s->protocol, "count", (json_int_t) s->count, "sent", (json_int_t) s->sent, "received",
					  (json_int_t) s->received, "seconds", (double) s->usec / (double) USEC_PER_SEC);

		if (s->requests > 0)
			(void) json_object_set_new(entry, "request_count", json_integer((json_int_t) s->requests));
		(void) json_array_append_new(list, entry);
	}
	return list;
}

void connections_done(struct connections *c)
{
	for (size_t i = 0; i < c->sum_count; i++) {
		free(c->sums[i].host);
		free(c->sums[i].protocol);
	}
	free(c->sums);
	json_decref(c->list);
	json_decref(c->summed);
	*c = (struct connections){0};
}
