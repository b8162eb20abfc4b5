/* The values of secrets, in memory that is kept out of core dumps and wiped when freed. Nothing here is ever logged or recorded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct secrets;

struct secrets *secrets_new(void);
void secrets_free(struct secrets *s);
/* Sets, replaces, or with NULL revokes. 0, or -ENOMEM when there is no memory of that kind: the name has no value then. */
int secrets_set(struct secrets *s, const char *name, const char *value, size_t size);
/* The value, valid until the next secrets_set; NULL when unknown or revoked. */
const char *secrets_get(const struct secrets *s, const char *name, size_t *ret_size);
/* Every value, revoked and replaced ones included, that was ever in use: for redaction. Calls back with each. */
void secrets_each(const struct secrets *s, void (*f)(void *ctx, const char *value, size_t size), void *ctx);
