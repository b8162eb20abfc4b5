/* What this host can enforce, found by trying the thing in a child, never by reading a version. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct doctor_check {
	const char *name;
	const char *serves;             /* which level or control needs it */
	bool required;                  /* the container level cannot run without it */
	bool (*applies)(void);          /* NULL: always */
	int (*run)(struct zw_error *e); /* in a child of its own: 0, or negative errno and a sentence */
	const char *remedy;
};

extern const struct doctor_check doctor_checks[];
extern const size_t doctor_check_count;

/* Runs a check in a child and brings its answer back. 0, or negative errno with the child's sentence. */
int doctor_try(const struct doctor_check *check, struct zw_error *e);
