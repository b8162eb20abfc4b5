/* The RPCs of a sandbox: who asks as which user, and the message of a call. */
#include "daemon/e2b/envd.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

enum { USER_MAX = 64, REFUSAL_SIZE = 500 };

static const struct envd_method *method_of(const char *path)
{
	static const struct envd_method *const tables[] = {envd_process_methods, envd_filesystem_methods};

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		for (const struct envd_method *m = tables[i]; m->path != NULL; m++)
			if (strcmp(m->path, path) == 0)
				return m;
	return NULL;
}

static void no_stop(void *arg)
{
	(void) arg; /* it ends before anything can stop it */
}

void envd_refuse(const struct envd_call *c, bool streams, enum connect_code code, const char *fmt, ...)
{
	static const struct connect_stream_ops ops = {.stop = no_stop};
	char text[REFUSAL_SIZE];
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (streams)
		connect_stream_fail(connect_stream_new(c->request, &ops, NULL, NULL), code, "%s", text);
	else
		connect_refuse(c->request, code, "%s", text);
}

/* "Basic base64(USER:)". False: none that is here. */
static bool read_user(const struct request *r, const struct sandbox *s, int64_t *ret)
{
	const char *text = request_header(r, "authorization");
	char user[USER_MAX] = "";
	size_t size = 0;

	*ret = -1;
	if (text == NULL)
		return request_header_count(r, "authorization") == 0;
	if (strncasecmp(text, "basic ", 6) != 0)
		return true; /* a key, which says nothing here */
	if (sodium_base642bin((unsigned char *) user, sizeof user - 1, text + 6, strlen(text + 6), NULL, &size, NULL,
			      sodium_base64_VARIANT_ORIGINAL) != 0)
		return false;
	user[strcspn(user, ":")] = '\0';
	if (strcmp(user, "root") == 0 && s->has_root)
		*ret = 0;
	return user[0] == '\0' || strcmp(user, "user") == 0 || *ret == 0;
}

static void run_method(struct request *r, const struct envd_method *m, struct sandbox *s, const json_t *message, const char *why)
{
	struct envd_call call = {.request = r, .sandbox = s, .message = message};

	if (message == NULL)
		envd_refuse(&call, m->streams, CONNECT_INVALID_ARGUMENT, "%s", why);
	else if (!read_user(r, s, &call.user))
		envd_refuse(&call, m->streams, CONNECT_UNAUTHENTICATED, "there is no user of this name in the sandbox");
	else
		m->run(&call);
}

static void body_whole(struct request *r, struct sandbox *s, const void *arg, const char *body, size_t size)
{
	const struct envd_method *m = arg;
	const char *why = NULL;
	json_t *message = connect_parse(body, size, m->streams, &why);

	run_method(r, m, s, message, why);
	json_decref(message);
}

static void body_refused(struct request *r, const void *arg, enum e2b_body_fault fault)
{
	const struct envd_method *m = arg;
	const struct envd_call call = {.request = r};

	if (fault == E2B_BODY_TOO_LONG)
		envd_refuse(&call, m->streams, CONNECT_INVALID_ARGUMENT, "the message is too long");
	else
		envd_refuse(&call, m->streams, CONNECT_RESOURCE_EXHAUSTED, "too many large requests are under way");
}

static bool has_type(const struct request *r, const char *type)
{
	const char *text = request_header(r, "content-type");
	size_t size = strlen(type);

	return text != NULL && strncasecmp(text, type, size) == 0 &&
	       (text[size] == '\0' || text[size] == ';' || text[size] == ' ');
}

void e2b_envd_request(struct request *r, struct sandbox *s)
{
	static const struct e2b_body_ops body_ops = {CONNECT_MESSAGE_MAX, body_whole, body_refused};
	const struct envd_method *m = method_of(r->path);

	if (strcmp(r->path, "/envs") == 0 && strcmp(r->method, "GET") == 0) {
		respond_json(r, 200, json_incref(s->env));
		return;
	}
	if (m == NULL) {
		connect_refuse(r, CONNECT_UNIMPLEMENTED, "%.200s is not offered", r->path);
		return;
	}
	if (strcmp(r->method, "POST") != 0) {
		e2b_refuse(r, 405, "expected POST");
		return;
	}
	if (!has_type(r, m->streams ? "application/connect+json" : "application/json")) {
		e2b_refuse(r, 415, "expected Content-Type: %s", m->streams ? "application/connect+json" : "application/json");
		return;
	}
	if (m->begin != NULL) {
		m->begin(r, s);
		return;
	}
	if (!m->streams)
		request_hold_drain(r);
	e2b_read_body(r, s, &body_ops, m);
}
