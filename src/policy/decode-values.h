/* Inside the decoder: values without members, and what lists and maps share with them. */
#pragma once

#include "policy/decode.h"
#include "policy/schema.h"

/* Decodes a scalar of the row's type into its member of the struct at `base`. False, and nothing done, when the type has members.
 */
bool decode_scalar(struct decoder *d, const struct row *row, const struct node *node, char *base, const char *key);

/* What a value of the row looks like, in words. */
const char *decode_expected(const struct row *row);

/* "expected ..., got ...", for a value of the wrong type and for a text that its check refused. */
void decode_wrong_value(struct decoder *d, const struct row *row, const struct node *node, const char *key,
			const char *suggestion);
void decode_wrong_syntax(struct decoder *d, const struct node *node, const char *key, const struct fault *f);

/* Copies row->size bytes; takes over a string in place of the one that is there. */
void decode_put(char *base, const struct row *row, const void *value);
void decode_put_text(char *base, const struct row *row, char *text);

/* A text that passed the check of its row, or NULL (reported). Owned by the caller. */
char *decode_checked_text(struct decoder *d, const struct row *row, const struct node *node, const char *key);
