/* zwinger mcp: a part of the daemon's program, whose parts it needs; through a daemon, one of its client's. */
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/beside.h"
#include "cli/cli.h"

enum { EXIT_REFUSED = 125 };

static bool is_flag(const char *word, const char *flag)
{
	size_t size = strlen(flag);

	return strncmp(word, flag, size) == 0 && (word[size] == '\0' || word[size] == '=');
}

/* Does one of the words name a daemon? *ret_policy: does one name a policy? */
static bool names_daemon(int argc, char **argv, bool *ret_policy)
{
	static const char *const flags[] = {"--url", "--key-file", "--state", "--cacert"};
	bool found = false;

	for (int i = 1; i < argc; i++) {
		*ret_policy = *ret_policy || is_flag(argv[i], "--policy");
		for (size_t k = 0; k < ARRAY_SIZE(flags); k++)
			found = found || is_flag(argv[i], flags[k]);
	}
	return found;
}

int cli_mcp(int argc, char **argv)
{
	bool policy = false, daemon = names_daemon(argc, argv, &policy);

	if (daemon && policy) {
		log_error(
		    "--policy does not go together with a daemon: its operator chooses the policy (zwinger serve --policy)");
		return EXIT_REFUSED;
	}
	return cli_become(daemon ? "zwinger-client" : "zwingerd", argv);
}
