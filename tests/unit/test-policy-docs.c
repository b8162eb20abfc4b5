/* test-policy-docs MARKDOWN MAN: every key of the schema stands in both, in the first one with its default and flag. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/mem.h"
#include "policy/policy.h"

enum { DOCUMENT_MAX = 1024 * 1024 };

static char *read_document(const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t size;

	if (fd < 0 || fd_read_all(fd, DOCUMENT_MAX, &text, &size) < 0)
		return NULL;
	return text;
}

static bool row_says(const char *row, const char *def, const char *flag)
{
	cleanup_free char *line = xstrndup(row, strcspn(row, "\n"));

	return strstr(line, def) != NULL && (flag == NULL || strstr(line, flag) != NULL);
}

/* Some row of a table has the key in its first column, and default and flag behind it. */
static bool in_markdown(const char *document, const struct policy_key *k)
{
	cleanup_free char *cell = xasprintf("\n| `%s` |", k->key);
	cleanup_free char *def = k->def != NULL ? xasprintf("| `%s`", k->def) : xstrdup("|");

	for (const char *row = strstr(document, cell); row != NULL; row = strstr(row + 1, cell))
		if (row_says(row + 1, def, k->flag))
			return true;
	return false;
}

static bool in_man_page(const char *document, const struct policy_key *k)
{
	cleanup_free char *item = xasprintf("\n.It Cm %s", k->key);

	return strstr(document, item) != NULL;
}

static bool check(unsigned number, const struct policy_key *k, const char *document, const char *what,
		  bool (*present)(const char *document, const struct policy_key *k))
{
	bool good = document != NULL && present(document, k);

	(void) printf("%s %u - %s stands in the %s\n", good ? "ok" : "not ok", number, k->key, what);
	return good;
}

int main(int argc, char **argv)
{
	cleanup_free char *markdown = argc == 3 ? read_document(argv[1]) : NULL;
	cleanup_free char *man = argc == 3 ? read_document(argv[2]) : NULL;
	struct policy_key k;
	unsigned count = 0;
	bool good = true;

	for (size_t i = 0; policy_key_at(i, &k); i++) {
		good = check(++count, &k, markdown, "table of docs/policy.md with default and flag", in_markdown) && good;
		good = check(++count, &k, man, "man page", in_man_page) && good;
	}
	(void) printf("1..%u\n", count);
	return good ? 0 : 1;
}
