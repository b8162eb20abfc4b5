/* The command line of `zwinger run`: flags that stand for policy keys come from the policy's own table, the others from one here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct run_flag {
	const char *name, *value; /* value NULL: it takes none */
};

struct run_options {
	const char **policies; /* as given; point into argv */
	size_t policy_count;
	struct run_flag *flags; /* for policy_stack_add_flag, in order */
	size_t flag_count;
	char **command; /* NULL-terminated, points into argv; NULL when none */
	const char *input, *result;
	bool tty, json, plan, quiet, verbose, help, version;
};

/* 0, or -EINVAL with a sentence. Release with run_options_done also then. */
int run_options_parse(int argc, char **argv, struct run_options *ret, struct zw_error *e);
void run_options_done(struct run_options *o);

/* The help text, owned by the caller. */
char *run_options_help(void);
