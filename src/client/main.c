/* zwinger-client: the verbs that talk to a daemon. A program of its own, so that `zwinger run` does not start with an HTTP
 * library; `zwinger VERB` becomes it. */
#include <curl/curl.h>
#include <jansson.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/show.h"
#include "client/verbs.h"
#include "policy/text.h"

static const struct client_verb verbs[] = {
    {"create", VERB_CREATE, verb_create, "[--template NAME] [--policy FILE] [--timeout TIME] [FLAG...]",
     "Makes a sandbox and prints its id.", 0, 0, false},
    {"exec", VERB_EXEC, verb_exec, "[-i] [-t] [FLAG...] ID [--] COMMAND [ARG...]",
     "Runs a command in a sandbox, with its streams and its exit status.", 2, SIZE_MAX, true},
    {"ps", VERB_PS, verb_ps, "[--all] [FLAG...] [ID]", "Lists the sandboxes, or the processes of one.", 0, 1, false},
    {"logs", VERB_LOGS, verb_logs, "[-f] [FLAG...] ID", "Prints the kept output of a sandbox's processes.", 1, 1, false},
    {"cp", VERB_CP, verb_cp, "[FLAG...] SRC DST", "Copies files and folders; one of SRC and DST is ID:PATH, the other may be -.",
     2, 2, false},
    {"kill", VERB_KILL, verb_kill, "[-s SIGNAL] [FLAG...] ID PID", "Sends a signal to a process of a sandbox.", 2, 2, false},
    {"rm", VERB_RM, verb_rm, "[FLAG...] ID...", "Ends sandboxes.", 1, SIZE_MAX, false},
    {"stats", VERB_STATS, verb_stats, "[FLAG...] [ID...]", "What sandboxes use.", 0, SIZE_MAX, false},
    {"top", VERB_TOP, verb_top, "[FLAG...]", "What sandboxes use, again and again.", 0, 0, false},
    {"pause", VERB_PAUSE, verb_pause, "[FLAG...] ID...", "Freezes sandboxes and stops their clock.", 1, SIZE_MAX, false},
    {"resume", VERB_RESUME, verb_resume, "[FLAG...] ID...", "Lets paused sandboxes go on.", 1, SIZE_MAX, false},
    {"fork", VERB_FORK, verb_fork, "[--count N] [FLAG...] ID", "Makes copies of a sandbox's files and prints their ids.", 1, 1,
     false},
    {"mcp", VERB_MCP, verb_mcp, "[--url URL] [--key-file FILE] [--state DIR] [--cacert FILE]",
     "An MCP server on standard input and output, whose sandboxes are those of a daemon.", 0, 0, false},
};

/* A document that lost a part to a lack of memory would say what is not true, or crash who prints it. */
static void *json_memory(size_t size)
{
	return xrealloc(NULL, size, 1);
}

static int run(const struct client_verb *verb, int argc, char **argv)
{
	struct client_options o = {0};
	struct zw_error e = {0};
	int status;

	if (client_options_read(verb, argc, argv, &o, &e) < 0) {
		log_error("%s", e.text);
		status = EXIT_REFUSED;
	} else if (o.version) {
		status = show_text("zwinger " ZWINGER_VERSION "\n");
	} else if (o.help) {
		cleanup_free char *text = client_options_help(verb);

		status = show_text(text);
	} else {
		status = verb->run(&o);
	}
	client_options_done(&o);
	return status;
}

int main(int argc, char **argv)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	int status = EXIT_REFUSED;

	if (fd_sanitize_stdio() < 0)
		return EXIT_REFUSED;
	json_set_alloc_funcs(json_memory, free);
	(void) sigaction(SIGPIPE, &ignore, NULL); /* cannot fail */
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		log_error("libcurl cannot be started");
		return EXIT_REFUSED;
	}
	for (size_t i = 0; i < ARRAY_SIZE(verbs) && argc > 1; i++)
		if (strcmp(argv[1], verbs[i].name) == 0) {
			status = run(&verbs[i], argc - 1, argv + 1);
			curl_global_cleanup();
			return status;
		}
	log_error("this is started by zwinger; see zwinger --help");
	return EXIT_REFUSED;
}
