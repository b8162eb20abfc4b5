/* Names of signals. */
#pragma once

/* "KILL" for SIGKILL; NULL for what has no name of its own (real-time signals too). As glibc's sigabbrev_np(3), which other C
 * libraries do not have. */
const char *signal_abbreviation(int number);
