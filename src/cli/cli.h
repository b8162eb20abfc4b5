/* The verbs of `zwinger`. argv[0] is the verb ("run"), its arguments follow; the result is the exit status. */
#pragma once

#include <stddef.h>

int cli_run(int argc, char **argv);
int cli_policy(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_mcp(int argc, char **argv);
int cli_keys(int argc, char **argv);
int cli_client(int argc, char **argv);   /* the verbs that talk to a daemon */
int cli_launcher(int argc, char **argv); /* for the daemon: not in the help */

/* Text for a person or a pipe on standard output. 0, or 125 (and a line on standard error) when it cannot be written. */
int cli_print(const char *text);
