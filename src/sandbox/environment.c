#include "sandbox/environment.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static char **find(const struct plan *plan, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < plan->envc; i++)
		if (strncmp(plan->env[i], name, n) == 0 && plan->env[i][n] == '=')
			return &plan->env[i];
	return NULL;
}

void environment_set(struct plan *plan, const char *name, const char *value)
{
	char **have = find(plan, name);

	if (have != NULL) {
		free(*have);
		*have = xasprintf("%s=%s", name, value);
		return;
	}
	plan->env = xrealloc(plan->env, plan->envc + 2, sizeof *plan->env);
	plan->env[plan->envc++] = xasprintf("%s=%s", name, value);
	plan->env[plan->envc] = NULL;
}

void environment_default(struct plan *plan, const char *name, const char *value)
{
	if (find(plan, name) == NULL)
		environment_set(plan, name, value);
}
