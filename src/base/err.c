#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0))) static void set_text(struct zw_error *e, int err, const char *fmt, va_list ap)
{
	e->code = -err;
	(void) vsnprintf(e->text, sizeof e->text, fmt, ap);
}

int zw_errno(struct zw_error *e, int err, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (e == NULL)
		return -err;
	va_start(ap, fmt);
	set_text(e, err, fmt, ap);
	va_end(ap);
	n = strlen(e->text);
	(void) snprintf(e->text + n, sizeof e->text - n, ": %s", strerror(err));
	return -err;
}

int zw_error(struct zw_error *e, int err, const char *fmt, ...)
{
	va_list ap;

	if (e == NULL)
		return -err;
	va_start(ap, fmt);
	set_text(e, err, fmt, ap);
	va_end(ap);
	return -err;
}

int zw_context(struct zw_error *e, const char *fmt, ...)
{
	char old[sizeof e->text];
	va_list ap;
	size_t n;

	if (e == NULL)
		return -EINVAL;
	memcpy(old, e->text, sizeof old);
	va_start(ap, fmt);
	(void) vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	n = strlen(e->text);
	(void) snprintf(e->text + n, sizeof e->text - n, ": %.*s", (int) (sizeof old - n), old);
	return e->code;
}
