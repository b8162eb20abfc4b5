/* Takes values out of bytes that stream by: each is replaced by "[redacted]" in whatever form it shows up. The forms are the
 * value itself, in base64 (both alphabets, at every alignment), and these three as they look percent-encoded, in a JSON string or
 * in HTML.
 *
 * What is held back. A value may come in parts, so the newest bytes wait until no value can reach over their end. How many wait
 * depends on the length of the values and on line ends (no value has one), never on whether the bytes look like the beginning of
 * a value: otherwise who makes the peer pause after each byte could guess a value byte by byte.
 *
 * Values longer than REDACT_VALUE_MAX or with control bytes are passed over: no header can carry them (http-request.c), so none
 * can be echoed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct evbuffer;
struct redact;

enum { REDACT_VALUE_MAX = 4096, REDACT_VALUES_MAX = 4096 };

struct redact *redact_new(void);
/* Wipes the values. Takes NULL. */
void redact_free(struct redact *r);
/* Adds a value. Empty ones are passed over. False when there are more than REDACT_VALUES_MAX (nothing may be passed then). */
bool redact_add(struct redact *r, const char *value, size_t size);

/* Moves from `in` to the end of `out` what may go, replaced; the rest stays in `in` and must be there at the next call, more
 * behind it. `end`: nothing will follow, so everything goes. */
void redact_stream(struct redact *r, struct evbuffer *in, struct evbuffer *out, bool end);
/* The most that redact_stream leaves in `in`. */
size_t redact_window(const struct redact *r);
/* Appends `size` bytes that stand for themselves (a header's value). */
void redact_text(struct redact *r, const char *data, size_t size, struct evbuffer *out);
/* Do the bytes hold a value in any form? */
bool redact_finds(const struct redact *r, const char *data, size_t size);
