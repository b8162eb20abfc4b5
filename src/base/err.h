/* Errors: an int result (0 or positive is success, negative errno is failure) and a sentence that says what was
 * attempted. Library code fills the sentence and returns; only main programs print it. */
#pragma once

struct zw_error {
	int code; /* negative errno, 0 while nothing failed */
	char text[480];
};

/* Sets the sentence to "<fmt>: <strerror>" and returns -err. `err` is a positive errno. A NULL `e` only returns. */
int zw_errno(struct zw_error *e, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same without the errno text, for faults whose sentence says everything. */
int zw_error(struct zw_error *e, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<fmt>: " in front of the sentence and returns e->code. */
int zw_context(struct zw_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
