/* Where the running program itself lies (proc_pid_exe(5)). Programs of ours are looked for beside it: an environment variable or
 * the search path would let others choose what is executed. */
#pragma once

/* The first of `places` (relative to the running program's folder, NULL at the end) that is there, in *path, which the caller
 * frees. 0 or negative errno: -ENOENT when none is. */
int own_program(const char *const *places, char **path);
