/* Bytes that came from inside, made fit for a JSON document. */
#pragma once

#include <stddef.h>

/* How many bytes at the end of `data` are the beginning of a UTF-8 character that is not complete: 0 to 3. */
size_t utf8_incomplete_tail(const char *data, size_t size);
/* How many bytes at the beginning of `data` are continuation bytes of a UTF-8 character: 0 to 3. */
size_t utf8_continuation_head(const char *data, size_t size);

/* Length of the UTF-8 character at `s` (NUL-terminated), 0 when there is none (RFC 3629: no surrogates, no overlong forms). */
size_t utf8_length(const char *s);

/* Valid UTF-8 as it is; a byte that is not becomes \xff. Owned by the caller. */
char *encode_text(const char *s);
/* The same, and a backslash becomes \\, so that the original can be had back. */
char *encode_path(const char *s);

char *encode_base64(const char *data, size_t size);
