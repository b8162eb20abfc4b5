/* What the broker tells the supervisor. Text that came from inside or outside (names, paths) goes out as valid UTF-8 and bounded.
 */
#include "egress/control.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/control-line.h"
#include "egress/quota.h"

enum { SYNC_USEC = 100000, FINISH_USEC = 2000000, FINISH_ROUNDS = 4, REQUESTS_SIZE_MAX = CONTROL_MESSAGE_MAX - 8192 };

static const char *const protocol_names[] = {
    [NET_TCP] = "tcp", [NET_TLS] = "tls", [NET_HTTP] = "http", [NET_HTTPS] = "https", [NET_UDP] = "udp"};

struct control *control_new(struct broker *b, int fd)
{
	struct control *c = xcalloc(1, sizeof *c);

	c->broker = b;
	c->fd = fd;
	LIST_INIT(&c->inbounds);
	return c;
}

void control_free(struct control *c)
{
	if (c == NULL)
		return;
	control_forget_inbounds(c);
	if (c->readable != NULL)
		event_free(c->readable);
	if (c->sync != NULL)
		event_free(c->sync);
	refusals_free(c->refusals);
	tally_free(c->tally);
	outbox_free(c->outbox);
	fd_close(&c->fd);
	free(c);
}

/* A JSON string of whatever bytes: what is no UTF-8 is shown as '?'. */
static json_t *text(const char *s)
{
	json_t *j = json_string(s);
	cleanup_free char *plain = NULL;

	if (j != NULL)
		return j;
	plain = xstrdup(s);
	for (char *p = plain; *p != '\0'; p++) {
		if ((unsigned char) *p >= 0x80)
			*p = '?';
	}
	return json_string(plain);
}

static void set(json_t *message, const char *key, json_t *value)
{
	(void) json_object_set_new_nocheck(message, key, value);
}

static void set_text(json_t *message, const char *key, const char *value)
{
	if (value != NULL)
		set(message, key, text(value));
}

static void set_number(json_t *message, const char *key, uint64_t value)
{
	set(message, key, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t) value));
}

static void set_address(json_t *message, const struct net_address *a)
{
	char buf[NET_ADDRESS_TEXT];

	if (a != NULL && a->family != AF_UNSPEC)
		set_text(message, "address", network_address_text(a, buf));
}

static json_t *message_new(const char *kind)
{
	json_t *message = json_object();

	set_text(message, "t", kind);
	return message;
}

static char *take_message(json_t *message)
{
	char *s = json_dumps(message, JSON_COMPACT);

	json_decref(message);
	return s;
}

static bool send_by(struct control *c, json_t *message, bool (*send)(struct outbox *o, const char *text, size_t size))
{
	cleanup_free char *s = take_message(message);
	size_t size = s != NULL ? strlen(s) : 0;

	if (size == 0 || size > CONTROL_MESSAGE_MAX) {
		log_debug("egress: a message of %zu bytes was not sent", size);
		return true;
	}
	return send(c->outbox, s, size);
}

/* Takes over the message. False when there is no room for it now. */
static bool send_message(struct control *c, json_t *message)
{
	return send_by(c, message, outbox_send);
}

/* For the few that must not be lost. */
static bool send_urgent(struct control *c, json_t *message)
{
	return send_by(c, message, outbox_send_urgent);
}

static const char *rule_label(const struct control *c, int rule)
{
	const struct network *n = c->broker->network;

	return rule >= 0 && (size_t) rule < n->rule_count ? n->rules[rule].label : NULL;
}

static bool send_refusal(void *ctx, const struct refusal *r, uint64_t count)
{
	struct control *c = ctx;
	json_t *message = message_new("denied");

	set_text(message, "kind", r->kind);
	set_text(message, "host", r->host);
	if (r->port != 0)
		set_number(message, "port", r->port);
	set_address(message, r->address);
	set_text(message, "method", r->method);
	set_text(message, "path", r->path);
	set_text(message, "rule", rule_label(c, r->rule));
	set_text(message, "why", r->why);
	set_number(message, "count", count);
	return send_message(c, message);
}

/* What is said of one connection, and of many that stand as one. */
static json_t *record_message(const struct connection_record *r)
{
	json_t *message = message_new("connection");

	set_text(message, "host", r->host);
	set_number(message, "port", r->port);
	set_text(message, "protocol", r->protocol);
	set_number(message, "sent", r->sent);
	set_number(message, "received", r->received);
	set_number(message, "usec", r->usec);
	set_text(message, "rule", r->rule);
	set_text(message, "error", r->error);
	if (r->inbound)
		set(message, "inbound", json_true());
	if (r->requests > 0)
		set_number(message, "request_count", r->requests);
	return message;
}

static bool send_tallied(void *ctx, const struct connection_record *r)
{
	json_t *message = record_message(r);

	set_number(message, "count", r->count);
	return send_message(ctx, message);
}

static void drained(void *ctx)
{
	struct control *c = ctx;

	refusals_send(c->refusals);
	tally_send(c->tally, send_tallied, c);
}

static void broken(void *ctx)
{
	struct control *c = ctx;

	(void) event_base_loopbreak(c->broker->base);
}

void control_refused(struct control *c, const char *why)
{
	json_t *message = message_new("refused");
	cleanup_free char *s = NULL;

	set_text(message, "why", why);
	s = take_message(message);
	(void) fd_send(c->fd, s, strlen(s), NULL, 0); /* without a reader nobody needs to know */
}

int control_ready(struct control *c, const char *ca, int bundle, int java, struct zw_error *e)
{
	json_t *message = message_new("ready");
	const int fds[] = {bundle, java};
	cleanup_free char *s = NULL;
	int r;

	set(message, "ca", ca != NULL ? text(ca) : json_null());
	set(message, "java", json_boolean(java >= 0));
	s = take_message(message);
	r = fd_send(c->fd, s, strlen(s), fds, bundle < 0 ? 0 : java < 0 ? 1 : 2);
	return r < 0 ? zw_errno(e, -r, "cannot tell the supervisor that the broker is ready") : 0;
}

/* ---- All that has happened. ---- */

static void answer_syncs(struct control *c)
{
	drained(c);
	for (; c->sync_count > 0; c->sync_count--) {
		json_t *message = message_new("synced");

		set_number(message, "id", c->syncs[c->sync_count - 1]);
		(void) send_urgent(c, message);
	}
	(void) event_del(c->sync);
}

/* A connection whose end inside has closed may still have to close outside, which takes its time; one that is used by others
 * never ends. */
static void on_sync(evutil_socket_t fd, short what, void *ctx)
{
	static const struct timeval patience = {.tv_usec = SYNC_USEC};
	struct control *c = ctx;

	(void) fd;
	if (c->sync_count > 0 && !LIST_EMPTY(&c->broker->flows) && (what & EV_TIMEOUT) == 0 && event_add(c->sync, &patience) == 0)
		return;
	answer_syncs(c);
}

void control_sync(struct control *c, uint32_t id)
{
	if (c->sync_count == CONTROL_SYNCS_MAX)
		answer_syncs(c);
	c->syncs[c->sync_count++] = id;
	/* It comes after whatever is ready now: what was sent or closed inside has been seen then. */
	event_active(c->sync, EV_READ, 0);
}

void control_flow_gone(struct control *c)
{
	if (c->sync_count > 0 && LIST_EMPTY(&c->broker->flows))
		event_active(c->sync, EV_READ, 0);
}

void control_start(struct control *c)
{
	struct event_base *base = c->broker->base;

	c->outbox = outbox_new(base, c->fd, drained, broken, c);
	c->refusals = refusals_new(base, send_refusal, c);
	c->tally = tally_new();
	c->readable = event_new(base, c->fd, EV_READ | EV_PERSIST, control_readable, c);
	/* Before any connection: a secret or a listener that was sent first is there first. */
	(void) event_priority_set(c->readable, 0);
	(void) event_add(c->readable, NULL);
	c->sync = event_new(base, -1, 0, on_sync, c);
	(void) event_priority_set(c->sync, event_base_get_npriorities(base) - 1);
}

void control_refusal(struct control *c, const struct refusal *r)
{
	refusals_add(c->refusals, r);
}

void control_name(struct control *c, const char *name, uint32_t address)
{
	json_t *message = message_new("name");
	struct net_address a = {.family = AF_INET, .v4 = {htonl(address)}};

	set_text(message, "name", name);
	set_address(message, &a);
	(void) send_message(c, message);
}

void control_limit(struct control *c, const char *which, bool kill)
{
	json_t *message = message_new("limit");

	set_text(message, "which", which);
	set(message, "kill", json_boolean(kill));
	(void) send_urgent(c, message);
}

void control_usage(struct control *c, uint64_t sent, uint64_t received)
{
	json_t *message = message_new("usage");

	set_number(message, "sent", sent);
	set_number(message, "received", received);
	(void) send_message(c, message); /* the next one, or the one before bye, says more */
}

static json_t *request_object(const struct flow_request *r)
{
	json_t *o = json_object();

	set_text(o, "method", r->method);
	set_text(o, "path", r->path != NULL ? r->path : "");
	set_number(o, "status", r->status > 0 ? (uint64_t) r->status : 0);
	return o;
}

/* The newest ones, in their order, as many as fit. */
static json_t *request_list(const struct flow *f)
{
	size_t kept = f->request_count < FLOW_REQUESTS_MAX ? f->request_count : FLOW_REQUESTS_MAX, size = 0;
	json_t *list = json_array();

	for (size_t i = 0; i < kept; i++) {
		json_t *o = request_object(&f->requests[(f->request_count - 1 - i) % FLOW_REQUESTS_MAX]);

		size += json_dumpb(o, NULL, 0, JSON_COMPACT) + 1;
		if (size > REQUESTS_SIZE_MAX) {
			json_decref(o);
			break;
		}
		(void) json_array_insert_new(list, 0, o);
	}
	return list;
}

static struct connection_record record_of(const struct control *c, const struct flow *f, char host[NET_ADDRESS_TEXT])
{
	usec_t now = now_monotonic();

	return (struct connection_record){
	    .host = f->target.name[0] != '\0' ? f->target.name : network_address_text(&f->target.address, host),
	    .port = f->target.port,
	    .protocol = f->published != NULL ? "publish" : protocol_names[f->protocol],
	    .rule = f->published != NULL ? f->published : rule_label(c, f->rule),
	    .error = f->error[0] != '\0' ? f->error : NULL,
	    .inbound = f->published != NULL,
	    .sent = f->sent,
	    .received = f->received,
	    .usec = now > f->began ? now - f->began : 0,
	    .requests = f->request_count,
	    .count = 1,
	};
}

static json_t *connection_message(const struct flow *f, const struct connection_record *r)
{
	json_t *message = record_message(r);

	set_address(message, &f->dialled);
	if (r->requests > 0)
		set(message, "requests", request_list(f));
	return message;
}

void control_connection(struct control *c, const struct flow *f)
{
	char host[NET_ADDRESS_TEXT];
	struct connection_record r = record_of(c, f, host);

	if (!outbox_has_room(c->outbox, CONTROL_MESSAGE_MAX) || !send_message(c, connection_message(f, &r)))
		tally_add(c->tally, &r);
}

void control_inbound(struct control *c, uint16_t port, void (*done)(void *ctx, int fd), void *ctx)
{
	struct inbound *i = xcalloc(1, sizeof *i);
	json_t *message = message_new("inbound");

	*i = (struct inbound){.id = ++c->last_inbound, .done = done, .ctx = ctx};
	LIST_INSERT_HEAD(&c->inbounds, i, link);
	set_number(message, "id", i->id);
	set_number(message, "port", port);
	(void) send_urgent(c, message);
}

/* What was held back for lack of room may need several rounds. */
void control_finish(struct control *c)
{
	struct flow *f;

	LIST_FOREACH(f, &c->broker->flows, link)
	control_connection(c, f);
	for (int round = 0; round < FINISH_ROUNDS; round++) {
		outbox_flush(c->outbox, FINISH_USEC);
		drained(c);
	}
	quota_report(c->broker->quota);
	(void) send_urgent(c, message_new("bye"));
	outbox_flush(c->outbox, FINISH_USEC);
}
