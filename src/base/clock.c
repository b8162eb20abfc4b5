#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static usec_t read_clock(clockid_t clock)
{
	struct timespec t;

	(void) clock_gettime(clock, &t); /* cannot fail for these clocks */
	return (usec_t) t.tv_sec * USEC_PER_SEC + (usec_t) t.tv_nsec / 1000;
}

usec_t now_monotonic(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

usec_t now_realtime(void)
{
	return read_clock(CLOCK_REALTIME);
}

void format_timestamp(usec_t realtime, char *buf)
{
	time_t seconds = (time_t) (realtime / USEC_PER_SEC);
	struct tm tm;

	(void) gmtime_r(&seconds, &tm);
	(void) snprintf(buf, TIMESTAMP_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned) (tm.tm_year + 1900) % 10000,
			(unsigned) (tm.tm_mon + 1) % 100, (unsigned) tm.tm_mday % 100, (unsigned) tm.tm_hour % 100,
			(unsigned) tm.tm_min % 100, (unsigned) tm.tm_sec % 100, (unsigned) (realtime % USEC_PER_SEC / 1000));
}

const char *format_bytes(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double value = (double) bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
		value /= 1024;
		unit++;
	}
	if (value == (double) (uint64_t) value)
		(void) snprintf(buf, size, "%.0f %s", value, units[unit]);
	else
		(void) snprintf(buf, size, "%.1f %s", value, units[unit]);
	return buf;
}

const char *format_usec(usec_t t, char *buf, size_t size)
{
	if (t < USEC_PER_SEC)
		(void) snprintf(buf, size, "%llu ms", (unsigned long long) (t / USEC_PER_MSEC));
	else if (t % USEC_PER_SEC == 0)
		(void) snprintf(buf, size, "%llu s", (unsigned long long) (t / USEC_PER_SEC));
	else
		(void) snprintf(buf, size, "%.1f s", (double) t / (double) USEC_PER_SEC);
	return buf;
}
