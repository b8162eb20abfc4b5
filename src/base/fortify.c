/* What libraries call that were compiled for glibc with _FORTIFY_SOURCE (Debian's libjansson.a and libyaml.a), for the build with
 * musl, which has no such functions. `room` is what the compiler knows of the buffer's size; ending the process when it is
 * exceeded is what they are for. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __vsnprintf_chk(char *buf, size_t size, int flag, size_t room, const char *format, va_list args)
    __attribute__((format(printf, 5, 0)));
int __snprintf_chk(char *buf, size_t size, int flag, size_t room, const char *format, ...) __attribute__((format(printf, 5, 6)));
int __sprintf_chk(char *buf, int flag, size_t room, const char *format, ...) __attribute__((format(printf, 4, 5)));
char *__strncpy_chk(char *to, const char *from, size_t size, size_t room);

int __vsnprintf_chk(char *buf, size_t size, int flag, size_t room, const char *format, va_list args)
{
	(void) flag; /* forbids %n in writable formats; these have literals only */
	if (size > room)
		__builtin_trap();
	return vsnprintf(buf, size, format, args);
}

int __snprintf_chk(char *buf, size_t size, int flag, size_t room, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = __vsnprintf_chk(buf, size, flag, room, format, args);
	va_end(args);
	return n;
}

int __sprintf_chk(char *buf, int flag, size_t room, const char *format, ...)
{
	va_list args;
	int n;

	(void) flag;
	va_start(args, format);
	n = vsnprintf(buf, room, format, args);
	va_end(args);
	if (n >= 0 && (size_t) n >= room)
		__builtin_trap();
	return n;
}

char *__strncpy_chk(char *to, const char *from, size_t size, size_t room)
{
	size_t n = strnlen(from, size);

	if (size > room)
		__builtin_trap();
	memcpy(to, from, n);
	memset(to + n, 0, size - n);
	return to;
}
