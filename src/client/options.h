/* What the verbs that talk to a daemon are told: one table of options, which the parser, the help and the completion read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "policy/policy.h"

enum verb_bit {
	VERB_CREATE = 1 << 0,
	VERB_EXEC = 1 << 1,
	VERB_PS = 1 << 2,
	VERB_LOGS = 1 << 3,
	VERB_CP = 1 << 4,
	VERB_KILL = 1 << 5,
	VERB_RM = 1 << 6,
	VERB_STATS = 1 << 7,
	VERB_TOP = 1 << 8,
	VERB_PAUSE = 1 << 9,
	VERB_RESUME = 1 << 10,
	VERB_FORK = 1 << 11,
	VERB_MCP = 1 << 12,
	VERB_ALL = (1 << 13) - 1,
};

struct client_options {
	const char *url, *key_file, *state, *cacert; /* where the daemon is; NULL: not said */
	const char *policy, *template, *name, *timeout, *on_timeout, *count, *cwd, *user, *signal;
	struct strv metadata, env; /* KEY=VALUE; the texts belong to the caller's argv */
	bool json, help, version, all, follow, interactive, tty;
	char **words; /* what follows the options, NULL behind the last; part of the caller's argv */
	size_t word_count;
};

struct client_verb {
	const char *name;
	enum verb_bit bit;
	int (*run)(const struct client_options *o); /* the exit status */
	const char *usage, *help;
	size_t words_min, words_max;
	bool command; /* options end at the first word: what follows is a command */
};

/* argv[0] is the verb. -EINVAL with a sentence. */
int client_options_read(const struct client_verb *verb, int argc, char **argv, struct client_options *ret, struct zw_error *e);
void client_options_done(struct client_options *o);
/* The help of a verb; owned by the caller. */
char *client_options_help(const struct client_verb *verb);
