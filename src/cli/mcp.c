/* zwinger mcp: a part of the daemon's program, whose parts it needs. */
#include "cli/beside.h"
#include "cli/cli.h"

int cli_mcp(int argc, char **argv)
{
	(void) argc;
	return cli_become("zwingerd", argv);
}
