/* zwinger keys: the daemon's program has the database. */
#include "cli/beside.h"
#include "cli/cli.h"

int cli_keys(int argc, char **argv)
{
	(void) argc;
	return cli_become("zwingerd", argv);
}
