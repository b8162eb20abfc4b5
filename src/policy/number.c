/* Numbers, sizes and times: exact, without locale, without the leniency of the C library. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "policy/policy.h"
#include "policy/text.h"

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1}, {"K", UINT64_C(1) << 10}, {"M", UINT64_C(1) << 20}, {"G", UINT64_C(1) << 30}, {"T", UINT64_C(1) << 40},
};
static const struct unit time_units[] = {
    {"ms", USEC_PER_MSEC},
    {"s", USEC_PER_SEC},
    {"m", 60 * USEC_PER_SEC},
    {"h", 3600 * USEC_PER_SEC},
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int parse_decimal(const char *text, uint64_t scale, uint64_t *ret, const char **ret_end)
{
	uint64_t value = 0, unit = scale;
	const char *p = text;

	if (!is_digit(*p) || (p[0] == '0' && is_digit(p[1])))
		return -EINVAL;
	for (; is_digit(*p); p++)
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t) (*p - '0'), &value))
			return -ERANGE;
	if (__builtin_mul_overflow(value, scale, &value))
		return -ERANGE;
	if (p[0] == '.' && is_digit(p[1])) {
		uint64_t fraction = 0, divisor = 1;

		/* Nine digits are enough for a nanosecond; what is beyond cannot matter and must not overflow. */
		for (p++; is_digit(*p); p++)
			if (divisor < UINT64_C(1000000000)) {
				fraction = fraction * 10 + (uint64_t) (*p - '0');
				divisor *= 10;
			}
		unit = (uint64_t) ((__uint128_t) fraction * scale / divisor);
		if (__builtin_add_overflow(value, unit, &value))
			return -ERANGE;
	}
	*ret = value;
	*ret_end = p;
	return 0;
}

int parse_whole(const char *text, uint64_t *ret)
{
	const char *end;
	uint64_t value;
	int r = parse_decimal(text, 1, &value, &end);

	if (r < 0)
		return r;
	if (*end != '\0' || strchr(text, '.') != NULL)
		return -EINVAL;
	*ret = value;
	return 0;
}

static int parse_with_unit(const char *text, const struct unit *units, size_t count, uint64_t *ret)
{
	const char *end;
	uint64_t value;
	int r;

	if (strcmp(text, "null") == 0) {
		*ret = ZW_UNLIMITED;
		return 0;
	}
	r = parse_decimal(text, 1, &value, &end);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(end, units[i].name) != 0)
			continue;
		r = parse_decimal(text, units[i].factor, &value, &end);
		if (r < 0)
			return r;
		if (value == ZW_UNLIMITED)
			return -ERANGE;
		*ret = value;
		return 0;
	}
	return -EINVAL;
}

int parse_size(const char *text, uint64_t *ret)
{
	/* "1.5" bytes is a slip, not a size. */
	if (strchr(text, '.') != NULL && is_digit(text[strlen(text) - 1]))
		return -EINVAL;
	return parse_with_unit(text, size_units, ARRAY_SIZE(size_units), ret);
}

int parse_usec(const char *text, usec_t *ret)
{
	return parse_with_unit(text, time_units, ARRAY_SIZE(time_units), ret);
}

/* The largest unit that divides the value. */
static char *format_word(uint64_t value, const struct unit *units, size_t count)
{
	const struct unit *best = &units[0];

	if (value == ZW_UNLIMITED)
		return xstrdup("null");
	for (size_t i = 0; i < count; i++)
		if (value != 0 && value % units[i].factor == 0)
			best = &units[i];
	return xasprintf("%llu%s", (unsigned long long) (value / best->factor), best->name);
}

char *format_size_word(uint64_t size)
{
	return format_word(size, size_units, ARRAY_SIZE(size_units));
}

char *format_time_word(uint64_t usec)
{
	return format_word(usec, time_units, ARRAY_SIZE(time_units));
}
