/* A connection from its acceptance to its record: which rules cover it, and why none does. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/broker.h"
#include "egress/control.h"
#include "egress/narrow.h"
#include "egress/quota.h"

enum { WHY_SIZE = 400, PORTS_SHOWN = 8, FLOW_PATH_MAX = 1024 };

static const char *target_host(const struct target *t, char buf[NET_ADDRESS_TEXT])
{
	return t->name[0] != '\0' ? t->name : network_address_text(&t->address, buf);
}

/* The rule that would allow it at another port, -1: none. */
static int nearest_rule(const struct network *n, const struct target *t)
{
	char text[NET_ADDRESS_TEXT];

	if (t->name[0] != '\0')
		return network_nearest_rule(n, t->name, t->port);
	return network_nearest_rule(n, network_address_text(&t->address, text), t->port);
}

static bool rule_has_port(const struct network_rule *rule, uint16_t port)
{
	for (size_t i = 0; i < rule->port_count; i++) {
		if (port >= rule->ports[i].first && port <= rule->ports[i].last)
			return true;
	}
	return false;
}

/* "port 443", "ports 80, 8000-8010". */
static void add_ports(struct buf *text, const struct network_rule *rule)
{
	bool several = rule->port_count > 1 || (rule->port_count == 1 && rule->ports[0].first != rule->ports[0].last);

	(void) buf_adds(text, several ? "ports " : "port ");
	for (size_t i = 0; i < rule->port_count && i < PORTS_SHOWN; i++) {
		(void) buf_addf(text, "%s%u", i > 0 ? ", " : "", rule->ports[i].first);
		if (rule->ports[i].last != rule->ports[i].first)
			(void) buf_addf(text, "-%u", rule->ports[i].last);
	}
	if (rule->port_count > PORTS_SHOWN)
		(void) buf_adds(text, ", ...");
}

/* What the nearest rule has to say about the target, in brackets. */
static void add_hint(struct buf *text, const struct network_rule *rule, const struct target *t, bool udp)
{
	bool same_name = rule->pattern == NULL || strcmp(rule->pattern, t->name) == 0;

	if (same_name && rule_has_port(rule, t->port)) {
		(void) buf_addf(text, " (%s covers it for %s alone)", rule->label, udp ? "TCP" : "UDP");
		return;
	}
	(void) buf_addf(text, " (%s covers ", rule->label);
	if (!same_name)
		(void) buf_addf(text, "%s ", rule->pattern);
	add_ports(text, rule);
	(void) buf_adds(text, ")");
}

static void refuse(struct broker *b, const struct target *t, bool udp)
{
	cleanup_buf struct buf why = buf_new(WHY_SIZE);
	char host[NET_ADDRESS_TEXT], narrowed[NARROW_WHY_SIZE];
	int nearest = nearest_rule(b->network, t);
	struct refusal r = {.kind = "network", .host = target_host(t, host), .port = t->port, .rule = nearest};
	const char *open = strchr(r.host, ':') != NULL ? "[" : "", *close = open[0] != '\0' ? "]" : "";

	(void) buf_addf(&why, "%s%s%s:%u is not in network.allow", open, r.host, close, t->port);
	if (nearest >= 0)
		add_hint(&why, &b->network->rules[nearest], t, udp);
	r.why = narrow_why(b, t, udp, narrowed, sizeof narrowed) ? narrowed : why.data;
	control_refusal(b->control, &r);
}

static struct flow *flow_new(struct broker *b, const struct target *t)
{
	struct flow *f = xcalloc(1, sizeof *f);

	f->broker = b;
	f->target = *t;
	f->rule = -1;
	f->began = now_monotonic();
	LIST_INSERT_HEAD(&b->flows, f, link);
	connections_count(b, 1);
	return f;
}

struct flow *flow_open(struct broker *b, const struct target *t, bool udp)
{
	size_t rules[FLOW_RULES_MAX];
	size_t count = narrow_rules(b, t, udp, rules, FLOW_RULES_MAX);
	struct flow *f;

	if (count == 0) {
		refuse(b, t, udp);
		return NULL;
	}
	if (!quota_connection(b->quota, t))
		return NULL;
	f = flow_new(b, t);
	f->rule_count = count < FLOW_RULES_MAX ? count : FLOW_RULES_MAX;
	memcpy(f->rules, rules, f->rule_count * sizeof *rules);
	f->protocol = b->network->rules[rules[0]].protocol;
	/* Which rule allowed it is a matter of the single request with http and https. */
	if (f->protocol != NET_HTTP && f->protocol != NET_HTTPS)
		f->rule = (int) rules[0];
	return f;
}

struct flow *flow_open_published(struct broker *b, const struct target *t, const char *label)
{
	struct flow *f = flow_new(b, t);

	f->protocol = NET_TCP;
	f->published = label;
	return f;
}

static void free_requests(struct flow *f)
{
	size_t kept = f->request_count < FLOW_REQUESTS_MAX ? f->request_count : FLOW_REQUESTS_MAX;

	for (size_t i = 0; i < kept; i++)
		free(f->requests[i].path);
	free(f->requests);
}

void flow_close(struct flow *f)
{
	if (f == NULL)
		return;
	control_connection(f->broker->control, f);
	LIST_REMOVE(f, link);
	control_flow_gone(f->broker->control);
	connections_count(f->broker, -1);
	free_requests(f);
	free(f);
}

struct flow_request *flow_add_request(struct flow *f, const char *method, const char *path, size_t path_size)
{
	struct flow_request *r;

	if (f->requests == NULL)
		f->requests = xcalloc(FLOW_REQUESTS_MAX, sizeof *r);
	r = &f->requests[f->request_count++ % FLOW_REQUESTS_MAX];
	free(r->path);
	*r = (struct flow_request){.path = xstrndup(path, path_size < FLOW_PATH_MAX ? path_size : FLOW_PATH_MAX)};
	(void) snprintf(r->method, sizeof r->method, "%s", method);
	return r;
}

void flow_start(struct flow *f, int fd)
{
	switch (f->protocol) {
	case NET_TLS:
		passthrough_start(f, fd);
		return;
	case NET_HTTP:
	case NET_HTTPS:
		http_start(f, fd);
		return;
	case NET_TCP:
		relay_start(f, fd);
		return;
	case NET_UDP:
		break;
	}
	/* Rules for datagrams are never asked for a stream. */
	(void) snprintf(f->error, sizeof f->error, "the rule is for UDP");
	reset_close(fd);
	flow_close(f);
}

void reset_close(int fd)
{
	const struct linger none = {.l_onoff = 1, .l_linger = 0};

	if (fd < 0)
		return;
	(void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
	(void) close(fd);
}
