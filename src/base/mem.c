#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void out_of_memory(void)
{
	static const char text[] = "zwinger: out of memory\n";

	(void) !write(STDERR_FILENO, text, sizeof text - 1);
	_exit(125); /* the status of a fault of zwinger's own: nobody is to take this for a crash */
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n != 0 ? n : 1, size != 0 ? size : 1);

	if (p == NULL)
		out_of_memory();
	return p;
}

void *xrealloc(void *p, size_t n, size_t size)
{
	void *q;

	if (size != 0 && n > SIZE_MAX / size)
		out_of_memory();
	q = realloc(p, n * size != 0 ? n * size : 1);
	if (q == NULL)
		out_of_memory();
	return q;
}

char *xstrndup(const char *s, size_t n)
{
	size_t size = strnlen(s, n);
	char *p = xcalloc(size + 1, 1);

	memcpy(p, s, size);
	return p;
}

char *xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&p, fmt, ap);
	va_end(ap);
	if (n < 0)
		out_of_memory();
	return p;
}
