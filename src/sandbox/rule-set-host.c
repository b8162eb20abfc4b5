/* What the rule sets learn of the host: texts of configuration files, and answers of installed clients. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/program-output.h"
#include "sandbox/rule-sets-internal.h"

#define ASK_PATIENCE (5 * USEC_PER_SEC)

/* ---- Files. ---- */

int rule_set_read(const struct rule_set *s, const char *path, char **ret, struct zw_error *e)
{
	cleanup_free char *whole = xasprintf("%s%s", s->from->root, path);
	cleanup_fd int fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	cleanup_free char *text = NULL;
	size_t size;
	int r;

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0)
		return zw_errno(e, errno, "cannot open %s", path);
	r = fd_read_all(fd, RULE_SET_FILE_MAX, &text, &size);
	if (r < 0)
		return zw_errno(e, -r, "cannot read %s", path);
	if (memchr(text, '\0', size) != NULL)
		return zw_error(e, EINVAL, "%s has a NUL byte in it: a text was expected", path);
	*ret = take_ptr(&text);
	return 1;
}

char *rule_set_line(char **text)
{
	char *line = *text;
	size_t size;

	if (line == NULL || *line == '\0')
		return NULL;
	size = strcspn(line, "\n");
	*text = line[size] == '\0' ? NULL : line + size + 1;
	line[size] = '\0';
	if (size > 0 && line[size - 1] == '\r')
		line[size - 1] = '\0';
	return line;
}

char *rule_set_trim(char *text)
{
	static const char white[] = " \t\r\n\f\v";
	size_t size;

	text += strspn(text, white);
	size = strlen(text);
	while (size > 0 && strchr(white, text[size - 1]) != NULL)
		size--;
	text[size] = '\0';
	return text;
}

/* ---- Clients. ---- */

static bool ask_one(const struct rule_set *s, const char *program, const char *const argv[], char ret[RULE_SET_ANSWER_MAX])
{
	const char *home = rule_set_variable(s, "HOME");
	cleanup_free char *path = xasprintf("PATH=%s", s->from->search);
	cleanup_free char *with_home = xasprintf("HOME=%s", home != NULL ? home : "/nonexistent");
	char locale[] = "LANG=C.UTF-8";
	char *const environment[] = {path, with_home, locale, NULL};
	/* Not in the caller's folder, whose files may steer a client. */
	const struct program_call call = {.program = program,
					  .argv = (char *const *) argv,
					  .environment = environment,
					  .quiet = true,
					  .folder = "/",
					  .patience = ASK_PATIENCE};
	bool started;
	ssize_t n = program_output(&call, ret, RULE_SET_ANSWER_MAX - 1, &started);

	if (n < 0)
		return false;
	ret[n] = '\0';
	return memchr(ret, '\0', (size_t) n) == NULL;
}

int rule_set_ask(const struct rule_set *s, const char *const argv[], char ret[RULE_SET_ANSWER_MAX])
{
	const char *folder = s->from->search;

	while (*folder != '\0') {
		size_t size = strcspn(folder, ":");
		cleanup_free char *program = xasprintf("%.*s/%s", (int) size, folder, argv[0]);

		if (folder[0] == '/' && ask_one(s, program, argv, ret))
			return 0;
		folder += size;
		folder += *folder == ':' ? 1 : 0;
	}
	return -ENOENT;
}
