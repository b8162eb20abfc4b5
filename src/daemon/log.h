/* The daemon's record of its own work: one line an event, as text for people or as JSON for machines, on standard error or in a
 * file. A reader that does not read costs lines, never time: what cannot be written at once is dropped and counted.
 *
 * Never in a line: keys, tokens, query strings, bodies. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

enum dlog_level { DLOG_DEBUG, DLOG_INFO, DLOG_WARNING, DLOG_ERROR };

struct dlog;

struct dlog_field {
	const char *name; /* NULL ends a list */
	const char *text; /* NULL: a number */
	uint64_t number;
	bool micro; /* number is in microseconds, written as seconds */
};

static inline struct dlog_field dlog_text(const char *name, const char *text)
{
	return (struct dlog_field){.name = name, .text = text != NULL ? text : ""};
}

static inline struct dlog_field dlog_number(const char *name, uint64_t number)
{
	return (struct dlog_field){.name = name, .number = number};
}

static inline struct dlog_field dlog_seconds(const char *name, usec_t t)
{
	return (struct dlog_field){.name = name, .number = t, .micro = true};
}

/* `path` NULL: standard error. Made with mode 0600, appended to. NULL with a sentence. */
struct dlog *dlog_new(const char *path, bool json, struct zw_error *e);
struct dlog *dlog_free(struct dlog *l);
/* Opens the file anew, after somebody has moved it away. On failure the old one goes on. */
int dlog_reopen(struct dlog *l, struct zw_error *e);

/* dlog(l, DLOG_INFO, "listening", dlog_text("address", "127.0.0.1:1")); a NULL `l` writes nothing. */
void dlog_write(struct dlog *l, enum dlog_level level, const char *event, const struct dlog_field *fields);
#define dlog(l, level, event, ...)                                                                                               \
	dlog_write(l, level, event, (const struct dlog_field[]){__VA_ARGS__ __VA_OPT__(, ){.name = NULL}})
