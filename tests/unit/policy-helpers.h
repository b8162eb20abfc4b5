/* What the tests of the policy share. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "policy/policy.h"

/* Text through the whole way. Returns what policy_stack_resolve does. */
static inline int resolve_text(const char *text, struct policy *ret, struct policy_errors *errors)
{
	struct policy_stack *s = policy_stack_new();
	int r = policy_stack_add_text(s, "p.yaml", text, strlen(text), errors);

	if (r == 0)
		r = policy_stack_resolve(s, ret, errors);
	policy_stack_free(s);
	return r;
}

static inline void print_policy_errors(const struct policy_errors *errors)
{
	for (size_t i = 0; i < errors->count; i++) {
		char *text = policy_error_text(&errors->items[i]);

		print_message("# %s\n", text);
		free(text);
	}
}

/* A text that must be a policy. */
static inline struct policy policy_of(const char *text)
{
	struct policy_errors errors = {0};
	struct policy p = {0};

	if (resolve_text(text, &p, &errors) != 0) {
		print_policy_errors(&errors);
		fail_msg("expected a valid policy: %s", text);
	}
	assert_int_equal(errors.count, 0);
	return p;
}

/* True when some error has this line (0: any), key (NULL: any) and words in its message or suggestion. */
static inline bool has_error(const struct policy_errors *errors, unsigned line, const char *key, const char *words)
{
	for (size_t i = 0; i < errors->count; i++) {
		const struct policy_error *e = &errors->items[i];

		if (line != 0 && e->line != line)
			continue;
		if (key != NULL && (e->key == NULL || strcmp(e->key, key) != 0))
			continue;
		if (strstr(e->message, words) != NULL || (e->suggestion != NULL && strcmp(e->suggestion, words) == 0))
			return true;
	}
	return false;
}

/* A text that must be refused, with such an error among the others. */
static inline void assert_refused(const char *text, unsigned line, const char *key, const char *words)
{
	struct policy_errors errors = {0};
	struct policy p;

	if (resolve_text(text, &p, &errors) == 0) {
		policy_done(&p);
		fail_msg("expected an error (%s): %s", words, text);
	}
	if (!has_error(&errors, line, key, words)) {
		print_policy_errors(&errors);
		fail_msg("expected line %u, key %s, \"%s\": %.200s", line, key != NULL ? key : "-", words, text);
	}
	policy_errors_done(&errors);
}
