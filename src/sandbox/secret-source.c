#include "sandbox/secret-source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "policy/network.h"
#include "sandbox/program-output.h"

#define COMMAND_PATIENCE (10 * USEC_PER_SEC)

extern char **environ;

/* ---- The plan. ---- */

static bool is_used(const struct network *n, const char *name)
{
	for (size_t i = 0; i < n->rule_count; i++)
		if (n->rules[i].secret.name != NULL && strcmp(n->rules[i].secret.name, name) == 0)
			return true;
	return false;
}

static char *copy(const char *text)
{
	return text != NULL ? xstrdup(text) : NULL;
}

void secret_sources_plan(const struct policy *policy, struct plan *plan)
{
	for (size_t i = 0; plan->network != NULL && i < policy->secret_count; i++) {
		const struct policy_secret *from = &policy->secrets[i];
		struct secret_source *to;

		if (!is_used(plan->network, from->name))
			continue;
		plan->secrets = xrealloc(plan->secrets, plan->secret_count + 1, sizeof *plan->secrets);
		to = &plan->secrets[plan->secret_count++];
		*to = (struct secret_source){.name = copy(from->name), .env = copy(from->env), .file = copy(from->file)};
		if (from->command.count == 0)
			continue;
		to->command = xcalloc(from->command.count + 1, sizeof *to->command);
		for (size_t k = 0; k < from->command.count; k++)
			to->command[k] = xstrdup(from->command.items[k]);
	}
}

void secret_sources_done(struct plan *plan)
{
	for (size_t i = 0; i < plan->secret_count; i++) {
		struct secret_source *s = &plan->secrets[i];

		for (size_t k = 0; s->command != NULL && s->command[k] != NULL; k++)
			free(s->command[k]);
		free(s->command);
		free(s->name);
		free(s->env);
		free(s->file);
	}
	free(plan->secrets);
}

/* ---- The values. ---- */

void secret_wipe(char **value, size_t size)
{
	if (*value != NULL)
		explicit_bzero(*value, size);
	free(*value);
	*value = NULL;
}

/* What a header cannot carry is refused rather than mended. */
static int check(const struct secret_source *s, char **value, size_t *size, struct zw_error *e)
{
	if (*size > 0 && (*value)[*size - 1] == '\n')
		(*value)[--*size] = '\0';
	if (*size == 0)
		return zw_error(e, EINVAL, "the secret %s is empty", s->name);
	/* It is looked for in every answer: what is this short stands in ordinary text, and could be guessed by an echo. */
	if (*size < SECRET_MIN)
		return zw_error(e, EINVAL, "the secret %s has %zu bytes; at least %d are needed to tell it from other text",
				s->name, *size, SECRET_MIN);
	for (size_t i = 0; i < *size; i++)
		if ((unsigned char) (*value)[i] < 0x20 || (*value)[i] == 0x7f)
			return zw_error(e, EINVAL, "the secret %s has a control character in it: one line of text is expected",
					s->name);
	return 0;
}

static int from_environment(const struct secret_source *s, char **ret, size_t *ret_size, struct zw_error *e)
{
	const char *value = getenv(s->env);

	if (value == NULL)
		return zw_error(e, ENOENT, "the secret %s: the environment variable %s is not set", s->name, s->env);
	if (strlen(value) > SECRET_MAX)
		return zw_error(e, E2BIG, "the secret %s is longer than %d bytes", s->name, SECRET_MAX);
	*ret = xstrdup(value);
	*ret_size = strlen(value);
	return 0;
}

static int from_file(const struct secret_source *s, char **ret, size_t *ret_size, struct zw_error *e)
{
	cleanup_fd int fd = open(s->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int r = fd < 0 ? -errno : fd_read_all(fd, SECRET_MAX, ret, ret_size);

	return r < 0 ? zw_errno(e, -r, "the secret %s: cannot read %s", s->name, s->file) : 0;
}

static int from_command(const struct secret_source *s, char **ret, size_t *ret_size, struct zw_error *e)
{
	const struct program_call call = {
	    .program = s->command[0], .argv = s->command, .environment = environ, .search = true, .patience = COMMAND_PATIENCE};
	bool started;
	ssize_t n;

	*ret = xcalloc(1, SECRET_MAX + 2);
	n = program_output(&call, *ret, SECRET_MAX + 1, &started);
	if (n < 0 && !started)
		return zw_errno(e, (int) -n, "the secret %s: cannot run %s", s->name, s->command[0]);
	if (n == -ECHILD)
		return zw_error(e, EIO, "the secret %s: %s did not exit with 0", s->name, s->command[0]);
	if (n < 0)
		return zw_errno(e, (int) -n, "the secret %s: the output of %s", s->name, s->command[0]);
	*ret_size = (size_t) n;
	return 0;
}

int secret_read(const struct secret_source *s, char **ret, size_t *ret_size, struct zw_error *e)
{
	char *value = NULL;
	size_t size = 0;
	int r;

	if (s->env != NULL)
		r = from_environment(s, &value, &size, e);
	else
		r = s->file != NULL ? from_file(s, &value, &size, e) : from_command(s, &value, &size, e);
	if (r == 0)
		r = check(s, &value, &size, e);
	if (r < 0) {
		secret_wipe(&value, size);
		return r;
	}
	*ret = value;
	*ret_size = size;
	return 0;
}
