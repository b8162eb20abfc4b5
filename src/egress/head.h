/* Heads of HTTP/1.0 and HTTP/1.1 messages: one strict reading of bytes that come from a hostile peer.
 *
 * Nothing is mended and nothing is guessed. What two parsers could read in two ways is refused: a bare CR or LF, a folded line, a
 * space before the colon, a control byte, more than one length, a length beside a transfer coding, a coding other than chunked.
 * What is sent on is written anew from the parts (http-request.c, http-response.c), never copied.
 *
 * The parts are slices of the text that was parsed, which must outlive them. No allocation. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { HEAD_SIZE_MAX = 32 * 1024, HEAD_FIELDS_MAX = 100, HEAD_METHOD_MAX = 23 };

struct slice {
	const char *data;
	size_t size;
};

struct head_field {
	struct slice name, value; /* the value without white space around it */
};

struct head {
	struct slice method, target; /* requests */
	struct slice reason;         /* responses */
	unsigned status;             /* responses: 100 to 599 */
	unsigned minor;              /* HTTP/1.minor: 0 or 1 */
	size_t field_count;
	struct head_field fields[HEAD_FIELDS_MAX];

	/* What the fields say about the message. */
	bool has_length, chunked;
	uint64_t length;
	bool close, keep_alive; /* words of Connection */
	bool upgrade;           /* Connection names Upgrade */
};

/* Why a head was refused: the status to answer a request with, and a sentence without full stop (static text). */
struct head_fault {
	unsigned status;
	const char *why;
};

/* Looks for the end of a head in the first `size` bytes of a message. `*scanned` is 0 at first and remembers how far it has
 * looked, so that bytes that come one at a time cost no more than bytes at once. The length of the head with its empty line; 0:
 * more is needed; -EBADMSG or -E2BIG with `ret`: it can never become one. */
ssize_t head_find(const char *data, size_t size, size_t *scanned, struct head_fault *ret);
/* The same with another ceiling than HEAD_SIZE_MAX. */
ssize_t head_find_within(const char *data, size_t size, size_t max, size_t *scanned, struct head_fault *ret);

/* `size` is what head_find returned. 0 or -EBADMSG with `fault`. */
int head_parse_request(const char *data, size_t size, struct head *ret, struct head_fault *fault);
int head_parse_response(const char *data, size_t size, struct head *ret, struct head_fault *fault);

/* The only field of that name (lower case), NULL when there is none or more than one; *ret_count, if not NULL, says how many. */
const struct head_field *head_field(const struct head *h, const char *name, size_t *ret_count);
/* Is it a field for the next hop alone: Connection, what Connection names, and those that RFC 9110 lists. Framing is among them.
 */
bool head_hop_by_hop(const struct head *h, const struct head_field *field);
/* Does the list of words in fields `name` have `word` (both lower case)? */
bool head_has_word(const struct head *h, const char *name, const char *word);

bool slice_is(struct slice s, const char *lower); /* without regard to case; `lower` is lower case */
bool slice_same(struct slice s, const char *text);
bool head_is_token(const char *data, size_t size);
/* May the bytes stand in a field's value: no control byte but TAB. */
bool head_is_value(const char *data, size_t size);
