/* From a file, standard input or a text to a tree. Everything here treats its input as hostile. */
#pragma once

#include <stddef.h>

#include "policy/node.h"
#include "policy/policy.h"

/* A policy is a page or two; a megabyte is far beyond any use, and small enough to hold and to parse. */
enum { SOURCE_SIZE_MAX = 1024 * 1024 };

/* Reads a regular file or pipe ("-": standard input) of at most SOURCE_SIZE_MAX bytes; larger files are refused unread. Returns 0
 * and a NUL-terminated text owned by the caller, or negative errno with an entry in `errors` under the label. */
int source_read(const char *ref, const char *label, char **ret, size_t *ret_size, struct policy_errors *errors);

/* Parses YAML, or strict JSON when the text starts with "{". Returns 0 and a tree (a map, perhaps empty), or -EINVAL with entries
 * in `errors`. Faults that leave the rest readable (duplicate keys, tags) are entries in `errors` and 0. */
int source_parse(const struct source *source, const char *text, size_t size, struct node **ret, struct policy_errors *errors);

/* The two formats; the text is known to be UTF-8 without NUL. */
int yaml_parse(const struct source *source, const char *text, size_t size, struct node **ret, struct policy_errors *errors);
int json_parse(const struct source *source, const char *text, size_t size, struct node **ret, struct policy_errors *errors);
