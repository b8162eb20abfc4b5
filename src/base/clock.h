/* Time in microseconds everywhere. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint64_t usec_t;

#define USEC_PER_SEC UINT64_C(1000000)
#define USEC_PER_MSEC UINT64_C(1000)

/* "No limit" for times, sizes and counts of the policy. */
#define ZW_UNLIMITED UINT64_MAX

usec_t now_monotonic(void);
usec_t now_realtime(void);

enum { TIMESTAMP_SIZE = sizeof "2026-01-31T12:00:00.000Z" };

/* RFC 3339 in UTC with milliseconds; `buf` has TIMESTAMP_SIZE bytes. */
void format_timestamp(usec_t realtime, char *buf);

/* "512 MiB", "3 KiB", "17 bytes": for sentences. Returns buf. */
const char *format_bytes(uint64_t bytes, char *buf, size_t size);

/* "1.5 s", "20 ms": for sentences. Returns buf. */
const char *format_usec(usec_t t, char *buf, size_t size);
