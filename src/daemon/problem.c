#include "daemon/problem.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "policy/text.h"

static const struct {
	const char *name;
	unsigned status;
	const char *hint; /* where the one who refuses has none */
} codes[] = {
    [PROBLEM_BAD_REQUEST] = {"bad_request", 400},
    [PROBLEM_INVALID_POLICY] = {"invalid_policy", 400},
    [PROBLEM_NOT_A_REGULAR_FILE] = {"not_a_regular_file", 400},
    [PROBLEM_NOT_A_DIRECTORY] = {"not_a_directory", 400},
    [PROBLEM_IS_A_DIRECTORY] = {"is_a_directory", 400},
    [PROBLEM_UNAUTHORIZED] = {"unauthorized", 401},
    [PROBLEM_FORBIDDEN] = {"forbidden", 403},
    [PROBLEM_ABOVE_CEILING] = {"above_ceiling", 403},
    [PROBLEM_PERMISSION_DENIED] = {"permission_denied", 403},
    [PROBLEM_NOT_FOUND] = {"not_found", 404},
    [PROBLEM_METHOD_NOT_ALLOWED] = {"method_not_allowed", 405},
    [PROBLEM_CONFLICT] = {"conflict", 409},
    [PROBLEM_SANDBOX_ENDED] = {"sandbox_ended", 410},
    [PROBLEM_TOO_LARGE] = {"too_large", 413},
    [PROBLEM_UNSUPPORTED_MEDIA_TYPE] = {"unsupported_media_type", 415},
    [PROBLEM_MISDIRECTED] = {"misdirected", 421},
    [PROBLEM_NOT_ENFORCEABLE] = {"not_enforceable", 422},
    [PROBLEM_IDEMPOTENCY_KEY_REUSED] = {"idempotency_key_reused", 422},
    [PROBLEM_BUSY] = {"busy", 429, "try again when something of what is there has ended"},
    [PROBLEM_UNAVAILABLE] = {"unavailable", 503, "try again soon"},
    [PROBLEM_INSUFFICIENT_STORAGE] = {"insufficient_storage", 507, "make room, and try again"},
    [PROBLEM_INTERNAL] = {"internal", 500},
    [PROBLEM_NOT_SUPPORTED] = {"not_supported", 501},
};
static_assert(ARRAY_SIZE(codes) == PROBLEM_MAX, "a row for each code");

const char *problem_name(enum problem_code code)
{
	return codes[code].name;
}

unsigned problem_status(const struct problem *p)
{
	return p->status != 0 ? p->status : codes[p->code].status;
}

/* A message may repeat what the peer sent, cut anywhere. */
static json_t *utf8_text(const char *text)
{
	cleanup_free char *copy = xstrdup(text);
	size_t bad;

	if (text_is_utf8(copy, strlen(copy), &bad))
		return json_string_nocheck(copy);
	for (char *p = copy; *p != '\0'; p++)
		if ((unsigned char) *p >= 0x80)
			*p = '?';
	return json_string_nocheck(copy);
}

char *problem_json(const struct problem *p, const char *request_id)
{
	const char *hint = p->hint != NULL ? p->hint : codes[p->code].hint;
	json_t *o = json_object();
	char *text;

	(void) json_object_set_new(o, "type", json_string("about:blank"));
	(void) json_object_set_new(o, "status", json_integer((json_int_t) problem_status(p)));
	(void) json_object_set_new(o, "code", json_string(codes[p->code].name));
	(void) json_object_set_new(o, "message", utf8_text(p->message));
	(void) json_object_set_new(o, "hint", hint != NULL ? utf8_text(hint) : json_null());
	(void) json_object_set_new(o, "request_id", json_string(request_id));
	if (p->exit_code != 0)
		(void) json_object_set_new(o, "exit_code", json_integer(p->exit_code));
	if (p->errors != NULL)
		(void) json_object_set(o, "errors", p->errors);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}
