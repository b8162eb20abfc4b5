/* Errors in the form of E2B's interfaces. Clients look at `code` of the body as much as at the status. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/e2b/e2b.h"
#include "policy/text.h"

/* A message may repeat what the peer sent, cut anywhere. */
static json_t *text_of(char *text)
{
	size_t bad;

	if (!text_is_utf8(text, strlen(text), &bad))
		for (char *p = text; *p != '\0'; p++)
			if ((unsigned char) *p >= 0x80)
				*p = '?';
	return json_string(text);
}

void e2b_refuse(struct request *r, unsigned status, const char *fmt, ...)
{
	char message[700];
	va_list ap;

	va_start(ap, fmt);
	(void) vsnprintf(message, sizeof message, fmt, ap);
	va_end(ap);
	respond_json(r, status, json_pack("{si so}", "code", (int) status, "message", text_of(message)));
}

void e2b_refuse_gone(struct request *r, const char *sandbox_id)
{
	char id[64];

	(void) snprintf(id, sizeof id, "%s", sandbox_id);
	respond_json(r, 502,
		     json_pack("{so ss si}", "sandboxId", text_of(id), "message", "The sandbox was not found", "code", 502));
}

json_t *e2b_error_to_json(const struct problem *p)
{
	unsigned status = problem_status(p);
	char message[700];

	if (p->code == PROBLEM_SANDBOX_ENDED)
		status = 404; /* there, an ended sandbox is none */
	(void) snprintf(message, sizeof message, "%s%s%s", p->message, p->hint != NULL ? "; " : "",
			p->hint != NULL ? p->hint : "");
	return json_pack("{si so}", "code", (int) status, "message", text_of(message));
}

void e2b_write_problem(struct request *r, const struct problem *p)
{
	json_t *error = e2b_error_to_json(p);

	respond_json(r, (unsigned) json_integer_value(json_object_get(error, "code")), error);
}
