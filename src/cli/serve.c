/* zwinger serve: the daemon is a program of its own, so that nothing of it burdens the start of a sandbox. */
#include "cli/beside.h"
#include "cli/cli.h"

int cli_serve(int argc, char **argv)
{
	(void) argc;
	return cli_become("zwingerd", argv);
}
