#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

static enum log_level current_level = LOG_NORMAL;

void log_set_level(enum log_level level)
{
	current_level = level;
}

/* One write(2) a line, so that lines of concurrent writers do not mix. Control characters, which may come from inside a
 * sandbox, are replaced so that they cannot drive the terminal. */
__attribute__((format(printf, 1, 0))) static void print_line(const char *fmt, va_list ap)
{
	char line[1024] = "zwinger: ";
	size_t n = strlen(line);

	(void) vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
	n = strlen(line);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char) line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	(void) fd_write_all(STDERR_FILENO, line, n);
}

#define PRINT_FROM(level)                                                                                                        \
	do {                                                                                                                     \
		va_list ap;                                                                                                      \
		if (current_level < (level))                                                                                     \
			return;                                                                                                  \
		va_start(ap, fmt);                                                                                               \
		print_line(fmt, ap);                                                                                             \
		va_end(ap);                                                                                                      \
	} while (0)

void log_error(const char *fmt, ...)
{
	PRINT_FROM(LOG_QUIET);
}

void log_line(const char *fmt, ...)
{
	PRINT_FROM(LOG_NORMAL);
}

void log_debug(const char *fmt, ...)
{
	PRINT_FROM(LOG_VERBOSE);
}
