/* Words and numbers as people write them: quoting for messages, the nearest known word, strict numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text in double quotes for a message: control characters, C1 codes and bidirectional overrides escaped (a policy may come
 * from a stranger and the message goes to a terminal), cut after some sixty bytes. Owned by the caller. */
char *text_quote(const char *s);

/* The same without the quotes and up to `max` bytes: for keys and for the messages of parsers that repeat their input. */
char *text_escape(const char *s, size_t max);

/* True when the bytes are UTF-8 (RFC 3629) without NUL; else *ret_offset is where they stop being that. */
bool text_is_utf8(const char *data, size_t size, size_t *ret_offset);

/* The nearest of some words by edits (insert, delete, replace, swap neighbours), for "did you mean". */
struct nearest {
	const char *word, *best;
	size_t distance;
};

struct nearest nearest_to(const char *word);
void nearest_try(struct nearest *n, const char *candidate);
void nearest_try_all(struct nearest *n, const char *const *words); /* NULL-terminated */

/* "12" or "1.25" times `scale`, exactly as far as the scale goes. *ret_end is the first byte behind. 0, -EINVAL or -ERANGE. */
int parse_decimal(const char *text, uint64_t scale, uint64_t *ret, const char **ret_end);

/* A whole number, nothing else: no sign, no white space, no leading zero. 0, -EINVAL or -ERANGE. */
int parse_whole(const char *text, uint64_t *ret);

/* Sizes and times in the shortest form that parse_size and parse_usec read back: "512M", "1536K", "30s", "null". Owned. */
char *format_size_word(uint64_t size);
char *format_time_word(uint64_t usec);
