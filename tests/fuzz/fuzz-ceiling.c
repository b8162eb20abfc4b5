/* A request's policy against the ceiling, all the way to the text that a supervisor gets. What is let through says the same when
 * it is read again: it lies within the ceiling, and is written down as before. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/sandbox-policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sandbox_policies *policies(void)
{
	static struct sandbox_policies made;
	static bool done;

	if (!done && sandbox_policies_init(&made, NULL, NULL, NULL, NULL) < 0)
		abort();
	done = true;
	return &made;
}

static void read_again(const char *text)
{
	json_t *policy = json_loads(text, 0, NULL);
	struct sandbox_policy again = {0};
	struct problem problem = {0};

	if (policy == NULL || sandbox_policy_make(policies(), policy, NULL, &again, &problem) < 0 ||
	    strcmp(again.text, text) != 0)
		abort();
	sandbox_policy_done(&again);
	json_decref(policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *policy = json_loadb((const char *) data, size, JSON_REJECT_DUPLICATES, NULL);
	struct sandbox_policy made = {0};
	struct problem problem = {0};

	if (policy == NULL)
		return 0;
	if (sandbox_policy_make(policies(), policy, NULL, &made, &problem) == 0) {
		read_again(made.text);
		sandbox_policy_done(&made);
	}
	json_decref(problem.errors);
	json_decref(policy);
	return 0;
}
