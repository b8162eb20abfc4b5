#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "egress/control.h"
#include "egress/http-internal.h"
#include "egress/narrow.h"
#include "egress/quota.h"
#include "egress/secrets.h"

/* A head may grow by the values that stand for placeholders, but not without end. */
enum { PATH_SHOWN = 1024, HEAD_OUT_MAX = 2 * HEAD_SIZE_MAX };

/* A request that is being judged. The slices point into the client's input. */
struct judged {
	struct head head;
	struct request_target target;
	char method[HEAD_METHOD_MAX + 1];
	const struct network_rule *rule;
	const char *secret; /* value, NULL when the rule has none */
	size_t secret_size;
};

static uint16_t usual_port(const struct flow *f)
{
	return f->protocol == NET_HTTPS ? 443 : 80;
}

/* ---- Refusals. ---- */

/* A refusal for the target of the flow, or where that is not known for the proxy, to which the request came. */
static void record_for(struct session *s, const struct flow *f, const struct judged *j, int rule, const char *why)
{
	char host[AUTHORITY_TEXT];
	char *path =
	    j != NULL ? xstrndup(j->target.path.data, j->target.path.size < PATH_SHOWN ? j->target.path.size : PATH_SHOWN) : NULL;
	struct target t = {.address = {.family = AF_INET, .v4.s_addr = htonl(NETWORK_STUB_ADDRESS)}, .port = NETWORK_PROXY_PORT};
	struct refusal r = {.kind = "http", .rule = rule, .why = why, .path = path, .method = j != NULL ? j->method : NULL};

	if (f != NULL)
		t = f->target;
	r.host = target_host(&t, false, host);
	r.port = t.port;
	control_refusal(s->broker->control, &r);
	free(path);
}

static void record(struct session *s, const struct judged *j, int rule, const char *why)
{
	record_for(s, s->f, j, rule, why);
}

/* Nothing that was not understood is followed by anything that would have to be. `f`: whom it was for, as far as that is known.
 */
static void refuse_malformed(struct session *s, const struct flow *f, const struct head_fault *fault)
{
	char line[ANSWER_LINE];

	record_for(s, f, NULL, f != NULL && f->rule_count > 0 ? (int) f->rules[0] : -1, fault->why);
	(void) snprintf(line, sizeof line, "zwinger: the request was refused: %s", fault->why);
	session_answer(s, fault->status, false, line);
}

void request_malformed(struct session *s, const struct head_fault *fault)
{
	refuse_malformed(s, s->proxied ? NULL : s->f, fault);
}

/* May the connection go on behind a refused request: only if its body is there in full soon. */
static bool may_keep(const struct session *s, const struct head *h)
{
	if (!s->request.keep || s->request.expect || h->chunked)
		return false;
	return !h->has_length || h->length <= HTTP_DRAIN_MAX;
}

static void refuse(struct session *s, const struct judged *j, unsigned status, const char *line)
{
	bool keep = may_keep(s, &j->head);

	body_begin(&s->request.body, j->head.has_length ? BODY_LENGTH : BODY_NONE, j->head.length, ZW_UNLIMITED);
	session_answer(s, status, keep, line);
}

static void deny(struct session *s, const struct judged *j)
{
	char why[ANSWER_LINE], line[ANSWER_LINE];
	int rule;

	answer_denied_request(s->f, j->method, j->target.path.data, j->target.path.size, &rule, why);
	record(s, j, rule, why);
	answer_how_to_ask(why, line);
	refuse(s, j, 403, line);
}

/* A sentence that is the same for the record and for the client. */
static void deny_for(struct session *s, const struct judged *j, unsigned status, const char *why)
{
	char line[ANSWER_LINE];

	record(s, j, s->f->rule, why);
	(void) snprintf(line, sizeof line, "zwinger: the request was refused: %s", why);
	refuse(s, j, status, line);
}

/* ---- Whom it is for. ---- */

/* The proxy has no flow for this target: ends the former one and opens it. False when that is refused; it was answered then. */
static bool switch_flow(struct session *s, const struct judged *j, const struct target *t)
{
	char why[ANSWER_LINE], line[ANSWER_LINE];
	size_t rules = narrow_rules(s->broker, t, false, NULL, 0);

	session_drop_origin(s, false);
	if (s->f != NULL)
		flow_close(s->f);
	s->f = flow_open(s->broker, t, false);
	if (s->f != NULL) {
		session_hold(s);
		return true;
	}
	if (rules > 0)
		(void) snprintf(why, sizeof why, "a limit of network.limits is used up");
	else if (!narrow_why(s->broker, t, false, why, sizeof why))
		answer_denied_target(s->broker->network, t, why);
	answer_how_to_ask(why, line);
	refuse(s, j, rules == 0 ? 403 : 429, line);
	return false;
}

/* For a proxied session: the flow for the target of this request. False when there is none; it was answered then. */
static bool find_flow(struct session *s, const struct judged *j)
{
	static const struct head_fault no_target = {.status = 400, .why = "a proxy wants the full URI, http://host/path"};
	static const struct head_fault connects = {.status = 400, .why = "CONNECT wants a connection of its own"};
	static const struct head_fault https = {.status = 400, .why = "a proxy is asked for https by CONNECT"};
	const struct head_fault *fault = NULL;
	struct target t;

	if (j->target.form == REQUEST_AUTHORITY)
		fault = &connects;
	else if (j->target.form != REQUEST_ABSOLUTE)
		fault = &no_target;
	else if (j->target.https)
		fault = &https;
	if (fault != NULL) {
		request_malformed(s, fault);
		return false;
	}
	authority_target(s->broker->names, &j->target.authority, 80, &t);
	if ((s->f == NULL || !target_same(&t, &s->f->target)) && !switch_flow(s, j, &t))
		return false;
	if (s->f->protocol == NET_HTTP || s->f->protocol == NET_TCP)
		return true;
	s->f->rule = (int) s->f->rules[0];
	deny_for(s, j, 403, "the rule for this host and port is for TLS: use https");
	return false;
}

static int check_scheme(const struct session *s, const struct judged *j, struct head_fault *fault)
{
	const char *why = NULL;

	if (j->target.form == REQUEST_AUTHORITY)
		why = "CONNECT is not for this connection";
	else if (j->target.form == REQUEST_ABSOLUTE && j->target.https != (s->f->protocol == NET_HTTPS))
		why = "the scheme of the target is not that of the connection";
	if (why == NULL)
		return 0;
	*fault = (struct head_fault){.status = 400, .why = why};
	return -EBADMSG;
}

/* ---- Whether it may. ---- */

/* Servers that hand fields on as variables (CGI, WSGI) do not tell "X_Api_Key" from "X-Api-Key". */
static bool is_like(struct slice name, const char *word)
{
	if (name.size != strlen(word))
		return false;
	for (size_t i = 0; i < name.size; i++) {
		char c = name.data[i] == '_' ? '-' : name.data[i], d = word[i] == '_' ? '-' : word[i];

		if (strncasecmp(&c, &d, 1) != 0)
			return false;
	}
	return true;
}

/* Fields by which frameworks let a request be another one than its first line says. The other one must be allowed as well. */
static bool overrides_allowed(const struct session *s, const struct judged *j)
{
	static const char *const methods[] = {"x-http-method-override", "x-http-method", "x-method-override"};
	static const char *const paths[] = {"x-original-url", "x-rewrite-url"};
	char method[HEAD_METHOD_MAX + 1];

	for (size_t i = 0; i < j->head.field_count; i++) {
		const struct head_field *f = &j->head.fields[i];

		for (size_t k = 0; k < ARRAY_SIZE(paths); k++)
			if (j->rule->has_paths && is_like(f->name, paths[k]))
				return false;
		for (size_t k = 0; k < ARRAY_SIZE(methods); k++) {
			if (!is_like(f->name, methods[k]))
				continue;
			(void) snprintf(method, sizeof method, "%.*s", (int) f->value.size, f->value.data);
			if (network_match_request(s->broker->network, s->f->rules, s->f->rule_count, method, j->target.path.data,
						  j->target.path.size) != s->f->rule)
				return false;
		}
	}
	return true;
}

/* Fetches the value of the rule's secret. False when it cannot be had; why is static text. */
static bool fetch_secret(const struct session *s, struct judged *j, const char **ret_why)
{
	const struct policy_secret_use *use = &j->rule->secret;

	if (use->name == NULL)
		return true;
	j->secret = s->broker->secrets != NULL ? secrets_get(s->broker->secrets, use->name, &j->secret_size) : NULL;
	if (j->secret == NULL)
		*ret_why = "the secret of the rule has been revoked or was never given";
	else if (j->secret_size > REDACT_VALUE_MAX || memchr(j->secret, '\t', j->secret_size) != NULL ||
		 !head_is_value(j->secret, j->secret_size))
		*ret_why = "the secret of the rule cannot stand in a header: it is too long or has a control byte";
	else
		return true;
	return false;
}

static bool judge(struct session *s, struct judged *j)
{
	const char *why = NULL;
	int rule = network_match_request(s->broker->network, s->f->rules, s->f->rule_count, j->method, j->target.path.data,
					 j->target.path.size);

	if (rule < 0) {
		deny(s, j);
		return false;
	}
	s->f->rule = rule;
	j->rule = &s->broker->network->rules[rule];
	if (!quota_request(s->broker->quota, &s->f->target)) {
		refuse(s, j, 429,
		       "zwinger: a limit of network.limits is used up; the owner of this sandbox sets it in its policy");
		return false;
	}
	if (!overrides_allowed(s, j)) {
		deny_for(s, j, 403, "a header field asks for another method or path than the rule that allows the request");
		return false;
	}
	if (j->head.has_length && j->rule->request_max != ZW_UNLIMITED && j->head.length > j->rule->request_max) {
		deny_for(s, j, 413, "the body is larger than request_max of the rule");
		return false;
	}
	if (!fetch_secret(s, j, &why)) {
		deny_for(s, j, 403, why);
		return false;
	}
	return true;
}

/* ---- What is sent on. ---- */

bool flow_has_secret(const struct flow *f)
{
	for (size_t i = 0; i < f->rule_count; i++)
		if (f->broker->network->rules[f->rules[i]].secret.name != NULL)
			return true;
	return false;
}

/* Fields that the broker writes itself, or that would let an answer escape redaction: an encoding it cannot read, or a secret in
 * two halves of two ranges. */
static bool is_replaced(const struct session *s, const struct judged *j, const struct head_field *f)
{
	if (head_hop_by_hop(&j->head, f) || slice_is(f->name, "host") || slice_is(f->name, "expect"))
		return true;
	if (flow_has_secret(s->f) && (slice_is(f->name, "accept-encoding") || slice_is(f->name, "range") ||
				      slice_is(f->name, "if-range") || slice_is(f->name, "a-im")))
		return true;
	return j->secret != NULL && j->rule->secret.header != NULL && is_like(f->name, j->rule->secret.header);
}

static void put_value(const struct judged *j, const struct slice value, struct evbuffer *out)
{
	const char *mark = j->secret != NULL ? j->rule->secret.placeholder : NULL;
	size_t size = mark != NULL ? strlen(mark) : 0, at = 0;

	while (size > 0 && at < value.size) {
		const char *found = memmem(value.data + at, value.size - at, mark, size);

		if (found == NULL)
			break;
		(void) evbuffer_add(out, value.data + at, (size_t) (found - value.data) - at);
		(void) evbuffer_add(out, j->secret, j->secret_size);
		at = (size_t) (found - value.data) + size;
	}
	(void) evbuffer_add(out, value.data + at, value.size - at);
}

/* "Authorization: Bearer ..." */
static void put_secret(const struct judged *j, struct evbuffer *out)
{
	const struct policy_secret_use *use = &j->rule->secret;
	const char *format = use->format != NULL ? use->format : "{}", *gap = strstr(format, "{}");

	if (j->secret == NULL || use->header == NULL)
		return;
	(void) evbuffer_add_printf(out, "%s: %.*s", use->header, gap != NULL ? (int) (gap - format) : 0, format);
	(void) evbuffer_add(out, j->secret, j->secret_size);
	(void) evbuffer_add_printf(out, "%s\r\n", gap != NULL ? gap + 2 : "");
}

static void put_fields(const struct session *s, const struct judged *j, struct evbuffer *out)
{
	for (size_t i = 0; i < j->head.field_count; i++) {
		const struct head_field *f = &j->head.fields[i];

		if (is_replaced(s, j, f))
			continue;
		(void) evbuffer_add(out, f->name.data, f->name.size);
		(void) evbuffer_add(out, ": ", 2);
		put_value(j, f->value, out);
		(void) evbuffer_add(out, "\r\n", 2);
	}
}

static void put_head(struct session *s, const struct judged *j, struct evbuffer *out)
{
	char host[AUTHORITY_TEXT];

	(void) evbuffer_add_printf(out, "%s ", j->method);
	(void) evbuffer_add(out, j->target.path.data, j->target.path.size);
	(void) evbuffer_add(out, j->target.query.data, j->target.query.size);
	(void) evbuffer_add_printf(out, " HTTP/1.1\r\nHost: %s\r\n", target_authority(&s->f->target, usual_port(s->f), host));
	put_fields(s, j, out);
	put_secret(j, out);
	if (flow_has_secret(s->f))
		(void) evbuffer_add_printf(out, "Accept-Encoding: identity\r\n");
	if (s->request.expect)
		(void) evbuffer_add_printf(out, "Expect: 100-continue\r\n");
	if (s->request.websocket)
		(void) evbuffer_add_printf(out, "Connection: Upgrade\r\nUpgrade: websocket\r\n");
	if (j->head.chunked)
		(void) evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
	else if (j->head.has_length)
		(void) evbuffer_add_printf(out, "Content-Length: %llu\r\n", (unsigned long long) j->head.length);
	(void) evbuffer_add(out, "\r\n", 2);
}

static bool asks_for_websocket(const struct judged *j)
{
	const struct head *h = &j->head;
	const struct head_field *upgrade = head_field(h, "upgrade", NULL);

	return h->minor == 1 && h->upgrade && upgrade != NULL && slice_is(upgrade->value, "websocket") &&
	       slice_same(h->method, "GET") && !h->chunked && (!h->has_length || h->length == 0);
}

/* An allowed request begins. */
static void forward(struct session *s, const struct judged *j)
{
	const struct head *h = &j->head;

	s->request.websocket = asks_for_websocket(j);
	put_head(s, j, s->to_send);
	if (evbuffer_get_length(s->to_send) > HEAD_OUT_MAX) {
		(void) evbuffer_drain(s->to_send, evbuffer_get_length(s->to_send));
		deny_for(s, j, 431, "the head is longer than 64 KiB with the secret in place of its placeholders");
		return;
	}
	s->request.out = h->chunked ? BODY_CHUNKED : h->has_length ? BODY_LENGTH : BODY_NONE;
	body_begin(&s->request.body, s->request.out, h->length, j->rule->request_max);
	if (h->has_length && h->length == 0)
		s->request.out = BODY_NONE;
	s->request.done = s->request.body.done;
	s->request.record = flow_add_request(s->f, j->method, j->target.path.data, j->target.path.size);
	if (session_count_sent(s, evbuffer_get_length(s->to_send)))
		session_connect(s);
}

static int read_expectation(struct session *s, const struct head *h, struct head_fault *fault)
{
	size_t count;
	const struct head_field *expect = head_field(h, "expect", &count);

	if (count == 0)
		return 0;
	if (expect == NULL || !slice_is(expect->value, "100-continue")) {
		*fault = (struct head_fault){.status = 417, .why = "Expect is not 100-continue"};
		return -EBADMSG;
	}
	s->request.expect = h->minor == 1 && (h->chunked || (h->has_length && h->length > 0));
	return 0;
}

static int read_request(struct session *s, const char *data, size_t size, struct judged *j, struct head_fault *fault)
{
	int r = head_parse_request(data, size, &j->head, fault);

	if (r < 0)
		return r;
	(void) snprintf(j->method, sizeof j->method, "%.*s", (int) j->head.method.size, j->head.method.data);
	s->request.minor = j->head.minor;
	s->request.head = slice_same(j->head.method, "HEAD");
	s->request.keep = j->head.minor == 1 ? !j->head.close : j->head.keep_alive && !j->head.close;
	r = request_target_parse(&j->head, &j->target, fault);
	return r < 0 ? r : read_expectation(s, &j->head, fault);
}

void request_head(struct session *s, const char *data, size_t size)
{
	struct judged j = {.rule = NULL};
	struct head_fault fault;

	if (read_request(s, data, size, &j, &fault) < 0) {
		request_malformed(s, &fault);
		return;
	}
	if (s->proxied && !find_flow(s, &j))
		return;
	if (check_scheme(s, &j, &fault) < 0 || request_check_host(&j.head, &j.target, &s->f->target, &fault) < 0)
		refuse_malformed(s, s->f, &fault);
	else if (judge(s, &j))
		forward(s, &j);
}

/* ---- The body. ---- */

static bool body_fault(struct session *s, int r)
{
	static const char too_large[] = "the body is larger than request_max of the rule";
	static const char broken[] = "the body is not in the chunked coding";
	const char *why = r == -E2BIG ? too_large : broken;
	char line[ANSWER_LINE];

	record(s, NULL, s->f->rule, why);
	if (s->response.began) {
		session_abort(s, why);
		return false;
	}
	(void) snprintf(line, sizeof line, "zwinger: the request was refused: %s", why);
	session_answer(s, r == -E2BIG ? 413 : 400, false, line);
	return true;
}

/* What comes behind an origin that has stopped listening is thrown away; its answer may still come. */
static bool throw_away(struct session *s)
{
	size_t before = evbuffer_get_length(side_input(&s->client));

	(void) evbuffer_drain(side_input(&s->client), before);
	return before > 0;
}

bool request_pump(struct session *s)
{
	struct evbuffer *in = side_input(&s->client), *out = side_output(&s->origin);
	size_t had = evbuffer_get_length(out), size = evbuffer_get_length(in), unsent = side_unsent(&s->origin), room;
	int r;

	if (s->request.done || (size == 0 && !s->client.ended))
		return false;
	if (s->origin.deaf)
		return throw_away(s);
	if (unsent >= HTTP_BUFFER_MAX)
		return false;
	room = session_allowance(s, HTTP_BUFFER_MAX - unsent);
	if (room == 0)
		return false;
	r = body_take(&s->request.body, in, s->scratch, room);
	body_put(s->request.out, s->scratch, out);
	if (s->request.body.done && r == 0) {
		body_put_end(s->request.out, out);
		s->request.done = true;
	}
	if (!session_count_sent(s, evbuffer_get_length(out) - had))
		return false;
	if (r < 0)
		return body_fault(s, r);
	if (!s->request.done && s->client.ended && evbuffer_get_length(in) == 0)
		session_abort(s, "the client went away within its request");
	return !s->over && evbuffer_get_length(in) != size;
}
