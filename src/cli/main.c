/* zwinger: the verbs. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "policy/text.h"

enum { EXIT_REFUSED = 125 };

static int verb_version(int argc, char **argv)
{
	(void) argc;
	(void) argv;
	return cli_print("zwinger " ZWINGER_VERSION "\n");
}

static int verb_help(int argc, char **argv);

static const struct verb {
	const char *name, *alias;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
    {"run", NULL, cli_run, "run a program inside a sandbox"},
    {"policy", NULL, cli_policy, "check and explain policies, list presets and keys"},
    {"serve", NULL, cli_serve, "sandboxes over HTTP: the daemon"},
    {"mcp", NULL, cli_mcp, "sandboxes as tools of an agent: MCP on standard input and output"},
    {"keys", NULL, cli_keys, "keys of the HTTP interface: add, list, revoke"},
    {"create", NULL, cli_client, "make a sandbox of a daemon and print its id"},
    {"exec", NULL, cli_client, "run a command in a sandbox"},
    {"ps", NULL, cli_client, "list sandboxes, or the processes of one"},
    {"logs", NULL, cli_client, "the output of a sandbox's processes"},
    {"cp", NULL, cli_client, "copy files to and from a sandbox"},
    {"kill", NULL, cli_client, "send a signal to a process of a sandbox"},
    {"rm", NULL, cli_client, "end sandboxes"},
    {"stats", NULL, cli_client, "what sandboxes use"},
    {"top", NULL, cli_client, "what sandboxes use, again and again"},
    {"pause", NULL, cli_client, "freeze sandboxes"},
    {"resume", NULL, cli_client, "let paused sandboxes go on"},
    {"fork", NULL, cli_client, "copy a sandbox"},
    {"doctor", NULL, cli_doctor, "what this host can enforce, and what it lacks"},
    {"help", "--help", verb_help, "this text, or that of a verb"},
    {"version", "--version", verb_version, "the version"},
    {"launcher", NULL, cli_launcher, NULL}, /* started by the daemon */
};

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0 || (verbs[i].alias != NULL && strcmp(verbs[i].alias, name) == 0))
			return &verbs[i];
	return strcmp(name, "-h") == 0 ? find_verb("help") : NULL;
}

static int unknown_verb(const char *name)
{
	cleanup_free char *quoted = text_quote(name);
	struct nearest n = nearest_to(name);

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (verbs[i].help != NULL)
			nearest_try(&n, verbs[i].name);
	if (n.best != NULL)
		log_error("there is no verb %s (did you mean \"%s\"?); see zwinger --help", quoted, n.best);
	else
		log_error("there is no verb %s; see zwinger --help", quoted);
	return EXIT_REFUSED;
}

static int verb_help(int argc, char **argv)
{
	char help_flag[] = "--help";
	const struct verb *v = argc > 1 ? find_verb(argv[1]) : NULL;
	int r;

	if (argc > 1 && v == NULL)
		return unknown_verb(argv[1]);
	if (v != NULL && v->run != verb_help) {
		char *help_argv[] = {argv[1], help_flag, NULL};

		return v->run(2, help_argv);
	}
	r = cli_print("usage: zwinger VERB [ARGUMENT...]\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs) && r == 0; i++) {
		cleanup_free char *line = verbs[i].help != NULL ? xasprintf("  %-9s %s\n", verbs[i].name, verbs[i].help) : NULL;

		if (line != NULL)
			r = cli_print(line);
	}
	return r != 0 ? r : cli_print("\nzwinger VERB --help has more. See zwinger(1).\n");
}

/* A document that lost a part to a lack of memory would say what is not true, or crash who prints it. */
static void *json_memory(size_t size)
{
	return xrealloc(NULL, size, 1);
}

int main(int argc, char **argv)
{
	const struct verb *v;

	json_set_alloc_funcs(json_memory, free);
	/* A caller may have closed them; the next file opened would become our standard output. */
	if (fd_sanitize_stdio() < 0)
		return EXIT_REFUSED;
	if (argc < 2) {
		log_error("no verb given; see zwinger --help");
		return EXIT_REFUSED;
	}
	v = find_verb(argv[1]);
	if (v != NULL && argc == 3 && strcmp(argv[2], "--version") == 0)
		return verb_version(argc, argv);
	return v != NULL ? v->run(argc - 1, argv + 1) : unknown_verb(argv[1]);
}
