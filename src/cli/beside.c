#include "cli/beside.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/own.h"

enum { EXIT_REFUSED = 125 };

static char **with_program(const char *program, char **argv)
{
	size_t count = 0;
	char **list;

	while (argv[count] != NULL)
		count++;
	list = xcalloc(count + 2, sizeof *list);
	list[0] = xstrdup(program);
	memcpy(list + 1, argv, count * sizeof *list);
	return list;
}

int cli_become(const char *program, char **argv)
{
	cleanup_free char *installed = xasprintf("../libexec/zwinger/%s", program), *path = NULL;
	const char *const places[] = {program, installed, NULL};
	int r = own_program(places, &path);

	if (r < 0) {
		log_error("the program %s belongs beside zwinger or to ../libexec/zwinger: %s", program, strerror(-r));
		return EXIT_REFUSED;
	}
	(void) execv(path, with_program(program, argv));
	log_error("cannot execute %s: %s", path, strerror(errno));
	return EXIT_REFUSED;
}
