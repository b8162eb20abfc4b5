/* Diagnostics for the person at the terminal. The level is the one mutable global of the program. */
#pragma once

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };

void log_set_level(enum log_level level);

/* One line "zwinger: ..." on stderr. log_line is for what the contract promises there and printed at NORMAL and above;
 * log_error always; log_debug at VERBOSE only. Only src/cli prints lines and errors; debug is free anywhere. */
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
