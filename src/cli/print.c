#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "cli/cli.h"

enum { EXIT_REFUSED = 125 };

int cli_print(const char *text)
{
	int r = fd_write_stream(STDOUT_FILENO, text, strlen(text));

	if (r == 0)
		return 0;
	log_error("cannot write to standard output: %s", strerror(-r));
	return EXIT_REFUSED;
}
