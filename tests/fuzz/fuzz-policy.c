/* Policies and flags as foreign bytes, all the way: text to tree to struct to sentences. An input that starts with "!" is a list
 * of flags, one "--flag=value" a line; every other one is a document. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The flag without its value takes it where none follows "=". */
static void add_flag(struct policy_stack *s, char *line, struct policy_errors *errors)
{
	char *equals = strchr(line, '=');

	if (equals != NULL)
		*equals = '\0';
	(void) policy_stack_add_flag(s, line, equals != NULL ? equals + 1 : NULL, errors);
}

static void add_flags(struct policy_stack *s, const char *text, size_t size, struct policy_errors *errors)
{
	cleanup_free char *copy = xstrndup(text, size);

	for (char *line = copy; line != NULL;) {
		char *end = strchr(line, '\n');

		if (end != NULL)
			*end++ = '\0';
		add_flag(s, line, errors);
		line = end;
	}
}

static void look_at_errors(const struct policy_errors *errors)
{
	for (size_t i = 0; i < errors->count; i++)
		free(policy_error_text(&errors->items[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char below[] = "filesystem: {read: [/srv/a], workspace: .}\nsecrets: {t: {env: T}}\nenv: {set: {A: b}}\n";
	const char *text = (const char *) data;
	struct policy_stack *s = policy_stack_new();
	struct policy_errors errors = {0};
	struct policy p;

	(void) policy_stack_add_text(s, "below", below, sizeof below - 1, &errors);
	if (size > 0 && text[0] == '!')
		add_flags(s, text + 1, size - 1, &errors);
	else
		(void) policy_stack_add_text(s, "fuzz", text, size, &errors);
	if (policy_stack_resolve(s, &p, &errors) == 0) {
		free(policy_explain(&p));
		(void) policy_unbuilt(&p, NULL, NULL);
		policy_done(&p);
	}
	look_at_errors(&errors);
	policy_errors_done(&errors);
	policy_stack_free(s);
	return 0;
}
