/* The audit: one JSON object a line, schema "zwinger.audit/1", appended to a file of the host (docs/audit.md). What comes from
 * inside is escaped and bounded. A line is one write(2) on an O_APPEND descriptor, so that several runs can share a file. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "sandbox/plan.h"
#include "sandbox/sandbox.h"

struct audit;

/* The line for an event, as an object: a new reference. */
json_t *audit_record(const struct event *e);

/* Opens or makes (mode 0600) the file. Never waits: a pipe without a reader is an error. */
int audit_open(const char *path, struct audit **ret, struct zw_error *e);

/* Whoever watches a run and writes it down. Valid until audit_close. An event that cannot be written is counted, and the run goes
 * on. */
struct observer audit_observer(struct audit *a);

/* Closes and frees (NULL is fine). Negative errno of the first event that could not be written, with a sentence that says how
 * many. */
int audit_close(struct audit *a, struct zw_error *e);

/* Does the audit file lie where the code inside could write to it: in the folder of a writable mount, or is it the file of one?
 * Looked at by inode, through whatever links lead there; a link in such a folder could lead anywhere and counts too. True as well
 * when that cannot be found out. */
bool audit_path_is_exposed(const struct plan *plan, const char *path);

/* Only whether a link that the code inside could have made, in this run or an earlier one, leads to the file. */
bool audit_path_is_led(const struct plan *plan, const char *path);
