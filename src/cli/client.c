/* The verbs that talk to a daemon: a program of their own, so that no HTTP library burdens the start of a sandbox. */
#include "cli/beside.h"
#include "cli/cli.h"

int cli_client(int argc, char **argv)
{
	(void) argc;
	return cli_become("zwinger-client", argv);
}
