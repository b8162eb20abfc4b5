/* The faults of a policy, collected. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/policy.h"

/* A policy of a stranger must not be able to fill the memory with its faults. */
enum { ERRORS_MAX = 1000 };

static bool same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* A document is looked at when it is added and again, merged, when the stack is resolved: the same fault is told once. */
static bool is_known(const struct policy_errors *errors, const struct policy_error *e)
{
	for (size_t i = 0; i < errors->count; i++) {
		const struct policy_error *o = &errors->items[i];

		if (o->line == e->line && same(o->key, e->key) && same(o->message, e->message) && same(o->file, e->file))
			return true;
	}
	return false;
}

static void error_done(struct policy_error *e)
{
	free(e->file);
	free(e->key);
	free(e->message);
	free(e->suggestion);
}

static char *copy(const char *s)
{
	return s == NULL ? NULL : xstrdup(s);
}

void policy_errors_add(struct policy_errors *errors, const char *file, unsigned line, const char *key, const char *suggestion,
		       const char *fmt, ...)
{
	struct policy_error e = {.file = copy(file), .line = line, .key = copy(key), .suggestion = copy(suggestion)};
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&e.message, fmt, ap) < 0)
		e.message = xstrdup(fmt);
	va_end(ap);
	if (errors->count > ERRORS_MAX || is_known(errors, &e)) {
		error_done(&e);
		return;
	}
	if (errors->count == ERRORS_MAX) {
		error_done(&e);
		e = (struct policy_error){.file = copy(file),
					  .message = xasprintf("more than %d errors; the rest is not listed", ERRORS_MAX)};
	}
	errors->items = xrealloc(errors->items, errors->count + 1, sizeof *errors->items);
	errors->items[errors->count++] = e;
}

void policy_errors_done(struct policy_errors *errors)
{
	for (size_t i = 0; i < errors->count; i++)
		error_done(&errors->items[i]);
	free(errors->items);
	*errors = (struct policy_errors){0};
}

char *policy_error_text(const struct policy_error *e)
{
	bool flag = e->file != NULL && strncmp(e->file, "flag ", 5) == 0;
	cleanup_free char *line = e->line > 0 ? xasprintf(":%u", e->line) : xstrdup("");
	cleanup_free char *hint = e->suggestion != NULL ? xasprintf(" (did you mean \"%s\"?)", e->suggestion) : xstrdup("");
	bool with_key = e->key != NULL && !flag;

	return xasprintf("%s%s%s%s%s%s%s", e->file != NULL ? e->file : "", line, e->file != NULL ? ": " : "",
			 with_key ? e->key : "", with_key ? ": " : "", e->message, hint);
}
