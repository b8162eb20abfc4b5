/* Our other programs, which lie beside this one. */
#pragma once

/* Executes `program` ("zwingerd") in place of this process, with argv[0] and what follows as its arguments. Returns only when
 * that fails: the exit status, after one line on standard error. */
int cli_become(const char *program, char **argv);
